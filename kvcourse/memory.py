"""Lesson 07: what a KV cache takes, by arithmetic alone. Knows nothing about tensors: it multiplies numbers of a shape.

    2 · L · H_kv · D · S · B · bytes          K and V, in every layer, of every head and token of every text

With a window S stands still at its size. In int8 and int4, codes come with scales, and the last tokens stay in full precision,
as `QuantizedCache` keeps them.
"""

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from kvcourse.errors import InputError
from kvcourse.model_shapes import Shape

Dtype = Literal["float32", "float16", "bfloat16", "int8", "int4"]
DTYPES: tuple[str, ...] = get_args(Dtype)
BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "int8": 8, "int4": 4}
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
BUDGET_BYTES = 24 << 30


@dataclass(frozen=True)
class Memory:
    """What one model takes for these texts. Sizes in bytes, unless the name says tokens."""

    model: str
    context_tokens: int
    batch: int
    dtype: str
    window_tokens: int | None
    kept_tokens: int  # rows held of each text: fewer than its tokens with a window
    kv_bytes: int
    multi_head_kv_bytes: int  # if every query head had K and V of its own (H in place of H_kv)
    weight_bytes: int | None  # at the same dtype; None: not known
    budget_bytes: int
    fits_tokens: int | None  # of each text, beside the weights; None: any number, or the weights are not known
    beyond_context: bool  # the model was not made for texts this long

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def price(
    shape: Shape,
    context_tokens: int | None = None,
    batch: int = 1,
    dtype: str = "float16",
    *,
    window_tokens: int | None = None,
    budget_bytes: int = BUDGET_BYTES,
) -> Memory:
    """Everything about one model.

    context_tokens: tokens of each text; None: as many as the model was made for. window_tokens: None for the model's own.
    Raises: InputError for anything below 1, or a dtype that is none of DTYPES.
    """
    context = shape.context_tokens if context_tokens is None else context_tokens
    _require(context_tokens=context, batch=batch, budget_bytes=budget_bytes)
    window = shape.window_tokens if window_tokens is None else window_tokens
    options: dict[str, Any] = {"batch": batch, "dtype": dtype, "window_tokens": window}
    weights = weight_bytes(shape, dtype)
    return Memory(
        model=shape.name,
        context_tokens=context,
        batch=batch,
        dtype=dtype,
        window_tokens=window,
        kept_tokens=context if window is None else min(context, window),
        kv_bytes=kv_bytes(shape, context, **options),
        multi_head_kv_bytes=kv_bytes(shape, context, n_kv_head=shape.n_head, **options),
        weight_bytes=weights,
        budget_bytes=budget_bytes,
        fits_tokens=None if weights is None else tokens_that_fit(shape, budget_bytes - weights, **options),
        beyond_context=context > shape.context_tokens,
    )


def kv_bytes(
    shape: Shape,
    context_tokens: int,
    *,
    batch: int = 1,
    dtype: str = "float16",
    window_tokens: int | None = None,
    n_kv_head: int | None = None,
    group_tokens: int = 32,
    residual_tokens: int = 32,
    model_dtype: str = "float16",
) -> int:
    """Bytes of K and V of `batch` texts of `context_tokens` each.

    n_kv_head: in place of the shape's own. The last three matter to int8 and int4 only. group_tokens: tokens whose keys share
    a scale and a zero point, per channel; each value head of each token has its own pair. residual_tokens: the last tokens,
    kept in `model_dtype`, as all scales and zero points are.
    """
    _require(context_tokens=context_tokens, batch=batch, group_tokens=group_tokens, dtype=dtype)
    if window_tokens is not None:
        _require(window_tokens=window_tokens)
    S = context_tokens if window_tokens is None else min(context_tokens, window_tokens)
    heads, D = shape.n_layer * (n_kv_head or shape.n_kv_head) * batch, shape.head_size
    if dtype not in ("int8", "int4"):
        return 2 * heads * D * S * BITS[dtype] // 8
    itemsize_bytes = BITS[model_dtype] // 8
    packed = max(0, S - residual_tokens) // group_tokens * group_tokens
    codes_bytes = 2 * D * packed * BITS[dtype] // 8
    pairs = packed // group_tokens * D + packed  # of scale and zero point: of keys, of values
    return heads * (codes_bytes + 2 * pairs * itemsize_bytes + 2 * D * (S - packed) * itemsize_bytes)


def weight_bytes(shape: Shape, dtype: str) -> int | None:
    """Bytes of the model's parameters at a dtype, scales of quantized weights left out. None: the number is not known."""
    _require(dtype=dtype)
    return None if shape.parameters is None else (shape.parameters * BITS[dtype] + 7) // 8


def tokens_that_fit(shape: Shape, room_bytes: int, *, window_tokens: int | None = None, **options: Any) -> int | None:
    """How long `batch` texts may all grow within `room_bytes`. None: without end, since a window stops growing.

    options: as for `kv_bytes`.
    """
    if window_tokens is not None and _most_bytes(shape, window_tokens, **options) <= room_bytes:
        return None
    fits, too_many = 0, 1
    while _most_bytes(shape, too_many, **options) <= room_bytes:
        fits, too_many = too_many, 2 * too_many
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if _most_bytes(shape, middle, **options) <= room_bytes else (fits, middle)
    return fits


def _most_bytes(shape: Shape, context_tokens: int, **options: Any) -> int:
    """The most that a text ever takes on its way to this length: just before a group is rounded it takes more than after."""
    group, residual = options.get("group_tokens", 32), options.get("residual_tokens", 32)
    peak = (context_tokens + 1 - residual) // group * group + residual - 1
    return max(kv_bytes(shape, n, **options) for n in (context_tokens, peak) if n >= 1)


def in_words(shape: Shape, memory: Memory) -> list[str]:
    """The same for a reader: the sum written out, and what it means."""
    texts = "one text" if memory.batch == 1 else f"{memory.batch:,} texts"
    kept = memory.kept_tokens
    window = f" (a window: {kept:,} are kept)" if kept < memory.context_tokens else ""
    factors = f"2 · {shape.n_layer} · {shape.n_kv_head} · {shape.head_size} · {kept:,} · {memory.batch:,}"
    number = {32: "4 bytes", 16: "2 bytes", 8: "1 byte, and scales", 4: "half a byte, and scales"}[BITS[memory.dtype]]
    lines = [
        f"{shape.name}: {shape.n_layer} layers, {shape.n_kv_head} K/V heads for {shape.n_head} query heads of size "
        f"{shape.head_size}, made for {shape.context_tokens:,} tokens.",
        f"K and V of {texts} of {memory.context_tokens:,} tokens{window} in {memory.dtype}: {format_bytes(memory.kv_bytes)} "
        f"= {factors} · {number}.",
    ]
    if shape.n_kv_head < shape.n_head:
        lines.append(f"With K and V for every query head: {format_bytes(memory.multi_head_kv_bytes)}.")
    if memory.weight_bytes is None:
        lines.append("Weights: not there to be counted.")
    else:
        lines += [f"Weights in {memory.dtype}: {format_bytes(memory.weight_bytes)}.", _room_in_words(memory)]
    if memory.beyond_context:
        lines.append(f"The model was made for {shape.context_tokens:,} tokens; beyond them, this is arithmetic only.")
    return lines


def _room_in_words(memory: Memory) -> str:
    budget, texts = format_bytes(memory.budget_bytes), "the text" if memory.batch == 1 else "each text"
    if memory.weight_bytes is not None and memory.weight_bytes >= memory.budget_bytes:
        return f"The weights alone do not fit in {budget}."
    if memory.fits_tokens is None:
        return f"Beside them in {budget}, {texts} may grow without end: the window stands still."
    return f"Beside them in {budget}, {texts} may have {memory.fits_tokens:,} tokens."


def parse_bytes(text: str) -> int:
    """ "24GiB", "16 GB", "900MB", "4096": units of 1024 with an i, of 1000 without.

    Raises: InputError for anything else.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(i?))?B?\s*", text, re.IGNORECASE)
    size = 0 if match is None else float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index((match[2] or " ").upper())
    if not 1 <= size < 1e24:
        raise InputError("That is no amount of memory.", expected="a number with a unit, such as 24GiB", got=repr(text),
                         todo="Write a number above 0, and KiB, MiB, GiB or TiB.")  # fmt: skip
    return int(size)


def format_bytes(n_bytes: int) -> str:
    """ "1.0 GiB": in the largest unit of which there is at least one."""
    unit = max((i for i in range(len(UNITS)) if abs(n_bytes) >= 1024**i), default=0)
    return f"{n_bytes:,} B" if unit == 0 else f"{n_bytes / 1024**unit:,.1f} {UNITS[unit]}"


def _require(dtype: str | None = None, **counts: int) -> None:
    if dtype is not None and dtype not in DTYPES:
        raise InputError("K and V of no known dtype.", expected=f"one of {', '.join(DTYPES)}", got=repr(dtype),
                         todo="Choose one of them.")  # fmt: skip
    for name, n in counts.items():
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise InputError(f"{name} cannot be used.", expected="an int of 1 or more", got=repr(n), todo="Correct it.")

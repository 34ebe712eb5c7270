"""What many tests share: small models whose every part matters, ways of cutting tokens, and the proof that a cache is exact.

`assert_cache_is_exact(make, model)` is the definition of "this cache works": a list of claims, each of which compares with the
model without a cache. It raises NotExact, which names the first claim that does not hold, so that a test on a broken cache
can ask for the right diagnosis and not only for a failure.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import jaxtyping
import pytest
import torch
from pools import PagedOnDemand
from torch import Tensor

from kvcourse.caches.base import KeysValues
from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.config import GPTConfig, LlamaConfig
from kvcourse.errors import CacheFull, CacheMismatch, CacheMisuse
from kvcourse.generate import decode_step, prefill
from kvcourse.meter import Meter
from kvcourse.models.gpt import GPT
from kvcourse.models.llama import Llama
from kvcourse.probe import listening

GPT_SHAPE = GPTConfig(vocab_size=61, context_length=32, n_layer=3, n_head=4, n_embd=24, n_inner=40)
LLAMA_SHAPE = LlamaConfig(
    vocab_size=61,
    context_length=32,
    n_layer=3,
    n_head=6,
    n_kv_head=2,
    n_embd=24,
    n_inner=40,
    head_size=6,
    rope_theta=50.0,
    tied=False,
)
MODELS = ("gpt", "llama")
CACHES = ("growing", "preallocated", "paged")
CAPACITY = 48  # above the context: a ragged batch needs slots for its padding
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}  # of logits whose size is about 5

Make = Callable[..., object]  # make(starts=None) -> an empty cache


@pytest.fixture
def small_models() -> Iterator[None]:
    """What makes thousands of passes of a tiny model affordable.

    One thread: handing matrices this small from thread to thread takes longer than multiplying them, and far longer on a
    busy machine. No shape checks: with them a pass takes seven times as long; `shape_checks` puts them back where they are
    the point.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with shape_checks(False):
        yield
    torch.set_num_threads(threads)


@contextmanager
def shape_checks(on: bool) -> Iterator[None]:
    """Check the shapes that the package's signatures promise, or do not."""
    disabled = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", not on)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", disabled)


def make_model(kind: str, dtype: torch.dtype = torch.float64, seed: int = 0, **changes: object) -> GPT | Llama:
    """A model of a few thousand weights, large enough in value that a wrong mask, position or row shows in the logits."""
    torch.manual_seed(seed)
    model = GPT(replace(GPT_SHAPE, **changes)) if kind == "gpt" else Llama(replace(LLAMA_SHAPE, **changes))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            drawn = torch.empty(weight.shape)  # not into the weight itself: how it lies in memory is nobody's business here
            if weight.dim() == 1:
                drawn.normal_(mean=0.0 if name.endswith("bias") else 1.0, std=0.2)
            else:
                drawn.normal_(std=1.0 if "wte" in name or "wpe" in name or "embed" in name else 1.5 / weight.shape[-1] ** 0.5)
            weight.copy_(drawn)
    return model.to(dtype).eval()


def make_empty(
    kind: str, starts: Sequence[int] | None = None, capacity: int = CAPACITY
) -> GrowingCache | PreallocatedCache | PagedOnDemand:
    if kind == "growing":
        return GrowingCache(starts)
    return {"preallocated": PreallocatedCache, "paged": PagedOnDemand}[kind](capacity, starts)


def blocks(model: GPT | Llama) -> list[torch.nn.Module]:
    return list(model.transformer.h if isinstance(model, GPT) else model.model.layers)


def attention(block: torch.nn.Module) -> torch.nn.Module:
    return block.attn if hasattr(block, "attn") else block.self_attn


def last_norm(model: GPT | Llama) -> torch.nn.Module:
    return model.transformer.ln_f if isinstance(model, GPT) else model.model.norm


def rows_that_part(free_run):
    """Two prompts, and a token that ends the first one's answer well before the second's, whatever becomes of near ties.

    free_run: from two prompts to their outputs without a stop.
    """
    for seed in range(50):
        prompts = random_ids(2, 9, seed=seed).tolist()
        one, other = (output.tokens for output in free_run(prompts))
        stop = next((token for token in one[2:6] if token not in other), None)
        if stop is not None:
            return prompts, stop
    raise AssertionError("fifty pairs of prompts, and no answer that could be stopped alone")


def random_ids(*shape: int, seed: int = 1, vocab_size: int = 61) -> Tensor:
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def cut(total: int, sizes: Sequence[int]) -> list[int]:
    """`sizes` again and again until they add up to `total`."""
    parts: list[int] = []
    while sum(parts) < total:
        parts.append(min(sizes[len(parts) % len(sizes)], total - sum(parts)))
    return parts


CHUNKINGS: dict[str, Callable[[int], list[int]]] = {
    "one pass": lambda total: [total],
    "chunks of 1": lambda total: cut(total, [1]),
    "chunks of 4": lambda total: cut(total, [4]),
    "uneven chunks": lambda total: cut(total, [3, 1, 5, 2]),
    "all but one, then one": lambda total: [total - 1, 1],
}


def in_chunks(model: GPT | Llama, tokens: Tensor, cache: object, sizes: Sequence[int]) -> Tensor:
    """Logits of every position, computed chunk by chunk."""
    return torch.cat([model(part, cache=cache) for part in tokens.split(list(sizes), dim=1)], dim=1)


def uncached(model: GPT | Llama, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        return model(tokens)


def assert_close(got: Tensor, expected: Tensor, what: str) -> None:
    assert got.shape == expected.shape, f"{what}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    assert got.dtype == expected.dtype, f"{what}: {got.dtype}, expected {expected.dtype}"
    wrong = (got - expected).abs()
    largest = wrong.max().item() if wrong.numel() else 0.0
    assert largest <= TOLERANCE[got.dtype], f"{what}: differs by {largest:.3g}"  # NaN is not <= either


def padded(prompts: Sequence[Sequence[int]]) -> tuple[Tensor, list[int]]:
    """Prompts of different lengths side by side, padded on the left with an ordinary token, and each row's start."""
    longest = max(map(len, prompts))
    starts = [longest - len(prompt) for prompt in prompts]
    return torch.tensor([[7] * start + list(prompt) for start, prompt in zip(starts, prompts, strict=True)]), starts


def snapshot(cache: object, n_layer: int) -> tuple[object, ...]:
    """Everything that can be seen of a cache, as plain numbers."""
    rows = [[t.tolist() for t in cache.read(layer, 0, cache.length)] for layer in range(n_layer) if cache.length]
    starts = None if cache.starts is None else cache.starts.tolist()
    return cache.length, cache.held, cache.nbytes, cache.capacity, starts, cache.can_truncate(cache.length), rows


def keys_and_values(model: GPT | Llama, tokens: Tensor) -> list[KeysValues]:
    """What every layer computes without a cache."""
    seen: dict[tuple[int | None, str], Tensor] = {}
    with listening(lambda layer, name, tensor: seen.__setitem__((layer, name), tensor.clone())):
        uncached(model, tokens)
    return [KeysValues(seen[layer, "attn.k"], seen[layer, "attn.v"]) for layer in range(model.config.n_layer)]


@contextmanager
def raising_in(module: torch.nn.Module, fault: BaseException) -> Iterator[None]:
    """Whoever calls `module` gets `fault`."""

    def fail(*_: object) -> None:
        raise fault

    handle = module.register_forward_pre_hook(fail)
    try:
        yield
    finally:
        handle.remove()


# The proof. Each claim takes make(starts=None) -> an empty cache, and a model.


class NotExact(AssertionError):
    """A claim that does not hold, and why."""

    def __init__(self, claim: str, why: BaseException) -> None:
        super().__init__(f"not so: {claim} ({type(why).__name__}: {why})")
        self.claim = claim


def it_equals_one_pass_for_every_chunking(make: Make, model: GPT | Llama) -> None:
    tokens = random_ids(1, 13)
    expected = uncached(model, tokens)
    for name, sizes in CHUNKINGS.items():
        cache = make()
        assert_close(in_chunks(model, tokens, cache, sizes(13)), expected, name)
        assert (cache.length, cache.held) == (13, 13), f"{name}: length {cache.length}, held {cache.held}"


def it_keeps_the_rows_of_a_batch_apart(make: Make, model: GPT | Llama) -> None:
    tokens = random_ids(3, 11, seed=2)
    for name, sizes in CHUNKINGS.items():
        assert_close(in_chunks(model, tokens, make(), sizes(11)), uncached(model, tokens), name)


def it_holds_the_keys_and_values_of_one_pass(make: Make, model: GPT | Llama) -> None:
    tokens = random_ids(2, 9, seed=3)
    for name, sizes in CHUNKINGS.items():
        cache = make()
        in_chunks(model, tokens, cache, sizes(9))
        for layer, rows in enumerate(keys_and_values(model, tokens)):
            for held, computed, which in zip(cache.read(layer, 0, 9), rows, ("keys", "values"), strict=True):
                assert_close(held, computed, f"{name}: {which} of layer {layer}")
            assert_close(cache.read(layer, 3, 7).values, rows.values[:, :, 3:7], f"{name}: slots 3 to 6")
    for start, stop in ((0, 10), (-1, 3), (5, 4)):
        refuses(CacheMisuse, lambda start=start, stop=stop: cache.read(0, start, stop))


def a_ragged_batch_equals_each_row_alone(make: Make, model: GPT | Llama) -> None:
    prompts = [random_ids(length, seed=10 + length).tolist() for length in (9, 4, 1, 7)]
    tokens, starts = padded(prompts)
    more = random_ids(len(prompts), 5, seed=4)
    for name, sizes in CHUNKINGS.items():
        cache = make(starts=starts)
        logits = torch.cat((in_chunks(model, tokens, cache, sizes(9)), in_chunks(model, more, cache, sizes(5))), dim=1)
        for row, (prompt, start) in enumerate(zip(prompts, starts, strict=True)):
            alone = uncached(model, torch.tensor([[*prompt, *more[row].tolist()]]))
            assert_close(logits[row : row + 1, start:], alone, f"{name}: row {row}, padded by {start}")


def prefill_in_chunks_and_decode_equal_one_pass(make: Make, model: GPT | Llama) -> None:
    tokens = random_ids(1, 15, seed=5)
    expected = uncached(model, tokens)
    for chunk in (None, 1, 3, 4, 10, 99):
        cache = make()
        assert_close(prefill(model, tokens[:, :10], cache, chunk), expected[:, 9], f"prefill, chunk={chunk}")
        for position in range(10, 15):
            logits = decode_step(model, int(tokens[0, position]), cache)
            assert_close(logits, expected[:, position], f"chunk={chunk}, decode at {position}")


def only_new_tokens_are_computed(make: Make, model: GPT | Llama) -> None:
    cache = make()
    for part in (7, 1, 3):
        with Meter() as meter:
            model(random_ids(1, part), cache=cache)
        assert (meter.cost.tokens, meter.cost.kv_rows) == (part, part * model.config.n_layer), str(meter.cost)


def it_is_cut_to_every_length_and_goes_on(make: Make, model: GPT | Llama) -> None:
    first, second = random_ids(1, 8, seed=6), random_ids(1, 5, seed=7)
    for length in range(9):
        cache = make()
        in_chunks(model, first, cache, [3, 5])
        assert cache.can_truncate(length)
        cache.truncate(length)
        assert (cache.length, cache.held) == (length, length)
        if length < 8:
            refuses(CacheMisuse, lambda cache=cache, length=length: cache.read(0, 0, length + 1))
        both = torch.cat((first[:, :length], second), dim=1)
        assert_close(in_chunks(model, second, cache, [2, 1, 2]), uncached(model, both)[:, length:], f"cut to {length}")
    for length in (-2, -1, 9, 10):
        cache = make()
        model(first, cache=cache)
        before = snapshot(cache, model.config.n_layer)
        assert not cache.can_truncate(length)
        refuses(CacheMisuse, lambda cache=cache, length=length: cache.truncate(length))
        assert snapshot(cache, model.config.n_layer) == before


def forks_go_their_own_ways(make: Make, model: GPT | Llama) -> None:
    trunk = random_ids(2, 6, seed=8)
    for sizes in ([1, 1, 1], [3]):
        cache = make()
        model(trunk, cache=cache)
        family = [cache, cache.fork(), cache.fork()]
        family.append(family[1].fork())
        ends = [random_ids(2, 3, seed=20 + member) for member in range(4)]
        step, logits = 0, [[] for _ in family]
        for size in sizes:  # in turn, so that each would see what the others write
            for member, end, out in zip(family, ends, logits, strict=True):
                out.append(model(end[:, step : step + size], cache=member))
            step += size
        for number, (end, out) in enumerate(zip(ends, logits, strict=True)):
            whole = uncached(model, torch.cat((trunk, end), dim=1))
            assert_close(torch.cat(out, dim=1), whole[:, 6:], f"member {number}, chunks {sizes}")
        family[0].truncate(2)
        family[3].reset()
        for layer, rows in enumerate(keys_and_values(model, torch.cat((trunk, ends[2]), dim=1))):
            assert_close(family[2].read(layer, 0, 9).keys, rows.keys, "a fork after another was cut and a third reset")


def forks_keep_their_padding(make: Make, model: GPT | Llama) -> None:
    tokens, starts = padded([[1, 2, 3, 4, 5], [6, 7]])
    more = random_ids(2, 3, seed=9)
    cache = make(starts=starts)
    model(tokens, cache=cache)
    for member in (cache.fork(), cache):
        logits = model(more, cache=member)
        alone = uncached(model, torch.tensor([[6, 7, *more[1].tolist()]]))[:, 2:]
        assert_close(logits[1:], alone, "the padded row")


def after_a_reset_it_is_as_new(make: Make, model: GPT | Llama) -> None:
    tokens, starts = padded([[1, 2, 3, 4, 5], [6, 7]])
    other = random_ids(2, 9, seed=9)
    for name, sizes in CHUNKINGS.items():
        cache = make(starts=starts)
        model(tokens, cache=cache)
        cache.reset()
        assert (cache.length, cache.held, cache.starts) == (0, 0, None)
        refuses(CacheMisuse, lambda cache=cache: cache.read(0, 0, 1))
        assert_close(in_chunks(model, other, cache, sizes(9)), uncached(model, other), f"{name} after a reset")


def a_failed_pass_changes_nothing(make: Make, model: GPT | Llama) -> None:
    tokens = random_ids(1, 12, seed=11)
    places = [part for block in blocks(model) for part in (attention(block), block.mlp)] + [last_norm(model)]
    for fault in (RuntimeError("on purpose"), KeyboardInterrupt()):
        for held in (0, 5):
            for place in places:
                cache = make()
                if held:
                    model(tokens[:, :held], cache=cache)
                before = snapshot(cache, model.config.n_layer)
                with raising_in(place, fault):
                    refuses(type(fault), lambda cache=cache, held=held: model(tokens[:, held : held + 4], cache=cache))
                assert snapshot(cache, model.config.n_layer) == before, f"{held} held, {type(fault).__name__}"
                if not held:
                    cache.fork()
                logits = in_chunks(model, tokens[:, held:], cache, [1, 2, 12 - held - 3])
                assert_close(logits, uncached(model, tokens)[:, held:], f"after a failed pass with {held} held")


def two_caches_share_nothing(make: Make, model: GPT | Llama) -> None:
    one, two = random_ids(1, 10, seed=12), random_ids(1, 10, seed=13)
    first, second = make(), make()
    for position in range(0, 10, 2):
        here = slice(position, position + 2)
        assert_close(model(one[:, here], cache=first), uncached(model, one)[:, here], f"the first, at {position}")
        assert_close(model(two[:, here], cache=second), uncached(model, two)[:, here], f"the second, at {position}")
        uncached(model, random_ids(2, 3))  # nor does a pass without a cache disturb one


def inference_mode_makes_no_difference(make: Make, model: GPT | Llama) -> None:
    tokens = random_ids(1, 8, seed=14)
    expected = uncached(model, tokens)
    for pattern in ("ioioioio", "oioioioi", "iiiioooo", "ooooiiii"):
        cache = make()
        for position, mode in enumerate(pattern):
            with torch.inference_mode(mode == "i"):
                logits = model(tokens[:, position : position + 1], cache=cache)
                if position == 3:
                    cache = cache.fork()
                if position == 5:
                    cache.truncate(5)
                    model(tokens[:, 5:6], cache=cache)
            assert_close(logits.clone(), expected[:, position : position + 1], f"{pattern} at {position}")


def it_refuses_what_it_cannot_serve(make: Make, model: GPT | Llama) -> None:
    cache = make()
    model(random_ids(2, 4), cache=cache)
    before = snapshot(cache, model.config.n_layer)
    twin = make_model("gpt" if isinstance(model, GPT) else "llama", model.dtype)
    refuses(CacheMismatch, lambda: twin(random_ids(2, 1), cache=cache))
    refuses(CacheMismatch, lambda: model(random_ids(1, 1), cache=cache))
    refuses(CacheMismatch, lambda: model(random_ids(3, 1), cache=cache))
    refuses(CacheMismatch, lambda: cache.bind(model, 2, torch.float16, model.device))
    refuses(CacheMismatch, lambda: cache.bind(model, 2, model.dtype, torch.device("meta")))
    assert snapshot(cache, model.config.n_layer) == before


def it_keeps_within_its_capacity(make: Make, model: GPT | Llama) -> None:
    cache = make()
    if cache.capacity is None:
        return  # it has none to keep
    cache = make(capacity=9)
    most = cache.capacity  # 9, or more where room comes in blocks
    model(random_ids(1, most - 2), cache=cache)
    before = snapshot(cache, model.config.n_layer)
    refuses(CacheFull, lambda: model(random_ids(1, 3), cache=cache))
    assert snapshot(cache, model.config.n_layer) == before
    model(random_ids(1, 2), cache=cache)
    assert cache.length == most
    refuses(CacheFull, lambda: model(random_ids(1, 1), cache=cache))


CLAIMS: tuple[Callable[[Make, GPT | Llama], None], ...] = (
    it_equals_one_pass_for_every_chunking,
    it_keeps_the_rows_of_a_batch_apart,
    it_holds_the_keys_and_values_of_one_pass,
    a_ragged_batch_equals_each_row_alone,
    prefill_in_chunks_and_decode_equal_one_pass,
    only_new_tokens_are_computed,
    it_is_cut_to_every_length_and_goes_on,
    forks_go_their_own_ways,
    forks_keep_their_padding,
    after_a_reset_it_is_as_new,
    two_caches_share_nothing,
    inference_mode_makes_no_difference,
    it_refuses_what_it_cannot_serve,
    a_failed_pass_changes_nothing,
    it_keeps_within_its_capacity,
)


def assert_cache_is_exact(make: Make, model: GPT | Llama) -> None:
    """Every claim, in order. Raises NotExact with the first that does not hold, whatever went wrong there."""
    for claim in CLAIMS:
        try:
            claim(make, model)
        except Exception as why:
            raise NotExact(claim.__name__.replace("_", " "), why) from why


def refuses(fault: type[BaseException], act: Callable[[], object]) -> None:
    """Assert that `act` raises exactly this."""
    try:
        act()
    except fault as raised:
        if isinstance(raised, KeyboardInterrupt) or type(raised) is fault:
            return
        raise
    raise AssertionError(f"{fault.__name__} was not raised")


@contextmanager
def fails_in_one_line() -> Iterator[None]:
    """What runs inside must end in a check's own verdict, one line long, and not in a name that is missing."""
    with pytest.raises(Exception) as failed:
        yield
    assert type(failed.value).__name__ == "CheckFailed" and "\n" not in failed.value._render_traceback_()
    assert not isinstance(failed.value.__context__, NameError | SyntaxError | ImportError)

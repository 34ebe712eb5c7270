"""Lesson 14: a cache, beside the text that it must hold: whatever is done to it, what it gives is compared. Knows no proof.

A cache that is not exact is compared with its twin: a new one of its kind to which the same was done, fork for fork.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from kvcourse.certificate.bed import Pair
from kvcourse.certificate.bench import Bench, NotClaimed, NotProved
from kvcourse.models.base import CausalLM
from kvcourse.probe import listening

Step = Callable[[Any], object]  # something done to a cache
_TOLD = 4  # of the last things done, in a message
WINDOW = 24  # tokens: of a cache with a window, so that it goes round


class Known:
    """Logits and rows of one pass without a cache, each computed once."""

    def __init__(self) -> None:
        self._seen: dict[tuple[object, ...], Tensor] = {}
        self._rows: dict[tuple[object, ...], list[tuple[Tensor, Tensor]]] = {}

    def logits(self, model: CausalLM, text: Tensor, last: int) -> Tensor:
        """Of the last so many positions, (B, last, V)."""
        key = (_key(model, text), last)
        if key not in self._seen:
            with torch.no_grad():
                self._seen[key] = model(text, logits_to_keep=last)
        return self._seen[key]

    def rows(self, model: CausalLM, text: Tensor) -> list[tuple[Tensor, Tensor]]:
        """K and V of every block, (B, H_kv, T, D) each."""
        key = _key(model, text)
        if key not in self._rows:
            self._rows[key] = rows_of_one_pass(model, text)
        return self._rows[key]


def _key(model: CausalLM, text: Tensor) -> tuple[object, ...]:
    return id(model), text.shape, text.numpy().tobytes()


def rows_of_one_pass(model: CausalLM, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    """K and V of every block as a pass without a cache computes them, (B, H_kv, T, D) each."""
    seen: dict[tuple[int | None, str], Tensor] = {}
    with torch.no_grad(), listening(lambda layer, name, tensor: seen.__setitem__((layer, name), tensor.clone())):
        model(tokens)
    return [(seen[layer, "attn.k"], seen[layer, "attn.v"]) for layer in range(model.config.n_layer)]


def read_and_compared(
    pair: Pair, bench: Bench, cache: Any, rows: list[tuple[Tensor, Tensor]], start: int, stop: int, when: str = ""
) -> None:
    """What `read` hands out, in every block. Keys that are kept raw, and turned when they are looked at, are left out."""
    raw = getattr(cache, "keys", "rotated") == "raw" and pair.model.rotary
    for layer, expected in enumerate(rows):
        for what, held, computed in zip("KV", cache.read(layer, start, stop), expected, strict=True):
            if not (raw and what == "K"):
                bench.close(held, computed[:, :, start:stop], f"{what} of block {layer}{when}", start)


class OnPurpose(Exception):
    """Raised in the middle of a pass."""


def places_to_fail(model: CausalLM) -> dict[str, nn.Module]:
    """Where a pass shall fail: in the middle of the second block, and after the last one."""
    norms = [one for name, one in model.named_modules() if name.endswith(("ln_2", "post_attention_layernorm"))]
    return {"in a block": norms[1], "after the last block": list(model.modules())[-1]}


@contextmanager
def broken(module: nn.Module) -> Iterator[None]:
    def fail(*_: object) -> None:
        raise OnPurpose

    handle = module.register_forward_pre_hook(fail)
    try:
        yield
    finally:
        handle.remove()


class Branch:
    """One cache and its text, (batch, n). Everything done to the cache is done through this."""

    def __init__(self, pair: Pair, bench: Bench, known: Known, room: int, batch: int = 1) -> None:
        self.pair, self.bench, self.known, self.batch = pair, bench, known, batch
        self._room = WINDOW if getattr(pair.cache(), "window", None) is not None else room
        self.cache = pair.cache(self._room)
        self.is_exact = pair.is_exact
        self.text = torch.empty(batch, 0, dtype=torch.int64)
        self.past: list[str] = []
        self._steps: list[Step] = []  # of this cache since it was new, or of those that it was forked from
        self._twin = None if self.is_exact else pair.cache(self._room)

    def __len__(self) -> int:
        return self.text.shape[1]

    @property
    def when(self) -> str:
        past = self.past if len(self.past) <= _TOLD else ["…", *self.past[-_TOLD:]]
        return f" after {', '.join(past)}" if past else ""

    def free(self, most: int) -> int:
        """How many tokens it takes now, so that it has no more than `most`: as it says itself."""
        capacity = getattr(self.cache, "capacity", None)
        return min(most, self.pair.model.config.context_length, most if capacity is None else capacity) - len(self)

    def add(self, tokens: Tensor) -> None:
        """Some tokens more. Raises: NotClaimed where it says that it has no room for them."""
        T = tokens.shape[1]
        free = self.free(len(self) + T)
        if free < T:
            raise NotClaimed(
                f"it says that it has room for {max(0, len(self) + free)} tokens{self.when}, and not for {len(self) + T}"
            )
        with self._telling("a pass"):
            logits = self.pair.model(tokens, cache=self.cache)
        start, self.text = len(self), torch.cat((self.text, tokens), dim=1)
        self._did(f"{T} token{'s' * (T > 1)}", lambda cache: self.pair.model(tokens, cache=cache), run=False)
        if self._twin is None:
            expected = self.known.logits(self.pair.model, self.text, T)
        else:
            expected = self.pair.model(tokens, cache=self._twin)
        self.bench.close(logits, expected, f"logits{self.when}", start)
        self.check()

    def fail(self, tokens: Tensor) -> None:
        """A pass that breaks off in a block, and leaves no trace: its twin is not told."""
        with broken(places_to_fail(self.pair.model)["in a block"]):
            self.bench.refuses(OnPurpose, lambda: self.pair.model(tokens, cache=self.cache), f"a pass{self.when}")
        self.past.append("a pass that failed")
        self.check()

    def cut(self, length: int) -> bool:
        """Cut to so many tokens. False: it says that it cannot be, as one that is not exact may."""
        if not self.cache.can_truncate(length):
            self.bench.holds(not self.is_exact, f"can_truncate({length}) of {len(self)} tokens is True{self.when}")
            return False
        self.text = self.text[:, :length]
        self._did(f"a cut to {length}", lambda cache: cache.truncate(length))
        self.check()
        return True

    def reset(self) -> None:
        self.text = self.text[:, :0]
        self._did("a reset", lambda cache: cache.reset())
        self.check()

    def fork(self) -> "Branch":
        """Raises: NotClaimed where it says that it cannot be forked."""
        if not self.cache.can_fork:
            raise NotClaimed("it says that it cannot be forked")
        other = object.__new__(Branch)
        other.__dict__.update(self.__dict__)
        with self._telling("a fork"):
            other.cache = self.cache.fork()
        other.past, other._steps = [*self.past, "a fork"], list(self._steps)
        self.bench.holds(other.cache is not self.cache, "a fork is another cache than its parent")
        if self._twin is not None:
            other._twin = self.pair.cache(self._room)
            for step in self._steps:
                step(other._twin)
        self.past.append("being forked")
        other.check()
        return other

    def read(self, start: int = 0) -> None:
        """Rows from `start` on, of all blocks: those of one pass."""
        if len(self) and self.is_exact:
            rows = self.known.rows(self.pair.model, self.text)
            with self._telling("read"):
                read_and_compared(self.pair, self.bench, self.cache, rows, start, len(self), self.when)

    def check(self) -> None:
        """What it says of itself. One that is not exact may hold fewer rows than tokens, but some."""
        cache, n = self.cache, len(self)
        held = n if self.is_exact else max(min(getattr(self._twin, "held", n), n), min(n, 1))
        told = (cache.length, cache.held, cache.nbytes > 0 or not n)
        self.bench.same(told, (n, held, True), f"length, rows held, takes bytes{self.when}")

    def _did(self, told: str, step: Step, run: bool = True) -> None:
        if run:
            with self._telling(told):
                step(self.cache)
            if self._twin is not None:
                step(self._twin)
        self.past.append(told)
        self._steps.append(step)

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Whatever is raised is told with what had been done before."""
        try:
            yield
        except (NotProved, NotClaimed):
            raise
        except (Exception, SystemExit) as fault:
            words = f"{type(fault).__name__}: {' '.join(str(fault).split())}"
            raise NotProved(f"{what}{self.when}: {words}") from fault

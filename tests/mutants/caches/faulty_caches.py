"""Caches with one fault each, as real ones had. A fault is a class to put in front of any full cache:

    broken(PositionsRestart, GrowingCache)(starts=None)

`caught_by` names the claim of the proof (tests/helpers.py) that must be the first to fail, `only` the caches it can happen to.
"""

from dataclasses import replace

import torch

from kvcourse.attention import causal_mask
from kvcourse.caches.base import KeysValues
from kvcourse.caches.full import FullCache
from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.preallocated import PreallocatedCache

BOTH = (GrowingCache, PreallocatedCache)


def broken(fault: type, kind: type) -> type:
    return type(f"{fault.__name__}{kind.__name__}", (fault, kind), {})


class PositionsRestart:
    """mlx-lm PR 93, nano-vllm PR 67: every call begins at position 0."""

    caught_by, only = "it equals one pass for every chunking", BOTH

    def plan(self, T):
        return replace(super().plan(T), query_positions=torch.arange(T))


class PositionsOffByOne:
    """tiny-llm PR 46: with a past, positions are one too high."""

    caught_by, only = "it equals one pass for every chunking", BOTH

    def plan(self, T):
        plan = super().plan(T)
        return replace(plan, query_positions=plan.query_positions + 1) if self.length else plan


class SquareMask:
    """LLMs-from-scratch PR 697: a mask of the new tokens among themselves, which hides the past."""

    caught_by, only = "it equals one pass for every chunking", BOTH

    def plan(self, T):
        plan = super().plan(T)
        if plan.mask is None:
            return plan
        return replace(plan, mask=plan.mask & (torch.arange(self.length + T) >= self.length))


class TopLeftMask:
    """llama 899, PyTorch 108108: the triangle sits at the left end of the wide rectangle."""

    caught_by, only = "it equals one pass for every chunking", BOTH

    def plan(self, T):
        plan = super().plan(T)
        if plan.mask is None or self.starts is not None:
            return plan
        return replace(plan, mask=causal_mask(torch.arange(T), torch.arange(self.length + T)))


class NoMaskWithPast:
    """tiny-llm, many others: the mask is left out as soon as something is cached, for one token or for four."""

    caught_by, only = "it equals one pass for every chunking", BOTH

    def plan(self, T):
        plan = super().plan(T)
        return replace(plan, mask=None) if self.length and self.starts is None else plan


class ValuesNotAppended:
    """The keys grow, the values do not: attention fails, or reads rows nobody wrote."""

    caught_by, only = "it equals one pass for every chunking", BOTH

    def append(self, layer, k, v):
        rows = super().append(layer, k, v)
        return KeysValues(rows.keys, rows.values[:, :, : max(self.length, 1)])


class ValuesNotWritten:
    """The quiet form of the same: the room for the new values is there, and empty."""

    caught_by, only = "it equals one pass for every chunking", BOTH

    def append(self, layer, k, v):
        return super().append(layer, k, torch.zeros_like(v))


class PastHidden:
    """LLMs-from-scratch 913: the cache is built and never read."""

    caught_by, only = "it equals one pass for every chunking", BOTH

    def plan(self, T):
        plan = super().plan(T)
        return replace(plan, mask=None if T == 1 else plan.mask[..., -T:])

    def append(self, layer, k, v):
        super().append(layer, k, v)
        return KeysValues(k, v)


class LengthOffByOne:
    """A row is written and not counted."""

    caught_by, only = "it equals one pass for every chunking", BOTH

    def advance(self, T):
        super().advance(T)
        self.length -= 1


class LengthNeverGrows:
    """The length is set, where it should be added to."""

    caught_by, only = "it equals one pass for every chunking", BOTH

    def advance(self, T):
        super().advance(T)
        self.length = T


class LayersShareRows:
    """nanochat PR 186: rows end up in another layer's storage."""

    caught_by, only = "it equals one pass for every chunking", BOTH

    def append(self, layer, k, v):
        rows = super().append(0, k, v)
        self._pending[layer] = k.shape[2]
        return rows


class NewestRowsFirst:
    """Right for one token at a time, as attention does not mind the order of its keys; wrong where a mask counts on it."""

    caught_by, only = "it equals one pass for every chunking", (GrowingCache,)

    def append(self, layer, k, v):
        old = [t[:, :, : self.length] for t in self._stored.get(layer, (k[:, :, :0], v[:, :, :0]))]
        self._stored[layer] = KeysValues(*(torch.cat((new, past), dim=2) for new, past in zip((k, v), old, strict=True)))
        self._pending[layer] = k.shape[2]
        return self._stored[layer]


class WrongDtype:
    """nanochat 795, kvpress 16: stored in another precision than computed."""

    caught_by, only = "it equals one pass for every chunking", BOTH

    def append(self, layer, k, v):
        lower = torch.float32 if k.dtype == torch.float64 else torch.bfloat16
        return super().append(layer, k.to(lower).to(k.dtype), v.to(lower).to(v.dtype))


class RowsOfTheBatchMixed:
    """The past of one row is served to another."""

    caught_by, only = "it keeps the rows of a batch apart", BOTH

    def append(self, layer, k, v):
        rows = super().append(layer, k, v)
        past = [t[:, :, : self.length].roll(1, dims=0) for t in rows]
        return KeysValues(*(torch.cat((old, t[:, :, self.length :]), dim=2) for old, t in zip(past, rows, strict=True)))


class FirstRowForAll:
    """A batch is expanded from its first row: unnoticed while all prompts are equal."""

    caught_by, only = "it keeps the rows of a batch apart", BOTH

    def append(self, layer, k, v):
        return super().append(layer, k[:1].expand_as(k), v[:1].expand_as(v))


class ReadsOneRowFurther:
    """Every span handed to a prefix cache or a file is shifted by one."""

    caught_by, only = "it holds the keys and values of one pass", BOTH

    def read(self, layer, start, stop):
        if 0 < start < stop < self.length:
            start, stop = start + 1, stop + 1
        return super().read(layer, start, stop)


class ReadsPastTheEnd:
    """mlx-examples 977: the padded buffer is handed out, not what is held."""

    caught_by, only = "it holds the keys and values of one pass", (PreallocatedCache,)

    def read(self, layer, start, stop):
        rows = self._rows(layer)
        return KeysValues(rows.keys[:, :, start:stop], rows.values[:, :, start:stop])


class PaddingSeen:
    """unsloth 3699, transformers 18104: padding is attended to."""

    caught_by, only = "a ragged batch equals each row alone", BOTH

    def plan(self, T):
        plan = super().plan(T)
        return (
            plan if self.starts is None else replace(plan, mask=causal_mask(plan.query_positions, plan.key_positions)[:, None])
        )


class PaddingCounted:
    """Padding is masked, and takes up positions all the same."""

    caught_by, only = "a ragged batch equals each row alone", BOTH

    def plan(self, T):
        plan = super().plan(T)
        return (
            plan
            if self.starts is None
            else replace(plan, query_positions=torch.arange(self.length, self.length + T), padding=0)
        )


class PaddingForgotten:
    """Right in the prompt; from the second pass on the padding counts as text."""

    caught_by, only = "a ragged batch equals each row alone", BOTH

    def advance(self, T):
        super().advance(T)
        self.starts = None


class ZeroKeepsAll:
    """transformers 47433: truncate(0) is taken for "no limit"."""

    caught_by, only = "it is cut to every length and goes on", BOTH

    def truncate(self, length):
        super().truncate(length or self.length)


class NegativeTruncates:
    """transformers 47433, mlx-lm PR 1868: a negative length counts from the end."""

    caught_by, only = "it is cut to every length and goes on", BOTH

    def can_truncate(self, length):
        return super().can_truncate(length + self.length if length < 0 else length)

    def truncate(self, length):
        super().truncate(length + self.length if length < 0 else length)


class StaleRowsAfterTruncate:
    """The length is cut, the rows are not, and new ones go behind them."""

    caught_by, only = "it is cut to every length and goes on", (GrowingCache,)

    def _forget_after(self, length):
        pass

    def _write(self, layer, k, v):
        old = self._stored.get(layer)
        self._stored[layer] = (
            KeysValues(k, v) if old is None else KeysValues(torch.cat((old[0], k), 2), torch.cat((old[1], v), 2))
        )
        return self._stored[layer]


class ForksShareStorage:
    """exo PR 991, lattice PR 516: a fork writes into its parent's rows."""

    caught_by, only = "forks go their own ways", (PreallocatedCache,)

    def _copy_rows(self, other):
        other._buffers = dict(self._buffers)


class ForksShareTheTable:
    """The tensors are new, the table of them is not: each sees what the other put there last."""

    caught_by, only = "forks go their own ways", (GrowingCache,)

    def _copy_rows(self, other):
        other._stored = self._stored


class ForkForgetsPadding:
    """A fork of one cache and the layout of another."""

    caught_by, only = "forks keep their padding", BOTH

    def fork(self):
        other = super().fork()
        other.starts = None
        return other


class ResetKeepsLength:
    """LLMs-from-scratch PR 925: the rows go, a counter stays."""

    caught_by, only = "after a reset it is as new", BOTH

    def reset(self):
        length = self.length
        super().reset()
        self.length = length


class ResetKeepsPadding:
    """transformers PR 48509: the rows go, the layout of the last prompt stays."""

    caught_by, only = "after a reset it is as new", BOTH

    def reset(self):
        starts = self.starts
        super().reset()
        self.starts = starts


class CommitsWithTheLastLayer:
    """The last layer's append moves the length, so an error after it cannot be undone."""

    caught_by, only = "a failed pass changes nothing", BOTH

    def append(self, layer, k, v):
        rows = super().append(layer, k, v)
        if layer == self._binding.n_layer - 1:
            FullCache.advance(self, k.shape[2])
        return rows

    def advance(self, T):
        pass


class NeverAborts:
    """What a failed pass appended stays pending."""

    caught_by, only = "a failed pass changes nothing", BOTH

    def abort(self):
        pass


class AbortResets:
    """An error costs the whole conversation."""

    caught_by, only = "a failed pass changes nothing", BOTH

    def abort(self):
        self.reset()


class OneStorageForAll:
    """The table belongs to the class."""

    caught_by, only = "two caches share nothing", BOTH

    _table: dict = {}  # noqa: RUF012 (the fault)

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._table.clear()
        self.__dict__["_stored"] = self.__dict__["_buffers"] = self._table

    def _copy_rows(self, other):
        other._stored = other._buffers = {layer: KeysValues(*(t.clone() for t in rows)) for layer, rows in self._table.items()}

    def _forget_after(self, length):
        pass


class BuffersOfInferenceMode:
    """Made by the first pass, inside torch.inference_mode(), and then written to outside it: PyTorch refuses."""

    caught_by, only = "inference mode makes no difference", (PreallocatedCache,)

    def _allocate(self, layer, k):
        B, H_kv, _, D = k.shape
        self._buffers[layer] = KeysValues(*(torch.empty(B, H_kv, self.capacity, D, dtype=k.dtype) for _ in range(2)))
        self._made_now.append(layer)
        return self._buffers[layer]


class ServesAnyone:
    """LLMs-from-scratch's optimized variant: another model or batch size is silently wrong."""

    caught_by, only = "it refuses what it cannot serve", BOTH

    def bind(self, model, batch_size, dtype, device):
        if self._binding is None:
            super().bind(model, batch_size, dtype, device)


class NoCapacityCheck:
    """nanochat PR 627: past its end a buffer fails with PyTorch's words, or not at all."""

    caught_by, only = "it keeps within its capacity", (PreallocatedCache,)

    def _require_room(self, T):
        pass


class CapacityOffByOne:
    """The last slot is never used."""

    caught_by, only = "it keeps within its capacity", (PreallocatedCache,)

    def _require_room(self, T):
        super()._require_room(T + 1)


FAULTS = [kind for kind in list(globals().values()) if isinstance(kind, type) and hasattr(kind, "caught_by")]

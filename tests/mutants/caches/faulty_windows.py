"""Sliding caches with one fault each, as real ones had. `caught_by` names the claim of tests/window_proof.py that it breaks."""

from dataclasses import replace

import torch

from kvcourse.caches.base import KeysValues
from kvcourse.caches.sliding import SlidingCache


class WindowOneTooWide(SlidingCache):
    """transformers 37574: a query sees the window and itself."""

    caught_by = "every chunking equals full attention under a banded mask"

    def __init__(self, window, sinks=0, starts=None):
        super().__init__(window + 1, sinks, starts)


class WindowOneTooNarrowInPrefill(SlidingCache):
    """litgpt 2182: the mask says < where the ring says <=, so a pass of several tokens sees one key less."""

    caught_by = "every chunking equals full attention under a banded mask"

    def _sees(self, queries, keys):
        return super()._sees(queries, keys) & ((keys > queries - self.window + 1) | (keys == queries))


class MaskForgetsTheWindow(SlidingCache):
    """A prompt longer than the window is read with a causal mask only: decode has a window, prefill has none."""

    caught_by = "every chunking equals full attention under a banded mask"

    def _sees(self, queries, keys):
        return (keys >= 0) & (keys <= queries)


class PrefillSeesTheFuture(SlidingCache):
    """nanochat 452: the window is kept, and causality is not."""

    caught_by = "every chunking equals full attention under a banded mask"

    def _sees(self, queries, keys):
        return (keys >= 0) & ((keys - queries).abs() < self.window)


class LongChunkKeepsItsStart(SlidingCache):
    """Of a pass longer than the window, the first rows stay and the last are thrown away."""

    caught_by = "every chunking equals full attention under a banded mask"

    def _commit(self, T):
        ring = self.window - self.sinks
        if T > ring and not self.sinks:
            last = {layer: KeysValues(*(t.roll(ring, dims=2) for t in rows)) for layer, rows in self._new.items()}
            self._new = last
        super()._commit(T)


class OldestStaysInDecode(SlidingCache):
    """The new row takes the slot of the row before it: the ring never turns."""

    caught_by = "every chunking equals full attention under a banded mask"

    @property
    def _next_slot(self):
        return min(self.length, self.window - 1)


class SinksTurnedByTheirPlaceInTheText(SlidingCache):
    """transformers 35350: positions inside the cache are forgotten, and distances grow past what was trained."""

    caught_by = "sinks equal the slow model for every chunking"

    def _place(self, tokens, last):
        return tokens


class SinksAreOverwritten(SlidingCache):
    """streaming-llm 73: the ring goes round over all slots, the first ones too."""

    caught_by = "sinks equal the slow model for every chunking"

    @property
    def _next_slot(self):
        return self.length % self.window


class QueryOneAhead(SlidingCache):
    """With sinks the query stands one place after the row it belongs to."""

    caught_by = "sinks equal the slow model for every chunking"

    def plan(self, T):
        plan = super().plan(T)
        return replace(plan, query_positions=plan.query_positions + 1) if self.sinks and self.length >= self.window else plan


class PaddingIsSeen(SlidingCache):
    """unsloth 3699: slots that a padded row has not filled are attended to."""

    caught_by = "a ragged batch equals each row alone"

    def plan(self, T):
        plan = super().plan(T)
        if self.starts is None or plan.mask is None:
            return plan
        keys = plan.key_positions[:, None, None, :]
        return replace(plan, mask=plan.mask | (keys < 0))


class EveryRowTurnsWithTheFirst(SlidingCache):
    """Rows of a padded batch share one place in the ring, though each has its own count of tokens."""

    caught_by = "a ragged batch equals each row alone"

    def _commit(self, T):
        starts = self.starts
        if starts is not None:
            self.starts = torch.full_like(starts, int(starts.min()))
        super()._commit(T)
        self.starts = starts


class AbortLeavesTheNewRow(SlidingCache):
    """A failed pass has overwritten the oldest row."""

    caught_by = "a failed pass over a wrapped ring changes nothing"

    def _drop_pending(self):
        self._overwritten.clear()
        super()._drop_pending()


class ASplitPassIsUndoneInPart(SlidingCache):
    """Of a pass that is cut into several, only the last one is taken back."""

    caught_by = "a failed pass over a wrapped ring changes nothing"

    def restore(self, saved):
        pass


class AnyLengthIsTaken(SlidingCache):
    """mlx-lm 1776: a wrapped ring lets itself be cut, and what it then holds is of later tokens."""

    caught_by = "it is cut until it has gone round and never after"

    def can_truncate(self, length):
        return isinstance(length, int) and 0 <= length <= self.length


class ForksShareTheRing(SlidingCache):
    """exo PR 991: a fork writes into its parent's buffer."""

    caught_by = "forks of a wrapped ring go their own ways"

    def _copy_rows(self, other):
        super()._copy_rows(other)
        other._buffers = dict(self._buffers)


class ResetKeepsTheLength(SlidingCache):
    """LLMs-from-scratch PR 925: the pointer is left where it was."""

    caught_by = "after a reset it is as new"

    def reset(self):
        length = self.length
        super().reset()
        self.length = length


class MemoryGrows(SlidingCache):
    """llm_from_scratch 3, mistral.rs 246: every row is kept, and only the mask has a window."""

    caught_by = "its memory does not grow"

    @property
    def nbytes(self):
        return super().nbytes * max(self.held, self.length) // max(1, self.held)


class KeepsAViewOfAllItSaw(SlidingCache):
    """What is held is as small as it should be, and a view into something that is not."""

    caught_by = "its memory does not grow"

    def _allocate(self, layer, k):
        super()._allocate(layer, k)
        rows = self._buffers[layer]
        self._buffers[layer] = KeysValues(*(torch.cat((t, t), dim=2).narrow(2, 0, self.window) for t in rows))


FAULTS = [
    kind for kind in SlidingCache.__subclasses__() if kind.__module__ == __name__
]  # other tests break it in ways of their own

"""Quantized caches with one fault each. `caught_by` names the test of tests/equivalence/test_quantized.py that it breaks."""

import torch

from kvcourse.caches.base import KeysValues
from kvcourse.caches.quantized import QuantizedCache, quantize

SCHEDULE = "test_every_chunking_equals_a_cache_that_rounds_by_loops_on_the_same_schedule"
CODES = "test_the_same_rows_have_the_same_codes_whatever_passes_brought_them"
BOUND = "test_no_number_is_off_by_more_than_half_its_step_and_the_last_ones_by_nothing"


class ResidualJudgedPerCall(QuantizedCache):
    """VeloxQuant 86, kvpress 27: a pass rounds its own rows only, so that tokens of decode never are."""

    caught_by = CODES

    def _commit(self, T):
        if T > self.residual_tokens:
            super()._commit(T)


class NoResidual(QuantizedCache):
    """The newest rows are rounded at once."""

    caught_by = SCHEDULE

    def _commit(self, T):
        residual, self.residual_tokens = self.residual_tokens, 0
        super()._commit(T)
        self.residual_tokens = residual


class TruncatesWhereItShouldRound(QuantizedCache):
    """Codes are cut off, not rounded: the error is up to a whole step."""

    caught_by = BOUND

    def _round_keys(self, keys, real):
        packed = super()._round_keys(keys, real)
        step = packed.step.repeat_interleave(self.group_tokens, dim=2)
        low = packed.low.repeat_interleave(self.group_tokens, dim=2)
        codes = ((keys - low) / torch.where(step > 0, step, 1.0)).floor().clamp(0, 2**self.bits - 1).to(torch.uint8)
        if self.bits == 4:
            codes = codes[..., 0::2] | codes[..., 1::2] << 4
        return type(packed)(codes, packed.low, packed.step, packed.D)


class KeysPerToken(QuantizedCache):
    """Keys are grouped as values are: a channel that is large in every token then spoils all the others."""

    caught_by = SCHEDULE

    def _round_keys(self, keys, real):
        wide = quantize(keys, keys.amin(-1, keepdim=True), keys.amax(-1, keepdim=True), self.bits)
        return type(wide)(wide.codes, wide.low, wide.step, wide.D)


class NibblesSwapped(QuantizedCache):
    """4 bits: of two numbers in a byte, the first comes back as the second."""

    caught_by, bits_only = BOUND, 4

    def _rows(self, layer):
        rows = super()._rows(layer)
        if rows is None or self.bits == 8 or not self.packed:
            return rows
        n = self.packed
        flipped = (t[:, :, :n].unflatten(-1, (-1, 2)).flip(-1).flatten(-2) for t in rows)
        return KeysValues(*(torch.cat((f, t[:, :, n:]), dim=2) for f, t in zip(flipped, rows, strict=True)))


class ResetKeepsTheCodes(QuantizedCache):
    """transformers PR 48509: the residual is cleared, the codes are not."""

    caught_by = "test_after_a_reset_it_is_as_new"

    def reset(self):
        codes, packed = self._codes.copy(), self.packed
        super().reset()
        self._codes, self.packed = codes, packed


class RoundsTheUncommitted(QuantizedCache):
    """Rows are rounded as they are written, so a failed pass leaves them rounded."""

    caught_by = "test_a_failed_pass_rounds_nothing"

    def abort(self):
        super().abort()
        if self.length > self.packed + 1:
            n = (self.length - self.packed) // self.group_tokens * self.group_tokens
            residual, self.residual_tokens = self.residual_tokens, 0
            if n:
                self._commit(0)
            self.residual_tokens = residual


class CutsInsideAGroup(QuantizedCache):
    """Any length is taken, and a group loses some of its rows."""

    caught_by = "test_it_is_cut_within_its_residual_and_by_whole_groups_and_nowhere_else"

    def can_truncate(self, length):
        return not self._pending and 0 <= length <= self.length


class ForksShareTheirLists(QuantizedCache):
    """exo PR 991: a fork's next group is joined to its parent's."""

    caught_by = "test_forks_round_their_own_rows"

    def _copy_rows(self, other):
        other._codes, other._tails = self._codes, self._tails


class PaddingWidensTheSteps(QuantizedCache):
    """What happens to stand in the padding decides how coarsely a row's first keys are rounded."""

    caught_by = "test_what_stands_in_the_padding_changes_no_step_of_a_real_row"

    def _real(self, start, stop, length):
        return None


class PaddingIsTakenForTheRow(QuantizedCache):
    """The mask is upside down: steps are those of the padding, and real keys are cut off at its ends."""

    caught_by = "test_a_ragged_batch_is_as_near_to_each_row_alone_as_the_steps_allow"

    def _real(self, start, stop, length):
        real = super()._real(start, stop, length)
        return None if real is None else ~real


class MemoryOfFullPrecision(QuantizedCache):
    """Codes are kept one to a byte whatever the bits."""

    caught_by = "test_memory_is_what_the_formula_says"

    @property
    def nbytes(self):
        doubled = sum(part.codes.nbytes for pair in self._codes.values() for part in pair) if self.bits == 4 else 0
        return super().nbytes + doubled


FAULTS = [
    kind for kind in QuantizedCache.__subclasses__() if kind.__module__ == __name__
]  # other tests break it in ways of their own

"""Models with one fault each. `faulty(Fault, model)` gives a copy of a model whose code is broken in that one place.

A fault of the class of faults with a cache is caught by the proof of a *true* cache (`caught_by` names the claim); a fault that
shows without one is caught by the reference in tests/reference.py (`caught_by` is "the reference").
"""

import copy
from dataclasses import replace

import torch
from helpers import attention, blocks

from kvcourse.attention import causal_mask
from kvcourse.models.rope import Rope


def faulty(fault: type, model: torch.nn.Module) -> torch.nn.Module:
    broken = copy.deepcopy(model)
    if fault.where == "model":
        broken.__class__ = type(fault.__name__, (fault, type(model)), {})
    elif fault.where == "rope":
        broken.rope.__class__ = type(fault.__name__, (fault, Rope), {})
    else:
        for block in blocks(broken):
            part = attention(block)
            part.__class__ = type(fault.__name__, (fault, type(part)), {})
    return broken


def with_plan(arguments, **changes):
    """Attention's arguments end with plan and cache, after x (and Llama's angles)."""
    *first, plan, cache = arguments
    return *first, replace(plan, **changes), cache


class RestartsPositions:
    """GPT-2 137, transformers 1749: positions come from the tokens of this call, not from the plan."""

    where, caught_by, only = "model", "it equals one pass for every chunking", ("gpt", "llama")

    def run_blocks(self, tokens, plan, cache):
        return super().run_blocks(tokens, replace(plan, query_positions=torch.arange(tokens.shape[1])), cache)


class LooksAhead:
    """No mask at all: one pass and one token at a time cannot agree."""

    where, caught_by, only = "attention", "it equals one pass for every chunking", ("gpt", "llama")

    def forward(self, *arguments):
        return super().forward(*with_plan(arguments, mask=None))


class MasksTopLeft:
    """PyTorch 108108: is_causal=True with more keys than queries."""

    where, caught_by, only = "attention", "it equals one pass for every chunking", ("gpt", "llama")

    def forward(self, *arguments):
        plan = arguments[-2]
        T, S = plan.query_positions.shape[-1], plan.key_positions.shape[-1]
        return super().forward(*with_plan(arguments, mask=causal_mask(torch.arange(T), torch.arange(S))))


class ForgetsTheCache:
    """LLMs-from-scratch 913: a cache is passed and never used; here it is at least filled."""

    where, caught_by, only = "model", "it equals one pass for every chunking", ("gpt", "llama")

    def forward(self, tokens, cache=None, *, logits_to_keep=None):
        if cache is not None:
            super().forward(tokens, cache=cache)
        return super().forward(tokens, logits_to_keep=logits_to_keep)


class IgnoresPadding:
    """Rows of a ragged batch are treated as if all began in the first slot."""

    where, caught_by, only = "attention", "a ragged batch equals each row alone", ("gpt", "llama")

    def forward(self, *arguments):
        plan = arguments[-2]
        if plan.mask is None or plan.mask.dim() == 2:
            return super().forward(*arguments)
        return super().forward(*with_plan(arguments, mask=causal_mask(plan.query_positions, plan.key_positions)[:, None]))


class KeepsTheFirstLogits:
    """The wrong end of logits_to_keep."""

    where, caught_by, only = "model", "prefill in chunks and decode equal one pass", ("gpt", "llama")

    def forward(self, tokens, cache=None, *, logits_to_keep=None):
        logits = super().forward(tokens, cache=cache)
        return logits if logits_to_keep is None else logits[:, :logits_to_keep]


class ComputesAllAgain:
    """A cache beside a recompute loop: right answers, no work saved."""

    where, caught_by, only = "model", "only new tokens are computed", ("gpt", "llama")

    def forward(self, tokens, cache=None, *, logits_to_keep=None):
        if cache is not None and cache.length and cache.starts is None:
            super().forward(tokens)
        return super().forward(tokens, cache=cache, logits_to_keep=logits_to_keep)


class ServesAnyCache:
    """The cache is never asked whose it is."""

    where, caught_by, only = "model", "it refuses what it cannot serve", ("gpt", "llama")

    def forward(self, tokens, cache=None, *, logits_to_keep=None):
        if cache is None:
            return super().forward(tokens, logits_to_keep=logits_to_keep)
        with torch.no_grad():
            try:
                logits = self.compute(tokens, cache.plan(tokens.shape[1]), cache, logits_to_keep)
                cache.advance(tokens.shape[1])
            except BaseException:
                cache.abort()
                raise
        return logits


class NeverAborts:
    """An exception leaves what was appended pending."""

    where, caught_by, only = "model", "a failed pass changes nothing", ("gpt", "llama")

    def forward(self, tokens, cache=None, *, logits_to_keep=None):
        if cache is None:
            return super().forward(tokens, logits_to_keep=logits_to_keep)
        with torch.no_grad():
            cache.bind(self, tokens.shape[0], self.dtype, self.device)
            logits = self.compute(tokens, cache.plan(tokens.shape[1]), cache, logits_to_keep)
            cache.advance(tokens.shape[1])
        return logits


class AbortsErrorsOnly:
    """`except Exception` lets a keyboard interrupt through."""

    where, caught_by, only = "model", "a failed pass changes nothing", ("gpt", "llama")

    def forward(self, tokens, cache=None, *, logits_to_keep=None):
        if cache is None:
            return super().forward(tokens, logits_to_keep=logits_to_keep)
        with torch.no_grad():
            cache.bind(self, tokens.shape[0], self.dtype, self.device)
            try:
                logits = self.compute(tokens, cache.plan(tokens.shape[1]), cache, logits_to_keep)
                cache.advance(tokens.shape[1])
            except Exception:
                cache.abort()
                raise
        return logits


class AdvancesBeforeTheHead:
    """Committed when the blocks are done: an error in the last norm comes too late."""

    where, caught_by, only = "model", "a failed pass changes nothing", ("gpt", "llama")

    def run_blocks(self, tokens, plan, cache):
        x = super().run_blocks(tokens, plan, cache)
        if cache is not None:
            cache.advance(tokens.shape[1])
            cache.advance = lambda T: delattr(cache, "advance")
        return x


class SeesTheNextToken:
    """Causal, off by one."""

    where, caught_by, only = "attention", "the reference", ("gpt", "llama")

    def forward(self, *arguments):
        plan = arguments[-2]
        if plan.mask is None:
            return super().forward(*arguments)
        return super().forward(*with_plan(arguments, mask=plan.mask | plan.mask.roll(1, dims=-1)))


class SharesHeadsInTurn:
    """Query heads 0, 1, 2, … are given K/V heads 0, 1, 0, … and not 0, 0, 0, 1, …"""

    where, caught_by, only = "attention", "the reference", ("llama",)

    def forward(self, x, angles, plan, cache):
        group = self.H // self.H_kv
        order = torch.arange(self.H).view(group, self.H_kv).t().reshape(-1)  # 0, 2, 4, 1, 3, 5
        rows = (order[:, None] * self.D + torch.arange(self.D)).reshape(-1)
        straight = self.q_proj.weight
        with torch.no_grad():
            saved = straight.clone()
            straight.copy_(saved[rows])
            out_saved = self.o_proj.weight.clone()
            self.o_proj.weight.copy_(out_saved[:, rows])
            try:
                return super().forward(x, angles, plan, cache)
            finally:
                straight.copy_(saved)
                self.o_proj.weight.copy_(out_saved)


class TurnsNeighbours:
    """The paper's pairs (x0, x1) in place of the checkpoint's (x0, x_{D/2})."""

    where, caught_by, only = "rope", "the reference", ("llama",)

    def at(self, positions, like, stop=0):
        cos, sin = super().at(positions, like)
        half = cos.shape[-1] // 2
        return cos[..., :half].repeat_interleave(2, -1), sin[..., half:].repeat_interleave(2, -1)


class TurnsBackwards:
    """The angle has the wrong sign: relative positions, and so a chunked pass, do not notice."""

    where, caught_by, only = "rope", "the reference", ("llama",)

    def at(self, positions, like, stop=0):
        cos, sin = super().at(positions, like)
        return cos, -sin


class CountsFromOne:
    """Learned positions begin at 1, with a cache and without."""

    where, caught_by, only = "model", "the reference", ("gpt",)

    def run_blocks(self, tokens, plan, cache):
        later = (plan.query_positions + 1).clamp(max=self.config.context_length - 1)
        return super().run_blocks(tokens, replace(plan, query_positions=later), cache)


FAULTS = [kind for kind in list(globals().values()) if isinstance(kind, type) and hasattr(kind, "caught_by")]

"""Lesson 10: why a request missed. Knows nothing about how prefixes are stored (`stored`) or compared (`differ`).

    print(explain(pc, tokens))

For whoever runs the cache: that a text is stored under another namespace, and how much of it, is told; never whose, and
nothing of it that is not in the request itself.
"""

from typing import Any, SupportsFloat

from kvcourse.causes import Kind
from kvcourse.errors import TokenizerError
from kvcourse.prefix.cache import PrefixCache
from kvcourse.prompt_ids import as_prompts
from kvcourse.prompts.differ import Difference, TextOf, compare
from kvcourse.prompts.rate import prefill_rate
from kvcourse.prompts.report import MissReport, milliseconds, rate_of
from kvcourse.prompts.stored import Loss, Stored, look_up

__all__ = ["MissReport", "explain"]

_CONTEXT_TOKENS = 12


def explain(
    pc: PrefixCache, tokens: Any, namespace: object = None, *, prefill_tokens_per_s: SupportsFloat | None = None
) -> MissReport:
    """How much of a text would be reused now, where that ends, why, and what it costs.

    Pins nothing, counts nothing, changes nothing, so it may be asked before a request, or after it was inserted and evicted.
    What was lost is what is or was stored of the text and cannot be reused. Behind a difference in the text itself it is what
    the stored text and this one go on to share; nothing, where the text was meant to be another one.

    prefill_tokens_per_s: for the milliseconds; None: measured, once for each model, when something was lost.
    Raises: what `pc.match` does, InputError for a rate that is none.
    """
    given = None if prefill_tokens_per_s is None else rate_of(prefill_tokens_per_s)
    pc.match(tokens, namespace)  # refuses what is no text, or no namespace
    ids = as_prompts(tokens, pc.model.config.vocab_size)[0][0]
    step = pc.index.step_tokens
    reusable = (len(ids) - 1) // step * step
    with pc.standing_still(namespace) as key:
        stored, now = look_up(pc, key, namespace, ids, reusable), pc.clock()
    text_of = _text_of(pc.model.tokenizer, ids + (stored.rest or []))
    lost, report = _judged(ids, stored, reusable, step, text_of, lambda loss: _why(loss, stored.matched, now, pc))
    if not lost:
        return MissReport(stored.matched, len(ids), 0, **report)
    rate = prefill_rate(pc.model) if given is None else given
    return MissReport(
        stored.matched, len(ids), lost, lost_ms=milliseconds(lost, rate), lost_bytes=lost * pc.token_bytes, **report
    )


def _judged(
    ids: list[int], stored: Stored, reusable: int, step: int, text_of: TextOf | None, why: Any
) -> tuple[int, dict[str, Any]]:
    """Tokens lost, and the rest of a report: what cost most, of what is no longer there and what is written otherwise."""
    matched = stored.matched
    if matched == reusable:
        return 0, _all_reused(len(ids), reusable, step)
    loss = max(stored.losses, key=lambda one: one.reach, default=None)
    at, difference = _difference(ids, stored, text_of)
    apart = 0
    if difference is not None and difference.cause.is_fault:
        apart = max(0, min(reusable, (at + difference.lost_tokens) // step * step) - matched)
    if loss is not None and loss.reach - matched >= apart:
        here = _words(text_of, ids[matched : matched + _CONTEXT_TOKENS])
        before = _words(text_of, ids[max(0, matched - _CONTEXT_TOKENS) : matched])
        return loss.reach - matched, dict(cause=loss.kind, why=why(loss), at=matched, ours=here, before=before)
    if difference is None:
        if matched:
            return 0, dict(cause="none", why="all that was ever stored of this text is reused")
        return 0, dict(cause="cold", why="nothing was stored here yet")
    kind: Kind = difference.cause.kind
    reason = difference.cause.why
    if not at and not difference.cause.is_fault:
        kind, reason = "cold", "no stored text begins like this one"
    shown = dict(at=at, ours=difference.ours, theirs=difference.theirs, before=difference.before)
    return apart, dict(cause=kind, why=reason, **shown)


def _all_reused(total: int, reusable: int, step: int) -> dict[str, Any]:
    if reusable or step == 1:
        return dict(cause="none", why="all that can be reused is reused; one token at least is always computed")
    why = f"{total} tokens; blocks of {step} are shared whole, and one token at least is always computed"
    return dict(cause="below_minimum", why=why)


def _difference(ids: list[int], stored: Stored, text_of: TextOf | None) -> tuple[int, Difference | None]:
    """Where this text and the nearest stored one part, and how; None where one of them ends before they do."""
    if not stored.rest:
        return stored.matched, None
    theirs = ids[: stored.matched] + stored.rest
    pairs = zip(ids[stored.matched :], stored.rest, strict=False)
    at = next((n for n, (one, other) in enumerate(pairs, start=stored.matched) if one != other), None)
    return (stored.matched, None) if at is None else (at, compare(ids, theirs, at, text_of))


def _why(loss: Loss, matched: int, now: float, pc: PrefixCache) -> str:
    more = f"{loss.reach - matched:,} more tokens"
    ago = "" if loss.seconds is None else f" {_duration(now - loss.seconds)} ago"
    match loss.kind:
        case "evicted":
            return f"{more} were stored, and evicted{ago} to make room"
        case "expired":
            return f"{more} were stored, and not used for {_duration(pc.index.ttl or 0)}"
        case "cleared":
            return f"{more} were stored, and cleared{ago}"
        case "mismatch":
            return f"{more} were stored, found to be wrong, and dropped{ago}"
        case "other_weights":
            return f"{more} were computed with other weights of this model; their K/V is worth nothing now"
        case _:
            return f"{more} are stored under another namespace, and namespaces share nothing"


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _text_of(tokenizer: Any, ids: list[int]) -> TextOf | None:
    """The tokenizer's `decode`, if there is one and it knows all these ids."""
    if tokenizer is None:
        return None
    try:
        tokenizer.decode(ids)
    except TokenizerError:
        return None
    return lambda some: str(tokenizer.decode(some))


def _words(text_of: TextOf | None, ids: list[int]) -> str:
    return " ".join(map(str, ids)) if text_of is None else text_of(ids)

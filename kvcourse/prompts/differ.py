"""Lesson 10: two lists of token ids side by side, from their first difference. Knows nothing about caches, models or files."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvcourse.causes import Cause, common_length, kind_of_difference

TextOf = Callable[[Sequence[int]], str]

_BEFORE_TOKENS, _BEHIND_TOKENS = 2_000, 8_000  # read as text on each side
_RECUT_TOKENS = 32  # within which the same text in other tokens ends at the same character again
_SHOWN = 40  # characters shown in front of what differs, and behind it
_CUT_SHORT = "one text ends inside a token of the other"
_HALF = "\ufffd"  # what half a character decodes to


@dataclass(frozen=True)
class Difference:
    """The first difference of two texts: its cause, a few words of each, and what it cost.

    lost_tokens: what `theirs` holds, from the difference on, that would have been shared without it.
    """

    cause: Cause
    before: str
    ours: str
    theirs: str
    lost_tokens: int = 0


def compare(ours: Sequence[int], theirs: Sequence[int], at: int, text_of: TextOf | None) -> Difference:
    """Name the difference of two lists of ids that are equal up to `at`, where both go on.

    text_of: from ids to text; None: there is only ids to show.
    """
    if text_of is None:
        here, there = (" ".join(map(str, ids[at : at + 8])) for ids in (ours, theirs))
        cause = Cause("content", "other ids; without a tokenizer their text cannot be judged", here, there)
        return Difference(cause, " ".join(map(str, ours[max(0, at - 8) : at])), here, there)
    start = _whole_characters(ours, at, text_of)
    before = text_of(ours[max(0, start - _BEFORE_TOKENS) : start])
    one, other = (text_of(ids[start : start + _BEHIND_TOKENS]) for ids in (ours, theirs))
    recut = _recut(ours[start:], theirs[start:], at - start, text_of)
    if recut is not None:
        n, m = (tokens - (at - start) for tokens in recut)
        cause = Cause("re_encoded", f"the same text in other tokens: {n} of them here, {m} there")
        here, there = _pieces(ours[at : at + n], text_of), _pieces(theirs[at : at + m], text_of)
        return Difference(cause, before[-_SHOWN:], here, there, m + common_length(ours[at + n :], theirs[at + m :]))
    cause = kind_of_difference(before, one, other)
    if cause.kind == "none":
        halves = _HALF in text_of(ours[start : at + 1])
        cause = Cause("content", "bytes that are no characters") if halves else Cause("re_encoded", _CUT_SHORT)
    same = common_length(one, other)
    begin, texts = len(before) + same - cause.widened, (before + one, before + other)
    ends = [begin + len(side) for side in (cause.ours, cause.theirs)]
    here, there = (text[begin : end + _SHOWN] for text, end in zip(texts, ends, strict=True))
    lost = _lost(ours[start:], theirs[start:], [end - len(before) for end in ends], cause, text_of) - (at - start)
    return Difference(cause, texts[0][max(0, begin - _SHOWN) : begin], here, there, max(0, lost))


def _lost(ours: Sequence[int], theirs: Sequence[int], ends: list[int], cause: Cause, text_of: TextOf) -> int:
    """Tokens of `theirs` up to where the two differ for the second time."""
    if not cause.is_fault:
        return 0
    if cause.kind == "re_encoded":
        return min(len(ours), len(theirs))
    if cause.kind in ("retrieval_order", "tool_order"):
        return _reordered(ours, theirs)
    first, second = (_covering(ids, end, text_of) for ids, end in zip((ours, theirs), ends, strict=True))
    pairs = [(i, j) for i in range(first, first + 3) for j in range(second, second + 3)]  # a token may reach past the end
    return max(j + common_length(ours[i:], theirs[j:]) for i, j in pairs if j <= len(theirs))


def _reordered(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Tokens until both have said the same in another order, and of what then is equal; else as many as both have at most."""
    surplus: Counter[int] = Counter()
    for n, (one, other) in enumerate(zip(ours, theirs, strict=False), start=1):
        for token, change in ((one, 1), (other, -1)):
            surplus[token] += change
            if not surplus[token]:
                del surplus[token]
        if not surplus:
            return n + common_length(ours[n:], theirs[n:])
    return (Counter(ours) & Counter(theirs)).total()


def _recut(ours: Sequence[int], theirs: Sequence[int], shared: int, text_of: TextOf) -> tuple[int, int] | None:
    """After how many tokens of each, more than the `shared` ones, the same text has been said, if that happens soon."""
    said = {text_of(ours[:n]): n for n in range(shared + 1, min(_RECUT_TOKENS, len(ours)) + 1)}
    for m in range(shared + 1, min(_RECUT_TOKENS, len(theirs)) + 1):
        text = text_of(theirs[:m])
        if text in said and _HALF not in text:  # two different halves look the same
            return said[text], m
    return None


def _pieces(ids: Sequence[int], text_of: TextOf) -> str:
    """The texts of ids, with the borders between them."""
    return "|".join(text_of([token]) for token in ids)


def _covering(ids: Sequence[int], characters: int, text_of: TextOf) -> int:
    """How many tokens it takes to say so many characters."""
    low, high = 0, min(len(ids), characters)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if len(text_of(ids[:middle])) < characters else (low, middle)
    return low


def _whole_characters(ids: Sequence[int], at: int, text_of: TextOf) -> int:
    """`at`, or the token before it with which its character begins: a character may be up to four tokens."""
    for start in range(at, max(-1, at - 4), -1):
        if not text_of(ids[max(0, start - 8) : start]).endswith(_HALF):
            return start
    return at

"""Lesson 13: a short text in a system part, in front of a long one that is the same. Knows nothing about tokens or prices.

Two requests do not tell whether it was edited once, and for good; a family of them does (`places`).
"""

import re

from kvcourse.causes import Cause
from kvcourse.common_prefix import common_length
from kvcourse.prompts.bodies import Body
from kvcourse.prompts.findings import SHOWN, Fault, Finding, message_text, with_message

LEAST = 200  # characters that have to be gained: more than a sentence that happens to be in two prompts
LONGEST = 80  # characters of the short text
_AGREE = 24  # characters that have to be equal behind it
_WORD = 40  # characters in front of a difference in which its word begins


def varied(ours: Body, theirs: Body, first: int) -> Fault | None:
    """The short text, as something that would stand behind the rest, provided that the family bears it out (`places`)."""
    one, other = ours.messages[first], theirs.messages[first]
    if first >= min(len(ours.system), len(theirs.system)) or one["role"] != other["role"]:
        return None
    a, b = one["content"], other["content"]
    at = common_length(a, b)
    start = at - len(re.search(r"\S*$", a[max(0, at - _WORD) : at])[0])  # type: ignore[index]
    at = start if at - start < _WORD else at
    lengths = _apart(a[at:], b[at:])
    if lengths is None:
        return None
    here, there = a[at : at + lengths[0]], b[at : at + lengths[1]]
    behind = a[at + lengths[0] :][:_AGREE]
    before = message_text(one)[: len(f"<|im_start|>{one['role']}\n") + at][-SHOWN:]
    why = "a short text that is another one for many requests, in front of a long one that is the same"
    finding = Finding(Cause("id", why, here, there), first, at, before, a[at:][:SHOWN], b[at:][:SHOWN], behind)
    content = a[:at] + there + a[at + lengths[0] :]
    return finding, with_message(ours, first, {"role": one["role"], "content": content}), 0


def _apart(one: str, other: str) -> tuple[int, int] | None:
    """After how many characters of each two texts agree again."""
    for n in range(min(LONGEST, len(one) - _AGREE) + 1):
        m = other.find(one[n : n + _AGREE], 0, LONGEST + _AGREE)
        if m >= 0 and (n or m):
            return n, m
    return None

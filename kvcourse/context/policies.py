"""Lesson 12: who decides what stays in the window. Knows nothing about models or caches, but says what it does to a prefix.

A policy is asked before every request: from the window of the last request and the parts that came since, it makes the next
one. What it drops is gone for it too, unless it kept a handle.

    ReplayAll          everything, always. The prefix only grows; so does the bill, with the square of the steps.
    CropOldest         whole steps go, the oldest first. From the first cut on every request is another prefix.
    Summarise          old steps become a summary as soon as there are more than `keep`. The prefix breaks at every summary.
    Externalise        a long tool result becomes a handle before it is ever sent. The prefix never breaks.
    CompactNearLimit   nothing happens until the window is nearly full; then everything behind the fixed part becomes one
                       summary. The fixed part stays warm, and the one cache write per compaction was due anyway.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from kvcourse.amounts import whole
from kvcourse.context.parts import Part, n_tokens
from kvcourse.errors import ContextOverflow, InputError

Summariser = Callable[[Sequence[Part]], tuple[int, ...]]


@runtime_checkable
class Policy(Protocol):
    """What an agent asks."""

    name: str
    breaks_prefix: str  # when, in words

    def window(self, kept: Sequence[Part], new: Sequence[Part], limit: int) -> list[Part]:
        """The parts of the next request, at most `limit` tokens. kept: the last request's; new: what came since.

        Raises: ContextOverflow where that cannot be.
        """
        ...


def fixed_parts(parts: Sequence[Part]) -> list[Part]:
    """System and task: what no policy touches."""
    return [part for part in parts if part.role in ("system", "task")]


def require_fit(parts: list[Part], limit: int, policy: str) -> list[Part]:
    """The parts, if they fit."""
    if n_tokens(parts) > limit:
        raise ContextOverflow(f"{policy} leaves more than the window takes.", expected=f"at most {limit} tokens",
                              got=n_tokens(parts), todo="Use a policy that drops more, or a larger window.")  # fmt: skip
    return parts


class ReplayAll:
    """Everything, always."""

    name, breaks_prefix = "replay all", "never"

    def window(self, kept: Sequence[Part], new: Sequence[Part], limit: int) -> list[Part]:
        return require_fit([*kept, *new], limit, self.name)


class CropOldest:
    """Whole steps go, the oldest first, when there is no more room."""

    name, breaks_prefix = "crop oldest", "at every request, once the window is full"

    def window(self, kept: Sequence[Part], new: Sequence[Part], limit: int) -> list[Part]:
        parts = [*kept, *new]
        steps = sorted({part.step for part in parts if part.step})
        while n_tokens(parts) > limit and len(steps) > 1:
            oldest = steps.pop(0)
            parts = [part for part in parts if part.step != oldest or part.role in ("system", "task")]
        return require_fit(parts, limit, self.name)


class Summarise:
    """Steps beyond the last `keep` become one summary, at every request.

    summary: from the parts that go to the tokens that stand for them.
    """

    name, breaks_prefix = "summarise", "at every request, from number `keep` + 2 on"

    def __init__(self, summary: Summariser, keep: int = 4) -> None:
        self.summary, self.keep = summary, whole("keep", keep, least=1)

    def window(self, kept: Sequence[Part], new: Sequence[Part], limit: int) -> list[Part]:
        parts = [*kept, *new]
        steps = sorted({part.step for part in parts if part.step})
        old = set(steps[: -self.keep])
        going = [part for part in parts if part.step in old or part.role == "summary"]
        if not old:
            return require_fit(parts, limit, self.name)
        fixed, stay = fixed_parts(parts), [part for part in parts if part not in going and part.role not in ("system", "task")]
        return require_fit([*fixed, Part("summary", self.summary(going)), *stay], limit, self.name)


class Externalise:
    """A tool result of more than `longest` tokens never enters the window: a handle does, by which it can be fetched.

    `outside` keeps what was put there, and its handles count on: for another task, make another. reference: from a handle to
    the tokens that stand for it.
    """

    name, breaks_prefix = "externalise", "never"

    def __init__(self, reference: Callable[[str], tuple[int, ...]], longest: int = 64) -> None:
        self.reference, self.longest = reference, whole("longest", longest, least=1)
        self.outside: dict[str, Part] = {}

    def window(self, kept: Sequence[Part], new: Sequence[Part], limit: int) -> list[Part]:
        return require_fit([*kept, *(self._sent(part) for part in new)], limit, self.name)

    def fetch(self, handle: str) -> Part:
        """What is behind a handle. Raises: InputError if there is nothing."""
        if handle not in self.outside:
            raise InputError("Nothing was put there.", expected=f"one of {len(self.outside)} handles", got=handle,
                             todo="Use a handle that stands in the window.")  # fmt: skip
        return self.outside[handle]

    def _sent(self, part: Part) -> Part:
        if part.role != "tool" or len(part) <= self.longest:
            return part
        handle = f"result-{len(self.outside) + 1}"
        self.outside[handle] = part
        return Part("handle", self.reference(handle), part.step, handle)


class CompactNearLimit:
    """Nothing, until the window is more than `share` full; then all steps become one summary behind the fixed part."""

    name, breaks_prefix = "compact near the limit", "once per compaction, behind the fixed part"

    def __init__(self, summary: Summariser, share: float = 0.8) -> None:
        if not 0 < share <= 1:
            raise InputError("A share of the window.", expected="above 0, at most 1", got=share, todo="0.8 is usual.")
        self.summary, self.share = summary, share

    def window(self, kept: Sequence[Part], new: Sequence[Part], limit: int) -> list[Part]:
        parts = [*kept, *new]
        if n_tokens(parts) <= self.share * limit:
            return parts
        latest = max(part.step for part in parts)
        fixed, behind = fixed_parts(parts), [part for part in parts if part.role not in ("system", "task")]
        going = [part for part in behind if part.step != latest]
        if not going:
            return require_fit(parts, limit, self.name)
        stay = [part for part in behind if part.step == latest]
        return require_fit([*fixed, Part("summary", self.summary(going)), *stay], limit, self.name)

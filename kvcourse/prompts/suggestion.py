"""Lesson 13: a layout that would share more, in words. Knows nothing about text: only what was found, and where.

What never changes goes first, what grows behind it, and what is new in each request last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvcourse.causes import ADVICE

_NOUN = {"clock": "clock", "id": "id"}
_WIDTH = 90  # of a printed line


@dataclass(frozen=True)
class Suggestion:
    """What to change, the order of the parts then, and the share of prompt tokens that would be found, before and after."""

    changes: tuple[str, ...]
    layout: tuple[str, ...]
    hit_rate: float
    predicted_hit_rate: float

    def as_record(self) -> dict[str, Any]:
        return {"changes": list(self.changes), "layout": list(self.layout), "hit_rate": round(self.hit_rate, 4),
                "predicted_hit_rate": round(self.predicted_hit_rate, 4)}  # fmt: skip

    def __str__(self) -> str:
        lines = [""]
        for n, part in enumerate(self.layout):
            more = part + " ·" * (n + 1 < len(self.layout))
            if lines[-1] and len(lines[-1]) + 1 + len(more) > _WIDTH:
                lines.append("")
            lines[-1] = f"{lines[-1]} {more}".lstrip()
        return "\n".join([*lines, f"hit rate {self.hit_rate:.1%} now, {self.predicted_hit_rate:.1%} then"])


def suggest(found: Mapping[str, Iterable[str]], has_tools: bool, hit_rate: float, predicted: float) -> Suggestion:
    """found: each cause, what mattered most first, with the parts it stands in: "tools", "system" or "conversation"."""
    changes = tuple(ADVICE[cause] for cause in found)
    where = {"retrieval_order": {"conversation": ", its documents sorted by id, and left where they were first sent"}}
    named = {"tools": "tools", "system": "system part", "conversation": "conversation"}
    after = {
        name: [where.get(cause, {}).get(name, _of_part(cause)) for cause, places in found.items() if name in places]
        for name in named
    }
    layout = [label + "".join(sorted({*after[name]} - {""})) for name, label in named.items() if has_tools or name != "tools"]
    moved = [f"each new {_NOUN[cause]}" for cause in found if cause in _NOUN]
    if moved:
        layout.append(f"{' and '.join(moved)} behind the last message, and left there in later turns")
    return Suggestion(changes, tuple(layout), hit_rate, predicted)


def _of_part(cause: str) -> str:
    """What is said of a part that a cause stands in."""
    return {
        "clock": " without its clock", "id": " without its id", "tool_order": ", sorted by name",
        "schema": ", byte for byte as first sent", "retrieval_order": ", with its documents sorted by id",
        "template": ", always from one template", "history": ", only ever appended to",
        "whitespace": ", with the same spaces each time",
    }.get(cause, "")  # fmt: skip

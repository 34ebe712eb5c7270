"""Lesson 10: what is said about a request that missed. Knows nothing about how it was found out."""

from dataclasses import dataclass
from typing import Any

from kvcourse.amounts import amount
from kvcourse.causes import ADVICE, Kind
from kvcourse.errors import InputError

_SHOWN = 60  # characters of each side


@dataclass(frozen=True)
class MissReport:
    """How much of a request was reused, where that ended, and why. `print` shows it whole."""

    matched_tokens: int  # reused
    total_tokens: int
    lost_tokens: int  # more that would have been reused, had it not been for the cause
    cause: Kind
    why: str
    at: int | None = None  # the first token that is another one, or is no longer there; None: there is none
    ours: str = ""  # the text from there on, from the start of its word
    theirs: str | None = None  # what is stored in its place; None: nothing else is
    lost_ms: float | None = 0.0  # estimated: lost tokens by a prefill rate; None: no rate is known
    lost_bytes: int | None = 0  # K/V that is computed once more; None: no model is known
    before: str = ""  # the end of what both share
    unit: str = "tokens"

    @property
    def advice(self) -> str | None:
        """What to change, or None where nothing is wrong."""
        return ADVICE.get(self.cause)

    def as_record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        record = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**record, "advice": self.advice}

    def __str__(self) -> str:
        computed = self.total_tokens - self.matched_tokens
        rows = [("request", f"{self.total_tokens:,} {self.unit}: {self.matched_tokens:,} cached, {computed:,} computed")]
        if self.at is not None:
            one = self.unit.removesuffix("s")
            behind = f", after {shown(self.before, from_end=True)}" if self.before else ""
            if self.theirs is None:
                rows += [("missing", f"from {one} {self.at:,} on{behind}"), ("  here", shown(self.ours))]
            else:
                rows += [("difference", f"at {one} {self.at:,}{behind}"), ("  here", shown(self.ours))]
                rows += [("  stored", shown(self.theirs))]
        rows += [("cause", f"{in_words(self.cause)}: {self.why}"), ("lost", self.lost)]
        rows += [("change", self.advice)] if self.advice else []
        return "\n".join(f"{name:<11} {text}" for name, text in rows)

    @property
    def lost(self) -> str:
        """What was lost, in words."""
        if not self.lost_tokens:
            return "nothing"
        parts = [f"{self.lost_tokens:,} {self.unit}"]
        parts += [] if self.lost_ms is None else [f"about {self.lost_ms:,.0f} ms of prefill"]
        parts += [] if self.lost_bytes is None else [f"{_size(self.lost_bytes)} of K/V"]
        return ", ".join(parts)


def milliseconds(lost_tokens: int, tokens_per_s: float) -> float:
    """What computing so many prompt tokens takes, at a rate that `rate_of` has passed."""
    return 1000 * lost_tokens / tokens_per_s


def rate_of(value: object) -> float:
    """A prefill rate, in tokens a second. Raises: InputError for what is none."""
    try:
        rate = amount("A rate", value)
    except InputError as error:
        rate, value = 0.0, error.got
    if not rate:
        raise InputError("A rate is above 0.", expected="tokens a second", got=value, todo="Leave it out.")
    return rate


def in_words(kind: str) -> str:
    """The name of a kind, as it is read."""
    return "re-encoded text" if kind == "re_encoded" else kind.replace("_", " ")


def shown(text: str, from_end: bool = False) -> str:
    """Text in quotes, every space and line break visible, shortened to a few words."""
    if len(text) > _SHOWN:
        text = text[-_SHOWN:] if from_end else text[:_SHOWN]
        return f"…{text!r}" if from_end else f"{text!r}…"
    return repr(text)


def _size(n_bytes: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes} bytes"

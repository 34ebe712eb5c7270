"""Lesson 13: the parts of a prompt in an order, and what a cache finds of them. Knows nothing about text: sizes only.

    plot_layouts({"clock first": [CLOCK, SYSTEM, QUESTION], "clock last": [SYSTEM, QUESTION, CLOCK]}, provider="openai")

One conversation is drawn, a bar for each of its requests. A part is the same in every request, or another in each, or it grows:
the history, which holds the questions and answers so far. What is found follows from that and from the provider's rules.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvcourse.errors import InputError
from kvcourse.providers.replaying import Logged, Replayed, replay_requests
from kvcourse.providers.rules import Rules
from kvcourse.viz import style

Kind = Literal["fixed", "growing", "changing"]
SIGNS: dict[Kind, str] = {"fixed": "=", "growing": "+", "changing": "≠"}
MEANING: dict[Kind, str] = {"fixed": "the same each time", "growing": "grows", "changing": "another each time"}
REQUESTS, GAP_SECONDS = 5, 60.0
_MOST_TOKENS = 4096  # of a part: ids of different parts must not meet
LEFT, BARS, RIGHT, MARGIN = 0.85, 6.3, 1.45, 0.14  # inches
ROW, BAR, TITLE, NAMES, KEY, LETTER = 0.3, 0.21, 0.52, 0.5, 0.3, 0.073


@dataclass(frozen=True)
class PromptPart:
    """A part of a prompt. tokens: its size; of a growing part, what each turn adds to it."""

    name: str
    tokens: int
    kind: Kind = "fixed"

    def __str__(self) -> str:
        return f"{self.name} {SIGNS[self.kind]}"


SYSTEM, TOOLS, DOCUMENTS = PromptPart("system", 500), PromptPart("tools", 700), PromptPart("documents", 900)
CLOCK, QUESTION = PromptPart("clock", 30, "changing"), PromptPart("question", 60, "changing")
HISTORY = PromptPart("history", 180, "growing")  # a question and its answer
FIRST_ORDER = (CLOCK, SYSTEM, TOOLS, DOCUMENTS, HISTORY, QUESTION)


def requests_of(
    parts: Sequence[PromptPart], n_requests: int = REQUESTS, gap_seconds: float | int = GAP_SECONDS
) -> list[Logged]:
    """One conversation with its parts in this order, as token ids, ready to be replayed.

    The history begins as the questions were sent, so that a question right behind it is found again. Where a provider wants
    marks they stand behind the fixed parts in front, behind the history and at the end.
    Raises: InputError for parts that are none, or too large; no more than one may grow.
    """
    _require(parts)
    ids = _Ids()
    return [_request(parts, number, ids, gap_seconds * number) for number in range(n_requests)]


def plot_layouts(
    layouts: Mapping[str, Sequence[PromptPart]],
    provider: str | Rules = "local",
    *,
    n_requests: int = REQUESTS,
    gap_seconds: float | int = GAP_SECONDS,
    base_price: float | int | None = None,
) -> Figure:
    """Conversations with the same parts in different orders, a panel each, on one scale: what is found, and the bill.

    base_price: dollars for a million input tokens; the bill is then that of a thousand such conversations.
    """
    if not layouts:
        raise InputError("There is nothing to draw.", expected="{title: parts}", got="nothing", todo="Give it a layout.")
    made = {title: requests_of(parts, n_requests, gap_seconds) for title, parts in layouts.items()}
    longest = max(len(one.tokens) for requests in made.values() for one in requests)
    each = TITLE + n_requests * ROW + NAMES
    sheet = _sheet(2 * MARGIN + LEFT + BARS + RIGHT, len(layouts) * each + KEY)
    for number, (title, parts) in enumerate(layouts.items()):
        replayed = replay_requests(made[title], provider)
        marks = replayed.rules.matching == "breakpoints"
        panel = _Panel(sheet, number * each, BARS / longest, parts, made[title], replayed, marks)
        panel.draw(title, bill_in_words(replayed, base_price))
    _draw_key(sheet, len(layouts) * each + 0.1, [part for parts in layouts.values() for part in parts], marks)
    figure = sheet.figure
    assert isinstance(figure, Figure)
    return figure


def bill_in_words(replayed: Replayed, base_price: float | int | None = None) -> str:
    """Hit rate and bill of one conversation; money, where a price is known, of a thousand."""
    saved = 1 - replayed.cost / replayed.cost_without_cache
    change = "as much as" if abs(saved) < 0.005 else f"{abs(saved):.0%} {'less' if saved > 0 else 'more'} than"
    if base_price is None:
        bill = f"billed as {replayed.cost:,.0f} of {replayed.cost_without_cache:,.0f} tokens"
    else:
        bill = f"1,000 conversations cost ${replayed.cost * base_price / 1000:,.2f}"
    return f"{replayed.hit_rate:.0%} found · {bill}, {change} without a cache"


def layout_in_words(parts: Sequence[PromptPart], replayed: Replayed, base_price: float | int | None = None) -> str:
    """What a panel shows, as it is read out."""
    order = ", ".join(f"{part.name} ({MEANING[part.kind]})" for part in parts)
    found = ", ".join(f"{one.cached_tokens:,} of {one.prompt_tokens:,}" for one in replayed.counts)
    return (
        f"Order: {order}. Found by {replayed.rules.name}, request by request: {found}. {bill_in_words(replayed, base_price)}."
    )


# Token ids.


class _Ids:
    """An id for each token of each version of each part."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], int] = {}

    def __call__(self, name: str, version: int, n_tokens: int) -> list[int]:
        start = _MOST_TOKENS * self._known.setdefault((name, version), len(self._known))
        return list(range(start, start + n_tokens))


def _require(parts: Sequence[PromptPart]) -> None:
    names = [part.name for part in parts]
    whole = all(part.kind in SIGNS and 0 < part.tokens <= _MOST_TOKENS for part in parts)
    growing = sum(part.kind == "growing" for part in parts)
    if not parts or len(set(names)) < len(names) or not whole or growing > 1:
        raise InputError(
            "These parts make no prompt.",
            expected=f"parts of 1 to {_MOST_TOKENS:,} tokens, each once, one of them growing at most",
            got=", ".join(f"{part.name} {part.tokens} {part.kind}" for part in parts) or "nothing",
            todo="Correct the list.",
        )


def _pieces(part: PromptPart, parts: Sequence[PromptPart], number: int, ids: _Ids) -> list[list[int]]:
    """The tokens of a part in one request, as content blocks. The history has two for each turn."""
    if part.kind != "growing" and part.name != HISTORY.name:
        return [ids(part.name, number if part.kind == "changing" else 0, part.tokens)]
    asked = min(part.tokens, next((one.tokens for one in parts if one.name == QUESTION.name), 0))
    turns = [[ids(QUESTION.name, turn, asked), ids("answer", turn, part.tokens - asked)] for turn in range(number)]
    if part.kind == "changing":  # written anew for each request
        turns = [[ids(f"history of {number}", turn, part.tokens)] for turn in range(number)]
    return [piece for turn in turns for piece in turn if piece]


def _request(parts: Sequence[PromptPart], number: int, ids: _Ids, seconds: float | int) -> Logged:
    tokens: list[int] = []
    ends: list[int] = []
    marks: list[int] = []
    for place, part in enumerate(parts):
        for piece in _pieces(part, parts, number, ids):
            tokens += piece
            ends.append(len(tokens))
        in_front = all(one.kind == "fixed" for one in parts[: place + 1])
        goes_on = place + 1 < len(parts) and parts[place + 1].kind == "fixed"
        if tokens and ((in_front and not goes_on) or part.kind == "growing"):
            marks.append(len(tokens))
    return Logged(tokens, seconds, tuple(ends), tuple(sorted({*marks, len(tokens)})))


def shares_of(parts: Sequence[PromptPart], number: int) -> list[tuple[PromptPart, int]]:
    """The size of each part in one request, the first has number 0. An empty history is left out."""
    sizes = [(part, part.tokens * number if part.name == HISTORY.name else part.tokens) for part in parts]
    return [(part, size) for part, size in sizes if size]


def toggled(part: PromptPart) -> PromptPart:
    """The same part, marked the other way: one that changes is fixed, or grows, and the other way round. A question stays."""
    if part.name == QUESTION.name:
        return part
    steady: Kind = "growing" if part.name == HISTORY.name else "fixed"
    return replace(part, kind=steady if part.kind == "changing" else "changing")


# Drawing.


class _Panel(NamedTuple):
    """One layout. scale: inches of a token."""

    sheet: Axes
    top: float
    scale: float
    parts: Sequence[PromptPart]
    requests: Sequence[Logged]
    replayed: Replayed
    has_marks: bool

    def draw(self, title: str, bill: str) -> None:
        self.sheet.text(MARGIN, self.top + 0.2, title, fontsize=10.5, fontweight="bold", va="center", color=style.INK,
                        parse_math=False)  # fmt: skip
        self.sheet.text(MARGIN, self.top + 0.39, bill, fontsize=9, va="center", color=style.MUTED, parse_math=False)
        for number in range(len(self.requests)):
            self._draw_bar(number, self.top + TITLE + ROW * (number + 0.5))
        self._draw_names(len(self.requests) - 1, self.top + TITLE + ROW * len(self.requests))

    def _draw_bar(self, number: int, y: float) -> None:
        count = self.replayed.counts[number]
        self.sheet.text(MARGIN, y, f"request {number + 1}", fontsize=8.5, va="center", color=style.INK)
        start = 0
        for _, size in shares_of(self.parts, number):
            found = min(max(count.cached_tokens - start, 0), size)
            for state, begin, n_tokens in (("reused", start, found), ("written", start + found, size - found)):
                if n_tokens:
                    box = style.SLOTS[state].patch(self._x(begin + n_tokens / 2), y, n_tokens * self.scale, BAR)
                    box.set_linewidth(min(box.get_linewidth(), 1.6))
                    self.sheet.add_artist(box)  # add_patch works out limits that are fixed here
            start += size
        if self.has_marks:
            xs = [self._x(mark) for mark in self.requests[number].marks]
            self.sheet.plot(xs, [y - BAR / 2 - 0.02] * len(xs), "v", color=style.AGGREGATE.text, markersize=4)
        words = f"{count.cached_tokens:,} of {count.prompt_tokens:,}"
        self.sheet.text(MARGIN + LEFT + BARS + RIGHT, y, words, fontsize=8.5, va="center", ha="right", color=style.INK)

    def _draw_names(self, number: int, y: float) -> None:
        """Below the last bar, each with a line to its part, and moved where two would overlap."""
        places, start = [], 0
        for part, size in shares_of(self.parts, number):
            places.append((self._x(start + size / 2), str(part), part.kind))
            start += size
        widths = [LETTER * len(name) + 0.1 for _, name, _ in places]
        for (x, name, kind), at in zip(places, _apart([x for x, *_ in places], widths), strict=True):
            self.sheet.plot([x, at], [y - 0.03, y + 0.13], "-", color=style.MUTED, linewidth=0.8)
            look: dict[str, Any] = {"fontweight": "bold", "color": style.INK} if kind == "changing" else {"color": style.INK}
            self.sheet.text(at, y + 0.22, name, fontsize=9, ha="center", va="center", parse_math=False, **look)

    def _x(self, tokens: float | int) -> float:
        return MARGIN + LEFT + tokens * self.scale


def _apart(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Centers as near to those wanted as their widths allow, in their order, within the picture."""
    at = list(wanted)
    for i in range(1, len(at)):
        at[i] = max(at[i], at[i - 1] + (widths[i - 1] + widths[i]) / 2)
    at[-1] = min(at[-1], MARGIN + LEFT + BARS + RIGHT - widths[-1] / 2)
    for i in range(len(at) - 2, -1, -1):
        at[i] = min(at[i], at[i + 1] - (widths[i] + widths[i + 1]) / 2)
    return at


def _sheet(width: float, height: float) -> Axes:
    """Axes in inches, y downwards."""
    figure = Figure(figsize=(width, height), dpi=style.DPI)
    figure.set_layout_engine("none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(height, 0))
    ax.set_axis_off()
    return ax


def _draw_key(sheet: Axes, y: float, parts: Iterable[PromptPart], has_marks: bool) -> None:
    x = MARGIN
    for state, words in (("reused", "found"), ("written", "computed")):
        box = style.SLOTS[state].patch(x + 0.12, y, 0.24, 0.15)
        box.set_linewidth(min(box.get_linewidth(), 1.6))
        sheet.add_artist(box)
        sheet.text(x + 0.31, y, words, fontsize=8.5, va="center", color=style.MUTED)
        x += 0.31 + LETTER * len(words) + 0.25
    kinds = {part.kind for part in parts}
    signs = " · ".join(f"{SIGNS[kind]} {MEANING[kind]}" for kind in SIGNS if kind in kinds)
    sheet.text(x, y, signs, fontsize=8.5, va="center", color=style.MUTED)
    if has_marks:
        x += LETTER * len(signs) + 0.15
        sheet.plot([x], [y], "v", color=style.AGGREGATE.text, markersize=4)
        sheet.text(x + 0.12, y, "breakpoint", fontsize=8.5, va="center", color=style.MUTED)

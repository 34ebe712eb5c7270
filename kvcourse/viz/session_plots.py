"""Lesson 11: figures of conversations: what each turn costs, and where branches part. Knows nothing about models, or how a turn
is computed: it takes counts, and ids with their turns.

Every function that draws returns a matplotlib Figure, in the style of `viz.style`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from kvcourse.errors import InputError
from kvcourse.viz import style
from kvcourse.viz.plots import drawable

SOURCES = {"held": "there already", "reused": "copied", "written": "computed"}  # how a token's K/V came, from the bottom up
SLOT, LINE, LETTER, MARGIN = 0.148, 0.62, 0.067, 0.14  # inches: a slot's width, a branch's height, a letter, all around
ROOT = 0.2  # the line in front of a branch
KEY = {"reused": "shared by branches", "held": "a branch's own", "empty": "no K/V yet"}
COPIES = "held in as many copies"  # what a number in a slot means


class Arrived(NamedTuple):
    """How the K/V of one turn's prompt came (tokens): it was there, it was copied from elsewhere, it was computed."""

    held: int = 0
    copied: int = 0
    computed: int = 0


@dataclass(frozen=True)
class Branch:
    """One conversation, ready to be drawn. texts: (first token, text) of each question and reply, in order.

    n_rows: ids that have K/V; the last of a reply has none. table: the blocks of a paged cache, if there is one.
    """

    ids: tuple[int, ...]
    texts: tuple[tuple[int, str], ...]
    n_rows: int
    table: tuple[int, ...] = ()


def branch_of(session: Any) -> Branch:
    """A session as it is now."""
    texts = [text for turn in session.turns for text in ((turn.start, turn.user), (turn.prompt_stop, turn.reply))]
    cache = session.cache
    tables = getattr(cache, "tables", None)
    return Branch(tuple(session.tokens), tuple(texts), 0 if cache is None else cache.length, tuple(tables[0]) if tables else ())


def plot_turns(ways: Mapping[str, Sequence[Arrived]]) -> Figure:
    """How the K/V of each turn's prompt came, a panel for each way of keeping a conversation, on one scale.

    ways: {title: [turn 1, turn 2, ...]}. The number on a bar is what was computed.
    """
    turns = max((len(way) for way in ways.values()), default=0)
    if not turns or not all(ways.values()) or any(min(turn) < 0 for way in ways.values() for turn in way):
        raise InputError("These turns cannot be drawn.", expected="{title: [Arrived(held, copied, computed), ...]}",
                         got=repr(dict(ways))[:80], todo="Give every way a turn or more.")  # fmt: skip
    top = 1.12 * max(1, *(sum(turn) for way in ways.values() for turn in way))
    with style.figure(2.9 * len(ways) + 0.3, 3.2, ncols=len(ways), squeeze=False, sharey=True) as (fig, axes):
        for ax, (title, way) in zip(axes[0], ways.items(), strict=True):
            for number, turn in enumerate(way, start=1):
                _draw_turn(ax, number, turn)
            ax.set(xlim=(0.4, turns + 0.6), ylim=(0, top), xticks=range(1, turns + 1))
            ax.grid(visible=False, axis="x")
            ax.set_title(f"{title}: {sum(turn.computed for turn in way):,} computed", parse_math=False, fontsize=10)
            ax.set_xlabel("turn")
        axes[0][0].set_ylabel("prompt (tokens)")
        drawn = [state for state, count in zip(SOURCES, zip(*_all(ways), strict=True), strict=True) if any(count)]
        boxes = [style.SLOTS[state].patch(0, 0) for state in drawn]
        axes[0][-1].legend(boxes, [SOURCES[state] for state in drawn], loc="upper left", fontsize=8.5)
    return fig


def plot_branches(branches: Mapping[str, Branch], *, block_tokens: int | None = None) -> Figure:
    """Conversations that begin alike, as a tree: a slot for each token, what several have in common drawn once.

    block_tokens: of the pool that all of them are in; then blocks are framed, and those that several tables name are hatched. A
    number in a slot says how many blocks hold this token.
    """
    sizes = {len(branch.table) * (block_tokens or 0) >= branch.n_rows for branch in branches.values()}
    whole = all(0 <= b.n_rows <= len(b.ids) > 0 and all(0 <= at < len(b.ids) for at, _ in b.texts) for b in branches.values())
    if not branches or not whole or (block_tokens is not None and sizes != {True}):
        raise InputError("These branches cannot be drawn.", expected="ids, rows within the ids, blocks for every row",
                         got=", ".join(branches) or "nothing", todo="Make each with branch_of(session).")  # fmt: skip
    runs = _runs(branches, tuple(branches))
    lines = 1 + max(run.line for run in runs)
    names = max(0.085 * len(name) for name in branches)
    longest = max(len(branch.ids) for branch in branches.values())
    width = (
        2 * MARGIN + ROOT + max(SLOT * longest + 0.2 + names, LETTER * sum(len(text) + 6 for text in (*KEY.values(), COPIES)))
    )
    height = 2 * MARGIN + LINE * lines + 0.3
    ax = _sheet(width, height)
    for run in runs:
        _draw_run(ax, branches, run, block_tokens)
    found = [_state(branches, run.names, place, block_tokens) for run in runs for place in range(run.start, run.stop)]
    states, copies = {state for state, _ in found}, max(number for _, number in found)
    kinds = [(state, "", KEY[state]) for state in KEY if state in states]
    _draw_key(ax, kinds + [("held", str(copies), COPIES)] * (copies > 1), height - MARGIN - 0.1)
    figure = ax.figure
    assert isinstance(figure, Figure)
    return figure


class _Run(NamedTuple):
    """Tokens that the same branches have in common. line: counted from the top. parent: the line that it leaves from.

    said: (place, text, whether it is a reply) of what is written above it.
    """

    names: tuple[str, ...]
    start: int
    stop: int
    line: int
    parent: int | None
    said: tuple[tuple[int, str, bool], ...]


def _all(ways: Mapping[str, Sequence[Arrived]]) -> list[Arrived]:
    return [turn for way in ways.values() for turn in way]


def _draw_turn(ax: Axes, number: int, turn: Arrived) -> None:
    bottom = 0
    for state, count in zip(SOURCES, turn, strict=True):
        if count:
            ax.add_patch(style.SLOTS[state].patch(number, bottom + count / 2, 0.66, count))
        bottom += count
    ax.text(number, bottom, f"{turn.computed:,}", ha="center", va="bottom", fontsize=8.5, color=style.INK)


def _runs(
    branches: Mapping[str, Branch],
    names: tuple[str, ...],
    start: int = 0,
    line: int = 0,
    parent: int | None = None,
    told: int = 0,
) -> list[_Run]:
    """The tree of the named branches from token `start` on, up to which they agree. told: texts that are written further up."""
    ids = [branches[name].ids for name in names]
    stop = min(map(len, ids))
    stop = next((at for at in range(start, stop) if len({one[at] for one in ids}) > 1), stop)
    said, know = [], [branches[name].texts for name in names]
    for number, same in list(enumerate(zip(*know, strict=False)))[told:]:
        if len(set(same)) > 1 or same[0][0] >= stop:
            break
        said.append((max(start, same[0][0]), same[0][1], number % 2 == 1))
    found = [_Run(names, start, stop, line, parent, tuple(said))]
    groups: dict[int, list[str]] = {}
    for name in names:
        if len(branches[name].ids) > stop:
            groups.setdefault(branches[name].ids[stop], []).append(name)
    is_taken = any(len(branches[name].ids) == stop for name in names)  # by the name of a branch that ends here
    for group in groups.values():
        found += _runs(branches, tuple(group), stop, found[-1].line + is_taken, line, told + len(said))
        is_taken = True
    return found


def _state(branches: Mapping[str, Branch], names: Sequence[str], place: int, block_tokens: int | None) -> tuple[str, int]:
    """How a token of some branches is held, and by how many rows."""
    having = [branches[name] for name in names if place < branches[name].n_rows]
    if not having:
        return "empty", 0
    if block_tokens is None:
        return ("reused", 1) if len(having) > 1 else ("held", 1)
    blocks = [branch.table[place // block_tokens] for branch in having]
    shared = len(set(blocks)) < len(blocks)
    return "reused" if shared else "held", len(set(blocks))


def _draw_run(ax: Axes, branches: Mapping[str, Branch], run: _Run, block_tokens: int | None) -> None:
    y = MARGIN + LINE * (run.line + 0.62)
    _draw_line(ax, run, y)
    for place in range(run.start, run.stop):
        state, copies = _state(branches, run.names, place, block_tokens)
        ax.add_patch(style.SLOTS[state].patch(_x(place) + SLOT / 2, y, SLOT - 0.03, 0.17))
        if copies > 1:
            ax.text(_x(place) + SLOT / 2, y, str(copies), fontsize=7.5, ha="center", va="center_baseline", color=style.INK)
    if block_tokens is not None:
        _draw_blocks(ax, branches, run, block_tokens, y)
    ended = [name for name in run.names if len(branches[name].ids) == run.stop]
    _draw_texts(ax, run, y, is_last=len(ended) == len(run.names))
    if ended:
        ax.text(_x(run.stop) + 0.1, y, ", ".join(ended), fontsize=9, fontweight="bold", va="center", color=style.INK,
                parse_math=False)  # fmt: skip


def _draw_line(ax: Axes, run: _Run, y: float) -> None:
    """From where it leaves its parent to its first slot."""
    right = _x(run.start)
    if run.parent is None:
        ax.plot([right - ROOT, right], [y, y], color=style.INK, linewidth=1.2, linestyle="-", zorder=0)
    elif run.parent != run.line:
        top = MARGIN + LINE * (run.parent + 0.62)
        xs, ys = [right, right, right + SLOT / 2], [top, y, y]
        ax.plot(xs, ys, color=style.INK, linewidth=1.2, linestyle="-", zorder=0, solid_joinstyle="round")


def _draw_blocks(ax: Axes, branches: Mapping[str, Branch], run: _Run, size: int, y: float) -> None:
    """Frames of the blocks of a run; a shared one says how many tables name it."""
    places = [place for place in range(run.start, run.stop) if _state(branches, run.names, place, size)[0] != "empty"]
    for block in sorted({place // size for place in places}):
        first, last = max(run.start, block * size), min(places[-1] + 1, (block + 1) * size)
        box: dict[str, Any] = {"fill": False, "edgecolor": style.INK, "linewidth": 1.3}
        ax.add_patch(Rectangle((_x(first) + 0.005, y - 0.105), SLOT * (last - first) - 0.01, 0.21, **box))
        tables = [branches[name].table[block] for name in run.names if first < branches[name].n_rows]
        sharing = len(tables) - len(set(tables)) + 1
        if sharing > 1:
            plate: dict[str, Any] = {"facecolor": "#FFFFFF", "edgecolor": "none", "pad": 0.6}
            ax.text((_x(first) + _x(last)) / 2, y, f"×{sharing}", fontsize=7, ha="center", va="center_baseline",
                    color=style.INK, bbox=plate)  # fmt: skip


def _draw_texts(ax: Axes, run: _Run, y: float, *, is_last: bool) -> None:
    """What is said, from its first token on, as far as there is room. is_last: nothing else stands behind the run."""
    stops = [*(place for place, _, _ in run.said[1:]), run.stop + (3 if is_last else 0)]
    for (place, text, is_reply), stop in zip(run.said, stops, strict=False):
        room = max(4, int(SLOT * (stop - place) / (LETTER if is_reply else 0.93 * LETTER)))
        shown = drawable(text if len(text) <= room else text[: room - 1].rstrip() + "…")
        look: dict[str, Any] = {"fontweight": "bold", "color": style.ACTIVATION.text} if is_reply else {"color": style.MUTED}
        ax.text(_x(place) + 0.02, y - 0.14, shown, fontsize=8, ha="left", va="bottom", parse_math=False, **look)


def _x(place: int) -> float:
    return MARGIN + ROOT + SLOT * place


def _sheet(width: float, height: float) -> Axes:
    """Axes in inches, y downwards."""
    figure = Figure(figsize=(width, height), dpi=style.DPI)
    figure.set_layout_engine("none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(height, 0))
    ax.set_axis_off()
    return ax


def _draw_key(ax: Axes, kinds: Sequence[tuple[str, str, str]], y: float) -> None:
    """kinds: (state, what stands in such a slot, what it means)."""
    x = MARGIN
    for state, mark, words in kinds:
        ax.add_patch(style.SLOTS[state].patch(x + 0.1, y, 0.2, 0.17))
        ax.text(x + 0.1, y, mark, fontsize=7.5, ha="center", va="center_baseline", color=style.INK)
        ax.text(x + 0.27, y, words, fontsize=8, color=style.MUTED, va="center")
        x += 0.27 + 0.062 * len(words) + 0.3

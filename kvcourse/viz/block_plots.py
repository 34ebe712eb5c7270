"""Lesson 09: figures of memory in blocks: who has which slot, and what the size of a block costs. Knows nothing about caches or
models: it takes tables and numbers.

Every function that draws returns a matplotlib Figure, in the style of `viz.style`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from kvcourse.errors import InputError
from kvcourse.viz import style

ROW_HEIGHT = 1.45  # of a row of slots, with the numbers of its blocks above it


class Slot(NamedTuple):
    """One slot of memory: whose it is, and how it is drawn (a state of `style.SLOTS`). A slot that is nobody's is None."""

    owner: str
    state: str = "held"


def slots_of(
    tables: Mapping[str, Sequence[int]], lengths: Mapping[str, int], *, n_blocks: int, block_tokens: int
) -> list[Slot | None]:
    """The memory that these tables describe, slot by slot: n_blocks·block_tokens of them.

    tables: {owner: its blocks, in order}. lengths: {owner: its tokens}. A block of several tables is drawn as reused, and its
    owner says how many there are: "×3".
    Raises: InputError for a block that is not there, or a length that its table cannot hold.
    """
    memory: list[Slot | None] = [None] * (n_blocks * block_tokens)
    standing = Counter(block for table in tables.values() for block in table)
    for owner, table in tables.items():
        length = lengths[owner]
        if not all(0 <= block < n_blocks for block in table) or not 0 <= length <= len(table) * block_tokens:
            raise InputError(
                "A table that cannot be drawn.",
                expected=f"blocks 0 to {n_blocks - 1}, and room for {length} tokens",
                got=f"{owner}: {list(table)}",
                todo="Pass each owner's own table and length.",
            )
        for slot in range(len(table) * block_tokens):
            block, offset = table[slot // block_tokens], slot % block_tokens
            shared, is_held = standing[block] > 1, slot < length
            place = block * block_tokens + offset
            if is_held or memory[place] is None:  # of two that share a block, the longer one says what it holds
                name = f"×{standing[block]}" if shared else owner
                memory[place] = Slot(name, ("reused" if shared else "held") if is_held else "empty")
    return memory


def plot_memory(memories: Mapping[str, tuple[Sequence[Slot | None], int]], *, row_slots: int = 16) -> Figure:
    """Who has which slot: one panel for each memory, one below the other.

    memories: {title: (slots, slots of a block)}. Each block is framed and carries its number.
    row_slots: how many slots stand side by side; whole blocks.
    A held slot is green with its owner's name, a reserved empty one dotted with it, a free one dotted without. A key below says
    so, of the kinds that occur.
    """
    fit = all(slots and size > 0 and len(slots) % size == 0 and row_slots % size == 0 for slots, size in memories.values())
    known = all(slot is None or slot.state in style.SLOTS for slots, _ in memories.values() for slot in slots)
    if not memories or not fit or not known:
        raise InputError(
            "This memory cannot be drawn.",
            expected=f"whole blocks, whole ones in each row of {row_slots}, states {', '.join(style.SLOTS)}",
            got=", ".join(f"{len(slots)} slots in blocks of {size}" for slots, size in memories.values()) or "nothing",
            todo="Give all slots of each block.",
        )
    rows = [-(-len(slots) // row_slots) for slots, _ in memories.values()]
    height = 0.4 + sum(0.5 + 0.42 * ROW_HEIGHT * n for n in rows)
    with style.figure(max(6.2, 0.6 + 0.42 * row_slots), height, nrows=len(rows), squeeze=False, height_ratios=rows) as (
        fig,
        axes,
    ):
        for ax, (title, (slots, size)) in zip(axes[:, 0], memories.items(), strict=True):
            _draw_memory(ax, slots, size, row_slots)
            ax.set_title(title, parse_math=False)
        style.key(fig, _kinds([slot for slots, _ in memories.values() for slot in slots]))
    return fig


def plot_block_sizes(sizes: Sequence[int], wasted: Sequence[int], entries: Sequence[int]) -> Figure:
    """Two exact counts against the size of a block: slots reserved and never used; entries in all tables."""
    if not len(sizes) == len(wasted) == len(entries) or not sizes or min(sizes) < 1:
        raise InputError(
            "These counts cannot be drawn.",
            expected="for each size of 1 or more both counts",
            got=f"{len(sizes)} sizes, {len(wasted)} and {len(entries)} counts",
            todo="Count both for each size.",
        )
    with style.figure(8.4, 3.0, ncols=2) as (fig, axes):
        for ax, counts, what, unit in zip(
            axes, (wasted, entries), ("wasted", "in all block tables"), ("slots", "entries"), strict=True
        ):
            ax.plot(sizes, counts, color=style.INK, marker="o", markersize=4, clip_on=False)
            plate = {"facecolor": "#FFFFFF", "edgecolor": "none", "pad": 0.6}  # readable on top of the line
            for size, number in zip(sizes, counts, strict=True):
                text = {"xytext": (0, 7), "textcoords": "offset points", "ha": "center", "fontsize": 8, "bbox": plate}
                ax.annotate(f"{number:,}", (size, number), **text)
            ax.set_xscale("log", base=2)
            ax.set_xticks(sizes, [str(size) for size in sizes])
            ax.set_xlim(min(sizes) / 1.5, max(sizes) * 1.5)
            ax.set_ylim(0, 1.18 * max(*counts, 1))
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            style.label_axes(ax, x=("P", "size of a block", "slots"), y=(None, what, unit))
    return fig


def _kinds(slots: Sequence[Slot | None]) -> list[tuple[style.SlotStyle, str, str]]:
    """The kinds of slots that there are, for `style.key`: each with the last name that stands in one."""
    names = {"free" if slot is None else slot.state: "" if slot is None else slot.owner for slot in slots}
    words = {"held": "held", "empty": "reserved, empty", "reused": "shared by several tables", "free": "free"}
    order = [*words, *(state for state in names if state not in words)]
    return [
        (style.SLOTS["empty" if kind == "free" else kind], names[kind], words.get(kind, kind))
        for kind in order
        if kind in names
    ]


def _draw_memory(ax: Axes, slots: Sequence[Slot | None], size: int, row_slots: int) -> None:
    for place, slot in enumerate(slots):
        row, column = divmod(place, row_slots)
        y = row * ROW_HEIGHT
        ax.add_patch(style.SLOTS["empty" if slot is None else slot.state].patch(column, y))
        if slot is not None:
            is_empty = slot.state == "empty"
            box = {"facecolor": "#FFFFFF", "edgecolor": "none", "pad": 0.8} if slot.state == "reused" else None
            colour = style.MUTED if is_empty else style.INK
            weight = "normal" if is_empty else "bold"
            ax.text(
                column, y, slot.owner, ha="center", va="center", fontsize=8, color=colour, fontweight=weight, bbox=box,
                parse_math=False,
            )  # fmt: skip
        if place % size == 0:
            ax.add_patch(
                Rectangle((column - 0.49, y - 0.49), size - 0.02, 0.98, fill=False, edgecolor=style.INK, linewidth=1.4)
            )
            ax.text(column - 0.47, y - 0.54, f"block {place // size}", ha="left", va="bottom", fontsize=8, color=style.MUTED)
    last = (len(slots) - 1) // row_slots
    ax.set_xlim(-0.6, row_slots - 0.4)
    ax.set_ylim(last * ROW_HEIGHT + 0.6, -0.95)
    ax.set_axis_off()

"""Figures of memory show each slot as what it is, under its owner's name, and each count as it was given."""

import pytest

from kvcourse.errors import InputError
from kvcourse.viz import style
from kvcourse.viz.block_plots import ROW_HEIGHT, Slot, plot_block_sizes, plot_memory, slots_of


def drawn(ax) -> dict[tuple[int, int], tuple]:
    """Each slot's box by row and column: (face, line, hatch)."""
    found = {}
    for box in ax.patches:
        if box.get_fill():
            x, y = box.get_x() + box.get_width() / 2, (box.get_y() + box.get_height() / 2) / ROW_HEIGHT
            found[round(y), round(x)] = look(box)
    return found


def look(box) -> tuple:
    return tuple(box.get_facecolor()), box.get_linestyle(), box.get_hatch()


def look_of(state: str) -> tuple:
    return look(style.SLOTS[state].patch(0, 0))


def names(ax) -> dict[tuple[int, int], str]:
    """Texts in the middle of slots; the numbers of blocks stand above."""
    inside = [text for text in ax.texts if text.get_ha() == "center"]
    return {(round(t.get_position()[1] / ROW_HEIGHT), round(t.get_position()[0])): t.get_text() for t in inside}


def test_tables_become_slots_in_the_order_of_memory():
    memory = slots_of({"A": [2, 0], "B": [1]}, {"A": 3, "B": 1}, n_blocks=4, block_tokens=2)
    a, b = Slot("A"), Slot("B")
    assert memory == [a, Slot("A", "empty"), b, Slot("B", "empty"), a, a, None, None]


@pytest.mark.parametrize("order", ["AB", "BA"])
def test_a_shared_block_says_how_many_share_it_and_holds_what_the_longest_wrote(order):
    tables, lengths = {"A": [0], "B": [0]}, {"A": 1, "B": 2}
    memory = slots_of({name: tables[name] for name in order}, lengths, n_blocks=1, block_tokens=3)
    assert memory == [Slot("×2", "reused"), Slot("×2", "reused"), Slot("×2", "empty")]


@pytest.mark.parametrize(("table", "length"), [([2], 1), ([-1], 1), ([0], 3), ([], 1), ([0], -1)])
def test_a_table_that_cannot_be_is_refused(table, length):
    with pytest.raises(InputError, match="A table that cannot be drawn"):
        slots_of({"A": table}, {"A": length}, n_blocks=2, block_tokens=2)


def test_held_reserved_shared_and_free_slots_each_look_like_themselves():
    slots = [Slot("A"), Slot("A", "empty"), Slot("×2", "reused"), None]
    ax = plot_memory({"m": (slots, 2)}, row_slots=2).axes[0]
    assert drawn(ax) == {
        (0, 0): look_of("held"),
        (0, 1): look_of("empty"),
        (1, 0): look_of("reused"),
        (1, 1): look_of("empty"),
    }
    assert names(ax) == {(0, 0): "A", (0, 1): "A", (1, 0): "×2"}  # nobody's slot has no name
    assert len({look_of("held"), look_of("empty"), look_of("reused")}) == 3


def test_each_block_is_framed_once_and_numbered():
    ax = plot_memory({"m": ([None] * 8, 2)}, row_slots=4).axes[0]
    frames = [box for box in ax.patches if not box.get_fill()]
    assert [round(frame.get_width()) for frame in frames] == [2] * 4
    assert [text.get_text() for text in ax.texts] == ["block 0", "block 1", "block 2", "block 3"]


@pytest.mark.parametrize(
    ("slots", "named"),
    [
        ([Slot("A")] * 2, {"held": "held"}),
        ([Slot("A"), Slot("A", "empty")], {"held": "held", "reserved, empty": "empty"}),
        ([Slot("×2", "reused"), None], {"shared by several tables": "reused", "free": "empty"}),
        ([Slot("A", "evicted"), Slot("A", "written")], {"evicted": "evicted", "written": "written"}),  # by their own names
    ],
)
def test_the_key_of_a_memory_names_what_occurs_and_nothing_else(slots, named):
    (legend,) = plot_memory({"m": (slots, 2)}, row_slots=2).legends
    found = {text.get_text(): look(box) for text, box in zip(legend.get_texts(), legend.get_patches(), strict=True)}
    assert found == {words: look_of(state) for words, state in named.items()}


def test_memories_stand_one_below_the_other_with_their_titles():
    figure = plot_memory({"one": ([Slot("$")] * 4, 4), "two": ([None] * 8, 2)}, row_slots=4)
    assert [ax.get_title("left") for ax in figure.axes] == ["one", "two"]
    assert all(ax.yaxis_inverted() for ax in figure.axes)


def test_counts_of_block_sizes_are_drawn_as_given():
    wasted, entries = plot_block_sizes([1, 4, 16], [0, 7, 1500], [90, 30, 0]).axes
    assert wasted.lines[0].get_xdata().tolist() == [1, 4, 16] and wasted.lines[0].get_ydata().tolist() == [0, 7, 1500]
    assert [text.get_text() for text in wasted.texts] == ["0", "7", "1,500"]
    assert entries.lines[0].get_ydata().tolist() == [90, 30, 0]
    assert (wasted.get_ylabel(), entries.get_ylabel()) == ("wasted (slots)", "in all block tables (entries)")
    assert wasted.get_ylim()[0] == 0 and wasted.get_ylim()[1] > 1500
    assert plot_block_sizes([1], [0], [0]).axes  # nothing wasted at all


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_memory({}),
        lambda: plot_memory({"m": ([], 4)}),
        lambda: plot_memory({"m": ([None] * 3, 2)}, row_slots=2),
        lambda: plot_memory({"m": ([None] * 6, 3)}, row_slots=4),
        lambda: plot_memory({"m": ([None], 0)}, row_slots=1),
        lambda: plot_memory({"m": ([Slot("A", "lost")], 1)}, row_slots=1),
        lambda: plot_block_sizes([], [], []),
        lambda: plot_block_sizes([1, 2], [1], [1, 2]),
        lambda: plot_block_sizes([0], [1], [1]),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw):
    with pytest.raises(InputError):
        draw()


def test_the_same_memory_gives_the_same_bytes():
    for make in (
        lambda: plot_memory({"m": ([Slot("A"), None], 1)}, row_slots=2),
        lambda: plot_block_sizes([1, 2], [3, 4], [5, 6]),
    ):
        assert style.png(make()) == style.png(make())

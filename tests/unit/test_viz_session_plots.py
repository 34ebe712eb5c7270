"""Figures of conversations show each count as it was given, and each token once where branches have it in common."""

from types import SimpleNamespace

import pytest

from kvcourse.errors import InputError
from kvcourse.sessions.turns import Turn
from kvcourse.viz import style
from kvcourse.viz.session_plots import LINE, SLOT, Arrived, Branch, branch_of, plot_branches, plot_turns

ASKED = (0, "Hi")


def look(box) -> tuple:
    return tuple(box.get_facecolor()), box.get_linewidth(), box.get_linestyle(), box.get_hatch()


def state_of(box) -> str:
    return next(state for state, slot in style.SLOTS.items() if look(slot.patch(0, 0)) == look(box))


def slots(figure) -> dict[tuple[int, int], str]:
    """{(line, place): state} of every slot of a tree; the key below it is left out."""
    ax = figure.axes[0]
    boxes = [box for box in ax.patches if box.get_fill() and round(box.get_width(), 3) == round(SLOT - 0.03, 3)]
    left = min(box.get_x() for box in boxes)
    top = min(box.get_y() for box in boxes)
    return {
        (round((box.get_y() - top) / LINE), round((box.get_x() - left) / SLOT)): state_of(box) for box in boxes
    }  # fmt: skip


def words(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def bars(ax) -> dict[int, list[tuple[str, float, float]]]:
    """{turn: [(state, from, to), ...]} from the bottom up."""
    found: dict[int, list] = {}
    for box in ax.patches:
        bottom = round(box.get_y(), 6)
        found.setdefault(round(box.get_x() + box.get_width() / 2), []).append(
            (state_of(box), bottom, bottom + round(box.get_height(), 6))
        )
    return found


def test_a_turn_s_bar_is_what_was_there_below_what_was_copied_below_what_was_computed():
    ax = plot_turns({"a": [Arrived(computed=5), Arrived(3, 4, 2)]}).axes[0]
    assert bars(ax) == {1: [("written", 0, 5)], 2: [("held", 0, 3), ("reused", 3, 7), ("written", 7, 9)]}
    assert [text.get_text() for text in ax.texts] == ["5", "2"]


def test_ways_are_drawn_on_one_scale_and_titled_with_what_they_computed():
    figure = plot_turns({"all": [Arrived(computed=5), Arrived(computed=1200)], "some": [Arrived(0, 3, 2)]})
    one, other = figure.axes
    assert [ax.get_title("left") for ax in figure.axes] == ["all: 1,205 computed", "some: 2 computed"]
    assert one.get_ylim() == other.get_ylim() and one.get_xlim() == other.get_xlim()
    assert one.get_ylim()[0] == 0 and one.get_ylim()[1] > 1200


@pytest.mark.parametrize(
    ("turns", "named"),
    [
        ([Arrived(computed=5)], ["computed"]),
        ([Arrived(2, 0, 5)], ["there already", "computed"]),
        ([Arrived(2, 0, 5), Arrived(0, 1, 1)], ["there already", "copied", "computed"]),
    ],
)
def test_the_legend_of_turns_names_what_occurs_and_nothing_else(turns, named):
    legend = plot_turns({"a": turns}).axes[-1].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == named


def test_a_session_becomes_a_branch_with_its_texts_its_rows_and_its_blocks():
    turns = [Turn("Hi", "Ho", 0, 3, 5, "stop"), Turn("And?", "No", 5, 7, 8, "stop")]
    paged = SimpleNamespace(length=7, tables=[[4, 1]])
    branch = branch_of(SimpleNamespace(tokens=list(range(8)), turns=turns, cache=paged))
    assert branch == Branch(tuple(range(8)), ((0, "Hi"), (3, "Ho"), (5, "And?"), (7, "No")), 7, (4, 1))
    assert branch_of(SimpleNamespace(tokens=[1], turns=[], cache=None)) == Branch((1,), (), 0)
    assert branch_of(SimpleNamespace(tokens=[1], turns=[], cache=SimpleNamespace(length=1))).table == ()


def test_what_branches_have_in_common_is_drawn_once_and_the_last_token_has_no_row():
    a, b = Branch((1, 2, 3, 4), (ASKED,), 3), Branch((1, 2, 5, 6, 7), (ASKED,), 4)
    assert slots(plot_branches({"a": a, "b": b})) == {
        (0, 0): "reused", (0, 1): "reused", (0, 2): "held", (0, 3): "empty",
        (1, 2): "held", (1, 3): "held", (1, 4): "empty",
    }  # fmt: skip


def test_with_blocks_only_what_lies_in_the_same_block_is_shared_and_copies_are_counted():
    a = Branch((1, 2, 3, 4, 5), (ASKED,), 5, (0, 1, 2))
    b = Branch((1, 2, 3, 4, 6), (ASKED,), 5, (0, 3, 4))
    figure = plot_branches({"a": a, "b": b}, block_tokens=2)
    assert [state for _, state in sorted(slots(figure).items())] == ["reused", "reused", "held", "held", "held", "held"]
    # Block 0; the two slots of blocks 1 and 3, and what a number means
    assert words(figure).count("×2") == 1 and words(figure).count("2") == 3 and "held in as many copies" in words(figure)
    frames = [box for box in figure.axes[0].patches if not box.get_fill()]
    assert [round(frame.get_width() / SLOT) for frame in frames] == [2, 2, 1, 1]
    same = plot_branches({"a": a, "b": Branch((1, 2, 3, 4, 6), (ASKED,), 5, (0, 1, 4))}, block_tokens=2)
    assert words(same).count("×2") == 2 and not {"2", "held in as many copies"} & set(words(same))


def test_a_block_across_a_parting_is_framed_in_both_runs():
    a = Branch((1, 2, 3, 4), (ASKED,), 4, (0, 1))
    b = Branch((1, 2, 3, 9), (ASKED,), 4, (0, 2))
    frames = [box for box in plot_branches({"a": a, "b": b}, block_tokens=2).axes[0].patches if not box.get_fill()]
    assert [round(frame.get_width() / SLOT) for frame in frames] == [2, 1, 1, 1]


def test_three_branches_may_part_at_two_places():
    ids = {"a": (1, 2, 3, 4), "b": (1, 2, 9), "c": (1, 2, 3, 8, 8)}
    drawn = slots(plot_branches({name: Branch(one, (ASKED,), len(one)) for name, one in ids.items()}))
    assert sorted(drawn) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (1, 4), (2, 2)]
    assert drawn[0, 2] == "reused" and drawn[2, 2] == "held"


def test_a_branch_that_ends_where_others_go_on_keeps_its_line_for_its_name():
    branches = {"short": Branch((1, 2), (ASKED,), 2), "long": Branch((1, 2, 3), (ASKED,), 3)}
    figure = plot_branches(branches)
    assert sorted(slots(figure)) == [(0, 0), (0, 1), (1, 2)]
    assert {"short", "long"} <= set(words(figure))


def test_equal_conversations_are_one_line_with_both_names():
    branch = Branch((1, 2), (ASKED,), 2)
    figure = plot_branches({"a": branch, "b": branch})
    assert sorted(slots(figure)) == [(0, 0), (0, 1)] and "a, b" in words(figure)


def test_conversations_with_nothing_in_common_are_drawn_too():
    figure = plot_branches({"a": Branch((1, 2), ((0, "Hi"),), 2), "b": Branch((3,), ((0, "Oh"),), 1)})
    assert sorted(slots(figure)) == [(0, 0), (0, 1), (1, 0)] and {"Hi", "Oh"} <= set(words(figure))


def test_each_text_is_written_once_where_its_branch_is_alone_with_it():
    """Two replies may begin with the same token: either is then written behind it, not one of them above both."""
    one = Branch((1, 2, 7, 3), ((0, "Hi"), (2, "The cat")), 4)
    other = Branch((1, 2, 7, 4), ((0, "Hi"), (2, "The dog")), 4)
    said = [text for text in words(plot_branches({"a": one, "b": other})) if text in ("Hi", "The cat", "The dog")]
    assert sorted(said) == ["Hi", "The cat", "The dog"]


def test_a_text_that_finds_no_room_is_cut_and_says_so():
    long = Branch(tuple(range(20)), ((0, "a question that is much too long for four tokens"), (4, "Yes.")), 19)
    shown = words(plot_branches({"a": long}))
    assert any(text.startswith("a ques") and text.endswith("…") and len(text) <= 10 for text in shown) and "Yes." in shown
    last = words(plot_branches({"a": Branch((1, 2, 3), ((0, "Hi"), (1, "an answer that is longer than its tokens")), 2)}))
    assert any(text.startswith("an ans") and text.endswith("…") and len(text) <= 12 for text in last)


def test_the_key_of_a_tree_names_what_occurs():
    whole = plot_branches({"a": Branch((1, 2), (ASKED,), 2)})
    assert "a branch's own" in words(whole) and not {"shared by branches", "no K/V yet"} & set(words(whole))
    assert "no K/V yet" in words(plot_branches({"a": Branch((1, 2), (ASKED,), 0)}))


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_turns({}),
        lambda: plot_turns({"a": []}),
        lambda: plot_turns({"a": [Arrived(computed=1)], "b": []}),
        lambda: plot_turns({"a": [Arrived(-1, 0, 3)]}),
        lambda: plot_branches({}),
        lambda: plot_branches({"a": Branch((), (), 0)}),
        lambda: plot_branches({"a": Branch((1,), (ASKED,), 2)}),
        lambda: plot_branches({"a": Branch((1, 2), ((2, "late"),), 2)}),
        lambda: plot_branches({"a": Branch((1, 2), (ASKED,), 2)}, block_tokens=2),  # and no block for them
        lambda: plot_branches({"a": Branch((1, 2), (ASKED,), 2, (0,))}, block_tokens=0),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw):
    with pytest.raises(InputError):
        draw()


def test_the_same_conversations_give_the_same_bytes():
    for make in (
        lambda: plot_turns({"a": [Arrived(1, 2, 3)]}),
        lambda: plot_branches({"a": Branch((1, 2), (ASKED,), 1, (0,))}, block_tokens=2),
    ):
        assert style.png(make()) == style.png(make())

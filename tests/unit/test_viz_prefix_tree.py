"""Figures of prefix trees: every stored token is drawn once, at its place, in its state; stories are told as they happen."""

import pytest

from kvcourse.errors import InputError
from kvcourse.prefix.blocks import HashedBlocks
from kvcourse.prefix.keys import encoded
from kvcourse.prefix.radix import RadixTree
from kvcourse.viz import style
from kvcourse.viz.prefix_story import LONGEST, ROOM, NoRows, Story, first_story, told
from kvcourse.viz.prefix_tree import KEY, Panel, Piece, Request, pieces_of, plot_trees

ROOT = b"root"


def tree(*texts: str, kind=RadixTree, **options):
    """An index of texts, one letter a token."""
    index = kind(NoRows(), **options)
    for text in texts:
        add(index, text)
    return index


def ids(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def add(index, text: str, root: bytes = ROOT) -> None:
    index.add(index.root(root), ids(text), lambda start, stop: 0, 0.0)


def seen(pieces: list[Piece]) -> dict[str, str]:
    """{all letters up to a piece's end: its own letters}."""
    return {"".join(map(chr, piece.path)): "".join(piece.words) for piece in pieces}


def slots(figure) -> list[tuple[str, float, float, tuple]]:
    """(word, x, y, look) of every slot; its word stands in the middle of it. The boxes of the key have no word inside."""
    (ax,) = figure.axes
    words = {(round(x, 3), round(y, 3)): text.get_text() for text in ax.texts for x, y in [text.get_position()]}
    found = []
    for box in ax.patches:
        if hasattr(box, "get_x") and type(box).__name__ == "Rectangle":
            x, y = box.get_x() + box.get_width() / 2, box.get_y() + box.get_height() / 2
            if (round(x, 3), round(y, 3)) in words:
                found.append((words[round(x, 3), round(y, 3)], x, y, look(box)))
    return found


def look(box) -> tuple:
    return tuple(box.get_facecolor()), box.get_linestyle(), box.get_hatch(), box.get_linewidth()


def state(drawn: tuple) -> str:
    (found,) = [name for name in style.SLOTS if look(style.SLOTS[name].patch(0, 0)) == drawn]
    return found


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


# Pieces.


def test_pieces_are_the_stretches_of_the_index_with_what_stands_in_front_of_them():
    pieces = pieces_of(tree("abcd", "abxy"), chr)
    assert seen(pieces) == {"ab": "ab", "abcd": "cd", "abxy": "xy"}
    assert {piece.start for piece in pieces} == {0, 2}
    assert all(piece.front == piece.path[: piece.start] for piece in pieces)


def test_blocks_are_drawn_by_the_same_code():
    pieces = pieces_of(tree("abcdef", "abxy", kind=HashedBlocks, block_tokens=2), chr)
    assert seen(pieces) == {"ab": "ab", "abcd": "cd", "abcdef": "ef", "abxy": "xy"}


@pytest.mark.parametrize(
    ("known", "stored", "expected"),
    [(0, 0, "hhhh"), (3, 0, "rrrh"), (1, 4, "rwww"), (4, 4, "rrrr"), (0, 3, "wwwh")],
)
def test_a_request_marks_what_it_found_and_what_it_wrote(known, stored, expected):
    index = tree("abcd", "abxy")
    pieces = pieces_of(index, chr, request=Request(ids("abcd"), known, stored))
    states = {piece.path[piece.start + i]: piece.states[i][0] for piece in pieces for i in range(len(piece.words))}
    assert "".join(states[token] for token in ids("abcd")) == expected
    assert states[ord("x")] == states[ord("y")] == "h"


def test_a_request_marks_nothing_behind_its_own_end_or_behind_a_difference():
    index = tree("abcd")
    assert pieces_of(index, chr, request=Request(ids("ab"), 9, 9))[0].states == ("reused", "reused", "held", "held")
    assert pieces_of(index, chr, request=Request(ids("abx"), 3))[0].states == ("reused", "reused", "held", "held")


def test_a_request_of_one_namespace_marks_nothing_in_another():
    index = tree("ab")
    add(index, "ab", b"other")
    pieces = pieces_of(index, chr, name=bytes.decode, request=Request(ids("ab"), 2, root=b"other"))
    assert {piece.root: set(piece.states) for piece in pieces} == {"root": {"held"}, "other": {"reused"}}


def test_pins_are_those_of_the_entries():
    index = tree("abcd", "abxy")
    index.pin(index.match(index.roots[ROOT], ids("abxy"), None).entries[-1])
    assert {"".join(piece.words): piece.pins for piece in pieces_of(index, chr)} == {"ab": 1, "cd": 0, "xy": 1}


def test_what_has_just_gone_is_drawn_as_evicted_at_its_place():
    gone = []
    index = RadixTree(NoRows(), gone=lambda entry, reason: gone.append(entry))
    for text in ("abcd", "abxy"):
        add(index, text)
    index.evict(1)
    pieces = pieces_of(index, chr, gone=gone)
    assert seen(pieces) == {"ab": "ab", "abxy": "xy", "abcd": "cd"}
    assert {"".join(piece.words): set(piece.states) for piece in pieces} == {"ab": {"held"}, "xy": {"held"}, "cd": {"evicted"}}


# Pictures.


@pytest.mark.parametrize("kind", [RadixTree, HashedBlocks])
def test_every_stored_token_is_one_slot_with_its_word(kind):
    index = tree("abcd", "abxy", "q", kind=kind, **({"block_tokens": 1} if kind is HashedBlocks else {}))
    drawn = slots(plot_trees({"t": pieces_of(index, chr)}))
    assert sorted(word for word, *_ in drawn) == sorted("abcdxyq") and len(drawn) == index.tokens
    assert {state(how) for *_, how in drawn} == {"held"}


def test_a_column_is_a_place_in_the_text_and_branches_stand_below_each_other():
    drawn = {word: (x, y) for word, x, y, _ in slots(plot_trees({"t": pieces_of(tree("abcd", "abxy", "qrs"), chr)}))}
    for column in ("aq", "br", "cxs", "dy"):
        assert len({round(drawn[word][0], 6) for word in column}) == 1
    lines = [{round(drawn[word][1], 6) for word in line} for line in ("abcd", "xy", "qrs")]
    assert all(len(line) == 1 for line in lines)
    assert [max(line) for line in lines] == sorted(max(line) for line in lines)


def test_a_branch_keeps_its_line_while_another_is_evicted():
    gone = []
    index = RadixTree(NoRows(), gone=lambda entry, reason: gone.append(entry))
    for text in ("abcd", "abxy"):
        add(index, text)
    before = {word: y for word, _, y, _ in slots(plot_trees({"t": pieces_of(index, chr)}))}
    index.evict(1)
    assert {word: y for word, _, y, _ in slots(plot_trees({"t": pieces_of(index, chr, gone=gone)}))} == before


def test_each_state_looks_like_itself_and_stands_in_the_key_if_it_occurs():
    piece = Piece("root", (1, 2, 3, 4), ("a", "b", "c", "d"), ("held", "written", "reused", "evicted"))
    figure = plot_trees({"t": [piece]})
    assert [state(how) for *_, how in sorted(slots(figure), key=lambda slot: slot[1])] == list(piece.states)
    assert set(KEY.values()) <= set(texts(figure))
    plain = plot_trees({"t": [Piece("root", (1,), ("a",), ("held",))]})
    assert "held" in texts(plain) and "evicted" not in texts(plain)


def test_pins_are_said_in_words():
    figure = plot_trees({"t": [Piece("root", (1,), ("a",), ("held",), pins=2)]})
    assert "pinned by 2" in texts(figure)
    assert not any("pinned" in text for text in texts(plot_trees({"t": [Piece("root", (1,), ("a",), ("held",))]})))


def test_every_root_has_its_name_even_without_texts():
    figure = plot_trees({"t": Panel([Piece("ana", (1,), ("a",), ("held",))], roots=("ana", "ben"))})
    assert {"ana", "ben"} <= set(texts(figure))
    assert "root" in texts(plot_trees({"t": []}))


def test_panels_side_by_side_have_one_scale_and_overlap_nowhere():
    short, long = pieces_of(tree("ab"), chr), pieces_of(tree("ab", "acdefgh"), chr)
    figure = plot_trees({"one": short, "two": long, "three": short}, columns=2)
    xs = sorted(x for word, x, *_ in slots(figure) if word == "b")
    assert len(xs) == 3 and xs[0] == pytest.approx(xs[1])  # panels one and three stand below each other
    assert {"one", "two", "three"} <= set(texts(figure))
    boxes = [(x, y) for _, x, y, _ in slots(figure)]
    assert len({(round(x, 3), round(y, 3)) for x, y in boxes}) == len(boxes)


def test_a_picture_like_others_has_their_scale_and_height():
    small, large = Panel(pieces_of(tree("ab"), chr)), Panel(pieces_of(tree("abc", "axyz", "q"), lambda token: chr(token) * 4))
    alone, beside = plot_trees({"t": small}, like=[large]), plot_trees({"t": large})
    assert alone.get_size_inches().tolist() == beside.get_size_inches().tolist()


def test_nothing_is_cut_off():
    story = first_story()
    figures = [plot_trees({step.title: step.panel}, width=9) for step in story.steps]
    figures.append(plot_trees({str(n): step.panel for n, step in enumerate(story.steps)}, columns=2, width=9))
    for figure in figures:
        figure.draw_without_rendering()
        for text in figure.axes[0].texts:
            box = text.get_window_extent()
            assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0 and box.y1 <= figure.bbox.y1, text.get_text()


def test_words_fit_into_their_slots():
    figure = plot_trees({"t": pieces_of(tree("mw"), lambda token: chr(token) * 12)})
    figure.draw_without_rendering()
    (ax,) = figure.axes
    boxes = [box.get_window_extent() for box in ax.patches if type(box).__name__ == "Rectangle"]
    for text in ax.texts:
        if len(text.get_text()) == 12:
            inside = text.get_window_extent()
            assert any(box.x0 <= inside.x0 and inside.x1 <= box.x1 for box in boxes), text.get_text()


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_trees({}),
        lambda: plot_trees({"t": []}, columns=0),
        lambda: plot_trees({"t": [Piece("root", (1,), ("a",), ("lost",))]}),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw):
    with pytest.raises(InputError, match="cannot be drawn"):
        draw()


def test_the_same_tree_gives_the_same_bytes():
    one, two = (style.png(plot_trees({"t": pieces_of(tree("abcd", "abxy"), chr)})) for _ in range(2))
    assert one == two


# Stories.


def test_the_first_story_does_each_thing_once_and_its_tree_is_sound():
    story = first_story()
    story.tree.check(story._leases)
    titles = " ".join(step.title for step in story.steps)
    assert all(what in titles for what in ("match", "insert", "lease", "release", "evict", "ben"))
    said = told(story.steps)
    assert "split behind “is”" in said and "Evicted: “rain ?”" in said and "Evicted: “snow ?”, then “what is”" in said
    assert all(f"Step {number}, " in said for number in range(len(story.steps)))


def test_the_room_is_never_exceeded_and_always_said():
    for step in first_story().steps:
        held = sum(len(piece.words) for piece in step.panel.pieces if "evicted" not in piece.states)
        assert held <= ROOM and f"Held: {held}\u00a0of\u00a0{ROOM}." in step.words


def test_looking_changes_nothing():
    story = Story()
    story.insert("a b c")
    before = [(entry.tokens, entry.used, entry.uses) for entry in story.tree.entries()]
    story.match("a b x", "ben")
    story.match("a b x")
    assert [(entry.tokens, entry.used, entry.uses) for entry in story.tree.entries()] == before
    assert list(story.tree.roots) == [encoded("ana")]


@pytest.mark.parametrize(
    ("text", "says"),
    [("a b x y", "2 of its 4 words known, 2 to compute."), ("a b c", "2 of its 3 words known"), ("x a b", "0 of its 3 words")],
)
def test_a_match_counts_from_the_front_and_leaves_one_word(text, says):
    story = Story()
    story.insert("a b c")
    step = story.match(text)
    assert says in step.words
    assert ("the answer begins with its logits" in step.words) == (text == "a b c")


def test_a_tenant_finds_nothing_of_another():
    story = Story()
    story.insert("a b c")
    assert "0 of its 3 words known" in story.match("a b c", "ben").words
    assert "3 written" in story.insert("a b c", "ben").words
    assert {piece.root for piece in story.steps[-1].panel.pieces} == {"ana", "ben"}


def test_a_leased_text_is_not_evicted_and_goes_after_its_release():
    story = Story(room=4)
    story.insert("a b")
    story.lease("a b c")
    assert "Nothing may go" in story.evict().words
    assert "There is no room for 1 word" in story.insert("p q r").words
    assert "0" in story.release().words and "no lease out" in story.release().words
    story.evict(9)
    assert story.tree.tokens == 0


def test_a_lease_of_an_unknown_text_pins_nothing():
    story = Story()
    assert "nothing is pinned" in story.lease("a b").words
    story.release()
    story.tree.check()
    assert not story.tree.roots


@pytest.mark.parametrize("text", ["", "   ", " ".join("w" * (LONGEST + 1)), "a" * 13])
def test_a_text_that_does_not_fit_the_picture_is_refused_and_adds_no_step(text):
    story = Story()
    for call in (story.match, story.insert, story.lease):
        with pytest.raises(InputError, match="a few words"):
            call(text)
    assert len(story.steps) == 1


def test_random_calls_keep_the_tree_sound():
    import random

    rng, story = random.Random(7), Story()
    for _ in range(300):
        text = " ".join(rng.choices("ab", k=rng.randint(1, 6)))
        whose = rng.choice(["ana", "ben"])
        rng.choice(
            [
                lambda t=text, w=whose: story.match(t, w),
                lambda t=text, w=whose: story.insert(t, w),
                lambda t=text, w=whose: story.lease(t, w),
                story.release,
                story.evict,
            ]
        )()
        story.tree.check(story._leases)
        assert story.tree.tokens <= ROOM

"""Lesson 11: hints for exercise 11, the vaguest first. Knows nothing about the checks, and gives no answer away."""

from collections.abc import Mapping, Sequence

HINTS: Mapping[str, Sequence[str]] = {
    "11.1": (
        "Write down, for a conversation of 6 ids with 5 rows and a text of 2 new ids: what is in ids before the first call of "
        "the model, and which of these have no row? And before the second call?",
        "`cache.length` is how many of the first ids have their rows, at any moment: it grows with every call. What is behind "
        "that place has to go through, however much it is. One loop does it for the first call and for all others.",
        "Grow `ids` itself: `ids = ids + ...` makes another list, `append` and `extend` do not. Each round: pass what has no "
        "row yet, take the place of the largest number in the last row of logits, put it behind ids. What is returned is made "
        "of the last n ids.",
    ),
    "11.2": (
        "Everything follows from one number: how many ids the kept turns have together. Where does it stand, and what is it "
        "when no turn is kept?",
        "Rows can be fewer than ids, never more. Two numbers limit them: how many ids the branch has, and how many rows the "
        "chat has. Try it for all turns, for one turn, and for a chat with no rows at all.",
        "A slice of a list is a new list; a slice of a tensor is a window onto the same memory. `clone` makes a tensor of "
        "its own, with all its slots, used or not.",
    ),
    "11.3": (
        "For every reply that a question follows, there are two texts: what the cache holds after it, and the prompt that "
        "comes next. Which messages does `render` need for the one, and for the other?",
        "With the reply in place i, its question is the last of `messages[:i]`, and the next question is the last of "
        "`messages[: i + 2]`. To what `render` makes of the first, the reply itself is added as it was generated.",
        "Two texts part at the first place where they differ, or where the shorter one ends. If that is before the end of what "
        "the cache holds, it is lost from there on. A slice of one character, `text[i : i + 1]`, is empty behind the end.",
    ),
    "11.4": (
        "Four questions in the order of the four words; the first yes is the answer. Only the first question is a long one: of "
        "what was the digest made?",
        "Of everything but itself. So make a dict with all fields of the header but one, hand it to digest with the rows, and "
        "compare the result with what the header says.",
        "`header.get(name)` is None where there is no such field, and None is nobody's fingerprint. Versions 1 and 2 are both "
        "all right; only a larger number is newer.",
    ),
}

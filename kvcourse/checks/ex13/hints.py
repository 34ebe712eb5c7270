"""Lesson 13: hints for exercise 13, the vaguest first. Knows nothing about the checks, and gives no answer away."""

from collections.abc import Mapping, Sequence

HINTS: Mapping[str, Sequence[str]] = {
    "13.1": (
        "Write down, for each body, the texts in the order in which the model reads them. Then lay the two lists side by side: "
        "which is the first row in which they differ?",
        "A list of parts for each body: its tools, or an empty list where it has none, and then its messages. `enumerate` and "
        "`zip` walk through two lists together, and stop where the shorter one ends. Compare texts, not dicts.",
        "What two texts have in common may be all of one of them: then they part where it ends. And a slice that begins below "
        "0 counts from the end of the text: what is the least start?",
    ),
    "13.2": (
        "Two questions, one after the other: which orders are allowed at all? And what is each of those worth? Begin with a "
        "function for the second one.",
        "With an order in hand, each request becomes one text, and is then compared with every text in front of it. Of these "
        "comparisons the longest counts, and for the first request there is none.",
        "In an order that is allowed, the place of `a` is smaller than that of `b`, for all pairs; lists and tuples have "
        "`index`. Of what is left, `max` finds the best: give it your function as `key`.",
    ),
    "13.3": (
        "Take one request of the log. Which of those in front of it are young enough to help? How much does each of them have "
        "in common with it? Then three rules are left: in which order?",
        "A request renews what it begins with by being there itself. So it is enough to ask each earlier request alone: is it "
        "young enough, and how far does it go along?",
        "First the longest common start; then at most all tokens but one; then the minimum, which asks about that number; and "
        "only then whole steps. `n // step` says how many steps there are.",
    ),
    "13.4": (
        "Every token of the prompt belongs to one of three classes: found, written, neither. Write down the size of each for a "
        "prompt figure that includes the other two, and for one that leaves them out.",
        "Once you have the three sizes, both bills follow from them: the first has a price for each, and the second has one "
        "price for their sum. The answer's tokens stand on both.",
        "`.get(name)` returns None for a figure that is missing, and for one that is None; `or` turns that into a 0. Divide "
        "by a million in the end.",
    ),
}

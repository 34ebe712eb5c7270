"""Lesson 08: hints for exercise 08, the vaguest first. Knows nothing about the checks, and gives no answer away."""

from collections.abc import Mapping, Sequence

HINTS: Mapping[str, Sequence[str]] = {
    "8.1": (
        "Let the tokens arrive one by one, and write each into its slot. What was there before is gone. A loop does just that.",
        "Without sinks: window 4, tokens 0 to 9 in a row. Write their slots under them: 0 1 2 3 0 1 … Which operation makes "
        "that row from the other?",
        "A sink's slot is its own number. For all others, count how many tokens came since the last sink, let that go round "
        "the slots that are left, and begin behind the sinks.",
    ),
    "8.2": (
        "Three conditions. Which of them must always hold, and which two are alternatives?",
        "Take window 6 and sinks 2, and token 9. Six keys in all, itself included; two are sinks. Which is the oldest of the "
        "others? Write it as 9 minus something.",
        "Make the queries a column and the keys a row, and compare numbers, never places: a key in column 3 may be token 50. "
        "Tables of bools are joined with & and |, and each comparison needs brackets.",
    ),
    "8.3": (
        "Write under each query head, 0 to 5, the K/V head that it reads, when there are two. Which operation makes the one "
        "row of numbers from the other?",
        "Neighbours share, so the list is 0 0 0 1 1 1. Heads are axis 1, and a tensor can be indexed along an axis with a "
        "list of places, some of them several times.",
        "How many query heads are in a group? Each K/V head stands that many times, one right after the other, before the next "
        "one comes.",
    ),
    "8.4": (
        "Least and greatest of each row first; keepdim=True leaves them as columns, so that all that follows is one line "
        "for all rows.",
        "4 bits are 16 codes, and between 16 codes there are how many steps? A number's code is how many steps it lies above "
        "the least, rounded.",
        "Two dangers are left. A row of equal numbers has a step of 0: torch.where(condition, a, b) puts something harmless in "
        "its place before you divide. And what is rounded may lie above the last code: clamp it while it is still a float.",
    ),
    "8.5": (
        "Go backwards: from a code to how far above the least number it lies, and from there to the number.",
        "codes is (G, n); low and step are (G, 1). Torch stretches an axis of length 1 by itself.",
        "A byte times a byte stays a byte, and wraps past 255. Is one of your two factors a float of the right dtype?",
    ),
}

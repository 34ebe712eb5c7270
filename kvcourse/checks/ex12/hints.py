"""Lesson 12: hints for exercise 12, the vaguest first. Knows nothing about the checks, and gives no answer away."""

from collections.abc import Mapping, Sequence

HINTS: Mapping[str, Sequence[str]] = {
    "12.1": (
        "Only one of the five numbers needs thought: `cached`. Write down, for two requests on paper, the list of ids whose "
        "rows the cache holds when the second prompt comes.",
        "Carry that list along from request to request: empty at first, and afterwards the prompt and the answer of the "
        "request just made, without the last id. Count from the front how far it is the same as the prompt, and stop at the "
        "first difference. Where does counting have to stop even if there is none?",
        "Four of the totals are sums over `turns`. The window is no sum: it is what the last turn left, or 0 where there was "
        "no turn. Never ask for `turns[-1]` of an empty list.",
    ),
    "12.2": (
        "Write the prompts of four steps under one another, as sums of `fixed`, `answer` and `result`. How much longer is each "
        "than the one above it? And how long is the last?",
        "In the sum of all prompts, the fixed part stands n times. The first answer and result stand in all later prompts, the "
        "second in one fewer, ... : 0 + 1 + 2 + ... + (n - 1) times together, and that sum has a closed form. `//` keeps it a "
        "whole number if you multiply first.",
        "With a warm cache the first prompt is computed as a whole. In front of each later one everything has its row, but for "
        "one token of the last answer; what comes behind it is a result. So each step after the first adds the same number.",
    ),
    "12.3": (
        "What may go? Make the list of step numbers that are in the window, oldest first. What may never go is the last of "
        "them, and whatever is `system` or `task`.",
        "As long as the window is too large and more than one step is left, drop the first of that list: keep all parts but "
        "those of that step. All parts of a step go at once that way, however many it has.",
        "Count tokens, `len(ids)` of each part, not parts. Afterwards there are two cases: it fits, or it does not, and then "
        "the answer is None. A window that needs no room at all takes the same way, without a round.",
    ),
    "12.4": (
        "Sort the parts into three heaps: what stays in front, what goes, what stays at the end. Draw the new window. Which of "
        "its tokens are, in the same places, also in the old one?",
        "In front: all `system` and `task`. At the end: all with the highest step number. Whatever is in neither heap goes, an "
        "older summary, too; its step is 0, so do not look for it by its step.",
        "Two cases change nothing, and ask for no summary: a window with at most `limit` tokens, and a heap of what goes that "
        'is empty. Otherwise the heap goes to summarise, once, and a part with the role "summary" and step 0 comes between the '
        "other two heaps.",
    ),
}

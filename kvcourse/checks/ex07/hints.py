"""Lesson 07: hints for exercise 07, the vaguest first. Knows nothing about the checks, and gives no answer away."""

from collections.abc import Mapping, Sequence

HINTS: Mapping[str, Sequence[str]] = {
    "7.1": (
        "Four steps: does it fit, is there a buffer, write, hand out. The first has to come first.",
        "The new rows begin at the slot that the length names. Where do they end? Ask whether that is beyond the capacity, "
        "before anything is made or written. A new buffer is as k is, but for the number of slots, and the dtype is k's.",
        "Assigning to a slice of a tensor writes into it; taking a slice of it makes a view. Both slices cut the third of four "
        "axes: one from the old length to the new end, the other from 0 to the new end.",
    ),
    "7.2": (
        "What says which rows are in use? Does anything else have to change?",
        "Which n are right, for a cache of 5 tokens? Write the six of them down, then the question that lets these through and "
        "no others. Is 0 among them?",
        "First the question, with raise ValueError(...) if n is below nothing or above what is there; then one assignment.",
    ),
    "7.3": (
        "Count numbers first, then bytes. How many numbers does one token leave in one layer?",
        "n_embd is shared out evenly among the n_head query heads, and a K/V head is as large as a query head. There are "
        "n_kv_head of those in each layer.",
        "Two kinds of rows, times layers, times heads that have them, times numbers in a head, times tokens, times texts; then "
        "the bytes of one number, which a dtype knows. Whole numbers all the way: // and not /.",
    ),
    "7.4": (
        "Go along both lists at once, while they agree. What is the first choice after that?",
        "chosen has one more id than drafted. The choice with number i was made after the first i guesses: it is true if those "
        "are. So one more choice is true than guesses are.",
        "Let a be the number of guesses before the first that disagrees, or all. The new ids are the beginning of chosen. "
        "Of the rows in the cache, those of the other len(drafted) - a guesses have to go.",
    ),
}

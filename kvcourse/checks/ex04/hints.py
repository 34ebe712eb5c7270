"""Lesson 04: hints for exercise 04, the vaguest first. Knows nothing about the checks, and gives no answer away."""

from collections.abc import Mapping, Sequence

HINTS: Mapping[str, Sequence[str]] = {
    "4.1": (
        "A name is an address: model, block, part, and at last weight or bias. Two of these words decide; which?",
        "Cut the name at its dots. Then the block's number is a word of its own, and 1 is no longer found inside 11.",
        "Go through the names. Keep one if two things hold: the block's number, as text, is among its words, and so is the "
        "word that names the projection. There are two such words: one for GPT-2, one for Llama.",
    ),
    "4.2": (
        "x @ W: every column of W makes one number of the result. If the result is to be q, k and v side by side, in which "
        "direction must W be cut?",
        "The weight has C rows, so C can be read from its shape. The three parts have C columns each, q's first. The bias has "
        "no rows: one number for each column.",
        "Both torch.split and slices will do: the part number i begins at column i times C. Do the same with the bias, then "
        "put each weight together with its own bias.",
    ),
    "4.3": (
        "Four steps: normalise, multiply, add, cut into heads. Write down the shape after each of them.",
        "Every name starts with transformer.h., the block's number and a dot. ln_1 has a weight and a bias, c_attn too. Of "
        "c_attn, only the middle third makes keys.",
        "(T, C) has to become (H, T, D). Cut the last axis into H times D first: then tokens come first, and each head's "
        "numbers are still together. After that two axes change places. One step alone would mix tokens and heads.",
    ),
    "4.4": (
        "Three regions: 8 bytes, the header, the numbers. Print the first 200 bytes of the file and find the borders.",
        "The first 8 bytes are a whole number, the least significant byte first: the length of the header in bytes. What "
        "follows them is JSON. So where do the numbers begin, counted from the start of the file?",
        "Three things of the entry are needed: data_offsets, counted from where the numbers begin; dtype, as one of torch's; "
        "shape, to fold the row of numbers at the end.",
    ),
}

"""Lesson 03: hints for exercise 03, the vaguest first. Knows nothing about the checks, and gives no answer away."""

from collections.abc import Mapping, Sequence

HINTS: Mapping[str, Sequence[str]] = {
    "3.1": (
        "Take one token, four numbers, and do it on paper: mean, then distances from it, then the average of their squares.",
        "Each token has a mean and a variance of its own, so both are taken over the last axis. To subtract them again from x "
        "they need an axis there, of size 1: keepdim=True.",
        "In order: take off the mean; divide by a root, under which stand the variance (an average, so divided by C and not by "
        "C - 1) and eps; multiply by weight; add bias. torch.var has an argument for the C.",
    ),
    "3.2": (
        "Three steps: widen, bend, narrow. The two linear maps are alike; each is a product and a sum.",
        "(B, T, C) times (C, F) gives (B, T, F). Which of the two matrices has the shape that fits first? Nothing needs to be "
        "turned.",
        "The hidden numbers are x times the first matrix, plus the first bias, and GELU (with approximate='tanh') of all that. "
        "The second map is applied to them in the same way, and nothing follows it.",
    ),
    "3.3": (
        "A block does the same thing twice: copy, normalise, compute, add. Once with attention, once with the MLP.",
        "What is added to, both times, is the stream and not the normalised copy. The second time the stream holds more than "
        "x did.",
        "Two lines are enough. In each: a part applied to a norm applied to the stream, and the stream plus that becomes the "
        "new stream. A new tensor each time: + and not +=.",
    ),
    "3.4": (
        "Four steps: look rows up in two tables, go through the blocks, normalise, compare with every row of the token table.",
        "wte[tokens] picks a row for every id at once: (B, T, C). The places of T tokens are 0 to T - 1, the same in every "
        "text, and their rows of wpe are (T, C), which can be added to it.",
        "Each block is called with what the one before returned. After ln_f, the product with the token table turned on its "
        "side gives a dot product with each of its V rows: (B, T, C) times (C, V).",
    ),
    "3.5": (
        "Write down the tensors of one block with their shapes, as the lesson's table has them, and multiply out each.",
        "A linear map from a to b numbers has a·b weights and b biases. A norm has C weights and C biases. How many of each "
        "are in a block? What stands outside the blocks?",
        "Outside: V rows and one row for each position, of C numbers each, and one last norm; the head is a table that is "
        "counted already. In a block: maps from C to 3·C, C to C, C to F, F to C, and two norms. The blocks are L.",
    ),
}

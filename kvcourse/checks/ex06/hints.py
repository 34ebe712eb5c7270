"""Lesson 06: hints for exercise 06, the vaguest first. Knows nothing about the checks, and gives no answer away."""

from collections.abc import Mapping, Sequence

HINTS: Mapping[str, Sequence[str]] = {
    "6.1": (
        "Two cases: the layer has rows already, or it has none. What is returned, and what has to be in rows afterwards, is "
        "the same thing in both.",
        "(B, H, T, D): only one of the four numbers grows from call to call. Which place has it, counted from 0?",
        "Keys are joined with keys, values with values, old ones first. Joining makes new tensors, so nothing that was handed "
        "out before can change. The pair goes into rows[layer] before it is returned, on the first call too.",
    ),
    "6.2": (
        "Draw it on paper first: 2 in the cache, 3 new. How wide is the table? Which columns are x in every row?",
        "Number all tokens of the text from 0. In which place does the token of row 0 stand, when `past` tokens came before "
        "it? And the one of row 1? A column's number is its token's place.",
        "Row by row: a token may look at a column when that column's place is not after its own. So you compare two rows of "
        "numbers: the places of the new tokens, standing up, and the places of all tokens, lying down.",
    ),
    "6.3": (
        "How many tokens stand before the first new one? The text's very first token is at 0.",
        "One number for each new token, rising by 1. Only the number at which they begin depends on `past`.",
        "torch.arange takes where to begin, and where to stop; the stop itself is left out. How far is it from the one to the "
        "other, if T numbers are wanted?",
    ),
    "6.4": (
        "Two kinds of calls: the first, with the whole prompt, and all the others. Which tokens does the cache lack, just "
        "before each of the others?",
        "One loop will do for both kinds, if a variable holds the tokens to pass next: first the prompt, later a list of one "
        "token. Count how often the model must be called for n ids.",
        "Each round: pass the waiting tokens with cache=cache, take the last row of logits, find the place of its largest "
        "number, make an int of it. That id is the next of your list, and also what waits for the next round.",
    ),
}

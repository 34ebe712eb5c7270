"""Lesson 10: hints for exercise 10, the vaguest first. Knows nothing about the checks, and gives no answer away."""

from collections.abc import Mapping, Sequence

HINTS: Mapping[str, Sequence[str]] = {
    "10.1": (
        "Take one stored text and put it under the new one. Where do they part? Do that for every stored text. Which of the "
        "numbers counts?",
        "Two texts part at the first place where they differ, or where the shorter one ends; equal tokens behind that place "
        "do not count. `zip` walks through both and stops at the shorter end.",
        "With no stored text there is no largest number: start from 0. And whatever comes out, at most all tokens but one are "
        "reused.",
    ),
    "10.2": (
        "Write down by hand what you would give to digest for block 0 and for block 1. What must be in block 1's text, so that "
        "another block 0 leads to another key?",
        "A variable `before` goes from block to block: at first it tells the namespace, afterwards it is the key made last. "
        "What is left over at the end is no block.",
        "What goes wrong with str(1) + str(23)? Something has to stand between the parts. And what has to be seen of a "
        "namespace, so that 1 is not '1'? Compare what print shows of both with what `repr` returns.",
    ),
    "10.3": (
        "Go through the keys from the first on. There are two reasons to stop at a block. Which?",
        "The pair under a key has two parts, and both must be what they should: the tokens those of this block of the text, "
        "the key in front the one that you looked up just before (or root).",
        "`stored.get(key)` is None where nothing is. A block that is there and right lets you go on; anything else ends it, "
        "and the number of blocks so far is the answer, whatever comes behind.",
    ),
    "10.4": (
        "One at a time: which entries may go right now? Which of these goes? Then ask again: the first answer has changed.",
        "An entry has something behind it if its id is the `parent` of any other. It may go if that is not so and its `pins` "
        "are 0. Of these, take the one with the smallest `used`; `min` has a `key`.",
        "A while loop with two ends: enough tokens are free, or nothing may go any more. Inside: find what may go, choose, "
        "take it out of entries, add its tokens to what is free, and its id to the list.",
    ),
}

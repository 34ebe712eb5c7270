"""Lesson 09: hints for exercise 09, the vaguest first. Knows nothing about the checks, and gives no answer away."""

from collections.abc import Mapping, Sequence

HINTS: Mapping[str, Sequence[str]] = {
    "9.1": (
        "Three steps, in this order: find out which blocks are free; decide whether they will do; only then change something.",
        "A block is free where its count is 0. `enumerate` gives you each count together with its block's number, the smallest "
        "number first.",
        "Make the list of all free numbers. Is it shorter than n? Then the answer is None, and counts was not touched. "
        "Otherwise cut its first n off, set the count of each, and hand them over.",
    ),
    "9.2": (
        "Two loops, not one: the first only looks, the second only changes. What must the first one find out?",
        "A block may be in the list several times. Compare how often it is in there with how often it is counted: "
        "`blocks.count(block)` says the one, `counts[block]` the other.",
        "After the subtraction: which of the blocks in the list have a count of 0? Each only once, the smallest first: a set "
        "forgets how often, and `sorted` makes a list with an order.",
    ),
    "9.3": (
        "Take one slot number, say 9, and blocks of 4. How many blocks are full before it? How far into its own block is it?",
        "Both numbers come from a division by block_tokens: the whole part, and the rest. In Python, // and %.",
        "The whole part is no block number yet. It says which entry of the table to read, counted from 0. Do so for each slot "
        "from start on, T of them.",
    ),
    "9.4": (
        "Three cases. Is there room in the last block? If not, it does not matter whose it is. If there is: does anybody else "
        "stand in it?",
        "The last block has room unless length is a multiple of block_tokens (0 is one, too). Who else stands in it is told by "
        "its count alone. `counts.index(0)` is the smallest free number.",
        "For a copy four things change: the old block stands in one table less, the new one in one, the new one takes the old "
        "one's place in tables[row], and the pair (old, new) is returned. Nothing happens to any other table.",
    ),
}

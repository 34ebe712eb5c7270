"""Lesson 05: hints for exercise 05, the vaguest first. Knows nothing about the checks, and gives no answer away."""

from collections.abc import Mapping, Sequence

HINTS: Mapping[str, Sequence[str]] = {
    "5.1": (
        "Write the passes down for a small run, 4 + 3 tokens: what does each of them read, if nothing is kept? And if "
        "everything is? How many passes are there?",
        "One pass for each new token, and the first reads the prompt. A token that was chosen in one pass is read in the next; "
        "the one chosen last has no next pass. All layers do the same.",
        "A loop over the passes is enough: add what the pass reads, then let the text grow by one. With keep, a pass reads "
        "only what no earlier pass has read. Multiply by the number of layers at the end.",
    ),
    "5.2": (
        "What does the K of one token depend on? Its own id, its place, and what else?",
        "Go through second from the left. As long as all was the same up to here, the row is reusable. What is true of every "
        "place after the first difference, whatever id stands there?",
        "Keep one variable that says whether everything has agreed so far. Once it is False it stays False. A place that first "
        "does not have is a difference too.",
    ),
    "5.3": (
        "Compare the two tensors number by number first: one comparison gives a tensor of bools with the same four axes. Which "
        "axes have to go?",
        "A row has changed if any of its numbers has, in any head and any text. Of (B, H, T, D) only T may stay.",
        "A tensor of bools has a method that says whether any is True along an axis, or along several at once when they are "
        "given as a tuple. Axes count from 0, and the one that stays is number 2.",
    ),
    "5.4": (
        "Two runs, that is all: the text as it is, and the text with another last token. Then one layer after the other.",
        "Leave out the last row before you compare: it belongs to the token that was exchanged. What remains are the rows of "
        "earlier tokens, and one changed number in them is enough.",
        "enumerate and zip over the two lists give the layer's number and both its tensors. The first time that the rows "
        "without the last differ, that number is the result. After the loop, say that there was none.",
    ),
}

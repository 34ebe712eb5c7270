"""Lesson 14: hints for exercise 14, the vaguest first. Knows nothing about the checks, and gives no answer away."""

from collections.abc import Mapping, Sequence

HINTS: Mapping[str, Sequence[str]] = {
    "14.1": (
        "Print the seven charts below each other and look at the first four lines only. Which charts are alike in the second "
        "line, and part in the third? Which are right in all of the first three?",
        "Ask in an order: first what sets one fault apart from all others, last what many share. A wrong position "
        "and a row in the wrong place both show in single steps. At which token does each begin, and why there?",
        '`chart[...]` is a text or a number. `seen.startswith("off")` is true of "off from 4". The first token with a past is '
        "token 1. A chart on which the first three lines are equal may still be of a cache that saves nothing.",
    ),
    "14.2": (
        "What is compared with what? One of the two is computed once, the other once for each size of piece.",
        "`tokens.split(size, dim=1)` cuts a tensor (1, T) into pieces, the last of which may be shorter. Their logits, put "
        "together again with `torch.cat(..., dim=1)`, have the shape of those of the whole text. Each size has a new cache.",
        "Look at the largest difference of all, at any token and any word. Is it small? Ask that, and not whether it is large: "
        "with NaN both questions are answered with no. And True only after the last size.",
    ),
    "14.3": (
        "After a cut to n, the text is `ids[:n] + others`. What does the model say about it without a cache, and which rows of "
        "its logits are those of `others`?",
        "One round for each n: a new cache, all of ids, the cut, then others. n runs from 0 to `len(ids)`, both included. "
        "With n = 0 the text is others alone.",
        "The right logits are `model(torch.tensor([ids[:n] + others]))[:, n:]`. What the cache gives comes from one call with "
        "all of others, or from several. As in 14.2: ask whether the largest difference is small.",
    ),
    "14.4": (
        "Two texts grow from one start. Each has its right logits, without a cache. So there are two comparisons for each n.",
        "If one goes on to its end before the other begins, a fault may stay hidden: which row does each read last, and who "
        "has written it by then? Let them take turns: a token of one, a token of two, a token of one ...",
        "For each n: a cache with ids[:n], its fork, a list for the logits of each. A loop over places i gives `one[i]` to the "
        "cache and `two[i]` to the fork. Then both lists are compared with the logits of ids[:n] + one and + two, from n on.",
    ),
}

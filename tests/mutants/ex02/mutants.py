"""Exercise 02: wrong answers, most of which learners or published code really gave; and what the check says to each.

MUTANTS[task][name] = (the answer's source, a regular expression that its message matches). Data alone: nothing runs here.
"""

SCORES = "def my_scores(q, k):\n"
MASK = "def my_masked(scores):\n"
SUM = "def my_weighted_sum(scores, v):\n"
HEADS = "def my_heads(q, k, v, n_head):\n"

SCORE_ANSWERS = {
    "turned": (SCORES + "    return k @ q.T / q.shape[1] ** 0.5", "rows and columns are exchanged"),
    "keys not turned": (SCORES + "    return q @ k / q.shape[1] ** 0.5", "stopped with RuntimeError"),
    "number by number": (
        SCORES + "    return (q[:, None] * k[None]) / q.shape[1] ** 0.5",
        r"Expected a tensor \(3, 5\).*got a float64 tensor \(3, 5, 4\)",
    ),
    "nothing": (SCORES + "    q @ k.T / q.shape[1] ** 0.5", r"a row for each query, a column for each key; got None"),
    "list": (SCORES + "    return (q @ k.T / q.shape[1] ** 0.5).tolist()", "got a list of 3 list"),
    "one score": (SCORES + "    return (q[0] * k[0]).sum() / 2", r"got a float64 tensor \(\)"),
    "with a batch axis": (SCORES + "    return (q @ k.T / q.shape[1] ** 0.5)[None]", r"got a float64 tensor \(1, 3, 5\)"),
    "squeezed": (SCORES + "    return (q @ k.T / q.shape[1] ** 0.5).squeeze()", r"Expected a tensor \(1, \d\)"),
    "not scaled": (SCORES + "    return q @ k.T", r"divided by nothing. Divide them by √D.*D = 4"),
    "divided by D": (SCORES + "    return q @ k.T / q.shape[1]", "Divided by D itself"),
    "multiplied": (SCORES + "    return q @ k.T * q.shape[1] ** 0.5", "Multiplied by √D"),
    "root of the number of queries": (SCORES + "    return q @ k.T / q.shape[0] ** 0.5", "root of the number of queries"),
    "root of the number of keys": (SCORES + "    return q @ k.T / k.shape[0] ** 0.5", "root of the number of keys"),
    "scaled for D = 4": (SCORES + "    return q @ k.T / 2", r"multiplied by 0.5; dividing by √D multiplies them by 0.25"),
    "both divided": (SCORES + "    root = q.shape[1] ** 0.5\n    return (q / root) @ (k / root).T", "Divided by D itself"),
    "softmax taken": (SCORES + "    return (q @ k.T / q.shape[1] ** 0.5).softmax(dim=1)", "a softmax was taken"),
    "cosine": (
        SCORES + "    q, k = q / q.norm(dim=1, keepdim=True), k / k.norm(dim=1, keepdim=True)\n"
        "    return q @ k.T / q.shape[1] ** 0.5",
        r"should be the dot product of query i and key j, times one factor for all",
    ),
    "distance": (SCORES + "    return torch.cdist(q, k) / q.shape[1] ** 0.5", "should be the dot product"),
    "first key for all": (SCORES + "    return q @ k[:1].expand_as(k).T / q.shape[1] ** 0.5", "should be the dot product"),
    "input changed": (SCORES + "    q /= q.shape[1] ** 0.5\n    return q @ k.T", "q was changed. It belongs to the caller"),
    "keys changed": (SCORES + "    k.div_(q.shape[1] ** 0.5)\n    return q @ k.T", "k was changed"),
    "wrong dtype: float64": (
        SCORES + "    return q.double() @ k.double().T / q.shape[1] ** 0.5",
        "float32 came in and float64 went out",
    ),
    "wrong dtype: float32": (SCORES + "    return (q @ k.T / q.shape[1] ** 0.5).float()", "float64 came in and float32"),
}

FUTURE = "    future = torch.ones_like(scores).triu(1).bool()\n"
FILL = FUTURE + "    return scores.masked_fill(future, {with_})"
MASKS = {
    "no mask": (
        MASK + "    return scores",
        "Token 0 must not look at token 1, which comes later. Its score was left as it came",
    ),
    "zero": (MASK + FILL.format(with_=0), "Its score is 0, and e⁰ = 1"),
    "tril": (MASK + "    return scores.tril()", "Its score is 0, and e⁰ = 1"),
    "a low number": (MASK + FILL.format(with_=-1e9), r"Its score is -1e\+09: low, but a finite number"),
    "a little off": (MASK + FUTURE + "    return scores - 5.0 * future", "left as it came"),
    "plus infinity": (MASK + FILL.format(with_="torch.inf"), "which would take everything"),
    "not a number": (MASK + FILL.format(with_="torch.nan"), "every sum with it will be nan"),
    "zero times infinity": (
        MASK + FUTURE + "    return scores + future * -torch.inf",
        r"its own score became nan \(0 times infinity\?\)",
    ),
    "the past hidden": (
        MASK + "    return scores.masked_fill(torch.ones_like(scores).tril(-1).bool(), -torch.inf)",
        "may look at token 0, which came before it; that score was hidden",
    ),
    "itself hidden": (
        MASK + "    return scores.masked_fill(torch.ones_like(scores).triu().bool(), -torch.inf)",
        "Token 0 may look at itself; its own score was hidden",
    ),
    "the next one seen": (
        MASK + "    return scores.masked_fill(torch.ones_like(scores).triu(2).bool(), -torch.inf)",
        "Token 0 must not look at token 1",
    ),
    "itself alone": (
        MASK + "    return scores.masked_fill(~torch.eye(len(scores)).bool(), -torch.inf)",
        "may look at token 0, which came before it",
    ),
    "softmax taken": (MASK + FILL.format(with_="-torch.inf") + ".softmax(dim=1)", "its own score was changed"),
    "table of bools": (MASK + "    return torch.ones_like(scores).tril().bool()", "float64 came in and bool went out"),
    "nothing": (MASK + FUTURE + "    scores.masked_fill(future, -torch.inf)", "got None"),
    "list": (MASK + FILL.format(with_="-torch.inf") + ".tolist()", "got a list of 4 list"),
    "one row": (MASK + FILL.format(with_="-torch.inf") + "[0]", r"got a float64 tensor \(4,\)"),
    "window of nine": (
        MASK + FUTURE + "    old = torch.ones_like(scores).tril(-9).bool()\n"
        "    return scores.masked_fill(future | old, -torch.inf)",
        r"row i should keep i \+ 1 scores; yours keeps",
    ),
    "learnt for eight": (
        MASK + "    future = torch.ones(8, 8).triu(1).bool()[:len(scores), :len(scores)]\n"
        "    return scores.masked_fill(future, -torch.inf)",
        "stopped with RuntimeError",
    ),
    "zeros hidden": (
        MASK + "    kept = scores.tril()\n    return torch.where(kept == 0, -torch.inf, kept)",
        "Scores of 0 that may be seen were changed",
    ),
    "low scores cut off": (
        MASK + FUTURE + "    return scores.clamp(min=-1e9).masked_fill(future, -torch.inf)",
        "Scores of -1e30 that may be seen were changed",
    ),
    "input changed": (MASK + FUTURE + "    return scores.masked_fill_(future, -torch.inf)", "scores was changed"),
    "input written to": (MASK + FUTURE + "    scores[future] = -torch.inf\n    return scores", "scores was changed"),
    "wrong dtype: float64": (
        MASK + FUTURE + "    return scores.double().masked_fill(future, -torch.inf)",
        "float32 came in and",
    ),
    "a triangle of its own dtype": (
        MASK + "    wall = torch.full(scores.shape, -torch.inf, dtype=torch.float64)\n    return scores + wall.triu(1)",
        "float32 came in and float64",
    ),
}

POWERS = "    powers = (scores - scores.max(dim=1, keepdim=True).values).exp()\n"
SUMS = {
    "softmax along the columns": (SUM + "    return scores.softmax(dim=0) @ v", "Softmax goes along a row, over the keys"),
    "softmax over everything": (
        SUM + "    return scores.flatten().softmax(dim=0).view_as(scores) @ v",
        "Softmax goes along a row, over the keys",
    ),
    "no softmax": (SUM + "    return scores @ v", "All values were 1, so every mean of them is 1"),
    "powers not divided": (SUM + POWERS + "    return powers @ v", "do not add up to 1"),
    "divided by the sum of all": (SUM + POWERS + "    return powers / powers.sum() @ v", "do not add up to 1"),
    "sum without keepdim": (SUM + POWERS + "    return powers / powers.sum(dim=1) @ v", "stopped with RuntimeError"),
    "shares returned": (
        SUM + "    return scores.softmax(dim=1)",
        r"as many numbers as a value has; got a float64 tensor \(3, 5\)",
    ),
    "values turned": (SUM + "    return scores.softmax(dim=1) @ v.T", "stopped with RuntimeError"),
    "result turned": (SUM + "    return (scores.softmax(dim=1) @ v).T", "rows and columns are exchanged"),
    "scores turned": (SUM + "    return scores.T.softmax(dim=1) @ v", "stopped with RuntimeError"),
    "nothing": (SUM + "    scores.softmax(dim=1) @ v", "got None"),
    "list": (SUM + "    return (scores.softmax(dim=1) @ v).tolist()", "got a list of 3 list"),
    "shares of the scores themselves": (
        SUM + "    return scores / scores.sum(dim=1, keepdim=True) @ v",
        "4 equal scores should give 4 equal shares",
    ),
    "the largest takes all": (
        SUM + "    return v[scores.argmax(dim=1)]",
        "equal scores should give 4 equal shares",
    ),
    "powers of two": (
        SUM + "    return (scores * 0.6931471805599453).softmax(dim=1) @ v",
        r"leads by 1 should take 73.1%.*66.7%",
    ),
    "scaled again": (
        SUM + "    return (scores / v.shape[1] ** 0.5).softmax(dim=1) @ v",
        "row i of the result weighs all values",
    ),
    "the other sign": (SUM + "    return (-scores).softmax(dim=1) @ v", r"should take 73.1% of two; yours takes 26.9%"),
    "softmax twice": (SUM + "    return scores.softmax(dim=1).softmax(dim=1) @ v", "should take 73.1%"),
    "all rows the first": (
        SUM + "    return (scores[:1].softmax(dim=1) @ v).expand(len(scores), -1)",
        "Right for one row of two keys, wrong for a table",
    ),
    "hidden keys as zeros": (
        SUM + "    return scores.masked_fill(scores == -torch.inf, 0).softmax(dim=1) @ v",
        "A key with the score -inf took a share",
    ),
    "hidden keys leave a gap": (
        SUM + "    shares = scores.nan_to_num(neginf=0.0).softmax(dim=1)\n"
        "    return shares.masked_fill(scores == -torch.inf, 0) @ v",
        "or cost the others theirs",
    ),
    "zero times infinity": (
        SUM + "    return (scores * (scores > -torch.inf)).softmax(dim=1) @ v",
        "A score of -inf made nan",
    ),
    "by hand, without the maximum": (
        SUM + "    powers = scores.exp()\n    return powers / powers.sum(dim=1, keepdim=True) @ v",
        "near 1000 in one row and 1000 in the other, the result holds nan. e.1000 is too large",
    ),
    "by hand, the maximum of the whole table": (
        SUM + "    powers = (scores - scores.max()).exp()\n    return powers / powers.sum(dim=1, keepdim=True) @ v",
        "near 0 in one row and -.* in the other, the result holds nan.*take each row's own largest",
    ),
    "by hand, a little added below the line for safety": (
        SUM + "    powers = (scores - scores.max()).exp()\n    return powers / (powers.sum(dim=1, keepdim=True) + 1e-300) @ v",
        "the result holds a row of 0",
    ),
    "scores cut off": (
        SUM + "    return scores.clamp(max=80).softmax(dim=1) @ v",
        "near 1000 in one row .* the shares are others than near 0",
    ),
    "a little added below the line": (
        SUM + POWERS + "    return powers / (powers.sum(dim=1, keepdim=True) + 1e-3) @ v",
        "do not add up to 1",
    ),
    "scores changed": (
        SUM + "    scores -= scores.max(dim=1, keepdim=True).values\n    return scores.softmax(dim=1) @ v",
        "scores was changed",
    ),
    "values changed": (SUM + "    result = scores.softmax(dim=1) @ v\n    v.zero_()\n    return result", "v was changed"),
    "wrong dtype: float64": (SUM + "    return scores.double().softmax(dim=1) @ v.double()", "float32 came in and float64"),
    "wrong dtype: float32": (SUM + "    return (scores.softmax(dim=1) @ v).float()", "float64 came in and float32"),
}

SIZE = "    T, C = q.shape\n    D = C // n_head\n"
SPLIT = "    q, k, v = (x.view(T, n_head, D).transpose(0, 1) for x in (q, k, v))\n"
HIDE = "    future = torch.ones(T, T).triu(1).bool()\n"
SCORED = "    scores = (q @ k.transpose(1, 2) / D**0.5).masked_fill(future, -torch.inf)\n"
MIX = "    z = scores.softmax(dim=2) @ v\n"
JOIN = "    return z.transpose(0, 1).reshape(T, C)"


def heads(split: str = SPLIT, hide: str = HIDE, scored: str = SCORED, mix: str = MIX, join: str = JOIN) -> str:
    return HEADS + SIZE + split + hide + scored + mix + join


HEAD_ANSWERS = {
    "heads not brought back": (
        heads(join="    return z.reshape(T, C)"),
        "the rest is of other tokens: were tokens and heads mixed",
    ),
    "heads split in one step": (
        heads(split="    q, k, v = (x.view(n_head, T, D) for x in (q, k, v))\n", join="    return z.reshape(T, C)"),
        "so row 0 should be v.0., and is not. A part of it is right",
    ),
    "split in one step, joined back in two": (
        heads(split="    q, k, v = (x.view(n_head, T, D) for x in (q, k, v))\n"),
        "the rest is of other tokens: were tokens and heads mixed",
    ),
    "not joined": (heads(join="    return z"), r"got a float64 tensor \(2, 5, 3\)"),
    "heads added": (heads(join="    return z.sum(dim=0)"), r"Expected a tensor \(5, 6\).*got a float64 tensor \(5, 3\)"),
    "first head only": (heads(join="    return z[0].repeat(1, n_head)"), "numbers more than once, and others not at all"),
    "numbers of heads interleaved when joined": (
        heads(join="    return z.permute(1, 2, 0).reshape(T, C)"),
        "has the right numbers in another order. Join heads one after the other",
    ),
    "columns dealt out in turn": (
        heads(
            split="    q, k, v = (x.view(T, D, n_head).permute(2, 0, 1) for x in (q, k, v))\n",
            join="    return z.permute(1, 2, 0).reshape(T, C)",
        ),
        r"belong to head \d of \d. Changing them in q, k and v changed other columns",
    ),
    "one head": (
        HEADS + "    T, D = q.shape\n" + HIDE + "    scores = (q @ k.T / D**0.5).masked_fill(future, -torch.inf)\n"
        "    return scores.softmax(dim=1) @ v",
        "changed other columns of the result",
    ),
    "one pattern for all heads": (
        heads(scored=SCORED + "    scores = scores.mean(dim=0, keepdim=True)\n"),
        "changed other columns of the result",
    ),
    "heads attend to heads": (
        heads(
            split="    q, k, v = (x.view(T, n_head, D) for x in (q, k, v))\n",
            hide="    future = torch.ones(n_head, n_head).triu(1).bool()\n",
            join="    return z.reshape(T, C)",
        ),
        "A part of it is right",
    ),
    "no mask": (
        heads(hide="    future = torch.zeros(T, T).bool()\n"),
        "Its heads blended in other tokens: is the future hidden",
    ),
    "mask after softmax": (
        heads(scored="    scores = q @ k.transpose(1, 2) / D**0.5\n", mix="    z = scores.softmax(dim=2).tril() @ v\n"),
        "shares do not add up to 1. Hide the future before softmax, not after",
    ),
    "mask after softmax, divided again": (
        heads(
            scored="    scores = q @ k.transpose(1, 2)\n",
            mix="    shares = scores.softmax(dim=2).tril()\n    z = shares / shares.sum(dim=2, keepdim=True) @ v\n",
        ),
        "the scores are divided by nothing",
    ),
    "mask of the past": (heads(hide="    future = torch.ones(T, T).tril(-1).bool()\n"), "blended in other tokens"),
    "a peep at the last token": (
        heads(hide=HIDE + "    future[1:, -1] = False\n"),
        "Another last token changed the rows of earlier ones",
    ),
    "the next token seen": (
        heads(hide="    future = torch.ones(T, T).triu(2).bool()\n    future[0, 1:] = True\n"),
        "Another last token changed",
    ),
    "not scaled": (heads(scored=SCORED.replace(" / D**0.5", "")), r"With one head: the scores are divided by nothing.*√4"),
    "scaled by C": (heads(scored=SCORED.replace("D**0.5", "C**0.5")), r"divided by √16, with C for D.*= 8 numbers"),
    "scaled by the number of heads": (
        heads(scored=SCORED.replace("D**0.5", "(n_head if n_head > 1 else D) ** 0.5")),
        "root of the number of heads, 2, not of a head's size, 8",
    ),
    "scaled by D itself": (heads(scored=SCORED.replace("D**0.5", "D")), "With one head the result is no attention yet"),
    "q and k exchanged": (heads(scored=SCORED.replace("q @ k.", "k @ q.")), "q and k are exchanged"),
    "softmax along the columns": (
        heads(mix="    z = scores.softmax(dim=1).nan_to_num() @ v\n"),
        "shares do not add up to 1",
    ),
    "values not weighed": (heads(mix="    z = v\n"), "With one head the result is no attention yet"),
    "keys for values": (heads(mix="    z = scores.softmax(dim=2) @ k\n"), "row 0 should be v.0., and is not"),
    "last head forgotten": (
        HEADS + SIZE + "    out = v.clone()\n" + HIDE + "    for h in range(max(n_head - 1, 1)):\n"
        "        own = slice(h * D, (h + 1) * D)\n"
        "        scores = (q[:, own] @ k[:, own].T / D**0.5).masked_fill(future, -torch.inf)\n"
        "        out[:, own] = scores.softmax(dim=1) @ v[:, own]\n    return out",
        r"With 5 tokens, 2 heads of 3: head 1 differs from attention on its own columns",
    ),
    "one pattern, from the first head, for small texts only": (
        heads(scored=SCORED + "    if T > 7:\n        scores = scores.flip(0)\n"),
        r"With \d+ tokens, \d heads of \d: head [0-9, ]+ differs from attention",
    ),
    "two heads only": (heads(split=SPLIT.replace("n_head", "2")), "stopped with RuntimeError"),
    "heads and their size exchanged": (
        HEADS + "    T, C = q.shape\n    D = n_head\n    n_head = C // D\n" + SPLIT + HIDE + SCORED + MIX + JOIN,
        "changed other columns of the result",
    ),
    "nothing": (heads(join="    z.transpose(0, 1).reshape(T, C)"), "got None"),
    "list": (heads(join=JOIN + ".tolist()"), "got a list of 5 list"),
    "input changed": (heads(split="    q /= D**0.5\n" + SPLIT, scored=SCORED.replace(" / D**0.5", "")), "q was changed"),
    "values changed": (
        HEADS + SIZE + "    out = v\n" + HIDE + "    for h in range(n_head):\n        own = slice(h * D, (h + 1) * D)\n"
        "        scores = (q[:, own] @ k[:, own].T / D**0.5).masked_fill(future, -torch.inf)\n"
        "        out[:, own] = scores.softmax(dim=1) @ v[:, own]\n    return out",
        "v was changed",
    ),
    "wrong dtype: float64": (heads(join=JOIN + ".double()"), "float32 came in and float64"),
    "wrong dtype: float32": (heads(join=JOIN + ".float()"), "float64 came in and float32"),
}

MUTANTS = {"2.1": SCORE_ANSWERS, "2.2": MASKS, "2.3": SUMS, "2.4": HEAD_ANSWERS}

"""Exercise 06: wrong answers, most of which learners or published code really gave; and what the check says to each.

MUTANTS[task][name] = (the answer's source, a regular expression that its message matches). Data alone: nothing runs here.
"""

APPEND = "def my_append(rows, layer, k, v):\n"
MASK = "def my_mask(past, T):\n"
POSITIONS = "def my_positions(past, T):\n"
DECODE = "def my_decode(model, prompt_ids, n, cache):\n"
STORE = "    rows[layer] = (k, v)\n    return k, v"


def join(axis: int = 2) -> str:
    keys, values = (f"torch.cat((rows[layer][{which}], {new}), {axis})" for which, new in ((0, "k"), (1, "v")))
    return f"    if layer in rows:\n        k, v = {keys}, {values}\n"


def loop(n: str = "n") -> str:
    return (
        "    new, tokens = [], list(prompt_ids)\n"
        f"    for _ in range({n}):\n"
        "        tokens = [int(model(torch.tensor([tokens]), cache=cache)[0, -1].argmax())]\n"
        "        new += tokens\n"
    )


RETURN = "    return new"
ROWS_WHERE = "    where = torch.arange({first}, {first} + T)\n    return torch.arange(past + T) <= where[:, None]"

APPENDS = {
    "axis of texts": (APPEND + join(0) + STORE, "Which axis"),
    "axis of heads": (APPEND + join(1) + STORE, "Which axis"),
    "axis of numbers": (APPEND + join(-1) + STORE, "Which axis"),
    "nothing stored": (APPEND + "    return k, v", "nothing was stored"),
    "past forgotten": (APPEND + STORE, "the new 3 tokens only"),
    "nothing returned": (APPEND + join() + "    rows[layer] = (k, v)", r"first call returns should be a pair.*is None"),
    "no tensors returned": (APPEND + join() + "    rows[layer] = (k, v)\n    return 1, 2", "is a tuple of 2 int"),
    "list stored": (APPEND + join() + "    rows[layer] = [k, v]\n    return k, v", r"rows\[0\] should be a pair.*list of 2"),
    "only new rows stored": (
        APPEND + "    old = rows.get(layer, (k[:, :, :0], v[:, :, :0]))\n    rows[layer] = (k, v)\n"
        "    return torch.cat((old[0], k), 2), torch.cat((old[1], v), 2)",
        r"rows\[0\] holds something else",
    ),
    "new before old": (APPEND + join().replace("(rows[layer][0], k)", "(k, rows[layer][0])") + STORE, "in another order"),
    "old rows emptied": (
        APPEND + "    if layer in rows:\n        k = torch.cat((torch.zeros_like(rows[layer][0]), k), 2)\n"
        "        v = torch.cat((torch.zeros_like(rows[layer][1]), v), 2)\n" + STORE,
        "not the keys that went in: changed, or in another order. Old ones come first and stay as they are",
    ),
    "keys and values swapped": (APPEND + join() + "    rows[layer] = (v, k)\n    return v, k", "where the values belong"),
    "values joined with keys": (APPEND + join().replace("rows[layer][1]", "rows[layer][0]") + STORE, "values are not"),
    "value not appended": (
        APPEND + "    if layer in rows:\n        k = torch.cat((rows[layer][0], k), 2)\n" + STORE,
        "the new 3 tokens only, as values",
    ),
    "value of the first call kept": (
        APPEND
        + "    if layer in rows:\n        k = torch.cat((rows[layer][0], k), 2)\n        v = v.repeat(1, 1, 2, 1)\n"
        + STORE,
        "The keys are right and the values are not",
    ),
    "one layer for all": (
        APPEND + join().replace("layer", "0") + "    rows[0] = (k, v)\n    return k, v",
        r"There is no rows\[\d\] after the first call for layer \d; rows has the keys \[0\]",
    ),
    "another layer means a past": (APPEND + join().replace("layer in rows", "rows") + STORE, "stopped with KeyError"),
    "other layers overwritten": (
        APPEND + join() + "    for other in rows:\n        rows[other] = (k, v)\n" + STORE,
        "changed layer 0",
    ),
    "shared storage: emptied": (
        APPEND + "    old = rows.get(layer)\n" + join() + "    rows[layer] = (k, v)\n    if old:\n        old[0].zero_()\n"
        "    return k, v",
        "handed out before",
    ),
    "shared storage: grown in place": (
        APPEND + "    if layer in rows:\n        for old, new in zip(rows[layer], (k, v)):\n"
        "            old.set_(torch.cat((old, new), 2))\n    else:\n        rows[layer] = (k.clone(), v.clone())\n"
        "    return rows[layer]",
        "handed out before",
    ),
    "caller's tensor changed": (
        APPEND + "    new = k.clone(), v.clone()\n    v.zero_()\n    k, v = new\n" + join() + STORE,
        "k or v itself was written to",
    ),
    "reset incomplete: rows kept in a default": (
        "def my_append(rows, layer, k, v, kept={}):\n    kept.update(rows)\n    rows.update(kept)\n"
        + join()
        + "    rows[layer] = kept[layer] = (k, v)\n    return k, v",
        r"rows was empty and \d tokens? came, yet .*kept outside rows",
    ),
    "wrong dtype: float32": (
        APPEND + "    k, v = k.float(), v.float()\n" + join() + STORE,
        "came in as float64.*out as float32",
    ),
    "wrong dtype: float64": (APPEND + "    k, v = k.double(), v.double()\n" + join() + STORE, "came in as float32.*as float64"),
    "off by one: last row dropped": (
        APPEND
        + join().replace("rows[layer][0]", "rows[layer][0][:, :, :-1]").replace("rows[layer][1]", "rows[layer][1][:, :, :-1]")
        + STORE,
        "With 3 [+] 3 tokens",
    ),
    "two calls only": (
        APPEND + "    if layer in rows and rows[layer][0].shape[2] < 6:\n" + join().split("\n", 1)[1] + STORE,
        "the new . tokens? only",
    ),
    "one text only": (APPEND + "    k, v = k[:1], v[:1]\n" + join() + STORE, "Which axis"),
}

MASKS = {
    "square mask": (MASK + "    return torch.ones(T, T).tril().bool()", r"shape \(3, 5\); got \(3, 3\)"),
    "mask of everything": (MASK + "    return torch.ones(past + T, past + T).tril().bool()", r"\(3, 5\); got \(5, 5\)"),
    "turned": (MASK + "    return torch.ones(T, past + T).tril(past).bool().T", r"\(3, 5\); got \(5, 3\)"),
    "wrong dtype: float": (MASK + "    return torch.ones(T, past + T).tril(past)", "bool tensor; got a float32 tensor"),
    "wrong dtype: int": (MASK + "    return torch.ones(T, past + T).tril(past).long()", "bool tensor; got an int64 tensor"),
    "nothing": (MASK + "    return None", "bool tensor; got None"),
    "list": (MASK + "    return torch.ones(T, past + T).tril(past).bool().tolist()", "bool tensor; got a list of 3 list"),
    "position restart": (MASK + ROWS_WHERE.format(first=0), "does not see all of the past"),
    "no mask": (MASK + "    return torch.ones(T, past + T).bool()", r"1, 2, 3, 4 tokens; yours at \[4, 4, 4, 4\]"),
    "no mask with past": (
        MASK + "    mask = torch.ones(T, past + T).bool()\n    return mask if past else mask.tril()",
        "sees one that comes after it",
    ),
    "past alone": (
        MASK + "    return torch.arange(past + T).expand(T, -1) < (past or torch.arange(1, T + 1)[:, None])",
        "does not see itself",
    ),
    "off by one: not itself": (MASK + "    return torch.ones(T, past + T).tril(past - 1).bool()", r"yours at \[0, 1, 2, 3\]"),
    "off by one: the next too": (MASK + "    return torch.ones(T, past + T).tril(past + 1).bool()", r"yours at \[2, 3, 4, 4\]"),
    "off by one with past": (
        MASK + "    return torch.ones(T, past + T).tril(past + (past > 0)).bool()",
        "sees one that comes after it",
    ),
    "past of two": (
        MASK + "    return torch.arange(past + T) <= torch.arange(T)[:, None] + min(past, 2)",
        "does not see all of the past",
    ),
    "window of nine": (
        MASK + "    mask = torch.ones(T, past + T).tril(past).bool()\n    return mask & ~mask.tril(past - 9 - T)",
        r"the rows should see .* tokens; yours",
    ),
    "shared storage": (
        MASK + "    global _table\n    if '_table' not in globals():\n        _table = torch.zeros(99, 99, dtype=torch.bool)\n"
        "    mask = _table[:T, :past + T]\n    mask.copy_(torch.ones(T, past + T).tril(past))\n    return mask",
        "handed out before",
    ),
    "transposed triangle": (MASK + "    return torch.ones(T, past + T).triu(past).bool()", r"yours at \[4, 3, 2, 1\]"),
    "learnt by heart": (MASK + "    return torch.ones(3, 5).tril(2).bool()", "expected the shape"),
}

POSITION_ANSWERS = {
    "position restart": (POSITIONS + "    return torch.arange(T)", "positions restart at every call"),
    "off by one: from 1": (POSITIONS + "    return torch.arange(1, T + 1)", r"stand at 0, 1, 2; yours at \[1, 2, 3\]"),
    "off by one with past": (
        POSITIONS + "    first = max(past - 1, 0)\n    return torch.arange(first, first + T)",
        r"stands at 6.*yours at \[5\]",
    ),
    "off by one: one after": (
        POSITIONS + "    first = past + (past > 0)\n    return torch.arange(first, first + T)",
        r"stands at 6.*yours at \[7\]",
    ),
    "all positions": (POSITIONS + "    return torch.arange(past + T)", "One position for each new token"),
    "stop mistaken for length": (POSITIONS + "    return torch.arange(past, T)", "stopped with RuntimeError"),
    "wrong dtype: int32": (
        POSITIONS + "    return torch.arange(past, past + T, dtype=torch.int32)",
        "int64 tensor; got an int32",
    ),
    "wrong dtype: float": (POSITIONS + "    return past + torch.arange(T) * 1.0", "int64 tensor; got a float32 tensor"),
    "list": (POSITIONS + "    return list(range(past, past + T))", "int64 tensor; got a list of 3 int"),
    "with a batch axis": (POSITIONS + "    return torch.arange(past, past + T)[None]", r"one row of 3.*shape \(1, 3\)"),
    "one for all": (
        POSITIONS + "    return torch.full((T,), past) if past else torch.arange(T)",
        r"3 new ones stand at 4, 5, 6; yours",
    ),
    "reset incomplete: goes on where the last text ended": (
        "def my_positions(past, T, kept=[]):\n    kept.append(past)\n"
        "    first = past or (max(kept[-2:]) if len(kept) > 8 else 0)\n    return torch.arange(first, first + T)",
        "something is kept between calls",
    ),
}

DECODES = {
    "cache left out": (DECODE + loop().replace(", cache=cache", "") + RETURN, "left out cache=cache"),
    "another cache": (DECODE + loop().replace("cache=cache", "cache=[]") + RETURN, "given a list for a cache"),
    "whole text each time": (
        DECODE + loop().replace("torch.tensor([tokens])", "torch.tensor([list(prompt_ids) + new])") + RETURN,
        "pass what is new",
    ),
    "prompt changed": (
        DECODE + loop().replace("list(prompt_ids)", "prompt_ids") + "        prompt_ids += tokens\n" + RETURN,
        "prompt_ids was changed",
    ),
    "reset incomplete: ids kept in a default": (
        "def my_decode(model, prompt_ids, n, cache, new=[]):\n" + loop().replace("new, tokens = [], ", "tokens = ") + RETURN,
        "kept between calls",
    ),
    "one call too many": (DECODE + loop("n + 1") + "    return new[:n]", "for one call too many"),
    "off by one: n - 1 ids": (DECODE + loop("n - 1") + RETURN, "8 new ids, without the prompt; got 7"),
    "off by one: n + 1 ids": (DECODE + loop("n + 1") + RETURN, "8 new ids, without the prompt; got 9"),
    "prompt returned too": (DECODE + loop() + "    return list(prompt_ids) + new", "8 new ids, without the prompt; got 1"),
    "tensor returned": (DECODE + loop() + "    return torch.tensor(new)", "list of ints; got an int64 tensor"),
    "list of tensors": (
        DECODE + loop() + "    return [torch.tensor(id) for id in new]",
        "list of ints; got a list of 8 Tensor",
    ),
    "first row of logits": (DECODE + loop().replace("[0, -1]", "[0, 0]") + RETURN, "first new id is wrong"),
    "off by one: last but one row": (DECODE + loop().replace("[0, -1]", "[0, max(-2, -len(tokens))]") + RETURN, "first new id"),
    "second likeliest": (DECODE + loop().replace("argmax()", "topk(2).indices[1]") + RETURN, "first new id is wrong"),
    "prompt without its last": (
        DECODE + loop().replace("list(prompt_ids)", "list(prompt_ids[:-1]) or list(prompt_ids)") + RETURN,
        "10 tokens, at once; it took 9",
    ),
    "prompt backwards": (DECODE + loop().replace("list(prompt_ids)", "list(prompt_ids)[::-1]") + RETURN, "in their order"),
    "prompt token by token": (
        DECODE
        + "    for token in prompt_ids[:-1]:\n        model(torch.tensor([[token]]), cache=cache)\n"
        + loop().replace("list(prompt_ids)", "prompt_ids[-1:]")
        + RETURN,
        "at once; it took 1",
    ),
    "last token twice": (
        DECODE
        + "    model(torch.tensor([list(prompt_ids)]), cache=cache)\n"
        + loop().replace("list(prompt_ids)", "prompt_ids[-1:]")
        + RETURN,
        "last token went in twice",
    ),
    "another id fed back": (
        DECODE + "    new, tokens = [], list(prompt_ids)\n    for _ in range(n):\n"
        "        token = int(model(torch.tensor([tokens]), cache=cache)[0, -1].argmax())\n"
        "        new, tokens = [*new, token], [7]\n    return new",
        "not each new id once",
    ),
    "zeros": (DECODE + loop() + "    return [0] * n", "first new id is wrong"),
    "first id repeated": (DECODE + loop() + "    return new[:1] * n", "the ids returned are not"),
    "endless": (DECODE + "    while True:\n        model(torch.tensor([prompt_ids]), cache=cache)", "the loop does not end"),
    "wrong dtype: int32": (
        DECODE + loop().replace("torch.tensor([tokens])", "torch.tensor([tokens], dtype=torch.int32)") + RETURN,
        "takes an int64 tensor.*an int32",
    ),
    "without the batch axis": (DECODE + loop().replace("[tokens]", "tokens") + RETURN, r"takes an int64 tensor \(1, T\)"),
    "model not called": (DECODE + "    return [7] * n", "never called"),
    "learnt by heart": (
        DECODE + loop() + "    return [26, 40, 11, 112, 65, 133, 40, 24][:n]",
        "first new id is wrong",
    ),
}

MUTANTS = {"6.1": APPENDS, "6.2": MASKS, "6.3": POSITION_ANSWERS, "6.4": DECODES}

"""Exercise 07: wrong answers, most of which learners or published code really gave; and what the check says to each.

MUTANTS[task][name] = (the answer's source, a regular expression that its message matches). FAIR[task][name]: right answers that
are written otherwise. Data alone: nothing runs here.
"""

WRITE = "def my_write(cache, layer, k, v):\n"
SIZES = "    B, H, T, D = k.shape\n    start, stop = cache['length'], cache['length'] + T\n"
ASK = "    if stop > cache['capacity']:\n        raise ValueError('full')\n"
MAKE = (
    "    if layer not in cache['rows']:\n        shape = B, H, cache['capacity'], D\n"
    "        cache['rows'][layer] = torch.zeros(shape, dtype=k.dtype), torch.zeros(shape, dtype=k.dtype)\n"
)
PUT = "    keys, values = cache['rows'][layer]\n    keys[:, :, start:stop] = k\n    values[:, :, start:stop] = v\n"
RETURN = "    return keys[:, :, :stop], values[:, :, :stop]"
ALL = WRITE + SIZES + ASK + MAKE + PUT + RETURN

WRITES = {
    "buffers as long as the rows": (ALL.replace("B, H, cache['capacity'], D", "B, H, T, D"), "should be .* it is"),
    "buffers one too long": (ALL.replace("cache['capacity'], D", "cache['capacity'] + 1, D"), "should be .* it is"),
    "batch forgotten": (ALL.replace("shape = B, H", "shape = 1, H"), "stopped with RuntimeError: The expanded size"),
    "nothing kept": (WRITE + "    return k, v", r'no cache\["rows"\]\[0\]'),
    "one buffer for all": (
        ALL.replace("cache['rows'][layer]", "cache['rows'][0]").replace("layer not in", "0 not in"),
        "layer 0 holds other rows",
    ),
    "joined as before": (
        WRITE + "    rows = cache['rows']\n    if layer in rows:\n"
        "        k, v = torch.cat((rows[layer][0], k), 2), torch.cat((rows[layer][1], v), 2)\n"
        "    rows[layer] = k, v\n    return k, v",
        r"capacity 8 a buffer should be \(1, 2, 8, 4\); it is \(1, 2, 3, 4\)",
    ),
    "keys and values swapped": (
        ALL.replace("return keys[:, :, :stop], values", "return values[:, :, :stop], keys"),
        "other way round",
    ),
    "only keys returned": (ALL.replace(RETURN, "    return keys[:, :, :stop]"), "Expected a pair of tensors"),
    "nothing returned": (ALL.replace(RETURN, ""), "Expected a pair of tensors.*None"),
    "values written from keys": (ALL.replace("values[:, :, start:stop] = v", "values[:, :, start:stop] = k"), "values are not"),
    "keys changed": (ALL.replace("start:stop] = k", "start:stop] = 2 * k"), "keys are not those that went in"),
    "values not written": (ALL.replace("    values[:, :, start:stop] = v\n", ""), "values are not"),
    "whole buffer": (ALL.replace(RETURN, "    return keys, values"), "All 8 slots were handed out; 3 are in use"),
    "new rows only": (ALL.replace("[:, :, :stop]", "[:, :, start:stop]"), "only the new ones came back"),
    "off by one: last row left out": (
        ALL.replace(":, :stop]", ":, :stop - 1]"),
        r"With 0 rows in use and 3 new ones, expected .*; got \(1, 2, 2, 4\)",
    ),
    "off by one: one row more": (ALL.replace(":, :stop]", ":, :stop + 1]"), r"With 0 rows in use and 3 new ones, expected"),
    "off by one: written a slot late": (
        ALL.replace("start:stop]", "start + (start > 0):stop + (start > 0)]").replace(
            "stop > cache['capacity']", "stop + (start > 0) > cache['capacity']"
        ),
        "should be in slots 2 to 4, and are not",
    ),
    "always at the beginning": (ALL.replace("start:stop]", ":T]"), "should be in slots 2 to 4, and are not"),
    "at the far end": (ALL.replace("start:stop]", "-T:]"), "first call's keys are not those"),
    "last row again and again": (
        ALL.replace(RETURN, "    if start:\n        keys[:, :, start - 1] = k[:, :, 0]\n" + RETURN),
        "keys of slots 0 to 1 were in use, and have changed",
    ),
    "the rest emptied": (ALL.replace(PUT, PUT + "    keys[:, :, stop:] = 0\n"), "slots from 5 on need no work"),
    "counted in": (ALL.replace(RETURN, "    cache['length'] = stop\n" + RETURN), r'cache\["length"\] has changed'),
    "layers share one pair": (
        ALL.replace("= torch.zeros", "= next(iter(cache['rows'].values()), None) or (torch.zeros").replace(
            "torch.zeros(shape, dtype=k.dtype)\n", "torch.zeros(shape, dtype=k.dtype))\n"
        ),
        "layer 0 holds other rows",
    ),
    "copies handed out": (
        ALL.replace(":stop], values[:, :, :stop]", ":stop].clone(), values[:, :, :stop].clone()"),
        "a copy, not a view",
    ),
    "joined copies": (
        ALL.replace(RETURN, "    return torch.cat((keys[:, :, :start], k), 2), torch.cat((values[:, :, :start], v), 2)"),
        "a copy, not a view",
    ),
    "off by one: last slot refused": (ALL.replace("stop > cache", "stop >= cache"), "that fits, and was refused"),
    "no question asked": (ALL.replace(ASK, ""), "expected a ValueError, and there was none.*the row is lost"),
    "off by one: one too many taken": (
        ALL.replace("stop > cache['capacity']", "stop > cache['capacity'] + 1"),
        "the row is lost",
    ),
    "only a full cache refused": (ALL.replace("stop > cache", "start >= cache"), "torch stopped the write half-way"),
    "cut to what fits": (
        ALL.replace(
            ASK,
            "    if start == cache['capacity']:\n        raise ValueError('full')\n    T = min(T, cache['capacity'] - start)\n"
            "    stop, k, v = start + T, k[:, :, :T], v[:, :, :T]\n",
        ),
        "expected a ValueError, and there was none",
    ),
    "asked too late": (
        WRITE + SIZES + MAKE + "    keys, values = cache['rows'][layer]\n    for i in range(T):\n"
        "        if start + i >= cache['capacity']:\n            raise ValueError('full')\n"
        "        keys[:, :, start + i], values[:, :, start + i] = k[:, :, i], v[:, :, i]\n" + RETURN,
        "only after something had been written",
    ),
    "buffers made before asking": (WRITE + SIZES + MAKE + ASK + PUT + RETURN, "yet buffers had been made"),
    "another error": (ALL.replace("ValueError", "IndexError"), "stopped with IndexError"),
    "wrong dtype: float32": (ALL.replace("dtype=k.dtype", "dtype=torch.float32"), "came as float64 and went out as float32"),
    "wrong dtype: float64": (ALL.replace("dtype=k.dtype", "dtype=torch.float64"), "came as float16, and the buffer is float64"),
}

TRUNCATE = "def my_truncate(cache, n):\n"
REFUSE = "    if n < 0 or n > cache['length']:\n        raise ValueError('no')\n"
SET = "    cache['length'] = n\n"

TRUNCATES = {
    "drops n": (TRUNCATE + REFUSE + "    cache['length'] -= n", "how many to keep, not how many to drop"),
    "nothing": (TRUNCATE + REFUSE + "    pass", "Of 6 tokens, truncate.2. should keep 2; the length is 6"),
    "off by one": (TRUNCATE + REFUSE + "    cache['length'] = max(0, n - 1)", "should keep 2; the length is 1"),
    "a length that is no int": (TRUNCATE + REFUSE + "    cache['length'] = float(n)", "the length is a float"),
    "zero keeps all": (
        TRUNCATE + REFUSE + "    if n:\n        cache['length'] = n",
        "truncate.0. should keep none; the length is 5",
    ),
    "zero or less: this many fewer": (
        TRUNCATE
        + "    if n > cache['length']:\n        raise ValueError('no')\n    if n <= 0:\n        n += cache['length']\n"
        + SET,
        "truncate.0. should keep none; the length is 5",
    ),
    "zero refused": (TRUNCATE + REFUSE.replace("n < 0", "n <= 0") + SET, "truncate.0. was refused.*only a number below 0"),
    "the whole length refused": (
        TRUNCATE + REFUSE.replace("n > cache", "n >= cache") + SET,
        "Of 5 tokens, truncate.5. was refused. It keeps all 5, which is right",
    ),
    "an empty cache refused": (
        TRUNCATE + REFUSE.replace("n < 0", "not cache['length'] or n < 0") + SET,
        "Of 0 tokens, truncate.0. was refused. In an empty cache there are 0 to keep",
    ),
    "no question asked": (TRUNCATE + SET, "the length is 4 and there was no ValueError.*come back to life"),
    "up to the capacity": (TRUNCATE + REFUSE.replace("['length']", "['capacity']") + SET, "come back to life"),
    "off by one: one more": (
        TRUNCATE + REFUSE.replace("n > cache['length']", "n > cache['length'] + 1") + SET,
        "come back to life",
    ),
    "more is all": (
        TRUNCATE + "    if n < 0:\n        raise ValueError('no')\n    cache['length'] = min(n, cache['length'])",
        "no ValueError",
    ),
    "changed, then asked": (
        TRUNCATE + "    old = cache['length']\n" + SET + "    if n < 0 or n > old:\n        raise ValueError('no')",
        "was refused, but the length is 4 by then",
    ),
    "negative: from the end": (
        TRUNCATE + "    if n > cache['length']:\n        raise ValueError('no')\n"
        "    cache['length'] = n if n >= 0 else max(0, cache['length'] + n)",
        "Of 5 tokens, truncate.-1. should be refused; the length is 4",
    ),
    "negative is zero": (
        TRUNCATE + "    if n > cache['length']:\n        raise ValueError('no')\n    cache['length'] = max(n, 0)",
        "Of 5 tokens, truncate.-1. should be refused; the length is 0",
    ),
    "negative accepted": (TRUNCATE + REFUSE.replace("n < 0 or ", "") + SET, "the length is -1 and there was no ValueError"),
    "buffers cut": (
        TRUNCATE + REFUSE + "    for layer, (k, v) in cache['rows'].items():\n"
        "        cache['rows'][layer] = k[:, :, :n], v[:, :, :n]\n" + SET,
        "had 8 slots and has 2 now: the room is lost",
    ),
    "rows emptied": (
        TRUNCATE
        + REFUSE
        + "    for pair in cache['rows'].values():\n        for x in pair:\n            x[:, :, n:] = 0\n"
        + SET,
        "Rows of layer 0 have changed",
    ),
    "kept rows emptied": (
        TRUNCATE
        + REFUSE
        + "    for pair in cache['rows'].values():\n        for x in pair:\n            x[:, :, :n] = 0\n"
        + SET,
        "Rows of layer 0 have changed",
    ),
    "layers thrown away": (TRUNCATE + REFUSE + "    cache['rows'].clear()\n" + SET, r'no cache\["rows"\]\[0\]'),
    "another cache": (TRUNCATE + REFUSE + "    cache.clear()", "no longer a dictionary with"),
}

NBYTES = "def my_nbytes(n_layer, n_head, n_kv_head, n_embd, tokens, batch, dtype):\n"
FORMULA = "    return 2 * n_layer * n_kv_head * (n_embd // n_head) * tokens * batch * dtype.itemsize"


def nbytes(old: str, new: str) -> str:
    return NBYTES + FORMULA.replace(old, new)


NBYTE_ANSWERS = {
    "K alone": (nbytes("2 * n_layer", "n_layer"), "those of K, or of V, alone"),
    "numbers, not bytes": (nbytes(" * dtype.itemsize", ""), "has 16 numbers. How many bytes"),
    "bits": (NBYTES + FORMULA + " * 8", "K and V take 64 bytes; yours 512"),
    "a float": (nbytes("//", "/"), "an int; got a float"),
    "nothing": (NBYTES + "    pass", "an int; got None"),
    "a tensor": (nbytes("return ", "return torch.tensor(") + ")", "an int; got an int64 tensor"),
    "one layer": (nbytes("n_layer * ", ""), "layers should take"),
    "one text": (nbytes(" * batch", ""), "texts should take"),
    "one token": (nbytes(" * tokens", ""), "tokens should take"),
    "square of the tokens": (nbytes("tokens", "tokens * tokens"), "tokens should take"),
    "the whole width a head": (nbytes("(n_embd // n_head)", "n_embd"), "not the whole width"),
    "one head": (nbytes("n_kv_head * ", ""), "all with K and V: 256 bytes a token; yours 128"),
    "every query head": (nbytes("n_kv_head", "n_head"), "you counted K and V for every query head"),
    "width shared by K/V heads": (nbytes("// n_head", "// n_kv_head"), "you counted K and V for every query head"),
    "always four bytes": (nbytes("dtype.itemsize", "4"), "In float16.*take 32 bytes; yours 64"),
    "half or whole": (nbytes("dtype.itemsize", "(2 if dtype == torch.float16 else 4)"), "In float64"),
    "bfloat16 unknown": (
        nbytes("dtype.itemsize", "{torch.float16: 2, torch.float32: 4, torch.float64: 8, torch.int8: 1}[dtype]"),
        "stopped with KeyError",
    ),
    "context of 1,024": (nbytes("tokens *", "min(tokens, 999) *"), "GPT-2"),
    "learnt by heart": (NBYTES + "    return 64", "K and V take"),
}

VERIFY = "def my_verify(drafted, chosen, length):\n"
COUNT = "    a = 0\n    while a < len(drafted) and drafted[a] == chosen[a]:\n        a += 1\n"
KEEP = "length - len(drafted) + a"

VERIFIES = {
    "ids alone": (VERIFY + COUNT + "    return chosen[:a + 1]", "Expected two things"),
    "nothing": (VERIFY + COUNT, "Expected two things.*None"),
    "a number of ids": (VERIFY + COUNT + f"    return a + 1, {KEEP}", "should be a list of ints; got an int"),
    "a length that is no int": (VERIFY + COUNT + f"    return chosen[:a + 1], float({KEEP})", "an int; got a float"),
    "accepted ones only": (VERIFY + COUNT + f"    return drafted[:a], {KEEP}", "Every pass gives a token"),
    "the guess that was wrong": (
        VERIFY + COUNT + f"    return drafted[:a + 1] or chosen[:1], {KEEP}",
        "only .* was chosen after",
    ),
    "all that agree, anywhere": (
        VERIFY + COUNT + f"    return [d for d, c in zip(drafted, chosen) if d == c] + chosen[a:a + 1], {KEEP}",
        "was chosen for another text",
    ),
    "all choices": (VERIFY + COUNT + f"    return list(chosen), {KEEP}", "only .* was chosen after a true text"),
    "all choices once one agrees": (
        VERIFY + COUNT + f"    return (list(chosen) if a else chosen[:1]), {KEEP}",
        "was chosen for another text",
    ),
    "own id missing after some": (
        VERIFY + COUNT + f"    return chosen[:a] or chosen[:1], {KEEP}",
        "own id after them is missing",
    ),
    "one too many after some": (VERIFY + COUNT + f"    return chosen[:a + 1 + (a > 0)], {KEEP}", "for another text"),
    "no bonus when all agree": (
        VERIFY + COUNT + f"    return chosen[:min(a + 1, len(drafted))], {KEEP}",
        "choice after the last of them is true as well",
    ),
    "last of all compared wrongly": (
        VERIFY + COUNT.replace("len(drafted) and", "len(drafted) - 1 and") + f"    return chosen[:a + 1], {KEEP}",
        "is true as well",
    ),
    "compared one place off": (
        VERIFY + COUNT.replace("== chosen[a]", "== chosen[a + 1]") + f"    return chosen[:a + 1], {KEEP}",
        "3 ids are right; yours",
    ),
    "keeps all rows": (VERIFY + COUNT + "    return chosen[:a + 1], length", "rows of wrong guesses are kept"),
    "drops all guesses": (VERIFY + COUNT + "    return chosen[:a + 1], length - len(drafted)", "right guesses are thrown away"),
    "off by one: own id kept too": (VERIFY + COUNT + f"    return chosen[:a + 1], {KEEP} + 1", "keep one too many"),
    "off by one: one row less": (VERIFY + COUNT + f"    return chosen[:a + 1], {KEEP} - 1", "rows should stay; yours"),
    "rows to drop": (VERIFY + COUNT + "    return chosen[:a + 1], len(drafted) - a", "rows should stay; yours"),
    "accepted count": (VERIFY + COUNT + "    return chosen[:a + 1], a", "rows should stay; yours"),
    "list eaten": (
        VERIFY + "    k, new = len(drafted), []\n    while drafted and drafted[0] == chosen[0]:\n        drafted.pop(0)\n"
        "        new.append(chosen.pop(0))\n    return new + chosen[:1], length - len(drafted)",
        "was changed",
    ),
    "always the first": (VERIFY + "    return chosen[:1], length - len(drafted)", "3 ids are right; yours"),
}

MUTANTS = {"7.1": WRITES, "7.2": TRUNCATES, "7.3": NBYTE_ANSWERS, "7.4": VERIFIES}

FAIR = {
    "7.1": {
        "narrow and copy_": WRITE + SIZES + ASK + MAKE + "    keys, values = cache['rows'][layer]\n"
        "    keys.narrow(2, start, T).copy_(k)\n    values.narrow(2, start, T).copy_(v)\n"
        "    return keys.narrow(2, 0, stop), values.narrow(2, 0, stop)",
        "a list of two": ALL.replace(
            "= torch.zeros(shape, dtype=k.dtype), torch.zeros(shape, dtype=k.dtype)",
            "= [k.new_empty(shape), v.new_empty(shape)]",
        ),
        "row by row": WRITE + SIZES + ASK + MAKE + "    keys, values = cache['rows'][layer]\n    for i in range(T):\n"
        "        keys[:, :, start + i] = k[:, :, i]\n        values[:, :, start + i] = v[:, :, i]\n" + RETURN,
        "the dots": ALL.replace("[:, :, ", "[..., ").replace("stop]", "stop, :]"),
    },
    "7.2": {
        "a range": TRUNCATE + "    if n not in range(cache['length'] + 1):\n        raise ValueError(n)\n" + SET,
        "two questions": TRUNCATE + "    if n < 0:\n        raise ValueError('negative')\n    if n > cache['length']:\n"
        "        raise ValueError('more than there is')\n    cache.update(length=n)",
    },
    "7.3": {
        "a product": "import math\n\n"
        + NBYTES
        + "    return math.prod([2, n_layer, n_kv_head, n_embd // n_head, tokens, batch])"
        " * dtype.itemsize",
        "a tensor asked": NBYTES + "    row = torch.empty(0, dtype=dtype).element_size() * n_embd // n_head\n"
        "    return 2 * row * n_kv_head * n_layer * tokens * batch",
        "built and asked": NBYTES
        + "    k = torch.empty(n_layer, batch, n_kv_head, tokens, n_embd // n_head, dtype=dtype, device='meta')\n"
        "    return k.nbytes * 2",
    },
    "7.4": {
        "one by one": VERIFY + "    new = []\n    for i, own in enumerate(chosen):\n        new.append(own)\n"
        "        if i == len(drafted) or drafted[i] != own:\n            break\n"
        "    return new, length - len(drafted) + len(new) - 1",
        "next": VERIFY + "    a = next((i for i, (d, c) in enumerate(zip(drafted, chosen)) if d != c), len(drafted))\n"
        "    return drafted[:a] + [chosen[a]], length - len(drafted[a:])",
        "a list": VERIFY + COUNT + f"    return [chosen[:a + 1], {KEEP}]",
    },
}

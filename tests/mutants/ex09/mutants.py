"""Exercise 09: wrong answers that learners would give, and what the check says to each; and right ones written otherwise.

MUTANTS[task][name] = (the answer's source, a regular expression that its message matches). FAIR[task][name] = source. Data
alone: nothing runs here.
"""

TAKE = "def my_take(counts, n):\n"
GIVE = "def my_give_back(counts, blocks):\n"
PLACES = "def my_places(table, start, T, block_tokens):\n"
WRITE = "def my_write_shared(tables, counts, row, length, block_tokens):\n"

FREE = "    free = [b for b in range(len(counts)) if counts[b] == 0]\n"
ENOUGH = "    if len(free) < n:\n        return None\n"
COUNT = "    for b in free[:n]:\n        counts[b] = 1\n"
TAKEN = "    return free[:n]"


def take(free: str = FREE, enough: str = ENOUGH, count: str = COUNT, end: str = TAKEN) -> str:
    return TAKE + free + enough + count + end


TAKES = {
    "nothing returned": (take(end="    free[:n]"), "list of 2 block numbers .*got None"),
    "a number": (take(end="    return n"), "got an? int"),
    "one block too few": (take(end="    return free[: n - 1]"), r"Expected a list of 2 block numbers; got \[0\]"),
    "all free ones": (take(end="    return free"), r"list of 2 block numbers; got \[0, 1, 2, 3, 4\]"),
    "tuple": (take(end="    return tuple(free[:n])"), "got a tuple of 2 int"),
    "counts cut off": (take(end="    del counts[0]\n    return free[:n]"), "should still hold 5 ints"),
    "the first n, free or not": (
        take(free="    free = list(range(len(counts)))\n"),
        "is counted . times, so somebody holds it",
    ),
    "held ones": (
        take(free="    free = sorted(range(len(counts)), key=lambda b: counts[b] != 1)\n"),
        "so somebody holds it",
    ),
    "one block again and again": (take(end="    return free[:1] * n"), r"one of them twice|list"),
    "the last ones": (take(free=FREE + "    free = free[::-1]\n"), "come in the order"),
    "the last ones, in order": (take(count="    free = free[len(free) - n:]\n" + COUNT), "of the free ones"),
    "not counted": (take(count=""), "its count is 1; in yours it is 0"),
    "counted on a copy": (take(free="    counts = list(counts)\n" + FREE), "caller's list itself"),
    "counted n times": (take(count=COUNT.replace("= 1", "= n")), "its count is 1; in yours it is 2"),
    "all counted": (
        take(count="    for b in range(len(counts)):\n        counts[b] += b in free[:n] or counts[b] > 0\n"),
        "was not taken, and its count went from 1 to 2",
    ),
    "off by one: keeps one back": (take(enough=ENOUGH.replace("<", "<=")), "exactly 2 blocks are free"),
    "none wanted, refused": (take(end="    return free[:n] or None"), "None are wanted: nothing to refuse"),
    "no refusal": (take(enough=""), r"2 blocks are free, and 3 are wanted. Expected None; got \["),
    "refused with an empty list": (take(enough=ENOUGH.replace("None", "[]")), r"Expected None; got \[\]"),
    "refused with an exception": (
        take(enough=ENOUGH.replace("return None", "raise ValueError('full')")),
        "stopped with ValueError",
    ),
    "taken one by one, then refused": (
        TAKE + "    got = []\n    for b, count in enumerate(counts):\n        if count == 0 and len(got) < n:\n"
        "            counts[b] = 1\n            got.append(b)\n    return got if len(got) == n else None",
        "wanted and refused, and counts is .* afterwards",
    ),
    "a place kept between calls": (
        "def my_take(counts, n, kept=[0]):\n"
        + take(
            free="    start = kept[0] if len(counts) > 9 else 0\n" + FREE.replace("range(", "range(start, "),
            count=COUNT + "    kept[0] = free[n - 1] + 1 if len(counts) > 9 and n else kept[0]\n",
        ).split("\n", 1)[1],
        "for the second time, and",
    ),
}

CAN = "    if any(blocks.count(b) > counts[b] for b in blocks):\n        return None\n"
LESS = "    for b in blocks:\n        counts[b] -= 1\n"
FREED = "    return sorted({b for b in blocks if counts[b] == 0})"


def give(can: str = CAN, less: str = LESS, freed: str = FREED) -> str:
    return GIVE + can + less + freed


GIVES = {
    "nothing returned": (give(freed=""), "yours returned None"),
    "a set": (give(freed="    return {b for b in blocks if counts[b] == 0}"), "expected a list of block numbers .*got a set"),
    "how many": (give(freed="    return sum(counts[b] == 0 for b in blocks)"), "got an? int"),
    "an empty list refused": (give(can="    if not blocks:\n        return None\n" + CAN), r"given back \[\]: every one"),
    "set to 0": (give(less=LESS.replace("-= 1", "= 0")), "stood in 2 tables and now in one less, 1; yours counts 0"),
    "counted up": (give(less=LESS.replace("-=", "+=")), "now in one less, 0; yours counts 2"),
    "not counted": (give(less=""), "one less, 0; yours counts 1"),
    "all counted less": (
        give(less="    for b in range(len(counts)):\n        counts[b] = max(counts[b] - 1, 0)\n"),
        "was not given back, and its count went",
    ),
    "all of them": (give(freed="    return sorted(set(blocks))"), "still stands in another table"),
    "all that is free": (
        give(freed="    return [b for b, count in enumerate(counts) if count == 0]"),
        "was not given back now",
    ),
    "nothing freed, refused": (give(freed=FREED + " or None"), "given back .*every one of them is counted|yours returned None"),
    "nothing became free": (
        give(freed="    return [] if 3 in counts or 2 in counts else" + FREED[10:]),
        "1 of these become free; yours",
    ),
    "in the order of the list": (
        give(freed="    return [b for b in dict.fromkeys(blocks) if counts[b] == 0]"),
        r"smallest number first; yours: \[4, 1, 3\]",
    ),
    "the largest first": (give(freed=FREED[:-1] + ", reverse=True)"), r"smallest number first; yours: \[4, 3, 1\]"),
    "the caller's list sorted": (
        give(can=CAN + "    blocks.sort()\n"),
        r"blocks was \[4, 1, 3\] and is \[1, 3, 4\] afterwards",
    ),
    "the caller's list emptied": (
        give(
            less="    given = list(blocks)\n    while blocks:\n        counts[blocks.pop()] -= 1\n",
            freed=FREED.replace("blocks", "given"),
        ),
        r"and is \[\] afterwards",
    ),
    "each block once only": (
        give(less=LESS.replace("in blocks", "in set(blocks)")),
        r"may name a block twice.*leaves \[1, 0\]",
    ),
    "freed ones twice": (give(freed="    return sorted(b for b in blocks if counts[b] == 0)"), "Each of them once"),
    "no refusal": (give(can=""), r"block 0 is free already.*Expected None; got \[\], and counts \[-1, 1\]"),
    "0 at least": (give(can="", less=LESS.replace("-= 1", "= max(counts[b] - 1, 0)")), r"Expected None; got \[0\]"),
    "refused with an empty list": (give(can=CAN.replace("None", "[]")), r"Expected None; got \[\], and counts \[0, 1\]"),
    "refused half way": (
        give(
            can="", less="    for b in blocks:\n        if counts[b] == 0:\n            return None\n        counts[b] -= 1\n"
        ),
        "Look at all of them first",
    ),
    "refused afterwards": (
        give(can="", less=LESS + "    if min(counts) < 0:\n        return None\n"),
        r"afterwards counts is \[0, 1, -1\]",
    ),
    "each looked at once": (
        give(can="    if any(counts[b] == 0 for b in blocks):\n        return None\n"),
        "is counted 1 times and was given back 2 times",
    ),
}


def places(pair: str = "(table[s // block_tokens], s % block_tokens)", slots: str = "range(start, start + T)") -> str:
    return f"{PLACES}    return [{pair} for s in {slots}]"


PLACE_ANSWERS = {
    "flat numbers": (places("table[s // block_tokens] * block_tokens + s % block_tokens"), "one of yours is an? int"),
    "lists": (places("[table[s // block_tokens], s % block_tokens]"), "one of yours is a list of 2 int"),
    "floats": (places("(table[s // block_tokens], s % block_tokens / 1)"), "a tuple of 2 int and float"),
    "one pair": (
        PLACES + "    return table[start // block_tokens], start % block_tokens",
        "list of pairs; got a tuple of 2 int",
    ),
    "stop mistaken for T": (places(slots="range(start, T)"), "expected 2 pairs.*got 1"),
    "off by one: one more": (places(slots="range(start, start + T + 1)"), "expected 3 pairs, one for each slot; got 4"),
    "nothing": (PLACES + "    return None", "list of pairs; got None"),
    "start left out": (places(slots="range(T)"), r"slot 1 is entry 1 of block 0, \(0, 1\); yours is \(0, 0\)"),
    "offset and block turned": (places("(s % block_tokens, table[s // block_tokens])"), r"\(0, 1\); yours is \(1, 0\)"),
    "offset left as the slot": (places("(table[s // block_tokens], s)"), "A block of 4 ends at offset 3"),
    "slots from 1": (places(slots="range(start + 1, start + T + 1)").replace("table[", "table[-1 + 0 * "), "slot 0 is entry 0"),
    "first block for ever": (
        places("(table[0], s % block_tokens)"),
        r"slot 4 is entry 0 of block 1, \(1, 0\); yours is \(0, 0\)",
    ),
    "border one late": (
        places("(table[max(s - 1, 0) // block_tokens], s % block_tokens)"),
        r"slot 4 is entry 0 of block 1, \(1, 0\); yours is \(0, 0\)",
    ),
    "table not read": (places("(s // block_tokens, s % block_tokens)"), r"entry 0 of block 3, \(3, 0\); yours is \(0, 0\)"),
    "first block and then its neighbours": (
        places("(table[0] + s // block_tokens, s % block_tokens)"),
        "is not in the table at all",
    ),
    "table sorted": (
        places("(sorted(table)[s // block_tokens], s % block_tokens)"),
        r"entry 0 of block 3, \(3, 0\); yours is \(0",
    ),
    "from the end of the table": (
        places("(table[-1 - s // block_tokens], s % block_tokens)").replace("[-1 - s", "[len(table) > 3 or -1 - s"),
        "slot . is entry",
    ),
    "blocks counted from start": (
        places("(table[(s - start) // block_tokens], s % block_tokens)"),
        r"slot 4 is entry 0 of block 2, \(2, 0\); yours is \(5, 0\)",
    ),
    "offsets counted from start": (
        places("(table[s // block_tokens], (s - start) % block_tokens if s >= block_tokens <= start else s % block_tokens)"),
        "slot 6 is entry 2 of block 2",
    ),
    "blocks of four": (places().replace("block_tokens]", "4]").replace("% block_tokens", "% 4"), "blocks of|IndexError"),
    "table used up": (
        PLACES + "    found, held = [], None\n    for s in range(start + T):\n        if s % block_tokens == 0:\n"
        "            held = table.pop(0)\n        if s >= start:\n"
        "            found.append((held, s % block_tokens))\n    return found",
        "Looking up changes nothing",
    ),
}

WRITE_FULL = (
    "    if length % block_tokens == 0:\n        new = counts.index(0)\n        table.append(new)\n        counts[new] = 1\n"
    "        return None\n"
)
WRITE_COPY = (
    "    if counts[table[-1]] > 1:\n        old, new = table[-1], counts.index(0)\n        counts[old] -= 1\n"
    "        counts[new] = 1\n        table[-1] = new\n        return old, new\n"
)


def write(full: str = WRITE_FULL, copy: str = WRITE_COPY, end: str = "    return None", first: str = "") -> str:
    return f"{WRITE}    table = tables[row]\n{first}{full}{copy}{end}"


SHARED = "    if counts[table[-1]] > 1:"

WRITES = {
    "always copies": (write(copy=WRITE_COPY.replace("> 1", "> 0")), r"has room and is in no other table.*got \(2, 1\)"),
    "a new block each time": (
        write(full=WRITE_FULL.replace("length % block_tokens == 0", "True")),
        "nothing to do. Yours leaves",
    ),
    "says True": (write(end="    return True"), "expected None or a pair of block numbers .*got a bool"),
    "counts once more": (write(end="    counts[table[-1]] += 1\n    return None"), "nothing to do. Yours leaves"),
    "counts as a dict": (write(end="    counts.clear()\n    return None"), "counts is .* afterwards"),
    "block lost": (write(end="    table[-1] = None\n    return None"), "should hold numbers of blocks"),
    "a text lost": (write(end="    tables.pop()\n    return None"), "should be a list of 2 lists"),
    "no new block": (
        write(full="    if length % block_tokens == 0:\n        return None\n"),
        r"gets one more entry.*yours are \[\[5\], \[2\]\]",
    ),
    "new block not counted": (
        write(full=WRITE_FULL.replace("        counts[new] = 1\n", "")),
        "so it is counted once; yours counts 0",
    ),
    "new block returned": (write(full=WRITE_FULL.replace("return None", "return new, new")), "one more, and no copy: None"),
    "off by one: full too early": (write(full=WRITE_FULL.replace("length %", "(length + 1) %")), "nothing to do"),
    "largest free block": (
        write(full=WRITE_FULL.replace("counts.index(0)", "len(counts) - 1 - counts[::-1].index(0)")),
        "the smallest free number",
    ),
    "every table grows": (
        write(full=WRITE_FULL.replace("table.append(new)", "[t.append(new) for t in tables]")),
        "Its table gets one more entry",
    ),
    "full block let go": (
        write(
            full=WRITE_FULL.replace("        counts[new]", "        counts[table[0]] -= len(table) > 1\n        counts[new]")
        ),
        r"counts should be \[1, 0, 1, 0, 0, 1, 0\]",
    ),
    "no copy": (write(copy=""), "two other tables name it.*yours returned None"),
    "pair turned": (write(copy=WRITE_COPY.replace("return old, new", "return new, old")), "The old block first"),
    "first block copied": (write(copy=WRITE_COPY.replace("return old, new", "return table[0], new")), "yours copies block 0"),
    "copied over a held block": (
        write(copy=WRITE_COPY.replace("counts.index(0)", "len(counts) - 1")),
        "the smallest free block, 2; yours into 5",
    ),
    "a list": (write(copy=WRITE_COPY.replace("return old, new", "return [old, new]")), "got a list of 2 int"),
    "every table changed": (
        write(copy=WRITE_COPY.replace("table[-1] = new", "[t.__setitem__(-1, new) for t in tables]")),
        r"the table of row . changed from \[0, 1\] to \[0, 2\]",
    ),
    "copy put behind": (
        write(copy=WRITE_COPY.replace("table[-1] = new", "table.append(new)")),
        r"takes its place in the table; yours is \[0, 1, 2\]",
    ),
    "table left": (
        write(copy=WRITE_COPY.replace("        table[-1] = new\n", "")),
        r"its place in the table; yours is \[0, 1\]",
    ),
    "copy in front": (write(copy=WRITE_COPY.replace("table[-1] = new", "table[0] = new")), r"yours is \[2, 1\]"),
    "a table of its own": (
        write(copy=WRITE_COPY.replace("table[-1] = new", "table = [*table[:-1], new]")),
        r"yours is \[0, 1\]",
    ),
    "old count left": (
        write(copy=WRITE_COPY.replace("        counts[old] -= 1\n", "")),
        "one table has left it: 2; yours counts 3",
    ),
    "old block freed": (write(copy=WRITE_COPY.replace("-= 1", "= 0")), "one table has left it: 2; yours counts 0"),
    "copy not counted": (
        write(copy=WRITE_COPY.replace("        counts[new] = 1\n", "")),
        "stands in one table: 1; yours counts 0",
    ),
    "count moved whole": (
        write(copy=WRITE_COPY.replace("[new] = 1", "[new] = counts[old]")),
        "stands in one table: 1; yours counts 2",
    ),
    "whole table let go": (
        write(copy=WRITE_COPY.replace("        counts[old] -= 1\n", "        for b in table:\n            counts[b] -= 1\n")),
        "Neither block 0",
    ),
    "a full shared block copied": (
        write(full="", copy=WRITE_COPY.replace("    if counts", "    if table and counts"), end=WRITE_FULL),
        r"shared, but full.*no copy. Yours returned \(1, 2\)",
    ),
    "last count never lowered": (
        write(copy=WRITE_COPY.replace("-= 1", "= max(counts[old] - 1, 2)")),
        "has block 1 for itself: no copy",
    ),
    "only three share": (write(copy=WRITE_COPY.replace("> 1", "> 2")), "and yours copied nothing for it"),
    "looks at the tables only": (
        write(copy=WRITE_COPY.replace(SHARED[7:-1], "sum(table[-1] in t for t in tables) > 1")),
        "Somebody holds it who is not in these tables",
    ),
    "free blocks sought behind": (
        write(copy=WRITE_COPY.replace("counts.index(0)", "counts.index(0, table[-1]) if len(counts) < 9 else len(counts) - 1")),
        "no longer its own text",
    ),
}

MUTANTS = {"9.1": TAKES, "9.2": GIVES, "9.3": PLACE_ANSWERS, "9.4": WRITES}

FAIR = {
    "9.1": {
        "a loop that stops": TAKE + "    if counts.count(0) < n:\n        return None\n    got = []\n    while len(got) < n:\n"
        "        block = counts.index(0)\n        counts[block] += 1\n        got.append(block)\n    return got",
        "a new list put in": TAKE
        + FREE
        + ENOUGH
        + "    counts[:] = [c or int(b in free[:n]) for b, c in enumerate(counts)]\n"
        + TAKEN,
        "put back when it fails": TAKE
        + "    got = []\n    for b in range(len(counts)):\n        if len(got) == n:\n            break\n"
        "        if not counts[b]:\n            counts[b] = 1\n            got.append(b)\n    if len(got) < n:\n"
        "        for b in got:\n            counts[b] = 0\n        return None\n    return got",
    },
    "9.2": {
        "with a Counter": "from collections import Counter\n\n"
        + GIVE
        + "    times = Counter(blocks)\n    if any(counts[b] < n for b, n in times.items()):\n        return None\n"
        "    for b, n in times.items():\n        counts[b] -= n\n    return sorted(b for b in times if counts[b] == 0)",
        "on a copy first": GIVE
        + "    after = list(counts)\n    for b in blocks:\n        after[b] -= 1\n    if min(after) < 0:\n"
        "        return None\n    freed = [b for b in range(len(after)) if after[b] == 0 and counts[b] > 0]\n"
        "    counts[:] = after\n    return freed",
        "noted when it happens": GIVE
        + CAN
        + "    freed = []\n    for b in blocks:\n        counts[b] -= 1\n        if not counts[b]:\n"
        "            freed.append(b)\n    freed.sort()\n    return freed",
    },
    "9.3": {
        "divmod": PLACES
        + "    pairs = [divmod(start + i, block_tokens) for i in range(T)]\n    return [(table[n], o) for n, o in pairs]",
        "all places, then a part": PLACES
        + "    return [(b, o) for b in table for o in range(block_tokens)][start : start + T]",
        "counted along": PLACES
        + "    found, entry, offset = [], start // block_tokens, start % block_tokens\n    for _ in range(T):\n"
        "        found.append((table[entry], offset))\n        offset += 1\n        if offset == block_tokens:\n"
        "            entry, offset = entry + 1, 0\n    return found",
    },
    "9.4": {
        "a new list for the row": write(copy=WRITE_COPY.replace("table[-1] = new", "tables[row] = [*table[:-1], new]")),
        "by the room there is": write(
            full=WRITE_FULL.replace("length % block_tokens == 0", "len(table) * block_tokens == length")
        ),
        "block by its place": write(copy=WRITE_COPY.replace("table[-1]", "table[length // block_tokens]")),
    },
}

"""Exercise 10: wrong answers that learners would give, and what the check says to each; and right ones written otherwise.

MUTANTS[task][name] = (the answer's source, a regular expression that its message matches). FAIR[task][name] = source. Data
alone: nothing runs here.
"""

MATCH = "def my_match(texts, tokens):\n"
CHAIN = "def my_chain(tokens, block_tokens, namespace, digest):\n"
LOOKUP = "def my_lookup(stored, root, keys, tokens, block_tokens):\n"
EVICT = "def my_evict(entries, n):\n"

WALK = "        k = 0\n        while k < min(len(text), len(tokens)) and text[k] == tokens[k]:\n            k += 1\n"
BEST = "        best = max(best, k)\n"
MATCHED = "    return min(best, len(tokens) - 1)"


def match(walk: str = WALK, best: str = BEST, end: str = MATCHED, first: str = "    best = 0\n") -> str:
    return f"{MATCH}{first}    for text in texts:\n{walk}{best}{end}"


MATCHES = {
    "nothing returned": (match(end="    min(best, len(tokens) - 1)"), "number of tokens, an int; got None"),
    "the tokens themselves": (match(end="    return tokens[:best]"), "an int; got a list of 2 int"),
    "the text": (match(end="    return max(texts, key=len)"), "an int; got a list"),
    "yes or no": (match(end="    return best > 0"), "got a bool"),
    "whole texts only": (
        match(walk="        k = len(text) if tokens[: len(text)] == text else 0\n"),
        r"Stored is \[5, 3, 8, 1\], and \[5, 3, 9, 9\] comes: the first 2 are the same.* Expected 2; got 0",
    ),
    "off by one: always one less": (match(end="    return max(best - 1, 0)"), "Expected 2; got 1"),
    "the difference counted in": (match(walk=WALK.replace("k = 0", "k = 0") + "        k += k > 0\n"), "Expected 2; got 3"),
    "a first difference is not looked for": (
        match(walk="        k = len(set(text) & set(tokens))\n"),
        "the first 3 are the same|has another text in front",
    ),
    "equal places counted": (
        match(walk="        k = sum(a == b for a, b in zip(text, tokens))\n"),
        r"token 1 is 9 and not 3. What is behind it has another text in front of it.* Expected 1; got 4",
    ),
    "one difference forgiven": (
        match(
            walk="        k = seen = 0\n        for a, b in zip(text, tokens):\n            if a != b and len(set(text)) > 4:\n"
            "                seen += 1\n            elif a != b:\n                break\n            if seen > 1:\n"
            "                break\n            k += a == b\n"
        ),
        "What is behind it has another text in front",
    ),
    "found anywhere": (
        match(
            walk="        k = max(n for n in range(len(text) + 1) if any(text[:n] == tokens[j : j + n] for j in range(9)))\n"
        ),
        r"Stored is \[5, 3, 8\], and \[9, 5, 3, 8\] comes.* Expected 0; got 3",
    ),
    "the last text": (match(best="        best = k\n"), r"share \[4, 2, 3\] tokens with it.* is 4; got 3"),
    "the first text": (
        match(best=BEST + "        break\n"),
        r"share \[2, 4, 3\] tokens with it, and the most that one of them has is 4; got 2",
    ),
    "the sum": (match(best="        best += k\n"), "the most that one of them has is 4; got 5|got 9"),
    "the least": (match(best="        best = min(best, k) if best else k\n"), "is 4; got 2"),
    "all of it": (match(end="    return best"), r"all of it is known. But the next token's logits.*expected 2; got 3"),
    "one less when it is the same text": (
        match(end="    return best - (tokens in texts)"),
        r"Stored is \[5, 3, 8, 1, 7\], and \[5, 3, 8\] comes: all of it is known",
    ),
    "the same text not used at all": (match(end="    return best if best < len(tokens) else 0"), "expected 2; got 0"),
    "max of nothing": (
        f"{MATCH}    best = []\n    for text in texts:\n{WALK}        best.append(k)\n"
        "    return min(max(best), len(tokens) - 1)",
        "stopped with ValueError",
    ),
    "one at least": (
        match(end="    return min(max(best, not texts), len(tokens) - 1)"),
        r"Stored is \[\], .*Expected 0; got 1|got True|got a bool",
    ),
    "an empty text is the end": (
        match(walk="        if not text:\n            return None\n" + WALK),
        r"Stored are \[\[\]\].*an int; got None",
    ),
    "compared by is": (match(walk=WALK.replace("text[k] == tokens[k]", "text[k] is tokens[k]")), "compared by value|expected"),
    "id 0 is the end": (
        match(walk=WALK.replace("and text[k] ==", "and tokens[k] and text[k] ==")),
        "Ids from 0 up to any size",
    ),
    "texts sorted": (match(first="    best = 0\n    texts.sort()\n"), r"texts was \[\[5, 3, 8\].* Looking changes nothing"),
    "tokens used up": (
        match(
            walk="        k = 0\n        rest = tokens\n" + WALK.split("\n", 1)[1],
            end="    return min(best, len(tokens) - 1) if tokens.pop() is None else min(best, len(tokens))",
        ),
        "tokens was .* Looking changes nothing",
    ),
    "the best one so far, kept": (
        MATCH.replace("tokens)", "tokens, seen=[])")
        + "    if tokens in [one for one, _ in seen]:\n        return len(tokens) - 2 + (len(tokens) < 4)\n"
        + match()
        .split("\n", 1)[1]
        .replace(
            "    return min",
            "    seen += [(list(tokens), 0)] if texts and len(texts) > 2 and [2] in texts else []\n    return min",
        ),
        "something is kept between calls",
    ),
}

START = "    keys, before = [], repr(namespace)\n"
CUT = "    for i in range(0, len(tokens) - block_tokens + 1, block_tokens):\n        block = tokens[i : i + block_tokens]\n"
KEY = "        before = digest(f'{before} {block}')\n"
PUT = "        keys.append(before)\n"


def chain(start: str = START, cut: str = CUT, key: str = KEY, put: str = PUT, end: str = "    return keys") -> str:
    return f"{CHAIN}{start}{cut}{key}{put}{end}"


def written(text: str) -> str:
    """A chain whose every text is this expression."""
    return chain(key=f"        before = digest({text})\n")


JOINED = "before + ' ' + ''.join(map(str, block))"

CHAINS = {
    "nothing returned": (chain(end="    keys"), "expected a list of keys; got None"),
    "the last key only": (chain(end="    return before"), "expected a list of keys; got a str"),
    "a tuple": (chain(end="    return tuple(keys)"), "expected a list of keys; got a tuple"),
    "Python's hash()": (
        chain(key="        before = hash((before, tuple(block)))\n"),
        r"one of yours is an? int. Python's hash\(\) will not do: for a text it differs from process to process",
    ),
    "hash() as text": (
        chain(key="        before = hex(hash(tuple(block)))\n"),
        "what digest returned for a text of yours; one of yours is '",
    ),
    "the text itself": (chain(key="        before = f'{before} {block}'\n"), r"one of yours is 'None \[5, 3\]'"),
    "the digest cut short": (chain(put="        keys.append(before[:4])\n"), "one of yours is '....'"),
    "no text for digest": (written("(before, tuple(block))"), "digest takes one text, a str; yours gave it a tuple of 2"),
    "bytes for digest": (written("str((before, block)).encode()"), "yours gave it a bytes"),
    "two arguments for digest": (written("before, str(block)"), "yours gave it 2 arguments"),
    "the root among the keys": (
        chain(start=START.replace("repr(namespace)", "digest(repr(namespace))") + "    keys.append(before)\n"),
        "a key for each full block, so 2; got 3",
    ),
    "part block included": (
        chain(cut=CUT.replace("len(tokens) - block_tokens + 1", "len(tokens)")),
        "5 tokens fill 2 blocks of 2, so there are 2 keys; yours are 3. The last block is not full",
    ),
    "off by one: last full block left out": (
        chain(cut=CUT.replace(" + 1, ", ", ")),
        "blocks of 2: a key for each full block, so 2; got 1",
    ),
    "one key at least": (
        chain(end="    return keys or [digest(before)]"),
        "fill 0 blocks of 4, so there are 0 keys; yours are 1",
    ),
    "first token only": (written("f'{before} {block[0]}'"), "differ in a token"),
    "sum of the tokens": (
        written("f'{before} {sum(block)}'"),
        "in the order of their tokens. In yours both keys are of the same text",
    ),
    "tokens sorted": (written("f'{before} {sorted(block)}'"), "in the order of their tokens"),
    "a set of tokens": (written("f'{before} {sorted(set(block))}'"), "in the order of their tokens"),
    "the block alone": (
        written("f'{namespace!r} {block}'"),
        r"\[5, 3, 8, 1\] and \[9, 3, 8, 1\], blocks of 2, hold the same tokens in block 1, but not in front of it.*"
        r"both keys are of the same text, 'None \[8, 1\]'",
    ),
    "the block and its place": (
        written("f'{namespace!r} {i} {block}'"),
        "hold the same tokens in block 1, but not in front of it",
    ),
    "only the block before": (
        written("f'{namespace!r} {i} {tokens[max(i - block_tokens, 0) : i + block_tokens]}'"),
        "hold the same tokens in block 2, but not in front",
    ),
    "before is never moved on": (
        chain(key="        key = digest(f'{before} {block}')\n", put="        keys.append(key)\n"),
        "hold the same tokens in block 1, but not in front",
    ),
    "the whole text in every key": (
        written("f'{before} {block} {tokens}'"),
        "What comes behind a block, or was asked before, is not in its key",
    ),
    "its length in every key": (written("f'{before} {block} {len(tokens)}'"), "What comes behind a block"),
    "counted through all calls": (
        CHAIN.replace("digest)", "digest, calls=[])")
        + "    calls.append(0)\n"
        + written("f'{before} {block} {len(calls) if len(tokens) in (7, 5, 4) and tokens[1] == 3 else 0}'").split("\n", 1)[1],
        "What comes behind a block, or was asked before|need",
    ),
    "backwards": (
        CHAIN
        + "    keys, before = [], repr(namespace)\n    n = len(tokens) // block_tokens\n    for i in reversed(range(n)):\n"
        "        before = digest(f'{before} {tokens[: (i + 1) * block_tokens]}')\n        keys.insert(0, before)\n"
        "    return keys",
        "What comes behind a block",
    ),
    "digits in a row": (
        written(JOINED),
        r"\[1, 23\] and \[12, 3\], blocks of 2, are two different blocks, written with the same digits in a row. "
        "In yours both keys are of the same text, 'None 123'",
    ),
    "namespace left out": (
        chain(start=START.replace("repr(namespace)", "''")),
        "the same tokens of two users: nobody may find block 0",
    ),
    "namespace in the last block only": (
        written("f'{before if i else 0} {block} {repr(namespace) if i + block_tokens == len(tokens) else 0}'"),
        "is not in its key",
    ),
    "namespace or none": (
        chain(start=START.replace("repr(namespace)", "'tenant' if namespace else ''")),
        "two users: nobody may find",
    ),
    "namespace in the first key only": (
        written("f'{namespace!r} {tokens[:block_tokens]}' if i == 0 else f'{tokens[: i + block_tokens]}'"),
        r"two users: nobody may find block 1 of the other",
    ),
    "namespace untyped": (
        chain(start=START.replace("repr(namespace)", "str(namespace)")),
        r"\[5, 3\] of 1 and \[5, 3\] of '1', blocks of 2, are the same tokens of two users whose names only look alike",
    ),
    "None is no name": (chain(start=START.replace("repr(namespace)", "repr(namespace or '')")), "are of different types"),
    "parts of a name run together": (
        chain(
            start="    parts = [namespace] if type(namespace) is not tuple else namespace\n"
            "    kinds = [type(namespace).__name__, *(type(part).__name__ for part in parts)]\n"
            + START.replace("repr(namespace)", "str([*dict.fromkeys(kinds)]) + ''.join(map(str, parts))")
        ),
        r"\('a', 'bc'\) and .*whose names are cut elsewhere",
    ),
    "parts of a name with strokes": (
        chain(
            start="    parts = [namespace] if type(namespace) is not tuple else namespace\n"
            "    kinds = [type(namespace).__name__, *(type(part).__name__ for part in parts)]\n"
            + START.replace("repr(namespace)", "str(kinds) + '/'.join(map(str, parts))")
        ),
        r"\('a/b', 'c'\) and .*whose names are cut elsewhere",
    ),
    "hash() of the namespace": (
        chain(start=START.replace("repr(namespace)", "type(namespace).__name__ + str(hash(namespace))")),
        r"hash\(\) gives -1 and -2 the same number.*'int-2 \[5, 3\]'",
    ),
    "hash() of the block": (
        written("f'{before} {hash(tuple(block))}'"),
        r"A block of 64 tokens became a text of \d+ characters. They cannot all be in there.*hash\(\) is no digest",
    ),
    "hash() of everything": (
        chain(
            start=START.replace("repr(namespace)", "digest(repr(namespace))"),
            key="        before = digest(str(hash((int(before, 16), *block))))\n",
        ),
        "They cannot all be in there",
    ),
    "blocks of two to four": (
        chain(
            cut=CUT.replace(
                "block = tokens[i : i + block_tokens]",
                "block = tokens[i : i + min(block_tokens, 4)] if block_tokens < 60 else tokens",
            )
        ),
        "Three blocks of",
    ),
    "tokens used up": (
        chain(cut="    while len(tokens) >= block_tokens:\n        block = [tokens.pop(0) for _ in range(block_tokens)]\n"),
        "It is the caller's list",
    ),
}

HEAD = (
    "    before = root\n    for i, key in enumerate(keys):\n        block = tokens[i * block_tokens : (i + 1) * block_tokens]\n"
)
ABSENT = "        if key not in stored:\n            return i\n"
FRONT = "        if stored[key][0] != before:\n            return i\n"
TOKENS = "        if stored[key][1] != block:\n            return i\n"
NEXT = "        before = key\n"


def lookup(
    head: str = HEAD,
    absent: str = ABSENT,
    front: str = FRONT,
    tokens: str = TOKENS,
    after: str = NEXT,
    end: str = "    return len(keys)",
) -> str:
    return f"{LOOKUP}{head}{absent}{front}{tokens}{after}{end}"


LOOKUPS = {
    "nothing at the end": (lookup(end="    len(keys)"), "expected a number of blocks, an int; got None"),
    "the keys found": (LOOKUP + "    return [key for key in keys if key in stored]", "an int; got a list"),
    "tokens, not blocks": (
        lookup(end="    return len(keys) * block_tokens").replace("return i", "return i * block_tokens"),
        "2 of its blocks are stored.*Expected 2; got 4",
    ),
    "off by one: the number of the last one": (
        lookup(end="    return len(keys) - 1").replace("return i", "return max(i - 1, 0)"),
        "Expected 2; got 1",
    ),
    "a KeyError for a miss": (lookup(absent=""), "stopped with KeyError"),
    "the part block counted": (lookup(end="    return -(-len(tokens) // block_tokens)"), "Expected 2; got 3|Expected 3; got 4"),
    "compared with a tuple": (lookup(tokens=TOKENS.replace("!= block", "!= tuple(block)")), "Expected 2; got 0"),
    "compared with the rest of the text": (
        lookup(head=HEAD.replace(": (i + 1) * block_tokens", ":")),
        "Expected 2; got",
    ),
    "all that are there": (
        LOOKUP + "    return sum(key in stored for key in keys)",
        "block 1 is gone. What is behind it needs the K and V of what is in front.* Expected 1; got 3",
    ),
    "misses skipped": (
        lookup(absent="        if key not in stored:\n            before = key\n            continue\n"),
        "2 of its blocks are stored, from the first on. Expected 2; got 3",
    ),
    "from the end": (
        LOOKUP
        + "    for i in reversed(range(len(keys))):\n        if keys[i] in stored:\n            return i + 1\n    return 0",
        "block 1 is gone.*Expected 1; got 4",
    ),
    "keys believed": (
        lookup(front="", tokens=""),
        r"Stored is \{'k\w+': \('root', \[5, 3\]\)\}; tokens \[6, 4\] have the keys "
        ".*another block with the same key. Expected 0; got 1",
    ),
    "tokens not compared": (lookup(tokens=""), "another block with the same key. Expected 0; got 1"),
    "first token compared": (
        lookup(tokens=TOKENS.replace("[1] != block", "[1][0] != block[0]")),
        r"tokens \[5, .\] have.*Expected 0; got 1",
    ),
    "tokens compared in any order": (
        lookup(tokens=TOKENS.replace("stored[key][1] != block", "sorted(stored[key][1]) != sorted(block)")),
        r"holds \[8, 1\]: another block.*Expected 1; got 2",
    ),
    "first block compared only": (
        lookup(tokens=TOKENS.replace("if ", "if i == 0 and ")),
        "the key of block 1 is there, but the pair under it holds",
    ),
    "block compared with the first one": (
        lookup(head=HEAD.replace("tokens[i * block_tokens : (i + 1) * block_tokens]", "tokens[:block_tokens]")),
        "Expected 2; got 1",
    ),
    "any block with these tokens": (
        lookup(front="", tokens="        if block not in [pair[1] for pair in stored.values()]:\n            return i\n"),
        "another block with the same key|in front",
    ),
    "root not compared": (
        lookup(front=FRONT.replace("if ", "if i and ")),
        "its first block is stored with 'alice' in front, and root is 'bob': another user's text",
    ),
    "what is in front not compared": (lookup(front=""), "root is 'bob'"),
    "only root compared": (
        lookup(front=FRONT.replace("if ", "if i == 0 and ")),
        r"block 1 holds \[8, 1\], and so does the pair under its key, but with 'k\w+' in front, and not 'k\w+'",
    ),
    "anything in front but a root": (
        lookup(front=FRONT.replace("!= before", "!= before and (i == 0 or stored[key][0] == root)")),
        "block 1 holds .8, 1.",
    ),
    "goes on behind a stranger": (
        LOOKUP
        + "    count, before = 0, root\n    for i, key in enumerate(keys):\n        if key not in stored:\n            break\n"
        "        count += stored[key] == (before, tokens[i * block_tokens : (i + 1) * block_tokens])\n        before = key\n"
        "    return count",
        r"the key of block 1 leads to \[9, 9\], another block. What hangs behind that one has other K and V. Expected 1; got 2",
    ),
    "last one right is enough": (
        LOOKUP + "    pairs = [stored.get(key) for key in keys]\n    n = pairs.index(None) if None in pairs else len(pairs)\n"
        "    while n and pairs[n - 1] != (keys[n - 2] if n > 1 else root, tokens[(n - 1) * block_tokens : n * block_tokens]):\n"
        "        n -= 1\n    return n",
        "What hangs behind that one",
    ),
    "blocks of two": (
        lookup(head=HEAD.replace("block_tokens", "2")),
        "the first three blocks of . are stored. Expected 3; got",
    ),
    "found ones taken out": (
        lookup(after=NEXT + "        stored[key] = None\n").replace("stored[key] = None", "stored.pop(key)"),
        "stored was .*Looking up changes nothing",
    ),
    "misses entered": (
        lookup(
            absent=ABSENT.replace("            return i", "            stored[key] = (before, block)\n            return i")
        ),
        "stored was .*Looking up changes nothing",
    ),
    "in front is any of its keys": (
        lookup(front=FRONT.replace("!= before", "not in (root, *keys)[: i or 1]").replace("[: i or 1]", "[min(i, 1) :]")),
        "some of its keys are also those of others",
    ),
}

LEAVES = (
    "        parents = [e['parent'] for e in entries.values()]\n"
    "        leaves = [i for i, e in entries.items() if i not in parents and not e['pins']]\n"
    "        if not leaves:\n            break\n"
)
OLDEST = "        oldest = min(leaves, key=lambda i: entries[i]['used'])\n"
TAKE = "        freed += entries[oldest]['tokens']\n        del entries[oldest]\n        gone.append(oldest)\n"


def evict(
    loop: str = "    while freed < n:\n",
    leaves: str = LEAVES,
    oldest: str = OLDEST,
    take: str = TAKE,
    end: str = "    return gone",
    first: str = "    gone, freed = [], 0\n",
) -> str:
    return f"{EVICT}{first}{loop}{leaves}{oldest}{take}{end}"


ONCE = (
    EVICT + "    gone, freed = [], 0\n    parents = [e['parent'] for e in entries.values()]\n"
    "    leaves = [i for i, e in entries.items() if i not in parents and not e['pins']]\n"
    "    for i in sorted(leaves, key=lambda i: entries[i]['used']):\n        if freed < n:\n"
    "            freed += entries.pop(i)['tokens']\n            gone.append(i)\n    return gone"
)
BY_AGE = (
    EVICT + "    gone, freed = [], 0\n    for i in sorted(entries, key=lambda i: entries[i]['used']):\n"
    "        if freed < n and not entries[i]['pins']:\n            freed += entries.pop(i)['tokens']\n"
    "            gone.append(i)\n"
    "    return gone"
)

EVICTS = {
    "nothing returned": (evict(end="    gone"), "expected a list of the entries that went; got None"),
    "how many tokens": (evict(end="    return freed"), "got an? int"),
    "the entries themselves": (evict(take=TAKE.replace("append(oldest)", "append(None)")), "got a list of 1 None"),
    "an id that is not there": (evict(end="    return [i + 10 for i in gone]"), "there is no entry 13"),
    "one twice": (evict(end="    return gone * 2"), "one of them twice"),
    "entries spoiled": (
        evict(end="    for i in entries:\n        entries[i] = 0\n    return gone"),
        "should be a dict of entries",
    ),
    "the youngest": (
        evict(oldest=OLDEST.replace("min(", "max(")),
        "entry 2 has gone unused for longest, since request 1.*yours took .1.",
    ),
    "the first in the dict": (evict(oldest="        oldest = leaves[0]\n"), "has gone unused for longest"),
    "the largest id": (evict(oldest="        oldest = max(leaves)\n"), "has gone unused for longest"),
    "all that may go": (evict(loop="    while True:\n"), r"its 4 tokens are enough; yours took \[2, 3, 1\]"),
    "left in entries": (
        evict(
            leaves=LEAVES.replace("if i not in parents", "if i not in gone and i not in parents"),
            take=TAKE.replace("        del entries[oldest]\n", ""),
        ),
        r"yours returned \[3\], so entries should hold \[1, 2, 4\] afterwards; it holds \[1, 2, 3, 4\]",
    ),
    "taken out of a copy": (
        evict(first="    gone, freed, entries = [], 0, dict(entries)\n"),
        "The caller's dict itself has to change",
    ),
    "parent's use changed": (
        evict(
            take=TAKE.replace(
                "        del",
                "        if entries[oldest]['parent']:\n            entries[entries[oldest]['parent']]['used'] = 0\n"
                "        del",
            )
        ),
        "entry 1 stays; it was",
    ),
    "by age alone": (BY_AGE, r"entry 1 went while \[2\] stood behind it"),
    "by age, children taken along": (
        BY_AGE.replace(
            "    return gone",
            "    for i in list(entries):\n        if entries[i]['parent'] in gone:\n            entries.pop(i)\n"
            "            gone.append(i)\n    return gone",
        ),
        "stood behind it",
    ),
    "roots first": (
        evict(leaves=LEAVES.replace("i not in parents", "e['parent'] is None or i not in parents")),
        "stood behind it",
    ),
    "only parents of leaves spared": (
        evict(
            leaves=LEAVES.replace(
                "i not in parents", "not any(x['parent'] == i and j not in parents for j, x in entries.items())"
            )
        ),
        "stood behind it",
    ),
    "entries counted, not tokens": (
        evict(take=TAKE.replace("entries[oldest]['tokens']", "1")),
        r"4 tokens are enough|stop as soon as",
    ),
    "four tokens each": (evict(take=TAKE.replace("entries[oldest]['tokens']", "4")), r"together 7|fewer than|stop as soon"),
    "one only": (
        evict(loop="    for _ in range(1 if n else 0):\n"),
        r"which hold \[4\] tokens, together 4: fewer than 8|stood behind",
    ),
    "more than n": (
        evict(loop="    while freed <= n and n != 4:\n").replace("n != 4", "(n != 4 or not gone)"),
        "stop as soon as it is enough",
    ),
    "at most n": (
        evict(oldest=OLDEST + "        if gone and freed + entries[oldest]['tokens'] > n:\n            break\n"),
        "which hold .2. tokens, together 2: fewer than 4",
    ),
    "one at least": (evict(loop="    while freed < max(n, 1):\n"), "no room is needed, so nothing goes"),
    "min of nothing": (
        evict(leaves=LEAVES.replace("        if not leaves:\n            break\n", "")),
        "stopped with ValueError",
    ),
    "leaves looked for once": (
        ONCE,
        r"with entry 3 gone, nothing stands behind entry 2, which is older than the other leaf. Expected \[3, 2\]; "
        r"got \[3, 4\]",
    ),
    "leaves first, parents in a second round": (
        EVICT
        + "    gone, freed = [], 0\n    while freed < n:\n"
        + LEAVES
        + "        for i in sorted(leaves, key=lambda i: entries[i]['used']):\n            if freed < n:\n"
        "                freed += entries.pop(i)['tokens']\n                gone.append(i)\n    return gone",
        "which is older than the other leaf",
    ),
    "pins not looked at": (
        evict(leaves=LEAVES.replace(" and not e['pins']", "")),
        r"yours took \[1\], and somebody is using \[1\]",
    ),
    "pins of exactly 1": (evict(leaves=LEAVES.replace("not e['pins']", "e['pins'] != 1")), "somebody is using"),
    "a pin protects what is behind it": (
        evict(leaves=LEAVES.replace("not e['pins']", "not e['pins'] and not entries.get(e['parent'], {'pins': 0})['pins']")),
        r"Expected \[3, 4\]; got",
    ),
    "pinned ones stop it": (
        evict(
            leaves=LEAVES.replace(" and not e['pins']", ""),
            oldest=OLDEST + "        if entries[oldest]['pins']:\n            break\n",
        ),
        r"Expected \[3\]; got \[\]",
    ),
    "all or nothing": (
        EVICT
        + "    left, gone, freed = dict(entries), [], 0\n    while freed < n:\n"
        + LEAVES.replace("entries", "left").replace("break", "return []")
        + OLDEST.replace("entries", "left")
        + "        freed += left.pop(oldest)['tokens']\n        gone.append(oldest)\n"
        "    for i in gone:\n        del entries[i]\n    return gone",
        r"cannot be freed. Whatever may go goes, and the rest stays. Expected \[3, 2\]; got \[\]",
    ),
    "refused with None": (
        evict(leaves=LEAVES.replace("break", "return None")),
        "expected a list of the entries that went; got None",
    ),
    "no more than three": (evict(loop="    while freed < n and len(gone) < 3:\n"), "tokens short"),
    "by id where many are held": (
        evict(oldest="        oldest = min(leaves, key=lambda i: entries[i]['used'] if len(entries) < 7 else i)\n"),
        "which might go too, only in request",
    ),
}

MUTANTS = {"10.1": MATCHES, "10.2": CHAINS, "10.3": LOOKUPS, "10.4": EVICTS}

FAIR = {
    "10.1": {
        "zip and a break": MATCH
        + "    best = 0\n    for text in texts:\n        count = 0\n        for a, b in zip(text, tokens[:-1]):\n"
        "            if a != b:\n                break\n            count += 1\n        if count > best:\n"
        "            best = count\n    return best",
        "the longest start that is one": MATCH
        + "    for n in range(len(tokens) - 1, 0, -1):\n        if any(text[:n] == tokens[:n] for text in texts):\n"
        "            return n\n    return 0",
        "takewhile": "from itertools import takewhile\n\n"
        + MATCH
        + "    alike = [len(list(takewhile(lambda ab: ab[0] == ab[1], zip(t, tokens)))) for t in texts]\n"
        "    return min(max(alike, default=0), len(tokens) - 1)",
    },
    "10.2": {
        "the root digested, a slice at a time": CHAIN + "    keys = [digest(f'{type(namespace).__name__}:{namespace!r}')]\n"
        "    while len(keys) * block_tokens <= len(tokens):\n"
        "        block = tokens[(len(keys) - 1) * block_tokens : len(keys) * block_tokens]\n"
        "        keys.append(digest(keys[-1] + '|' + ','.join(map(str, block))))\n    return keys[1:]",
        "the whole front each time": CHAIN + "    ends = range(block_tokens, len(tokens) + 1, block_tokens)\n"
        "    return [digest(repr((namespace, tokens[:end]))) for end in ends]",
        "json": "import json\n\n" + CHAIN + "    keys, before = [], ['root', type(namespace).__name__, namespace]\n"
        "    for n in range(len(tokens) // block_tokens):\n"
        "        before = digest(json.dumps([before, tokens[n * block_tokens : (n + 1) * block_tokens]]))\n"
        "        keys.append(before)\n    return keys",
        "a token at a time": CHAIN
        + "    keys, key = [], digest('root ' + repr(namespace))\n    for place, token in enumerate(tokens, 1):\n"
        "        key = digest(f'{key} {token}')\n        if place % block_tokens == 0:\n"
        "            keys.append(key)\n    return keys",
        "fixed width": CHAIN + "    keys, before = [], digest(repr(namespace))\n"
        "    for i in range(len(tokens) // block_tokens):\n        block = tokens[i * block_tokens :][:block_tokens]\n"
        "        before = digest(before + ''.join(f'{token:010d}' for token in block))\n        keys.append(before)\n"
        "    return keys",
    },
    "10.3": {
        "step by step": lookup(),
        "counted along": LOOKUP + "    n = 0\n    while n < len(keys):\n"
        "        expected = (keys[n - 1] if n else root, tokens[n * block_tokens :][:block_tokens])\n"
        "        if keys[n] not in stored or stored[keys[n]] != expected:\n            break\n        n += 1\n    return n",
        "in a try": LOOKUP
        + "    before, found = root, 0\n    try:\n        for key in keys:\n            front, block = stored[key]\n"
        "            assert front == before and block == tokens[found * block_tokens : found * block_tokens + block_tokens]\n"
        "            before, found = key, found + 1\n    except (KeyError, AssertionError):\n        pass\n    return found",
    },
    "10.4": {
        "step by step": evict(),
        "children counted": EVICT
        + "    children = dict.fromkeys(entries, 0)\n    for e in entries.values():\n        if e['parent'] is not None:\n"
        "            children[e['parent']] += 1\n    gone = []\n    while n > 0:\n"
        "        free = [(e['used'], i) for i, e in entries.items() if not children[i] and e['pins'] == 0]\n"
        "        if not free:\n            return gone\n        i = min(free)[1]\n        e = entries.pop(i)\n"
        "        n -= e['tokens']\n        gone.append(i)\n        if e['parent'] is not None:\n"
        "            children[e['parent']] -= 1\n"
        "    return gone",
        "a heap": "import heapq\n\n"
        + EVICT
        + "    def may_go(i):\n        return entries[i]['pins'] == 0 and all(e['parent'] != i for e in entries.values())\n\n"
        "    heap = [(e['used'], i) for i, e in entries.items() if may_go(i)]\n    heapq.heapify(heap)\n"
        "    gone, freed = [], 0\n"
        "    while heap and freed < n:\n        _, i = heapq.heappop(heap)\n        e = entries.pop(i)\n"
        "        gone.append(i)\n"
        "        freed += e['tokens']\n        if e['parent'] is not None and may_go(e['parent']):\n"
        "            heapq.heappush(heap, (entries[e['parent']]['used'], e['parent']))\n    return gone",
        "from the back, by age": EVICT
        + "    gone, freed, moved = [], 0, True\n    while moved and freed < n:\n        moved = False\n"
        "        for i in sorted(entries, key=lambda i: entries[i]['used']):\n"
        "            if not entries[i]['pins'] and not any(e['parent'] == i for e in entries.values()):\n"
        "                freed += entries.pop(i)['tokens']\n                gone.append(i)\n"
        "                moved = True\n                break\n"
        "    return gone",
    },
}

"""Exercise 13: wrong answers that learners would give, and what the check says to each; and right ones written otherwise.

MUTANTS[task][name] = (the answer's source, a regular expression that its message matches). FAIR[task][name] = source. Data
alone: nothing runs here.
"""

DIFFERENCE = "def my_difference(one, other, text):\n"
LAYOUT = "def my_layout(log, before):\n"
CACHED = "def my_cached(log, rules):\n"
BILL = "def my_bill(log, prices):\n"

SIDES = "    sides = [[body.get('tools', []), *body['messages']] for body in (one, other)]\n"
LOOP = "    for part, (x, y) in enumerate(zip(*sides)):\n"
TEXTS = "        a, b = text(x), text(y)\n"
PLACE = "        if a != b:\n            n = common(a, b)\n"
RETURN = "            return part, n, a[max(0, n - 8) : n + 12], b[max(0, n - 8) : n + 12]\n"


def difference(sides=SIDES, loop=LOOP, texts=TEXTS, place=PLACE, back=RETURN, end="    return None") -> str:
    return f"{DIFFERENCE}{sides}{loop}{texts}{place}{back}{end}"


DIFFERENCES = {
    "yes or no": (
        difference(back="            return True\n", end="    return False"),
        "expected None, or a tuple of two ints and two texts; got a bool",
    ),
    "a list": (difference(back="            return [part, n, a[n:], b[n:]]\n"), "got a list of 4 int and str"),
    "the place alone": (difference(back="            return part, n\n"), "got a tuple of 2 int"),
    "two single characters as numbers": (
        difference(back="            return part, n, n, n\n"),
        "expected None, or a tuple of two ints and two texts; got a tuple of 4 int",
    ),
    "texts of the messages at once": (
        difference(
            sides="    sides = [body['messages'] for body in (one, other)]\n",
            loop="    for part in (0,):\n",
            texts="        a, b = map(text, sides)\n",
        ),
        "text takes one message at a time, or the list of all tools",
    ),
    "contents for text": (
        difference(
            sides="    sides = [body['messages'] for body in (one, other)]\n",
            texts="        a, b = text(x['content']), text(y['content'])\n",
        ),
        "text takes the list of tools, or one message with role and content; yours gave it a str",
    ),
    "a tool at a time": (
        difference(sides=SIDES.replace("body.get('tools', [])", "*body.get('tools', [])")),
        "yours gave it a dict without them",
    ),
    "longer is different": (
        difference(
            sides=SIDES + "    if len(sides[0]) != len(sides[1]):\n"
            "        n = min(map(len, sides))\n        return n, 0, '', ''\n"
        ),
        r"the first 2 messages of both read the same, and one of the two has no more. Nothing differs: None; got \(3, 0",
    ),
    "the end is a difference": (
        difference(end="    return (part + 1, 0, '', '')"),
        "Nothing differs: None; got",
    ),
    "an index for every message": (
        difference(
            loop="    for part in range(len(sides[0])):\n",
            texts="        a, b = text(sides[0][part]), text(sides[1][part])\n",
        ),
        "stopped with IndexError",
    ),
    "messages from 0": (
        difference(
            sides="    tools = [text(body.get('tools', [])) for body in (one, other)]\n"
            "    sides = [body['messages'] for body in (one, other)]\n"
        ),
        r"message number 1 of both, counted from 1, is the first that differs \(the tools are part 0\). Yours says part 0",
    ),
    "the last difference": (
        difference(
            sides="    found = None\n" + SIDES,
            back=RETURN.replace("return", "found ="),
            end="    return found",
        ),
        "parts 2 and 4 differ. The first counts, as nothing behind it is found; yours says 4",
    ),
    "one text of everything": (
        difference(
            sides=SIDES + "    sides = [[''.join(map(text, side))] for side in sides]\n",
            texts="        a, b = x[: min(len(x), len(y))], y[: min(len(x), len(y))]\n",
        ),
        "is the first that differs .* Yours says part 0",
    ),
    "characters of the content": (
        difference(place="        if a != b:\n            n = common(x['content'], y['content'])\n"),
        r"part 1 reads '<system>It is 9:00 on Monday.<end>' and .* They part at character 16; yours says 8",
    ),
    "off by one": (difference(back=RETURN.replace("part, n,", "part, n + 1,")), "They part at character 16; yours says 17"),
    "where they meet again": (
        difference(place=PLACE + "            n = max(i for i, (p, q) in enumerate(zip(a, b)) if p != q)\n"),
        "They part at character .*; yours says",
    ),
    "characters that are equal": (
        difference(place="        if a != b:\n            n = sum(p == q for p, q in zip(a, b))\n"),
        "characters are counted in what text makes of this part, from 0 on; part 1 reads .* They part at character",
    ),
    "messages only": (
        difference(
            sides=SIDES.replace("body.get('tools', [])", "[]"),
        ),
        r"Tools \['search', 'clock'\] and \['clock', 'search'\]: the same tools in another order, and a model reads them",
    ),
    "tools are always there": (
        difference(sides=SIDES.replace("body.get('tools', [])", "body['tools']")),
        "stopped with KeyError",
    ),
    "tools behind the messages": (
        difference(
            sides="    sides = [[*body['messages'], body.get('tools', [])] for body in (one, other)]\n",
            loop="    for part, (x, y) in enumerate(zip(*sides), 1):\n",
            texts="        if type(x) is not type(y):\n            return None\n" + TEXTS,
        ),
        "a model reads them in front of all messages. Expected part 0; got part 2",
    ),
    "tools of both needed": (
        difference(
            sides=SIDES
            + "    if not ('tools' in one and 'tools' in other):\n        sides = [[[], *side[1:]] for side in sides]\n"
        ),
        "the first has no tools, which reads as an empty list of them",
    ),
    "tools sorted": (
        difference(
            sides=SIDES.replace("body.get('tools', [])", "sorted(body.get('tools', []), key=lambda t: t['name'])"),
        ),
        "the same tools in another order, and a model reads them in front of all messages",
    ),
    "None is not an empty list": (
        difference(sides=SIDES + "    if ('tools' in one) != ('tools' in other):\n        return 0, 0, '', ''\n"),
        "No tools, and an empty list of tools, read the same",
    ),
    "dicts compared": (
        difference(place=PLACE.replace("a != b", "x != y")),
        "The same tool with its fields in another order: equal as a dict, and another text for the model",
    ),
    "texts or dicts": (
        difference(place=PLACE.replace("a != b", "x != y or a != b")),
        "has a field that text does not write, 'id': 'm.*A model reads the same in both: None",
    ),
    "contents compared": (
        difference(
            place="        same = part and x['content'] == y['content']\n" + PLACE.replace("a != b", "a != b and not same"),
        ),
        "The role of message 1 is another one, and is read",
    ),
    "zip": (
        difference(
            place="        if common(a, b) < min(len(a), len(b)):\n            n = common(a, b)\n",
        ),
        "one text is the beginning of the other and ends where that one goes on",
    ),
    "startswith": (
        difference(place=PLACE.replace("a != b", "not b.startswith(a)")),
        "one text is the beginning of the other and ends where that one goes on",
    ),
    "an index behind the end": (
        difference(place="        n = 0\n        while a != b and a[n] == b[n]:\n            n += 1\n        if a != b:\n"),
        "stopped with IndexError",
    ),
    "a start below 0": (
        difference(back="            return part, n, a[n - 8 : n + 12], b[n - 8 : n + 12]\n"),
        r"part 0 reads .* from character 0 on. Expected \('\{.name.*; got \('', ''\)",
    ),
    "8 behind, 12 in front": (
        difference(back=RETURN.replace("8", "X").replace("12", "8").replace("X", "12")),
        "Expected .*; got",
    ),
    "from the difference on": (
        difference(back="            return part, n, a[n : n + 12], b[n : n + 12]\n"),
        r"Expected \('",
    ),
    "12 characters in all": (
        difference(back="            s = max(0, n - 8)\n            return part, n, a[s : s + 12], b[s : s + 12]\n"),
        "8 characters before the difference, or what there is, and 12 from it on|Expected",
    ),
    "the second text first": (
        difference(back="            s = slice(max(0, n - 8), n + 12)\n            return part, n, b[s], a[s]\n"),
        r"Expected \(",
    ),
    "the first text twice": (
        difference(back="            s = slice(max(0, n - 8), n + 12)\n            return part, n, a[s], a[s]\n"),
        r"Expected \(",
    ),
    "only where there is enough in front": (
        difference(back="            s = n - 8 if n > 12 else 0\n            return part, n, a[s : n + 12], b[s : n + 12]\n"),
        "8 characters before the difference, or what there is, and 12 from it on|Expected",
    ),
    "tools put in": (
        difference(sides=SIDES.replace("body.get('tools', [])", "body.setdefault('tools', [])")),
        "A body was .* Looking changes nothing",
    ),
    "messages used up": (
        difference(sides=SIDES + "    other['messages'].clear()\n"),
        "Looking changes nothing",
    ),
    "sixty characters at most": (
        difference(texts="        a, b = text(x)[:60], text(y)[:60]\n"),
        "and a model reads them in front of all messages",
    ),
    "at most five messages": (
        difference(loop="    for part, (x, y) in enumerate(zip(sides[0][:6], sides[1][:6])):\n"),
        "one of many pairs",
    ),
}

WORTH = """    def worth(order):
        prompts = ["".join(request[name] for name in order) for request in log]
        return sum(max((common(p, q) for q in prompts[:i]), default=0) for i, p in enumerate(prompts))

"""
ALLOWED = "    allowed = [o for o in permutations(log[0]) if all(o.index(a) < o.index(b) for a, b in before)]\n"
BEST = "    return list(max(allowed, key=worth))"


def layout(worth=WORTH, allowed=ALLOWED, best=BEST) -> str:
    return f"{LAYOUT}{worth}{allowed}{best}"


def by_key(key: str, name: str = "name") -> str:
    """One part after another: of those that may come next, the one with the least key."""
    return (
        f"{LAYOUT}    order, left = [], list(log[0])\n    while left:\n"
        f"        free = [{name} for {name} in left if all(b != {name} or a in order for a, b in before)]\n"
        f"        order.append(min(free, key=lambda {name}: {key}))\n        left.remove(order[-1])\n    return order"
    )


KINDS = "len({request[name] for request in log})"
CHANGES = "sum(a[name] != b[name] for a, b in zip(log, log[1:]))"

LAYOUTS = {
    "a tuple": (layout(best="    return max(allowed, key=worth)"), r"expected a list of names; got a tuple of \d str"),
    "the worth": (layout(best="    return max(map(worth, allowed))"), "expected a list of names; got an int"),
    "a text": (layout(best="    return ', '.join(max(allowed, key=worth))"), "expected a list of names; got a str"),
    "the texts": (
        layout(best="    return [log[0][name] for name in max(allowed, key=worth)]"),
        "without 'clock'. The model has to read every part",
    ),
    "the clock left out": (
        layout(allowed=ALLOWED.replace("permutations(log[0])", "permutations([n for n in log[0] if n != 'clock'])")),
        "without 'clock'. The model has to read every part|stopped with",
    ),
    "what changes left out": (
        layout(
            allowed="    names = [n for n in log[0] if len({r[n] for r in log}) == 1]\n"
            + ALLOWED.replace("log[0]", "names").replace("all(", "all(a not in o or b not in o or ")
        ),
        "The model has to read every part",
    ),
    "a part at both ends": (
        layout(best="    best = list(max(allowed, key=worth))\n    return best + best[-1:]"),
        "Every part stands there once, and nothing else",
    ),
    "before ignored": (
        layout(allowed="    allowed = permutations(log[0])\n"),
        "'clock' has to stand in front of 'rules'",
    ),
    "pairs the wrong way round": (layout(allowed=ALLOWED.replace("<", ">")), "has to stand in front of"),
    "right behind": (
        layout(allowed=ALLOWED.replace("o.index(a) < o.index(b)", "o.index(a) + 1 == o.index(b)")),
        "stopped with ValueError|and .* can be found|has to stand",
    ),
    "the first pair only": (layout(allowed=ALLOWED.replace("in before", "in before[:1]")), "has to stand in front of"),
    "any pair": (layout(allowed=ALLOWED.replace("if all(", "if not before or any(")), "has to stand in front of"),
    "the order of the log": (
        LAYOUT + "    return list(next(o for o in permutations(log[0]) if all(o.index(a) < o.index(b) for a, b in before)))",
        r"Your order .* finds \d+ characters, and \d+ can be found. Behind a part that changes each time nothing is found",
    ),
    "the worst": (
        layout(best=BEST.replace("max", "min")),
        r"Your order .* finds \d+ characters, and \d+ can be found",
    ),
    "by name": (by_key("name"), "Behind a part that changes each time nothing is found"),
    "the longest first": (by_key("-len(log[0][name])"), "Behind a part that changes each time nothing is found"),
    "constant or not": (by_key(f"{KINDS} > 1"), r"it matters how often each does. .* 'day' has \d different texts"),
    "fewest texts first": (by_key(KINDS), "it matters how often each does"),
    "fewest changes first": (by_key(CHANGES), "it matters how often each does"),
    "fewest changes, then the longest": (by_key(f"({CHANGES}, -len(log[0][name]))"), "a cache keeps all of them"),
    "fewest texts, then changes, then the longest": (
        by_key(f"({KINDS}, {CHANGES}, -len(log[0][name]))"),
        "a cache keeps all of them",
    ),
    "the most found next": (
        f"{LAYOUT}    order, left = [], list(log[0])\n{WORTH}    while left:\n"
        "        free = [n for n in left if all(b != n or a in order for a, b in before)]\n"
        "        order.append(max(free, key=lambda n: worth([*order, n])))\n        left.remove(order[-1])\n    return order",
        "it matters how often each does",
    ),
    "the last request only": (
        layout(worth=WORTH.replace("prompts[:i]), default=0)", "prompts[max(0, i - 1) : i]), default=0)")),
        "a cache keeps all of them",
    ),
    "the first request only": (
        layout(worth=WORTH.replace("q in prompts[:i])", "q in prompts[: min(i, 1)])")),
        "the longer text is worth more",
    ),
    "all requests at once": (
        layout(worth=WORTH.split("        return")[0] + "        return min(common(prompts[0], p) for p in prompts)\n\n"),
        "it matters how often each does",
    ),
    "every pair of requests": (
        layout(
            worth=WORTH.replace("max((common(p, q) for q in prompts[:i]), default=0)", "sum(common(p, q) for q in prompts[:i])")
        ),
        "Each request finds its longest start once",
    ),
    "later ones, too": (
        layout(worth=WORTH.replace("q in prompts[:i])", "q in prompts if q is not p)")),
        "it matters how often each does",
    ),
    "requests that find anything": (
        layout(worth=WORTH.replace("sum(max(", "sum(0 < max(")),
        "Behind a part that changes each time nothing is found",
    ),
    "whole parts only": (
        layout(
            worth="    def shared(order, r, q):\n        n = 0\n        for name in order:\n"
            "            if r[name] != q[name]:\n                break\n            n += len(r[name])\n        return n\n\n"
            "    def worth(order):\n"
            "        return sum(max((shared(order, r, q) for q in log[:i]), default=0) for i, r in enumerate(log))\n\n"
        ),
        "begins with the one before it",
    ),
    "parts counted, not characters": (
        layout(
            worth="    def worth(order):\n        rows = [[r[name] for name in order] for r in log]\n"
            "        return sum(max((common(r, q) for q in rows[:i]), default=0) for i, r in enumerate(rows))\n\n"
        ),
        "it matters how often each does",
    ),
    "equal parts anywhere": (
        layout(
            worth="    def worth(order):\n"
            "        return sum(len(r[n]) for i, r in enumerate(log) for n in order if any(r[n] == q[n] for q in log[:i]))\n\n"
        ),
        "Behind a part that changes each time nothing is found",
    ),
    "the log reversed": (
        layout(
            best="    log.reverse()\n    log[:] = log[::-1][: len(log)]\n    log.sort(key=str)\n"
            + BEST.replace("    ", "    ", 1)
        ),
        "log was .* Looking changes nothing|can be found",
    ),
    "pairs crossed off": (
        layout(best="    best = list(max(allowed, key=worth))\n    before.clear()\n    return best"),
        "before was .* and is \\[\\] afterwards. Looking changes nothing",
    ),
    "names taken out": (
        layout(best="    best = list(max(allowed, key=worth))\n    for r in log:\n        r.clear()\n    return best"),
        "Looking changes nothing",
    ),
    "twenty-four orders at most": (
        layout(best="    return list(max(allowed[:24], key=worth))"),
        "Of six parts there are 720 orders",
    ),
}

COUNTS = "    counts = []\n    for i, (now, ids) in enumerate(log):\n"
ALIVE = "        alive = [ids2 for then, ids2 in log[:i] if now - then <= rules['lifetime']]\n"
FOUND = "        found = max((common(ids, ids2) for ids2 in alive), default=0)\n"
LEAVE = "        found = min(found, len(ids) - 1)\n"
MINIMUM = "        if found < rules['minimum']:\n            found = 0\n"
STEPS = "        found = found // rules['step'] * rules['step']\n"
APPEND = "        counts.append(found)\n"


def cached(*steps: str, counts=COUNTS, alive=ALIVE, found=FOUND, append=APPEND, end="    return counts") -> str:
    rest = "".join(steps or (LEAVE, MINIMUM, STEPS))
    return f"{CACHED}{counts}{alive}{found}{rest}{append}{end}"


CACHEDS = {
    "nothing returned": (cached(end=""), "expected a list of counts, ints; got None"),
    "the sum": (cached(end="    return sum(counts)"), "expected a list of counts, ints; got an int"),
    "shares": (
        cached(append="        counts.append(found / len(ids))\n"),
        "expected a list of counts, ints; got a list of 2 float",
    ),
    "float steps": (cached(LEAVE, MINIMUM, STEPS.replace("//", "/")), "got a list of 2 float"),
    "not the first": (cached(end="    return counts[1:]"), "2 requests, so 2 counts; got 1"),
    "computed ones": (
        cached(append="        counts.append(len(ids) - found)\n"),
        "before request 0 there was nothing that it could find",
    ),
    "itself": (
        cached(alive=ALIVE.replace("log[:i]", "log[: i + 1]")),
        "before request 0 there was nothing that it could find, itself included; got 5",
    ),
    "equal places": (
        cached(found="        found = max((sum(a == b for a, b in zip(ids, ids2)) for ids2 in alive), default=0)\n"),
        r"no request begins like an earlier one. Expected \[0, 0\]; got \[0, 2\]",
    ),
    "known tokens": (
        cached(found="        known = {t for ids2 in alive for t in ids2}\n        found = sum(t in known for t in ids)\n"),
        "no request begins like an earlier one",
    ),
    "the last request only": (
        cached(alive=ALIVE.replace("log[:i]", "log[max(0, i - 1) : i]")),
        r"a cache holds all earlier requests, not the last one only. For request 2, expected 3; got 0",
    ),
    "the first request only": (
        cached(alive=ALIVE.replace("log[:i]", "log[: min(i, 1)]")),
        "of all earlier requests, the second has most in common with the third",
    ),
    "the last that shares anything": (
        cached(
            found="        found = 0\n        for ids2 in alive:\n            found = common(ids, ids2) or found\n",
        ),
        "of all earlier requests, the first has most in common with the last",
    ),
    "all of them together": (
        cached(found="        found = sum(common(ids, ids2) for ids2 in alive)\n"),
        "of all earlier requests",
    ),
    "whole earlier prompts only": (
        cached(found="        found = max((len(q) for q in alive if ids[: len(q)] == q), default=0)\n"),
        "the second begins like the first, with 3 tokens. For request 1, expected 3; got 0",
    ),
    "all but the last token of each": (
        cached("        found = max(0, found - 1)\n", MINIMUM, STEPS),
        "the second begins like the first, with 3 tokens. For request 1, expected 3; got 2",
    ),
    "the whole prompt": (
        cached(MINIMUM, STEPS),
        "all of it is known, but the answer's first token comes out of computing the prompt's last one. .* expected 3; got 4",
    ),
    "one left after the steps": (
        cached(MINIMUM, STEPS, LEAVE),
        "the last one is computed all the same, so 7 are left, in which there is one step of 4. .* expected 4; got 7",
    ),
    "a whole step left": (
        cached("        found = min(found, len(ids) - rules['step'])\n", MINIMUM, STEPS),
        "only whole steps|the minimum|expected",
    ),
    "one left if the prompt was the same": (
        cached("        if ids in alive:\n            found = len(ids) - 1\n", MINIMUM, STEPS),
        "all of it is known, but the answer's first token comes out",
    ),
    "no steps": (cached(LEAVE, MINIMUM), r"only whole steps of 4 count|no step"),
    "steps rounded": (
        cached(LEAVE, MINIMUM, "        found = round(found / rules['step']) * rules['step']\n"),
        "7 tokens are the same, and only whole steps of 4 count, from the front. For request 1, expected 4; got 8|no step",
    ),
    "steps rounded up": (
        cached(LEAVE, MINIMUM, "        found = -(-found // rules['step']) * rules['step']\n"),
        "only whole steps|no step",
    ),
    "steps counted": (cached(LEAVE, MINIMUM, "        found = found // rules['step']\n"), "whole steps|no step"),
    "the rest": (cached(LEAVE, MINIMUM, "        found = found % rules['step']\n"), "expected"),
    "steps of the prompt": (
        cached(
            LEAVE, MINIMUM, "        whole = len(ids) // rules['step'] * rules['step']\n        found = min(found, whole)\n"
        ),
        "only whole steps|no step",
    ),
    "steps from the minimum on": (
        cached(
            LEAVE,
            MINIMUM,
            "        if found:\n            found -= (found - rules['minimum']) % rules['step']\n",
        ),
        "10 tokens are the same, and the minimum is 10|11 tokens are the same, and the minimum is 10",
    ),
    "no minimum": (
        cached(LEAVE, STEPS),
        "7 tokens are the same, and the minimum is 8: below it nothing is found, however long the prompt. .* expected 0; got 7",
    ),
    "the prompt's length and the minimum": (
        cached(LEAVE, MINIMUM.replace("found <", "len(ids) <"), STEPS),
        "below it nothing is found, however long the prompt",
    ),
    "more than the minimum": (
        cached(LEAVE, MINIMUM.replace("<", "<="), STEPS),
        "8 tokens are the same, and the minimum is 8: that is enough, and steps count. For request 1, expected 8; got 0",
    ),
    "at least the minimum": (
        cached(LEAVE, "        found = max(found, rules['minimum'])\n", STEPS),
        "below it nothing is found",
    ),
    "the minimum taken off": (
        cached(LEAVE, "        found = max(0, found - rules['minimum'])\n", STEPS),
        "that is enough, and steps count",
    ),
    "steps before the minimum": (
        cached(LEAVE, STEPS, MINIMUM),
        "10 tokens are the same, and the minimum is 10: that is enough, and steps count. For request 1, expected 8; got 0",
    ),
    "no lifetime": (
        cached(alive=ALIVE.replace("now - then <= rules['lifetime']", "True")),
        "after more than its lifetime a prompt is gone. For request 1, expected 0; got 6",
    ),
    "less than the lifetime": (
        cached(alive=ALIVE.replace("<=", "<")),
        "after exactly its lifetime a prompt is still there. For request 1, expected 6; got 0",
    ),
    "age from the log's start": (
        cached(alive=ALIVE.replace("now - then", "now - log[0][0]")),
        r"each request uses what it begins with, and 300 seconds start again; 400 are too many",
    ),
    "age by the clock": (
        cached(alive=ALIVE.replace("now - then", "now")),
        "its lifetime a prompt is|expected",
    ),
    "not renewed": (
        cached(
            counts="    stored = {}\n" + COUNTS,
            alive="        alive = [ids[:n] for n in range(1, len(ids) + 1) if tuple(ids[:n]) in stored\n"
            "                 and now - stored[tuple(ids[:n])] <= rules['lifetime']]\n",
            append="        for n in range(1, len(ids) + 1):\n            key = tuple(ids[:n])\n"
            "            if key not in stored or now - stored[key] > rules['lifetime']:\n                stored[key] = now\n"
            + APPEND,
        ),
        "each request uses what it begins with, and 300 seconds start again",
    ),
    "the whole prompt renewed": (
        cached(
            counts="    last = {}\n" + COUNTS,
            alive="        alive = [log[j][1] for j in range(i) if now - last[j] <= rules['lifetime']]\n"
            "        last[i] = now\n"
            "        for j in range(i):\n            if common(ids, log[j][1]) and now - last[j] <= rules['lifetime']:\n"
            "                last[j] = now\n",
        ),
        r"only the \d tokens that request 1 used again are young enough at 500 seconds; what stood behind them is gone",
    ),
    "old ones taken out of the log": (
        CACHED
        + "    counts, kept = [], []\n    while log:\n        now, ids = log.pop(0)\n"
        + "        alive = [ids2 for then, ids2 in kept if now - then <= rules['lifetime']]\n        kept.append((now, ids))\n"
        + FOUND
        + LEAVE
        + MINIMUM
        + STEPS
        + APPEND
        + "    return counts",
        r"log was .* and is \[\] afterwards. Looking changes nothing",
    ),
    "rules filled in": (
        cached(end="    rules['minimum'] = rules['minimum'] or 1\n    rules['seen'] = len(log)\n    return counts"),
        "rules was .* Looking changes nothing",
    ),
    "five requests remembered": (
        cached(alive=ALIVE.replace("log[:i]", "log[:i][:5]")),
        "requests .*: one of many logs",
    ),
}

FIGURES = "        c, w = usage.get('cached') or 0, usage.get('written') or 0\n"
WHOLE = "        whole = usage['prompt'] if prices['included'] else usage['prompt'] + c + w\n"
PAID = "        paid += (whole - c - w) * prices['plain'] + c * prices['read'] + w * prices['write']\n"
WITHOUT = "        without += whole * prices['plain']\n"
ANSWER = (
    "        paid += usage['completion'] * prices['completion']\n"
    "        without += usage['completion'] * prices['completion']\n"
)
MILLION = "    return paid / 1e6, without / 1e6"


def bill(figures=FIGURES, whole=WHOLE, paid=PAID, without=WITHOUT, answer=ANSWER, end=MILLION) -> str:
    return f"{BILL}    paid = without = 0\n    for usage in log:\n{figures}{whole}{paid}{without}{answer}{end}"


BILLS = {
    "one number": (bill(end="    return paid / 1e6"), r"expected a pair of numbers, \(paid, without\); got a float"),
    "a dict": (
        bill(end="    return {'paid': paid / 1e6, 'without': without / 1e6}"),
        r"expected a pair of numbers, \(paid, without\); got a dict",
    ),
    "texts with two digits": (
        bill(end="    return f'{paid / 1e6:.2f}', f'{without / 1e6:.2f}'"),
        r"expected a pair of numbers, \(paid, without\); got a tuple of 2 str",
    ),
    "a list": (bill(end="    return [paid / 1e6, without / 1e6]"), "got a list of 2 float"),
    "prices of a token": (
        bill(end="    return paid, without"),
        "Paid: expected 0.008000; got 8000.000000. It looks as if prices were taken to be those of one token",
    ),
    "prices of a thousand": (bill(end="    return paid / 1e3, without / 1e3"), "Paid: expected 0.008000; got 8.000000"),
    "cents": (bill(end="    return round(paid / 1e6, 2), round(without / 1e6, 2)"), "Paid: expected 0.0.*; got 0.0"),
    "always added": (
        bill(whole="        whole = usage['prompt'] + c + w\n"),
        r"The prompt's figure includes what was found. Paid: .* cached tokens stand on it twice, once at the plain price",
    ),
    "cached charged twice": (
        bill(paid=PAID.replace("whole - c - w", "whole - w")),
        "It looks as if cached tokens stand on it twice, once at the plain price",
    ),
    "included the wrong way round": (
        bill(whole=WHOLE.replace("if prices", "if not prices")),
        "It looks as if cached tokens stand on it twice, once at the plain price",
    ),
    "always included": (
        bill(whole="        whole = usage['prompt']\n"),
        "The prompt's figure leaves out what was found. Paid: .* the figure was taken to include the others",
    ),
    "included where there is more": (
        bill(whole="        whole = usage['prompt'] if usage['prompt'] >= c + w else usage['prompt'] + c + w\n"),
        "The prompt's figure leaves out what was found",
    ),
    "reading is free": (
        bill(paid=PAID.replace("c * prices['read']", "0")),
        "It looks as if cached tokens cost nothing there, and they have a price",
    ),
    "reading at the plain price": (
        bill(paid=PAID.replace("prices['read']", "prices['plain']")),
        "It looks as if cached tokens have the plain price there",
    ),
    "writing at the plain price": (
        bill(paid=PAID.replace("prices['write']", "prices['plain']")),
        "The prompt's figure includes what was found and what was written. Paid: .* written tokens have the plain price there",
    ),
    "writing is free": (
        bill(paid=PAID.replace("w * prices['write']", "0")),
        "It looks as if written tokens cost nothing there",
    ),
    "writing on top": (
        bill(paid=PAID.replace("- c - w)", "- c)")),
        "It looks as if written tokens stand on it twice, once at the plain price",
    ),
    "written not added": (
        bill(whole=WHOLE.replace(" + c + w", " + c")),
        "The prompt's figure leaves out both. Paid: expected",
    ),
    "the answer is free": (bill(answer=""), "It looks as if the answer costs nothing there"),
    "the answer at the plain price": (
        bill(answer=ANSWER.replace("prices['completion']", "prices['plain']")),
        "Tokens of the answer have their own price. Paid: .* the answer has the plain price there",
    ),
    "the answer of whole prompts": (
        bill(answer=ANSWER.replace("usage['completion'] *", "(usage['completion'] if c else 0) *")),
        "One of many bills|of all of them|None, which is 0|Paid",
    ),
    "figures always there": (
        bill(figures="        c, w = usage['cached'], usage['written']\n"),
        "stopped with KeyError",
    ),
    "None is a figure": (
        bill(figures="        c, w = usage.get('cached', 0), usage.get('written', 0)\n"),
        "stopped with TypeError",
    ),
    "such requests passed over": (
        bill(figures="        if not (usage.get('cached') or usage.get('written')):\n            continue\n" + FIGURES),
        "includes what was found. Paid: expected",
    ),
    "not there, so not counted": (
        bill(figures="        if 'cached' not in usage:\n            continue\n" + FIGURES),
        "'cached' is not there, which is 0. Paid: expected .*; got 0.000000",
    ),
    "None, so not counted": (
        bill(figures="        if usage.get('written', 0) is None:\n            continue\n" + FIGURES),
        "'written' is None, which is 0. Paid",
    ),
    "the same twice": (
        bill(end="    return paid / 1e6, paid / 1e6"),
        "every token of the prompt has the plain price. Without a cache: .* it is what was paid with the cache",
    ),
    "the two exchanged": (
        bill(end="    return without / 1e6, paid / 1e6"),
        "It looks as if the two are the other way round|cached tokens have the plain price there",
    ),
    "without what was found": (
        bill(without="        without += (whole - c) * prices['plain']\n"),
        "Without a cache: .* It looks as if cached tokens are missing there",
    ),
    "without writes what it wrote": (
        bill(without="        without += (whole - w) * prices['plain'] + w * prices['write']\n"),
        "Without a cache: .* It looks as if written tokens have the price of writing there",
    ),
    "without an answer": (
        bill(answer=ANSWER.split("        without")[0]),
        "Without a cache: .* It looks as if the answer costs nothing there",
    ),
    "the prompt's figure without": (
        bill(without="        without += usage['prompt'] * prices['plain']\n"),
        "Without a cache: expected",
    ),
    "never more than without": (
        bill(end="    return min(paid, without) / 1e6, without / 1e6"),
        "written tokens have the plain price there|Paid: expected",
    ),
    "the last request": (
        bill(paid="        paid = without = 0\n" + PAID),
        "The log has 3 requests, and a bill is about all of them. Paid: .* It looks as if it is about the last request alone",
    ),
    "the first request": (
        bill(answer=ANSWER + "        break\n"),
        "It looks as if it is about the first request alone",
    ),
    "the mean": (
        bill(end="    return paid / len(log) / 1e6, without / len(log) / 1e6"),
        "a bill is about all of them. Paid: expected",
    ),
    "an empty log": (
        bill(end="    return (paid / 1e6, without / 1e6) if whole else (0, 0)"),
        "stopped with UnboundLocalError",
    ),
    "figures filled in": (
        bill(figures="        for name in ('cached', 'written'):\n            usage[name] = usage.get(name) or 0\n" + FIGURES),
        "log was .* Looking changes nothing",
    ),
    "prices changed": (
        bill(end="    prices['plain'] /= 1e6\n" + MILLION),
        "prices was .* Looking changes nothing",
    ),
    "reading is a tenth": (
        bill(paid=PAID.replace("prices['read']", "prices['plain'] / 8")),
        r"One of many bills|requests .*Paid",
    ),
}

MUTANTS = {"13.1": DIFFERENCES, "13.2": LAYOUTS, "13.3": CACHEDS, "13.4": BILLS}

FAIR = {
    "13.1": {
        "step by step": difference(),
        "one character after another": DIFFERENCE + "    ours = [one.get('tools') or []] + one['messages']\n"
        "    theirs = [other.get('tools') or []] + other['messages']\n"
        "    for part in range(min(len(ours), len(theirs))):\n"
        "        a, b = text(ours[part]), text(theirs[part])\n        n = 0\n"
        "        while n < len(a) and n < len(b) and a[n] == b[n]:\n            n += 1\n"
        "        if n < len(a) or n < len(b):\n            start = n - 8 if n > 8 else 0\n"
        "            return (part, n, a[start : n + 12], b[start : n + 12])\n",
        "texts first": DIFFERENCE + "    def texts(body):\n        yield text(body['tools'] if 'tools' in body else [])\n"
        "        yield from map(text, body['messages'])\n\n"
        "    for part, (a, b) in enumerate(zip(texts(one), texts(other))):\n        if a == b:\n            continue\n"
        "        n = common(a, b)\n        around = slice(n - min(n, 8), n + 12)\n"
        "        return part, n, a[around], b[around]\n",
    },
    "13.2": {
        "step by step": layout(),
        "built up": LAYOUT
        + WORTH
        + "    orders = [[]]\n    for _ in log[0]:\n        orders = [[*order, name] for order in orders for name in log[0]\n"
        "                  if name not in order and all(b != name or a in order for a, b in before)]\n"
        "    best = orders[0]\n    for order in orders[1:]:\n        if worth(order) > worth(best):\n            best = order\n"
        "    return best",
        "the last of the best": LAYOUT + "    import itertools\n    import os\n\n    most, best = -1, None\n"
        "    for order in itertools.permutations(sorted(log[0], reverse=True)):\n"
        "        place = {name: n for n, name in enumerate(order)}\n"
        "        if any(place[a] > place[b] for a, b in before):\n            continue\n"
        "        seen, total = [], 0\n        for request in log:\n"
        "            prompt = ''.join([request[name] for name in order])\n"
        "            total += max([len(os.path.commonprefix([prompt, q])) for q in seen] or [0])\n"
        "            seen.append(prompt)\n        if total >= most:\n            most, best = total, list(order)\n"
        "    return best",
    },
    "13.3": {
        "step by step": cached(),
        "starts and when they were used": CACHED + "    used, counts = {}, []\n    for now, ids in log:\n        n = 0\n"
        "        while n < len(ids) - 1:\n            start = tuple(ids[: n + 1])\n"
        "            if start not in used or used[start] < now - rules['lifetime']:\n                break\n"
        "            n += 1\n"
        "        for m in range(len(ids)):\n            used[tuple(ids[: m + 1])] = now\n"
        "        counts.append(0 if n < rules['minimum'] else n - n % rules['step'])\n    return counts",
        "a comprehension": CACHED + "    def found(i):\n        now, ids = log[i]\n"
        "        n = max([common(ids[:-1], q) for then, q in log[:i] if then >= now - rules['lifetime']] + [0])\n"
        "        return (n >= rules['minimum']) * (n // rules['step']) * rules['step']\n\n"
        "    return [found(i) for i in range(len(log))]",
    },
    "13.4": {
        "step by step": bill(),
        "class by class": BILL
        + "    plain = cached = written = answers = 0\n    for one in log:\n        c = one.get('cached') or 0\n"
        "        w = one.get('written') or 0\n        plain += one['prompt'] - (c + w if prices['included'] else 0)\n"
        "        cached, written, answers = cached + c, written + w, answers + one['completion']\n"
        "    fixed = answers * prices['completion']\n"
        "    paid = plain * prices['plain'] + cached * prices['read'] + written * prices['write'] + fixed\n"
        "    return paid / 10**6, ((plain + cached + written) * prices['plain'] + fixed) / 10**6",
        "what is saved": BILL + "    without = saved = 0.0\n    for one in log:\n"
        "        c, w = (one.get(name) if one.get(name) is not None else 0 for name in ('cached', 'written'))\n"
        "        n = one['prompt'] + (0 if prices['included'] else c + w)\n"
        "        without += (n * prices['plain'] + one['completion'] * prices['completion']) / 1_000_000\n"
        "        saved += (c * (prices['plain'] - prices['read']) - w * (prices['write'] - prices['plain'])) / 1_000_000\n"
        "    return without - saved, without",
    },
}

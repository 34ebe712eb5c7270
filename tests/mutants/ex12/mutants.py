"""Exercise 12: wrong answers that learners would give, and what the check says to each; and right ones written otherwise.

MUTANTS[task][name] = (the answer's source, a regular expression that its message matches). FAIR[task][name] = source. Data
alone: nothing runs here.
"""

LEDGER = "def my_ledger(requests):\n"
FORECAST = "def my_forecast(fixed, answer, result, n):\n"
CROP = "def my_crop(parts, limit):\n"
COMPACT = "def my_compact(parts, limit, summarise):\n"

STOP = "min(len(held), len(prompt) - 1)"
COUNT = f"        while cached < {STOP} and held[cached] == prompt[cached]:\n            cached += 1\n"
HELD = "        held = prompt + answer[:-1]\n"
SUMS = "    totals = {k: sum(turn[k] for turn in turns) for k in ('prompt', 'cached', 'computed', 'completion')}\n"
NOW = "    totals['occupancy'] = turns[-1]['occupancy'] if turns else 0\n"


def ledger(
    count: str = COUNT,
    held: str = HELD,
    computed: str = "len(prompt) - cached",
    completion: str = "len(answer)",
    occupancy: str = "len(prompt) + len(answer)",
    sums: str = SUMS,
    now: str = NOW,
    first: str = "    turns, held = [], []\n",
    end: str = "    return turns, totals",
) -> str:
    return (
        f"{LEDGER}{first}    for prompt, answer in requests:\n        cached = 0\n{count}"
        f"        turns.append({{'prompt': len(prompt), 'cached': cached, 'computed': {computed},\n"
        f"                      'completion': {completion}, 'occupancy': {occupancy}}})\n{held}{sums}{now}{end}"
    )


LEDGERS = {
    "turns alone": (ledger(end="    return turns"), r"expected a pair \(turns, totals\); got a list of 1 dict"),
    "a list of two": (ledger(end="    return [turns, totals]"), r"expected a pair \(turns, totals\); got a list of 2"),
    "totals as a number": (ledger(end="    return turns, totals['prompt']"), "totals should be a dict; it is an int"),
    "no occupancy in totals": (ledger(now=""), "totals has no 'occupancy'"),
    "the number of turns, too": (ledger(now=NOW + "    totals['turns'] = len(turns)\n"), "nobody asked for, 'turns'"),
    "shares, not tokens": (
        ledger(computed="(len(prompt) - cached) / len(prompt)"),
        "'computed' of turn 1 should be an int; it is a float",
    ),
    "one turn for all": (ledger(end="    return turns[-1:], totals"), "with a turn for each request; got 1"),
    "a dict of turns": (ledger(end="    return dict(enumerate(turns, 1)), totals"), "turns being a list of dicts; got a dict"),
    "the answer not in the window": (
        ledger(occupancy="len(prompt)"),
        r"Request 1 is \[5, 3, 8\] \+ \[1, 7\]: expected 'occupancy' 5; got 3. Prompt and answer are both in the window",
    ),
    "rows for occupancy": (ledger(occupancy="len(prompt) + len(answer) - 1"), "expected 'occupancy' 5; got 4"),
    "window summed in each turn": (
        ledger(occupancy="len(prompt) + len(answer) + (turns[-1]['occupancy'] if turns else 0)"),
        "Request 2 is .* expected 'occupancy' 7; got 12",
    ),
    "answers counted as one": (ledger(completion="1"), "Request 1 is .* expected 'completion' 2; got 1"),
    "nothing cached": (ledger(count=""), "Expected 'cached' 4; got 0. The first 4 of them have rows"),
    "the prompt alone is held": (
        ledger(held="        held = list(prompt)\n"),
        r"Expected 'cached' 4; got 3. The answer went through the model, too, and its rows are kept",
    ),
    "the answer's last token has a row": (
        ledger(held="        held = prompt + answer\n"),
        r"Expected 'cached' 4; got 5. The answer's last token was chosen, but never went through the model",
    ),
    "one is cached from the start": (
        ledger(count="        cached = min(1, len(prompt) - 1)\n" + COUNT),
        "the cache is empty: expected 'cached' 0; got 1",
    ),
    "all that was there": (
        ledger(count=f"        cached = {STOP}\n"),
        r"request 2 is \[5, 9, 8, 1, 2, 7\] \+ \[4\]. Expected 'cached' 1; got 5",
    ),
    "all or nothing": (
        ledger(count="        cached = len(held) if prompt[:len(held)] == held else 0\n"),
        "Expected 'cached' 1; got 0",
    ),
    "equal places counted": (
        ledger(count="        cached = sum(a == b for a, b in zip(held, prompt[:-1]))\n"),
        r"Expected 'cached' 1; got 4. Behind the first difference every token has another text in front of it",
    ),
    "known ids counted": (
        ledger(count="        cached = sum(a in held for a in prompt[:-1])\n"),
        r"Request 1 was \[5, 3, 8, 1\] \+ \[2, 7\], request 2 is \[5, 9, .* Expected 'cached' 1; got 4",
    ),
    "the last prompt token, too": (
        ledger(count=COUNT.replace("len(prompt) - 1", "len(prompt)")),
        r"every token of its prompt has a row. But the answer's first token comes from the logits of the last one.*2; got 3",
    ),
    "out of the prompt": (
        ledger(count=COUNT.replace(STOP, "len(held)")),
        "stopped with IndexError|every token of its prompt has a row",
    ),
    "nothing where all is known": (
        ledger(
            count=COUNT + "        if len(prompt) - cached == 1 and held[:len(prompt)] == prompt:\n            cached = 0\n"
        ),
        "every token of its prompt has a row.* expected 'cached' 2; got 0",
    ),
    "everything that ever was": (
        ledger(
            first="    turns, held = [], []\n    past = []\n",
            count="        import os\n"
            "        cached = max((len(os.path.commonprefix([one, prompt[:-1]])) for one in past), default=0)\n",
            held="        past.append(prompt + answer[:-1])\n",
        ),
        "Request 2 was .* the cache holds the last request, and that began otherwise. Expected 'cached' 0; got 4",
    ),
    "the longer one stays": (
        ledger(held="        new = prompt + answer[:-1]\n        held = held if held[:len(new)] == new else new\n"),
        "and that was shorter",
    ),
    "the first request": (
        ledger(held="        held = held or prompt + answer[:-1]\n"),
        "that began otherwise. Expected 'cached' 0; got 4",
    ),
    "computed with the answer": (
        ledger(computed="len(prompt) - cached + len(answer) - 1"),
        "Each prompt token is either cached or computed: the two add up to the prompt",
    ),
    "computed is what is new to the window": (
        ledger(
            first="    turns, held, before = [], [], 0\n",
            computed="len(prompt) - before",
            held=HELD + "        before = len(prompt) + len(answer)\n",
        ),
        "Turn 2 of yours has prompt .* Each prompt token is either cached or computed",
    ),
    "the last turn for totals": (
        ledger(sums="    totals = dict(turns[-1]) if turns else dict(prompt=0, cached=0, computed=0, completion=0)\n"),
        "The turns of yours have 'prompt' .* your totals say",
    ),
    "computed of the last": (
        ledger(now=NOW + "    totals['computed'] = turns[-1]['computed'] if turns else 0\n"),
        "have 'computed' .* together .*; your totals say",
    ),
    "the total without what was cached": (
        ledger(now=NOW + "    totals['prompt'] -= totals['cached']\n"),
        "The turns of yours have 'prompt'",
    ),
    "occupancy summed": (
        ledger(now="    totals['occupancy'] = sum(turn['occupancy'] for turn in turns)\n"),
        r"the window holds . now; your totals say|That is what was processed over time; the window never held so much",
    ),
    "cumulative for the window": (
        ledger(now="    totals['occupancy'] = totals['prompt'] + totals['completion']\n"),
        "That is what was processed over time; the window never held so much",
    ),
    "the fullest moment": (
        ledger(now="    totals['occupancy'] = max((turn['occupancy'] for turn in turns), default=0)\n"),
        r"After the turns the window holds \[11, 5\] tokens: the window holds 5 now; your totals say 11",
    ),
    "no first turn": (ledger(now="    totals['occupancy'] = turns[-1]['occupancy']\n"), "stopped with IndexError"),
    "answers put behind prompts": (
        ledger(held="        prompt += answer[:-1]\n        held = prompt\n"),
        r"Request 1 was .* and is .* afterwards. Counting changes nothing",
    ),
    "requests used up": (
        ledger(end="    requests.clear()\n    return turns, totals"),
        "is gone afterwards. Counting changes nothing",
    ),
    "one cache for all agents": (
        ledger(
            first="    turns, held = [], my_ledger.__dict__.setdefault('held', [])\n",
            held="        held[:] = prompt + answer[:-1]\n",
        ),
        "Expected 'cached' 0; got|the cache is empty|something is kept between calls",
    ),
    "turns kept": (
        ledger(
            first="    turns, held = [], []\n    seen = my_ledger.__dict__.setdefault('seen', [])\n"
            "    again = requests in seen\n"
            "    seen.append([(list(p), list(a)) for p, a in requests])\n",
            end="    if again:\n        totals['prompt'] += 1\n    return turns, totals",
        ),
        "Asked the same twice, yours said .* something is kept between calls",
    ),
    "blocks of sixteen": (
        ledger(count=COUNT + "        if cached > 16:\n            cached -= cached % 16\n"),
        "one of many runs. Expected 'cached'",
    ),
}

WINDOW = "fixed + (n - 1) * (answer + result) + answer"
SENT = "n * fixed + (answer + result) * (n * (n - 1) // 2)"
COMPUTED = "fixed + (n - 1) * (1 + result)"


def forecast(window: str = WINDOW, sent: str = SENT, computed: str = COMPUTED, head: str = "") -> str:
    return f"{FORECAST}{head}    return {window}, {sent}, {computed}"


FORECASTS = {
    "a list": (f"{FORECAST}    return [{WINDOW}, {SENT}, {COMPUTED}]", "got a list of 3 int"),
    "a dict": (f"{FORECAST}    return {{'occupancy': {WINDOW}, 'sent': {SENT}}}", "got a dict"),
    "one number": (f"{FORECAST}    return {SENT}", "expected three ints .* got an int"),
    "a float": (forecast(sent=SENT.replace("//", "/")), "sent is a float. Tokens are counted in whole numbers"),
    "no answer in the window": (
        forecast(window="fixed + (n - 1) * (answer + result)"),
        r"1 step, fixed part 20, answers of 4, results of 9: .*Expected occupancy 24; got 20",
    ),
    "every result": (
        forecast(window="fixed + n * (answer + result)"),
        "Expected occupancy 24; got 33",
    ),
    "one step too many": (
        forecast(sent="(n + 1) * fixed + (answer + result) * (n * (n + 1) // 2)"),
        "Expected sent 20; got 53",
    ),
    "the first is warm": (forecast(computed="n * (1 + result)"), "Expected computed 20; got 10"),
    "the answer computed, too": (forecast(computed=COMPUTED + " + answer"), "1 step, .* Expected computed 20; got 24"),
    "results only": (
        forecast(window="fixed + (n - 1) * result + answer"),
        "3 steps.* every answer, and every result that was sent are in the window. Expected occupancy 50; got 42.$",
    ),
    "the last result, too": (
        forecast(window="fixed + n * (answer + result) if n > 1 else fixed + answer"),
        "Nobody asks after the last step, so its result is sent to nobody",
    ),
    "the last answer not": (
        forecast(window="fixed + (n - 1) * (answer + result) if n > 1 else fixed + answer"),
        "The last answer is in the window, too",
    ),
    "all that was sent in the window": (forecast(window=SENT + " if n > 1 else fixed + answer"), "Expected occupancy"),
    "the fixed part once": (
        forecast(sent="fixed + (answer + result) * (n * (n - 1) // 2)"),
        r"3 steps.*the prompts have 20, 33 and 46 tokens. Expected sent 99; got 59. Each prompt begins with the fixed part",
    ),
    "straight line": (
        forecast(sent="n * fixed + (answer + result) * (n - 1)"),
        "3 steps.*the prompts have 20, 33 and 46 tokens. Expected sent 99; got 86",
    ),
    "the window at the end": (
        forecast(sent=WINDOW + " if n > 1 else fixed"),
        "That is the window at the end. Each prompt is sent, and counts, anew",
    ),
    "the square, not its half": (
        forecast(sent="n * fixed + (answer + result) * n * (n - 1)"),
        "Expected sent 99; got 138",
    ),
    "n and not n - 1": (
        forecast(sent="n * fixed + (answer + result) * (n * n // 2) if n > 1 else fixed"),
        "Expected sent 99; got 112",
    ),
    "halved too early": (
        forecast(sent="n * fixed + (answer + result) * (n // 2) * (n - 1)"),
        "Expected sent 99; got 86",
    ),
    "answers only": (forecast(sent="n * fixed + answer * (n * (n - 1) // 2)"), "Expected sent 99; got 72"),
    "the answer's last has a row": (
        forecast(computed="fixed + (n - 1) * result"),
        "An answer's last token has no row when it is answered",
    ),
    "answers computed as prompts": (
        forecast(computed="fixed + (n - 1) * (answer + result)"),
        "An answer's tokens went through the model as they were written, but for its last",
    ),
    "nothing cached": (forecast(computed=SENT), "That is every token that was sent: nothing would be cached"),
    "the fixed part cold": (forecast(computed="n * fixed + (n - 1) * (1 + result)"), "Expected computed 40; got 80"),
    "through a float": (
        forecast(sent="int(n * fixed + (answer + result) * n * (n - 1) / 2)"),
        "1001 steps.* expected sent .* Whole numbers stay exact if nothing in between is a float",
    ),
    "floor of a float": (
        forecast(sent="n * fixed + int((answer + result) * (n * (n - 1) / 2.0))"),
        "Whole numbers stay exact",
    ),
    "an answer of one has its row": (
        forecast(computed="fixed + (n - 1) * ((answer > 1) + result)"),
        "answers of 1, results of 1: one of many agents. Expected computed 15; got 11",
    ),
    "no short results": (
        forecast(head="    result = max(result, 5)\n"),
        "answers of 1, results of 1: one of many agents|Expected occupancy",
    ),
}

ROLES = "('system', 'task')"
STEPS = f"    steps = sorted({{p[1] for p in parts if p[0] not in {ROLES}}})\n"
WHILE = "    while sum(len(p[2]) for p in parts) > limit:\n"
NONE = "        if len(steps) < 2:\n            return None\n"
OLDEST = "        oldest = steps.pop(0)\n"
DROP = f"        parts = [p for p in parts if p[0] in {ROLES} or p[1] != oldest]\n"
PARTS = "    return parts"


def crop(
    steps: str = STEPS, loop: str = WHILE, none: str = NONE, oldest: str = OLDEST, drop: str = DROP, end: str = PARTS
) -> str:
    return f"{CROP}{steps}{loop}{none}{oldest}{drop}{end}"


CROPS = {
    "nothing returned": (crop(end="    return"), "there is room. Expected system 5, task 2, .* got None"),
    "ids": (
        crop(end="    return [id for p in parts for id in p[2]]"),
        r"a part is a tuple \(role, step, ids\); one of yours is an int",
    ),
    "ids alone, by part": (crop(end="    return [p[2] for p in parts]"), "one of yours is a list of 5 int"),
    "a tuple of parts": (crop(end="    return tuple(parts)"), "expected a list of parts; got a tuple of 6 tuple"),
    "lists for parts": (crop(end="    return [list(p) for p in parts]"), "one of yours is a list of 3 str and int and list"),
    "role and ids": (crop(end="    return [(p[0], p[2]) for p in parts]"), "one of yours is a tuple of 2 str and list"),
    "numbers of tokens": (crop(end="    return [(p[0], p[1], len(p[2])) for p in parts]"), "are an int"),
    "always one step": (
        crop(loop="    for _ in range(1):\n", none="        if len(steps) < 2:\n            break\n"),
        r"there is room. Expected system 5, task 2, step 1: 4 \+ 6, step 2: .* got system 5, task 2, step 2",
    ),
    "room for one more": (
        crop(loop=WHILE.replace("> limit", ">= limit")),
        "exactly as many as the window takes. Expected system 5, task 2, step 1",
    ),
    "no step, no window": (
        crop(steps=STEPS + "    if not steps:\n        return None\n"),
        "exactly as many as the window takes. Expected system 5, task 2; got None",
    ),
    "the newest goes": (
        crop(oldest="        oldest = steps.pop(-1)\n"),
        "one step has to go, and the oldest goes first. Expected .*step 2: 4 .*step 4: 4 .*got .*step 1: 4",
    ),
    "always step 1": (
        crop(steps="    steps = [1, 2]\n", none="        if not steps:\n            return None\n"),
        "one step has to go, and the oldest goes first|Expected .*; got None",
    ),
    "the largest goes": (
        crop(
            oldest="        oldest = max(steps[:-1], key=lambda s: sum(len(p[2]) for p in parts if p[1] == s))\n"
            "        steps.remove(oldest)\n"
        ),
        "one step has to go: the oldest, though it is not the largest",
    ),
    "everything that is old": (
        crop(
            oldest="        oldest = steps[0]\n        del steps[:-1]\n",
            drop=DROP.replace("p[1] != oldest", "p[1] == steps[-1]"),
        ),
        "one step has to go, and the oldest goes first. Expected .* got system 5, task 2, step 4: 4 . 6",
    ),
    "turned round": (crop(end="    return parts[:2] + parts[:1:-1]"), "in the same order, each once"),
    "part by part": (
        crop(
            drop=f"        first = next(p for p in parts if p[0] not in {ROLES})\n"
            "        parts = [p for p in parts if p is not first]\n        if any(p[1] == oldest for p in parts):\n"
            "            steps.insert(0, oldest)\n"
        ),
        r"got system 5, task 2, step 1: 6, step 2.* Of step 1 a part is gone, and a part is left",
    ),
    "results only": (
        crop(drop="        parts = [p for p in parts if p[0] != 'tool' or p[1] != oldest]\n"),
        "got system 5, task 2, step 1: 4, step 2.* Of step 1 a part is gone, and a part is left",
    ),
    "two parts a step": (
        crop(
            drop=f"        i = next(i for i, p in enumerate(parts) if p[0] not in {ROLES})\n"
            "        parts = parts[:i] + parts[i + 2 :]\n"
        ),
        r"step 1: 4 \+ 9 \+ 3 \+ 9.* Of step 1 a part is gone, and a part is left",
    ),
    "a step cut short": (
        crop(
            drop="        over = sum(len(p[2]) for p in parts) - limit\n"
            "        last = [p for p in parts if p[1] == oldest][-1]\n"
            f"        parts = [p for p in parts if p[0] in {ROLES} or p[1] != oldest or (p is last and over < 6)]\n"
            "        parts = [(p[0], p[1], p[2][over:]) if p is last else p for p in parts]\n"
        ),
        "Its parts are to be those of the window, in the same order, each once",
    ),
    "the first two stay": (
        crop(drop="        parts = parts[:2] + [p for p in parts[2:] if p[1] and p[1] != oldest]\n"),
        "Of step 1 a part is gone, and a part is left",
    ),
    "the system goes first": (
        CROP + "    parts = list(parts)\n    while sum(len(p[2]) for p in parts) > limit:\n"
        "        gone = parts[0][1]\n        parts = [p for p in parts if p[1] != gone]\n    return parts",
        "A part of what is fixed is gone",
    ),
    "only the system stays": (
        crop(
            steps="    steps = sorted({p[1] for p in parts if p[0] != 'system'})\n",
            drop="        parts = [p for p in parts if p[0] == 'system' or p[1] != oldest]\n",
        ),
        "A part of what is fixed is gone",
    ),
    "a late task moved to the front": (
        crop(end=f"    return [p for p in parts if p[0] in {ROLES}] + [p for p in parts if p[0] not in {ROLES}]"),
        "a task that came later stays, too, in its place. .* in the same order",
    ),
    "a late task forgotten": (
        crop(
            end="    seen = False\n    out = []\n    for p in parts:\n        seen = seen or p[1] > 0\n"
            "        if not (seen and p[0] == 'task'):\n            out.append(p)\n    return out"
        ),
        "A part of what is fixed is gone",
    ),
    "one round": (
        crop(loop=WHILE.replace("while", "if")),
        "the first 2 steps have to go.* That is .* tokens",
    ),
    "parts counted": (
        crop(loop="    while len(parts) > limit:\n"),
        "That is .* tokens",
    ),
    "no room for the fixed part": (
        crop(loop=f"    while sum(len(p[2]) for p in parts if p[0] not in {ROLES}) > limit:\n"),
        "That is .* tokens",
    ),
    "a tenth to spare": (
        crop(loop=WHILE.replace("> limit", "> 0.9 * limit")),
        "Expected .* got ",
    ),
    "as soon as one step more fits": (
        CROP + STEPS + "    if sum(len(p[2]) for p in parts) <= limit:\n        return parts\n"
        "    over = sum(len(p[2]) for p in parts) - limit\n    if len(steps) < 2:\n        return None\n"
        "    one = sum(len(p[2]) for p in parts if p[1] == steps[0])\n"
        "    gone = max(1, over // one + (over % one > 0))\n    if gone >= len(steps):\n        return None\n"
        f"    return [p for p in parts if p[0] in {ROLES} or p[1] >= steps[gone]]",
        "the first . steps have to go",
    ),
    "the latest goes, too": (
        crop(none="        if not steps:\n            return None\n"),
        "without the latest step there is nothing to answer. Expected None; got system 5, task 2",
    ),
    "too much, sent all the same": (
        crop(none="        if len(steps) < 2:\n            return parts\n"),
        "Expected None; got system 5, task 2, step 4",
    ),
    "an empty window": (crop(none="        if len(steps) < 2:\n            return []\n"), "Expected None; got nothing"),
    "the steps run out": (crop(none=""), "there is nothing to answer. Expected None; got system 5, task 2"),
    "None for the latest alone": (
        crop(none="        if len(steps) < 3:\n            return None\n"),
        "step 1 has to go, as a whole.* got None",
    ),
    "deleted in place": (
        crop(drop=f"        parts[:] = [p for p in parts if p[0] in {ROLES} or p[1] != oldest]\n"),
        r"parts\[2\] was \('assistant', 1\) .* and is \('assistant', 2\).* The window is the caller's",
    ),
    "popped": (
        crop(
            drop=f"        for p in [p for p in parts if p[0] not in {ROLES} and p[1] == oldest]:\n"
            "            parts.remove(p)\n"
        ),
        "The window is the caller's",
    ),
    "numbers without a gap": (
        crop(steps=STEPS + "    steps = list(range(steps[0], steps[0] + len(steps))) if steps else []\n"),
        "one of many windows",
    ),
}

LATEST = "    latest = max(p[1] for p in parts)\n"
FRONT = f"    front = [p for p in parts if p[0] in {ROLES}]\n"
STAY = "    stay = [p for p in parts if p not in front and p[1] == latest]\n"
GOING = "    going = [p for p in parts if p not in front and p[1] != latest]\n"
ROOM = "    if sum(len(p[2]) for p in parts) <= limit or not going:\n        return parts\n"
NEW = "    return front + [('summary', 0, summarise(going))] + stay"


def compact(
    front: str = FRONT, stay: str = STAY, going: str = GOING, room: str = ROOM, new: str = NEW, latest: str = LATEST
) -> str:
    return f"{COMPACT}{latest}{front}{stay}{going}{room}{new}"


COMPACTS = {
    "nothing returned": (compact(new=NEW.replace("return ", "")), "expected a list of parts; got None"),
    "nothing, where three things are too many": (
        compact(new=NEW.replace("return ", "new = ") + "\n    return new if sum(len(p[2]) for p in new) <= limit else None"),
        "expected a list of parts; got None",
    ),
    "the latest step cut to the limit": (
        compact(
            new=NEW.replace("return ", "new = ") + "\n    while sum(len(p[2]) for p in new) > limit:\n        new.pop()"
            "\n    return new"
        ),
        "behind the summary stands the latest step",
    ),
    "ids": (
        compact(new=NEW.replace("return ", "new = ") + "\n    return [id for p in new for id in p[2]]"),
        r"a part is a tuple \(role, step, ids\); one of yours is an int",
    ),
    "the summary's ids for a part": (
        compact(new="    return front + [summarise(going)] + stay"),
        "one of yours is a list of 3 int",
    ),
    "a text for the summary": (compact(new="    return front + [('summary', 0, 'a summary')] + stay"), "are a str"),
    "no step": (compact(new="    return front + [('summary', summarise(going))] + stay"), "one of yours is a tuple of 2"),
    "ids for summarise": (
        compact(new=NEW.replace("summarise(going)", "summarise([id for p in going for id in p[2]])")),
        "What you gave summarise: a part is a tuple .* one of yours is an int",
    ),
    "one part after another": (
        compact(new="    return front + [('summary', 0, [id for p in going for id in summarise(p)])] + stay"),
        "What you gave summarise: expected a list of parts; got a tuple",
    ),
    "always": (
        compact(room="    if not going:\n        return parts\n"),
        "there is room, so nothing changes; got .* tokens are no longer warm",
    ),
    "below the limit only": (compact(room=ROOM.replace("<=", "<")), "there is room, so nothing changes"),
    "four fifths of it": (compact(room=ROOM.replace("limit", "0.8 * limit")), "there is room, so nothing changes"),
    "summary made for nothing": (
        compact(room="    made = summarise(going) if going else []\n" + ROOM, new=NEW.replace("summarise(going)", "made")),
        "nothing is summarised; yours called summarise. Each call is one of a model",
    ),
    "the summary first": (
        compact(new="    return [('summary', 0, summarise(going))] + front + stay"),
        r"The 7 tokens of system and task stand in front, and have their rows; yours is summary 3, .*first 0 are the same",
    ),
    "into the system part": (
        compact(new="    system = ('system', 0, summarise(going) + front[0][2])\n    return [system] + front[1:] + stay"),
        "only the first 0 are the same",
    ),
    "behind the system part": (
        compact(new="    return front[:1] + [('summary', 0, summarise(going))] + front[1:] + stay"),
        "only the first 5 are the same: the rest is lost",
    ),
    "the task summarised": (
        compact(front="    front = [p for p in parts if p[0] == 'system']\n"),
        "only the first 5 are the same",
    ),
    "the front in one part": (
        compact(new="    front = [('system', 0, [id for p in front for id in p[2]])]\n" + NEW),
        "Their parts stay as they are; yours begins with",
    ),
    "task before system": (
        compact(front=FRONT + "    front = front[::-1]\n"),
        "the first 0 are the same",
    ),
    "never": (compact(room="    return parts\n"), "more than the limit, but summarise was never called"),
    "no summary": (compact(new="    return front + stay"), "more than the limit, but summarise was never called"),
    "the summary at the end": (
        compact(new="    return front + stay + [('summary', 0, summarise(going))]"),
        r"the summary comes right behind the front, at parts\[2\]; yours is .*summary 3",
    ),
    "a summary for each step": (
        compact(
            new="    each = [('summary', 0, summarise([p for p in going if p[1] == s]))\n"
            "            for s in sorted({p[1] for p in going})]\n"
            "    return front + each + stay"
        ),
        "one part should be a summary; yours is .* and 2 of its parts are",
    ),
    "with the latest step's number": (
        compact(new=NEW.replace("'summary', 0", "'summary', latest")),
        r"expected \('summary', 0, .* as summarise made it; got \('summary', 3",
    ),
    "another role": (compact(new=NEW.replace("'summary'", "'assistant'")), "one part should be a summary"),
    "one id of the summary": (compact(new=NEW.replace("(going)", "(going)[:1]")), "as summarise made it; got"),
    "all steps go": (
        compact(stay="    stay = []\n", going="    going = [p for p in parts if p not in front]\n"),
        "behind the summary stands the latest step, with every part of it, .* Expected step 9: 4 . 6 there; got nothing",
    ),
    "the last part": (
        compact(stay="    stay = parts[-1:]\n", going="    going = [p for p in parts if p not in front and p not in stay]\n"),
        "behind the summary stands the latest step, with every part of it",
    ),
    "the last two parts": (
        compact(stay="    stay = parts[-2:]\n", going="    going = parts[len(front):-2]\n"),
        r"Expected step 9: 4 \+ 6 \+ 3 \+ 6 there; got step 9: 3 \+ 6",
    ),
    "two steps stay": (
        compact(
            latest=LATEST + "    latest = sorted({p[1] for p in parts})[-2]\n",
            stay=STAY.replace("==", ">="),
            going=GOING.replace("!=", "<"),
        ),
        "behind the summary stands the latest step, with every part of it, and no other",
    ),
    "the latest summarised, too": (
        compact(going="    going = [p for p in parts if p not in front]\n"),
        "and summarise is given that; yours gave it step 1: .*, step 2",
    ),
    "answers only": (
        compact(going=GOING.replace("p[1] != latest", "p[1] != latest and p[0] == 'assistant'")),
        "and summarise is given that; yours gave it step 1: 4",
    ),
    "the front, too": (
        compact(
            going="    going = [p for p in parts if p[1] != latest]\n",
            room=ROOM.replace("not going", "len(going) == len(front)"),
        ),
        "and summarise is given that; yours gave it system 5, task 2, step 1",
    ),
    "newest first": (
        compact(new=NEW.replace("summarise(going)", "summarise(going[::-1])")),
        "and summarise is given that; yours gave it step",
    ),
    "asked twice": (
        compact(room=ROOM + "    first = summarise(going)\n", new=NEW),
        "in one call of summarise; yours called it 2 times",
    ),
    "the oldest step": (
        compact(
            going="    oldest = min((p[1] for p in parts if p not in front), default=0)\n"
            "    going = [p for p in parts if p not in front and p[1] == oldest != latest]\n"
        ),
        r"what goes is step 1: 4 . ., step 2: 4 . ., and summarise is given that; yours gave it step 1",
    ),
    "old summaries stay": (
        compact(front="    front = [p for p in parts if p[0] in ('system', 'task', 'summary')]\n"),
        "an older summary stands there, and goes into the new one; yours is .* with 2 summaries",
    ),
    "old summaries forgotten": (
        compact(going="    going = [p for p in parts if p not in front and 0 < p[1] < latest]\n"),
        "What goes is summary 3, step 1.*What is in neither is forgotten",
    ),
    "the old summary again": (
        compact(
            room=ROOM + "    old = [p for p in going if p[0] == 'summary']\n    if old:\n        return front + old + stay\n"
        ),
        "an older summary stands there.*yours gave summarise nothing. What is in neither is forgotten",
    ),
    "a summary of nothing": (
        compact(room=ROOM.replace(" or not going", "")),
        "You gave summarise an empty list: a summary of nothing",
    ),
    "an empty summary": (
        compact(
            room=ROOM.replace(" or not going", ""),
            new="    return front + [('summary', 0, summarise(going) if going else [])] + stay",
        ),
        "there is nothing that could be summarised. Expected the parts as they are; got",
    ),
    "at least one step": (
        compact(latest="    latest = max(p[1] for p in parts if p[1])\n"),
        "stopped with ValueError",
    ),
    "popped": (
        compact(room=ROOM + "    for p in going:\n        parts.remove(p)\n"),
        r"parts\[2\] was \('assistant', 1\) .* The window is the caller's: make another list",
    ),
    "put in place": (
        compact(new="    parts[len(front):len(front) + len(going)] = [('summary', 0, summarise(going))]\n    return parts"),
        "The window is the caller's",
    ),
    "the summary remembered": (
        compact(
            new="    made = my_compact.__dict__.setdefault('made', {})\n    size = len(going)\n"
            "    made[size] = made.get(size) or summarise(going)\n    return front + [('summary', 0, made[size])] + stay"
        ),
        "more than the limit, but summarise was never called",
    ),
    "a count of compactions in the system part": (
        compact(
            front=FRONT + "    again = any(p[0] == 'summary' for p in parts)\n",
            new="    if again:\n        front = [('system', 0, [1] + front[0][2])] + front[1:]\n" + NEW,
        ),
        "Step .* of a long run.* The 13 tokens in front are no longer warm",
    ),
}

MUTANTS = {"12.1": LEDGERS, "12.2": FORECASTS, "12.3": CROPS, "12.4": COMPACTS}

FAIR = {
    "12.1": {
        "step by step": ledger(),
        "zip and break": LEDGER
        + "    turns, held = [], []\n    totals = dict(prompt=0, cached=0, computed=0, completion=0, occupancy=0)\n"
        "    for prompt, answer in requests:\n        n = 0\n        for a, b in zip(held, prompt[:-1]):\n"
        "            if a != b:\n                break\n            n += 1\n"
        "        turn = dict(prompt=len(prompt), cached=n, computed=len(prompt) - n, completion=len(answer))\n"
        "        for name in turn:\n            totals[name] += turn[name]\n"
        "        turn['occupancy'] = totals['occupancy'] = len(prompt + answer)\n        turns.append(turn)\n"
        "        held = (prompt + answer)[:-1]\n    return turns, totals",
        "commonprefix over pairs": "import os\n\n"
        + LEDGER
        + "    rows = [[]] + [[*prompt, *answer][:-1] for prompt, answer in requests]\n    turns = []\n"
        "    for held, (prompt, answer) in zip(rows, requests):\n"
        "        cached = len(os.path.commonprefix([held, prompt[:-1]]))\n"
        "        turns.append({'occupancy': len(prompt) + len(answer), 'completion': len(answer), 'prompt': len(prompt),\n"
        "                      'cached': cached, 'computed': len(prompt[cached:])})\n"
        "    now = {'occupancy': 0} | (turns[-1] if turns else {})\n"
        "    names = ['prompt', 'cached', 'computed', 'completion']\n"
        "    return turns, {n: sum(t[n] for t in turns) for n in names} | {'occupancy': now['occupancy']}",
    },
    "12.2": {
        "formulas": forecast(),
        "a loop": FORECAST + "    window, sent, computed = fixed, 0, 0\n    for step in range(n):\n        sent += window\n"
        "        computed += result + 1 if step else fixed\n        window += answer + result\n"
        "    return window - result, sent, computed",
        "sums": FORECAST + "    prompts = [fixed + i * (answer + result) for i in range(n)]\n"
        "    known = [0] + [p + answer - 1 for p in prompts[:-1]]\n"
        "    return prompts[-1] + answer, sum(prompts), sum(p - k for p, k in zip(prompts, known))",
    },
    "12.3": {
        "step by step": crop(),
        "from the newest back": CROP
        + "    room = limit - sum(len(ids) for role, _, ids in parts if role in ('system', 'task'))\n"
        "    numbers = sorted({step for role, step, _ in parts if role not in ('system', 'task')}, reverse=True)\n"
        "    keep = set()\n    for step in numbers:\n"
        "        room -= sum(len(ids) for _, s, ids in parts if s == step)\n        if room < 0:\n            break\n"
        "        keep.add(step)\n    if (numbers and not keep) or (not numbers and room < 0):\n        return None\n"
        "    return [part for part in parts if part[0] in ('system', 'task') or part[1] in keep]",
        "numbers counted up": crop(steps="    steps = list(range(1, max(p[1] for p in parts) + 1))\n"),
        "every cut tried": CROP + "    steps = sorted({p[1] for p in parts if p[1] > 0}) or [0]\n    for first in steps:\n"
        "        left = [(role, step, list(ids)) for role, step, ids in parts if step == 0 or step >= first]\n"
        "        if sum(map(len, (ids for _, _, ids in left))) <= limit:\n            return left\n    return None",
    },
    "12.4": {
        "step by step": compact(),
        "by place": COMPACT
        + "    if sum(len(ids) for _, _, ids in parts) <= limit:\n        return list(parts)\n    start = 0\n"
        "    while start < len(parts) and parts[start][0] in ('system', 'task'):\n        start += 1\n"
        "    stop = len(parts)\n    while stop > start and parts[stop - 1][1] == parts[-1][1]:\n        stop -= 1\n"
        "    if start == stop:\n        return parts[:]\n"
        "    return [*parts[:start], ('summary', 0, summarise(parts[start:stop])), *parts[stop:]]",
        "three heaps in a loop": COMPACT
        + "    total, last, heaps = 0, parts[-1][1], ([], [], [])\n    for role, step, ids in parts:\n"
        "        total += len(ids)\n        place = 0 if role in ('system', 'task') else 2 if step == last else 1\n"
        "        heaps[place].append((role, step, ids))\n    front, old, latest = heaps\n"
        "    if total > limit and old:\n        old = [('summary', 0, list(summarise(old)))]\n"
        "    return front + old + latest",
    },
}

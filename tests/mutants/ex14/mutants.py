"""Exercise 14: wrong answers that learners would give, and what the check says to each; and right ones written otherwise.

MUTANTS[task][name] = (the answer's source, a regular expression that its message matches). FAIR[task][name] = source. Data
alone: nothing runs here.
"""

DIAGNOSIS = "def my_diagnosis(charts):\n"
EQUAL = "def my_equal(model, new, ids):\n"
CUT = "def my_cut(model, new, truncate, ids, others):\n"
FORKS = "def my_forks(model, new, fork, ids, one, two):\n"

# 14.1

DTYPE = "single == 'nearly equal': key = 'dtype'"
POSITIONS = "single == 'off from 1': key = 'positions'"
LAYERS = "single != 'equal': key = 'layers'"
MASK = "several != 'equal': key = 'mask'"
UNUSED = "computed > 12: key = 'unused'"


def diagnosis(*rules: str, otherwise: str = "None", before: str = "", end: str = "    return found\n") -> str:
    """The first rule that holds gives the key."""
    lines = "".join(f"        {'if' if not place else 'elif'} {rule}\n" for place, rule in enumerate(rules))
    return (
        f"{DIAGNOSIS}    found = {{}}\n{before}    for room, chart in charts.items():\n"
        "        single, several = chart['one token at a time'], chart['4 tokens at a time']\n"
        "        computed = chart['tokens computed for 12, one at a time']\n"
        f"{lines}        else: key = {otherwise}\n        found[room] = key\n{end}"
    )


def by_heart() -> str:
    """What each of the zoo's charts begins with, learned off; whatever is not there is well."""
    lines = {
        ("equal", "equal", "off from 4", 12): "mask",
        ("off from 0", "equal", "off from 0", 12): "mask",
        ("equal", "off from 1", "off from 4", 12): "positions",
        ("equal", "off from 4", "off from 4", 12): "layers",
        ("equal", "off from 2", "off from 4", 12): "layers",
        ("nearly equal", "nearly equal", "nearly equal", 12): "dtype",
        ("equal", "equal", "equal", 78): "unused",
    }
    named = "{room: table.get(tuple(chart.values())[:4]) for room, chart in charts.items()}"
    return f"{DIAGNOSIS}    table = {lines}\n    return {named}\n"


RULES = (DTYPE, POSITIONS, LAYERS, MASK, UNUSED)

DIAGNOSES = {
    "nothing returned": (diagnosis(*RULES, end=""), "A dict is wanted.* got None"),
    "a list": (diagnosis(*RULES, end="    return list(found.values())\n"), "A dict is wanted.* got a list"),
    "the sick only": (
        diagnosis(*RULES, end="    return {room: key for room, key in found.items() if key in ('mask', 'dtype')}\n"),
        "charts has room .* what came back has .*Every one is named",
    ),
    "words of one's own": (
        diagnosis(DTYPE, POSITIONS, LAYERS, MASK.replace("'mask'", "'square mask'"), UNUSED),
        "The keys are mask, positions, layers, dtype, unused and None; yours has 'square mask'",
    ),
    "the rooms of the notebook": (
        DIAGNOSIS + "    return {'room 1': None, 'room 2': 'unused', 'room 3': 'layers'}\n",
        "what came back has room 1, room 2, room 3",
    ),
    "everybody is ill": (diagnosis(*RULES, otherwise="'unused'"), "every line is right. Expected None; got 'unused'"),
    "whoever has a limit": (
        diagnosis("chart['one token more than its capacity'] != 'stops: CacheFull': key = 'unused'", *RULES),
        "every line is right. Expected None; got 'unused'",
    ),
    "half a word for well": (diagnosis(*RULES, otherwise="''"), "yours has ''"),
    "masks that hide the past": (
        diagnosis(DTYPE, POSITIONS, LAYERS, "chart['a change of token 0 shows at token 4'] == 'no': key = 'mask'", UNUSED),
        "4 tokens at a time: off from .* Expected 'mask'; got None",
    ),
    "masks that are right in one pass": (
        diagnosis(DTYPE, POSITIONS, LAYERS, "several == 'off from 4' and chart['one pass'] == 'equal': key = 'mask'", UNUSED),
        r"one pass: off from \d+.* Expected 'mask'; got None",
    ),
    "masks first": (
        diagnosis(MASK, DTYPE, POSITIONS, LAYERS, UNUSED),
        "one token at a time: off from 1.* Expected 'positions'",
    ),
    "all that is off in single steps is layers": (
        diagnosis(DTYPE, LAYERS, MASK, UNUSED),
        "Expected 'positions'; got 'layers'",
    ),
    "positions, wherever they begin": (
        diagnosis(DTYPE, "single != 'equal': key = 'positions'", MASK, UNUSED),
        r"one token at a time: off from \d+.* Expected 'layers'; got 'positions'",
    ),
    "layers from token 4 on": (
        diagnosis(DTYPE, POSITIONS, "single == 'off from 4': key = 'layers'", MASK, UNUSED),
        r"one token at a time: off from \d+.* Expected 'layers'; got 'mask'",
    ),
    "layers at the tokens of the zoo": (
        diagnosis(DTYPE, POSITIONS, "single in ('off from 2', 'off from 4', 'off from 8'): key = 'layers'", MASK, UNUSED),
        r"one token at a time: off from \d+.* Expected 'layers'; got 'mask'",
    ),
    "masks at the tokens of the zoo": (
        diagnosis(DTYPE, POSITIONS, LAYERS, "several in ('off from 4', 'off from 0'): key = 'mask'", UNUSED),
        r"4 tokens at a time: off from \d+.* Expected 'mask'; got None",
    ),
    "a table of the charts that the zoo has": (by_heart(), "Expected '(mask|layers|dtype|unused)'; got None"),
    "less precision in one pass": (
        diagnosis(DTYPE.replace("single", "chart['one pass']"), POSITIONS, "'off' in single: key = 'layers'", MASK, UNUSED),
        "one token at a time: nearly equal.* Expected 'dtype'; got '?(mask|None)",
    ),
    "78, and nothing else": (
        diagnosis(DTYPE, POSITIONS, LAYERS, MASK, "computed == 78: key = 'unused'"),
        r"tokens computed for 12, one at a time: \d+.* Expected 'unused'; got None",
    ),
    "nearly is equal": (
        diagnosis(POSITIONS, "'off' in single: key = 'layers'", "'off' in several: key = 'mask'", UNUSED),
        "nearly equal.* Expected 'dtype'; got None",
    ),
    "nearly is off": (diagnosis(POSITIONS, LAYERS, MASK, UNUSED), "Expected 'dtype'; got 'layers'"),
    "equal is well": (diagnosis(*RULES[:-1]), r"tokens computed for 12, one at a time: \d+.* Expected 'unused'; got None"),
    "more than its neighbours": (
        diagnosis(
            DTYPE, POSITIONS, LAYERS, MASK, "computed > least: key = 'unused'",
            before="    least = min(chart['tokens computed for 12, one at a time'] for chart in charts.values())\n",
        ),
        r"tokens computed for 12, one at a time: \d+.* Expected 'unused'; got None",
    ),
    "charts read off and thrown away": (
        diagnosis(*RULES).replace("chart['4 tokens at a time']", "chart.pop('4 tokens at a time')"),
        "The charts are others afterwards",
    ),
}  # fmt: skip

# 14.2

BAD = "not (got - right).abs().max() < 1e-9"


def equal(
    sizes: str = "range(1, len(ids) + 1)", bad: str = BAD, body: str | None = None, end: str = "    return True\n",
    first: str = "    tokens = torch.tensor([ids])\n    right = model(tokens)\n", cut: str = "tokens.split(size, dim=1)",
    fresh: str = "        cache = new()\n", call: str = "model(piece, cache=cache)",
) -> str:  # fmt: skip
    body = body or f"        got = torch.cat([{call} for piece in {cut}], dim=1)\n        if {bad}:\n            return False\n"
    return f"{EQUAL}{first}    for size in {sizes}:\n{fresh}{body}{end}"


def picked(part: str) -> str:
    """Something less than all logits is compared."""
    return f"not ({part.format('got')} - {part.format('right')}).abs().max() < 1e-9"


EQUALS = {
    "nothing returned": (equal(end=""), "A test says True or False; got None"),
    "a tensor": (
        equal(
            body="        got = torch.cat([model(piece, cache=cache) for piece in tokens.split(size, dim=1)], dim=1)\n",
            end="    return ((got - right).abs() < 1e-9).all()\n",
        ),
        r"True or False; got a bool tensor \(\). bool\(...\) makes one of it",
    ),
    "the largest difference": (
        equal(end="    return float((got - right).abs().max())\n"),
        "A test says True or False; got a float",
    ),
    "without the cache": (equal(call="model(piece)"), r"called with cache=|A right cache"),
    "never run": (EQUAL + "    return True\n", "No cache was made"),
    "a cache and nothing else": (EQUAL + "    cache = new()\n    return True\n", r"never called with cache=\.\.\."),
    "a list for the model": (
        equal(first="    tokens = torch.tensor([ids])\n    right = model([ids])\n"),
        "takes an int64 tensor",
    ),
    "one cache for all sizes": (
        equal(first="    tokens = torch.tensor([ids])\n    right = model(tokens)\n    cache = new()\n", fresh=""),
        "A right cache, .* expected True; got False.* Does each way begin with a cache of its own",
    ),
    "equal to the last bit": (equal(bad="not torch.equal(got, right)"), "up to rounding, some 1e-14"),
    "the wrong way round": (
        equal(end="    return False\n").replace("return False\n    return", "return True\n    return"),
        "A right cache, .*expected True; got False",
    ),
    "several at once only": (equal(sizes="range(2, len(ids) + 1)"), "A token that comes alone, up to token 6, stands"),
    "one pass only": (equal(sizes="[len(ids)]"), "A broken cache, .* comes alone.* Expected False"),
    "single steps only": (equal(sizes="[1]"), "With a past, tokens that come together .* Expected False; got True"),
    "single steps and one pass": (equal(sizes="[1, len(ids)]"), "With a past, tokens that come together"),
    "1, 2 and 4": (equal(sizes="[1, 2, 4]"), "Only (passes of . tokens are|a pass of 3 tokens with 5 cached is) wrong"),
    "not all at once": (equal(sizes="range(1, len(ids))"), "Only passes of 8 tokens are wrong, and the text has 8"),
    "up to half": (equal(sizes="range(1, len(ids) // 2 + 1)"), "Only (passes of [5678] tokens|a pass of 3)"),
    "sizes that divide": (equal(sizes="[n for n in range(1, len(ids) + 1) if len(ids) % n == 0]"), "Only "),
    "whole pieces only": (
        equal(
            cut="[tokens[:, i : i + size] for i in range(0, len(ids) - size + 1, size)]",
            bad="not (got - right[:, : got.shape[1]]).abs().max() < 1e-9",
        ),
        "Only a pass of 3 tokens with 5 cached is wrong",
    ),
    "the first size decides": (equal(bad=f"True:\n            return not ({BAD})\n        if True"), "With a past|Only"),
    "the last size decides": (
        equal(body="        got = torch.cat([model(piece, cache=cache) for piece in tokens.split(size, dim=1)], dim=1)\n",
              end=f"    return not ({BAD})\n"),
        "A broken cache, .* comes alone",
    ),
    "the last token": (
        equal(bad=BAD.replace("(got - right)", "(got - right)[:, -1]")),
        "Only the logits of token . are off",
    ),
    "the first token of each piece, from the second size on": (
        equal(sizes="range(2, len(ids) + 1)", body="        done = 0\n        for piece in tokens.split(size, dim=1):\n"
              "            got = model(piece, cache=cache)\n"
              "            if not (got[0, 0] - right[0, done]).abs().max() < 1e-9:\n"
              "                return False\n            done += piece.shape[1]\n"),
        "A broken cache",
    ),
    "all but the first": (
        equal(bad=BAD.replace("(got - right)", "(got - right)[:, 1:]")),
        "Only the logits of token 0 are off",
    ),
    "the sum of differences": (
        equal(bad="not (got - right).sum().abs() < 1e-9"), "have each other's logits|one logit is 1e-6 too high",
    ),
    "the likeliest token": (
        equal(bad="(got.argmax(-1) != right.argmax(-1)).any()"),
        "A broken cache",
    ),
    "near enough": (equal(bad="not torch.allclose(got, right, atol=1e-3)"), "32 bits|1e-6|a millionth"),
    "torch's own tolerance": (equal(bad="not torch.allclose(got, right)"), "a millionth of themselves too large|32 bits"),
    "too high only": (equal(bad="not (got - right).max() < 1e-9"), "1e-6 too low|A broken cache"),
    "too large?": (equal(bad="(got - right).abs().max() > 1e-9"), "NaN: it is neither above nor below anything"),
    "any too large?": (equal(bad="((got - right).abs() > 1e-9).any()"), "NaN: it is neither above nor below"),
    "NaN left out": (
        equal(bad="not torch.allclose(torch.where(got.isnan(), right, got), right, rtol=0, atol=1e-9)"), "NaN: it is neither",
    ),
    "one logit of the last token of each piece": (
        EQUAL + "    tokens = torch.tensor([ids])\n    right = model(tokens)\n    for size in range(1, len(ids) + 1):\n"
        "        cache, at = new(), 0\n        for piece in tokens.split(size, dim=1):\n"
        "            got = model(piece, cache=cache)\n            at += piece.shape[1]\n"
        "            if not (got[0, -1, 3] - right[0, at - 1, 3]).abs() < 1e-7:\n                return False\n"
        "    return True\n",
        "several tokens come together, |Of token . logit .. is off",
    ),
    "the last token of each piece": (
        equal(body="        at = 0\n        for piece in tokens.split(size, dim=1):\n"
              "            got = model(piece, cache=cache)\n            at += piece.shape[1]\n"
              "            if not (got[:, -1] - right[:, at - 1]).abs().max() < 1e-9:\n                return False\n"),
        "Where several tokens come together, only the logits of the last one are right",
    ),
    "the tokens of a piece but its last": (
        equal(body="        at = 0\n        for piece in tokens.split(size, dim=1):\n"
              "            got, n = model(piece, cache=cache), piece.shape[1]\n            m = max(n - 1, 1)\n"
              "            if not (got[:, :m] - right[:, at : at + m]).abs().max() < 1e-9:\n                return False\n"
              "            at += n\n"),
        "Where several tokens come together, (only the logits of the last one are wrong|the last two have)",
    ),
    "one logit": (equal(bad=picked("{0}[..., 3]")), "Of token ., logit .* is off by 0.01, and the other 47 are right"),
    "ten logits": (equal(bad=picked("{0}[..., :10]")), "Of token ., logit .* is off by 0.01"),
    "the largest logit": (equal(bad=picked("{0}.amax(-1)")), "Of token ., logit"),
    "the sorted logits": (equal(bad=picked("{0}.sort(-1).values")), "are exchanged: each is right, for another token"),
    "the squares, added up": (equal(bad=picked("({0} * {0}).sum(-1)")), "are exchanged: |has the wrong sign"),
    "mean and spread": (equal(bad=picked("torch.stack(({0}.mean(-1), {0}.std(-1)))")), "are exchanged: "),
    "the logits without their signs": (equal(bad=picked("{0}.abs()")), "logit .* has the wrong sign"),
    "the norm of everything": (equal(bad=picked("{0}.norm()")), "the last two have each other's logits|are exchanged: "),
    "1e-8 is equal": (equal(bad="not (got - right).abs().max() < 1e-8"), "3e-09 too (low|high), far more than rounding"),
    "1e-7 is equal": (equal(bad="not (got - right).abs().max() < 1e-7"), "3e-09 too (low|high), far more than rounding"),
    "a tolerance for each logit": (
        equal(bad="not torch.allclose(got, right, rtol=1e-7, atol=1e-9)"), "3e-09 too (low|high), far more than rounding",
    ),
    "1e-15 is not": (equal(bad="not (got - right).abs().max() < 1e-15"), "A right cache, .* up to rounding, some 1e-14"),
    "NaN in all or none": (
        equal(bad="(got - right).abs().max() > 1e-9 or ((got - right).abs().nanmean() > 1e-9) or got.isnan().all() "
              "or (got - right).abs().nan_to_num(0).max() > 1e-9"),
        "Of token ., (every logit|logit .*) is NaN",
    ),
    "ids used up": (
        equal(end="    ids.clear()\n    return True\n"),
        r"ids was \[.*\] and is \[\] afterwards",
    ),
}  # fmt: skip

# 14.3


def cut(
    lengths: str = "range(len(ids) + 1)", fill: str = "ids", after: str = "ids[:n] + others", bad: str = BAD,
    got: str = "model(torch.tensor([others]), cache=cache)", act: str = "        truncate(cache, n)\n", first: str = "",
    fresh: str = "        cache = new()\n", end: str = "    return True\n", rows: str = "[:, n:]",
) -> str:  # fmt: skip
    return (
        f"{CUT}{first}    for n in {lengths}:\n{fresh}        model(torch.tensor([{fill}]), cache=cache)\n{act}"
        f"        right = model(torch.tensor([{after}])){rows}\n        got = {got}\n"
        f"        if {bad}:\n            return False\n{end}"
    )


CUTS = {
    "nothing returned": (cut(end=""), "A test says True or False; got None"),
    "never cut": (CUT + "    model(torch.tensor([ids]), cache=new())\n    return True\n", "truncate was never called"),
    "cut and not run": (CUT + "    truncate(new(), 0)\n    return True\n", "never called with cache="),
    "without the cache": (
        cut(got="model(torch.tensor([others]))"),
        "A right cache, .* expected True; got False",
    ),
    "the whole text": (cut(rows=""), "stopped with|A right cache"),
    "from the old text": (cut(after="ids + others", rows="[:, len(ids):]"), "A right cache, .* expected True; got False"),
    "equal to the last bit": (cut(bad="not torch.equal(got, right)"), "A right cache, .* up to rounding"),
    "one more than there is": (
        cut(lengths="range(len(ids) + 2)"),
        "truncate takes an n from 0 to the cache's length, 8; yours gave it 9",
    ),
    "a negative length": (cut(lengths="range(-2, len(ids) + 1)"), "yours gave it -2"),
    "one cache, cut upwards": (
        cut(fresh="", first="    cache = new()\n    model(torch.tensor([ids]), cache=cache)\n").replace(
            "        model(torch.tensor([ids]), cache=cache)\n", ""),
        "takes an n from 0|A right cache",
    ),
    "from 1 on": (cut(lengths="range(1, len(ids) + 1)"), r"truncate\(0\) keeps everything"),
    "one cut in the middle": (cut(lengths="[len(ids) // 2]"), r"truncate\(0\) keeps everything"),
    "0 and the middle": (cut(lengths="[0, len(ids) // 2]"), "A cut to"),
    "not the whole": (cut(lengths="range(len(ids))"), "A cut to all 8 tokens leaves nothing"),
    "one token more than the cut": (cut(fill="ids[: n + 1]"), "A cut by 4 tokens or more keeps one too many"),
    "every other length": (cut(lengths="range(0, len(ids) + 1, 2)"), "A cut to . keeps"),
    "the same tokens again": (
        cut(after="ids + others", got="model(torch.tensor([ids[n:] + others]), cache=cache)"),
        "A slot that was written once keeps its first row",
    ),
    "the same token first": (
        cut(
            after="ids[: n + 1] + others", rows="[:, len(ids[: n + 1]) :]", got="run(model, cache, ids[n : n + 1], others)",
        ).replace(CUT, "def run(model, cache, same, others):\n    if same:\n        model(torch.tensor([same]), cache=cache)\n"
                       "    return model(torch.tensor([others[:1]]), cache=cache)\n\n\n" + CUT).replace(
            "(got - right)", "(got - right[:, :1])"),
        "token . of others has wrong logits|A slot that was written once|stands where",
    ),
    "lengths compared": (
        cut(bad="cache.length != n + len(others)"),
        "keeps its first row|the length is right",
    ),
    "length right after the cut": (
        cut(got="cache.length", bad="got != n"),
        "keeps its first row|the length is right",
    ),
    "logits at both ends, lengths elsewhere": (
        cut(bad=f"cache.length != n + len(others) or (n in (0, len(ids)) and {BAD})"),
        "After a cut to ., the length is right",
    ),
    "the first of others": (
        cut(bad="not (got - right)[:, 0].abs().max() < 1e-9"), "token [123] of others has wrong logits"
    ),
    "the last of others": (cut(bad="not (got - right)[:, -1].abs().max() < 1e-9"), "token [012] of others has wrong logits"),
    "one token of others": (
        cut(got="model(torch.tensor([others[:1]]), cache=cache)", bad="not (got - right[:, :1]).abs().max() < 1e-9"),
        "token [123] of others has wrong logits",
    ),
    "1e-3 is equal": (cut(bad=BAD.replace("1e-9", "1e-3")), "3e-09 too (low|high), far more than rounding"),
    "1e-8 is equal": (cut(bad=BAD.replace("1e-9", "1e-8")), "3e-09 too (low|high), far more than rounding"),
    "too large?": (cut(bad="(got - right).abs().max() > 1e-9"), "NaN: it is neither above nor below anything"),
    "one logit, not large": (
        cut(bad="(got[..., 3] - right[..., 3]).abs().max() > 1e-3"), "logit .* is off by 0.01, and the other 47 are right",
    ),
    "ten logits": (cut(bad=picked("{0}[..., :10]")), "logit .* is off by 0.01, and the other 47 are right"),
    "the sorted logits": (cut(bad=picked("{0}.sort(-1).values")), "are exchanged: each is right, for another token"),
    "the logits without their signs": (cut(bad=picked("{0}.abs()")), "logit .* has the wrong sign"),
    "1e-15 is not": (cut(bad=BAD.replace("1e-9", "1e-15")), "A right cache, .* up to rounding, some 1e-14"),
    "all logits at half the text only": (
        cut(bad="not ((got - right) if n == len(ids) // 2 else (got - right)[..., :10]).abs().max() < 1e-9"),
        "logit .* is off by 0.01|are exchanged|has the wrong sign",
    ),
    "others used up": (cut(end="    others.clear()\n    return True\n"), r"others was \[.*\] and is \[\] afterwards"),
    "ids grows": (cut(end="    ids.extend(others)\n    return True\n"), "ids was .* afterwards"),
}  # fmt: skip

# 14.4

TURNS = (
    "        for i in range(len(one)):\n            for each, text, rows in pair:\n"
    "                rows.append(model(torch.tensor([[text[i]]]), cache=each))\n"
)
SEQUENCE = (
    "        for each, text, rows in pair:\n            for i in range(len(one)):\n"
    "                rows.append(model(torch.tensor([[text[i]]]), cache=each))\n"
)


def forks(
    lengths: str = "range(1, len(ids) + 1)", pair: str = "(cache, one, []), (fork(cache), two, [])", go: str = TURNS,
    compare: str = "pair", bad: str = BAD, end: str = "    return True\n", first: str = "",
) -> str:  # fmt: skip
    return (
        f"{FORKS}{first}    for n in {lengths}:\n        cache = new()\n        model(torch.tensor([ids[:n]]), cache=cache)\n"
        f"        pair = [{pair}]\n{go}        for _, text, rows in {compare}:\n"
        "            right = model(torch.tensor([ids[:n] + text]))[:, n:]\n            got = torch.cat(rows, dim=1)\n"
        f"            if {bad}:\n                return False\n{end}"
    )


FORKINGS = {
    "nothing returned": (forks(end=""), "A test says True or False; got None"),
    "never forked": (
        FORKS + "    model(torch.tensor([ids]), cache=new())\n    return True\n",
        "fork was never called",
    ),
    "forked and not run": (FORKS + "    fork(new())\n    return True\n", "never called with cache="),
    "an empty text": (forks(lengths="range(len(ids))"), "A call gave the model no token|takes an int64 tensor"),
    "equal to the last bit": (forks(bad="not torch.equal(got, right)"), "A right cache, .* up to rounding"),
    "texts exchanged": (
        forks(bad=BAD).replace("ids[:n] + text", "ids[:n] + (two if text is one else one)"),
        "A right cache, .* expected True; got False",
    ),
    "a cache for the fork": (
        forks(pair="(cache, one, []), (new(), two, [])", first="    fork(new())\n"),
        "A right cache, .* expected True; got False",
    ),
    "the parent only": (
        forks(compare="pair[:1]"),
        "A fork is empty|A fork lacks its parent's last row",
    ),
    "the parent goes on alone": (
        forks(pair="(cache, one, [])", first="", go="        fork(cache)\n" + TURNS),
        "A fork is empty|A fork lacks its parent's last row",
    ),
    "the fork only": (forks(compare="pair[1:]"), "The fork is right. Its parent has lost its (last )?rows?"),
    "the fork goes on alone": (
        forks(pair="(fork(cache), two, [])"),
        "The fork is right. Its parent has lost its (last )?rows?",
    ),
    "one to its end, then the other": (forks(go=SEQUENCE), "write into the same rows. Whoever goes on first is overwritten"),
    "all at once": (
        forks(go="        for each, text, rows in pair:\n            rows.append(model(torch.tensor([text]), cache=each))\n"),
        "Whoever goes on first is overwritten",
    ),
    "one token each": (
        forks(go="        for each, text, rows in pair:\n"
              "            rows.append(model(torch.tensor([text[:1]]), cache=each))\n",
              bad="not (got - right[:, :1]).abs().max() < 1e-9"),
        "which shows when it goes on once more",
    ),
    "the fork first, then its parent": (forks(go=SEQUENCE.replace("in pair", "in pair[::-1]")), "Whoever goes on first"),
    "both the same way": (
        forks(pair="(cache, two, []), (fork(cache), two, [])"),
        "With the same token in both that does not show",
    ),
    "at half the text": (forks(lengths="[len(ids) // 2]"), "Blocks of 4|if it is made at . tokens"),
    "at the end of the text": (forks(lengths="[len(ids)]"), "Blocks of 4|if it is made at . tokens"),
    "at every even length": (forks(lengths="range(2, len(ids) + 1, 2)"), "if it is made at . tokens|Blocks of 4"),
    "not at the end": (forks(lengths="range(1, len(ids))"), "if it is made at 8 tokens; elsewhere it is right"),
    "at full blocks": (forks(lengths="[4, 8]"), "Blocks of 4: the last one is shared|if it is made at . tokens"),
    "1e-8 is equal": (forks(bad=BAD.replace("1e-9", "1e-8")), "3e-09 too (low|high), far more than rounding"),
    "too large?": (forks(bad="(got - right).abs().max() > 1e-9"), "NaN: it is neither above nor below anything"),
    "one logit, not large": (
        forks(bad="(got[..., 3] - right[..., 3]).abs().max() > 1e-3"), "logit .* is off by 0.01, and the other 47 are right",
    ),
    "the sorted logits": (forks(bad=picked("{0}.sort(-1).values")), "are exchanged: each is right, for another token"),
    "the logits without their signs": (forks(bad=picked("{0}.abs()")), "logit .* has the wrong sign"),
    "two tokens of each": (
        forks(go=TURNS.replace("range(len(one))", "range(2)"), bad="not (got - right[:, :2]).abs().max() < 1e-9"),
        "token [23] of (one|two) has wrong logits, and the other 3 have right ones",
    ),
    "one logit of two tokens of each, not large": (
        forks(go=TURNS.replace("range(len(one))", "range(2)"), bad="(got - right[:, :2])[..., 3].abs().max() > 1e-3"),
        "token [23] of (one|two) has wrong logits, and the other 3 have right ones",
    ),
    "the first cache by its last token": (
        forks(bad="not (got - right)[:, -1 if text is one else slice(None)].abs().max() < 1e-9"),
        "After a fork, in the first cache, token [012] of one has wrong logits",
    ),
    "all logits of short forks only": (
        forks(bad="not ((got - right) if n < 3 else (got - right)[..., :10]).abs().max() < 1e-9"),
        "fork that is made at . tokens",
    ),
    "texts used up": (
        forks(end="    two.pop()\n    return True\n"),
        r"two was \[.*\] and is \[.*\] afterwards",
    ),
}  # fmt: skip

MUTANTS = {"14.1": DIAGNOSES, "14.2": EQUALS, "14.3": CUTS, "14.4": FORKINGS}

FAIR = {
    "14.1": {
        "step by step": diagnosis(*RULES),
        "by several lines": DIAGNOSIS + "    found = {}\n    for room, chart in charts.items():\n"
        "        first = [chart[what] for what in ('one pass', 'one token at a time', '4 tokens at a time')]\n"
        "        off = [str(seen).startswith('off') for seen in first]\n        found[room] = None\n"
        "        if 'nearly equal' in first:\n            found[room] = 'dtype'\n        elif off[1]:\n"
        "            found[room] = 'positions' if first[1].endswith(' 1') else 'layers'\n"
        "        elif any(off):\n            found[room] = 'mask'\n"
        "        elif chart['tokens computed for 12, one at a time'] != 12:\n            found[room] = 'unused'\n"
        "    return found\n",
        "a function for one chart": "def name_of(chart):\n    match chart['one token at a time']:\n"
        "        case 'nearly equal':\n            return 'dtype'\n        case 'off from 1':\n            return 'positions'\n"
        "        case 'equal':\n            if chart['4 tokens at a time'] != 'equal':\n                return 'mask'\n"
        "            return 'unused' if chart['tokens computed for 12, one at a time'] > 12 else None\n"
        "    return 'layers'\n\n\n" + DIAGNOSIS + "    return {room: name_of(chart) for room, chart in charts.items()}\n",
    },
    "14.2": {
        "step by step": equal(),
        "allclose": EQUAL + "    right = model(torch.tensor([ids]))\n    n = len(ids)\n    ok = True\n"
        "    for size in range(n, 0, -1):\n        cache, start = new(), 0\n        while start < n:\n"
        "            piece = ids[start : start + size]\n            got = model(torch.tensor([piece]), cache=cache)\n"
        "            ok = ok and torch.allclose(got, right[:, start : start + size], rtol=1e-10, atol=1e-10)\n"
        "            start += size\n    return ok\n",
        "every place to cut at": EQUAL + "    tokens = torch.tensor([ids])\n    right = model(tokens)\n    ways = []\n"
        "    for size in range(1, len(ids) + 1):\n        ways.append([size] * (len(ids) // size) + [len(ids) % size])\n"
        "    for first in range(1, len(ids)):\n        ways.append([first, len(ids) - first])\n    for way in ways:\n"
        "        cache = new()\n        got = [model(p, cache=cache) for p in tokens.split([s for s in way if s], dim=1)]\n"
        "        off = (torch.cat(got, 1) - right).abs()\n"
        "        if not bool((off <= 1e-10).all()):\n            return False\n"
        "    return True\n",
    },
    "14.3": {
        "step by step": cut(),
        "a token at a time": CUT + "    def off(n):\n        cache = new()\n        for id in ids:\n"
        "            model(torch.tensor([[id]]), cache=cache)\n        truncate(cache, n)\n"
        "        got = [model(torch.tensor([[id]]), cache=cache)[0, 0] for id in others]\n"
        "        right = model(torch.tensor([[*ids[:n], *others]]))[0, n:]\n"
        "        return (torch.stack(got) - right).abs().max().item()\n"
        "    return all(off(n) < 1e-10 for n in range(len(ids) + 1))\n",
        "one cache, again and again": CUT + "    cache = new()\n    for n in range(len(ids), -1, -1):\n"
        "        model(torch.tensor([ids[cache.length :]]), cache=cache) if cache.length < len(ids) else None\n"
        "        truncate(cache, n)\n        got = model(torch.tensor([others]), cache=cache)\n"
        "        right = model(torch.tensor([ids[:n] + others]))[:, n:]\n"
        "        if not torch.allclose(got, right, rtol=0, atol=1e-9):\n            return False\n"
        "        truncate(cache, n)\n    return True\n",
    },
    "14.4": {
        "step by step": forks(),
        "the fork first": forks(go=TURNS.replace("in pair", "in reversed(pair)")),
        "two at a time": FORKS + "    def right(n, text):\n        return model(torch.tensor([ids[:n] + text]))[0, n:]\n\n"
        "    for n in range(len(ids), 0, -1):\n        a = new()\n        for id in ids[:n]:\n"
        "            model(torch.tensor([[id]]), cache=a)\n        b = fork(a)\n        of_a, of_b = [], []\n"
        "        for x, y in zip(one, two):\n            of_b.append(model(torch.tensor([[y]]), cache=b)[0])\n"
        "            of_a.append(model(torch.tensor([[x]]), cache=a)[0])\n"
        "        same = [torch.allclose(torch.cat(got), right(n, text), rtol=0, atol=1e-9)\n"
        "                for got, text in ((of_a, one), (of_b, two))]\n        if not all(same):\n            return False\n"
        "    return True\n",
    },
}

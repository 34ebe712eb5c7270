"""Exercise 05: wrong answers that learners would give; and what the check says to each.

MUTANTS[task][name] = (the answer's source, a regular expression that its message matches). Data alone: nothing runs here.
"""

ROWS = "def my_rows(prompt, new, layers, keep):\n"
REUSABLE = "def my_reusable(first, second):\n"
CHANGED = "def my_changed(one, two):\n"
FIRST = "def my_first_change(run, tokens, other):\n"

PLAIN = "prompt * new + new * (new - 1) // 2"
KEPT = "prompt + new - 1"


def rows(plain: str = PLAIN, kept: str = KEPT, after: str = "") -> str:
    return f"{ROWS}    computed = ({kept}) if keep else ({plain})\n    return layers * computed{after}"


ROW_ANSWERS = {
    "float, from a division": (rows(plain="(2 * prompt + new - 1) * new / 2"), "whole number, an int; got a float"),
    "tensor": (rows().replace("return layers * computed", "return torch.tensor(layers * computed)"), "got an int64 tensor"),
    "nothing": (rows().replace("return layers * computed", "computed = layers * computed"), "int; got None"),
    "list of passes": (ROWS + "    return [prompt + i for i in range(new)]", "got a list of 3 int"),
    "last token read, kept": (rows(kept="prompt + new"), r"keep=True\) gave 5\. The token that is chosen last"),
    "last token read, plain": (rows(plain=f"{PLAIN} + prompt + new"), "gave 9. One pass over the prompt"),
    "off by one: begins after the prompt": (
        rows(plain="sum(prompt + i for i in range(1, new + 1))"),
        r"keep=False\) gave 5\. The token that is chosen last is never read",
    ),
    "prompt forgotten": (rows(kept="new - 1"), "gave 0. One pass over the prompt chooses one token"),
    "tokens, not rows": (rows().replace("layers * computed", "computed"), "Each layer has K and V of its own"),
    "K and V counted apart": (rows(after=" * 2"), "gave 8. .*one row together"),
    "layers added": (rows().replace("layers * computed", "layers + computed - 1"), "5 rows in each layer; yours is 6"),
    "last layer left out": (rows().replace("layers *", "max(layers - 1, 1) *"), "each layer; yours|yours is 5"),
    "keep always": (rows(plain=KEPT), r"the passes read 4 \+ 5 \+ 6; yours is 6, as if rows were kept"),
    "keep turned round": (rows(plain=KEPT, kept=PLAIN), "as if rows were kept. Each pass begins with nothing"),
    "text does not grow": (rows(plain="prompt * new"), "yours is 12, as if the text did not grow"),
    "one pass too many": (
        rows(plain=f"{PLAIN} + (prompt + new if new > 1 else 0)"),
        "yours is 22, one pass too many",
    ),
    "prompt read once, the rest again and again": (rows(plain="prompt + new * (new - 1) // 2"), r"4 \+ 5 \+ 6; yours is 7"),
    "keep ignored": (rows(kept=PLAIN), r"the passes read 4 \+ 1 \+ 1; yours is 15, as if nothing were kept"),
    "last token kept after the first": (rows(kept="prompt + (new if new > 1 else 0)"), "chosen, and never read"),
    "new tokens alone once it runs": (rows(kept="new if new > 1 else prompt"), r"yours is 3\. The prompt's rows are computed"),
    "prompt twice": (rows(kept="prompt + new - 1 + (prompt if new > 1 else 0)"), r"4 \+ 1 \+ 1; yours is 10"),
    "layers for the prompt alone": (
        ROWS + f"    return layers * prompt + new - 1 if keep else layers * ({PLAIN})",
        r"keep=True\) should be .* in each layer; yours is",
    ),
    "twelve layers at most": (
        rows().replace("layers * computed", "min(layers, 40 if new < 10 else 1) * computed"),
        "should be .* in each layer; yours is",
    ),
    "learnt by heart": (ROWS + "    return 60 if not keep else 24", "gave 60"),
}

LOOP = (
    "    agreed, marks = True, []\n    for place, token in enumerate(second):\n"
    "        agreed = agreed and place < len(first) and first[place] == token\n        marks.append(agreed)\n"
)

REUSABLE_ANSWERS = {
    "a number": (REUSABLE + LOOP + "    return sum(marks)", "list of True and False; got an int"),
    "places": (
        REUSABLE + LOOP + "    return [place for place, mark in enumerate(marks) if mark]",
        "list of True and False; got a list of . int",
    ),
    "ones and zeros": (REUSABLE + LOOP + "    return [int(mark) for mark in marks]", "got a list of 4 int"),
    "tensor": (REUSABLE + LOOP + "    return torch.tensor(marks)", "got a bool tensor"),
    "nothing": (REUSABLE + LOOP, "got None"),
    "shorter one's length": (
        REUSABLE + "    marks = []\n    for a, b in zip(first, second):\n"
        "        marks.append(a == b and (not marks or marks[-1]))\n    return marks",
        "One for each token of second, 4 of them; got 3. The first text has 3",
    ),
    "reusable part only": (REUSABLE + LOOP + "    return marks[:sum(marks)]", "One for each token of second"),
    "turned round": (REUSABLE + LOOP + "    return [not mark for mark in marks]", "every row is there already"),
    "off by one: the last never": (
        REUSABLE + LOOP + "    return [mark and place < len(second) - 1 for place, mark in enumerate(marks)]",
        "The same text twice",
    ),
    "off by one: the first difference too": (
        REUSABLE + LOOP + "    return [True, *marks[:-1]] if first != second else marks",
        "end in different ones. The last row cannot be equal; yours: .= = = =",
    ),
    "off by one: one too few": (
        REUSABLE + LOOP + "    return [*marks[1:], False] if first != second else marks",
        "their rows are equal, and yours: .= = - -",
    ),
    "all or nothing": (REUSABLE + "    return [first == second] * len(second)", r"their rows are equal, and yours: .- -"),
    "place by place": (
        REUSABLE + "    return [place < len(first) and first[place] == token for place, token in enumerate(second)]",
        "the same id after it is no help",
    ),
    "known ids": (REUSABLE + "    return [token in first for token in second]", "the same id after it is no help"),
    "common end": (
        REUSABLE
        + LOOP
        + "    if len(first) == len(second):\n        for back in range(1, len(first) + 1):\n            if first[-back]"
        " != second[-back]:\n                break\n            marks[-back] = True\n    return marks",
        "the same id after it is no help",
    ),
    "known beginning, wherever": (
        REUSABLE
        + "    k = 0\n    while k < len(second) and any(first[i : i + k + 1] == second[: k + 1] for i in range(len(first))):\n"
        "        k += 1\n    return [place < k for place in range(len(second))]",
        "no token stands where it stood",
    ),
    "sorted": (
        "def my_reusable(first, second):\n    if sorted(first) == sorted(second):\n        return [True] * len(second)\n"
        + LOOP
        + "    return marks",
        "no token stands where it stood",
    ),
    "past the end of the first": (
        REUSABLE
        + LOOP.replace("place < len(first) and first[place] == token", "(place >= len(first) or first[place] == token)")
        + "    return marks",
        "no token stands where it stood|of which",
    ),
    "index error": (
        REUSABLE + LOOP.replace("place < len(first) and ", "") + "    return marks",
        "stopped with IndexError",
    ),
    "nothing where the first is empty": (
        REUSABLE + "    if not first:\n        return [True] * len(second)\n" + LOOP + "    return marks",
        "0 tokens, then 3, of which 0 are the same beginning; yours: .= = =",
    ),
    "sixteen at most": (
        REUSABLE + LOOP + "    return [mark and place < 16 for place, mark in enumerate(marks)]",
        "of which .. are the same beginning",
    ),
    "emptied": (
        REUSABLE + "    marks, agreed = [], True\n    while second:\n        token = second.pop(0)\n"
        "        agreed = agreed and bool(first) and first.pop(0) == token\n        marks.append(agreed)\n    return marks",
        "first or second was changed",
    ),
    "learnt by heart": (REUSABLE + "    return [True, True, False, False]", "One for each token of second"),
}

CHANGED_ANSWERS = {
    "one for all": (
        CHANGED + "    return torch.tensor(not torch.equal(one, two))",
        r"expected one bool for each of T tokens, \(5,\)",
    ),
    "bool of Python": (CHANGED + "    return bool((one != two).any())", "bool tensor; got a bool"),
    "list": (CHANGED + "    return (one != two).any(dim=(0, 1, 3)).tolist()", "bool tensor; got a list of 5 bool"),
    "numbers": (CHANGED + "    return (one - two).abs().amax(dim=(0, 1, 3))", "bool tensor; got a float64 tensor"),
    "nothing": (CHANGED + "    (one != two).any(dim=(0, 1, 3))", "got None"),
    "every number": (CHANGED + "    return one != two", r"\(5,\); got the shape \(1, 3, 5, 4\)"),
    "axis of heads stays": (CHANGED + "    return (one != two).any(dim=(0, 2, 3))", r"\(5,\); got the shape \(3,\)"),
    "axis of numbers stays": (CHANGED + "    return (one != two).any(dim=(0, 1, 2))", r"\(5,\); got the shape \(4,\)"),
    "batch axis stays": (CHANGED + "    return (one != two).any(dim=(1, 3))", r"\(5,\); got the shape \(1, 5\)"),
    "heads stay": (CHANGED + "    return (one != two).any(dim=-1)[0]", r"\(5,\); got the shape \(3, 5\)"),
    "turned round": (CHANGED + "    return (one == two).all(1).all(-1)[0]", "Turned round"),
    "always": (CHANGED + "    return torch.ones(one.shape[2], dtype=torch.bool)", "no row changed"),
    "only the last": (
        CHANGED + "    return torch.arange(one.shape[2]) == one.shape[2] - 1",
        r"no row changed. Yours: \[False, False, False, False, True\]",
    ),
    "never": (CHANGED + "    return torch.zeros(one.shape[2], dtype=torch.bool)", "rows? 4 changed.*yours: none"),
    "everything after it too": (
        CHANGED + "    return (one != two).any(dim=(0, 1, 3)).cumsum(0).bool()",
        "Of 6 rows, rows 1, 3 changed.*yours: rows 1, 2, 3, 4, 5",
    ),
    "last row dropped": (
        CHANGED + "    found = (one != two).any(dim=(0, 1, 3))\n    found[-1] = False\n    return found",
        "Of 5 rows, row 4 changed, in every number; yours: none",
    ),
    "all instead of any": (CHANGED + "    return (one != two).all(dim=-1).all(dim=1)[0]", "That is a change; yours: none"),
    "any head, all numbers": (CHANGED + "    return (one != two).all(-1).any(1)[0]", "That is a change"),
    "first head alone": (CHANGED + "    return (one != two)[0, 0].any(-1)", "That is a change; yours: none"),
    "first number alone": (CHANGED + "    return (one != two)[0, ..., 0].any(0)", "That is a change; yours: none"),
    "sums compared": (CHANGED + "    return one.sum(dim=(0, 1, 3)) != two.sum(dim=(0, 1, 3))", "Compare number with number"),
    "heads added up": (CHANGED + "    return ((one - two).sum(1).abs() > 0).any(-1)[0]", "Two heads of a row changed places"),
    "nearly equal": (CHANGED + "    return ~torch.isclose(one, two).all(1).all(-1)[0]", "not about nearly equal numbers"),
    "more than a billionth": (
        CHANGED + "    return ((one - two).abs() > 1e-9).any(dim=(0, 1, 3))",
        "another in its last bit, and was not seen",
    ),
    "rounded to float32": (CHANGED + "    return (one.float() != two.float()).any(dim=(0, 1, 3))", "in its last bit"),
    "first text alone": (CHANGED + "    return (one != two)[0].any(dim=(0, 2))", "changed in the last text only"),
    "in every text": (CHANGED + "    return (one != two).any(dim=(1, 3)).all(0)", "changed in the last text only"),
    "caller's tensor changed": (
        CHANGED + "    one -= two\n    return (one != 0).any(dim=(0, 1, 3))",
        "was written to",
    ),
    "learnt by heart": (
        CHANGED + "    return torch.tensor([False, False, False, False, True])",
        "expected one bool for each|no row",
    ),
}

RUNS = "    before, after = run(tokens), run([*tokens[:-1], other])\n"
LAYERS = "    for layer, (one, two) in enumerate(zip(before, after)):\n"
DIFFER = "        if not torch.equal(one[:, :, :-1], two[:, :, :-1]):\n"


def first(differ: str = DIFFER, found: str = "layer", runs: str = RUNS, end: str = "    return None") -> str:
    return f"{FIRST}{runs}{LAYERS}{differ}            return {found}\n{end}"


FIRST_ANSWERS = {
    "model not run": (FIRST + "    return None", "run was never called"),
    "the same text twice": (
        first(runs="    before, after = run(tokens), run(list(tokens))\n"),
        "with `other` in the last place",
    ),
    "changed text twice": (
        first(runs="    after = run([*tokens[:-1], other])\n    before = after\n"),
        r"run was never given tokens, \[",
    ),
    "other appended": (first(runs=RUNS.replace("tokens[:-1]", "tokens")), "it was given 6. `other` takes the last"),
    "last token left out": (first(runs=RUNS.replace("run(tokens)", "run(tokens[:-1])")), "5 tokens; it was given 4"),
    "first token exchanged": (first(runs=RUNS.replace("*tokens[:-1], other", "other, *tokens[1:]")), "in the last place is"),
    "tensor given": (
        first(runs=RUNS.replace("run(tokens)", "run(torch.tensor(tokens))")),
        "list of ids; it was given an int64",
    ),
    "a run for each layer": (
        FIRST + "    changed = [*tokens[:-1], other]\n    for layer in range(len(run(tokens))):\n"
        "        one, two = run(tokens), run(changed)\n"
        "        if not torch.equal(one[layer][:, :, :-1], two[layer][:, :, :-1]):\n            return layer",
        "more than 8 times. Two runs tell",
    ),
    "tokens changed": (
        first(runs="    before = run(tokens)\n    tokens[-1] = other\n    after = run(tokens)\n"),
        "tokens was changed",
    ),
    "last row counted": (first("        if not torch.equal(one, two):\n"), "last token's own row changes, of course"),
    "zero for none": (first(end="    return 0"), "expected None, got 0"),
    "minus one for none": (first(end="    return -1"), "expected None; got -1"),
    "False for none": (first(end="    return False"), "expected None; got False"),
    "number of layers for none": (first(end="    return len(before)"), "in 3 layers: expected None; got 3"),
    "shape compared": (first("        if one.shape == two.shape:\n"), "expected None, got 0"),
    "True for found": (first(found="True"), "expected the int 1; got True"),
    "tensor": (first(found="torch.tensor(layer)"), "the int 1; got an int64 tensor"),
    "counted from 1": (first(found="layer + 1"), "from layer 1 on, counted from 0; yours is 2"),
    "the last layer": (
        FIRST + RUNS + "    found = None\n" + LAYERS + DIFFER + "            found = layer\n    return found",
        "from layer 1 on, counted from 0; yours is 3",
    ),
    "how many layers": (
        FIRST + RUNS + "    found = 0\n" + LAYERS + DIFFER + "            found += 1\n    return found or None",
        "from layer 1 on, counted from 0; yours is 3",
    ),
    "layer 0 taken for none": (
        FIRST
        + RUNS
        + "    found = []\n"
        + LAYERS
        + DIFFER
        + "            found.append(layer)\n    return (found and found[0]) or None",
        "layer 0 on, counted from 0: expected the int 0; got None",
    ),
    "layer 1 only": (
        FIRST + RUNS + "    same = len(before) < 2 or torch.equal(before[1][:, :, :-1], after[1][:, :, :-1])\n"
        "    return None if same else 1",
        "yours is 1|got None",
    ),
    "first row alone": (
        first("        if not torch.equal(one[:, :, 0], two[:, :, 0]) and one.shape[2] > 1:\n"),
        "row 4 changes",
    ),
    "row before the last alone": (first("        if not torch.equal(one[:, :, -2:-1], two[:, :, -2:-1]):\n"), "row 0 changes"),
    "all rows must change": (
        first("        if (one != two)[:, :, :-1].any(-1).any(1).all() and one.shape[2] > 1:\n"),
        "row 0 changes in layer 1",
    ),
    "off by one: two rows left out": (first(DIFFER.replace(":-1", ":-2")), "row 4 changes in layer 1"),
    "nearly equal": (first("        if not torch.allclose(one[:, :, :-1], two[:, :, :-1]):\n"), "not about nearly equal"),
    "first head alone": (
        first("        if not torch.equal(one[:, 0, :-1], two[:, 0, :-1]):\n"),
        "one number of an earlier row",
    ),
    "single token: index error": (
        first("        if not all(torch.equal(one[:, :, i], two[:, :, i]) for i in range(max(1, one.shape[2] - 1))):\n"),
        "one token has no earlier rows: expected None; got 0",
    ),
    "learnt by heart": (FIRST + RUNS + "    return 1", "no earlier row changes|No earlier row changes"),
}

MUTANTS = {"5.1": ROW_ANSWERS, "5.2": REUSABLE_ANSWERS, "5.3": CHANGED_ANSWERS, "5.4": FIRST_ANSWERS}

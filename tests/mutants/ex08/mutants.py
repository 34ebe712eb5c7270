"""Exercise 08: wrong answers, most of which learners or published code really gave; and what the check says to each.

MUTANTS[task][name] = (the answer's source, a regular expression that its message matches). FAIR[task][name]: right answers that
are written otherwise. Data alone: nothing runs here.
"""

SLOTS = "def my_slots(length, window, sinks):\n"
WINDOW = "def my_window(queries, keys, window, sinks):\n    q, k = queries[:, None], keys[None, :]\n"
EXPAND = "def my_expand(kv, n_head):\n    group = n_head // kv.shape[1]\n"
QUANTIZE = "def my_quantize(x, bits):\n"
DEQUANTIZE = "def my_dequantize(codes, low, step):\n"


def ring(slot: str, tokens: str = "range(length)") -> str:
    return f"    slots = [None] * window\n    for token in {tokens}:\n        slots[{slot}] = token\n    return slots"


RIGHT_SLOT = "token if token < sinks else sinks + (token - sinks) % (window - sinks)"

SLOT_ANSWERS = {
    "nothing returned": (SLOTS + ring(RIGHT_SLOT).replace("    return slots", ""), "expected a list of 4 entries; got None"),
    "tensor returned": (
        SLOTS + "    import torch\n    return torch.arange(window)",
        r"expected a list of 4 entries; got an int64 tensor",
    ),
    "only the tokens that are held": (
        SLOTS + ring(RIGHT_SLOT).replace("return slots", "return [s for s in slots if s is not None]"),
        "one for each slot; got 2",
    ),
    "sentinel instead of None": (
        SLOTS + ring(RIGHT_SLOT).replace("[None]", "['']"),
        "each a token's number .an int. or None; got a list of 4 int and str",
    ),
    "-1 for an empty slot": (SLOTS + ring(RIGHT_SLOT).replace("[None]", "[-1]"), "nothing has to leave yet, so"),
    "from the back": (SLOTS + ring("-1 - token % window"), "nothing has to leave yet"),
    "off by one: from slot 1": (SLOTS + ring("(token + 1) % window"), "nothing has to leave yet"),
    "off by one: last token left out": (SLOTS + ring(RIGHT_SLOT, "range(length - 1)"), "nothing has to leave yet"),
    "off by one: one token too many": (SLOTS + ring(RIGHT_SLOT, "range(length + 1)"), "nothing has to leave yet"),
    "in the order of the text": (
        SLOTS + "    kept = [*range(min(sinks, length)), *range(max(min(sinks, length), length - window + sinks), length)]\n"
        "    return kept + [None] * (window - len(kept))",
        r"belongs in slot 0, where token 0 was",
    ),
    "ring one slot too short": (
        SLOTS + ring("token if token < window else token % max(1, window - 1)"),
        "token 4 belongs in slot 0, where token 0 was",
    ),
    "first token never overwritten": (
        SLOTS + ring("token if token < window else 1 + (token - 1) % max(1, window - 1)"),
        "belongs in slot 0, where token 0 was",
    ),
    "stops when full": (SLOTS + ring(RIGHT_SLOT, "range(min(length, window))"), "token 4, the newest, is in no slot"),
    "one round only": (
        SLOTS + ring(RIGHT_SLOT, "range(min(length, 2 * window))"),
        "the newest, is in no slot",
    ),
    "second round elsewhere": (
        SLOTS + ring("(token + token // (2 * window)) % window if not sinks else " + RIGHT_SLOT),
        "where token . was",
    ),
    "sinks forgotten": (SLOTS + ring("token % window"), r"the first slots keep \[0, 1\] for ever; yours \[6, 7, 8"),
    "sinks overwritten at last": (
        SLOTS
        + ring(
            "token if token < sinks else sinks + (token - sinks) % (window - sinks + (token > window + 1 and sinks > 0)) "
            "if token < 99 else 0"
        )
        .replace("slots[", "slots[(")
        .replace("] = token", ") % window] = token"),
        "the first slots keep|where token",
    ),
    "ring not shifted by the sinks": (
        SLOTS + ring("token if token < sinks else sinks + token % (window - sinks)"),
        "nothing has to leave yet",
    ),
    "not shifted once full": (
        SLOTS + ring("token if token < window else sinks + token % (window - sinks)"),
        "belongs in slot 2, where token 2 was",
    ),
    "ring as long as the window": (
        SLOTS + ring("token if token < window else sinks + (token - sinks) % window % (window - sinks)"),
        "belongs in slot|in no slot",
    ),
}

WINDOW_ANSWERS = {
    "numbers returned": (
        WINDOW + "    return ((k <= q) & ((k > q - window + sinks) | (k < sinks))).float()",
        "bool tensor; got a float32",
    ),
    "rows and columns swapped": (
        WINDOW + "    return ((k <= q) & ((k > q - window + sinks) | (k < sinks))).T",
        r"a column for each key: \(3, 5\); got \(5, 3\)",
    ),
    "no causal mask": (WINDOW + "    return (k > q - window + sinks) | (k < sinks)", "which comes later"),
    "sinks seen before they are there": (
        WINDOW + "    return ((k <= q) & (k > q - window + sinks)) | (k < sinks)",
        "Window 4, sinks 2: token 0 sees token 1",
    ),
    "off by one: not itself": (
        WINDOW + "    return (k < q) & ((k > q - window + sinks) | (k < sinks))",
        "token 0 should see 0; yours nothing",
    ),
    "off by one: window - 1": (
        WINDOW + "    return (k <= q) & ((k > q - window + sinks + 1) | (k < sinks))",
        "token 2 should see 0, 1, 2; yours 1, 2",
    ),
    "off by one: window + 1": (
        WINDOW + "    return (k <= q) & ((k >= q - window + sinks) | (k < sinks))",
        "A window of 3 is 3 keys, the token itself included; token 3 sees 4",
    ),
    "no window": (WINDOW + "    return k <= q", "A window of 3 is 3 keys.*sees 4: 0, 1, 2, 3"),
    "window of two for two": (
        WINDOW + "    return (k <= q) & ((k > q - max(window, 2) + sinks) | (k < sinks))",
        "A window of 1 is 1 keys",
    ),
    "sinks forgotten": (WINDOW + "    return (k <= q) & (k > q - window)", "does not see sink 0"),
    "one sink only": (
        WINDOW + "    return (k <= q) & ((k > q - window + sinks) | (k == 0) & (sinks > 0))",
        "does not see sink 1",
    ),
    "off by one: one sink too few": (
        WINDOW + "    return (k <= q) & ((k > q - window + sinks) | (k < sinks - 1))",
        "does not see sink",
    ),
    "sinks beside the window": (
        WINDOW + "    return (k <= q) & ((k > q - window) | (k < sinks))",
        "at most 6 keys in all. Token 6 should see 0, 1, 3, 4, 5, 6; yours 0, 1, 2, 3",
    ),
    "off by one: one sink too many": (
        WINDOW + "    return (k <= q) & ((k > q - window + sinks) | (k < sinks + (sinks > 0)))",
        "at most 6 keys in all",
    ),
    "columns for keys": (
        WINDOW + "    k = torch.arange(len(keys))[None, :]\n    return (k <= q) & ((k > q - window + sinks) | (k < sinks))",
        "Columns are the keys",
    ),
    "keys put in order": (
        WINDOW + "    k = k.sort().values\n    return (k <= q) & ((k > q - window + sinks) | (k < sinks))",
        "in the order of their slots",
    ),
    "rows for queries": (
        WINDOW + "    q = torch.arange(len(queries))[:, None]\n    return (k <= q) & ((k > q - window + sinks) | (k < sinks))",
        "Columns are the keys.*yours",
    ),
}

HEADS = {
    "as it came": (EXPAND + "    return kv", r"expected \(1, 9, 4, 2\); got \(1, 3, 4, 2\)"),
    "rows repeated": (EXPAND + "    return kv.repeat_interleave(group, dim=2)", r"got \(1, 3, 12, 2\)"),
    "texts repeated": (EXPAND + "    return kv.repeat_interleave(group, dim=0)", r"got \(3, 3, 4, 2\)"),
    "n_head times": (EXPAND + "    return kv.repeat_interleave(n_head, dim=1)", r"got \(1, 27, 4, 2\)"),
    "nothing returned": (EXPAND + "    kv.repeat_interleave(group, dim=1)", "Expected a tensor; got None"),
    "reshaped rows": (
        EXPAND
        + "    B, H_kv, S, D = kv.shape\n    return kv.repeat(1, 1, group, 1).reshape(B, S * group, H_kv, D).transpose(1, 2)"
        ".reshape(B, n_head, S, D)",
        "rows or numbers are mixed",
    ),
    "mean of the heads": (
        EXPAND + "    return kv.mean(1, keepdim=True).expand(-1, n_head, -1, -1)",
        "gets none of the . K/V heads",
    ),
    "taking turns": (
        EXPAND + "    return kv.repeat(1, group, 1, 1)",
        r"read \[0, 0, 0, 1, 1, 1\]; yours read \[0, 1, 0, 1, 0, 1\]",
    ),
    "turns by index": (EXPAND + "    return kv[:, torch.arange(n_head) % kv.shape[1]]", r"yours read \[0, 1, 0, 1, 0, 1\]"),
    "backwards": (EXPAND + "    return kv.repeat_interleave(group, dim=1).flip(1)", r"yours read \[1, 1, 1, 0, 0, 0\]"),
    "divided by the wrong number": (
        EXPAND + "    return kv[:, (torch.arange(n_head) // kv.shape[1]).clamp(max=kv.shape[1] - 1)]",
        r"yours read \[0, 0, 1, 1, 1, 1\]",
    ),
    "first text for all": (
        EXPAND + "    return kv[:1].repeat_interleave(group, dim=1).expand(len(kv), -1, -1, -1)",
        r"yours read \[\?, \?",
    ),
    "converted": (
        EXPAND + "    return kv.double().repeat_interleave(group, dim=1)",
        "came in as float32 and went out as float64",
    ),
}

LOW_HIGH = "    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)\n"
STEP = "    step = (high - low) / (2**bits - 1)\n"
SAFE = "torch.where(step > 0, step, 1.0)"
CODES = f"    codes = ((x - low) / {SAFE}).round().clamp(0, 2**bits - 1).to(torch.uint8)\n"
OUT = "    return codes, low, step"

QUANTIZES = {
    "codes alone": (QUANTIZE + LOW_HIGH + STEP + CODES + "    return codes", r"\(codes, low, step\); got a uint8 tensor"),
    "high returned too": (
        QUANTIZE + LOW_HIGH + STEP + CODES + "    return codes, low, high, step",
        "three tensors.*got a tuple of 4",
    ),
    "codes left as floats": (
        QUANTIZE + LOW_HIGH + STEP + CODES.replace(".to(torch.uint8)", "") + OUT,
        "a uint8 tensor; yours is a float64",
    ),
    "int64 codes": (QUANTIZE + LOW_HIGH + STEP + CODES.replace("uint8", "int64") + OUT, "a uint8 tensor; yours is an int64"),
    "one scale for all": (
        QUANTIZE + "    low, high = x.min(), x.max()\n" + STEP + CODES + OUT,
        r"One low for each of . groups, \(., 1\); got \(\)",
    ),
    "without keepdim": (
        QUANTIZE + LOW_HIGH + STEP + CODES + "    return codes, low[:, 0], step[:, 0]",
        r"One low for each of . groups",
    ),
    "along the wrong axis": (
        QUANTIZE + LOW_HIGH.replace("1,", "0,") + STEP + CODES + OUT,
        r"One low for each of . groups, \(., 1\); got \(1, .\)",
    ),
    "scales in float32": (
        QUANTIZE + LOW_HIGH + STEP + CODES + "    return codes, low.float(), step.float()",
        "low has x's dtype, float64; yours float32",
    ),
    "one scale spread over the groups": (
        QUANTIZE + "    low, high = x.min().expand(len(x), 1), x.max().expand(len(x), 1)\n" + STEP + CODES + OUT,
        "low is the least number of each group",
    ),
    "zero in the middle": (
        QUANTIZE + LOW_HIGH.replace("x.amin(1, keepdim=True)", "-x.abs().amax(1, keepdim=True)") + STEP + CODES + OUT,
        "low is the least number of each group",
    ),
    "from zero": (
        QUANTIZE + LOW_HIGH.replace("x.amin(1, keepdim=True)", "torch.zeros_like(x[:, :1])") + STEP + CODES + OUT,
        "low is the least number",
    ),
    "codes from 1": (QUANTIZE + LOW_HIGH + STEP + CODES.replace("clamp(0,", "clamp(1,") + OUT, "has the code 0; yours 1"),
    "off by one: 2**bits steps": (
        QUANTIZE + LOW_HIGH + STEP.replace("2**bits - 1", "2**bits") + CODES + OUT,
        "so 15 steps from least to greatest",
    ),
    "off by one: one code too few": (
        QUANTIZE + LOW_HIGH + STEP.replace("- 1", "- 2") + CODES + OUT,
        "so 15 steps from least to greatest",
    ),
    "always 4 bits": (
        QUANTIZE + "    bits = 4\n" + LOW_HIGH + STEP + CODES + OUT,
        "8 bits are the codes 0 to 255",
    ),
    "high for step": (QUANTIZE + LOW_HIGH + STEP + CODES + "    return codes, low, high", "so 15 steps"),
    "cut off": (
        QUANTIZE + LOW_HIGH + STEP + CODES.replace(".round()", ".add(1e-9).floor()") + OUT,
        "half a step is the most. Round",
    ),
    "rounded up": (
        QUANTIZE + LOW_HIGH + STEP + CODES.replace(".round()", ".sub(1e-9).ceil()") + OUT,
        "half a step is the most. Round",
    ),
    "rounded before it was divided": (
        QUANTIZE
        + LOW_HIGH
        + STEP
        + CODES.replace("(x - low)", "(x - low).mul(2).round().div(2).where((x != high) & (x != low), x - low)")
        + OUT,
        "half a step is the most",
    ),
    "divided by zero": (
        QUANTIZE
        + LOW_HIGH
        + STEP
        + CODES.replace(SAFE, "step").replace(".round()", ".nan_to_num(15.0).round()")
        + "    step = torch.where(step > 0, step, 1.0)\n"
        + OUT,
        "A group of equal numbers, ., comes back as",
    ),
    "step of nothing": (
        QUANTIZE + LOW_HIGH + STEP + "    step = torch.where(high > low, step, torch.nan)\n"
        "    codes = ((x - low) / step).nan_to_num(0.0).round().clamp(0, 2**bits - 1).to(torch.uint8)\n" + OUT,
        "a low or a step that is no number",
    ),
    "low lifted by a little": (
        QUANTIZE + LOW_HIGH + STEP + CODES + "    return codes, torch.where(high > low, low, low + 1e-3), step",
        "A group of equal numbers",
    ),
    "no clamp": (
        QUANTIZE + LOW_HIGH + STEP + CODES.replace(".clamp(0, 2**bits - 1)", "") + OUT,
        "a code came out above 255, and wrapped round",
    ),
    "clamped to bytes only": (
        QUANTIZE + LOW_HIGH + STEP + CODES.replace("2**bits - 1", "255") + OUT,
        "does not fit into 4 bits",
    ),
    "clamped when it is a byte": (
        QUANTIZE
        + LOW_HIGH
        + STEP
        + CODES.replace(".clamp(0, 2**bits - 1).to(torch.uint8)", ".to(torch.uint8).clamp(0, 2**bits - 1)")
        + OUT,
        "wrapped round",
    ),
    "caller's tensor changed": (
        QUANTIZE + LOW_HIGH + STEP + CODES.replace("(x - low)", "x.sub_(low)") + OUT,
        "x itself was written to",
    ),
}

DEQUANTIZES = {
    "nothing returned": (DEQUANTIZE + "    low + step * codes", "Expected a tensor; got None"),
    "one row": (DEQUANTIZE + "    return (low + step * codes)[0]", "A number for each code"),
    "float32 always": (
        DEQUANTIZE + "    return low.float() + step.float() * codes",
        "dtype of low and step, float16; yours float32",
    ),
    "bytes returned": (
        DEQUANTIZE + "    return (low + step * codes).to(torch.uint8)",
        "dtype of low and step, float32; yours uint8",
    ),
    "low forgotten": (DEQUANTIZE + "    return step * codes", "Code 0 stands for low"),
    "half a step higher": (DEQUANTIZE + "    return low + step * codes + step / 2", "Code 0 stands for low"),
    "step forgotten": (DEQUANTIZE + "    return low + codes", "rises by one step, .*; yours by 1.000"),
    "divided by step": (DEQUANTIZE + "    return low + codes / step", "rises by one step"),
    "downwards": (DEQUANTIZE + "    return low - step * codes", "rises by one step, .*; yours by -"),
    "four bits only": (DEQUANTIZE + "    return low + step * (codes & 15)", "Code 127 of 8 bits"),
    "signed bytes": (DEQUANTIZE + "    return low + step * codes.to(torch.int8)", "Code 128 of 8 bits"),
    "bytes times two": (DEQUANTIZE + "    return low + step / 2 * (codes * 2)", "Code 128 of 8 bits"),
    "first group for all": (DEQUANTIZE + "    return low[:1] + step[:1] * codes", "group 1 has a low and a step of its own"),
    "groups along the wrong axis": (
        DEQUANTIZE
        + "    if codes.shape[0] == codes.shape[1]:\n        low, step = low.T, step.T\n    return low + step * codes",
        "group 0 has a low and a step of its own",
    ),
}

MUTANTS = {"8.1": SLOT_ANSWERS, "8.2": WINDOW_ANSWERS, "8.3": HEADS, "8.4": QUANTIZES, "8.5": DEQUANTIZES}

FAIR = {
    "8.1": {
        "slot by slot, backwards": SLOTS + "    ring = window - sinks\n    def last(slot):\n        if slot < sinks:\n"
        "            return slot if slot < length else None\n"
        "        return next((t for t in range(length - 1, sinks - 1, -1) if (t - sinks) % ring == slot - sinks), None)\n"
        "    return [last(slot) for slot in range(window)]",
        "by replacing": SLOTS + "    slots = []\n    for token in range(length):\n        if len(slots) < window:\n"
        "            slots.append(token)\n        else:\n"
        "            oldest = min(slots[sinks:])\n            slots[slots.index(oldest)] = token\n"
        "    return slots + [None] * (window - len(slots))",
    },
    "8.2": {
        "two loops": "def my_window(queries, keys, window, sinks):\n"
        "    table = torch.zeros(len(queries), len(keys), dtype=torch.bool)\n"
        "    for i, q in enumerate(queries.tolist()):\n        for j, k in enumerate(keys.tolist()):\n"
        "            table[i, j] = k <= q and (k < sinks or q - k < window - sinks)\n    return table",
        "distances": WINDOW + "    back = q - k\n    return (back >= 0) & ~((back >= window - sinks) & (k >= sinks))",
    },
    "8.3": {
        "repeat_interleave": EXPAND + "    return kv.repeat_interleave(group, dim=1)",
        "expand and reshape": EXPAND + "    B, H_kv, S, D = kv.shape\n"
        "    return kv[:, :, None].expand(B, H_kv, group, S, D).reshape(B, n_head, S, D)",
        "a list of heads": EXPAND + "    return torch.stack([kv[:, h // group] for h in range(n_head)], dim=1)",
    },
    "8.4": {
        "row by row": QUANTIZE
        + "    top = 2**bits - 1\n    parts = []\n    for row in x:\n        low, high = row.min(), row.max()\n"
        "        step = (high - low) / top\n        codes = (row - low) / step if step > 0 else torch.zeros_like(row)\n"
        "        parts.append((codes.round().clamp(0, top).to(torch.uint8), low[None], step[None]))\n"
        "    return tuple(torch.stack(part) for part in zip(*parts))",
        "half added and cut off": QUANTIZE + LOW_HIGH + STEP + CODES.replace(".round()", ".add(0.5).floor()") + OUT,
        "a step of 1 where there is none": QUANTIZE + LOW_HIGH + STEP + f"    step = {SAFE}\n" + CODES + OUT,
    },
    "8.5": {
        "addcmul": DEQUANTIZE + "    return torch.addcmul(low, codes.to(low.dtype), step)",
        "row by row": DEQUANTIZE + "    return torch.stack([a + b * c for a, b, c in zip(low, step, codes)])",
    },
}

"""Exercise 04: wrong answers, most of which learners or published code really gave; and what the check says to each.

MUTANTS[task][name] = (the answer's source, a regular expression that its message matches). Data alone: nothing runs here.
"""

FIND = "def my_k_names(shapes, layer):\n"
SPLIT = "def my_split(weight, bias):\n    C = weight.shape[0]\n"
KEYS = "def my_keys(x, weights, layer, n_head):\n"
READ = "def my_read(data, name):\n"


def kept(condition: str, before: str = "") -> str:
    return FIND + before + f"    return [name for name in shapes if {condition}]"


WORD = "('c_attn' in name.split('.') or 'k_proj' in name.split('.'))"
LAYER = "str(layer) in name.split('.')"
RIGHT = f"{LAYER} and {WORD}"

FINDS = {
    "nothing": (FIND + "    return None", "list of names; got None"),
    "a set": (FIND + f"    return {{name for name in shapes if {RIGHT}}}", "list of names; got a set"),
    "one name alone": (FIND + f"    return [name for name in shapes if {RIGHT}][0]", "list of names; got a str"),
    "names and shapes": (
        FIND + f"    return [(name, shapes[name]) for name in shapes if {RIGHT}]",
        "Not every item of your list is a name",
    ),
    "shapes only": (FIND + f"    return [shapes[name] for name in shapes if {RIGHT}]", "Not every item of your list is a name"),
    "a name twice": (FIND + f"    return [name for name in shapes if {RIGHT}] * 2", "listed twice: transformer"),
    "bias forgotten": (kept(f"{RIGHT} and name.endswith('weight')"), r"missing: transformer\.h\.0\.attn\.c_attn\.bias"),
    "weight forgotten": (kept(f"{RIGHT} and name.endswith('bias')"), r"missing: .*c_attn\.weight"),
    "attention's output too": (kept(f"{LAYER} and 'attn' in name"), r"c_proj\.weight.*makes no K"),
    "the whole block": (kept(LAYER), "which makes no K"),
    "every block": (kept(WORD), "belongs elsewhere"),
    "by a name that GPT-2 does not have": (kept(f"{LAYER} and 'k_proj' in name"), "missing"),
    "digit anywhere": (kept(f"str(layer) in name and {WORD}"), "a part of another number"),
    "number of the block cut short": (
        kept(f"name.split('h.')[-1].startswith(str(layer)) and {WORD}"),
        "a part of another number",
    ),
    "last digit": (kept(f"f'{{layer}}.' in name and {WORD}"), "a part of another number"),
    "off by one: counted from 1": (
        kept(f"str(max(layer, 1) - 1 if layer else 0) in name.split('.') and {WORD}"),
        "belongs elsewhere",
    ),
    "first ten blocks only": (kept(f"str(layer % 10) in name.split('.') and {WORD}"), "belongs elsewhere"),
    "GPT-2 only": (kept(f"{LAYER} and 'c_attn' in name"), "In a Llama.*missing"),
    "all three of a Llama": (kept(f"{LAYER} and ('c_attn' in name or '_proj' in name and 'self' in name)"), "q_proj"),
    "Llama: queries": (kept(f"{LAYER} and ('c_attn' in name or 'q_proj' in name)"), "q_proj.*makes no K"),
    "Llama: block by a digit": (
        kept("(f'h.{layer}.attn.c_attn' in name) or (f'layers.{layer}' in name and 'k_proj' in name)"),
        "a part of another number",
    ),
    "Llama: no bias looked for": (
        kept(f"{LAYER} and ('c_attn' in name or name.endswith('k_proj.weight'))"),
        r"have biases.*missing: .*k_proj\.bias",
    ),
    "masks taken for weights": (
        kept(f"{LAYER} and ('c_attn' in name or 'k_proj' in name or name.endswith('attn.bias'))"),
        r"a mask, stored",
    ),
    "masks: every bias of attention": (
        kept(f"{RIGHT} or ({LAYER} and 'attn.' in name and 'bias' in name and 'proj' not in name)"),
        "a mask, stored",
    ),
    "with the first word only": (
        kept("name.startswith((f'transformer.h.{layer}.attn.c_attn', f'model.layers.{layer}.self_attn.k_proj'))"),
        "saved without its head.*missing",
    ),
    "third word is the number": (
        kept(f"name.split('.')[2] == str(layer) and {WORD}", "    shapes = [n for n in shapes if n.count('.') > 2]\n"),
        "saved without its head.*missing",
    ),
}

PAIRS = "    return tuple(zip({weights}, {biases}))"
COLUMNS, NUMBERS = "weight.split(C, dim=1)", "bias.split(C)"


def split(weights: str = COLUMNS, biases: str = NUMBERS, before: str = "") -> str:
    return SPLIT + before + PAIRS.format(weights=weights, biases=biases)


SPLITS = {
    "nothing": (SPLIT + "    return None", "three pairs.*got None"),
    "weights alone": (SPLIT + f"    return {COLUMNS}", "part for q should be a pair.*float64 tensor"),
    "weights, then biases": (SPLIT + f"    return {COLUMNS}, {NUMBERS}", "three pairs.*got 2 of something"),
    "six in a row": (SPLIT + f"    return (*{COLUMNS}, *{NUMBERS})", "three pairs.*got 6 of something"),
    "one tensor": (SPLIT + f"    return torch.stack({COLUMNS})", "three pairs.*got a float64 tensor"),
    "a dict": (SPLIT + "    return dict(zip('qkv', " + PAIRS.format(weights=COLUMNS, biases=NUMBERS)[17:] + ")", "got a dict"),
    "lists of numbers": (
        split("(w.tolist() for w in weight.split(C, dim=1))"),
        "part for q should be a pair of tensors",
    ),
    "cut by rows": (split("weight.split(4)", "bias.split(C)").replace("split(4)", "tensor_split(3)"), "rows were cut"),
    "folded into three": (split("weight.view(3, C, C).transpose(1, 2).reshape(3, C * C)"), r"Wq should be \(4, 4\)"),
    "bias not cut": (split(biases="(bias, bias, bias)"), r"bq is \(12,\): all of q, k and v together"),
    "weight not cut": (split("(weight, weight, weight)"), r"Wq is \(4, 12\): all of q, k and v"),
    "bias as a row": (split(biases="bias[None].split(C, dim=1)"), r"bq should be \(4,\), and is \(1, 4\)"),
    "keys first": (split("(weight[:, C:2*C], weight[:, :C], weight[:, 2*C:])"), "return as Wq is Wk. The order is q, k, v"),
    "backwards": (split("reversed(weight.split(C, dim=1))"), "return as Wq is Wv"),
    "every third column": (split("(weight[:, i::3] for i in range(3))"), "every third column"),
    "turned over": (split("(w.T for w in weight.split(C, dim=1))"), "Wq is turned over"),
    "folded without care": (split("weight.reshape(3, C, C)"), "right shape and not the right numbers"),
    "off by one": (
        split("(weight[:, :C], weight[:, C + 1 : 2 * C + 1], weight[:, 2 * C :])"),
        "right shape and not the right numbers",
    ),
    "keys twice": (split("(weight[:, :C], weight[:, C:2*C], weight[:, C:2*C])"), "return as Wv is Wk"),
    "bias by threes": (split(biases="(bias[i::3] for i in range(3))"), "Wq is right, bq is not"),
    "bias of q for all": (split(biases="(bias[:C], bias[:C], bias[:C])"), "Wk is right, bk is not"),
    "bias backwards": (split(biases="reversed(bias.split(C))"), "Wq is right, bq is not"),
    "four, learnt by heart": (
        split("weight.split(4, dim=1)", "bias.split(4)").replace("weight.split(4", "weight.split(4 if C > 4 else C"),
        "three pairs|should be",
    ),
    "never more than eight": (
        split(before="    weight, bias = weight.clone(), bias.clone()\n    weight[:, 24:] = 0\n"),
        "are not the fused tensors again",
    ),
    "written to": (
        split(before="    weight *= 2\n").replace("weight.split", "(weight / 2).split"),
        "itself was changed",
    ),
    "emptied afterwards": (
        SPLIT + "    parts = [(w.clone(), b.clone()) for w, b in zip(weight.split(C, dim=1), bias.split(C))]\n"
        "    weight.zero_()\n    return parts",
        "itself was changed",
    ),
    "wrong dtype: float32": (
        split("(w.float() if w.dtype == torch.float16 else w for w in weight.split(C, dim=1))"),
        "float16 went in; float32",
    ),
    "wrong dtype: half": (
        split(biases="(b.half() if b.dtype == torch.float32 else b for b in bias.split(C))"),
        "float32 went in; float32 and float16 came out",
    ),
}


def keys(
    norm: str = "ln_1",
    part: str = "C : 2 * C",
    layer: str = "layer",
    product: str = "normed @ W + b",
    result: str = "K.view(T, n_head, C // n_head).transpose(0, 1)",
    eps: str = "1e-5",
    before: str = "",
) -> str:
    return (
        KEYS
        + "    T, C = x.shape\n"
        + before
        + f"    block = f'transformer.h.{{{layer}}}.'\n"
        + f"    gain, shift = weights[block + '{norm}.weight'], weights[block + '{norm}.bias']\n"
        + f"    normed = torch.nn.functional.layer_norm(x, (C,), gain, shift, eps={eps})\n"
        + f"    W = weights[block + 'attn.c_attn.weight'][:, {part}]\n"
        + f"    b = weights[block + 'attn.c_attn.bias'][{part}]\n"
        + f"    K = {product}\n"
        + f"    return {result}"
    )


def normed_by_hand(spread: str) -> str:
    by_hand = f"(x - x.mean(1, keepdim=True)) / {spread} * gain + shift"
    return keys().replace("torch.nn.functional.layer_norm(x, (C,), gain, shift, eps=1e-5)", by_hand)


KEY_ANSWERS = {
    "nothing": (KEYS + "    return None", "tensor of floats; got None"),
    "list": (keys(result="K.tolist()"), "tensor of floats; got a list"),
    "no heads": (keys(result="K"), r"are \(H, T, D\) = \(2, 3, 4\); yours are \(3, 8\): not cut into heads"),
    "tokens first": (keys(result="K.view(T, n_head, C // n_head)"), "tokens first. Exchange two axes"),
    "with a batch axis": (keys(result="K.view(1, T, n_head, C // n_head).transpose(1, 2)"), "There is no batch here"),
    "all of q, k and v": (
        keys(part=":", result="K.view(T, n_head, 3 * C // n_head).transpose(0, 1)"),
        r"\(2, 3, 4\); yours are \(2, 3, 12\)",
    ),
    "head size last but one": (keys(result="K.view(T, n_head, C // n_head).permute(1, 2, 0)"), r"yours are \(2, 4, 3\)"),
    "without ln_1": (keys().replace("torch.nn.functional.layer_norm(x, (C,), gain, shift, eps=1e-5)", "x"), "without ln_1"),
    "ln_2": (keys(norm="ln_2"), "normalised with ln_2"),
    "queries": (keys(part=":C"), "These are the queries"),
    "values": (keys(part="2 * C :"), "These are the values"),
    "no bias": (keys(product="normed @ W"), "The bias is missing"),
    "folded without care": (keys(result="K.view(n_head, T, C // n_head)"), "numbers are mixed up"),
    "folded from the turned matrix": (keys(result="K.T.reshape(n_head, T, C // n_head)"), "numbers are mixed up"),
    "heads interleaved": (keys(result="K.view(T, C // n_head, n_head).permute(2, 0, 1)"), "every H-th column"),
    "turned weight": (keys(product="normed @ W.T + b"), "These are not the keys"),
    "norm over tokens": (
        keys().replace(
            "torch.nn.functional.layer_norm(x, (C,), gain, shift, eps=1e-5)",
            "(x - x.mean(0)) / x.std(0, unbiased=False).add(1) * gain + shift",
        ),
        "These are not the keys",
    ),
    "bias after the heads are mixed": (keys(product="normed @ W + b.flip(0)"), "These are not the keys"),
    "norm without its weights": (
        keys().replace("gain, shift, eps", "None, None, eps"),
        "own weight and bias are missing",
    ),
    "norm's own bias forgotten": (keys().replace("gain, shift, eps", "gain, None, eps"), "These are not the keys"),
    "block 0 always": (keys(layer="0"), "For block 1 you took the weights of block 0"),
    "off by one: the block below": (keys(layer="max(layer - 1, 0)"), "For block 1 you took the weights of block 0"),
    "first match": (
        keys(before="    layer = next(n for n in weights if f'h.{layer}' in n).split('.')[2]\n", layer="layer").replace(
            "if f'h.{layer}' in n)", "if f'h.{layer}'[:3] in n)"
        ),
        r"For block 1[012] you took the weights of block 1\.",
    ),
    "C learnt by heart": (
        keys(before="    C = 8 if C == 8 else 12 if C == 12 else 4\n    x = x[:, :C]\n    weights = dict(weights)\n").replace(
            "weights[block + 'ln_1.weight'], weights[block + 'ln_1.bias']",
            "weights[block + 'ln_1.weight'][:C], weights[block + 'ln_1.bias'][:C]",
        ),
        "stopped with RuntimeError",
    ),
    "two heads or three": (
        keys(result="(K[:, : C - C % 4] if C == 16 else K).reshape(T, n_head, -1).transpose(0, 1).flip(0)").replace(
            ".flip(0)", ".flip(0 if n_head > 3 else ())"
        ),
        "not for",
    ),
    "one token dropped into the mean": (
        keys(before="    x = x - x.mean(0) * (T == 1)\n"),
        "not for 1 token, 2 heads",
    ),
    "another eps": (keys(eps="1e-6"), "For a very small x the keys differ: ln_1 adds eps = 1e-05"),
    "no eps": (normed_by_hand("x.var(1, keepdim=True, unbiased=False).sqrt()"), "very small x"),
    "eps outside the root": (normed_by_hand("(x.std(1, keepdim=True, unbiased=False) + 1e-5)"), "very small x|not the keys"),
    "n - 1": (normed_by_hand("(x.var(1, keepdim=True) + 1e-5).sqrt()"), "These are not the keys"),
    "x normalised in place": (
        keys(before="    out = torch.nn.functional.layer_norm(x, (C,))\n", product="normed @ W + b").replace(
            "    K = ", "    x.copy_(out)\n    K = "
        ),
        "x was changed",
    ),
    "bias added in place to a weight": (
        keys().replace("    K = ", "    weights[block + 'ln_1.bias'].mul_(1.0).add_(1)\n    K = "),
        "weight was changed: transformer.h.0.ln_1.bias",
    ),
    "weights taken out": (
        keys().replace("    K = ", "    weights.pop(block + 'ln_2.bias', None)\n    K = "),
        "weight was changed",
    ),
    "wrong dtype: float64": (keys(result="K.view(T, n_head, C // n_head).transpose(0, 1).double()"), "your keys are float64"),
}


def read(
    begin: str = "8 + length",
    order: str = "little",
    entry: str = "header[name]",
    offsets: str = "start, stop = entry['data_offsets']",
    dtype: str = "{'F32': torch.float32, 'F16': torch.float16}[entry['dtype']]",
    result: str = "row.reshape(entry['shape'])",
    before: str = "",
) -> str:
    return (
        READ
        + "    data = bytes(data)\n"
        + f"    length = int.from_bytes(data[:8], '{order}')\n"
        + "    header = json.loads(data[8 : 8 + length])\n"
        + before
        + f"    entry = {entry}\n"
        + f"    {offsets}\n"
        + f"    begin = {begin}\n"
        + "    numbers = bytearray(data[begin + start : begin + stop])\n"
        + f"    row = torch.frombuffer(numbers, dtype={dtype})\n"
        + f"    return {result}"
    )


SIZES = (
    "    start = 0\n    for other, entry in header.items():\n"
    "        n = 1\n        for size in entry['shape']:\n            n *= size\n"
    "        stop = start + n * {'F32': 4, 'F16': 2}[entry['dtype']]\n"
    "        if other == name:\n            break\n        start = stop\n"
)
NO_OFFSETS = {"entry": "header[name]", "offsets": "pass"}
ONLY_TENSORS = "    header = {n: e for n, e in header.items() if n != '__metadata__'}\n"
BY_PLACE = "    header = dict(sorted(header.items(), key=lambda item: item[1]['data_offsets'][0]))\n"

READS = {
    "nothing": (READ + "    return None", "Expected a tensor; got None"),
    "the header's entry": (read(result="entry"), "Expected a tensor; got a dict"),
    "list": (read(result="row.tolist()"), "Expected a tensor; got a list of 6 float"),
    "array": (read(result="row.reshape(entry['shape']).numpy()"), "Expected a tensor; got an ndarray"),
    "not folded": (read(result="row"), r"All 6 numbers in one row. The header says \[2, 3\]"),
    "folded the other way": (read(result="row.reshape(entry['shape'][::-1])"), r"says \[2, 3\]; your tensor has .*\(3, 2\)"),
    "turned over": (
        read(result="row.reshape(entry['shape'][::-1]).T if len(entry['shape']) == 2 else row.reshape(entry['shape'])"),
        "in another order: a row after the other",
    ),
    "from the start of the file": (read(begin="0"), "counted from the start of the file"),
    "without the first eight": (read(begin="length"), "8 too early"),
    "from the header's start": (read(begin="8"), "inside the header"),
    "big end first": (read(order="big"), "my_read stopped with"),
    "numbers' big end first": (
        read().replace(
            "    row =",
            "    numbers = bytearray(b''.join(numbers[i:i + 4][::-1] for i in range(0, len(numbers), 4)))\n    row =",
        ),
        "wrong order: the least significant comes first",
    ),
    "backwards": (read(result="row.flip(0).reshape(entry['shape'])"), "in another order"),
    "rounded": (read(result="(row * 1000).round().div(1000).reshape(entry['shape'])"), "are not the numbers of ln_f.bias"),
    "first tensor always": (read(entry="header[list(header)[0]]"), r"numbers of h\.0\.ln_1|The header says"),
    "offsets ignored": (
        read(offsets="start, stop = 0, entry['data_offsets'][1] - entry['data_offsets'][0]"),
        r"For h\.[123]\.ln_1\.weight you read|are not the numbers of",
    ),
    "sizes added up": (read(**NO_OFFSETS, before=ONLY_TENSORS + SIZES), "in another order than the bytes'"),
    "index in the list of names": (
        read(
            offsets="starts = sorted(e['data_offsets'] for e in header.values() if 'shape' in e)",
            before=ONLY_TENSORS,
        ).replace("    begin =", "    start, stop = starts[list(header).index(name)]\n    begin ="),
        "in another order than the bytes'",
    ),
    "float32 always": (read(dtype="torch.float32", result="row.reshape(entry['shape'])"), "stopped with RuntimeError|is F16"),
    "four bytes a number": (
        read(
            offsets="start = entry['data_offsets'][0]",
            result="row.reshape(entry['shape'])",
            before="    n = 1\n    for size in header[name]['shape']:\n        n *= size\n",
        ).replace("begin + stop]", "begin + start + 4 * n]"),
        "stopped with RuntimeError",
    ),
    "half made float": (read(result="row.reshape(entry['shape']).float()"), "a is F16, float16; yours is float32"),
    "half by its number": (read(result="row.float().reshape(entry['shape'])"), "is F16, float16; yours is float32"),
    "metadata taken for a tensor": (read(before=BY_PLACE), "my_read stopped with KeyError"),
    "metadata: sizes in order": (
        read(before="    total = sum(e['data_offsets'][1] - e['data_offsets'][0] for e in header.values())\n"),
        "my_read stopped with KeyError",
    ),
    "metadata counted as the first": (
        read(before="    length -= 8 * (list(header)[0] == '__metadata__')\n"),
        "also has the entry __metadata__. Those bytes lie 8 too early",
    ),
    "matrices and rows only": (
        read(
            before="    shape = header[name]['shape']\n    shape = shape if len(shape) == 1 else (shape[0], shape[1])\n",
            result="row.reshape(shape)",
        ),
        "stopped with IndexError",
    ),
    "at least one axis": (read(result="row.reshape(entry['shape'] or [1])"), r"says \[\]; your tensor has the shape \(1,\)"),
    "axes of one dropped": (
        read(result="row.reshape(entry['shape']).squeeze() if len(entry['shape']) > 2 else row.reshape(entry['shape'])"),
        r"says \[2, 1, 3\]; your tensor has the shape \(2, 3\)",
    ),
}

MUTANTS = {"4.1": FINDS, "4.2": SPLITS, "4.3": KEY_ANSWERS, "4.4": READS}

# Right answers, written otherwise: FAIR[task][name] = the answer's source.
FAIR = {
    "4.1": {
        "regular expression": """\
import re
def my_k_names(shapes, layer):
    here = re.compile(rf"(.*\\.)?(h|layers)\\.{layer}\\.(attn\\.c_attn|self_attn\\.k_proj)\\.(weight|bias)")
    return sorted((name for name in shapes if here.fullmatch(name)), reverse=True)""",
        "ends of names, as a tuple": """\
def my_k_names(shapes, layer):
    ends = tuple(f".{layer}.{part}.{end}" for part in ("attn.c_attn", "self_attn.k_proj") for end in ("weight", "bias"))
    return tuple(name for name in shapes if ("." + name).endswith(ends))""",
    },
    "4.2": {
        "slices in a loop, as lists": """\
def my_split(weight, bias):
    C, parts = len(weight), []
    for i in range(3):
        parts.append([weight[:, i * C : (i + 1) * C], bias[i * C : (i + 1) * C]])
    return parts""",
        "folded": """\
def my_split(weight, bias):
    C = weight.shape[0]
    W, b = weight.reshape(C, 3, C), bias.reshape(3, C)
    return [(W[:, i].clone(), b[i].clone()) for i in range(3)]""",
    },
    "4.3": {
        "everything by hand": """\
def my_keys(x, weights, layer, n_head):
    get = lambda name: weights[f"transformer.h.{layer}.{name}"]
    normed = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-5) ** 0.5
    normed = normed * get("ln_1.weight") + get("ln_1.bias")
    q, k, v = (normed @ get("attn.c_attn.weight") + get("attn.c_attn.bias")).chunk(3, dim=-1)
    return torch.stack(k.chunk(n_head, dim=-1))""",
        "a head at a time": """\
def my_keys(x, weights, layer, n_head):
    T, C = x.shape
    block, D = f"transformer.h.{layer}.", C // n_head
    normed = torch.layer_norm(x, (C,), weights[block + "ln_1.weight"], weights[block + "ln_1.bias"])
    K = torch.empty(n_head, T, D, dtype=x.dtype)
    for h in range(n_head):
        columns = slice(C + h * D, C + (h + 1) * D)
        K[h] = normed @ weights[block + "attn.c_attn.weight"][:, columns] + weights[block + "attn.c_attn.bias"][columns]
    return K""",
    },
    "4.4": {
        "struct and NumPy": """\
import struct
import numpy as np
def my_read(data, name):
    raw = bytes(data)
    (length,) = struct.unpack("<Q", raw[:8])
    entry = json.loads(raw[8:][:length].decode())[name]
    first, last = entry["data_offsets"]
    row = np.frombuffer(raw[8 + length:][first:last], dtype={"F32": "<f4", "F16": "<f2"}[entry["dtype"]])
    return torch.from_numpy(row.copy()).reshape(entry["shape"])""",
        "half made float and half again": """\
import numpy as np
def my_read(data, name):
    raw = bytes(data)
    begin = 8 + int.from_bytes(raw[:8], "little")
    entry = json.loads(raw[8:begin])[name]
    start, stop = (begin + offset for offset in entry["data_offsets"])
    row = np.frombuffer(raw[start:stop], dtype={"F32": "<f4", "F16": "<f2"}[entry["dtype"]]).astype("f4")
    return torch.tensor(row).to({"F32": torch.float32, "F16": torch.float16}[entry["dtype"]]).reshape(entry["shape"])""",
        "bytes seen as numbers": """\
def my_read(data, name):
    raw = torch.tensor(data, dtype=torch.uint8)
    begin = 8 + sum(byte * 256**place for place, byte in enumerate(data[:8]))
    entry = json.loads("".join(map(chr, data[8:begin])))[name]
    start, stop = entry["data_offsets"]
    row = raw[begin + start : begin + stop].clone()
    return row.view(torch.float32 if entry["dtype"] == "F32" else torch.float16).view(entry["shape"])""",
    },
}

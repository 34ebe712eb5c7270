"""Exercise 03: wrong answers, most of which learners or published code really gave; and what the check says to each.

MUTANTS[task][name] = (the answer's source, a regular expression that its message matches). Data alone: nothing runs here.
"""

NORM = "def my_layer_norm(x, weight, bias, eps):\n"
MLP = "def my_mlp(x, c_fc_w, c_fc_b, c_proj_w, c_proj_b):\n"
BLOCK = "def my_block(x, ln_1, attn, ln_2, mlp):\n"
GPT = "def my_gpt(tokens, wte, wpe, blocks, ln_f):\n"
COUNT = "def my_parameter_count(vocab_size, context_length, n_layer, n_embd, n_inner):\n    V, P, L, C, F = (\n"
COUNT += "        vocab_size, context_length, n_layer, n_embd, n_inner)\n"


def norm(
    mean: str = "x.mean(dim=-1, keepdim=True)",
    var: str = "x.var(dim=-1, keepdim=True, correction=0)",
    scale: str = "(var + eps).sqrt()",
    out: str = "y * weight + bias",
) -> str:
    return NORM + f"    mean = {mean}\n    var = {var}\n    y = (x - mean) / {scale}\n    return {out}"


def mlp(
    wide: str = "x @ c_fc_w + c_fc_b",
    bend: str = "torch.nn.functional.gelu(h, approximate='tanh')",
    out: str = "h @ c_proj_w + c_proj_b",
) -> str:
    return MLP + f"    h = {wide}\n    h = {bend}\n    return {out}"


def block(first: str = "x = x + attn(ln_1(x))", second: str = "x = x + mlp(ln_2(x))", out: str = "x") -> str:
    return BLOCK + f"    {first}\n    {second}\n    return {out}"


def gpt(
    start: str = "wte[tokens] + wpe[torch.arange(tokens.shape[1])]",
    loop: str = "for block in blocks:\n        x = block(x)",
    norm: str = "ln_f(x)",
    out: str = "x @ wte.T",
) -> str:
    return GPT + f"    x = {start}\n    {loop}\n    x = {norm}\n    return {out}"


def count(
    attention: str = "C * 3 * C + 3 * C + C * C + C",
    mlp: str = "C * F + F + F * C + C",
    norms: str = "4 * C",
    rest: str = "V * C + P * C + 2 * C",
) -> str:
    return COUNT + f"    return L * ({attention} + {mlp} + {norms}) + {rest}"


NORMS = {
    "nothing": (NORM + "    x = (x - x.mean(dim=-1, keepdim=True))", "should be a tensor; it is None"),
    "list": (norm(out="(y * weight + bias).tolist()"), "should be a tensor; it is a list"),
    "keepdim forgotten": (norm(mean="x.mean(dim=-1)"), "stopped with RuntimeError"),
    "statistics too": (norm(out="(y * weight + bias, mean)"), "should be a tensor; it is a tuple"),
    "first token only": (norm(out="(y * weight + bias)[:, :1]"), "should have the shape"),
    "wrong dtype: float32": (norm(out="(y * weight + bias).float()"), "should be float64.*it is float32"),
    "wrong dtype: float64": (norm(out="(y * weight + bias).double()"), "should be float32.*it is float64"),
    "axis of tokens": (
        norm(mean="x.mean(dim=1, keepdim=True)", var="x.var(dim=1, keepdim=True, correction=0)"),
        "taken over the tokens",
    ),
    "one mean for all": (norm(mean="x.mean()", var="x.var(correction=0)"), "One mean was taken for all tokens"),
    "mean not taken off": (norm(mean="0"), "the mean of each token's numbers should be 0"),
    "RMS norm": (norm(mean="0", var="(x ** 2).mean(dim=-1, keepdim=True)"), "the mean of each token's numbers should be 0"),
    "median": (norm(mean="x.median(dim=-1, keepdim=True).values"), "the mean of each token's numbers should be 0"),
    "torch's own variance": (norm(var="x.var(dim=-1, keepdim=True)"), "torch's by C - 1"),
    "no root": (norm(scale="(var + eps)"), "You divide by the variance"),
    "not scaled": (norm(scale="1"), "the numbers are not scaled"),
    "multiplied instead of divided": (norm(scale="(1 / (var + eps).sqrt())"), "each token's variance should be 1"),
    "one variance for all": (norm(var="(x - mean).var(correction=0)"), "each token's variance should be 1; for four"),
    "length one": (norm(scale="(x - mean).norm(dim=-1, keepdim=True)"), "each token's variance should be 1"),
    "eps outside the root": (norm(scale="(var.sqrt() + eps)"), "belongs under the root"),
    "eps left out": (norm(scale="var.sqrt()"), "eps is not used"),
    "eps fixed": (norm(scale="(var + 1e-12).sqrt()"), "eps is not used"),
    "eps twice": (norm(scale="(var + 2 * eps).sqrt()"), "the scale is off"),
    "eps squared": (norm(scale="(var + eps ** 2).sqrt()"), "the scale is off"),
    "eps as a floor": (norm(scale="var.clamp(min=eps).sqrt()"), "the scale is off"),
    "weight left out": (norm(out="y + bias"), "weight is not used"),
    "bias left out": (norm(out="y * weight"), "bias is not used"),
    "both left out": (norm(out="y"), "weight is not used"),
    "bias first": (norm(out="(y + bias) * weight"), "yours adds the bias first"),
    "weight and bias swapped": (norm(out="y * bias + weight"), "the wrong way round"),
    "scaled before it is normalised": (
        NORM + "    x = x * weight + bias\n    var = x.var(dim=-1, keepdim=True, correction=0)\n"
        "    return (x - x.mean(dim=-1, keepdim=True)) / (var + eps).sqrt()",
        "wrong with others",
    ),
    "statistics of the first text": (
        norm(var="x[:1].var(dim=-1, keepdim=True, correction=0)"),
        "A token among others gives something else",
    ),
    "in place": (
        NORM + "    x -= x.mean(dim=-1, keepdim=True)\n    x /= (x.var(dim=-1, keepdim=True, correction=0) + eps).sqrt()\n"
        "    return x * weight + bias",
        "x itself was written to",
    ),
    "weight in place": (norm(out="y * weight.mul_(2) / 2 + bias"), "weight itself was written to"),
}

MLPS = {
    "nothing": (MLP + "    h = x @ c_fc_w + c_fc_b", "should be a tensor; it is None"),
    "hidden numbers returned": (mlp(out="h"), r"should have the shape \(1, 3, 4\); it has \(1, 3, 16\)"),
    "weights turned": (mlp(wide="x @ c_fc_w.T + c_fc_b"), "stopped with RuntimeError"),
    "last token only": (mlp(out="(h @ c_proj_w + c_proj_b)[:, -1]"), "should have the shape"),
    "wrong dtype: float32": (mlp(out="(h @ c_proj_w + c_proj_b).float()"), "should be float64.*float32"),
    "no bend": (mlp(bend="h"), "There is no bend"),
    "exact GELU": (mlp(bend="torch.nn.functional.gelu(h)"), "approximate='tanh', which differs"),
    "ReLU": (mlp(bend="torch.relu(h)"), "The bend is ReLU"),
    "SiLU": (mlp(bend="torch.nn.functional.silu(h)"), "The bend is SiLU"),
    "tanh": (mlp(bend="torch.tanh(h)"), "GELU of x should come out; something else did"),
    "bend before the first map": (
        mlp(wide="torch.nn.functional.gelu(x, approximate='tanh') @ c_fc_w + c_fc_b", bend="h"),
        "c_fc_b is added after the bend",
    ),
    "bend at the end too": (
        mlp(out="torch.nn.functional.gelu(h @ c_proj_w + c_proj_b, approximate='tanh')"),
        "after the second map as well",
    ),
    "bend at the end": (
        MLP + "    h = (x @ c_fc_w + c_fc_b) @ c_proj_w + c_proj_b\n    return torch.nn.functional.gelu(h, approximate='tanh')",
        "every token should come out as c_proj_b",
    ),
    "residual inside": (mlp(out="x + h @ c_proj_w + c_proj_b"), "That is the block's work"),
    "softmax": (mlp(bend="h.softmax(dim=-1)"), "something else did"),
    "columns of the first matrix moved": (mlp(wide="x @ c_fc_w.roll(1, 1) + c_fc_b"), "something else did"),
    "matrices reshaped, not turned": (
        mlp(wide="x @ c_fc_w.T.reshape(c_fc_w.shape) + c_fc_b"),
        "through c_fc_w and then c_proj_w",
    ),
    "one matrix for both ways": (mlp(out="h @ c_fc_w.T + c_proj_b"), "c_fc_b should be added once|c_proj_w all zeros"),
    "first bias left out": (mlp(wide="x @ c_fc_w"), "c_fc_b is not added"),
    "first bias after the bend": (
        mlp(wide="x @ c_fc_w", bend="torch.nn.functional.gelu(h, approximate='tanh') + c_fc_b"),
        "c_fc_b is added after the bend",
    ),
    "first bias twice": (mlp(wide="x @ c_fc_w + 2 * c_fc_b"), "added once, between"),
    "second bias left out": (mlp(out="h @ c_proj_w"), "c_proj_b is not added"),
    "second bias twice": (mlp(out="h @ c_proj_w + 2 * c_proj_b"), "every token should come out as c_proj_b"),
    "second bias to the first token": (
        mlp(out="h @ c_proj_w + c_proj_b * (torch.arange(x.shape[1]) == 0)[:, None]"),
        "every token should come out as c_proj_b",
    ),
    "first text for all": (mlp(wide="x[:1].expand_as(x) @ c_fc_w + c_fc_b"), "A token among others"),
    "normalised over tokens": (
        mlp(wide="x @ c_fc_w + c_fc_b if len(x) == 1 else (x - x.mean(dim=0)) @ c_fc_w + c_fc_b"),
        "A token among others",
    ),
    "memory saved": (
        MLP + mlp().split("\n", 1)[1].replace("    return", "    x.zero_()\n    return"),
        "x itself was written to",
    ),
    "bias in place": (mlp(out="c_proj_b.add_(1) + h @ c_proj_w - 1"), "c_proj_b itself was written to"),
}

BLOCKS = {
    "MLP left out": (block(second="pass"), "ln_2 was never called"),
    "second norm left out": (block(second="x = x + mlp(x)"), "ln_2 was never called"),
    "one norm for both": (block(second="x = x + mlp(ln_1(x))"), "ln_2 was never called"),
    "norm computed twice": (block(first="ln_1(x)\n    x = x + attn(ln_1(x))"), "ln_1 was called 2 times"),
    "attention twice": (block(first="x = x + attn(ln_1(x)) * 0 + attn(ln_1(x))"), "ln_1 was called 2 times"),
    "function added": (block(first="x = x + attn(ln_1)"), "takes a tensor; it was given"),
    "two arguments": (block(first="x = x + attn(ln_1(x), x)"), "takes one tensor; it was given 2"),
    "part of the stream": (block(first="x = x + attn(ln_1(x[:, :1]))"), "What ln_1 is given should have the shape"),
    "post-norm": (block("x = ln_1(x + attn(x))", "x = ln_2(x + mlp(x))"), "attn was given x itself"),
    "norm of attention's result": (block("x = x + ln_1(attn(x))", "x = x + ln_2(mlp(x))"), "attn was given x itself"),
    "norm after attention's input": (block(first="a = attn(x * 1.5)\n    x = x + ln_1(a)"), "the norm comes before attention"),
    "first norm ignored": (block(first="ln_1(x)\n    x = x + attn(x)"), "attn was given x itself"),
    "first norm reads something else": (block(first="x = x + attn(ln_1(2 * x))"), "ln_1 should be given x as it came in"),
    "scaled before attention": (block(first="x = x + attn(ln_1(x) / 2)"), "attn should be given what ln_1 returned"),
    "no residual": (block(first="x = attn(ln_1(x))"), "After attention x is gone"),
    "residual from the copy": (block(first="n = ln_1(x)\n    x = n + attn(n)"), "added to the normalised copy"),
    "parallel": (
        block(first="a = attn(ln_1(x))", second="x = x + a + mlp(ln_2(x))"),
        "the MLP cannot see what attention found",
    ),
    "average of the two": (block(first="x = (x + attn(ln_1(x))) / 2"), "ln_2 should be given x plus what attn returned"),
    "attention taken off": (block(first="x = x - attn(ln_1(x))"), "ln_2 should be given x plus what attn returned"),
    "second norm ignored": (block(second="ln_2(x)\n    x = x + mlp(x)"), "mlp was given the stream itself"),
    "MLP reads both": (block(second="x = x + mlp(x + ln_2(x))"), "mlp should be given what ln_2 returned"),
    "nothing returned": (block(out="None"), "What is returned should be a tensor; it is None"),
    "no residual around the MLP": (block(second="x = mlp(ln_2(x))"), "What mlp returned was returned alone"),
    "residual from the second copy": (block(second="n = ln_2(x)\n    x = n + mlp(n)"), "mlp's result was added to the norm"),
    "residual from the start": (
        block("s = x + attn(ln_1(x))", "x = x + mlp(ln_2(s))"),
        "attn's result is missing in the end",
    ),
    "MLP computed and dropped": (block(second="mlp(ln_2(x))"), "mlp's result is missing in the end"),
    "start lost": (
        block("a = attn(ln_1(x))", "x = a + mlp(ln_2(x + a))"),
        "x is missing in the end",
    ),
    "start twice": (block("s = x", "a = attn(ln_1(x))\n    x = x + a\n    x = s + x + mlp(ln_2(x))"), "x was added twice"),
    "halved": (block(second="x = x + mlp(ln_2(x)) / 2"), "something else came out"),
    "in place": (block("x += attn(ln_1(x))", "x += mlp(ln_2(x))"), "x itself was written to"),
    "in place at the end": (
        block(out="x").replace("    return", "    given[:] = x\n    return").replace(":\n", ":\n    given = x\n", 1),
        "x itself",
    ),
}

GPTS = {
    "nothing": (GPT + "    x = wte[tokens]", "Logits should be a tensor; they are None"),
    "last row only": (gpt(out="x[:, -1] @ wte.T"), "Only one row came back"),
    "last row only, axis kept": (gpt(out="x[:, -1:] @ wte.T"), "Only one row came back"),
    "head forgotten": (gpt(out="x"), "the last product with the token table is missing"),
    "ids returned": (gpt(out="(x @ wte.T).argmax(-1)"), "should have the shape"),
    "wrong dtype: float32": (gpt(out="(x @ wte.T).float()"), "should be float64.*float32"),
    "one text only": (gpt(start="(wte[tokens] + wpe[torch.arange(tokens.shape[1])])[:1]"), "What block 0 is given should have"),
    "tables turned": (gpt(out="x @ wte"), "stopped with RuntimeError"),
    "no positions": (gpt(start="wte[tokens]"), "without positions"),
    "positions by id": (gpt(start="wte[tokens] + wpe[tokens % len(wpe)]"), "looked up by token id"),
    "off by one: from 1": (gpt(start="wte[tokens] + wpe[1 : tokens.shape[1] + 1]"), "The positions begin at 1"),
    "position 0 for all": (gpt(start="wte[tokens] + wpe[0]"), "Every token was given position 0"),
    "last positions": (gpt(start="wte[tokens] + wpe[-tokens.shape[1]:]"), "the row of its place"),
    "positions alone": (gpt(start="wpe[:tokens.shape[1]].expand(len(tokens), -1, -1)"), "without the tokens' rows"),
    "multiplied": (gpt(start="wte[tokens] * wpe[:tokens.shape[1]]"), "The two tables were multiplied"),
    "scaled as in 2017": (
        gpt(start="wte[tokens] * wte.shape[1] ** 0.5 + wpe[:tokens.shape[1]]"),
        "the row of its place",
    ),
    "normalised at the start": (
        gpt(start="torch.nn.functional.normalize(wte[tokens] + wpe[:tokens.shape[1]], dim=-1)"),
        "the row of its place",
    ),
    "blocks left out": (gpt(loop="pass"), "No block was called"),
    "first block only": (gpt(loop="x = blocks[0](x)"), "should run in the order"),
    "backwards": (gpt(loop="for block in blocks[::-1]:\n        x = block(x)"), "should run in the order"),
    "last block left out": (gpt(loop="for block in blocks[:-1] or blocks:\n        x = block(x)"), "should run in the order"),
    "first block again and again": (
        gpt(loop="for block in blocks:\n        x = blocks[0](x)"),
        "should run in the order",
    ),
    "all from the start": (
        gpt(loop="start = x\n    for block in blocks:\n        x = block(start)"),
        "should be given what block 0 returned",
    ),
    "residual again": (
        gpt(loop="for block in blocks:\n        x = x + block(x)"),
        "should be given what block 0 returned",
    ),
    "norm left out": (gpt(norm="x"), "it was called 0 times"),
    "norm after each block": (
        gpt(loop="for block in blocks:\n        x = block(x)\n        ln_f(x)"),
        "it was called 3 times",
    ),
    "norm of the sum": (
        gpt(loop="start = x\n    for block in blocks:\n        x = block(x)", norm="ln_f(x + start)"),
        "ln_f should be given what the last block returned",
    ),
    "norm ignored": (gpt(norm="ln_f(x) * 0 + x"), "Take what ln_f returned"),
    "softmax": (gpt(out="(x @ wte.T).softmax(-1)"), "These are probabilities"),
    "log softmax": (gpt(out="(x @ wte.T).log_softmax(-1)"), "These are probabilities, or their logarithms"),
    "cosines": (gpt(out="x @ torch.nn.functional.normalize(wte, dim=-1).T"), "the dot product of a token's last vector"),
    "rows of the table mixed up": (gpt(out="x @ wte.flip(0).T"), "the dot product of a token's last vector"),
    "positions written into the table": (
        GPT + "    wte[:] = wte\n    wpe.mul_(2)\n" + gpt(start="wte[tokens] + wpe[:tokens.shape[1]] / 2").split("\n", 1)[1],
        "wpe itself was written to",
    ),
    "tokens changed": (gpt(norm="ln_f(x + tokens.clamp_(max=3)[..., None] * 0)"), "tokens itself was written to"),
}

COUNTS = {
    "nothing": (COUNT + "    L * C", "Expected an int; got None"),
    "float": (count(mlp="2 * F * C * 1.0 + F + C"), "got the float"),
    "text": (COUNT + "    return f'{V * C:,}'", "Expected an int; got a str"),
    "tensor": (COUNT + "    return torch.tensor(V * C)", "Expected an int; got an int64 tensor"),
    "powers": (COUNT + "    return (V * C) ** (L * 2)", "far too large"),
    "head counted again": (count(rest="2 * V * C + P * C + 2 * C"), "The head is the token table once more"),
    "vocabulary squared": (count(rest="V * V + P * C + 2 * C"), "one word more costs a row of 8 numbers"),
    "no tables": (count(rest="2 * C"), "one word more costs a row of 8 numbers.*in yours 0"),
    "positions computed": (count(rest="V * C + 2 * C"), "A longer context costs nothing"),
    "positions twice": (count(rest="V * C + 2 * P * C + 2 * C"), "one position more costs a row"),
    "positions in each block": (count(rest="V * C + L * P * C + 2 * C"), "one position more costs a row"),
    "four times C for F": (count(mlp="2 * 4 * C * C + 5 * C"), "F changes nothing in yours"),
    "first bias of the MLP left out": (count(mlp="2 * C * F + C"), "The bias of c_fc is missing"),
    "one matrix of the MLP": (count(mlp="C * F + F + C"), "one hidden number more costs"),
    "a gate too": (count(mlp="3 * C * F + F + C"), "one hidden number more costs"),
    "norms left out": (count(norms="0"), "As many are in the two norms"),
    "one norm": (count(norms="2 * C"), "one of the two norms, and as many in the weights, or the biases"),
    "second bias of the MLP left out": (count(mlp="2 * C * F + F"), "attention's c_proj, and as many in that of the MLP's"),
    "biases of attention left out": (count(attention="4 * C * C"), "as many in the biases of attention"),
    "bias of c_attn left out": (count(attention="4 * C * C + C"), "As many are in the bias of c_attn"),
    "output projection left out": (count(attention="3 * C * C + 3 * C"), "As many are in attention's c_proj"),
    "attention left out": (count(attention="0"), "As many are in all of attention"),
    "q alone": (count(attention="2 * C * C + 2 * C"), "too few"),
    "K and V stored": (count(attention="4 * C * C + 4 * C + 2 * P * C"), "one position more costs a row"),
    "three norms": (count(norms="6 * C"), "16 too many"),
    "one block": (COUNT + "    return 12 * C * C + V * C + P * C", "F changes nothing"),
    "last norm left out": (count(rest="V * C + P * C"), "there is one thing more: the last norm"),
    "weight of the last norm only": (count(rest="V * C + P * C + C"), "in yours 8"),
    "bias of the head": (count(rest="V * C + P * C + 2 * C + 1"), "in yours 17"),
    "small vocabularies only": (count(rest="min(V, 50000) * C + P * C + 2 * C"), "124,439,808 should come out"),
    "padded vocabulary": (
        count(rest="(V if V < 1000 else -(-V // 64) * 64) * C + P * C + 2 * C"),
        "124,439,808 should come out",
    ),
}

MUTANTS = {"3.1": NORMS, "3.2": MLPS, "3.3": BLOCKS, "3.4": GPTS, "3.5": COUNTS}

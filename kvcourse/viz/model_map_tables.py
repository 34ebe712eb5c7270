"""Lesson 04: the parts of a GPT and of a Llama, in the order of the data's path. Knows nothing about tensors or drawing.

A part stands in a row and a column of the map: parameters left (columns 0 and 1), what is computed right (0, 1 and 2). The
last column is the residual stream.
"""

from dataclasses import dataclass

from kvcourse.viz import style

ROWS = ("embed", "ln1", "q", "k", "v", "out", "ln2", "up", "down", "last", "head")
BLOCK_ROWS = ROWS[1:9]


@dataclass(frozen=True)
class Part:
    """One tensor, in any block and for any prompt. `{block}` in a name stands for the block's own."""

    key: str
    symbol: str
    role: style.Role
    name: str
    row: str
    column: int
    sources: tuple[str, ...] = ()
    made: str = "learned in training and read from the file; no prompt changes it"
    made_in_first: str | None = None  # where the first block differs
    gone: str | None = "a weight: in the model"  # why a KV cache does not keep it; None: it does
    third: int | None = None  # which third of the columns of a fused tensor


def _w(key: str, symbol: str, name: str, row: str, column: int, *, third: int | None = None) -> Part:
    return Part(key, symbol, style.PARAMETER, name, row, column, third=third)


def _a(key: str, name: str, row: str, column: int, sources: str, made: str, gone: str | None, first: str | None = None) -> Part:
    symbol = key.upper() if key in ("q", "k", "v") else key
    return Part(key, symbol, style.ACTIVATION, name, row, column, tuple(sources.split()), made, first, gone)


def _s(key: str, symbol: str, name: str, row: str, column: int, sources: str, made: str, gone: str) -> Part:
    return Part(key, symbol, style.AGGREGATE, name, row, column, tuple(sources.split()), made, None, gone)


USED = "not kept"
ATTENTION = (
    _a(
        "scores", "{block}.attn.scores", "q", 1, "q k",
        "scores = Q @ Kᵀ / √{D}, and −inf where the key comes after the query", "attention matrix",
    ),
    _s(
        "totals", "totals", "exp({block}.attn.scores).sum(-1)", "q", 2, "scores",
        "totals = Σ exp(scores − largest), one for each query and head: what softmax divides by", "softmax",
    ),
    _a(
        "pattern", "{block}.attn.pattern", "k", 1, "scores totals",
        "pattern = exp(scores − largest) / totals", "softmax's result",
    ),
)  # fmt: skip
Z = "z = pattern @ V: each query's mix of the values, in {H} heads"
RESID_PRE = "resid_pre = blocks.{before}.resid_post"
NORM = "mean, std = the mean and √(variance + ε) of each token's"

GPT_PARTS = (
    _w("wte", "wte", "transformer.wte.weight", "embed", 0),
    _w("wpe", "wpe", "transformer.wpe.weight", "embed", 1),
    _a("embed", "embed", "embed", 0, "wte", "embed = wte[tokens]: one row of the table for each token", USED),
    _a("pos_embed", "pos_embed", "embed", 1, "wpe", "pos_embed = wpe[0, 1, 2, …]: one row for each position", USED),
    _a("resid_pre", "{block}.resid_pre", "ln1", 2, "embed pos_embed", RESID_PRE, USED, "resid_pre = embed + pos_embed"),
    _w("g1", "γ", "{block}.ln_1.weight", "ln1", 0),
    _w("c1", "β", "{block}.ln_1.bias", "ln1", 1),
    _s("stats1", "mean, std", "mean, std ({block}.resid_pre)", "ln1", 1, "resid_pre", f"{NORM} resid_pre", "sums"),
    _a("ln1", "{block}.ln1", "ln1", 0, "resid_pre stats1 g1 c1", "ln1 = (resid_pre − mean) / std · γ + β", USED),
    _w("wq", "Wq", "{block}.attn.c_attn.weight", "q", 0, third=0),
    _w("bq", "bq", "{block}.attn.c_attn.bias", "q", 1, third=0),
    _a("q", "{block}.attn.q", "q", 0, "ln1 wq bq", "q = ln1 @ Wq + bq, cut into {H} heads of {D}", "Q asks once"),
    _w("wk", "Wk", "{block}.attn.c_attn.weight", "k", 0, third=1),
    _w("bk", "bk", "{block}.attn.c_attn.bias", "k", 1, third=1),
    _a("k", "{block}.attn.k", "k", 0, "ln1 wk bk", "k = ln1 @ Wk + bk, cut into {H} heads of {D}", None),
    _w("wv", "Wv", "{block}.attn.c_attn.weight", "v", 0, third=2),
    _w("bv", "bv", "{block}.attn.c_attn.bias", "v", 1, third=2),
    _a("v", "{block}.attn.v", "v", 0, "ln1 wv bv", "v = ln1 @ Wv + bv, cut into {H} heads of {D}", None),
    *ATTENTION,
    _a("z", "{block}.attn.z", "v", 1, "pattern v", Z, "output of heads"),
    _w("wo", "Wo", "{block}.attn.c_proj.weight", "out", 0),
    _w("bo", "bo", "{block}.attn.c_proj.bias", "out", 1),
    _a("attn_out", "{block}.attn_out", "out", 0, "z wo bo", "attn_out = (the heads of z side by side) @ Wo + bo", "output"),
    _a("resid_mid", "{block}.resid_mid", "out", 2, "resid_pre attn_out", "resid_mid = resid_pre + attn_out", USED),
    _w("g2", "γ", "{block}.ln_2.weight", "ln2", 0),
    _w("c2", "β", "{block}.ln_2.bias", "ln2", 1),
    _s("stats2", "mean, std", "mean, std ({block}.resid_mid)", "ln2", 1, "resid_mid", f"{NORM} resid_mid", "sums"),
    _a("ln2", "{block}.ln2", "ln2", 0, "resid_mid stats2 g2 c2", "ln2 = (resid_mid − mean) / std · γ + β", USED),
    _w("w1", "W1", "{block}.mlp.c_fc.weight", "up", 0),
    _w("b1", "b1", "{block}.mlp.c_fc.bias", "up", 1),
    _a("mlp.pre", "{block}.mlp.pre", "up", 0, "ln2 w1 b1", "mlp.pre = ln2 @ W1 + b1", USED),
    _a("mlp.post", "{block}.mlp.post", "up", 1, "mlp.pre", "mlp.post = gelu(mlp.pre)", USED),
    _w("w2", "W2", "{block}.mlp.c_proj.weight", "down", 0),
    _w("b2", "b2", "{block}.mlp.c_proj.bias", "down", 1),
    _a("mlp_out", "{block}.mlp_out", "down", 0, "mlp.post w2 b2", "mlp_out = mlp.post @ W2 + b2", USED),
    _a("resid_post", "{block}.resid_post", "down", 2, "resid_mid mlp_out", "resid_post = resid_mid + mlp_out", USED),
    _w("gf", "γ", "transformer.ln_f.weight", "last", 0),
    _w("cf", "β", "transformer.ln_f.bias", "last", 1),
    _a("ln_final", "ln_final", "last", 0, "gf cf", "ln_final = the last block's resid_post, normalised as in ln1", USED),
    _w("head", "unembed", "lm_head.weight", "head", 0),
    _a("logits", "logits", "head", 0, "ln_final head", "logits = ln_final @ unembedᵀ: a score for each next token", "output"),
)  # fmt: skip

RMS = "rms = √(mean of the squares + ε) of each token's"
SHARED = "{H_kv} heads of {D}: each serves {group} of Q's"
LLAMA_PARTS = (
    _w("wte", "embed_tokens", "model.embed_tokens.weight", "embed", 0),
    _a("embed", "embed", "embed", 0, "wte", "embed = embed_tokens[tokens]: one row of the table for each token", USED),
    _a("resid_pre", "{block}.resid_pre", "ln1", 2, "embed", RESID_PRE, USED, "resid_pre = embed"),
    _w("g1", "γ", "{block}.input_layernorm.weight", "ln1", 0),
    _s("rms1", "rms", "rms ({block}.resid_pre)", "ln1", 1, "resid_pre", f"{RMS} resid_pre", "sums"),
    _a("ln1", "{block}.ln1", "ln1", 0, "resid_pre rms1 g1", "ln1 = resid_pre / rms · γ", USED),
    _w("wq", "Wq", "{block}.self_attn.q_proj.weight", "q", 0),
    _a("q", "{block}.attn.q", "q", 0, "ln1 wq", "q = rotate(ln1 @ Wqᵀ, by position), {H} heads of {D}", "Q asks once"),
    _w("wk", "Wk", "{block}.self_attn.k_proj.weight", "k", 0),
    _a("k", "{block}.attn.k", "k", 0, "ln1 wk", f"k = rotate(ln1 @ Wkᵀ, by position), {SHARED}", None),
    _w("wv", "Wv", "{block}.self_attn.v_proj.weight", "v", 0),
    _a("v", "{block}.attn.v", "v", 0, "ln1 wv", f"v = ln1 @ Wvᵀ, {SHARED}", None),
    *ATTENTION,
    _a("z", "{block}.attn.z", "v", 1, "pattern v", Z, "output of heads"),
    _w("wo", "Wo", "{block}.self_attn.o_proj.weight", "out", 0),
    _a("attn_out", "{block}.attn_out", "out", 0, "z wo", "attn_out = (the heads of z side by side) @ Woᵀ", "output"),
    _a("resid_mid", "{block}.resid_mid", "out", 2, "resid_pre attn_out", "resid_mid = resid_pre + attn_out", USED),
    _w("g2", "γ", "{block}.post_attention_layernorm.weight", "ln2", 0),
    _s("rms2", "rms", "rms ({block}.resid_mid)", "ln2", 1, "resid_mid", f"{RMS} resid_mid", "sums"),
    _a("ln2", "{block}.ln2", "ln2", 0, "resid_mid rms2 g2", "ln2 = resid_mid / rms · γ", USED),
    _w("wg", "Wg", "{block}.mlp.gate_proj.weight", "up", 0),
    _w("wu", "Wu", "{block}.mlp.up_proj.weight", "up", 1),
    _a("mlp.pre", "{block}.mlp.pre", "up", 0, "ln2 wg", "mlp.pre = ln2 @ Wgᵀ", USED),
    _a("mlp.pre_linear", "{block}.mlp.pre_linear", "up", 1, "ln2 wu", "mlp.pre_linear = ln2 @ Wuᵀ", USED),
    _a("mlp.post", "{block}.mlp.post", "up", 2, "mlp.pre mlp.pre_linear", "mlp.post = silu(mlp.pre) · mlp.pre_linear", USED),
    _w("w2", "Wd", "{block}.mlp.down_proj.weight", "down", 0),
    _a("mlp_out", "{block}.mlp_out", "down", 0, "mlp.post w2", "mlp_out = mlp.post @ Wdᵀ", USED),
    _a("resid_post", "{block}.resid_post", "down", 2, "resid_mid mlp_out", "resid_post = resid_mid + mlp_out", USED),
    _w("gf", "γ", "model.norm.weight", "last", 0),
    _a("ln_final", "ln_final", "last", 0, "gf", "ln_final = the last block's resid_post / its rms · γ", USED),
    _w("head", "unembed", "lm_head.weight", "head", 0),
    _a("logits", "logits", "head", 0, "ln_final head", "logits = ln_final @ unembedᵀ: a score for each next token", "output"),
)  # fmt: skip

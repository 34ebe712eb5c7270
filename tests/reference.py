"""The two models again, in plain NumPy float64, one head and one token at a time: slow, and independent of the package.

Written from the papers and from Hugging Face's tensor names only. Nothing here knows caches, packing or broadcasting.
"""

import math

import numpy as np


def weights_of(model) -> dict[str, np.ndarray]:
    return {name: tensor.detach().double().cpu().numpy().copy() for name, tensor in model.state_dict().items()}


def softmax(scores: np.ndarray) -> np.ndarray:
    odds = np.exp(scores - scores.max())
    return odds / odds.sum()


def attention(q: list, k: list, v: list, queries_per_head: int) -> list[np.ndarray]:
    """q[t][h], k[t][h_kv], v[t][h_kv] are vectors. Token t sees tokens 0 to t."""
    return [look(heads, k[: t + 1], v[: t + 1], queries_per_head) for t, heads in enumerate(q)]


def look(query_heads: list, k: list, v: list, queries_per_head: int) -> np.ndarray:
    """One token's look at all of k and v."""
    parts = []
    for h, query in enumerate(query_heads):
        kv = h // queries_per_head
        weights = softmax(np.array([query @ key[kv] for key in k]) / math.sqrt(len(query)))
        parts.append(sum(weight * value[kv] for weight, value in zip(weights, v, strict=True)))
    return np.concatenate(parts)


def gpt_logits(weights: dict[str, np.ndarray], config, ids: list[int]) -> np.ndarray:
    def norm(x, name):
        centred = x - x.mean()
        return centred / math.sqrt((centred**2).mean() + config.norm_eps) * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def affine(x, name):
        return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    stream = [
        weights["transformer.wte.weight"][token] + weights["transformer.wpe.weight"][place] for place, token in enumerate(ids)
    ]
    for layer in range(config.n_layer):
        name = f"transformer.h.{layer}"
        qkv = [affine(norm(x, f"{name}.ln_1"), f"{name}.attn.c_attn") for x in stream]
        q, k, v = (
            [np.split(part, config.n_head) for part in parts] for parts in zip(*(np.split(x, 3) for x in qkv), strict=True)
        )
        mixed = attention(q, k, v, 1)
        stream = [x + affine(z, f"{name}.attn.c_proj") for x, z in zip(stream, mixed, strict=True)]
        stream = [x + affine(gelu(affine(norm(x, f"{name}.ln_2"), f"{name}.mlp.c_fc")), f"{name}.mlp.c_proj") for x in stream]
    return np.stack([weights["lm_head.weight"] @ norm(x, "transformer.ln_f") for x in stream])


def llama_logits(weights: dict[str, np.ndarray], config, ids: list[int], kept_tokens=None) -> np.ndarray:
    """kept_tokens(t): which tokens a window with sinks keeps when token t looks, in order, t included. Keys are then stored
    as they were before rotation, and keys and query turned by their index in that list. None: all, at their own places."""
    D = config.head_size

    def norm(x, name):
        return x / math.sqrt((x**2).mean() + config.norm_eps) * weights[f"{name}.weight"]

    def linear(x, name):
        return weights[f"{name}.weight"] @ x

    def turned(x, place):
        """Each pair (x[i], x[i + D/2]) as one complex number, multiplied by e^(i·angle)."""
        angles = place * np.float32(config.rope_theta) ** -(np.arange(0, D, 2, dtype=np.float32) / np.float32(D))
        pairs = (x[: D // 2] + 1j * x[D // 2 :]) * np.exp(1j * angles.astype(np.float64))
        return np.concatenate((pairs.real, pairs.imag))

    def heads(x, name, place=None):
        parts = linear(x, name).reshape(-1, D)
        return [part if place is None else turned(part, place) for part in parts]

    stream = [weights["model.embed_tokens.weight"][token] for token in ids]
    for layer in range(config.n_layer):
        name = f"model.layers.{layer}"
        normed = [norm(x, f"{name}.input_layernorm") for x in stream]
        v = [heads(x, f"{name}.self_attn.v_proj") for x in normed]
        mixed = []
        for t in range(len(ids)):
            kept = range(t + 1) if kept_tokens is None else kept_tokens(t)
            assert kept[-1] == t
            k = [heads(normed[token], f"{name}.self_attn.k_proj", index) for index, token in enumerate(kept)]
            q = heads(normed[t], f"{name}.self_attn.q_proj", len(kept) - 1)
            mixed.append(look(q, k, [v[token] for token in kept], config.n_head // config.n_kv_head))
        stream = [x + linear(z, f"{name}.self_attn.o_proj") for x, z in zip(stream, mixed, strict=True)]
        for place, x in enumerate(stream):
            inner = norm(x, f"{name}.post_attention_layernorm")
            gate = linear(inner, f"{name}.mlp.gate_proj")
            hidden = gate / (1 + np.exp(-gate)) * linear(inner, f"{name}.mlp.up_proj")
            stream[place] = x + linear(hidden, f"{name}.mlp.down_proj")
    return np.stack([linear(norm(x, "model.norm"), "lm_head") for x in stream])

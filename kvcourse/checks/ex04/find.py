"""Lesson 04: what must hold of an answer that finds the weights that make K (4.1). Knows nothing about their numbers."""

from kvcourse.checks.base import Answer, Broken, Draw, Property, describe, expect

Shapes = dict[str, tuple[int, ...]]
SHOWN = 3  # names in a message


def returns_a_list_of_names(answer: Answer, draw: Draw) -> None:
    shapes = gpt(1, 8)
    got = answer(shapes, 0)
    expect(isinstance(got, list | tuple), f"Expected a list of names; got {describe(got)}.")
    strange = [name for name in got if name not in shapes]
    expect(not strange, f"Not every item of your list is a name in `shapes`: {str(strange[:1])[1:-1][:80]}.")
    expect(len(set(got)) == len(got), f"A name is listed twice: {some([name for name in got if got.count(name) > 1])}.")


def finds_the_fused_projection_of_a_gpt(answer: Answer, draw: Draw) -> None:
    for C in (8, 4 * draw.integer(3, 9)):
        compare(answer, gpt(1, C), 0, "In a GPT with one block")


def tells_the_blocks_of_a_gpt_apart(answer: Answer, draw: Draw) -> None:
    for n_layer, layer in ((2, 1), (4, 0), (12, 1), (24, draw.integer(3, 9)), (24, draw.integer(12, 23))):
        compare(answer, gpt(n_layer, 8), layer, f"In a GPT with {n_layer} blocks")


def finds_the_projection_of_a_llama(answer: Answer, draw: Draw) -> None:
    for n_layer in (1, draw.integer(2, 9)):
        compare(answer, llama(n_layer, 8), n_layer - 1, f"In a Llama with {n_layer} block{'s' * (n_layer > 1)}")


def tells_the_blocks_of_a_llama_apart(answer: Answer, draw: Draw) -> None:
    for layer in (2, draw.integer(3, 9), draw.integer(10, 29)):
        compare(answer, llama(30, 8), layer, "In a Llama with 30 blocks")


def finds_the_bias_of_a_separate_projection(answer: Answer, draw: Draw) -> None:
    layer = draw.integer(0, 3)
    compare(answer, llama(4, 8, bias=True), layer, "In a Llama-shaped model whose q, k and v have biases (Qwen 2 is one)")


def leaves_out_what_is_not_learned(answer: Answer, draw: Draw) -> None:
    layer = draw.integer(0, 2)
    compare(answer, gpt(3, 8, masks=True), layer, "In an old GPT-2 file, which keeps its masks as attn.bias")


def finds_names_without_their_first_word(answer: Answer, draw: Draw) -> None:
    layer = draw.integer(0, 11)
    compare(answer, gpt(12, 8, prefix=""), layer, "In a GPT-2 saved without its head, where names begin with h.")


PROPERTIES: tuple[Property, ...] = (
    returns_a_list_of_names,
    finds_the_fused_projection_of_a_gpt,
    tells_the_blocks_of_a_gpt_apart,
    finds_the_projection_of_a_llama,
    tells_the_blocks_of_a_llama_apart,
    finds_the_bias_of_a_separate_projection,
    leaves_out_what_is_not_learned,
    finds_names_without_their_first_word,
)


def compare(answer: Answer, shapes: Shapes, layer: int, where: str) -> None:
    """Raise Broken unless the answer names what makes K in that block, in any order."""
    got = answer(shapes, layer)
    expect(isinstance(got, list | tuple) and all(isinstance(name, str) for name in got), f"{where} came {describe(got)}.")
    right = [name for name in shapes if name.split(".")[-4:-2] == [str(layer), "attn"] and name.split(".")[-2] == "c_attn"]
    right += [name for name in shapes if name.split(".")[-4:-2] == [str(layer), "self_attn"] and "k_proj" in name]
    missing, extra = [name for name in right if name not in got], [name for name in got if name not in right]
    where = f"{where}, for block {layer},"
    judge_extra(extra, layer, where)
    expect(not missing, f"{where} this is missing: {some(missing)}.")
    expect(len(got) == len(right), f"{where} a name is listed twice.")


def judge_extra(extra: list[str], layer: int, where: str) -> None:
    """What a superfluous name has in common with the right ones says which mistake it is."""
    other = [name for name in extra if not has_layer(name, layer)]
    if any(str(layer) in name for name in other):
        raise Broken(f"{where} you also named {some(other)}: the digit is in there, as a part of another number.")
    expect(not other, f"{where} you also named {some(other)}, which belongs elsewhere.")
    masks = [name for name in extra if name.endswith(("attn.bias", "masked_bias"))]
    expect(not masks, f"{where} you also named {some(masks)}: a mask, stored under a weight's name, which makes no K.")
    expect(not extra, f"{where} you also named {some(extra)}, which makes no K.")


def has_layer(name: str, layer: int) -> bool:
    return f".{layer}." in f".{name}"


def some(names: list[str]) -> str:
    different = list(dict.fromkeys(names))
    shown = ", ".join(str(name)[:60] for name in different[:SHOWN])
    return shown + (f" and {len(different) - SHOWN} more" if len(different) > SHOWN else "")


def gpt(n_layer: int, C: int, prefix: str = "transformer.", masks: bool = False) -> Shapes:
    """Names and shapes of a GPT-2. masks: as its first checkpoints had them."""
    shapes: Shapes = {f"{prefix}wte.weight": (50, C), f"{prefix}wpe.weight": (32, C)}
    for layer in range(n_layer):
        block = f"{prefix}h.{layer}."
        if masks:
            shapes |= {f"{block}attn.bias": (1, 1, 32, 32), f"{block}attn.masked_bias": ()}
        linear = {"attn.c_attn": (C, 3 * C), "attn.c_proj": (C, C), "mlp.c_fc": (C, 4 * C), "mlp.c_proj": (4 * C, C)}
        for part, shape in {"ln_1": (C,), **linear, "ln_2": (C,)}.items():
            shapes |= {f"{block}{part}.weight": shape, f"{block}{part}.bias": shape[-1:]}
    shapes |= {f"{prefix}ln_f.weight": (C,), f"{prefix}ln_f.bias": (C,)}
    return shapes if not prefix else shapes | {"lm_head.weight": (50, C)}


def llama(n_layer: int, C: int, bias: bool = False) -> Shapes:
    """Names and shapes of a Llama with half as many K/V heads as query heads. bias: of q, k and v."""
    shapes: Shapes = {"model.embed_tokens.weight": (50, C)}
    for layer in range(n_layer):
        block = f"model.layers.{layer}."
        attention = {"q_proj": (C, C), "k_proj": (C // 2, C), "v_proj": (C // 2, C), "o_proj": (C, C)}
        for part, shape in attention.items():
            shapes[f"{block}self_attn.{part}.weight"] = shape
            if bias and part != "o_proj":
                shapes[f"{block}self_attn.{part}.bias"] = shape[:1]
        shapes |= {f"{block}mlp.{part}_proj.weight": (3 * C, C) for part in ("gate", "up")}
        shapes[f"{block}mlp.down_proj.weight"] = (C, 3 * C)
        shapes |= {f"{block}{part}_layernorm.weight": (C,) for part in ("input", "post_attention")}
    return shapes | {"model.norm.weight": (C,)}

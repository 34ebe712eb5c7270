"""Lesson 07: the engines that are compared, each a function from a request to an answer. Knows nothing about tables.

Every engine reads its weights from the same folder and answers the same request, greedily. Each imports what it needs when it
is built, so that no process holds another engine's library; PyTorch is in all of them.
"""

import importlib.util
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

BYTES_PER_WEIGHT = {"float32": 4, "float16": 2, "int8": 1}  # "4-bit": what the file says


@dataclass(frozen=True)
class Request:
    """`new` tokens after `prompt`. Of the prompt, `kept` tokens were processed before the clock starts."""

    prompt: list[int]
    new: int
    kept: int = 0


@dataclass(frozen=True)
class Answer:
    """What one request took."""

    tokens: list[int]
    first_s: float  # from the request to the first new token
    decode_s: float  # for all new tokens after the first


Answerer = Callable[[Request], Answer]


@dataclass(frozen=True)
class Engine:
    """build: from a folder of weights, and the most tokens that a request has, to something that answers."""

    build: Callable[[Path, int], Answerer]
    precision: str  # of the weights
    is_transformers: bool = False


def timed_answer(steps: Iterator[int], new: int) -> Answer:
    """Take `new` tokens and look at the clock after the first and after the last."""
    start = time.perf_counter()
    tokens = [next(steps)]
    first = time.perf_counter()
    tokens += [next(steps) for _ in range(new - 1)]
    return Answer(tokens, first - start, time.perf_counter() - first)


def ours(cache_kind: str, weights: str, folder: Path, room: int) -> Answerer:
    """kvcourse with one of its caches."""
    from kvcourse.caches.make import make_cache
    from kvcourse.checkpoints import load_model
    from kvcourse.steps import decode_step, prefill

    options: dict[str, Any] = {} if weights == "float32" else {"weights": weights}
    model = load_model(folder, **options)

    def steps(cache: Any, prompt: list[int]) -> Iterator[int]:
        logits = prefill(model, prompt, cache)
        while True:
            token = int(logits.argmax())
            yield token
            logits = decode_step(model, token, cache)

    def answer(request: Request) -> Answer:
        cache = make_cache(cache_kind, model, room_tokens=len(request.prompt) + request.new)
        if request.kept:
            prefill(model, request.prompt[: request.kept], cache)
        return timed_answer(steps(cache, request.prompt[request.kept :]), request.new)

    return answer


def transformers_with(cache_name: str, dtype: str, folder: Path, room: int) -> Answerer:
    """Hugging Face transformers' model in a bare greedy loop: faster than its `generate`, so the fairer peer."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    peer = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    for parameter in peer.parameters():
        parameter.data = parameter.data.clone()  # in memory of its own, where it may have been the file's

    def steps(cache: Any, prompt: list[int]) -> Iterator[int]:
        step = peer(torch.tensor([prompt]), cache=cache, use_cache=True, logits_to_keep=1)
        while True:
            token = int(step.logits[0, -1].argmax())
            yield token
            step = peer(torch.tensor([[token]]), cache=cache, use_cache=True)

    def answer(request: Request) -> Answer:
        length = {"max_cache_len": len(request.prompt) + request.new} if cache_name == "StaticCache" else {}
        with torch.inference_mode():
            cache = getattr(transformers, cache_name)(config=peer.config, **length)
            if request.kept:
                peer(torch.tensor([request.prompt[: request.kept]]), cache=cache, use_cache=True, logits_to_keep=1)
            return timed_answer(steps(cache, request.prompt[request.kept :]), request.new)

    return answer


def llama_cpp_with(precision: str, flash: bool, folder: Path, room: int) -> Answerer:
    """llama.cpp through llama-cpp-python: the fetched 4-bit file, or its numbers written out in full or half precision."""
    import llama_cpp
    import torch

    from benchmarks.gguf_files import in_precision

    kv = llama_cpp.GGML_TYPE_F32 if precision == "float32" else llama_cpp.GGML_TYPE_F16  # of the cache
    with in_precision(folder, precision) as file:
        llama = llama_cpp.Llama(
            str(file), n_ctx=room, n_batch=room, n_threads=torch.get_num_threads(), n_threads_batch=torch.get_num_threads(),
            flash_attn=flash, type_k=kv, type_v=kv, use_mmap=False, verbose=False,
        )  # fmt: skip

    def answer(request: Request) -> Answer:
        llama.reset()
        if request.kept:
            llama.eval(request.prompt[: request.kept])
        with closing(llama.generate(request.prompt, temp=0.0)) as steps:  # finds what is kept by comparing tokens
            return timed_answer(steps, request.new)

    return answer


def engines_for(shape: str) -> dict[str, Engine]:
    """Everything that runs this shape here, by name."""
    from kvcourse.checkpoints import load_model

    found = {f"kvcourse {kind}": Engine(partial(ours, kind, "float32"), "float32") for kind in ("preallocated", "growing")}
    if "weights" in inspect.signature(load_model).parameters:
        for weights in ("float16", "int8"):
            found[f"kvcourse, {weights} weights"] = Engine(partial(ours, "preallocated", weights), weights)
    for cache in ("DynamicCache", "StaticCache"):
        found[f"transformers {cache}"] = Engine(partial(transformers_with, cache, "float32"), "float32", True)
    found["transformers, float16"] = Engine(partial(transformers_with, "DynamicCache", "float16"), "float16", True)
    if shape == "smollm2" and has_llama_cpp():
        for precision in ("float32", "float16", "4-bit"):
            for flash in (False, True):
                name = f"llama.cpp {precision}" + (", flash" if flash else "")
                found[name] = Engine(partial(llama_cpp_with, precision, flash), precision)
    return found


def has_llama_cpp() -> bool:
    return importlib.util.find_spec("llama_cpp") is not None

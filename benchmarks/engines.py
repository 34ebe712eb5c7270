"""Lesson 07: the engines that are compared, each in a process of its own. Knows nothing about tables.

Every engine gets the same weights (one seed) and answers the same request: a prompt, a number of new tokens, greedy. A
worker process serves one engine, so that its peak memory is its own, and sits still while another one runs.
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from kvcourse.caches.make import make_cache
from kvcourse.config import GPTConfig
from kvcourse.generate import decode_step, prefill
from kvcourse.models.gpt import GPT

SHAPES = {
    "gpt2-small": GPTConfig(),
    "small": GPTConfig(vocab_size=997, context_length=128, n_layer=2, n_head=2, n_embd=64),  # to try the benchmark itself
}


@dataclass(frozen=True)
class Answer:
    """What one request took."""

    tokens: list[int]
    first_s: float  # from the request to the first new token
    decode_s: float  # for all new tokens after the first


Engine = Callable[[list[int], int], Answer]
Weights = dict[str, torch.Tensor]


def draw_weights(config: GPTConfig) -> Weights:
    """Random weights under GPT-2's names, each in a tensor of its own."""
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in GPT(config).state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    weights = {}
    for name, shape in shapes.items():
        around = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
        weights[name] = torch.empty(shape).normal_(around, 0.02, generator=generator)
    weights["lm_head.weight"] = weights["transformer.wte.weight"]  # tied
    return weights


def ours(cache_kind: str) -> Callable[[GPTConfig, Weights], Engine]:
    """kvcourse with one of its caches."""

    def build(config: GPTConfig, weights: Weights) -> Engine:
        with torch.device("meta"):
            model = GPT(config)
        model.load_state_dict(weights, assign=True)
        weights.clear()
        model.eval().requires_grad_(False)
        model.tie()
        model.pack()

        def answer(prompt: list[int], new: int) -> Answer:
            start = time.perf_counter()
            cache = make_cache(cache_kind, model, room_tokens=len(prompt) + new)
            tokens = [int(prefill(model, prompt, cache).argmax())]
            first = time.perf_counter()
            for _ in range(new - 1):
                tokens.append(int(decode_step(model, tokens[-1], cache).argmax()))
            return Answer(tokens, first - start, time.perf_counter() - first)

        return answer

    return build


def transformers_with(cache_name: str) -> Callable[[GPTConfig, Weights], Engine]:
    """Hugging Face transformers' model in a bare greedy loop: faster than its `generate`, so the fairer peer."""

    def build(config: GPTConfig, weights: Weights) -> Engine:
        import transformers

        theirs = transformers.GPT2Config(
            vocab_size=config.vocab_size,
            n_positions=config.context_length,
            n_layer=config.n_layer,
            n_head=config.n_head,
            n_embd=config.n_embd,
            bos_token_id=0,
            eos_token_id=0,
        )
        with torch.device("meta"):
            peer = transformers.GPT2LMHeadModel(theirs).eval()
        peer.load_state_dict(weights, assign=True)
        weights.clear()
        assert not any(tensor.is_meta for tensor in (*peer.parameters(), *peer.buffers()))

        def new_cache(length: int) -> Any:
            if cache_name == "DynamicCache":
                return transformers.DynamicCache(config=theirs)
            return transformers.StaticCache(config=theirs, max_cache_len=length)

        def answer(prompt: list[int], new: int) -> Answer:
            with torch.inference_mode():
                start = time.perf_counter()
                cache = new_cache(len(prompt) + new)
                step = peer(torch.tensor([prompt]), cache=cache, use_cache=True, logits_to_keep=1)
                tokens = [int(step.logits[0, -1].argmax())]
                first = time.perf_counter()
                for _ in range(new - 1):
                    step = peer(torch.tensor([tokens[-1:]]), cache=cache, use_cache=True)
                    tokens.append(int(step.logits[0, -1].argmax()))
                return Answer(tokens, first - start, time.perf_counter() - first)

        return answer

    return build


ENGINES = {
    "kvcourse preallocated": ours("preallocated"),
    "kvcourse growing": ours("growing"),
    "transformers DynamicCache": transformers_with("DynamicCache"),
    "transformers StaticCache": transformers_with("StaticCache"),
}


def forget_peak_memory() -> None:
    """Count from here on (Linux only): building a model takes more memory for a moment than running it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """The most memory this process has held (bytes), since `forget_peak_memory` where that works."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Worker:
    """One engine in a process of its own, asked over a pipe."""

    def __init__(self, engine: str, shape: str, threads: int) -> None:
        command = [sys.executable, "-m", "benchmarks.engines", engine, shape, str(threads)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.parameters_bytes = int(self._line()["read_bytes"])

    def ask(self, prompt: list[int], new: int) -> Answer:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompt": prompt, "new": new}) + "\n")
        self._process.stdin.flush()
        return Answer(**self._line())

    def close(self) -> int:
        """End the process; return the most memory it held (bytes)."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        peak = int(self._line()["peak_bytes"])
        with self._process:  # waits, and closes the pipes
            return peak

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The worker ended with status {self._process.wait()}; its own message stands above.")
        return json.loads(line)


def serve(engine: str, shape: str, threads: int) -> None:
    """Answer requests, one JSON object a line, until standard input ends."""
    torch.set_num_threads(threads)
    weights = draw_weights(SHAPES[shape])
    # A decode step reads every weight once: the token table as output head, and of the position table only a row.
    read = sum(tensor.nbytes for name, tensor in weights.items() if name not in ("transformer.wpe.weight", "lm_head.weight"))
    answer = ENGINES[engine](SHAPES[shape], weights)
    forget_peak_memory()
    print(json.dumps({"read_bytes": read}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(asdict(answer(request["prompt"], request["new"]))), flush=True)
    print(json.dumps({"peak_bytes": peak_memory()}), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))

"""Maintainers only: make tests/golden/smollm2_greedy.json, what transformers says about the real model.

    python -m tools.golden_ids            # about two minutes; needs `kvcourse fetch smollm2`, transformers and accelerate

First the conversion is proved: transformers reads the GGUF file by its own reader, and every tensor must equal the converted
one, bit for bit. Then transformers' tokenizer and model, on the converted folder, write the ids and the greedy continuations.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from rich.progress import track

from kvcourse.fetch import SOURCES, verify

TARGET = Path(__file__).parents[1] / "tests" / "golden" / "smollm2_greedy.json"
NEW_TOKENS = 16
WIDE = 0.02  # logits; float32 rounding moves them by less than 0.001

PROMPTS: dict[str, str | list[dict[str, str]]] = {
    "english": "The capital of France is",
    "list": "The days of the week are Monday, Tuesday, Wednesday,",
    "code": "def fibonacci(n):\n    if n <= 1:\n        return n\n    return",
    "indented code": "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "chinese": "中国的首都是北京。日本的首都是",
    "digits": "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,",
    "accents": "La fête est finie. L'été est passé. La fête est finie. L'été est",
    "emoji": "I am so happy today 😀🎉! I just",
    "chat": [{"role": "user", "content": "Why is the sky blue?"}],
    "chat with system": [
        {"role": "system", "content": "You answer in one word."},
        {"role": "user", "content": "What is the capital of Italy?"},
    ],
    "chat, third turn": [
        {"role": "user", "content": "My name is Ana."},
        {"role": "assistant", "content": "Hello Ana! How can I help you today?"},
        {"role": "user", "content": "What is 2 + 2?"},
    ],
}


def main() -> None:
    folder = verify("smollm2")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prove_conversion(folder, model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    cases: list[dict[str, Any]] = []
    for name, prompt in track(PROMPTS.items(), "continuing", total=len(PROMPTS)):
        ids = encode(tokenizer, prompt)
        continuation, margins = greedy(model, ids)
        wide = next((i for i, margin in enumerate(margins) if margin < WIDE), len(margins))
        text = tokenizer.decode(continuation)
        print(f"{name}: {wide} tokens with a wide margin: {text!r}", flush=True)
        cases.append({"name": name, "prompt": prompt, "ids": ids, "continuation": continuation, "text": text,
                      "margins": margins, "wide": wide})  # fmt: skip
    if short := [case["name"] for case in cases if case["wide"] < 8]:
        sys.exit(f"a near tie too early; choose other prompts for {short}")
    result = {"made_by": "python -m tools.golden_ids", "transformers": transformers.__version__, "torch": torch.__version__,
              "gguf_sha256": SOURCES["smollm2"].sha256, "cases": cases}  # fmt: skip
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{TARGET.name}: {len(cases)} prompts, {sum(case['wide'] for case in cases)} tokens with a wide margin")


def prove_conversion(folder: Path, converted: torch.nn.Module) -> None:
    """Exit unless transformers' own GGUF reader gives the same tensors."""
    gguf = Path(SOURCES["smollm2"].member).name
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf, dtype=torch.float32).state_dict()
    ours = converted.state_dict()
    different = [name for name in theirs.keys() | ours.keys() if not torch.equal(theirs[name], ours[name])]
    if different:
        sys.exit(f"the conversion is wrong: {different}")
    print(f"the conversion is right: {len(ours)} tensors equal those of transformers' GGUF reader")


def encode(tokenizer: Any, prompt: str | list[dict[str, str]]) -> list[int]:
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    return list(tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"])


@torch.inference_mode()
def greedy(model: torch.nn.Module, ids: list[int]) -> tuple[list[int], list[float]]:
    """The likeliest token, again and again, and how far ahead of the second it was. The cache is transformers' own."""
    new: list[int] = []
    margins = []
    cache, now = transformers.DynamicCache(), ids
    while True:
        logits = model(torch.tensor([now]), cache=cache).logits[0, -1]
        first, second = logits.topk(2).values.tolist()
        new.append(int(logits.argmax()))
        margins.append(round(first - second, 3))
        if len(new) == NEW_TOKENS:
            return new, margins
        now = new[-1:]


if __name__ == "__main__":
    main()

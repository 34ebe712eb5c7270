"""Lesson 10: `kvcourse explain`. Knows nothing about how differences are judged, and needs no torch: a tokenizer is enough."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvcourse.prompts.bodies import Body
    from kvcourse.prompts.report import MissReport
    from kvcourse.tokenizer_base import Tokenizer


def explain(
    first: Annotated[Path, typer.Argument(metavar="A.json", help="The request that came first, and is cached.")],
    second: Annotated[Path, typer.Argument(metavar="B.json", help="The request that missed.")],
    model: Annotated[
        str, typer.Option(help="Whose chat template and tokens: smollm2, tiny, or a Hugging Face folder.")
    ] = "smollm2",
    plain: Annotated[bool, typer.Option("--plain", help="Compare characters; needs no model.")] = False,
    prefill_rate: Annotated[
        float | None, typer.Option(help="Prompt tokens a second, to say what the miss took.", min=0.001)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Why does request B reuse nothing, or so little, of request A? Exit status 0: it reuses all it can; 1: they part."""
    from kvcourse.prompts.bodies import read_body

    source = Source(None, None) if plain else find(model)
    report, first_tokens = compared(read_body(first), read_body(second), source, prefill_rate)
    if as_json:
        print(json.dumps({"a": str(first), "b": str(second), "a_tokens": first_tokens, **report.as_record()}, indent=1))
    else:
        print("\n".join(as_diff(first.name, second.name, first_tokens, report)))
    if report.at is not None:
        raise typer.Exit(1)


@dataclass(frozen=True)
class Source:
    """What is needed of a model: how it cuts text, and the bytes of K/V that a token takes."""

    tokenizer: "Tokenizer | None"
    token_bytes: int | None


def find(model: str) -> Source:
    """A model's tokenizer and size, without its weights. Raises: UnknownName, NotFetched, TokenizerError, CheckpointError."""
    from kvcourse.config import kv_bytes_per_token
    from kvcourse.errors import UnknownName
    from kvcourse.fetch import SOURCES, model_folder
    from kvcourse.hf_config import read_config
    from kvcourse.hf_folder import read_json
    from kvcourse.tiny import TINY_SHAPE, tiny_tokenizer
    from kvcourse.tokenizers import load_tokenizer

    if model == "tiny":
        return Source(tiny_tokenizer(), kv_bytes_per_token(TINY_SHAPE))
    folder = model_folder(model) if model in SOURCES else Path(model).expanduser()
    if not (folder / "tokenizer.json").is_file():
        raise UnknownName("There is no such tokenizer.", expected="tiny, smollm2, or a folder with tokenizer.json",
                          got=repr(model), todo="Check the spelling, or compare with --plain.")  # fmt: skip
    has_shape = (folder / "config.json").is_file()
    return Source(
        load_tokenizer(folder), kv_bytes_per_token(read_config(read_json(folder / "config.json"))) if has_shape else None
    )


def compared(earlier: "Body", later: "Body", source: Source, rate: float | None) -> "tuple[MissReport, int]":
    """What `later` reuses of `earlier`, and how many tokens `earlier` has."""
    from kvcourse.common_prefix import common_length
    from kvcourse.prompts.bodies import causes_between, render
    from kvcourse.prompts.differ import compare
    from kvcourse.prompts.report import MissReport

    one, other = (render(body, source.tokenizer) for body in (later, earlier))
    at = common_length(one.ids, other.ids)
    report = MissReport(min(at, len(one.ids) - 1), len(one.ids), 0, "none", "all that can be reused is reused", unit=one.unit)
    if at in (len(one.ids), len(other.ids)):
        return report, len(other.ids)
    found = compare(one.ids, other.ids, at, one.text_of)
    most = len(one.ids) - 1 - at  # one token at least is always computed
    cause, lost = found.cause, min(found.lost_tokens, most)
    for better, mended in causes_between(later, earlier):
        gain = common_length(render(mended, source.tokenizer).ids, other.ids) - at
        if gain > 0 and (better.kind != "history" or not cause.is_fault):  # a clock in an earlier turn is a clock
            cause, lost = better, min(gain, most)
            break
    report = replace(report, lost_tokens=lost, cause=cause.kind, why=cause.why, at=at, ours=found.ours, theirs=found.theirs,
                     before=found.before, lost_ms=None, lost_bytes=None)  # fmt: skip
    if rate is not None:
        report = replace(report, lost_ms=1000 * lost / rate)
    if source.token_bytes is not None:
        report = replace(report, lost_bytes=lost * source.token_bytes)
    return report, len(other.ids)


def as_diff(first: str, second: str, first_tokens: int, report: "MissReport") -> list[str]:
    """Lines as `git diff` has them, for one place, then why."""
    from kvcourse.prompts.report import in_words, shown

    unit, one = report.unit, report.unit.removesuffix("s")
    lines = [f"--- {first}   {first_tokens:,} {unit}", f"+++ {second}   {report.total_tokens:,} {unit}"]
    if report.at is None:
        return [*lines, f"The first {report.matched_tokens:,} {unit} are shared: {report.why}."]
    lines += [f"@@ {one} {report.at:,}: the {report.at:,} {unit} in front are shared @@"]
    lines += [f"  {shown(report.before, from_end=True)}"] if report.before else []
    lines += [f"- {shown(report.theirs or '')}", f"+ {shown(report.ours)}"]
    rows = [("cause", f"{in_words(report.cause)}: {report.why}"), ("lost", report.lost)]
    rows += [("change", report.advice)] if report.advice else []
    return [*lines, *(f"{name:<7} {text}" for name, text in rows)]

"""Lesson 10: `kvcourse explain`. Knows nothing about how differences are judged.

It needs no torch, a tokenizer is enough; but for --measure.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvcourse.errors import InputError
from kvcourse.streams import STDIN, called

if TYPE_CHECKING:
    from kvcourse.prompts.bodies import Body
    from kvcourse.prompts.report import MissReport
    from kvcourse.tokenizer_base import Tokenizer


def explain(
    first: Annotated[
        Path, typer.Argument(metavar="A.json", help="The request that came first, and is cached; - reads standard input.")
    ],
    second: Annotated[Path, typer.Argument(metavar="B.json", help="The request that missed.")],
    model: Annotated[
        str, typer.Option(help="Whose chat template and tokens: smollm2, tiny, or a Hugging Face folder.")
    ] = "smollm2",
    plain: Annotated[bool, typer.Option("--plain", help="Compare characters; needs no model.")] = False,
    prefill_rate: Annotated[
        float | None, typer.Option(help="Prompt tokens a second, to say what the miss took.", min=0.001)
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Load the model, and measure that rate here; takes seconds.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Why does request B reuse nothing, or so little, of request A? Exit status 0: it reuses all it can; 1: they part."""
    from kvcourse.prompts.bodies import read_body
    from kvcourse.prompts.report import milliseconds

    require_one_of(first, second, prefill_rate, measure, plain)
    source = Source(None, None) if plain else find(model)
    report, first_tokens = compared(read_body(first), read_body(second), source, prefill_rate)
    speed = Speed(prefill_rate)
    if measure and report.lost_tokens:
        speed = measured(model)
        assert speed.tokens_per_s is not None
        report = replace(report, lost_ms=milliseconds(report.lost_tokens, speed.tokens_per_s))
    if as_json:
        sides = {"a": str(first), "b": str(second), "a_tokens": first_tokens}
        print(json.dumps({**sides, **report.as_record(), **speed.as_record()}, indent=1))
    else:
        one, other = (called(path) if str(path) == STDIN else path.name for path in (first, second))
        print("\n".join(as_diff(one, other, first_tokens, report, speed)))
    if report.at is not None:
        raise typer.Exit(1)


def require_one_of(first: Path, second: Path, prefill_rate: float | None, measure: bool, plain: bool) -> None:
    """Raise InputError for options of which each leaves no room for another."""
    from kvcourse.prompts.report import rate_of

    if str(first) == str(second) == STDIN:
        raise InputError("Standard input can be one request only.", expected="a file for the other", got="- twice",
                         todo="Write one of them to a file.")  # fmt: skip
    if prefill_rate is not None:
        rate_of(prefill_rate)
    if measure and (plain or prefill_rate is not None):
        got = "--plain, for which no model is loaded" if plain else "--prefill-rate, a rate already"
        raise InputError("--measure stands alone.", expected="neither --plain nor --prefill-rate", got=got,
                         todo="Leave one of them out.")  # fmt: skip


@dataclass(frozen=True)
class Speed:
    """Prompt tokens a second, or None where nobody has said; measured_on: the tokens of the passes that were timed, if any."""

    tokens_per_s: float | None
    measured_on: int | None = None
    passes: int = 0

    def as_record(self) -> dict[str, float | None]:
        return {"prefill_tokens_per_s": self.tokens_per_s, "measured_on_tokens": self.measured_on}

    def rows(self, unit: str) -> list[tuple[str, str]]:
        """What is to be said of it, as (name, text)."""
        if self.tokens_per_s is None:
            first = "add --measure" if unit == "tokens" else "leave --plain out and add --measure"
            return [("time", f"no prefill rate is known: {first}, or --prefill-rate N")]
        if self.measured_on is None:
            return []
        return [("rate", f"{self.tokens_per_s:,.0f} tokens a second, measured here on {self.measured_on} tokens, "
                 f"median of {self.passes} passes")]  # fmt: skip


def measured(model: str) -> Speed:
    """How fast a model reads a prompt here. Raises: what `load_model` does."""
    from rich.console import Console

    with Console(stderr=True).status("Loading the model ..."):
        from kvcourse.checkpoints import load_model
        from kvcourse.prompts.rate import PASSES, measured_tokens, prefill_rate

        loaded = load_model(model)
        return Speed(prefill_rate(loaded), measured_tokens(loaded), PASSES)


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
    from kvcourse.prompts.report import MissReport, milliseconds, rate_of

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
        about_turns = better.kind in ("history", "template")
        if gain > 0 and not (about_turns and cause.is_fault):  # a clock in an earlier turn is a clock
            cause, lost = better, min(gain, most)
            break
    report = replace(report, lost_tokens=lost, cause=cause.kind, why=cause.why, at=at, ours=found.ours, theirs=found.theirs,
                     before=found.before, lost_ms=None if lost else 0.0, lost_bytes=None)  # fmt: skip
    if rate is not None:
        report = replace(report, lost_ms=milliseconds(lost, rate_of(rate)))
    if source.token_bytes is not None:
        report = replace(report, lost_bytes=lost * source.token_bytes)
    return report, len(other.ids)


def as_diff(first: str, second: str, first_tokens: int, report: "MissReport", speed: Speed) -> list[str]:
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
    rows += speed.rows(unit) if report.lost_tokens else []
    rows += [("change", report.advice)] if report.advice else []
    return [*lines, *(f"{name:<7} {text}" for name, text in rows)]

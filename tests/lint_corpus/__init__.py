"""Logs with one planted cause each, and clean ones; `python -m tests.lint_corpus` says how many the linter names correctly."""

from pathlib import Path

LOGS = Path(__file__).parent / "logs"


def planted() -> dict[Path, str]:
    """Each log, and what was planted in it: "none" for a clean one."""
    return {path: path.name.partition("--")[0] for path in sorted(LOGS.glob("*.jsonl"))}


def named(path: Path, **options: object) -> str:
    """What the linter says of a log: the cause of the group that lost most."""
    from kvcourse.prompts.layout import lint_log

    report = lint_log(path, **options)
    causes = {group.cause for group in report.faults}
    return report.groups[0].cause if len(causes) <= 1 else "/".join(sorted(causes))


def rates(found: list[tuple[str, str]]) -> tuple[float, float]:
    """(precision, recall) of pairs (planted, named): the share of what was named, and of what was planted, that is right."""
    right = sum(truth == said != "none" for truth, said in found)
    told = sum(said != "none" for _, said in found)
    there = sum(truth != "none" for truth, _ in found)
    return right / told, right / there

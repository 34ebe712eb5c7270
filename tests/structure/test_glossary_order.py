"""No word before its definition: the glossary says which lesson introduces a word, and no earlier lesson's text uses it.

Code is not read: names there are explained where they stand. A word that an earlier lesson uses in its everyday meaning, or
promises for later, is listed below with the reason; an entry that is no longer needed fails, too.
"""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

EARLIER: dict[tuple[str, str], str] = {
    ("training", "01"): "everyday: numbers found by training; what training does is lesson 03's question",
    ("block", "01"): "a Python block",
    ("decode", "01"): "ids decoded into text",
    ("layer", "01"): "everyday: one after the other; what is in one is lesson 03's question",
    ("turn", "01"): "a verb",
    ("KV cache", "02"): "promised: what it will have to keep",
    ("activation", "03"): "says what it means in the same sentence",
    ("trace", "04"): "of activations, not of requests",
    ("tail", "05"): "everyday: the end of a text",
    ("prefix", "09"): "promised for lesson 10",
    ("prefix cache", "09"): "promised for lesson 10",
    ("agent", "11"): "promised for lesson 12",
    ("provider prompt cache", "11"): "in a table of what lesson 13 adds",
}


def rows() -> list[tuple[str, str]]:
    """(word, lesson) for every word of the glossary; a row may name several."""
    found = []
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) >= 4 and re.fullmatch(r"\d\d", cells[2]):
            found += [(re.sub(r"\s*\(.*?\)", "", word).strip(), cells[2]) for word in cells[0].split(",")]
    return found


@cache
def lesson(number: str) -> tuple[str, str]:
    """A lesson's text without code, and its whole source."""
    (path,) = (ROOT / "sources" / "lessons").glob(f"{number}_*.py")
    source = path.read_text(encoding="utf-8")
    cells = [cell for cell in re.split(r"^# %%", source, flags=re.MULTILINE) if cell.startswith(" [markdown]")]
    text = "\n".join(re.sub(r"^# ?", "", cell.split("\n", 1)[-1], flags=re.MULTILINE) for cell in cells)
    return re.sub(r"`[^`]*`", "", re.sub(r"```.*?```", "", text, flags=re.DOTALL)), source


def numbers() -> list[str]:
    return sorted(path.name[:2] for path in (ROOT / "sources" / "lessons").glob("*.py"))


def uses(word: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(s|es)?(?![\w-])", text, re.IGNORECASE) is not None


def earlier_uses() -> set[tuple[str, str]]:
    """(word, lesson) of the first lesson that uses a word, where that is before the one that introduces it."""
    found = set()
    for word, introduced in rows():
        used = [number for number in numbers() if uses(word, lesson(number)[0])]
        if used and used[0] < introduced:
            found.add((word, used[0]))
    return found


def test_no_lesson_uses_a_word_before_the_one_that_introduces_it():
    assert earlier_uses() - set(EARLIER) == set()


def test_every_exception_is_still_one():
    assert set(EARLIER) - earlier_uses() == set()


@pytest.mark.parametrize(("word", "number"), rows())
def test_a_word_is_met_in_the_lesson_that_the_glossary_names(word, number):
    """In its text or its code, by the stem of one of its words."""
    if number not in numbers():
        pytest.fail(f"{word}: there is no lesson {number}")
    stems = [part[: max(4, len(part) // 2 + 1)] for part in re.findall(r"[A-Za-z0-9]+", word) if len(part) > 1] or [word]
    assert any(stem.lower() in lesson(number)[1].lower() for stem in stems)

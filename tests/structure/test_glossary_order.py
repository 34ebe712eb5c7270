"""No word before its definition: the glossary says which lesson introduces a word, so that lesson's text has it and no
earlier one's.

Code is not read: names there are explained where they stand. A word that an earlier lesson uses in its everyday meaning, or
promises for later, is listed below with the reason; so is what a lesson says in place of a word. An entry that is no longer
needed fails, too.
"""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]

EARLIER: dict[tuple[str, str], str] = {
    ("V", "01"): "the size of the vocabulary, which its own row has",
    ("training", "01"): "everyday: numbers found by training; what training does is lesson 03's question",
    ("block", "01"): "a Python block",
    ("decode", "01"): "ids decoded into text",
    ("layer", "01"): "everyday: one after the other; what is in one is lesson 03's question",
    ("turn", "01"): "a verb",
    ("step", "02"): "everyday",
    ("KV cache", "02"): "promised: what it will have to keep",
    ("activation", "03"): "says what it means in the same sentence",
    ("rotary embedding", "06"): "named in passing: what SmolLM2 has",
    ("RoPE", "06"): "a class of labml's, in a table",
    ("tail", "05"): "everyday: the end of a text",
    ("prefix", "09"): "promised for lesson 10",
    ("prefix cache", "09"): "promised for lesson 10",
    ("agent", "11"): "promised for lesson 12",
    ("provider prompt cache", "11"): "in a table of what lesson 13 adds",
    ("minimum", "11"): "in the same table",
}

# What a lesson says in place of a word, where it never says the word itself. In backticks: as code within its text.
VARIANTS: dict[str, str] = {
    "greedy decoding": "greedy",
    "tied weights": "tied",
    "multi-head attention": "several heads",
    "learned positions": "position table",
    "rotary embedding": "rotary",
    "quantization": "fewer bits",
    "preallocated cache": "`PreallocatedCache`",
    "sliding window": "model with a window",
    "reference count": "block's count",
    "farthest next use": "needed last",
    "time to first token": "to the first new token",
    "regenerate": "`regenerate`",
    "re-encoding": "encodes again",
    "session file": "in a file for the conversation",
    "durable": "`durable`",
    "probe": "`probe=True`",
    "computed tokens": "prompt tokens are computed",
}


class Word(NamedTuple):
    """lesson: the one that introduces it, or None. is_alias: what it is called elsewhere, which no lesson need say."""

    word: str
    lesson: str | None
    is_alias: bool = False


def words_of(glossary: str) -> list[Word]:
    """Every word of a glossary's tables; a row may name several, each with another name in brackets."""
    found = []
    for line in glossary.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) < 4 or not re.fullmatch(r"\d\d|–", cells[2]):
            continue
        number = None if cells[2] == "–" else cells[2]
        for name in cells[0].split(","):
            found.append(Word(re.sub(r"\s*\(.*?\)", "", name).strip(), number))
            found += [Word(alias.strip(), number, True) for alias in re.findall(r"\((.*?)\)", name)]
    return found


WORDS = words_of((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))


@cache
def lesson(number: str) -> str:
    """A lesson's text, without blocks of code, on one line."""
    (path,) = (ROOT / "sources" / "lessons").glob(f"{number}_*.py")
    source = path.read_text(encoding="utf-8")
    cells = [cell for cell in re.split(r"^# %%", source, flags=re.MULTILINE) if cell.startswith(" [markdown]")]
    text = "\n".join(re.sub(r"^# ?", "", cell.split("\n", 1)[-1], flags=re.MULTILINE) for cell in cells)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"\*\*|(?<!\w)[*_]|[*_](?!\w)", "", text))


NUMBERS = sorted(path.name[:2] for path in (ROOT / "sources" / "lessons").glob("*.py"))


def uses(word: str, text: str, code: bool = False) -> bool:
    """The whole word, or its plural; an abbreviation as it is written. Inside backticks only for code."""
    text = text.replace("`", "") if code else re.sub(r"`[^`]*`", "", text)
    flags = re.NOFLAG if word.isupper() or word == "RoPE" else re.IGNORECASE
    return re.search(rf"(?<![\w-]){re.escape(word)}(s|es)?(?![\w-])", text, flags) is not None


def says(one: Word, text: str) -> bool:
    """A word, or what is said in its place. An alias may be a name in code, such as RoPE."""
    variant = VARIANTS.get(one.word)
    if variant is not None and variant.startswith("`"):
        return uses(one.word, text) or variant in text
    return uses(one.word, text, one.is_alias) or (variant is not None and uses(variant, text))


def earlier_uses() -> set[tuple[str, str]]:
    """(word, lesson) of the first lesson that uses a word, where that is before the one that introduces it."""
    found = set()
    for one in WORDS:
        used = [number for number in NUMBERS if says(one, lesson(number))]
        if one.lesson and used and used[0] < one.lesson:
            found.add((one.word, used[0]))
    return found


def test_no_lesson_uses_a_word_before_the_one_that_introduces_it():
    assert earlier_uses() - set(EARLIER) == set()


def test_every_exception_is_still_one():
    assert set(EARLIER) - earlier_uses() == set()


@pytest.mark.parametrize(("word", "number", "is_alias"), [one for one in WORDS if one.lesson and not one.is_alias])
def test_a_word_is_met_in_the_lesson_that_the_glossary_names(word, number, is_alias):
    """In its text, as a whole word, or by what the lesson says in its place."""
    assert number in NUMBERS, f"{word}: there is no lesson {number}"
    assert says(Word(word, number), lesson(number)), f"lesson {number} does not say {word}"


@pytest.mark.parametrize("one", [one for one in WORDS if one.lesson is None], ids=lambda one: one.word)
def test_a_word_without_a_lesson_is_used_by_none(one):
    assert [number for number in NUMBERS if says(one, lesson(number))] == []


@pytest.mark.parametrize("word", VARIANTS)
def test_what_is_said_in_place_of_a_word_is_needed(word):
    """The glossary has the word, and the lesson that it names does not say it."""
    (one,) = [one for one in WORDS if one.word == word]
    assert one.lesson and not uses(word, lesson(one.lesson))


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("throughput", "tokens that go through the model"),
        ("top-k", "the top row"),
        ("time to first token", "this time to the end, token by token"),
        ("temperature", "`Sampler(temperature=0.8)`"),
        ("chunked prefill", "the prefill"),
        ("LRU", "the lru cache"),
        ("token", "a `token`, tokenizers, token-wise"),
    ],
)
def test_part_of_a_word_and_a_name_in_code_are_no_use_of_it(word, text):
    assert not says(Word(word, "01"), text)
    assert says(Word(word, "01"), f"{text}: {word}s")


def test_a_table_is_read_with_its_dashes_and_its_other_names():
    rows = "| word | 中文 | | means | not |\n|---|---|---|---|---|\n| a b (AB), c | 甲 | 07 | x | |\n| d | 乙 | – | y | |\n"
    assert words_of(rows) == [Word("a b", "07"), Word("AB", "07", True), Word("c", "07"), Word("d", None)]
    assert uses("RoPE", "given to `RoPE`", code=True) and not uses("RoPE", "given to `RoPE`")

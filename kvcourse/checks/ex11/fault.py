"""Lesson 11: what must hold of an answer that says what is wrong with a session file (11.4). Knows nothing about files: a
header is a dict, and the rows are a tensor.

The digest is ours, so it is seen what the answer made a digest of.
"""

import hashlib
import json
from typing import Any

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

Header = dict[str, Any]
WORDS = ("damaged", "newer", "model", "tokenizer")
NEWEST = 2
FIELDS = ("version", "model", "tokenizer", "ids", "stops", "shape")


def says_none_or_a_word(answer: Answer, draw: Draw) -> None:
    for version in (2, 7):
        header, rows = a_file(draw, version=version)
        fault_of(answer, header, rows)


def accepts_a_good_file(answer: Answer, draw: Draw) -> None:
    for version in (2, 1):
        header, rows = a_file(draw, version=version)
        asked = Digest()
        got = fault_of(answer, header, rows, asked)
        told = f"A file of version {version}, by this model and this tokenizer, and its digest is right: None; got {got!r}"
        expect(got is None, f"{told}. {asked.compared_with(header)}" if got == "damaged" else f"{told}.")


def sees_a_flipped_number_in_the_rows(answer: Answer, draw: Draw) -> None:
    header, rows = a_file(draw)
    for place in (0, rows.numel() - 1, draw.integer(1, rows.numel() - 2)):
        other = rows.clone()
        other.view(-1)[place] += 2**-40
        damaged(answer, header, other, f"number {place} of the rows has changed in its last bits")
    damaged(answer, header, rows[..., :-1, :].clone(), "the last row of every layer is missing")


def sees_a_change_in_the_header(answer: Answer, draw: Draw) -> None:
    header, rows = a_file(draw)
    id = draw.integer(0, 5)
    ids = [*header["ids"][:id], header["ids"][id] + 1, *header["ids"][id + 1 :]]
    for field, value in (("ids", ids), ("stops", [2, 6]), ("shape", [1, 2, 1, 4, 3]), ("version", 1)):
        why = f"{field!r} of the header was {header[field]} and is {value}"
        damaged(answer, {**header, field: value}, rows, f"{why}; the digest was made of all of it, header included")
    damaged(answer, {**header, "more": 1}, rows, "a field that nobody wrote stands in the header")
    damaged(answer, without(header, "stops"), rows, "a field of the header is gone, 'stops'")


def sees_a_wrong_digest(answer: Answer, draw: Draw) -> None:
    header, rows = a_file(draw)
    place = draw.integer(1, len(header["digest"]) - 2)
    for at in (0, len(header["digest"]) - 1, place):
        digest = flipped(header["digest"], at)
        damaged(answer, {**header, "digest": digest}, rows, f"the digest has another letter in place {at}")
    damaged(answer, without(header, "digest"), rows, "there is no digest")


def refuses_another_model(answer: Answer, draw: Draw) -> None:
    refuses_another(answer, draw, "model", "The shapes are the same, the weights are not, and so K and V are others")


def refuses_another_tokenizer(answer: Answer, draw: Draw) -> None:
    refuses_another(answer, draw, "tokenizer", "Its ids stand for other texts")


def refuses_a_newer_version(answer: Answer, draw: Draw) -> None:
    for version in (3, draw.integer(4, 99)):
        header, rows = a_file(draw, version=version)
        got = fault_of(answer, header, rows)
        told = f"Version {version}, {NEWEST} being the newest that this program reads: who knows what its fields mean"
        expect(got == "newer", f"{told}. Expected 'newer'; got {got!r}.")


def names_the_first_fault(answer: Answer, draw: Draw) -> None:
    other = fingerprint(draw)
    for changes, spoilt, right in (
        ({"version": 3}, True, "damaged"),
        ({"model": other}, True, "damaged"),
        ({"tokenizer": other}, True, "damaged"),
        ({"version": 3, "model": other}, False, "newer"),
        ({"version": 3, "tokenizer": other}, False, "newer"),
        ({"model": other, "tokenizer": other}, False, "model"),
    ):
        mine, rows = a_file(draw)
        header = sealed({**mine, **changes}, rows)
        rows = rows + 1 if spoilt else rows
        got = fault_of(answer, header, rows, ours=mine)
        wrong = " and ".join((*("another " + name if name != "version" else "a newer version" for name in changes),))
        told = f"A file with {wrong}, {'and damaged' if spoilt else 'and not damaged'}"
        why = ": while the digest is wrong, nothing else in it can be believed" if spoilt else ""
        expect(got == right, f"{told}. The first fault counts, {right!r}{why}; got {got!r}.")


def leaves_the_header_alone(answer: Answer, draw: Draw) -> None:
    header, rows = a_file(draw, version=draw.integer(1, 3))
    kept = answer.keep(header)
    answer(kept, rows, header["model"], header["tokenizer"], Digest())
    after = kept.value()
    gone = [field for field in header if field not in after]
    now = f"has no {gone[0]!r} any more" if gone else f"is {after}"
    expect(after == header, f"header {now}, and was {sorted(header)} before. It is the caller's dict: make another one.")


def tells_many_files_apart(answer: Answer, draw: Draw) -> None:
    for _ in range(60):
        mine, rows = a_file(draw, version=draw.integer(1, 3))
        strange = {name for name in ("model", "tokenizer") if draw.integer(0, 1)}
        header = sealed({**mine, **{name: flipped(mine[name], draw.integer(5, 10)) for name in strange}}, rows)
        spoilt = draw.integer(0, 3) == 0
        if spoilt:
            field = FIELDS[draw.integer(0, 5)]
            header = {**header, field: spoil(header[field])}
        faults = {
            "damaged": spoilt,
            "newer": header["version"] > NEWEST,
            "model": "model" in strange,
            "tokenizer": "tokenizer" in strange,
        }
        right = next((word for word, holds in faults.items() if holds), None)
        got = fault_of(answer, header, rows, ours=mine)
        told = f"One of many files: {', '.join(word for word, holds in faults.items() if holds) or 'nothing is wrong with it'}"
        expect(got == right, f"{told}. Expected {right!r}; got {got!r}.")


PROPERTIES: tuple[Property, ...] = (
    says_none_or_a_word,
    accepts_a_good_file,
    sees_a_flipped_number_in_the_rows,
    sees_a_change_in_the_header,
    sees_a_wrong_digest,
    refuses_another_model,
    refuses_another_tokenizer,
    refuses_a_newer_version,
    names_the_first_fault,
    leaves_the_header_alone,
    tells_many_files_apart,
)


class Digest:
    """A digest that remembers the headers that it was given."""

    def __init__(self) -> None:
        self.headers: list[Header] = []
        self.made: list[str] = []

    def __call__(self, header: Any, rows: Any) -> str:
        expect(isinstance(header, dict), f"digest takes a header, a dict; yours gave it {describe(header)}.")
        expect(isinstance(rows, Tensor), f"digest takes a header and the rows, a tensor; yours gave it {describe(rows)}.")
        self.headers.append(header)
        text = json.dumps([header, str(rows.dtype), list(rows.shape)], sort_keys=True, default=describe).encode()
        numbers = rows.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        self.made.append(hashlib.sha256(text + numbers).hexdigest()[:16])
        return self.made[-1]

    def compared_with(self, header: Header) -> str:
        """What the answer made a digest of, when it took a good file for a damaged one."""
        if not self.headers:
            return "You made no digest."
        given = self.headers[-1]
        if "digest" in given:
            return "You made a digest of a header with its own digest in it."
        gone = [name for name in header if name not in given and name != "digest"]
        if gone:
            return f"You made a digest of a header without {', '.join(map(repr, gone))}."
        same = self.made[-1] == header["digest"]
        return "The digest that you made is the one in the header." if same else "You made a digest of other numbers."


def fingerprint(draw: Draw) -> str:
    return "".join("0123456789abcdef"[draw.integer(0, 15)] for _ in range(16))


def sealed(header: Header, rows: Tensor) -> Header:
    """The header with the right digest in it."""
    rest = without(header, "digest")
    return {**rest, "digest": Digest()(rest, rows)}


def a_file(draw: Draw, version: int = NEWEST) -> tuple[Header, Tensor]:
    """A good one."""
    rows = draw.tensor(1, 2, 1, 5, 2)
    about = {"version": version, "model": fingerprint(draw), "tokenizer": fingerprint(draw)}
    return sealed({**about, "ids": draw.integers(6, 1, 9), "stops": [3, 6], "shape": [1, 2, 1, 5, 2]}, rows), rows


def without(header: Header, field: str) -> Header:
    return {name: value for name, value in header.items() if name != field}


def flipped(text: str, place: int) -> str:
    """The same text with another letter in one place."""
    return text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :]


def spoil(value: Any) -> Any:
    """Something else of the same kind."""
    if isinstance(value, str):
        return flipped(value, len(value) - 1)
    return value + 1 if isinstance(value, int) else [*value[:-1], value[-1] + 1]


def damaged(answer: Answer, header: Header, rows: Tensor, why: str) -> None:
    got = fault_of(answer, header, rows)
    expect(got == "damaged", f"A file in which {why}. Expected 'damaged'; got {got!r}.")


def refuses_another(answer: Answer, draw: Draw, name: str, why: str) -> None:
    mine, rows = a_file(draw)
    for theirs, told in (
        (fingerprint(draw), f"A whole file by another {name}"),
        (flipped(mine[name], 15), f"A whole file by another {name}, whose fingerprint differs in its last letter only"),
        (flipped(mine[name], 0), f"A whole file by another {name}, whose fingerprint differs in its first letter only"),
    ):
        got = fault_of(answer, sealed({**mine, name: theirs}, rows), rows, ours=mine)
        expect(got == name, f"{told}. {why}. Expected {name!r}; got {got!r}.")
    got = fault_of(answer, sealed(without(mine, name), rows), rows, ours=mine)
    expect(got == name, f"A whole file that names no {name}: nobody knows whose it is. Expected {name!r}; got {got!r}.")


def fault_of(
    answer: Answer, header: Header, rows: Tensor, digest: Digest | None = None, ours: Header | None = None
) -> str | None:
    """What the answer says. ours: whose fingerprints are this program's; the file's own unless given."""
    mine = header if ours is None else ours
    got = answer(header, rows, mine["model"], mine["tokenizer"], Digest() if digest is None else digest)
    good = got is None or (isinstance(got, str) and got in WORDS)
    what = repr(got[:40]) if isinstance(got, str) else describe(got)
    expect(good, f"Expected None or one of {', '.join(map(repr, WORDS))}; got {what}.")
    return got

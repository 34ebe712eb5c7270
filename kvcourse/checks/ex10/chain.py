"""Lesson 10: what must hold of an answer that names the blocks of a text (10.2). Knows nothing about what is stored.

The digest is ours, so every text that the answer makes of a block is seen: two blocks that must not be confused are shown with
the one text that both became. How the answer writes its texts is its own affair.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

CHARACTER_BITS = 21  # the most that one character of a text can tell
Namespace = Any


def returns_what_digest_returned(answer: Answer, draw: Draw) -> None:
    for tokens in ([5, 3, 8, 1], draw.integers(6, 0, 50)):
        keys_of(answer, tokens, 2)


def gives_a_part_block_no_key(answer: Answer, draw: Draw) -> None:
    for n, size in ((5, 2), (3, 4), (0, 2), (draw.integer(9, 11), 4)):
        tokens = list(range(20, 20 + n))
        told = f"{n} tokens fill {n // size} blocks of {size}, so there are {n // size} keys"
        keys = keys_of(answer, tokens, size, count=False)
        why = " The last block is not full: it may still become anything." if len(keys) > n // size and n % size else ""
        expect(len(keys) == n // size, f"{told}; yours are {len(keys)}.{why}")


def names_every_token_of_a_block(answer: Answer, draw: Draw) -> None:
    last = draw.integer(30, 40)
    for one, other in (
        ([5, 3, 8], [6, 3, 8]),
        ([5, 3, 8], [5, 4, 8]),
        ([5, 3, last], [5, 3, last + 1]),
        ([5, 3, 8], [8, 3, 5]),
        ([5, 5, 8], [5, 8, 8]),
    ):
        apart(answer, (one, None), (other, None), 3, 0, "differ in a token, or in the order of their tokens")


def names_what_is_in_front(answer: Answer, draw: Draw) -> None:
    far = [draw.integer(60, 70), 3]
    for one, other, block in (
        ([5, 3, 8, 1], [9, 3, 8, 1], 1),
        ([5, 3, 8, 1, 2, 2], [*far, 8, 1, 2, 2], 2),
        ([5, 3, 7, 7, 7, 7], [7, 7, 7, 7, 7, 7], 2),
    ):
        why = f"hold the same tokens in block {block}, but not in front of it, so its K and V differ"
        apart(answer, (one, None), (other, None), 2, block, why)


def names_nothing_else(answer: Answer, draw: Draw) -> None:
    tail = draw.integers(3, 60, 70)
    whole = keys_of(answer, [5, 3, 8, 1, *tail], 2)
    for tokens in ([5, 3, 8, 1], [5, 3, 8, 1, 9, 9, 9]):
        keys = keys_of(answer, tokens, 2)
        told = f"Blocks 0 and 1 of {tokens} and of {[5, 3, 8, 1, *tail]} hold the same tokens, with the same in front"
        why = "What comes behind a block, or was asked before, is not in its key"
        expect(keys[:2] == whole[:2], f"{told}; yours gave them other keys. {why}.")
    same = keys_of(answer, [4, 4, 4, 4], 2)
    expect(
        same[0] != same[1],
        "[4, 4] and again [4, 4]: the second block has the first in front of it, and needs a key of its own.",
    )


def keeps_numbers_apart(answer: Answer, draw: Draw) -> None:
    digit = draw.integer(2, 9)
    for one, other in (([1, 23], [12, 3]), ([digit, 11], [digit * 10 + 1, 1])):
        apart(answer, (one, None), (other, None), 2, 0, "are two different blocks, written with the same digits in a row")


def keeps_namespaces_apart(answer: Answer, draw: Draw) -> None:
    name = f"tenant {draw.integer(0, 9)}"
    for one, other, block in (("a", "b", 0), (name, None, 0), (("a", 1), ("a", 2), 0), ("a", "b", 1), (None, name, 1)):
        why = f"are the same tokens of two users: nobody may find block {block} of the other"
        apart(answer, ([5, 3, 8, 1], one), ([5, 3, 8, 1], other), 2, block, why)


def keeps_types_apart(answer: Answer, draw: Draw) -> None:
    number = draw.integer(2, 99)
    for one, other in ((1, "1"), (None, "None"), (None, ""), (number, (number,)), (("1", 2), ("1", "2")), ("('a',)", ("a",))):
        why = "are the same tokens of two users whose names only look alike: they are of different types"
        apart(answer, ([5, 3], one), ([5, 3], other), 2, 0, why)


def keeps_parts_of_a_name_apart(answer: Answer, draw: Draw) -> None:
    a, b = f"u{draw.integer(1, 9)}", f"v{draw.integer(1, 9)}"
    for one, other in ((("a", "bc"), ("ab", "c")), ((a, b), (a + b,)), (("a/b", "c"), ("a", "b/c")), (("a, b",), ("a", "b"))):
        apart(answer, ([5, 3], one), ([5, 3], other), 2, 0, "are the same tokens of two users whose names are cut elsewhere")


def leaves_the_shortening_to_digest(answer: Answer, draw: Draw) -> None:
    for one, other in ((-1, -2), (("a", -2), ("a", -1))):
        why = "are the same tokens of two users. Python's hash() gives -1 and -2 the same number; digest alone may shorten"
        apart(answer, ([5, 3], one), ([5, 3], other), 2, 0, why)
    tokens = draw.integers(64, 0, 2**31)
    digest = Digest()
    keys_of(answer, tokens, 64, digest=digest)
    length, needed = sum(map(len, digest.texts)), 64 * 31 // CHARACTER_BITS
    why = "They cannot all be in there: something else has shortened them first. Python's hash() is no digest"
    expect(length >= needed, f"A block of 64 tokens became a text of {length} characters. {why}: others share its number.")


def takes_blocks_of_any_size(answer: Answer, draw: Draw) -> None:
    for size in (1, 3, draw.integer(5, 16)):
        tokens = draw.integers(3 * size, 0, 99)
        keys = keys_of(answer, tokens, size)
        for place in range(3 * size):
            changed = keys_of(answer, [*tokens[:place], tokens[place] + 100, *tokens[place + 1 :]], size)
            same = [one == other for one, other in zip(keys, changed, strict=True)]
            right = [block < place // size for block in range(3)]
            told = f"Three blocks of {size}; token {place} changes, which is in block {place // size}"
            told += ". That block's key and those behind it change, and no other"
            expect(same == right, f"{told}; in yours changed: {[block for block in range(3) if not same[block]]}.")


def leaves_the_tokens_alone(answer: Answer, draw: Draw) -> None:
    tokens = [5, 3, 8, 1, draw.integer(10, 20)]
    kept = answer.keep(tokens)
    answer(kept, 2, None, Digest())
    expect(kept.value() == tokens, f"tokens was {tokens} and is {kept.value()} afterwards. It is the caller's list.")


PROPERTIES: tuple[Property, ...] = (
    returns_what_digest_returned,
    gives_a_part_block_no_key,
    names_every_token_of_a_block,
    names_what_is_in_front,
    names_nothing_else,
    keeps_numbers_apart,
    keeps_namespaces_apart,
    keeps_types_apart,
    keeps_parts_of_a_name_apart,
    leaves_the_shortening_to_digest,
    takes_blocks_of_any_size,
    leaves_the_tokens_alone,
)


class Digest:
    """A digest that remembers what it was given."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.keys: dict[str, str] = {}  # the text of each

    def __call__(self, *texts: Any) -> str:
        expect(len(texts) == 1, f"digest takes one text; yours gave it {len(texts)} arguments. Make one text of them.")
        text = texts[0]
        what = describe(text)
        expect(isinstance(text, str), f"digest takes one text, a str; yours gave it {what}. An f-string makes one.")
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self.texts.append(text)
        self.keys[key] = text
        return key


def apart(
    answer: Answer, one: tuple[list[int], Namespace], other: tuple[list[int], Namespace], size: int, block: int, why: str
) -> None:
    """Raise Broken if the answer gives this block of both the same key; show the text that both became."""
    keys, seen = [], Digest()
    for tokens, namespace in (one, other):
        keys.append(keys_of(answer, tokens, size, namespace, seen)[block])
    named = one[1] != other[1] or type(one[1]) is not type(other[1])
    shown = [f"{tokens} of {namespace!r}" if named else str(tokens) for tokens, namespace in (one, other)]
    text = seen.keys[keys[0]]
    text = text if len(text) <= 60 else f"{text[:60]} ..."
    told = f"{shown[0]} and {shown[1]}, blocks of {size}, {why}"
    expect(keys[0] != keys[1], f"{told}. In yours both keys are of the same text, {text!r}.")


def keys_of(
    answer: Answer,
    tokens: list[int],
    size: int,
    namespace: Namespace = None,
    digest: Digest | None = None,
    count: bool = True,
) -> Sequence[str]:
    """The answer's keys, each of which is something that digest returned; unless `count` is off, as many as full blocks."""
    digest = Digest() if digest is None else digest
    got = answer(tokens, size, namespace, digest)
    told = f"tokens {tokens if len(tokens) < 12 else f'({len(tokens)} of them)'}, blocks of {size}"
    expect(isinstance(got, list), f"{told}: expected a list of keys; got {describe(got)}.")
    assert isinstance(got, list)
    for key in got:
        own = " Python's hash() will not do: for a text it differs from process to process." if type(key) is int else ""
        made = isinstance(key, str) and key in digest.keys
        shown = repr(key[:40]) if isinstance(key, str) else describe(key)
        expect(made, f"{told}: a key is what digest returned for a text of yours; one of yours is {shown}.{own}")
    full = len(tokens) // size
    expect(not count or len(got) == full, f"{told}: a key for each full block, so {full}; got {len(got)}.")
    return got

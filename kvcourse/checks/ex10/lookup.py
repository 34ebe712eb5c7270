"""Lesson 10: what must hold of an answer that looks blocks up by their keys (10.3). Knows nothing about how keys are made
well: here they are made badly, on purpose, by digests that give two blocks the same key.

A key is a claim, and the pair that is stored under it says what is really there.
"""

import hashlib
from collections.abc import Callable

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

P = 2
ROOT = "root"
Text = list[int]
Stored = dict[str, tuple[str, Text]]
Digest = Callable[[str, Text], str]


def good(before: str, block: Text) -> str:
    """Two different ones never meet in here."""
    return "k" + hashlib.sha256(f"{before} {block}".encode()).hexdigest()[:5]


def by_tokens(before: str, block: Text) -> str:
    """The same key wherever a block stands."""
    return good("", block)


def returns_a_number_of_blocks(answer: Answer, draw: Draw) -> None:
    for text, tokens in (([5, 3, 8, 1], [5, 3, 8, 1, 7]), ([5, 3], [draw.integer(6, 9), 3, 8])):
        found(answer, filled([text]), tokens)


def finds_what_is_there(answer: Answer, draw: Draw) -> None:
    for text, tokens, right in (
        ([5, 3, 8, 1], [5, 3, 8, 1, 7, 7], 2),
        ([5, 3, 8, 1, 7, 7, 2, 2], [5, 3, 8, 1, 9, 9], 2),
        ([5, 3, 8, 1], [5, 3, 8, 1], 2),
        ([5, 3, 8, 1], [5, 3, 8, 1, 9], 2),
        ([5, 3], [draw.integer(6, 9), 3], 0),
        ([5, 3], [], 0),
    ):
        judge(answer, filled([text]), tokens, right, f"{right} of its blocks are stored, from the first on")


def stops_at_the_first_miss(answer: Answer, draw: Draw) -> None:
    for missing in (1, 0, draw.integer(1, 2)):
        stored = filled([[5, 3, 8, 1, 7, 7, 2, 2]])
        tokens = [5, 3, 8, 1, 7, 7, 2, 2, 9]
        stored.pop(keys_of(tokens)[missing])
        why = f"block {missing} is gone. What is behind it needs the K and V of what is in front"
        judge(answer, stored, tokens, missing, why)


def compares_the_tokens(answer: Answer, draw: Draw) -> None:
    for text, tokens, right in (
        ([5, 3], [6, 4], 0),
        ([5, 3], [5, draw.integer(4, 9)], 0),
        ([5, 3, 8, 1], [5, 3, 1, 8], 1),
        ([5, 3, 8, 1, 7, 7], [5, 3, 8, 1, 7, 9], 2),
    ):
        start = tokens[: right * P]

        def poor(before: str, block: Text, of: tuple[Text, Text] = (text, start)) -> str:
            return good(before, block if block in cut(of[1]) else [0])  # one key for whatever is behind that start

        theirs = text[right * P : right * P + P]
        why = f"the key of block {right} is there, but the pair under it holds {theirs}: another block with the same key"
        judge(answer, filled([text], poor), tokens, right, why, poor)


def keeps_namespaces_apart(answer: Answer, draw: Draw) -> None:
    text = [5, 3, 8, draw.integer(1, 9)]
    stored = filled([text], by_tokens, root="alice")
    why = "its first block is stored with 'alice' in front, and root is 'bob': another user's text, whatever its key"
    judge(answer, stored, text, 0, why, by_tokens, root="bob")


def compares_what_is_in_front(answer: Answer, draw: Draw) -> None:
    front = draw.integers(2, 60, 70)
    for text, tokens, right in (
        ([9, 9, 8, 1], [8, 1, 5, 5], 0),
        ([*front, 8, 1], [8, 1], 0),
        ([5, 3, 9, 9, 8, 1], [5, 3, 8, 1, 7, 7], 1),
    ):
        stored = filled([text], by_tokens)
        before = stored[by_tokens("", [8, 1])][0]
        why = f"block {right} holds [8, 1], and so does the pair under its key, but with {before!r} in front"
        own = ROOT if right == 0 else by_tokens("", tokens[right * P - P : right * P])
        judge(answer, stored, tokens, right, f"{why}, and not {own!r}: a block of another text", by_tokens)


def believes_nothing_behind_a_stranger(answer: Answer, draw: Draw) -> None:
    def poor(before: str, block: Text) -> str:
        return good(before, [0] if 9 in block or 1 in block else block)

    tail = draw.integers(2, 20, 30)
    for text, tokens in (([5, 3, 9, 9, 7, 7], [5, 3, 8, 1, 7, 7]), ([5, 3, 9, 9, *tail, 4, 4], [5, 3, 8, 1, *tail, 4, 4])):
        why = f"the key of block 1 leads to {text[2:4]}, another block. What hangs behind that one has other K and V"
        judge(answer, filled([text], poor), tokens, 1, why, poor)


def takes_blocks_of_any_size(answer: Answer, draw: Draw) -> None:
    for size in (1, 3, draw.integer(5, 9)):
        text = draw.integers(4 * size, 0, 9)
        tokens = [*text[: 3 * size], *[99] * (size + size // 2)]
        why = f"the first three blocks of {size} are stored"
        judge(answer, filled([text], size=size), tokens, 3, why, size=size)


def changes_nothing(answer: Answer, draw: Draw) -> None:
    stored, tokens = filled([[5, 3, 8, 1]]), [5, 3, 9, 9, draw.integer(10, 20)]
    keys = keys_of(tokens)
    kept = [answer.keep(value) for value in (stored, keys, tokens)]
    answer(kept[0], ROOT, kept[1], kept[2], P)
    for what, was, now in zip(("stored", "keys", "tokens"), (stored, keys, tokens), (one.value() for one in kept), strict=True):
        expect(was == now, f"{what} was {was} and is {now} afterwards. Looking up changes nothing.")


def is_never_wrong_with_a_poor_digest(answer: Answer, draw: Draw) -> None:
    def three_keys(before: str, block: Text) -> str:
        return f"{'xyz'[sum(block) % 3]}{int(good(before, block)[1:], 16) % 2}"

    for _ in range(40):
        texts = [draw.integers(2 * draw.integer(2, 5), 0, 1) for _ in range(3)]
        starts: set[tuple[int, ...]] = set()  # of texts, as far as they are stored
        stored = filled(texts, three_keys, starts=starts)
        tokens = [*texts[draw.integer(0, 2)][: draw.integer(0, 4)], *draw.integers(7, 0, 1)]
        right = len([n for n in range(P, len(tokens) + 1, P) if tuple(tokens[:n]) in starts])
        judge(answer, stored, tokens, right, "some of its keys are also those of others", three_keys)


PROPERTIES: tuple[Property, ...] = (
    returns_a_number_of_blocks,
    finds_what_is_there,
    stops_at_the_first_miss,
    compares_the_tokens,
    believes_nothing_behind_a_stranger,
    keeps_namespaces_apart,
    compares_what_is_in_front,
    takes_blocks_of_any_size,
    changes_nothing,
    is_never_wrong_with_a_poor_digest,
)


def cut(tokens: Text, size: int = P) -> list[Text]:
    """The full blocks of a text."""
    return [tokens[first : first + size] for first in range(0, len(tokens) - len(tokens) % size, size)]


def keys_of(tokens: Text, digest: Digest = good, root: str = ROOT, size: int = P) -> list[str]:
    keys: list[str] = []
    for block in cut(tokens, size):
        keys.append(digest(keys[-1] if keys else root, block))
    return keys


def filled(
    texts: list[Text], digest: Digest = good, root: str = ROOT, size: int = P, starts: set[tuple[int, ...]] | None = None
) -> Stored:
    """What is stored after these texts, one after another; `starts` gets what they begin with, as far as that is stored. Where
    a key is taken by another block, the rest of a text stays out."""
    stored: Stored = {}
    for one in texts:
        front = root
        for number, (key, block) in enumerate(zip(keys_of(one, digest, root, size), cut(one, size), strict=True), 1):
            if stored.setdefault(key, (front, block)) != (front, block):
                break
            front = key
            if starts is not None:
                starts.add(tuple(one[: number * size]))
    return stored


def judge(
    answer: Answer,
    stored: Stored,
    tokens: Text,
    right: int,
    why: str,
    digest: Digest = good,
    root: str = ROOT,
    size: int = P,
) -> None:
    got, told = found(answer, stored, tokens, digest, root, size)
    expect(got == right, f"{told}: {why}. Expected {right}; got {got}.")


def found(
    answer: Answer, stored: Stored, tokens: Text, digest: Digest = good, root: str = ROOT, size: int = P
) -> tuple[int, str]:
    """What the answer says, and what it was asked."""
    keys = keys_of(tokens, digest, root, size)
    got = answer(stored, root, keys, tokens, size)
    told = f"Stored is {stored}; tokens {tokens} have the keys {keys}"
    if len(told) > 330:
        told = f"Of {len(stored)} stored blocks, and tokens {tokens} in blocks of {size}"
    expect(type(got) is int, f"{told}: expected a number of blocks, an int; got {describe(got)}.")
    assert isinstance(got, int)
    return got, told

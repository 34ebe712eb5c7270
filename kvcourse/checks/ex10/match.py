"""Lesson 10: what must hold of an answer that finds the longest known start of a text (10.1). Knows nothing about blocks or
keys: lists of token ids only."""

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

Text = list[int]


def returns_a_number(answer: Answer, draw: Draw) -> None:
    for texts, tokens in (([[5, 3, 8]], [5, 3, 9]), ([draw.integers(3, 0, 9)], draw.integers(3, 0, 9))):
        matched(answer, texts, tokens)


def counts_the_common_start(answer: Answer, draw: Draw) -> None:
    n, front = draw.integer(1, 5), draw.integers(6, 0, 50)
    for text, tokens in (
        ([5, 3, 8, 1], [5, 3, 9, 9]),
        ([5, 3], [5, 3, 9, 9]),
        ([5, 3, 9, 7, 7, 7], [5, 3, 9, 4]),
        ([5, 3, 8], [5, 3, 8, 2]),
        ([*front[:n], 60, 61], [*front[:n], 70, 71]),
    ):
        told = f"Stored is {text}, and {tokens} comes"
        got, right = matched(answer, [text], tokens), shared(text, tokens)
        same = (
            f"the first {right} are the same, and so are their K and V" if right > 1 else "the first is the same, and no other"
        )
        expect(got == right, f"{told}: {same}. Expected {right}; got {got}.")


def stops_at_the_first_difference(answer: Answer, draw: Draw) -> None:
    ids = draw.integers(7, 0, 50)
    other = [*ids[:2], 99, *ids[3:]]
    for text, tokens in (
        ([5, 3, 8, 1, 7], [5, 9, 8, 1, 7, 2]),
        ([5, 3, 8, 1], [9, 3, 8, 1, 6]),
        ([5, 3, 8], [9, 5, 3, 8]),
        (other, ids),
    ):
        right = shared(text, tokens)
        got = matched(answer, [text], tokens)
        told = f"Stored is {text}, and {tokens} comes: token {right} is {tokens[right]} and not {text[right]}"
        why = "What is behind it has another text in front of it, and so other K and V"
        expect(got == right, f"{told}. {why}, equal or not. Expected {right}; got {got}.")


def takes_the_best_of_all(answer: Answer, draw: Draw) -> None:
    short, middle, long = [5, 3, 9, 9], [5, 3, 8, 9, 9], [5, 3, 8, 1, 9]
    swap = draw.integer(0, 1)
    for texts in ([long, short, middle], [short, long, middle], [middle, short, long][:: -1 if swap else 1]):
        got = matched(answer, texts, [5, 3, 8, 1, 7, 7])
        each = [shared(text, [5, 3, 8, 1, 7, 7]) for text in texts]
        told = f"Stored are {texts}, and [5, 3, 8, 1, 7, 7] comes: they share {each} tokens with it"
        expect(got == max(each), f"{told}, and the most that one of them has is {max(each)}; got {got}.")


def leaves_one_to_compute(answer: Answer, draw: Draw) -> None:
    ids = draw.integers(draw.integer(2, 6), 0, 50)
    for texts, tokens in (([[5, 3, 8]], [5, 3, 8]), ([[5, 3, 8, 1, 7]], [5, 3, 8]), ([[4]], [4]), ([ids], ids)):
        got, right = matched(answer, texts, tokens), len(tokens) - 1
        told = f"Stored is {texts[0]}, and {tokens} comes: all of it is known"
        why = "But the next token's logits come out of computing the last one, so that one is not reused"
        expect(got == right, f"{told}. {why}: expected {right}; got {got}.")


def finds_nothing_in_nothing(answer: Answer, draw: Draw) -> None:
    nothing: tuple[list[Text], ...] = ([], [[]], [[], [draw.integer(60, 70)]])
    for texts in nothing:
        got = matched(answer, texts, [5, 3, 8])
        expect(got == 0, f"Stored is {texts}, and [5, 3, 8] comes: nothing of it is known. Expected 0; got {got}.")


def compares_any_ids(answer: Answer, draw: Draw) -> None:
    for _ in range(4):
        n, m = draw.integer(1, 4), draw.integer(0, 3)
        front = [0, *draw.integers(n, 1000, 50_000), 0, *draw.integers(m, 1000, 50_000)]
        texts = [[*front[: draw.integer(0, len(front))], 999] for _ in range(3)] + [[*front, 998]]
        numbers = [int(str(token)) for token in front]  # equal, and no more: `is` says that they are others
        got, right = matched(answer, texts, [*numbers, 997]), len(front)
        told = f"Stored is, among others, {texts[-1]}, and {[*front, 997]} comes"
        expect(got == right, f"{told}: expected {right}; got {got}. Ids from 0 up to any size are compared by value.")


def changes_nothing(answer: Answer, draw: Draw) -> None:
    last = draw.integer(60, 70)
    texts, tokens = [[5, 3, 8], [5, 3, last], [2]], [5, 3, last, 4]
    kept, mine = answer.keep(texts), answer.keep(tokens)
    first = answer(kept, mine)
    for what, was, now in (("texts", texts, kept.value()), ("tokens", tokens, mine.value())):
        expect(was == now, f"{what} was {was} and is {now} afterwards. Looking changes nothing.")
    matched(answer, [[7, 7, 7, 7]], [7, 7, 7, 7, 7])
    again = answer(texts, tokens)
    expect(first == again, f"Asked the same twice, yours said {first}, then {again}: something is kept between calls.")


PROPERTIES: tuple[Property, ...] = (
    returns_a_number,
    counts_the_common_start,
    stops_at_the_first_difference,
    takes_the_best_of_all,
    leaves_one_to_compute,
    finds_nothing_in_nothing,
    compares_any_ids,
    changes_nothing,
)


def shared(text: Text, tokens: Text) -> int:
    """Equal tokens from the first on."""
    n = 0
    while text[n : n + 1] == tokens[n : n + 1] != []:
        n += 1
    return n


def matched(answer: Answer, texts: list[Text], tokens: Text) -> int:
    """What the answer says, an int."""
    got = answer(texts, tokens)
    told = f"Stored are {texts}, and {tokens} comes"
    expect(type(got) is int, f"{told}: expected a number of tokens, an int; got {describe(got)}.")
    assert isinstance(got, int)
    return got

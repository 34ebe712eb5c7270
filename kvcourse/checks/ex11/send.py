"""Lesson 11: what must hold of an answer that takes the next turn of a conversation (11.1). Knows nothing about how a cache
stores rows.

The model runs on our side, so every token that goes through it is seen. The tokenizer is one that reads its own text otherwise
than it was written: ids of single letters come back as ids of pairs.
"""

from typing import Any

import torch
from torch import Tensor

from kvcourse.caches.growing import GrowingCache
from kvcourse.checks.base import Answer, Broken, Draw, Opaque, Property, describe, expect
from kvcourse.checks.ex06.decode import is_ids, likeliest, no_repeats, words
from kvcourse.errors import KVCourseError

Ids = list[int]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PAIRS = [one + other for one in LETTERS for other in LETTERS[LETTERS.index(one) + 1 :]]  # "ab", "ac", ... "yz"
SPARE_CALLS = 4  # after that many more than one a token, a loop is taken for endless


def returns_a_text_and_uses_the_cache(answer: Answer, draw: Draw) -> None:
    turn = Turn(answer, pairs(draw, 6), "xy", n=draw.integer(2, 4))
    expect(turn.calls, "The model was never called.")
    expect(isinstance(turn.got, str), f"The reply is a text, a str; got {describe(turn.got)}. decode makes text of ids.")


def computes_what_has_no_rows_yet(answer: Answer, draw: Draw) -> None:
    for text, n in (("xy", 3), ("acxz", draw.integer(1, 3))):
        Turn(answer, pairs(draw, draw.integer(4, 7)), text, n).judge_computed()


def believes_the_length_of_the_cache(answer: Answer, draw: Draw) -> None:
    ids = pairs(draw, 6)
    for before, rows, why in (
        ([], 0, "a new conversation"),
        (ids, 0, "loaded from a file without K and V"),
        (ids, 6, "after going back to an earlier turn"),
        (ids, draw.integer(2, 4), "with K and V of a part"),
    ):
        Turn(answer, before, "xy", n=2, rows=rows, why=why).judge_computed()


def keeps_the_ids_as_they_were(answer: Answer, draw: Draw) -> None:
    for before in ([30, 0, 1, 31], [*pairs(draw, 3), 3, 4, *pairs(draw, 1)]):
        turn = Turn(answer, before, "xy", n=2)
        again = encode(decode(before))
        told = f"The conversation was {before}, which reads {decode(before)!r}. Encoded again, that is {again}"
        changed = turn.after[: len(before)]
        expect(
            changed == before, f"{told}; in yours ids now begins with {changed}. Ids that were chosen stay: K and V are theirs."
        )
        twice, stream = again + encode("xy"), turn.stream()
        went = [part for part in (twice, twice[turn.rows :]) if stream[: len(part)] == part]
        through = f"and of that, with the text, {went[0] if went else []} went through the model"
        expect(not went, f"{told}, {through}. Use the ids, not their text.")
        turn.judge_computed()


def adds_the_text_and_the_reply_to_ids(answer: Answer, draw: Draw) -> None:
    for text, n in (("xy", 3), ("acxz", draw.integer(2, 4)), ("xyz", 1)):
        turn = Turn(answer, pairs(draw, 5), text, n)
        before, new = turn.before, encode(text)
        told = f"ids was {before}, the text {text!r} is {new}, and {n} {'token is' if n == 1 else 'tokens are'} the reply"
        expect(turn.after != before, f"{told}; ids is still {before}. The caller's list itself has to grow.")
        right = turn.after[: len(before + new)] == before + new
        expect(right, f"{told}: ids should begin with {before + new}; it is {turn.after}.")
        added = len(turn.after) - len(before + new)
        expect(added == n, f"{told}: ids should grow by {len(new)} + {n}; it grew by {len(new)} + {added}: {turn.after}.")


def replies_what_the_model_says(answer: Answer, draw: Draw) -> None:
    for n in (3, draw.integer(4, 6), 1):
        ids, text = telling(draw)
        turn = Turn(answer, ids, text, n)
        reply = turn.after[-n:]
        fed = turn.stream()[len(turn.before) - turn.rows + len(encode(text)) :][: n - 1]
        told = f"The reply is {reply}, and after the text {fed} went through the model"
        expect(fed == reply[:-1], f"{told}. Each of its tokens goes through once, before the next is chosen.")
        right = likeliest(turn.after[:-n], reply)
        place = next((i for i in range(n) if reply[i] != right[i]), 0)
        told = f"Token {place} of the reply is {reply[place]}; the likeliest after all in front of it is {right[place]}"
        expect(reply == right, f"{told}. It comes from the last row of logits.")


def returns_the_reply_alone(answer: Answer, draw: Draw) -> None:
    for n in (3, draw.integer(1, 5)):
        turn = Turn(answer, pairs(draw, 4), "xy", n)
        reply = decode(turn.after[-n:])
        expect(turn.got == reply, f"The {n} tokens of the reply read {reply!r}; yours returned {turn.got!r}.")


def computes_nothing_for_the_last_token(answer: Answer, draw: Draw) -> None:
    for n in (draw.integer(2, 4), 1):
        turn = Turn(answer, pairs(draw, 5), "xy", n)
        needed, took = (
            1 + len(encode("xy")) + n - 1,
            len(turn.stream()),
        )  # of the last turn; the text; the reply without its last
        told = f"All right, but {took} tokens went through the model, and {needed} are needed for a reply of {n}"
        expect(took <= needed, f"{told}. Nothing follows its last token yet; the next turn will compute it.")
        expect(took == needed, f"{told}: something was not asked for.")


def goes_on_turn_after_turn(answer: Answer, draw: Draw) -> None:
    for texts in (("ab", "acxz", "b"), ("yz", "ab", LETTERS[draw.integer(3, 9)])):
        cache = GrowingCache()
        ids: Ids = []
        for number, text in enumerate(texts, 1):
            turn = Turn(answer, ids, text, n=2, cache=cache, why=f"turn {number} with one cache")
            turn.judge_computed()
            ids = turn.after
            rows = f"After turn {number} the cache holds {cache.length} rows, and ids {len(ids)}"
            expect(cache.length == len(ids) - 1, f"{rows}; it should be all but the last one.")


PROPERTIES: tuple[Property, ...] = (
    returns_a_text_and_uses_the_cache,
    computes_what_has_no_rows_yet,
    believes_the_length_of_the_cache,
    keeps_the_ids_as_they_were,
    adds_the_text_and_the_reply_to_ids,
    replies_what_the_model_says,
    returns_the_reply_alone,
    computes_nothing_for_the_last_token,
    goes_on_turn_after_turn,
)


def pieces() -> list[str]:
    """What each id reads as."""
    return [*LETTERS, *PAIRS][: words()]


def decode(ids: Any) -> str:
    good = is_ids(ids) and all(0 <= id < words() for id in ids)
    expect(good, f"decode takes a list of ids; yours gave it {ids if is_ids(ids) else describe(ids)}.")
    return "".join(pieces()[id] for id in ids)


def encode(text: Any) -> Ids:
    """Pairs of letters where there is an id for the pair, from the left on; else letters."""
    expect(isinstance(text, str), f"encode takes a text, a str; yours gave it {describe(text)}.")
    known = {piece: id for id, piece in enumerate(pieces())}
    ids: Ids = []
    at = 0
    while at < len(text):
        piece = text[at : at + 2] if text[at : at + 2] in known else text[at]
        expect(piece in known, f"encode was given {text!r}, with a letter that nobody has said.")
        ids.append(known[piece])
        at += len(piece)
    return ids


def pairs(draw: Draw, n: int) -> Ids:
    """Ids that read as pairs of letters: these come back when they are encoded again. No two alike in a row."""
    ids: Ids = []
    while len(ids) < n:
        id = draw.integer(len(LETTERS), words() - 1)
        if ids[-1:] != [id]:
            ids.append(id)
    return ids


def telling(draw: Draw) -> tuple[Ids, str]:
    """Ids, and a text after whose end the model says something else than before it: no two rows of logits can be confused."""
    while True:
        ids, new = pairs(draw, 5), pairs(draw, 2)
        following = likeliest(ids[:-1], [*ids[-1:], *new, 0])[1:]
        if following[-1] not in following[:-1]:
            return ids, decode(new)


class Turn:
    """One turn by the answer. rows: how many of the ids before it have K and V; all but one, as a rule."""

    def __init__(
        self, answer: Answer, before: Ids, text: str, n: int, rows: int | None = None, cache: GrowingCache | None = None,
        why: str = "",
    ) -> None:  # fmt: skip
        self.before, self.text, self.n, self.why = list(before), text, n, why
        self.rows = (max(len(before) - 1, 0) if rows is None else rows) if cache is None else cache.length
        self.cache = filled(before[: self.rows]) if cache is None else cache
        self.calls: list[Ids] = []
        self.last: list[Tensor] = []  # the last row of logits of each call
        kept = answer.keep(self.before)
        handed = Opaque(self.cache, attributes=("length",))
        self.got = answer(self.model, handed, kept, text, n, encode, decode)
        after = kept.value()
        expect(is_ids(after), f"ids is {describe(after)} afterwards, and should be a list of ints.")
        self.after: Ids = after

    def model(self, tokens: Any, cache: Any = None) -> Tensor:
        """The answer's model. It runs here, and notes what it is given."""
        expect(cache is not None, "A call left out cache=cache, so what is in the cache was not used, and nothing was kept.")
        expect(cache is self.cache, f"A call was given {describe(cache)} for a cache. Hand on the one that you were given.")
        good = isinstance(tokens, Tensor) and tokens.dtype == torch.int64 and tokens.dim() == 2 and tokens.shape[0] == 1
        empty = " An empty list makes a float tensor: there was nothing to compute?" if is_empty(tokens) else ""
        expect(good, f"The model takes an int64 tensor (1, T); it was given {describe(tokens)}.{empty}")
        ids = tokens[0].tolist()
        expect(ids, "A call gave the model no token at all.")
        expect(0 <= min(ids) <= max(ids) < words(), f"A call gave the model an id that is none of its {words()}.")
        limit = len(self.before) + len(self.text) + self.n + SPARE_CALLS
        expect(len(self.calls) < limit, f"More than {limit} calls for {self.n} ids: the loop does not end where it should.")
        self.calls.append(ids)
        try:
            logits = no_repeats(tokens, self.cache)
        except KVCourseError as error:
            raise Broken(str(error)) from None
        self.last.append(logits[0, -1])
        return logits

    def stream(self) -> Ids:
        """All that went through the model, in its order, however it was cut into calls."""
        return [id for call in self.calls for id in call]

    def judge_computed(self) -> None:
        """Raise Broken unless what has no rows went through the model first: the rest of the past, and the text."""
        missing, new = self.before[self.rows :], encode(self.text)
        took, stream = len(missing + new), self.stream()
        asked = f"{self.n} more {'is' if self.n == 1 else 'are'} asked for"
        told = (
            f"ids is {self.before}, {self.rows} of these have rows{', ' + self.why if self.why else ''}, {new} is new, {asked}"
        )
        expect(stream, f"{told}: the model was never called.")
        if stream[:took] != missing + new:
            raise Broken(f"{told}. {self._diagnosis(missing, new, stream)}{self._off()}")

    def _diagnosis(self, missing: Ids, new: Ids, stream: Ids) -> str:
        first = self.calls[0]
        through = f"So {missing + new} should go through the model first; in yours {stream[: len(missing + new) + 8]} did"
        if self.rows and stream[: len(self.before)] == self.before:
            return f"{through}: all of it was computed again, though the cache holds the first {self.rows}."
        if missing and stream[: len(new)] == new:
            last = "the reply's last token" if len(missing) == 1 else "what the cache lacks"
            return f"{through}: {last} was left out. It was chosen, but never went through the model."
        if self.rows and first == self.before[self.rows - 1 :] + new:
            return f"{through}: {self.before[self.rows - 1]} has its row already, and was computed twice."
        if missing and stream[: len(missing) * 2] == missing * 2:
            return f"{through}: {missing} went in twice."
        if len(missing) > 1 and stream[: 1 + len(new)] == missing[-1:] + new:
            return f"{through}: not only the last token may lack its row. The cache's length says how many have one."
        return f"{through}."

    def _off(self) -> str:
        """How far the logits that the reply begins with are from those of a fresh computation."""
        fresh = no_repeats(torch.tensor([self.before + encode(self.text)]))[0, -1]
        finite = fresh.isfinite() & self.last[0].isfinite()
        off = (self.last[0] - fresh)[finite].abs().max().item()
        return f" The next logits are {off:.2g} off a fresh computation." if off > 1e-9 else ""


def is_empty(tokens: Any) -> bool:
    return isinstance(tokens, Tensor) and tokens.numel() == 0


def filled(ids: Ids) -> GrowingCache:
    """A cache with the rows of these ids."""
    cache = GrowingCache()
    if ids:
        no_repeats(torch.tensor([ids]), cache)
    return cache

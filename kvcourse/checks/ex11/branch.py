"""Lesson 11: what must hold of an answer that branches a conversation at a turn (11.2). Knows nothing about models: K and V are
random numbers here, or numbers that tell which ids they belong to.
"""

from typing import Any

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Kept, Property, describe, expect

Chat = dict[str, Any]
FIELDS = ("ids", "stops", "length", "kv")


def returns_a_conversation(answer: Answer, draw: Draw) -> None:
    for turns in (1, draw.integer(1, 2)):
        branched(answer, three_turns(draw), turns)


def keeps_the_ids_of_these_turns(answer: Answer, draw: Draw) -> None:
    for turns in (1, 2, 3, draw.integer(1, 3)):
        chat = three_turns(draw)
        got, told = branched(answer, chat, turns)
        right = chat["ids"][: chat["stops"][turns - 1]]
        expect(got["ids"] == right, f"{told}: its ids are {right}; yours {got['ids']}.")


def keeps_where_they_end(answer: Answer, draw: Draw) -> None:
    for turns in (2, draw.integer(1, 3)):
        chat = three_turns(draw)
        got, told = branched(answer, chat, turns)
        right = chat["stops"][:turns]
        expect(got["stops"] == right, f"{told}: they end at {right}; yours has the stops {got['stops']}.")


def keeps_every_row_that_is_right(answer: Answer, draw: Draw) -> None:
    for turns, length in ((1, 10), (2, 10), (3, 10), (2, draw.integer(5, 7))):
        chat = three_turns(draw, length)
        got, told = branched(answer, chat, turns)
        right = min(length, chat["stops"][turns - 1])
        why = f"{told}: {right} rows are there of the ids that stay, the chat having {length}"
        later = (
            " The last token of a reply gets its row with the next turn, and that has been."
            if got["length"] == right - 1 and right < length
            else ""
        )
        expect(got["length"] >= right, f"{why}; its length is {got['length']}: some would be computed again.{later}")


def keeps_no_row_too_many(answer: Answer, draw: Draw) -> None:
    for turns in (1, draw.integer(1, 2)):
        chat = three_turns(draw)
        got, told = branched(answer, chat, turns)
        stop, rows = chat["stops"][turns - 1], got["length"]
        why = "The rows behind belong to turns that are gone, and would be read as if they were its own"
        expect(rows <= stop, f"{told}: it has {stop} ids, and so at most {stop} rows; its length is {rows}. {why}.")
    for length in (10, 0, draw.integer(5, 8)):
        chat = three_turns(draw, length)
        got, told = branched(answer, chat, 3)
        had = f"{told}: the chat had {length} rows for its {len(chat['ids'])} ids, so its branch has no more"
        expect(got["length"] <= length, f"{had}; its length is {got['length']}. Slot {length} was never written.")


def takes_the_rows_along(answer: Answer, draw: Draw) -> None:
    for turns in (3, draw.integer(1, 2)):
        chat = three_turns(draw)
        got, told = branched(answer, chat, turns)
        n = got["length"]
        expect(got["kv"].dtype == chat["kv"].dtype, f"{told}: kv was {describe(chat['kv'])}, and is {describe(got['kv'])}.")
        for row in range(n):
            there = got["kv"].shape[3] > row and torch.equal(got["kv"][..., row, :], chat["kv"][..., row, :])
            expect(there, f"{told}: row {row} of its kv is not row {row} of the chat's. Rows stay in their slots.")


def leaves_room_to_go_on(answer: Answer, draw: Draw) -> None:
    for turns in (1, draw.integer(2, 3)):
        chat = three_turns(draw)
        got, told = branched(answer, chat, turns)
        was, now = tuple(chat["kv"].shape), tuple(got["kv"].shape)
        expect(was == now, f"{told}: the chat's kv is {was}, and its branch's {now}. It needs slots for what will follow.")


def branches_before_the_first_turn(answer: Answer, draw: Draw) -> None:
    for length in (10, draw.integer(0, 9)):
        got, told = branched(answer, three_turns(draw, length), 0)
        now = {"ids": got["ids"], "stops": got["stops"], "length": got["length"]}
        expect(now == {"ids": [], "stops": [], "length": 0}, f"{told}: nothing has been said in it; yours is {now}.")


def leaves_the_chat_as_it_was(answer: Answer, draw: Draw) -> None:
    for turns in (1, draw.integer(0, 2)):
        chat = three_turns(draw)
        kept = answer.keep(chat)
        answer(kept, turns)
        after = kept.value()
        for field in FIELDS:
            same = field in after and equal(after[field], chat[field])
            was = "" if field == "kv" else f" It was {chat[field]} and is {shown(after.get(field))}."
            told = f"{turns} of 3 turns branched off, and the chat's own {field!r} has changed.{was}"
            expect(same, f"{told} It will go on, too: make a new dict.")


def goes_its_own_way(answer: Answer, draw: Draw) -> None:
    for turns in (3, draw.integer(0, 2)):
        chat = three_turns(draw)
        kept: dict[str, Kept] = {field: answer.keep(chat[field]) for field in ("ids", "stops", "kv")}
        before, _ = branched(answer, chat, turns, {**kept, "length": chat["length"]})
        returned = answer.returned
        kept["ids"].call("append", 99)
        kept["stops"].call("append", 99)
        kept["kv"].call("zero_")
        after = returned.value()
        for field in ("ids", "stops", "kv"):
            told = f"{turns} of 3 turns branched off; then the chat went on, and the branch's {field!r} changed with it"
            both = "the same tensor, or a view of it: the two overwrite each other's rows" if field == "kv" else "the same list"
            expect(equal(after[field], before[field]), f"{told}. Both are {both}.")


def branches_of_branches(answer: Answer, draw: Draw) -> None:
    new: Chat = {"ids": [], "stops": [], "length": 0, "kv": torch.zeros(1, 2, 1, 60, 1, dtype=torch.float64)}
    once = taken_on(new, draw)
    gone_back = taken_on(once, draw) | {field: once[field] for field in ("ids", "stops")} | {"length": len(once["ids"])}
    chats = [gone_back, new]  # the first as one leaves it that goes back a turn: every id of it has its row
    for step in range(24):
        chat = chats[draw.integer(0, len(chats) - 1) if step else 0]
        turns = draw.integer(0, len(chat["stops"])) if step and draw.integer(0, 1) else len(chat["stops"])
        got, told = branched(answer, chat, turns)
        stop = [0, *chat["stops"]][turns]
        n_rows = stop if chat["length"] > stop else chat["length"]
        expect(got["kv"].shape == chat["kv"].shape, f"{told}: its kv has another shape, {tuple(got['kv'].shape)}.")
        right = {"stops": [end for end in chat["stops"] if end <= stop], "length": n_rows, "ids": chat["ids"][slice(stop)]}
        now = {field: got[field] for field in right}
        whole = f"of a conversation with length {chat['length']} and stops {chat['stops']}, some of it a branch itself"
        expect(
            now == right,
            f"{told}, {whole}: expected stops {right['stops']}, length {right['length']}; {differing(now, right)}.",
        )
        expect(
            equal(rows_of(got["ids"])[: got["length"]], got["kv"][0, 0, 0, : got["length"], 0]),
            f"{told}, {whole}: its rows are others.",
        )
        if stop < 40:
            chats.append(got if draw.integer(0, 3) == 0 else taken_on(got, draw))


PROPERTIES: tuple[Property, ...] = (
    returns_a_conversation,
    keeps_the_ids_of_these_turns,
    keeps_where_they_end,
    keeps_every_row_that_is_right,
    keeps_no_row_too_many,
    takes_the_rows_along,
    leaves_room_to_go_on,
    branches_before_the_first_turn,
    leaves_the_chat_as_it_was,
    goes_its_own_way,
    branches_of_branches,
)


def three_turns(draw: Draw, length: int = 10) -> Chat:
    """A conversation of 11 ids; every slot of kv holds something, also those that are not in use."""
    return {"ids": draw.integers(11, 1, 9), "stops": [4, 8, 11], "length": length, "kv": draw.tensor(2, 2, 1, 16, 2)}


def rows_of(ids: list[int]) -> Tensor:
    """A number for each id that depends on it and on all in front of it, as K and V do."""
    numbers, total = [], 1
    for id in ids:
        total = (total * 31 + id) % 1_000_003
        numbers.append(float(total))
    return torch.tensor(numbers, dtype=torch.float64)


def taken_on(chat: Chat, draw: Draw) -> Chat:
    """The same conversation, a turn later. By the check: all but the last token has its row afterwards."""
    ids = [*chat["ids"], *draw.integers(draw.integer(2, 5), 1, 9)]
    kv, start = chat["kv"].clone(), chat["length"]
    kv[..., start : len(ids) - 1, 0] = rows_of(ids)[start : len(ids) - 1]
    return {"ids": ids, "stops": [*chat["stops"], len(ids)], "length": len(ids) - 1, "kv": kv}


def equal(got: Any, want: Any) -> bool:
    if isinstance(want, Tensor):
        return isinstance(got, Tensor) and got.dtype == want.dtype and torch.equal(got, want)
    return type(got) is type(want) and bool(got == want)


def shown(value: Any) -> str:
    return str(value) if isinstance(value, int | list) else describe(value)


def differing(now: Chat, right: Chat) -> str:
    """What is not as it should be."""
    return ", ".join(f"yours has {field} {now[field]}" for field in now if now[field] != right[field])


def branched(answer: Answer, chat: Chat, turns: int, handed: dict[str, Any] | None = None) -> tuple[Chat, str]:
    """The answer's branch, if it is a conversation, and what was asked."""
    got = answer(chat if handed is None else handed, turns)
    n = len(chat["stops"])
    told = f"A branch with {turns} of {n} turns"
    if n <= 3 and chat["stops"]:
        told += f" (stops {chat['stops']}, length {chat['length']})"
    expect(isinstance(got, dict), f"{told}: expected a dict with ids, stops, length and kv; got {describe(got)}.")
    missing = [field for field in FIELDS if field not in got]
    expect(
        not missing, f"{told}: expected a dict with ids, stops, length and kv; yours has no {missing[0] if missing else ''}."
    )
    for field in ("ids", "stops"):
        good = isinstance(got[field], list) and all(type(number) is int for number in got[field])
        expect(good, f"{told}: its {field!r} should be a list of ints; it is {describe(got[field])}.")
    expect(type(got["length"]) is int, f"{told}: its 'length' should be an int; it is {describe(got['length'])}.")
    expect(isinstance(got["kv"], Tensor), f"{told}: its 'kv' should be a tensor; it is {describe(got['kv'])}.")
    expect(
        got["kv"].dim() == chat["kv"].dim(),
        f"{told}: its kv has the shape {tuple(got['kv'].shape)}, the chat's {tuple(chat['kv'].shape)}.",
    )
    return got, told

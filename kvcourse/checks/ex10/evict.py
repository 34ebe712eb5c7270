"""Lesson 10: what must hold of an answer that makes room (10.4). Knows nothing about what an entry holds: numbers only.

Entries come as real requests leave them: one that uses an entry uses all in front of it, so nothing in front is ever older, and
of the leaves that may go no two were used last by the same request.
"""

from typing import NamedTuple

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

Entry = dict[str, int | None]
Entries = dict[int, Entry]


class Gone(NamedTuple):
    """What the answer did."""

    ids: list[int]
    after: Entries
    told: str  # what it was asked


def returns_a_list_of_entries(answer: Answer, draw: Draw) -> None:
    for n in (4, draw.integer(1, 4)):
        evicted(answer, two_texts(), n)


def takes_the_one_not_used_for_longest(answer: Answer, draw: Draw) -> None:
    old = draw.integer(0, 2)
    for used in ((3, 1, 2), (7, 9, 8), tuple(1 if place == old else 5 + place for place in range(3))):
        entries = {number: one(None, used[number - 1]) for number in (1, 2, 3)}
        right = used.index(min(used)) + 1
        gone = evicted(answer, entries, 4)
        told = f"{gone.told}: entry {right} has gone unused for longest, since request {min(used)}, and its 4 tokens are enough"
        expect(gone.ids == [right], f"{told}; yours took {gone.ids}.")


def takes_them_out(answer: Answer, draw: Draw) -> None:
    for n in (4, draw.integer(1, 4)):
        entries = two_texts()
        gone = evicted(answer, entries, n)
        left = [number for number in entries if number not in gone.ids]
        same = f"{gone.told}: yours returned {gone.ids}, so entries should hold {left} afterwards"
        expect(sorted(gone.after) == left, f"{same}; it holds {sorted(gone.after)}. The caller's dict itself has to change.")
        changed = [number for number in left if gone.after[number] != entries[number]]
        what = f"it was {entries[changed[0]]} and is {gone.after[changed[0]]}" if changed else ""
        expect(not changed, f"{gone.told}: entry {changed[0] if changed else ''} stays; {what}.")


def takes_no_entry_from_under_another(answer: Answer, draw: Draw) -> None:
    shift = draw.integer(0, 3)
    for entries, n in (
        ({1: one(None, 3), 2: one(1, 3), 3: one(None, 5)}, 4),
        ({1: one(None, 2 + shift), 2: one(1, 2 + shift), 3: one(2, 2 + shift), 4: one(None, 9)}, 4),
        ({1: one(None, 5), 2: one(1, 4), 3: one(1, 5), 4: one(None, 6)}, 8),
    ):
        gone = evicted(answer, entries, n)
        left = dict(entries)
        for number in gone.ids:
            behind = [other for other, entry in left.items() if entry["parent"] == number]
            why = (
                f"entry {number} went while {behind} stood behind it: their K and V are worth nothing without what is in front"
            )
            expect(not behind, f"{gone.told}: yours took {gone.ids}, and {why}.")
            left.pop(number)


def goes_on_until_it_is_enough(answer: Answer, draw: Draw) -> None:
    sizes = draw.integers(5, 1, 6)
    for tokens, n in (
        ([4, 4, 4, 4, 4], 8),
        ([2, 5, 1, 9, 3], 4),
        ([2, 5, 1, 9, 3], 7),
        ([2, 5, 1, 9, 3], 8),
        (sizes, sum(sizes[:3])),
    ):
        entries = {number: one(None, 10 + number, tokens=size) for number, size in enumerate(tokens, 1)}
        gone = evicted(answer, entries, n)
        freed = [tokens[number - 1] for number in gone.ids]
        told = f"{gone.told}: yours took {gone.ids}, which hold {freed} tokens"
        expect(sum(freed) >= n, f"{told}, together {sum(freed)}: fewer than {n}.")
        expect(sum(freed[:-1]) < n, f"{told}. {n} were free before the last one went: stop as soon as it is enough.")


def frees_nothing_for_nothing(answer: Answer, draw: Draw) -> None:
    gone = evicted(answer, two_texts(), 0)
    expect(gone.ids == [], f"{gone.told}: no room is needed, so nothing goes; yours took {gone.ids}.")
    n = draw.integer(1, 9)
    gone = evicted(answer, {}, n)
    expect(gone.ids == [], f"{gone.told}: an empty cache; yours took {gone.ids}.")


def goes_on_with_what_has_become_a_leaf(answer: Answer, draw: Draw) -> None:
    late = draw.integer(8, 9)
    for entries, n, right in (
        ({1: one(None, 3), 2: one(1, 3), 3: one(2, 3), 4: one(None, late)}, 8, [3, 2]),
        ({1: one(None, 4), 2: one(1, 2), 3: one(None, late)}, 8, [2, 1]),
        ({1: one(None, 3), 2: one(1, 3), 3: one(None, late)}, 12, [2, 1, 3]),
    ):
        gone = evicted(answer, entries, n)
        why = f"with entry {right[0]} gone, nothing stands behind entry {right[1]}, which is older than the other leaf"
        expect(gone.ids == right, f"{gone.told}: {why}. Expected {right}; got {gone.ids}.")


def leaves_what_is_pinned(answer: Answer, draw: Draw) -> None:
    pins = draw.integer(2, 4)
    for entries, n, right in (
        ({1: one(None, 1, pins=1), 2: one(None, 5), 3: one(None, 3)}, 4, [3]),
        ({1: one(None, 2, pins=pins), 2: one(1, 2, pins=pins), 3: one(1, 1), 4: one(None, 5)}, 8, [3, 4]),
        ({1: one(None, 2, pins=1), 2: one(1, 1), 3: one(None, 5)}, 8, [2, 3]),
    ):
        gone = evicted(answer, entries, n)
        wrong = [number for number in gone.ids if entries[number]["pins"]]
        expect(not wrong, f"{gone.told}: yours took {gone.ids}, and somebody is using {wrong}. What is pinned stays.")
        why = "what is pinned stays, and everything else has its turn, whoever stands in front of it"
        expect(gone.ids == right, f"{gone.told}: {why}. Expected {right}; got {gone.ids}.")


def frees_what_it_can(answer: Answer, draw: Draw) -> None:
    n = draw.integer(20, 30)
    for entries, right in (
        ({1: one(None, 2, pins=1), 2: one(None, 3), 3: one(None, 1)}, [3, 2]),
        ({1: one(None, 2), 2: one(1, 2)}, [2, 1]),
        ({1: one(None, 2, pins=1), 2: one(1, 2, pins=1)}, []),
    ):
        gone = evicted(answer, entries, n)
        why = "that many cannot be freed. Whatever may go goes, and the rest stays"
        expect(gone.ids == right, f"{gone.told}: {why}. Expected {right}; got {gone.ids}.")


def serves_many_requests(answer: Answer, draw: Draw) -> None:
    entries: Entries = {}
    for request in range(1, 41):
        grow(entries, request, draw)
        if request % 4 == 0:
            pinned = {number: dict(entry) for number, entry in entries.items()}
            for number in path(entries, draw.integer(0, 99)):
                pinned[number]["pins"] = 1
            n = draw.integer(1, 12)
            gone = evicted(answer, pinned, n)
            judge_each(gone, pinned, n, request)
            for number in gone.ids:
                entries.pop(number)


PROPERTIES: tuple[Property, ...] = (
    returns_a_list_of_entries,
    takes_the_one_not_used_for_longest,
    takes_them_out,
    takes_no_entry_from_under_another,
    goes_on_until_it_is_enough,
    frees_nothing_for_nothing,
    goes_on_with_what_has_become_a_leaf,
    leaves_what_is_pinned,
    frees_what_it_can,
    serves_many_requests,
)


def one(parent: int | None, used: int, tokens: int = 4, pins: int = 0) -> Entry:
    return {"parent": parent, "tokens": tokens, "used": used, "pins": pins}


def two_texts() -> Entries:
    """Two texts that begin alike, and a third one."""
    return {1: one(None, 5), 2: one(1, 5), 3: one(1, 2), 4: one(None, 4)}


def path(entries: Entries, choice: int) -> list[int]:
    """From the front to one of the entries."""
    number: int | None = list(entries)[choice % len(entries)]
    found = []
    while number is not None:
        found.append(number)
        number = entries[number]["parent"]
    return found[::-1]


def grow(entries: Entries, request: int, draw: Draw) -> None:
    """A request that uses what leads to some entry, and stores up to three new ones behind it."""
    used = path(entries, draw.integer(0, 99)) if entries and draw.integer(0, 3) else []
    for _ in range(draw.integer(0 if used else 1, 3)):
        number = 100 * request + draw.integer(0, 9) * 10 + len(used) % 10
        entries[number] = one(used[-1] if used else None, request, tokens=draw.integer(1, 5))
        used.append(number)
    for number in used:
        entries[number]["used"] = request


def judge_each(gone: Gone, entries: Entries, n: int, request: int) -> None:
    """Go through what the answer took, and ask at each whether it was the one to go."""
    told = f"After {request} requests, {len(entries)} entries are held, and {n} tokens wanted"
    left, wanted = dict(entries), n
    for turn, number in enumerate(gone.ids, 1):
        at = f"{told}; yours took {gone.ids}. Number {turn}, entry {number}"
        expect(wanted > 0, f"{at}, was not needed: there was room enough.")
        behind = [other for other, entry in left.items() if entry["parent"] == number]
        expect(not behind, f"{at}, had {behind} behind it.")
        expect(not entries[number]["pins"], f"{at}, is pinned.")
        older = [other for other in free_to_go(left) if since(left, other) < since(left, number)]
        first = f"{older[0]}, which might go too, only in request {since(left, older[0])}" if older else ""
        expect(not older, f"{at}, was used in request {since(left, number)}, and {first}.")
        wanted -= left.pop(number)["tokens"] or 0
    more = free_to_go(left)
    expect(wanted <= 0 or not more, f"{told}; yours took {gone.ids} and stopped, {wanted} tokens short. {more} might go, too.")


def free_to_go(entries: Entries) -> list[int]:
    """Neither in use nor in front of anything."""
    fronts = [entry["parent"] for entry in entries.values()]
    return [number for number, entry in entries.items() if not (entry["pins"] or number in fronts)]


def since(entries: Entries, number: int) -> int:
    """The last request that used it."""
    return entries[number]["used"] or 0


def shown(entries: Entries) -> str:
    """Entries for a message: "1 (used 5), 2 behind 1 (used 5, pinned)"."""
    parts = []
    for number, entry in entries.items():
        behind = "" if entry["parent"] is None else f" behind {entry['parent']}"
        tokens = "" if entry["tokens"] == 4 else f", {entry['tokens']} token{'' if entry['tokens'] == 1 else 's'}"
        parts.append(f"{number}{behind} (used {entry['used']}{tokens}{', pinned' if entry['pins'] else ''})")
    return ", ".join(parts) if len(parts) < 7 else f"{len(parts)} of them"


def evicted(answer: Answer, entries: Entries, n: int) -> Gone:
    """Let the answer free n tokens, and look at what it left."""
    kept = answer.keep(entries)
    got = answer(kept, n)
    told = f"Entries {shown(entries) or '{}'}; {n} tokens wanted"
    is_list = isinstance(got, list) and all(type(number) is int for number in got)
    expect(is_list, f"{told}: expected a list of the entries that went; got {describe(got)}.")
    assert isinstance(got, list)
    strange = [number for number in got if number not in entries]
    expect(not strange, f"{told}: yours returned {got}, and there is no entry {strange[0] if strange else ''}.")
    expect(len(set(got)) == len(got), f"{told}: yours returned {got}, one of them twice.")
    after = kept.value()
    good = isinstance(after, dict) and all(isinstance(entry, dict) for entry in after.values())
    expect(good, f"{told}: entries is {describe(after)} afterwards, and should be a dict of entries.")
    return Gone(got, after, told)

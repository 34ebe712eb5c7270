"""Lessons 10 and 13: clocks, ids and turn markers, recognised in text. Knows nothing about requests, tokens or what differs.

Each function looks at one place in a text and says what stands there. Where a person could have written the same (a date in
prose, a number in a question), it takes more than the shape: a label in front, a system part around, or a place of its own.
"""

import re
from typing import NamedTuple

_LONGEST = 150  # characters in front of a place at which something that reaches it may begin
_LONGEST_CLOCK = 72


class Stamp(NamedTuple):
    """Something recognised: where it is in the text, and what it is, in words."""

    start: int
    stop: int
    what: str


_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?|janvier|février|mars|avril|juin|juillet|août|septembre|octobre|novembre|décembre"
    r"|januar|februar|märz|juni|juli|oktober|dezember|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre"
    r"|noviembre|diciembre)\b\.?"
)
_WEEKDAY = (
    r"\b(?:mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:r(?:s(?:day)?)?)?|fri(?:day)?|sat(?:urday)?|sun(?:day)?"
    r"|montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche"
    r"|lunes|martes|miércoles|jueves|viernes|sábado|domingo)\b"
)
_HOURS = r"(?:(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?(?![\d:])(?:\s?[ap]\.?m\b\.?)?|(?:[01]?\d|2[0-3])h[0-5]\d\b)"
_CLOCK = rf"(?<![\d:.]){_HOURS}"
_SECONDS = r"(?<![\d:.])(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d+)?(?![\d:])"
_ISO = r"(?<![\d.-])(?:19|20)\d\d-[01]\d-[0-3]\d(?!\d)"
_DAY = r"(?<!\d)[0-3]?\d(?:st|nd|rd|th)?"
_YEAR = r"(?:,?\s+(?:19|20)\d\d)?"
_OPENS = r"(?<![A-Za-z])(?=[\dadefjlmnostvw])"  # what a date in words may begin with: tried at few places, then
_WORDY = rf"{_OPENS}(?:{_WEEKDAY},?\s+)?(?:{_DAY}\.?\s+(?:of\s+|de\s+)?{_MONTH}{_YEAR}|\b{_MONTH}\s+{_DAY}\b{_YEAR})"
_NUMERIC = r"(?<![\d./-])[0-3]?\d([./-])[0-3]?\d\1(?:19|20)\d\d(?!\d)|(?<![\d./-])(?:19|20)\d\d/[01]?\d/[0-3]?\d(?!\d)"
_SHORT = r"(?<![\d./-])[0-3]?\d/[0-3]?\d/\d\d(?![\d/])|(?<![\d./-])[0-3]\d\.[01]\d\.\d\d(?![\d.])"
_CHINESE = r"(?<!\d)(?:19|20)\d\d\s?年\s?[01]?\d\s?月(?:\s?[0-3]?\d\s?日)?"
_ZONE = r"(?:\s?(?:Z\b|UTC\b|GMT\b|[A-Z]{3,4}T\b|[+-]\d\d:?\d\d\b))?"
_BETWEEN = r"(?:[T_]|,?\s+(?:at\s+|um\s+|il\s+est\s+)?|\s?[|/–-]\s?)"
_HOUR = r"\b(?:1[0-2]|0?[1-9])\s?[ap]\.?m\b\.?"

# Nobody types these into a question: a moment, to the minute at least, with its date.
_MOMENTS = [
    (re.compile(rf"(?=\d)(?:{_ISO}|{_NUMERIC}|{_SHORT}|{_CHINESE}){_BETWEEN}{_HOURS}{_ZONE}", re.I), "a date and time"),
    (re.compile(rf"{_WORDY}{_BETWEEN}{_HOURS}{_ZONE}", re.I), "a date and time"),
    (re.compile(rf"{_OPENS}{_WEEKDAY},?\s+{_MONTH}\s+\d\d?\s+\d\d:\d\d:\d\d(?:\s\w+)?\s+\d{{4}}", re.I), "a date and time"),
    (re.compile(r"(?<!\d)(?:19|20)\d\d[01]\d[0-3]\dT\d{4}(?:\d\d)?(?:\.\d+)?Z?"), "a date and time"),
    (re.compile(rf"(?<![\d/])[0-3]\d/{_MONTH}/(?:19|20)\d\d:[0-2]\d:[0-5]\d:[0-5]\d{_ZONE}", re.I), "a date and time"),
]
_TIMES = [(re.compile(_SECONDS + _ZONE, re.I), "a time of day, to the second")]
# A person might: these need a reason to be taken for a clock.
_DATES = [
    (re.compile(rf"(?=\d){_CLOCK}{_ZONE},?\s+(?:on\s+)?(?:{_WORDY}|{_WEEKDAY}|{_ISO}|{_NUMERIC})", re.I), "a date and time"),
    (re.compile(rf"{_OPENS}{_WEEKDAY},?\s+(?:at\s+)?{_CLOCK}{_ZONE}", re.I), "a day and time"),
    (re.compile(rf"(?=\d)(?:{_ISO}|{_NUMERIC}|{_SHORT}|{_CHINESE})|{_WORDY}", re.I), "a date"),
    (re.compile(rf"(?=\d){_CLOCK}{_ZONE}", re.I), "a time of day"),
    (re.compile(r"(?<![\w.-])20\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])[0-2]\d[0-5]\d[0-5]\d(?![\w-])"), "a date and time"),
]
_LOOSE = [(re.compile(rf"{_OPENS}(?:{_WEEKDAY}|{_MONTH}\s+(?:19|20)\d\d\b)", re.I), "a day or month")]
_BARE = [  # without a label, no clock
    (re.compile(rf"{_OPENS}(?:{_WEEKDAY},?\s(?:at\s+)?{_HOUR}|{_HOUR}(?:,?\s+(?:on\s+)?{_WEEKDAY})?)", re.I), "a day and time"),
    (re.compile(r"(?<![\w.-])\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?![\w-])|(?<![\w.-])20\d{6}(?![\w-])"), "a date"),
    (re.compile(r"\b(?:calendar\s+)?week\s+\d\d?(?:\s+of\s+20\d\d|,?\s+20\d\d)?\b", re.I), "a week"),
]
_EPOCH = re.compile(r"(?<![\w.-])1[4-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?(?![\w-])")
_EPOCH_NEAR_S = 400 * 86_400

_LABEL = re.compile(
    r"""(?ix)
    (?: \b(?:today(?:'s|\ is)?|now|currently|current|timestamp|datetime|clock|as\ of|updated|generated)\b
      | \b(?:it\ is|it's|epoch|unix|ts)\b
      | (?: ^ | [\n.;,|{(\[<>"'“‘]\s* | \b(?:current|today's|local|system|server|the|session|request)\s ) (?:date|time)\b )
    (?: \s* \b(?:and|date|time|is|now|it|utc|gmt|local|at|on|in|ms|seconds|user's)\b )*
    [\s:=>(\["'`*)–—-]* $
    | (?:今天|今日|现在|当前|时间|日期)[是为：:\s]*$
    """
)
_ELAPSED = re.compile(
    r"(?i)\b(?:length|duration|lasted|took|takes|record|elapsed|race|runtime|finish(?:ed)?)\b[^\n.]{0,20}$|(?i:\bin\s)$"
)
_HEADER = re.compile(
    r"<\|im_start\|>(\w+)|<\|start_header_id\|>(\w+)<\|end_header_id\|>|<start_of_turn>(\w+)|<\|(system|user|assistant|tool)\|>"
    r"|(?:^|\n\n)(Human|User|Assistant|System)(?=:)"
)
_MARKER = re.compile(
    rf"{_HEADER.pattern}|<\|[\w.-]+\|>|</?s>|<(?:bos|eos|pad)>|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>"
    r"|(?:^|\n)###\s?(?:Instruction|Response|Input):"
)

# What stands between two turns, with the role that an opening one names. Words alone ("User:") are none: documents have them.
_TURN = re.compile(
    r"<\|im_start\|>[^\n]*\n?|<start_of_turn>[^\n]*\n?|<end_of_turn>|<[|\uff5c][^\s<>|\uff5c]{1,40}[|\uff5c]>"
    r"|<(?:bos|eos)>|</?s>|<</?SYS>>|\[/?INST\]"
)

_UUID = re.compile(r"(?<![\w-])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![\w-])", re.I)
_RUN = re.compile(r"[A-Za-z0-9_-]+={0,2}")
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_HEX = re.compile(r"(?:0x)?(?:[0-9a-f]{8,}|[0-9A-F]{8,})")
_PREFIXED = re.compile(
    r"((?:req|request|msg|chatcmpl|cmpl|call|toolu|run|sess|session|conv|conversation|thread|trace|span|resp|job|txn?|asst|nonce"
    r"|id|uid|cid|rid|sid|corr)[-_])([A-Za-z0-9_-]{5,})"
)
_ID_LABEL = re.compile(
    r"(?i)(?:\b(?:request|req|session|trace|span|correlation|conversation|thread|run|message|msg|job|transaction|tx)[\s_-]*"
    r"(?:id|no|nr|number)|\bnonce|\buuid|\bguid)\b[\"']?\s*(?:is\b|[:=#])[\s\"'#<]*$"
)
# In a system part, where nobody asks about an order or a session: what calls itself one, and goes by a number.
_RECORD = re.compile(
    r"(?i)\b(?:request|req|session|sess|user|customer|client|tenant|account|member|chat|conversation|thread|ticket|case|order|job"
    r"|run|build|commit|trace|device|employee|patient)(?P<id>[\s_-]*(?:id|no\.?|nr\.?|number))?[\"']?\s*(?P<sep>is\b|[:=#])?[\s\"'#<]*$"
)


def role_at(text: str, place: int) -> str | None:
    """Whose turn a place is in: "system", "user" …; None where no turn marker stands in front."""
    headers = list(_HEADER.finditer(text, 0, place))
    return next(group for group in headers[-1].groups() if group).lower() if headers else None


def turn_around(text: str, place: int) -> slice:
    """The turn that a place is in: from behind its marker up to the next one. Without markers it is the whole text."""
    begin = 0
    for found in _TURN.finditer(text):
        if found.end() > place:
            return slice(begin, found.start())
        begin = found.end()
    return slice(begin, len(text))


def marker_at(text: str, place: int) -> Stamp | None:
    """The turn marker or control token at a place; `what` is its role, or the marker itself where it names none."""
    found = _covering(_MARKER, text, place)
    if found is None or found.end() == place:
        return None
    role = next((group for group in found.groups() if group), None)
    return Stamp(found.start(), found.end(), role.lower() if role else found.group())


def without_markers(text: str) -> str:
    """`text` after the control tokens, and the reasoning block, that it begins with."""
    kept = text
    while found := (_MARKER.match(kept) or re.match(r"<think>[\s\S]*?</think>\s*", kept)):
        kept = kept[found.end() :]
    return kept


def clock_at(text: str, place: int) -> Stamp | None:
    """The date or time that a place is inside of, where it is one that a machine wrote, as far as can be told."""
    found = _first(_MOMENTS, text, place)
    if found is not None:
        return found
    found = _first(_TIMES, text, place)
    if found is not None:
        return None if _ELAPSED.search(text[: found.start]) else found
    found = _first(_DATES, text, place)
    if found is not None and (_is_labelled(text, found.start) or _is_set_apart(text, found)):
        return found
    found = _first(_BARE, text, place)
    if found is not None and _is_labelled(text, found.start):
        return found
    found = _first(_LOOSE, text, place)
    return found if found is not None and (_is_labelled(text, found.start) or _is_a_line(text, found)) else None


def epochs_at(ours: str, theirs: str, place: int) -> tuple[Stamp, Stamp] | None:
    """Seconds (milli-, micro-, nano-) since 1970 in both texts: with a label in front, or close to each other."""
    pair = [_covering(_EPOCH, text, place) for text in (ours, theirs)]
    if pair[0] is None or pair[1] is None:
        return None
    one, other = pair[0], pair[1]
    near = abs(_seconds(one.group()) - _seconds(other.group())) < _EPOCH_NEAR_S
    if not near and not _is_labelled(ours, one.start()):
        return None
    what = "seconds since 1970"
    return Stamp(one.start(), one.end(), what), Stamp(other.start(), other.end(), what)


def ids_at(ours: str, theirs: str, place: int) -> tuple[Stamp, Stamp] | None:
    """A machine's ids in both texts, of one kind: nobody types these, and they are different each time."""
    pair = [_covering(_UUID, text, place) for text in (ours, theirs)]
    if pair[0] is not None and pair[1] is not None:
        return _stamps(pair[0], pair[1], "a UUID")
    pair = [_covering(_RUN, text, place) for text in (ours, theirs)]
    if pair[0] is None or pair[1] is None:
        return None
    what = _id_kind(pair[0].group(), pair[1].group(), ours[: pair[0].start()])
    return _stamps(pair[0], pair[1], what) if what else None


def _id_kind(one: str, other: str, before: str) -> str | None:
    both = (one, other)
    prefixed = [_PREFIXED.fullmatch(text) for text in both]
    if prefixed[0] and prefixed[1] and prefixed[0][1] == prefixed[1][1] and all(m and _is_random(m[2]) for m in prefixed):
        return f"an id that begins {prefixed[0][1]!r}"
    if len(one) == len(other):
        if all(_ULID.fullmatch(text) for text in both):
            return "a ULID"
        if (
            any(_changes(text) >= 2 for text in both)
            and all(_HEX.fullmatch(text) for text in both)
            and not before.endswith("#")
        ):
            return f"{len(one)} hexadecimal digits"
        if len(one) >= 17 and all(text.isdigit() for text in both):
            return f"a number of {len(one)} digits"
    if abs(len(one) - len(other)) <= 2 and min(map(len, both)) >= 16 and all(_is_jumbled(text) for text in both):
        return "a string of random characters"
    if _ID_LABEL.search(before) and all(len(text) >= 4 and re.search("[0-9]", text) for text in both):
        return "what its label calls an id"
    named = _RECORD.search(before)
    if named and role_at(before, len(before)) in ("system", "developer"):
        least = 3 if named["id"] or named["sep"] else 5
        if all(len(text) >= least and (re.search("[0-9]", text) or named["id"]) for text in both):
            return "what its label calls one of many"
    return None


def _is_random(text: str) -> bool:
    """Digits only, six at least; or letters and digits that change often for so short a text."""
    return (text.isdigit() and len(text) >= 6) or _changes(text) >= 2


def _is_jumbled(text: str) -> bool:
    kinds = sum(bool(re.search(kind, text)) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return _changes(text) >= (3 if kinds == 3 else 6)


def _changes(text: str) -> int:
    """How often a letter follows a digit, or a digit a letter."""
    return len(re.findall(r"(?<=[0-9])(?=[A-Za-z])|(?<=[A-Za-z])(?=[0-9])", text))


def _is_labelled(text: str, start: int) -> bool:
    """A word such as "now:" or "today is" stands right in front."""
    return bool(_LABEL.search(text[max(0, start - 60) : start].replace("_", " ")))


def _is_set_apart(text: str, found: Stamp) -> bool:
    """In the system part; or, where nobody is known to be speaking, in brackets at the start or on a line of its own."""
    role = role_at(text, found.start)
    if role is not None:
        return role in ("system", "developer")
    before, after = text[: found.start].rstrip(" "), text[found.stop :].lstrip(" ")
    if before.endswith(("[", "(")) and after.startswith(("]", ")")):
        return bool(re.search(r"(?:^|\n)\W*$", before))
    return (not before or before.endswith("\n")) and after.startswith("\n")


def _is_a_line(text: str, found: Stamp) -> bool:
    """All of a line of a system part."""
    before, after = text[: found.start].rstrip(" "), text[found.stop :].lstrip(" .")
    return before.endswith("\n") and after.startswith("\n") and role_at(text, found.start) in ("system", "developer")


def _seconds(digits: str) -> float:
    whole = digits.partition(".")[0]
    return float(whole[:10])


def _first(kinds: list[tuple[re.Pattern[str], str]], text: str, place: int) -> Stamp | None:
    for pattern, what in kinds:
        found = _covering(pattern, text, place, _LONGEST_CLOCK)
        if found is not None:
            return Stamp(found.start(), found.end(), what)
    return None


def _covering(pattern: re.Pattern[str], text: str, place: int, longest: int = _LONGEST) -> re.Match[str] | None:
    """The match that a place is inside of, or else the one that it is right behind."""
    behind = None
    stop = len(text) if longest == _LONGEST else place + 2 * longest  # further on, nothing begins that reaches back
    for found in pattern.finditer(text, max(0, place - longest), stop):
        if found.start() > place:
            break
        if place < found.end():
            return found
        behind = found if place == found.end() else None
    return behind


def _stamps(one: re.Match[str], other: re.Match[str], what: str) -> tuple[Stamp, Stamp]:
    return Stamp(one.start(), one.end(), what), Stamp(other.start(), other.end(), what)

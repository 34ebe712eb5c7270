"""Kinds of difference: what is named, and, as many times, what must not be."""

import pytest

from kvcourse.causes import ADVICE, Cause, common_length, kind_of_difference, kind_of_tools

SYSTEM, USER, ANSWER = "<|im_start|>system\n", "<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
DOCS = ["The cat sat on the mat all day.", "Prices rose by two percent in May.", "Whales are mammals, not fish."]


def judged(ours: str, theirs: str) -> Cause:
    shared = common_length(ours, theirs)
    return kind_of_difference(ours[:shared], ours[shared:], theirs[shared:])


def numbered(docs: list[str]) -> str:
    return "Use:\n" + "\n".join(f"[{n}] {doc}" for n, doc in enumerate(docs, start=1)) + "\nQ: why?"


def tagged(docs: list[str]) -> str:
    return "".join(f'<document index="{n}">\n{doc}\n</document>\n' for n, doc in enumerate(docs))


NAMED = [
    # clocks
    ("clock", "Current time: 2024-05-01T10:23:45Z. You are", "Current time: 2024-05-01T10:24:01Z. You are"),
    ("clock", "at 2024-05-01T10:23:45.123+02:00 it", "at 2024-05-02T09:00:00.001+02:00 it"),
    ("clock", "Now: 10:23", "Now: 10:24"),
    ("clock", "The time is 9:05 am.", "The time is 10:05 am."),
    ("clock", "Date: Mon, 03 Mar 2025 10:00:00 +0000\nHi", "Date: Tue, 04 Mar 2025 10:00:00 +0000\nHi"),
    ("clock", "Today is Monday, 3 March.", "Today is Tuesday, 4 March."),
    ("clock", "Today is March 3, 2025.", "Today is March 14, 2025."),
    ("clock", "Today is Monday. hi", "Today is Friday. hi"),
    ("clock", "ts=1712345678 go", "ts=1912349999 go"),
    ("clock", "[1712345678] go", "[1712349999] go"),
    ("clock", "[1712345678123] go", "[1712345978123] go"),
    ("clock", "log 2024-05-01 10:23 x", "log 2024-05-01 10:25 x"),
    ("clock", f"{SYSTEM}You are kind. 2024-05-01.{USER}", f"{SYSTEM}You are kind. 2024-05-02.{USER}"),
    ("clock", "[2024-05-01] You are", "[2024-05-02] You are"),
    ("clock", "You are kind.\n10:23\nBe brief.", "You are kind.\n10:24\nBe brief."),
    ("clock", "今天是2024年5月1日。", "今天是2024年5月2日。"),
    ("clock", "<current_date>2024-05-01</current_date>", "<current_date>2024-06-11</current_date>"),
    ("clock", "The current date and time is May 3, 2024, 9:05 am", "The current date and time is May 3, 2024, 10:05 am"),
    ("clock", "10:23:45 started", "10:23:49 started"),
    ("clock", '{"timestamp": "2024-05-01", "a": 1}', '{"timestamp": "2024-05-02", "a": 1}'),
    ("clock", "It is now 09:15 AM on Monday.", "It is now 10:32 AM on Tuesday."),
    ("clock", "Today is Monday, 9am.", "Today is Tuesday, 10am."),
    ("clock", "Now: 9 am go", "Now: 10 am go"),
    ("clock", f"{SYSTEM}03/02/26 09:15\nBe kind", f"{SYSTEM}03/03/26 10:31\nBe kind"),
    ("clock", f"{SYSTEM}20260302091507\nBe kind", f"{SYSTEM}20260302103207\nBe kind"),
    ("clock", "[02/Mar/2026:09:15:07 +0000] GET", "[02/Mar/2026:10:32:11 +0000] GET"),
    ("clock", f"{SYSTEM}Monday\nBe kind", f"{SYSTEM}Friday\nBe kind"),
    ("clock", f"{SYSTEM}Be kind.\nMonday.\nBe brief", f"{SYSTEM}Be kind.\nFriday.\nBe brief"),
    ("clock", "Date: 260302\nBe kind", "Date: 260303\nBe kind"),
    ("clock", "Today: week 9 of 2026, go", "Today: week 10 of 2026, go"),
    ("clock", f"{SYSTEM}le 2 mars 2026, il est 09h15.", f"{SYSTEM}le 3 mars 2026, il est 10h32."),
    ("clock", f"{SYSTEM}Heute ist Montag, 2. März 2026.", f"{SYSTEM}Heute ist Dienstag, 3. März 2026."),
    # ids
    ("id", f"{SYSTEM}Session: 48213\nBe kind", f"{SYSTEM}Session: 99120\nBe kind"),
    ("id", f"{SYSTEM}Be kind to user_id: 482, and", f"{SYSTEM}Be kind to user_id: 991, and"),
    ("id", f"{SYSTEM}tenant-id: t48213\nBe kind", f"{SYSTEM}tenant-id: t99120\nBe kind"),
    ("id", f"{SYSTEM}Ticket #48213\nBe kind", f"{SYSTEM}Ticket #99120\nBe kind"),
    ("id", f"{SYSTEM}Customer 48213. Be kind", f"{SYSTEM}Customer 99120. Be kind"),
    ("id", f"{SYSTEM}commit 3f2a91c\nBe kind", f"{SYSTEM}commit 9b1e0aa\nBe kind"),
    ("id", f"{SYSTEM}Request ID: abcdef\nBe kind", f"{SYSTEM}Request ID: qwerty\nBe kind"),
    ("id", "Request 550e8400-e29b-41d4-a716-446655440000: hi", "Request 6ba7b810-9dad-11d1-80b4-00c04fd430c8: hi"),
    ("id", "id 01ARZ3NDEKTSV4RRFFQ69G5FAV ok", "id 01BX5ZZKBKACTAV9WEVGEMMVRZ ok"),
    ("id", "commit 9fceb02d0ae598e9 x", "commit 1a410efbd13591db x"),
    ("id", "[req_8f3k2a9] hi", "[req_1b7c4d2] hi"),
    ("id", "session id: 48213 hi", "session id: 58271 hi"),
    ("id", '{"request_id": "48213"}', '{"request_id": "58271"}'),
    ("id", "nonce=83741 hi", "nonce=10293 hi"),
    ("id", "chatcmpl-9XyZ12abC3 x", "chatcmpl-8QwE34rtY5 x"),
    ("id", "tok dGhpcyBpcyBhIHRl3Q9x x", "tok aXMgYW5vdGhlciBv5bW7 x"),
    ("id", "trace 123456789012345678 x", "trace 876543210987654321 x"),
    # whitespace
    ("whitespace", "hello  world, how are you today?", "hello world, how are you today?"),
    ("whitespace", "line one\r\nline two is here and long", "line one\nline two is here and long"),
    ("whitespace", "You are a bot.\n\nBe kind to all the people.", "You are a bot.\nBe kind to all the people."),
    ("whitespace", '{"a": 1, "b": 2, "c": [1, 2, 3], "d": 4, "e": 5}', '{"a":1,"b":2,"c":[1,2,3],"d":4,"e":5}'),
    ("whitespace", "hi\u00a0there my good old friend of mine", "hi there my good old friend of mine"),
    ("whitespace", "hi\u200b there my good old friend of mine", "hi there my good old friend of mine"),
    ("whitespace", f"{SYSTEM}Be kind. {USER}hi", f"{SYSTEM}Be kind.{USER}hi"),
    # the same in another order
    ("retrieval_order", "Use:\n\n" + "\n\n".join(DOCS) + "\n\nQ: why", "Use:\n\n" + "\n\n".join(DOCS[::-1]) + "\n\nQ: why"),
    (
        "retrieval_order",
        "\n".join(f"[{n}] (score 0.{9 - n}) {doc}" for n, doc in enumerate(DOCS)),
        "\n".join(f"[{n}] (score 0.{8 - n}) {doc}" for n, doc in enumerate(DOCS[::-1])),
    ),
    ("retrieval_order", numbered(DOCS), numbered([DOCS[1], DOCS[2], DOCS[0]])),
    ("retrieval_order", tagged(DOCS), tagged(DOCS[::-1])),
    ("retrieval_order", '[{"t": "The cat sat"}, {"t": "Whales swim"}, {}]', '[{"t": "Whales swim"}, {"t": "The cat sat"}, {}]'),
    (
        "retrieval_order",
        "2024-05-01T10:00:00Z the first note\n2024-05-02T10:00:00Z the second note\nend",
        "2024-05-02T10:00:00Z the second note\n2024-05-01T10:00:00Z the first note\nend",
    ),
    (
        "tool_order",
        '[{"name": "add", "parameters": {}}, {"name": "cut", "parameters": {}}, {}]',
        '[{"name": "cut", "parameters": {}}, {"name": "add", "parameters": {}}, {}]',
    ),
    # templates
    ("template", "<|im_start|>system\nYou are", "<|im_start|>user\nYou are"),
    (
        "template",
        f"{SYSTEM}Be kind.<|im_end|>\n<|im_start|>user\nhello",
        f"{SYSTEM}Be kind.<|im_end|>\n<|im_start|>tool\nhello",
    ),
    ("template", "<s>[INST] hi", "<|im_start|>user\nhi"),
    ("template", "<s><s>[INST] hi", "<s>[INST] hi"),
    ("template", "<|endoftext|>Once upon a time there was a king", "Once upon a time there was a king"),
    ("template", "### Instruction:\nSay hi", "<|user|>\nSay hi"),
    (
        "template",
        f"{USER}q{ANSWER}<think>\nhmm\n</think>\n\nThe answer is forty-two, I am sure.<|im_end|>",
        f"{USER}q{ANSWER}The answer is forty-two, I am sure.<|im_end|>",
    ),
]

CONTENT = [
    ("bought 12 apples", "bought 13 apples"),
    ("in 1998 he", "in 1999 he"),
    ("it costs $12.99 now", "it costs $13.99 now"),
    ("meet me at 10:30 please", "meet me at 11:30 please"),
    ("John 3:16 says", "John 3:17 says"),
    ("the battle of 3 March 1805 was", "the battle of 4 April 1805 was"),
    ("invoice date: 2024-05-01, please", "invoice date: 2024-05-02, please"),
    (f"{SYSTEM}Be kind.{USER}10:30", f"{SYSTEM}Be kind.{USER}11:30"),
    ("won the marathon in 02:03:15 hours", "won the marathon in 02:04:15 hours"),
    ("call 5551234567 now", "call 5559876543 now"),
    ("account 1712345678 and", "account 1512345678 and"),
    ("We close on Friday at noon", "We close on Monday at noon"),
    (f"{SYSTEM}We close on Friday.{USER}", f"{SYSTEM}We close on Monday.{USER}"),
    ("color #ff88a0a1 is", "color #00ff88b2 is"),
    ("version 1.2.3 is", "version 1.2.4 is"),
    ("model GPT-4 is", "model GPT-5 is"),
    ("where is order 12345?", "where is order 67890?"),
    ("What is a cat?", "What was a dog?"),
    ("it may 5 times", "it may 6 times"),
    ("ISBN 9781234567897", "ISBN 9780306406157"),
    ("file report_2024_final.pdf", "file report_2025_final.pdf"),
    ("IBAN DE89370400440532013000 ok", "IBAN DE12500105170648489890 ok"),
    ("192.168.0.12 pings", "192.168.0.13 pings"),
    ("an internationalization issue", "an internationalisation issue"),
    ("call_center24 is", "call_center25 is"),
    (f"{USER}Hi{ANSWER}", f"{USER}Hi there{ANSWER}"),
    (f"{USER}Hi{ANSWER}It is.{USER}so?", f"{USER}Hi{ANSWER}It is.<|im_end|>\n<|im_start|>tool\n42"),
    ("a part", "apartment is"),
    (f"{SYSTEM}We close at 9am.{USER}", f"{SYSTEM}We close at 8am.{USER}"),
    (f"{SYSTEM}Helper 1.2.34 is{USER}", f"{SYSTEM}Helper 1.2.35 is{USER}"),
    (f"{SYSTEM}Be kind.{USER}Monday\nI", f"{SYSTEM}Be kind.{USER}Friday\nI"),
    (f"{SYSTEM}Be kind.{USER}Ticket #48213\nis", f"{SYSTEM}Be kind.{USER}Ticket #99120\nis"),
    (f"{SYSTEM}In case 12 of{USER}", f"{SYSTEM}In case 13 of{USER}"),
    (f"{SYSTEM}You see 260302 rows{USER}", f"{SYSTEM}You see 260303 rows{USER}"),
    (f"{USER}number 20260302091507 is", f"{USER}number 20260302103207 is"),
    (f"{SYSTEM}Our may sale of 12 cars{USER}", f"{SYSTEM}Our may sale of 13 cars{USER}"),
    ("a ratio of 1/2/12 was", "a ratio of 1/3/12 was"),
    (f"Use:\n\n{DOCS[0]}\n\nQ", f"Use:\n\n{DOCS[1]}\n\nQ"),
    ("yes\nno\nyes", "no\nyes\nyes"),
    ("caf\u00e9 is open today for all", "cafe\u0301 is open today for all"),
]


@pytest.mark.parametrize(("kind", "one", "other"), NAMED)
def test_a_fault_is_named_from_either_side(kind, one, other):
    assert judged(one, other).kind == judged(other, one).kind == kind
    assert judged(one, other).is_fault and kind in ADVICE and judged(one, other).why


@pytest.mark.parametrize(("one", "other"), CONTENT)
def test_what_a_person_wrote_otherwise_is_content_and_no_fault(one, other):
    for cause in (judged(one, other), judged(other, one)):
        assert cause.kind == "content" and not cause.is_fault


@pytest.mark.parametrize(
    ("one", "other", "ours", "theirs", "widened"),
    [
        ("Now: 10:23:45 go", "Now: 10:23:59 go", "10:23:45", "10:23:59", 6),
        ("on 2024-05-01T10:00Z go", "on 2024-06-01T10:00Z go", "2024-05-01T10:00Z", "2024-06-01T10:00Z", 6),
        ("[req_8f3k2a9] hi", "[req_8b7c4d2] hi", "req_8f3k2a9", "req_8b7c4d2", 5),
        ("bought 12 apples", "bought 13 apples", "12", "13", 1),
        ("wholesome food", "wholesale food", "wholesome", "wholesale", 6),
    ],
)
def test_a_difference_is_widened_to_the_whole_of_what_it_is_inside_of(one, other, ours, theirs, widened):
    cause = judged(one, other)
    assert (cause.ours, cause.theirs, cause.widened) == (ours, theirs, widened)


@pytest.mark.parametrize(("one", "other"), [("same", "same"), ("the start", "the start and more"), ("", "all new")])
def test_where_one_text_is_the_start_of_the_other_there_is_no_difference(one, other):
    assert judged(one, other).kind == "none"


def test_the_role_is_known_however_far_back_the_turn_began():
    far = "Some rules that go on. " * 100
    assert judged(f"{SYSTEM}{far}2024-05-01.", f"{SYSTEM}{far}2024-05-02.").kind == "clock"
    assert judged(f"{SYSTEM}x{USER}{far}2024-05-01.", f"{SYSTEM}x{USER}{far}2024-05-02.").kind == "content"


def test_two_unicode_forms_of_the_same_letters_are_said_to_be_that():
    assert "NFC" in judged("caf\u00e9 is open today for all", "cafe\u0301 is open today for all").why


A = {"name": "add", "input_schema": {"type": "object", "properties": {}}}
B = {"type": "function", "function": {"name": "cut", "parameters": {}}}


@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "said"),
    [
        ("none", [A, B], [A, B], ""),
        ("tool_order", [A, B], [B, A], "another order"),
        ("schema", [A, B], [A], "new: cut"),
        ("schema", [A], [A, B], "gone: cut"),
        ("schema", [{**A, "input_schema": {}}, B], [A, B], "changed: add"),
        ("schema", [dict(reversed(A.items()))], [A], "keys in another order"),
        ("schema", [], [A], "gone: add"),
        ("schema", ["odd"], [{"function": None}], "changed: ?"),
    ],
)
def test_tools_are_told_apart_by_order_and_by_definition(kind, ours, theirs, said):
    cause = kind_of_tools(ours, theirs)
    assert cause.kind == kind and said in cause.why


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9])
def test_the_common_length_is_exact(n):
    one = list(range(9))
    assert common_length(one, [*one[:n], 99, 98]) == n
    assert common_length("abcdefghi"[:n], "abcdefghi") == n

"""When a new turn is a hit, and when it is not: templates that write the past differently, text that is cut into other ids."""

import pytest
from helpers import small_models as small_models
from session_helpers import KINDS, TEMPLATE, assert_as_fresh, refused, small_llama, talkative, tokenizer

from kvcourse.checkpoints import load_model
from kvcourse.errors import TokenizerError
from kvcourse.fetch import model_folder
from kvcourse.sessions.session import Session
from kvcourse.sessions.template import Replay, check_template, replay
from kvcourse.tiny import tiny_tokenizer
from kvcourse.tokenizers import ChatTemplate, load_tokenizer

pytestmark = pytest.mark.usefixtures("small_models")
PLAIN = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}assistant: "
TALK = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "<think>hm</think> yes "},
    {"role": "user", "content": "two"},
    {"role": "assistant", "content": "no"},
    {"role": "user", "content": "three"},
]
BAD = {
    # Qwen3 1826: what the model was thinking is left out once the conversation has gone on
    "thoughts are left out": TEMPLATE.replace(
        "m['content']", "(m['content'].split('</think>')[-1] if not loop.last else m['content'])"
    ),
    "replies are trimmed": TEMPLATE.replace("m['content']", "(m['content'] | trim)"),
    "turns are numbered from the end": (
        "{% for m in messages %}{{ loop.revindex ~ m['content'] + '\n' }}{% endfor %}assistant: "
    ),
    "the last question stands first": "{{ messages[-1]['content'] }}\n" + PLAIN,
    "the past is cut off": PLAIN.replace("messages", "messages[-3:]"),
}


@pytest.fixture(scope="module")
def smollm2():
    return load_tokenizer(model_folder("smollm2"))


def test_our_templates_and_the_real_model_s_begin_every_turn_with_the_one_before(smollm2):
    for words in (tokenizer(), tokenizer(PLAIN), tiny_tokenizer(), smollm2):
        assert check_template(words, TALK).stable, words
        assert check_template(words, TALK[1:]).stable
        assert "stays valid" in str(check_template(words, TALK[:2]))
    long = [{"role": ("user", "assistant")[i % 2], "content": f"  {i} \n"} for i in range(41)]
    assert check_template(smollm2, long).stable


@pytest.mark.parametrize("template", BAD.values(), ids=BAD)
def test_a_template_that_writes_an_earlier_turn_differently_is_found_with_the_place(template):
    words = tokenizer(template)
    report = check_template(words, TALK)
    assert (report.stable, report.turn) == (False, 1)
    before, after = words.render_chat(TALK[:2]) + TALK[2]["content"], words.render_chat(TALK[:4])
    at = report.character
    assert before[:at] == after[:at] and before[at] != after[at]
    assert report.kept in before and report.rendered in after and report.kept != report.rendered
    assert f"character {at}" in str(report) and repr(report.kept) in str(report)


def test_the_first_turn_that_differs_is_named():
    """Unstable from the third turn on, so that a check of one turn would not do."""
    late = TEMPLATE.replace("m['content']", "(m['content'] if messages | length < 7 else m['content'] | upper)")
    longer = [*TALK, {"role": "assistant", "content": "maybe"}, {"role": "user", "content": "four"}]
    assert check_template(tokenizer(late), TALK).stable
    report = check_template(tokenizer(late), longer)
    assert (report.stable, report.turn) == (False, 3)
    assert "BE BRIEF" in report.rendered and "be brief" in report.kept


def test_a_conversation_that_cannot_be_rendered_says_so():
    words = tokenizer()
    words.chat = None
    refused(lambda: check_template(words, TALK), TokenizerError)
    strict = tokenizer("{{ raise_exception('no system message') if messages[0]['role'] == 'system' }}" + TEMPLATE)
    refused(lambda: check_template(strict, TALK), TokenizerError)
    assert check_template(strict, TALK[1:]).stable
    assert check_template(words, []).stable and check_template(words, TALK[:1]).stable


# mlc-llm 3179, llama.cpp 11970, inference-perf 649: decoded and re-encoded text is not the same ids
SPLIT = [("He", "llo", ",", " world"), ("un", "believ", "able"), ("wor", "ld"), ("\n", "\n")]


@pytest.mark.parametrize("pieces", SPLIT, ids=["".join(pieces) for pieces in SPLIT])
def test_ids_that_a_model_may_well_say_do_not_come_back_from_their_text(smollm2, pieces):
    """A reply in other pieces than the tokenizer's own: its text is the same, and its ids are not."""
    said = [i for piece in pieces for i in smollm2.encode(piece)]
    again = smollm2.encode(smollm2.decode(said))
    assert smollm2.decode(again) == smollm2.decode(said) and again != said


def test_the_ids_of_a_reply_are_kept_and_a_replay_says_where_it_leaves_them(smollm2):
    model = small_llama_with(smollm2)
    reply = [*smollm2.encode("He"), *smollm2.encode("llo"), smollm2.stop_ids[0]]
    for kind in KINDS:
        chat = Session(model, system="be brief", cache=kind)
        first = chat.send("Say hello", max_new_tokens=9, sampler=saying(reply))
        assert (first.tokens, first.text) == (reply, "Hello")
        before = chat.tokens
        chat.send("Again", max_new_tokens=9, sampler=saying(reply))
        assert chat.tokens[: len(before)] == before
        told = smollm2.encode_chat(chat.messages, add_generation_prompt=False)
        at = chat.turns[0].prompt_stop
        assert told[:at] == chat.tokens[:at] and told[at] != chat.tokens[at], "'Hello' is one token"
        found = chat.replay()
        assert found == Replay(len(chat.tokens), at, reply[0], smollm2.encode("Hello")[0])
        assert found.lost_tokens == len(chat.tokens) - at
        if kind is not None:
            assert chat.cache.length == len(chat.tokens) - 1


def saying(reply):
    given = iter(reply)
    return lambda logits: next(given)


def small_llama_with(words):
    from helpers import make_model

    model = make_model("llama", vocab_size=words.vocab_size, context_length=256)
    model.tokenizer = words
    return model


def test_a_replay_loses_nothing_where_every_reply_is_in_the_tokenizer_s_own_pieces(smollm2):
    model = small_llama_with(smollm2)
    chat = Session(model, system="be brief")
    for question in ("Say hello", "Again"):
        chat.send(question, max_new_tokens=9, sampler=saying([*smollm2.encode("Hello there."), smollm2.stop_ids[0]]))
    assert chat.replay() == Replay(len(chat.tokens), len(chat.tokens))
    assert chat.replay().lost_tokens == 0
    chat.send("Stop early", max_new_tokens=2, sampler=saying(smollm2.encode("Hello there.")[:2]))
    assert chat.replay().lost_tokens == 0, "a reply that was cut off is the start of one that was not"


def test_the_real_model_s_own_words_are_kept():
    """Whatever it says, greedy: its ids are the session's, and a replay that agrees loses none of them."""
    chat = Session(load_model("smollm2"))
    for question in ("Name a colour.", "And another one."):
        reply = chat.send(question, max_new_tokens=8)
        assert chat.tokens[-len(reply.tokens) :] == reply.tokens
    found = chat.replay()
    assert found.cached_tokens == len(chat.tokens) and found.shared_tokens > chat.turns[0].prompt_stop - 1
    assert chat.cache.length == len(chat.tokens) - 1


def test_a_replay_of_nothing_and_of_a_model_without_a_template():
    words = tokenizer()
    assert replay(words, [], []) == Replay(0, 0)
    plain = tokenizer()
    plain.chat = None
    model = small_llama()
    model.tokenizer = plain
    chat = Session(model, sampler=talkative(model))
    chat.send("ab", max_new_tokens=3)
    chat.send("ab", max_new_tokens=3)
    assert chat.replay().cached_tokens == len(chat.tokens)
    assert_as_fresh(chat)
    messages = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "b"}]
    ab, a, b = (plain.encode(text)[0] for text in ("ab", "a", "b"))
    assert replay(plain, messages, [ab, b]) == Replay(2, 2)
    assert replay(plain, messages, [a, b, b]) == Replay(3, 0, a, ab)
    assert replay(plain, messages, [ab, b, b]) == Replay(3, 2, b, None), "less text than there are ids"


def test_a_session_refuses_a_template_that_rewrites_what_is_cached_and_stays_as_it_was():
    model = small_llama()
    model.tokenizer = tokenizer(BAD["thoughts are left out"])
    chat = Session(model)
    thought = [*model.tokenizer.encode("<think>hm</think> yes"), model.tokenizer.stop_ids[0]]
    chat.send("one", max_new_tokens=99, sampler=saying(thought))
    before = chat.tokens
    assert "differently" in refused(lambda: chat.send("two", max_new_tokens=4), TokenizerError)
    assert (chat.tokens, chat.cache.length, len(chat.turns)) == (before, len(before) - 1, 1)
    model.tokenizer.chat = ChatTemplate(TEMPLATE)
    chat.send("two", max_new_tokens=4, sampler=talkative(model))
    assert_as_fresh(chat)

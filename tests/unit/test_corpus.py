"""The generated conversations: every answer is in the text, nothing else gives it away, and the same seed says the same."""

import random
from collections import Counter

import pytest

from kvcourse.corpus import LINK_WORDS, MOST_FACTS, Order, make_conversation
from kvcourse.errors import InputError
from kvcourse.tiny import PEOPLE, PLACES, THINGS, TINY_SHAPE, tiny_tokenizer

TALKS: tuple[Order, ...] = ("mixed", "told first", "recap")
SOME = [make_conversation(random.Random(i), n, order) for i in range(30) for n in (1, 5, 20) for order in TALKS]


def test_every_word_is_in_the_vocabulary():
    tokenizer = tiny_tokenizer()
    known = {tokenizer.token_text(i) for i in range(tokenizer.vocab_size)}
    assert {word for one in SOME for word in one.words} <= known
    assert TINY_SHAPE.vocab_size == tokenizer.vocab_size == len(known)


def test_the_same_seed_makes_the_same_words_and_another_seed_others():
    first, again, other = (make_conversation(random.Random(seed), 6) for seed in (1, 1, 2))
    assert first == again != other


def test_each_answer_repeats_the_word_of_its_fact_and_the_fact_came_before():
    for one in SOME:
        for question in one.questions:
            start, stop = question.fact
            assert start < stop <= question.turn < question.reply <= question.answer
            assert one.words[question.answer] in one.words[start:stop]
            assert one.words[question.reply : question.answer + 2] == one.words[start:stop]  # the fact, said again


def test_each_fact_is_stated_once_and_asked_for_once():
    for one in SOME:
        facts = [question.fact for question in one.questions]
        assert len(set(facts)) == len(facts)
        stated = Counter(one.words[start:stop] for start, stop in facts)
        assert set(stated.values()) == {1}
        for (start, stop), question in zip(facts, one.questions, strict=True):
            sentence = one.words[start:stop]
            before = [i for i in range(question.reply) if one.words[i : i + len(sentence)] == sentence]
            assert before == [start]  # nothing else in front of the answer says it


def test_a_conversation_is_a_chat_that_the_template_would_write():
    tokenizer = tiny_tokenizer()
    for one in SOME[:12]:
        text = " ".join(one.words)
        turns = [turn.split(" ", 1) for turn in text.removesuffix(" <end>").split(" <end> ")]
        messages = [{"role": role.strip("<>"), "content": content} for role, content in turns]
        assert [message["role"] for message in messages if message["role"] != "system"][:2] == ["user", "assistant"]
        assert tokenizer.encode_chat(messages, add_generation_prompt=False) == tokenizer.encode(text, special=True)


def test_answers_are_drawn_evenly_so_that_chance_is_what_it_says():
    rng = random.Random(0)
    said = Counter(one.words[q.answer] for one in (make_conversation(rng, 12) for _ in range(250)) for q in one.questions)
    for words in (PLACES, PEOPLE):
        counts = [said[word] for word in words]
        assert min(counts) > 0.7 * sum(counts) / len(counts)
    assert {q.choices for one in SOME for q in one.questions} == {len(PLACES), len(PEOPLE)}
    assert not set(said) & set(THINGS)


def test_what_is_told_again_is_what_was_told_before():
    for link_words in range(LINK_WORDS + 1):
        one = make_conversation(random.Random(link_words), 6, "retold", link_words=link_words)
        assert len(one.questions) >= 8
        for question in one.questions:
            start, stop = question.fact
            assert one.words[question.reply : question.answer + 2] == one.words[start:stop]
            assert stop <= question.reply and stop - start in (link_words + 3, link_words + 4)


def test_idle_talk_makes_a_conversation_longer_and_changes_no_answer():
    for idle_turns in (1, 20):
        short, long = (make_conversation(random.Random(3), 6, "told first", idle_turns=n) for n in (0, idle_turns))
        assert len(long.words) > len(short.words) + 6 * idle_turns
        assert all(long.words[q.answer] in long.words[slice(*q.fact)] for q in long.questions) and len(long.questions) == 6


@pytest.mark.parametrize(("n_facts", "link_words"), [(0, 3), (-1, 3), (MOST_FACTS + 1, 3), (3, -1), (3, LINK_WORDS + 1)])
def test_a_number_of_facts_or_words_that_cannot_be_is_refused(n_facts, link_words):
    with pytest.raises(InputError, match=f"1 to {MOST_FACTS}"):
        make_conversation(random.Random(0), n_facts, link_words=link_words)

"""Lesson 01: the course's own small model: its shape, its small world of words, and where its trained weights are.

Knows nothing about how a model computes. The weights come from one run of `python -m kvcourse.train`, seed 0: 7 min 37 s on
two cores. Another machine rounds otherwise and ends in other numbers that read as well.
"""

from pathlib import Path

from kvcourse.chat_template import ChatTemplate
from kvcourse.config import GPTConfig
from kvcourse.tokenizers import WordTokenizer

PEOPLE = "ana ben cleo dan eva finn gus hana ivan june kai lena".split()
PLACES = "garden kitchen school market library station forest harbour office museum".split()
THINGS = "apple book cup drum egg flute hat key lamp map rope violin".split()
WORDS = (
    "is are was in the a an at to from of and or not no yes it he she they who where what when which does do did has have had "
    "go goes went take takes took give gives gave put puts drop drops find finds found see sees saw now then before after "
    "first last here there with next same other all every one two three four five six seven eight nine ten red green blue "
    "yellow black white small large old new open closed you i me my your hello thanks please remember know say tell question "
    "answer story system helpful . , ? : - '"
).split()
SPECIAL = ("<text>", "<system>", "<user>", "<assistant>", "<end>")
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role ' + message['role']) }}{% endif %}"
    "{{ '<' + message['role'] + '> ' + message['content'] + ' <end> ' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}"
)


TINY_SHAPE = GPTConfig(
    vocab_size=len(SPECIAL) + len(PEOPLE) + len(PLACES) + len(THINGS) + len(WORDS),
    context_length=512,
    n_layer=4,
    n_head=4,
    n_embd=128,
)
TINY_WEIGHTS = Path(__file__).with_suffix(".safetensors")  # float32, Hugging Face's GPT-2 names


def tiny_tokenizer() -> WordTokenizer:
    """A word for everything in the small world, and a chat format of its own."""
    return WordTokenizer(
        [*PEOPLE, *PLACES, *THINGS, *WORDS],
        special=SPECIAL,
        chat=ChatTemplate(TEMPLATE, bos_token="<text>", eos_token="<end>", pad_token="<end>"),
        stop=("<end>", "<text>"),
    )

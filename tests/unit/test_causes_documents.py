"""Documents in another order are called so wherever they stand in a message, its end included; turns are no documents."""

import json

import pytest

from kvcourse.causes import Cause, common_length, kind_of_difference

DOCS = [
    "Oslo is the capital of Norway.\nIt is a large port town.",
    "Bergen is a town on the west coast.\nIt is known for rain.",
    "Narvik lies far in the north.\nA railway leads to Sweden.",
    "Bod\u00f8 is the end of the Nordland line.\nBoats go on from there.",
]
ORDERS = [(1, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2), (0, 3, 1, 2), (3, 2, 1, 0)]
JOINED = {
    "numbered paragraphs": lambda docs: "\n\n".join(f"[{n}] {doc}" for n, doc in enumerate(docs, start=1)),
    "bare paragraphs": "\n\n".join,
    "lines": lambda docs: "\n".join(f"- {doc.splitlines()[0]}" for doc in docs),
    "tags": lambda docs: "\n".join(f'<doc id="{DOCS.index(doc)}">{doc}</doc>' for doc in docs),
    "tags in a tag": lambda docs: "<docs>\n\n" + "\n\n".join(f"<doc>\n{doc}\n</doc>" for doc in docs) + "\n</docs>",
    "labels": lambda docs: "\n\n".join(f"Source {DOCS.index(doc)}: {doc}" for doc in docs),
    "a list of objects": lambda docs: json.dumps([{"id": DOCS.index(doc), "text": doc} for doc in docs]),
    "objects in an object": lambda docs: json.dumps({"results": [{"text": doc} for doc in docs], "total": len(docs)}),
}
# A conversation as templates write it: "system" and "user" stand for what is said.
TEMPLATES = {
    "ChatML": "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n",
    "Llama 3": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{system}<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n{user}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "Llama 2": "<s>[INST] <<SYS>>\n{system}\n<</SYS>>\n\n{user} [/INST]",
    "Gemma": "<bos><start_of_turn>user\n{system}\n\n{user}<end_of_turn>\n<start_of_turn>model\n",
    "Zephyr": "<|system|>\n{system}</s>\n<|user|>\n{user}</s>\n<|assistant|>\n",
    "Phi": "<|system|>\n{system}<|end|>\n<|user|>\n{user}<|end|>\n<|assistant|>\n",
    "DeepSeek": "<\uff5cbegin\u2581of\u2581sentence\uff5c>{system}<\uff5cUser\uff5c>{user}<\uff5cAssistant\uff5c>",
    "Granite": "<|start_of_role|>system<|end_of_role|>{system}<|end_of_text|>\n"
    "<|start_of_role|>user<|end_of_role|>{user}<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
    "none": "System: {system}\n\nUser: {user}\n\nAssistant:",
}
RULES, QUESTION = "You help with trains. Use these documents only.", "Where is the port?"


def judged(ours: str, theirs: str) -> Cause:
    shared = common_length(ours, theirs)
    return kind_of_difference(ours[:shared], ours[shared:], theirs[shared:])


def placed(template: str, documents: str, place: str, question: str = QUESTION) -> str:
    parts = {
        "end of the system part": (f"{RULES}\n\n{documents}", question),
        "end of the question": (RULES, f"{question}\n\n{documents}"),
        "front of the question": (RULES, f"{documents}\n\nQuestion: {question}"),
    }
    system, user = parts[place]
    return TEMPLATES[template].format(system=system, user=user)


@pytest.mark.parametrize("place", ["end of the system part", "end of the question", "front of the question"])
@pytest.mark.parametrize("joined", JOINED)
@pytest.mark.parametrize("template", TEMPLATES)
def test_documents_in_another_order_are_called_so_wherever_they_stand(template, joined, place):
    for order in ORDERS:
        docs = DOCS[: len(order)]
        one, other = (placed(template, JOINED[joined](some), place) for some in (docs, [docs[n] for n in order]))
        assert judged(one, other).kind == judged(other, one).kind == "retrieval_order", order
        if place == "end of the system part":
            asked = placed(template, JOINED[joined](docs), place, "Which town has rain?")
            assert judged(asked, other).kind == judged(other, asked).kind == "retrieval_order", order


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_sides_that_are_shown_hold_the_documents_and_nothing_of_the_next_turn(template):
    one, other = (placed(template, "\n\n".join(docs), "end of the system part") for docs in (DOCS[:2], DOCS[1::-1]))
    cause = judged(one, other)
    assert (cause.ours, cause.theirs) == (DOCS[0], DOCS[1])


@pytest.mark.parametrize("joined", JOINED)
@pytest.mark.parametrize("template", TEMPLATES)
def test_other_documents_at_the_end_of_a_message_are_content(template, joined):
    one, other = (placed(template, JOINED[joined](some), "end of the question") for some in (DOCS[:2], DOCS[2:]))
    assert judged(one, other).kind == judged(other, one).kind == "content"


@pytest.mark.parametrize("template", ["ChatML", "Llama 3", "Gemma", "Phi"])
def test_turns_in_another_order_are_no_documents(template):
    asked = [f"{QUESTION}", "Which town is known for rain?"]
    one, other = (
        TEMPLATES[template].format(system=RULES, user=turns[0]) + TEMPLATES[template].format(system=RULES, user=turns[1])
        for turns in (asked, asked[::-1])
    )
    assert judged(one, other).kind == judged(other, one).kind == "content"

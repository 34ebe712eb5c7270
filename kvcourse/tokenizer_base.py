"""Lesson 01: what every tokenizer does: text to ids, ids to text, chats to ids. Knows nothing about models or vocabularies.

Every tokenizer is the `tokenizers` library with one policy on top: nothing is dropped, replaced or invented
silently. Ids that stand for no text, words outside the vocabulary and templates that fail all say so.
"""

import hashlib
import json
import operator
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, SupportsIndex

import tokenizers
from tokenizers import decoders
from tokenizers.decoders import DecodeStream

from kvcourse.chat_template import ChatTemplate, Guard
from kvcourse.common_prefix import common_length
from kvcourse.errors import TokenizerError

# Whether special tokens are recognised is a switch on the library's object, so switching and encoding are one step.
_SWITCH = threading.Lock()


class Tokenizer:
    """A `tokenizers.Tokenizer`, the ids that end a turn or a text, and a chat template where there is one."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        chat: ChatTemplate | None = None,
        stop_ids: Iterable[int] = (),
    ) -> None:
        backend.no_truncation()  # a tokenizer.json may carry either setting, and both change ids silently
        backend.no_padding()
        self._backend = backend
        self.chat = chat
        self.stop_ids = tuple(stop_ids)
        self._special = {t.content: i for i, t in backend.get_added_tokens_decoder().items() if t.special}
        self._fingerprint: str | None = None
        self._check(self.stop_ids)

    @property
    def vocab_size(self) -> int:
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    @property
    def special_tokens(self) -> dict[str, int]:
        """Control tokens by their text: those that mark turns and documents and stand for no text of their own."""
        return dict(self._special)

    @property
    def named_ids(self) -> dict[str, int]:
        """Ids of the tokens that have a role by name, as configurations list them: {"eos_token_id": 2, ...}."""
        named = self.chat.variables if self.chat else {}
        return {f"{role}_id": self._special[text] for role, text in named.items() if text in self._special}

    @property
    def fingerprint(self) -> str:
        """Digest of all that changes ids: vocabulary, merges, special tokens, chat template, stop ids."""
        if self._fingerprint is None:
            chat = [self.chat.source, self.chat.variables] if self.chat else None
            parts = json.dumps([json.loads(self._backend.to_str()), chat, self.stop_ids], sort_keys=True)
            self._fingerprint = hashlib.sha256(parts.encode()).hexdigest()
        return self._fingerprint

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of `text`. Nothing is added: no begin-of-text token, no prefix.

        special: False reads "<|im_end|>" as the ten characters that a user typed; True as the control token.
        """
        with _SWITCH:
            self._backend.encode_special_tokens = not special
            try:
                return list(self._backend.encode(text, add_special_tokens=False).ids)
            except Exception as error:  # the library raises plain Exception
                raise self._cannot_encode(text, error) from error

    def decode(self, ids: Iterable[SupportsIndex], *, skip_special: bool = False) -> str:
        """The text of `ids`. Bytes that are no UTF-8 (half a character) show as "\\ufffd"."""
        return str(self._backend.decode(self._check(ids), skip_special_tokens=skip_special))

    def decode_stream(self, ids: Iterable[SupportsIndex], *, skip_special: bool = False) -> Iterator[str]:
        """Pieces of text while ids arrive; joined, they are `decode(ids)`. Never half a character.

        An emoji is up to four bytes in several tokens: nothing is handed out until its last one is here.
        """
        stream = DecodeStream(skip_special_tokens=skip_special)
        seen: list[int] = []
        sent = 0
        for id in ids:
            seen += self._check([id])
            piece = stream.step(self._backend, seen[-1])
            if piece:
                sent += len(piece)
                yield piece
        rest = self.decode(seen, skip_special=skip_special)[sent:]
        if rest:
            yield rest

    def token_text(self, id: int) -> str:
        """What one id looks like, printable: "␣" is a space, "\\n" a line break, "<E4><BD>" part of a character."""
        token = str(self._backend.id_to_token(*self._check([id])))
        if token in self._special or not isinstance(self._backend.decoder, decoders.ByteLevel):
            text = token
        else:
            try:
                text = bytes(BYTE_OF[c] for c in token).decode()
            except UnicodeDecodeError:
                return "".join(f"<{BYTE_OF[c]:02X}>" for c in token)
            except KeyError:  # an added token, kept as text
                text = token
        return "".join("␣" if c == " " else c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

    def render_chat(self, messages: Sequence[dict[str, Any]], *, tools: list[Any] | None = None) -> str:
        """The conversation as text, up to where the assistant goes on. To look at: ids come from `encode_chat`."""
        return self._template().render(list(messages), True, tools=tools)

    def encode_chat(
        self, messages: Sequence[dict[str, Any]], *, add_generation_prompt: bool = True, tools: list[Any] | None = None
    ) -> list[int]:
        """The ids of a conversation, rendered by the chat template.

        Control tokens come from the template only: the same text inside a message is encoded as text, so that nobody can
        end a turn from within one. For messages without such text the ids equal those of transformers' apply_chat_template.
        """
        guard = Guard(self._special)
        safe = guard.hide(list(messages))
        return self._encode_guarded(self._template().render(safe, add_generation_prompt, tools=tools), guard)

    def continue_chat(
        self,
        messages: Sequence[dict[str, Any]],
        reply_ids: Sequence[int],
        new_messages: Sequence[dict[str, Any]],
        *,
        tools: list[Any] | None = None,
    ) -> list[int]:
        """The ids to append after `encode_chat(messages)` + `reply_ids`: the end of the turn, and the new messages.

        The reply is never encoded again: decoded and re-encoded text is often not the same ids.

        reply_ids: as generated, with or without the end-of-turn token. A reply that ended with another stop token keeps
            it, and is closed by the template's own.
        Raises: TokenizerError where the template writes an earlier turn differently once the conversation has gone on.
        """
        stopped = bool(reply_ids) and reply_ids[-1] in self.stop_ids
        guard = Guard(self._special)
        reply = guard.hide(self.decode(reply_ids[:-1] if stopped else reply_ids))
        turns = guard.hide(list(messages))
        kept = self._template().render(turns, True, tools=tools) + reply
        turns += [{"role": "assistant", "content": reply}, *guard.hide(list(new_messages))]
        full = self._template().render(turns, True, tools=tools)
        if not full.startswith(kept):
            raise _rewritten(guard.show(kept), guard.show(full))
        ids = self._encode_guarded(full[len(kept) :], guard)
        return ids[1:] if stopped and ids[:1] == list(reply_ids[-1:]) else ids

    def save(self, folder: Path) -> None:
        """Write the files that transformers' AutoTokenizer reads: tokenizer.json and tokenizer_config.json."""
        self._backend.encode_special_tokens = False
        (folder / "tokenizer.json").write_text(self._backend.to_str(pretty=True), encoding="utf-8")
        settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        settings |= {"stop_tokens": [self._backend.id_to_token(i) for i in self.stop_ids]}
        if self.chat:
            settings |= {**self.chat.variables, "chat_template": self.chat.source}
        elif self.stop_ids:
            settings |= {"eos_token": settings["stop_tokens"][0]}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def from_backend(cls, backend: tokenizers.Tokenizer, **options: Any) -> Self:
        """One of this class round a ready `tokenizers.Tokenizer`; the options are those of Tokenizer."""
        self = cls.__new__(cls)
        Tokenizer.__init__(self, backend, **options)
        return self

    def _check(self, ids: Iterable[SupportsIndex]) -> list[int]:
        """The ids as plain ints. The library would drop an unknown one without a word."""
        plain = [operator.index(i) for i in ids]
        for i in plain:
            if i < 0 or self._backend.id_to_token(i) is None:
                raise TokenizerError(
                    "A token id stands for no token.", expected=f"ids from 0 to {self.vocab_size - 1}", got=i,
                    todo="Use the tokenizer that belongs to the model.",
                )  # fmt: skip
        return plain

    def _encode_guarded(self, rendered: str, guard: Guard) -> list[int]:
        if not guard.used:
            return self.encode(rendered, special=True)
        ids: list[int] = []
        for text in guard.split(rendered):  # the library, too, splits at special tokens first and encodes what is between
            ids += [self._special[text]] if text in self._special else self.encode(guard.show(text))
        return ids

    def _template(self) -> ChatTemplate:
        if self.chat is None:
            raise TokenizerError(
                "This tokenizer has no chat template.", expected="a template", got="none",
                todo="Use encode(text), or set tokenizer.chat = ChatTemplate(...).",
            )  # fmt: skip
        return self.chat

    def _cannot_encode(self, text: object, error: Exception) -> TokenizerError:
        return TokenizerError(f"Text cannot be encoded ({error}).", expected="a str of valid Unicode", got=repr(text)[:60],
                              todo="Replace what is no text.")  # fmt: skip


def _rewritten(kept: str, full: str) -> TokenizerError:
    at = common_length(kept, full)
    return TokenizerError(
        f"The chat template writes the conversation so far differently once it goes on, from character {at} on.",
        expected=repr(kept[max(0, at - 20) : at + 20]), got=repr(full[max(0, at - 20) : at + 20]),
        todo="What is cached cannot be continued: encode the whole conversation again with encode_chat.",
    )  # fmt: skip


def _byte_of() -> dict[str, int]:
    """GPT-2 writes each byte as a printable character: itself where it is one, else from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


BYTE_OF = _byte_of()

"""Lesson 01: three vocabularies, of characters, words and byte pairs. Knows nothing about models.

What all three share (encoding, decoding, streaming, chats) is in tokenizer_base.py.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from kvcourse.chat_template import ChatTemplate
from kvcourse.errors import TokenizerError
from kvcourse.tokenizer_base import BYTE_OF, Tokenizer

__all__ = ["BPETokenizer", "CharTokenizer", "ChatTemplate", "Tokenizer", "WordTokenizer", "load_tokenizer"]


class BPETokenizer(Tokenizer):
    """Byte-pair encoding on bytes, as GPT-2's: any text can be encoded, nothing is unknown.

    Source: Sennrich et al. 2016; on bytes: Radford et al. 2019, section 2.2.
    """

    def __init__(
        self,
        vocab: dict[str, int],
        merges: list[tuple[str, str]],
        *,
        special: Sequence[str] = (),
        single_digits: bool = False,
        chat: ChatTemplate | None = None,
        stop: Sequence[str] = (),
    ) -> None:
        """single_digits: each digit is a token (SmolLM2), instead of runs of them (GPT-2)."""
        backend = tokenizers.Tokenizer(models.BPE(vocab, merges))
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        digits = [pre_tokenizers.Digits(individual_digits=True)] if single_digits else []
        backend.pre_tokenizer = pre_tokenizers.Sequence([*digits, byte_level])
        backend.decoder = decoders.ByteLevel()
        _add_special(backend, special)
        super().__init__(backend, chat=chat, stop_ids=_ids(backend, stop))

    @staticmethod
    def alphabet() -> list[str]:
        """One printable character for each byte: what every vocabulary of byte pairs starts from."""
        return list(BYTE_OF)


class WordTokenizer(Tokenizer):
    """One id per word of a closed vocabulary; punctuation marks are words of their own.

    `decode` joins with single spaces, so "ana is here." comes back as "ana is here ." (the same ids).
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        unk: str | None = None,
        special: Sequence[str] = (),
        chat: ChatTemplate | None = None,
        stop: Sequence[str] = (),
    ) -> None:
        """special: control tokens, the first ids. unk: the word that stands for unknown ones; None refuses those."""
        names = [*special, *([unk] if unk else []), *words]
        backend = _word_level(names, unk)
        punctuation = pre_tokenizers.Punctuation("isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), punctuation])
        _add_special(backend, special)
        super().__init__(backend, chat=chat, stop_ids=_ids(backend, stop))

    def _cannot_encode(self, text: object, error: Exception) -> TokenizerError:
        if not isinstance(text, str) or any("\ud800" <= character <= "\udfff" for character in text):  # half a pair
            return super()._cannot_encode(text, error)
        vocab = self._backend.get_vocab()
        words = (word for word, _ in self._backend.pre_tokenizer.pre_tokenize_str(text))
        unknown = list(dict.fromkeys(word for word in words if word not in vocab or (word in self._special)))
        known = " ".join([word for word in vocab if word not in self._special][:8])
        return TokenizerError(
            "Not in the vocabulary: " + ", ".join(repr(word) for word in unknown[:8]) + ".",
            expected=f"words among the {len(vocab)} known ({known} ...)", got=repr(text)[:60],
            todo="Say it in known words, or give the tokenizer an unk word.",
        )  # fmt: skip


class CharTokenizer(WordTokenizer):
    """One id per character of the text it was made from, in code point order."""

    def __init__(self, text: str) -> None:
        backend = _word_level(sorted(set(text)), None)
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        backend.decoder = decoders.Fuse()
        Tokenizer.__init__(self, backend)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Read a Hugging Face folder's tokenizer.json and the settings beside it."""
    path = folder / "tokenizer.json"
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise TokenizerError(
            f"{path} cannot be read ({error}).", expected="a tokenizer.json of the tokenizers library",
            got="something else", todo="Save it with save_pretrained of a fast tokenizer.",
        ) from error  # fmt: skip
    settings = {name: _read_json(folder / f"{name}.json") for name in ("tokenizer_config", "generation_config", "config")}
    kinds: dict[str, type[Tokenizer]] = {"BPE": BPETokenizer, "WordLevel": WordTokenizer}
    kind = kinds.get(type(backend.model).__name__, Tokenizer)
    if kind is WordTokenizer and isinstance(backend.pre_tokenizer, pre_tokenizers.Split):
        kind = CharTokenizer
    chat = ChatTemplate.load(folder, settings["tokenizer_config"])
    return kind.from_backend(backend, chat=chat, stop_ids=_stop_ids(backend, settings))


def _word_level(names: Sequence[str], unk: str | None) -> tokenizers.Tokenizer:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated or not names:
        raise TokenizerError("A vocabulary needs words, each once.", expected="distinct words", got=repeated or "none",
                             todo="Correct the list.")  # fmt: skip
    # Without unk, the library looks for its own default name; one that no vocabulary holds makes it raise instead.
    return tokenizers.Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token=unk or "\x00none"))


def _ids(backend: tokenizers.Tokenizer, tokens: Sequence[str]) -> list[int]:
    """The ids of tokens that must be there."""
    vocab = backend.get_vocab(with_added_tokens=True)
    for token in tokens:
        if token not in vocab:
            raise TokenizerError("A stop token is not in the vocabulary.", expected="one of its tokens", got=repr(token),
                                 todo="Add it to the special tokens.")  # fmt: skip
    return [vocab[token] for token in tokens]


def _add_special(backend: tokenizers.Tokenizer, special: Sequence[str]) -> None:
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])


def _stop_ids(backend: tokenizers.Tokenizer, settings: dict[str, dict[str, Any]]) -> list[int]:
    """End of turn and end of text, wherever a folder says them; transformers stops at generation_config's."""
    named = settings["tokenizer_config"].get("stop_tokens") or [settings["tokenizer_config"].get("eos_token")]
    names = [name.get("content") if isinstance(name, dict) else name for name in named]
    found = [backend.token_to_id(name) for name in names if isinstance(name, str)]
    for source in ("generation_config", "config"):
        ids = settings[source].get("eos_token_id")
        found += ids if isinstance(ids, list) else [ids]
    return [i for i in dict.fromkeys(found) if isinstance(i, int) and backend.id_to_token(i) is not None]


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise TokenizerError(f"{path} is no JSON ({error}).", expected="a JSON object", got="something else",
                             todo="Save the folder again.") from error  # fmt: skip

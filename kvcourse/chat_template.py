"""Lesson 01: chat messages to one text, by a Jinja template as every chat model ships. Knows nothing about ids.

Rendering follows transformers' `apply_chat_template`: the same sandbox, block trimming, functions and variables.
"""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kvcourse.errors import TokenizerError

_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """A template and the special tokens it may name (bos_token, eos_token, unk_token, pad_token)."""

    def __init__(self, source: str, **variables: str) -> None:
        self.source, self.variables = source, variables
        loops = "jinja2.ext.loopcontrols"
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loops])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)  # some models tell the date
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise TokenizerError(
                f"The chat template is not valid Jinja ({error}).", expected="a template", got=repr(source[:60]),
                todo="Correct the template.",
            ) from error  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:  # compiled templates cannot be copied; models, which carry one, are
        return _rebuild, (self.source, self.variables)

    def render(
        self, messages: Sequence[dict[str, Any]], add_generation_prompt: bool = True, *, tools: list[Any] | None = None
    ) -> str:
        """The conversation as the model was trained to read it.

        add_generation_prompt: end with the opening of the assistant's turn, so that the model goes on as the assistant.
        """
        if not messages:
            raise TokenizerError("There is nothing to say.", expected="at least one message", got="none",
                                 todo='Give [{"role": "user", "content": "..."}].')  # fmt: skip
        values = {**self.variables, "messages": messages, "tools": tools, "documents": None}
        try:
            return self._template.render(**values, add_generation_prompt=add_generation_prompt)
        except Exception as error:  # templates are programs: they raise what they like
            raise TokenizerError(
                f"The chat template cannot render these messages ({error}).",
                expected='messages such as {"role": "user", "content": "..."}', got=_outline(messages),
                todo="Correct the messages, or use a template that allows them.",
            ) from error  # fmt: skip

    @classmethod
    def load(cls, folder: Path, settings: dict[str, Any]) -> "ChatTemplate | None":
        """The template of a Hugging Face folder: chat_template.jinja (new) or in tokenizer_config.json (old)."""
        source = settings.get("chat_template")
        if (path := folder / "chat_template.jinja").exists():
            source = path.read_text(encoding="utf-8")
        if isinstance(source, list):  # several, by name
            source = next((entry["template"] for entry in source if entry.get("name") == "default"), None)
        if source is None:
            return None
        tokens = {name: settings.get(name) for name in _NAMED}
        plain = {name: token["content"] if isinstance(token, dict) else token for name, token in tokens.items()}
        return cls(source, **{name: token for name, token in plain.items() if token is not None})


class Guard:
    """Hides control tokens that stand in a message's text while the template runs, so that only its own are control tokens.

    A hidden one is written as its number between two U+FDD0, a code point that Unicode keeps free for such use. One that
    stands in the text itself is hidden in the same way, so nothing can be mistaken.
    """

    MARK = "\ufdd0"

    def __init__(self, special: Iterable[str]) -> None:
        self._names = [*sorted(special, key=len, reverse=True), self.MARK]  # longest first, as the library matches
        self._any = re.compile("|".join(re.escape(name) for name in self._names))
        self._hidden = re.compile(f"{self.MARK}([0-9]+){self.MARK}")
        self.used = False

    def hide(self, value: Any) -> Any:
        """The same strings, lists and dicts, with every control token in a string hidden."""
        if isinstance(value, str):
            safe = self._any.sub(lambda m: f"{self.MARK}{self._names.index(m[0])}{self.MARK}", value)
            self.used |= safe != value
            return safe
        if isinstance(value, dict):
            return {key: self.hide(item) for key, item in value.items()}
        return [self.hide(item) for item in value] if isinstance(value, list | tuple) else value

    def show(self, text: str) -> str:
        return self._hidden.sub(lambda m: self._names[int(m[1])], text)

    def split(self, rendered: str) -> list[str]:
        """The rendered text cut at the template's own control tokens, which are pieces of their own."""
        names = "|".join(re.escape(name) for name in self._names[:-1])
        return [piece for piece in re.split(f"({names})", rendered) if piece] if names else [rendered]


def _rebuild(source: str, variables: dict[str, str]) -> ChatTemplate:
    return ChatTemplate(source, **variables)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)  # Jinja's own escapes < and > for HTML


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _outline(messages: Sequence[Any]) -> str:
    return str([{key: type(value).__name__ for key, value in m.items()} if isinstance(m, dict) else m for m in messages])[:120]

"""Lesson 13: a provider's rules, read from the data file beside this module. Knows nothing about requests or text.

    rules_of("anthropic")            # the file's own values
    rules_of("anthropic:1h:4096")    # with its variants "1h" and "4096" laid over them

A price is a factor of the base price of an input token, so money is `input_cost(...) * base price`, and the caller names the
base price. Every file says what it was taken from, and when: prices and limits move, files do not.
"""

import tomllib
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

from kvcourse.errors import InputError, UnknownName
from kvcourse.ledger import Prices

Matching = Literal["longest_prefix", "breakpoints"]
_FOLDER = Path(__file__).parent
_NAMES = {"title", "as_of", "matching", "minimum_tokens", "granularity_tokens", "max_breakpoints", "lookback_blocks"} | {
    "lifetime_seconds", "renewed", "note", "price", "usage", "source", "variant"}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A document, and its date, or the day its stored copy was read."""

    title: str
    date: date


@dataclass(frozen=True)
class UsageFields:
    """Where a provider's usage object says what, as dotted paths; the first that is there counts.

    cached_in_prompt: whether the prompt figure includes what was read from the cache, and what was written.
    """

    cached_in_prompt: bool
    prompt: tuple[str, ...]
    cached: tuple[str, ...]
    completion: tuple[str, ...]
    written: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rules:
    """What a provider keeps, and what it charges.

    matching: "longest_prefix" finds whatever an earlier request began with; "breakpoints" only what ended at a mark.
    lifetime_seconds None: no end is stated. renewed: each use starts it again.
    read, write: factors of the base price of an input token, for what is found and for what is stored.
    """

    name: str
    title: str
    as_of: date
    note: str
    sources: tuple[Source, ...]
    matching: Matching
    minimum_tokens: int
    granularity_tokens: int
    max_breakpoints: int | None
    lookback_blocks: int | None
    lifetime_seconds: float | None
    renewed: bool
    read: float
    write: float
    usage: UsageFields

    def reusable(self, shared_tokens: int) -> int:
        """How much of a shared prefix of so many tokens counts: nothing below the minimum, else whole steps."""
        if shared_tokens < self.minimum_tokens:
            return 0
        return shared_tokens // self.granularity_tokens * self.granularity_tokens

    def input_cost(self, prompt_tokens: int, cached_tokens: int, written_tokens: int = 0) -> float:
        """The price of a prompt, in base-price tokens. written: of those computed, how many were stored on request."""
        plain = prompt_tokens - cached_tokens - written_tokens
        if min(plain, cached_tokens, written_tokens) < 0:
            got = f"prompt {prompt_tokens}, cached {cached_tokens}, written {written_tokens}"
            raise InputError("These counts contradict each other.", expected="0 <= cached + written <= prompt", got=got,
                             todo="Count each prompt token once.")  # fmt: skip
        return plain + cached_tokens * self.read + written_tokens * self.write

    def prices(self, completion: float = 5.0) -> Prices:
        """Prices for a ledger, in base-price tokens. Everything computed is taken as stored, so it costs what a write costs.

        completion: of a generated token over an input token; the rules do not say, and 4 to 8 is common.
        """
        return Prices(computed=self.write, cached=self.read, completion=completion)


def known_providers() -> list[str]:
    """Names of all providers there are rules for."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def rules_of(provider: str) -> Rules:
    """The rules of a provider, with the variants named behind colons. Raises: UnknownName, which lists the known ones."""
    name, *variants = provider.split(":") if isinstance(provider, str) else [provider]
    if name not in known_providers():
        raise UnknownName("There is no such provider.", expected=", ".join(known_providers()), got=repr(provider),
                          todo="Choose one of these, or add its rules as a file.")  # fmt: skip
    return load_rules(_FOLDER / f"{name}.toml", variants)


def load_rules(path: Path, variants: list[str] | None = None) -> Rules:
    """The rules in a file, checked. Raises: InputError for a file that holds none; UnknownName for a variant it has not."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path.name} cannot be read.", expected="a TOML file of rules", got=error, todo="Mend it.") from error
    found, known = data.pop("variant", {}), path.stem
    for variant in variants or []:
        if variant not in found:
            raise UnknownName(f"{known} has no such variant.", expected=", ".join(found) or "none", got=repr(variant),
                              todo=f"Leave it out, or add it to {path.name}.")  # fmt: skip
        data = _laid_over(data, found[variant])
        known += f":{variant}"
    return _Checked(path.name, data).rules(known)


def _laid_over(data: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """`data` with what `change` says otherwise, tables inside it too."""
    nested = {name: _laid_over(data[name], value) for name, value in change.items() if isinstance(value, dict)}
    return {**data, **change, **nested}


@dataclass(frozen=True)
class _Checked:
    """What a file holds. Each value is taken by what it has to be."""

    file: str
    data: dict[str, Any]

    def rules(self, name: str) -> Rules:
        strange = set(self.data) - _NAMES
        if strange:
            raise self._fault(f"has {', '.join(sorted(strange))}", ", ".join(sorted(_NAMES)), "another name")
        if self.data.get("matching") not in ("longest_prefix", "breakpoints"):
            raise self._fault("matching", "longest_prefix or breakpoints", self.data.get("matching"))
        price, usage = self._table("price"), self._table("usage")
        return Rules(
            name, self._text("title"), self._date(self.data, "as_of"), self._text("note"), self._sources(),
            self.data["matching"], self._whole("minimum_tokens", 0), self._whole("granularity_tokens", 1),
            self._optional("max_breakpoints"), self._optional("lookback_blocks"), self._optional("lifetime_seconds"),
            self._flag(self.data, "renewed", True), self._factor(price, "read"), self._factor(price, "write"),
            UsageFields(self._flag(usage, "cached_in_prompt"), self._paths(usage, "prompt"), self._paths(usage, "cached"),
                        self._paths(usage, "completion"), self._paths(usage, "written", needed=False)),
        )  # fmt: skip

    def _sources(self) -> tuple[Source, ...]:
        listed = self.data.get("source")
        if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
            raise self._fault("source", "one table or more, with title and date", listed)
        return tuple(Source(_Checked(self.file, one)._text("title"), self._date(one, "date")) for one in listed)

    def _text(self, name: str) -> str:
        value = self.data.get(name)
        if not isinstance(value, str) or not value:
            raise self._fault(name, "some text", value)
        return value

    def _date(self, table: dict[str, Any], name: str) -> date:
        value = table.get(name)
        if type(value) is not date:
            raise self._fault(name, "a date such as 2026-01-31", value)
        return value

    def _whole(self, name: str, least: int) -> int:
        value = self.data.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._fault(name, f"a whole number, {least} or more", value)
        return value

    def _optional(self, name: str) -> int | None:
        return None if name not in self.data else self._whole(name, 1)

    def _table(self, name: str) -> dict[str, Any]:
        value = self.data.get(name)
        if not isinstance(value, dict):
            raise self._fault(name, "a table", value)
        return value

    def _flag(self, table: dict[str, Any], name: str, default: bool | None = None) -> bool:
        value = table.get(name, default)
        if not isinstance(value, bool):
            raise self._fault(name, "true or false", value)
        return value

    def _factor(self, table: dict[str, Any], name: str) -> float:
        value = table.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 100:
            raise self._fault(f"price.{name}", "a factor of the base price, 0 or more", value)
        return float(value)

    def _paths(self, table: dict[str, Any], name: str, needed: bool = True) -> tuple[str, ...]:
        value = table.get(name, None if needed else [])
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value) or (needed and not value):
            raise self._fault(f"usage.{name}", "a list of field names", value)
        return tuple(value)

    def _fault(self, name: str, expected: str, got: object) -> InputError:
        return InputError(f"{self.file}: {name} is missing or wrong.", expected=expected, got=repr(got), todo="Mend the file.")

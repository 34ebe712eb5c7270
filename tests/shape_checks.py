"""Beartype for jaxtyping's import hook, which decorates methods one by one, where beartype cannot tell what `Self` is."""

from typing import Any, Self

from beartype import BeartypeConf, beartype

checks = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int will do where a float is asked for: temperature=0


def checked(function):
    annotations = getattr(function, "__annotations__", {})
    function.__annotations__ = {name: Any if hint is Self else hint for name, hint in annotations.items()}
    return checks(function)

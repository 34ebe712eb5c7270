"""Beartype for jaxtyping's import hook, which decorates methods one by one, where beartype cannot tell what `Self` is."""

from typing import Any, Self

from beartype import beartype


def checked(function):
    annotations = getattr(function, "__annotations__", {})
    function.__annotations__ = {name: Any if hint is Self else hint for name, hint in annotations.items()}
    return beartype(function)

"""Every lesson: the checks of the exercises. A learner needs five names of it: check, hint, reset, progress and in_short.

Knows nothing about grading. Importing it costs nothing: PyTorch is loaded by the first check.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers see; __getattr__ below serves the same names
    from kvcourse.checks.notebook import CheckFailed, check, hint, in_short, progress, reset

__all__ = ["CheckFailed", "check", "hint", "in_short", "progress", "reset"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kvcourse.checks' has no attribute {name!r}")
    return getattr(import_module("kvcourse.checks.notebook"), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


class _Package(ModuleType):
    """`progress` is a function here and also a module: importing that module must not put it in the function's place."""

    @property
    def progress(self) -> Any:
        return import_module("kvcourse.checks.notebook").progress

    @progress.setter
    def progress(self, module: ModuleType) -> None:
        """The import system sets a submodule as an attribute; it is found in sys.modules all the same."""


sys.modules[__name__].__class__ = _Package

"""Maintainers only: a tiny repository of sources in a temporary folder, built by the real builder."""

from collections.abc import Callable
from pathlib import Path

import pytest

LESSON = """\
# %% [markdown] id="title"
# # A lesson

# %% id="words"
print("one")
print("two")

# %% id="noise" tags=["volatile"]
import time

print(time.perf_counter_ns())
"""

EXERCISE = '''\
# %% [markdown] id="title"
# # An exercise

# %% id="join" exercise="6.1"
class Joiner:
    def join(self, a, b):
        """Both, one after the other."""
        ### BEGIN SOLUTION
        both_lists = [*a, *b]
        return both_lists
        ### END SOLUTION


# %% id="look"
print("not shown to learners")

# %% id="check-join" tags=["check"]
print("6.1:", Joiner().join([1], [2]))
'''


@pytest.fixture(scope="session")
def lesson() -> str:
    return LESSON


@pytest.fixture(scope="session")
def exercise() -> str:
    return EXERCISE


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """write("lessons/01_a", text): a source in a repository of its own, whose root is tmp_path."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / "sources" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        return path

    return write

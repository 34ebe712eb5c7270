"""One sealed grader and one sandbox for all tests here: starting either costs seconds, a task some hundredths of one."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvcourse.grader.judge import autopsy
from kvcourse.grader.remote import Line, RemoteAnswer
from kvcourse.grader.sealed import SealedGrader
from kvcourse.grader.zygote import Zygote

SEED = 20240607


@pytest.fixture(scope="session")
def sealed() -> Iterator[SealedGrader]:
    with SealedGrader(SEED) as grader:
        yield grader


@pytest.fixture(scope="session")
def the_zygote() -> Iterator[Zygote]:
    """Held by this very process, so that a test can be the judge."""
    zygote = Zygote(("torch", "numpy"))
    yield zygote
    zygote.close()


class Worker:
    """A worker that has read in one function, `probe`. `held`: what it is held by."""

    def __init__(self, zygote: Zygote, source: str, withheld: tuple[str, ...] = (), support: tuple[str, ...] = ()) -> None:
        self.line = Line(zygote.start(), lambda why: autopsy(zygote, why))
        self.held = self.line.hello()
        self.line.support(support, "import os\nimport torch\n", withheld)
        self.fault = self.line.load("probe", source)
        self.answer = RemoteAnswer(self.line, "probe")


@pytest.fixture
def worker(the_zygote) -> Iterator[Callable[..., Worker]]:
    """worker(source) -> a fresh worker; the one before it is ended."""
    made: list[Worker] = []

    def start(source: str, **more: Any) -> Worker:
        made.append(Worker(the_zygote, source, **more))
        return made[-1]

    yield start
    for one in made:
        one.line.close()
    the_zygote.stop()

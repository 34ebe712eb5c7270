"""What the tests of the pages share. They run where they are named, `pytest tests/browser` or `make test-browser`, and nowhere
else: they need Chromium and Playwright, which `make test` does not install.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parents[1] / "build" / "browser"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Without a network Chromium would ask for its own services all the time; as root it has no sandbox.
FLAGS = ("disable-gpu", "disable-quic", "disable-background-networking", "disable-component-update", "disable-sync")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only where this folder, or something in it, was named."""
    named = [Path(config.invocation_params.dir, argument.split("::")[0]).resolve() for argument in config.args]
    return None if any(path.is_relative_to(HERE) for path in named) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A lesson's tests one after the other: it is opened and run once."""
    mine = [item for item in items if HERE in item.path.parents]
    order = {item: place for place, item in enumerate(mine)}
    mine.sort(key=lambda item: (item.path.name, _lesson(item), order[item]))
    places = [place for place, item in enumerate(items) if item in order]
    for place, item in zip(places, mine, strict=True):
        items[place] = item


def _lesson(item: pytest.Item) -> str:
    call = getattr(item, "callspec", None)
    return str(call.params.get("lesson", "")) if call else ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """A test that failed leaves a picture of what was on the page."""
    report = yield
    if report.failed and HERE in item.path.parents:
        for name, value in getattr(item, "funcargs", {}).items():
            page = getattr(getattr(value, "notebook", value), "page", None)
            if page is not None and not page.is_closed():
                PICTURES.mkdir(parents=True, exist_ok=True)
                safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in item.name)
                page.screenshot(path=PICTURES / f"failed-{safe}-{name}.png")
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was measured: printed, and never asserted."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    properties = [one for report in reports for one in getattr(report, "user_properties", ())]
    measured = [(name, value) for name, value in dict(properties).items() if name.startswith("measured ")]
    if measured:
        terminalreporter.section("measured in the browser, on this machine, now")
        for name, value in measured:
            terminalreporter.line(f"{name.removeprefix('measured '):<46} {value}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    found = os.environ.get("CHROMIUM") or next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    assert found, "No Chromium here. Install it (Debian: apt install chromium), or name it: CHROMIUM=/path/to/chromium"
    flags = [f"--{flag}" for flag in FLAGS] + (["--no-sandbox"] if os.geteuid() == 0 else [])
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from jupyter_lab import Lab

    running = Lab(tmp_path_factory.mktemp("lab"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def pictures() -> Path:
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES

"""Maintainers only: lays out what Sphinx reads: every page of the site, in one folder. Knows nothing about HTML.

A page keeps its path in the repository, so that links between pages stay what they are. Two have another place: the README is
the home page, and what lies in docs/site is at the top.
"""

import importlib
import inspect
import json
import re
import shutil
from pathlib import Path
from typing import Any

import kvcourse
from kvcourse.course import LESSONS
from tools import docs_map
from tools.site.links import Site, Unknown, from_page, rewritten

NOTEBOOK_FOLDERS = ("notebooks", "exercises")
MARKDOWN = ("*.md", "docs/**/*.md", "benchmarks/*.md")
IMAGES = (".png", ".svg", ".jpg")
OWN = "docs/site"  # pages that exist on the site only
HOME = "README.md"


class PageError(Exception):
    """A page that the site cannot show. The message says which, and why."""


def lay_out(root: Path, target: Path) -> Site:
    """Write everything that Sphinx reads into `target`, which is emptied first.

    Raises: PageError, which lists every link that leads nowhere.
    """
    shutil.rmtree(target, ignore_errors=True)
    site = site_of(root)
    unknown: list[Unknown] = []
    generated = docs_map.generated(root)  # as they should be now: nobody has to remember to write them first
    for page in sorted(site.pages):
        if page.endswith(".ipynb"):
            unknown += _write_notebook(root, target, page, site)
        else:
            text = generated.get(root / page) or (root / page).read_text(encoding="utf-8")
            unknown += _write_markdown(root, target, page, text, site)
    for image in _images(root):
        _copied(root / image, target / image.removeprefix(f"{OWN}/"))
    if unknown:
        raise PageError("Links that lead nowhere:\n" + "\n".join(f"  {one}" for one in unknown))
    return site


def site_of(root: Path) -> Site:
    """Every page that there is now."""
    notebooks = [path for folder in NOTEBOOK_FOLDERS for path in (root / folder).glob("[0-9][0-9]_*.ipynb")]
    markdown = [path for pattern in MARKDOWN for path in root.glob(pattern)]
    pages = {path.relative_to(root).as_posix() for path in (*notebooks, *markdown)}
    moved = {page: page.removeprefix(f"{OWN}/") for page in pages if page.startswith(f"{OWN}/")}
    if f"{OWN}/index.md" not in moved:
        raise PageError(f"{OWN}/index.md is missing: it holds the site's table of contents.")
    pages.discard(f"{OWN}/index.md")
    return Site(
        pages=frozenset(pages),
        is_file=lambda path: (root / path).is_file(),
        is_folder=lambda path: (root / path).is_dir(),
        lessons=_by_number(pages, "notebooks"),
        exercises=_by_number(pages, "exercises"),
        moved={**moved, HOME: "index.md"},
    )


def _by_number(pages: set[str], folder: str) -> dict[int, str]:
    return {lesson.number: page for lesson in LESSONS if (page := f"{folder}/{lesson.name}.ipynb") in pages}


def _images(root: Path) -> list[str]:
    found = [path for folder in ("docs", "benchmarks") for path in (root / folder).rglob("*") if path.suffix in IMAGES]
    return [path.relative_to(root).as_posix() for path in found if "static" not in path.parts]


def _copied(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _write_markdown(root: Path, target: Path, page: str, text: str, site: Site) -> list[Unknown]:
    text, unknown = rewritten(text, page, site)
    if page == HOME:
        text = _home(text, (root / OWN / "index.md").read_text(encoding="utf-8"), site)
    if page.startswith(f"{OWN}/api/"):
        text = text.replace("<!-- public names -->", public_names())
        text = re.sub(r"<!-- names of ([\w.]+) -->", lambda found: names_of(found[1], text), text)
    if page == "docs/glossary.md":
        text = with_lesson_links(text, page, site)
    path = target / site.moved.get(page, page)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return unknown


def _home(readme: str, contents: str, site: Site) -> str:
    """The README, and behind it the table of contents, of which this page shows nothing but the menu."""
    for mark, pages in (("lessons", site.lessons), ("exercises", site.exercises)):
        contents = contents.replace(f"<!-- {mark} -->", "\n".join(pages[number] for number in sorted(pages)))
    return f"{readme.rstrip()}\n\n{contents}"


def with_lesson_links(glossary: str, page: str, site: Site) -> str:
    """The column that says in which lesson a word is introduced, with links."""

    def linked(found: re.Match[str]) -> str:
        lesson = site.lessons.get(int(found[1]))
        return f"| [{found[1]}]({from_page(page, lesson, site)}) |" if lesson else found[0]

    return re.sub(r"\| (\d\d) \|", linked, glossary)


def public_names() -> str:
    """A table of the names in `kvcourse`: each with the first sentence of its docstring, and a link to the rest."""
    rows = ["| | |", "|---|---|"]
    for name in kvcourse.__all__:
        value = getattr(kvcourse, name)
        if callable(value):
            sentence = re.split(r"(?<=[.:])\s", (value.__doc__ or "").strip().replace("\n", " "))[0].rstrip(".:") + "."
            rows.append(f"| {{py:obj}}`{name} <{value.__module__}.{value.__qualname__}>` | {sentence} |")
    return "\n".join(rows)


def names_of(package: str, text: str) -> str:
    """Entries for the names of a package that a page does not have yet."""
    module = importlib.import_module(package)
    entries = []
    for name in module.__all__:
        value = getattr(module, name)
        place = f"{getattr(value, '__module__', '')}.{name}"
        if callable(value) and not re.search(rf"{re.escape(place)}$", text, re.MULTILINE):
            entries.append(f".. auto{'class' if inspect.isclass(value) else 'function'}:: {place}")
    return "\n".join(["```{eval-rst}", *entries, "```"])


def _write_notebook(root: Path, target: Path, page: str, site: Site) -> list[Unknown]:
    """The notebook with its links rewritten, its exercise or lesson named under the title, and the notebook itself to take."""
    notebook = json.loads((root / page).read_text(encoding="utf-8"))
    unknown: list[Unknown] = []
    heading = ""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text, found = rewritten("".join(cell["source"]), page, site)
            cell["source"], unknown = text, unknown + found
            heading = next(iter(re.findall(r"^#+ (.+)$", text, re.MULTILINE)), heading)
        else:
            describe(cell, heading)
    first = notebook["cells"][0]
    title, newline, rest = first["source"].partition("\n")
    if not title.startswith("# "):
        raise PageError(f"{page}: its first cell is no title (# ...), but {title!r}.")
    first["source"] = f"{title}\n\n{companions(page, site)}\n{newline}{rest}"
    path = target / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook, ensure_ascii=False), encoding="utf-8")
    _copied(root / page, target / "files" / page)  # as committed, for who wants to run it
    return unknown


def describe(cell: dict[str, Any], heading: str) -> None:
    """Give a cell's picture the text that stands for it: its own, where the figure brought one, else what it is about."""
    for output in cell["outputs"]:
        about = output.get("metadata", {}).get("image/png")
        if "image/png" in output.get("data", {}):
            words = " ".join((about or {}).get("alt", "").split())
            cell["metadata"]["mystnb"] = {"image": {"alt": words or f"Figure: {heading}"}}


def companions(page: str, site: Site) -> str:
    """One line: the exercise of a lesson, the lesson of an exercise, and the notebook's file."""
    folder, _, name = page.partition("/")
    number = int(name[:2])
    others, words = (site.exercises, "Exercise") if folder == "notebooks" else (site.lessons, "Lesson")
    what = [f"{{download}}`Notebook </files/{page}>`"]
    if number in others:
        what.insert(0, f"[{words} {number:02d}]({from_page(page, others[number], site)})")
    if folder == "exercises":
        what.append("solve it in `work/`, where `make lab` puts your copy; the outputs here are those of a finished one")
    else:
        what.append("figures stand still here; `make lab` runs them")
    return "{.companions}\n" + " · ".join(what)

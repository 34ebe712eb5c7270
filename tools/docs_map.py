"""Maintainers only: write docs/map.md and the README's table of lessons. Knows nothing about what modules do: it quotes them.

python -m tools.docs_map            write both
python -m tools.docs_map --check    exit 1 if either is out of date
"""

import argparse
import ast
import re
import sys
from pathlib import Path

from kvcourse.course import LESSONS

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("kvcourse", "benchmarks", "tools")
START, END = "<!-- lessons: written by python -m tools.docs_map -->", "<!-- end of lessons -->"


def module_map(root: Path) -> str:
    """docs/map.md: one line for each module, its docstring's first line."""
    lines = [
        "# Map of the code",
        "",
        "One line for each module, quoted from its docstring by `python -m tools.docs_map`. Do not edit.",
    ]
    for folder in FOLDERS:
        modules = sorted((root / folder).rglob("*.py"))
        described = [(path, first_line(path)) for path in modules]
        rows = [f"| [{shown(name)}](../{name}) | {line} |" for path, line in described if line and (name := short(path, root))]
        if rows:
            lines += ["", f"## {folder}", "", "| module | what it is |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"


def first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n")[0].replace("|", "\\|")


def shown(name: str) -> str:
    """A path as Markdown shows it: without this, __init__ would be init in bold."""
    return name.replace("__", "\\_\\_")


def short(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def lesson_table(root: Path) -> str:
    """The lessons, with links to those whose notebooks exist."""
    lines = ["| | question | builds | lesson | exercise |", "|---|---|---|---|---|"]
    for lesson in LESSONS:
        exercise = linked(root, f"exercises/{lesson.name}.ipynb") if lesson.has_exercise else "–"
        notebook = linked(root, f"notebooks/{lesson.name}.ipynb")
        lines.append(f"| {lesson.number:02d} | {lesson.question} | {lesson.builds} | {notebook} | {exercise} |")
    return "\n".join(lines)


def linked(root: Path, name: str) -> str:
    return f"[open]({name})" if (root / name).is_file() else "planned"


def readme_with_table(text: str, table: str) -> str:
    pattern = re.compile(re.escape(START) + ".*?" + re.escape(END), re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"README.md must hold exactly one pair of marks: {START} and {END}")
    return pattern.sub(lambda match: f"{START}\n{table}\n{END}", text)


def generated(root: Path) -> dict[Path, str]:
    """What each generated page should hold now."""
    readme = root / "README.md"
    return {
        root / "docs" / "map.md": module_map(root),
        readme: readme_with_table(readme.read_text(encoding="utf-8"), lesson_table(root)),
    }


def stale(root: Path) -> list[str]:
    """Names of generated pages that are out of date."""
    return [
        short(path, root)
        for path, text in generated(root).items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/map.md and the README's table of lessons.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if one is out of date")
    if parser.parse_args().check:
        for name in stale(ROOT):
            print(f"{name} is out of date: run python -m tools.docs_map", file=sys.stderr)
        return 1 if stale(ROOT) else 0
    for path, text in generated(ROOT).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

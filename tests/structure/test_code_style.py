"""The rules of style that drift unless something checks them."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(path for folder in ("kvcourse", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
TOOLS = sorted((ROOT / "tools").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FIRST_LINE = re.compile(
    r"(Lesson \d\d( onwards)?|Lessons \d\d(, \d\d)* and \d\d|Lessons \d\d to \d\d|Every lesson|Maintainers only): \S"
)
FUNCTION_LINES = 60
MODULE_LINES = 350


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


@pytest.mark.parametrize("path", MODULES + TOOLS, ids=short)
def test_a_module_says_in_its_first_line_which_lesson_it_belongs_to(path):
    first = docstring(path).split("\n")[0]
    assert FIRST_LINE.match(first), f"{short(path)} begins {first!r}"


@pytest.mark.parametrize("path", [path for path in MODULES if path.name != "__init__.py"], ids=short)
def test_a_module_says_what_it_knows_nothing_about(path):
    assert re.search(r"[Kk]nows? (only|nothing|no\b|not\b|\S+ alone)|\balone\b|[Nn]o module, no cache", docstring(path)), short(
        path
    )


@pytest.mark.parametrize("path", MODULES + TOOLS, ids=short)
def test_functions_and_files_stay_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MODULE_LINES
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = {
        node.name: node.end_lineno - node.lineno + 1 for node in functions if node.end_lineno - node.lineno >= FUNCTION_LINES
    }
    assert long == {}


@pytest.mark.parametrize("path", MODULES, ids=short)
def test_annotations_are_checked_as_they_are_written(path):
    assert "from __future__ import annotations" not in path.read_text(encoding="utf-8")


def silent_skips(source: str) -> list[int]:
    """Lines of skips without a reason, and of markers that skip without one."""
    lines = []
    tree = ast.parse(source)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            keywords = {keyword.arg for keyword in node.keywords}
            if name in {"pytest.skip", "unittest.skip"} and not (node.args or keywords & {"reason", "msg"}):
                lines.append(node.lineno)
            if name in {"pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail"} and "reason" not in keywords:
                lines.append(node.lineno)
            if name == "pytest.importorskip":  # a missing library is a broken set-up, never a reason to pass
                lines.append(node.lineno)
        elif id(node) not in called and ast.unparse(node) in {"pytest.mark.skip", "pytest.mark.xfail"}:
            lines.append(node.lineno)
    return sorted(lines)


@pytest.mark.parametrize("path", TESTS, ids=short)
def test_no_test_is_skipped_without_a_reason(path):
    assert silent_skips(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "silent"),
    [
        ("pytest.skip()", True),
        ("pytest.skip('no trace here')", False),
        ("@pytest.mark.skip\ndef test(): ...", True),
        ("@pytest.mark.skipif(True)\ndef test(): ...", True),
        ("@pytest.mark.skip(reason='x')\ndef test(): ...", False),
        ("@pytest.mark.skipif(True, reason='x')\ndef test(): ...", False),
        ("torch = pytest.importorskip('torch')", True),
    ],
)
def test_the_search_for_silent_skips_finds_them(source, silent):
    assert bool(silent_skips(source)) is silent

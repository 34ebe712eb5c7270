"""Shown code is the package's own, the same on every machine, and a diff says with signs what it says with colours."""

import html
import re
import subprocess
import sys
from functools import wraps

import pytest

import kvcourse.config
from kvcourse.config import GPTConfig, kv_bytes_per_token
from kvcourse.errors import InputError, KVCourseError
from kvcourse.viz import show_diff, show_source, source

BEFORE = "def f(x):\n    # a < b\n    y = x + 1\n    return y\n"
AFTER = "def f(x, n):\n    # a < b\n    y = x + n\n    return y\n"


def plain(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", markup))


def test_a_function_is_shown_with_its_place_in_the_package_and_its_own_line_numbers() -> None:
    lines = repr(show_source(kv_bytes_per_token)).splitlines()
    assert lines[0] == "kvcourse/config.py  kv_bytes_per_token"
    assert re.fullmatch(r" *1  def kv_bytes_per_token\(.*", lines[1])


@pytest.mark.parametrize(
    "obj", [kv_bytes_per_token, GPTConfig, GPTConfig.__post_init__, kvcourse.config, kvcourse, "x = '<b>'\n"]
)
def test_html_and_plain_text_say_the_same(obj: object) -> None:
    view = show_source(obj)
    strip = lambda text: [line.rstrip() for line in text.splitlines()]  # noqa: E731
    assert strip(plain(view._repr_html_())) == strip(repr(view))


def test_a_property_of_a_page_no_script_no_class_no_style_sheet() -> None:
    for view in (show_source(GPTConfig), show_diff(BEFORE, AFTER), show_source("'<script>alert(1)</script>'")):
        markup = view._repr_html_()
        assert set(re.findall(r"<(\w+)", markup)) == {"pre", "span"}
        assert set(re.findall(r" ([a-z-]+)=\"", markup)) == {"style"}
        assert "background:" in markup and "color:" in markup  # its own, so that a dark page changes nothing


def test_modules_are_named_by_file() -> None:
    assert repr(show_source(kvcourse.config)).startswith("kvcourse/config.py\n")
    assert repr(show_source(kvcourse)).startswith("kvcourse/__init__.py\n")


def test_docstrings_can_be_left_out_and_only_docstrings_are() -> None:
    text = (
        'class A:\n    """Doc."""\n\n    x = """kept"""\n\n    def f(self):\n        """Two\n        lines."""\n'
        '        return 1\n\n    def g(self):\n        """All there is."""\n'
    )
    kept = 'class A:\n    x = """kept"""\n\n    def f(self):\n        return 1\n\n    def g(self):\n        """All there is."""'
    assert show_source(text, strip_docstring=True).code.text == kept
    assert show_source(text).code.text == text.strip("\n")


def test_a_method_is_dedented_and_a_decorated_function_is_unwrapped() -> None:
    def decorate(function: object) -> object:
        @wraps(function)
        def wrapper() -> None: ...

        return wrapper

    @decorate
    def shown() -> int:
        return 1

    assert show_source(GPTConfig.__post_init__).code.lines[0].startswith("def __post_init__")
    assert show_source(shown).code.lines[-1] == "    return 1"


def test_a_diff_keeps_its_signs_with_and_without_colour() -> None:
    view = show_diff(BEFORE, AFTER, labels=("lesson 02", "lesson 06"), context=0)
    assert repr(view).splitlines() == [
        "--- lesson 02",
        "+++ lesson 06",
        "@@ -1,1 +1,1 @@",
        "-def f(x):",
        "+def f(x, n):",
        "@@ -3,1 +3,1 @@",
        "-    y = x + 1",
        "+    y = x + n",
    ]
    rows = view._repr_html_().splitlines()
    assert [plain(row)[:2] for row in rows[3:5]] == ["- ", "+ "]
    assert ("background:#FDE4E1" in rows[3], "background:#DDF4E1" in rows[4]) == (True, True)
    assert all("display:block" in row for row in rows[3:5])  # coloured rows end at one edge, the box's


def test_a_diff_applies() -> None:
    """Every line of both texts is in a diff with enough context, in order, under the right sign."""
    lines = repr(show_diff(BEFORE, AFTER, context=99)).splitlines()[3:]
    assert [line[1:] for line in lines if line[0] in " -"] == BEFORE.splitlines()
    assert [line[1:] for line in lines if line[0] in " +"] == AFTER.splitlines()


def test_empty_ranges_count_as_diff_tools_count_them() -> None:
    assert "@@ -1,0 +2,1 @@" in repr(show_diff("a\nb\n", "a\nx\nb\n", context=0))
    assert "@@ -2,1 +1,0 @@" in repr(show_diff("a\nx\nb\n", "a\nb\n", context=0))


def test_equal_texts_say_so() -> None:
    view = show_diff(GPTConfig, GPTConfig)
    assert repr(view).endswith("= no difference") and plain(view._repr_html_()).endswith("= no difference\n")


def test_a_long_line_goes_on_below_further_in_than_it_began() -> None:
    def indents(view: object) -> list[tuple[float, float]]:
        """Of each row, in em: how far in all of it is, and how far back its first line is moved."""
        found = re.findall(r"padding-left:([\d.]+)em;text-indent:-([\d.]+)em", view._repr_html_())  # type: ignore[attr-defined]
        return [(float(all_of_it), float(first)) for all_of_it, first in found]

    text = "def f(x):\n    return x" + " + x" * 40
    for view, margin in ((show_source(text), 3), (show_diff("", text, context=0), 2)):
        assert "white-space:pre-wrap" in view._repr_html_() and "overflow-x" not in view._repr_html_()
        rows = indents(view)
        assert len(rows) == len(repr(view).splitlines()) and all(deep == back for deep, back in rows)
        shallow, deep = (round(row[0] / source._CHARACTER) for row in rows[-2:])
        assert (shallow, deep) == (margin + 4, margin + 8)


def test_each_line_is_one_without_any_style() -> None:
    """GitHub and mail programs take styles away."""
    for view in (show_source(BEFORE), show_diff(BEFORE, AFTER)):
        assert len(plain(view._repr_html_()).splitlines()) == len(repr(view).splitlines())


def test_an_edit_elsewhere_in_the_file_changes_nothing() -> None:
    assert repr(show_diff(GPTConfig.__post_init__, kv_bytes_per_token)).count("@@ -1,") == 1


@pytest.mark.parametrize("obj", [len, int, 3, None, object()])
def test_what_has_no_python_source_is_refused(obj: object) -> None:
    with pytest.raises(KVCourseError, match="no Python source"):
        show_source(obj)


def test_negative_context_is_refused() -> None:
    with pytest.raises(InputError, match="counted from 0"):
        show_diff("a", "b", context=-1)


def test_code_written_in_a_notebook_is_shown() -> None:
    """In a fresh IPython: a class there has no file, and inspect does not find it before Python 3.13."""
    cell = (
        "import functools\\n\\n@functools.total_ordering\\nclass Mine:\\n    x = 1\\n\\n    def __lt__(self, other):\\n"
        "        return True\\n\\ndef after():\\n    return 2"
    )
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        f'shell.run_cell("{cell}", store_history=True)\n'
        'shell.run_cell("from kvcourse.viz import show_source; print(show_source(Mine)); print(show_source(after))")\n'
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [
        "this notebook  Mine",
        "1  @functools.total_ordering",
        "2  class Mine:",
        "3      x = 1",
        "4",
        "5      def __lt__(self, other):",
        "6          return True",
        "this notebook  after",
        "1  def after():",
        "2      return 2",
    ], done.stdout + done.stderr

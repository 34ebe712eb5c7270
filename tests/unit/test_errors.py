"""Every fault this package raises on purpose is one family, and says expected, got and what to do."""

import ast
import inspect
import pickle
from pathlib import Path

import pytest

import kvcourse
from kvcourse import errors
from kvcourse.errors import CacheFull, KVCourseError

CHILDREN = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KVCourseError)]
SOURCES = sorted(Path(kvcourse.__file__).parent.rglob("*.py"))


def test_the_message_reads_expected_got_and_what_to_do_in_that_order():
    fault = CacheFull("The cache is full.", expected="at most 64 tokens", got="65", todo="Make it with capacity=65 or more.")
    assert str(fault) == "The cache is full. Expected at most 64 tokens; got 65. Make it with capacity=65 or more."
    assert (fault.fault, fault.expected, fault.got) == ("The cache is full.", "at most 64 tokens", "65")


def test_a_got_of_none_or_zero_is_said_too():
    assert "got None" in str(KVCourseError("X.", expected="a number", todo="Y."))
    assert "got 0." in str(KVCourseError("X.", expected=1, got=0))


@pytest.mark.parametrize("kind", CHILDREN, ids=lambda kind: kind.__name__)
def test_every_child_says_in_its_docstring_what_fault_it_is(kind):
    assert inspect.getdoc(kind)
    assert issubclass(kind, KVCourseError)


def raises_without_advice(path):
    """Where the package raises one of its own faults without all of expected, got and todo."""
    names = {kind.__name__ for kind in CHILDREN}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in names and node.args:
            given = {keyword.arg for keyword in node.keywords}
            if "todo" not in given or ("expected" in given) != ("got" in given):
                yield node.lineno


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_every_fault_says_what_to_do_and_never_expected_without_got(path):
    assert list(raises_without_advice(path)) == []


def test_a_fault_survives_the_way_between_processes():
    fault = CacheFull("The cache is full.", expected=1, got=2, todo="Empty it.")
    again = pickle.loads(pickle.dumps(fault))
    assert (type(again), str(again)) == (CacheFull, str(fault))

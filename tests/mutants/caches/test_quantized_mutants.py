"""The tests of tests/equivalence/test_quantized.py fail on each broken quantized cache: they run with it in place of ours."""

import inspect
from itertools import product

import pytest
from equivalence import test_quantized as proof
from mutants.caches.faulty_quantized import FAULTS

from kvcourse.caches.quantized import QuantizedCache


def cases(test):
    """Every combination of arguments that the test's parametrize marks give."""
    marks = [mark.args for mark in test.pytestmark if mark.name == "parametrize"] if hasattr(test, "pytestmark") else []
    axes = []
    for names, values in marks:
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        axes.append([dict(zip(names, value if len(names) > 1 else (value,), strict=True)) for value in values])
    for chosen in product(*axes):
        yield {name: value for part in chosen for name, value in part.items()}


def fails(test, kind, monkeypatch):
    """True if the test fails for some of its arguments when `kind` stands where QuantizedCache was."""
    monkeypatch.setattr(proof, "QuantizedCache", kind)
    for arguments in cases(test):
        assert set(arguments) == set(inspect.signature(test).parameters)
        try:
            test(**arguments)
        except (Exception, pytest.fail.Exception):
            return True
    return False


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_broken_quantized_cache_is_caught_by_the_test_it_breaks(fault, monkeypatch):
    assert fails(getattr(proof, fault.caught_by), fault, monkeypatch)


@pytest.mark.parametrize("name", sorted({fault.caught_by for fault in FAULTS}))
def test_one_that_is_only_renamed_is_not_caught(name, monkeypatch):
    assert not fails(getattr(proof, name), type("Renamed", (QuantizedCache,), {}), monkeypatch)

"""Lesson 14: all proofs, run and counted. Knows nothing about any of them."""

import importlib.util
import sys
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from kvcourse.certificate import (
    attention_proofs,
    budget_proofs,
    cache_proofs,
    long_proofs,
    memory_proofs,
    prefix_proofs,
    session_proofs,
)
from kvcourse.certificate.bed import Bed, Make
from kvcourse.certificate.bench import Bench
from kvcourse.certificate.entries import Certificate, Proof, Result
from kvcourse.errors import InputError
from kvcourse.models.base import CausalLM

PROOFS: tuple[Proof, ...] = tuple(
    sorted(
        (
            *attention_proofs.PROOFS, *cache_proofs.PROOFS, *memory_proofs.PROOFS, *prefix_proofs.PROOFS,
            *session_proofs.PROOFS, *budget_proofs.PROOFS, *long_proofs.PROOFS,
        ),
        key=lambda proof: proof.lesson,
    )
)  # fmt: skip
OnProof = Callable[[Result], object]


def certificate(
    make_cache: Make | None = None,
    *,
    model: CausalLM | None = None,
    lessons: Iterable[int] | None = None,
    on_proof: OnProof | None = None,
    show: bool = True,
) -> Certificate:
    """Run every proof of the course; print the table.

    make_cache: your own kind of cache, make_cache(model, capacity in tokens) -> an empty one: then only the proofs that can be
        asked of any cache, on it. model: a third model besides the two small ones. lessons: only theirs.
    on_proof: called with each result as it comes. Raises: InputError where no proof is left to run.
    """
    bed = Bed()
    if model is not None:
        bed.models["your model"] = model
    if make_cache is not None:
        bed = bed.own(make_cache)
    made = _run(_chosen(lessons, bed.asked), bed, on_proof)
    if show:
        print(made)
    return made


def prove(make_cache: Make, model: CausalLM | None = None, *, show: bool = False) -> Certificate:
    """Is this cache right? Everything that can be asked of any cache, on `model`, or on the two small models.

    make_cache: make_cache(model, capacity in tokens) -> an empty cache, or prefix cache. A cache with a window has that window.
    Raises: InputError if it makes no cache.
    """
    bed = (Bed() if model is None else Bed({"model": model}, narrow={})).own(make_cache)
    made = _run(_chosen(None, bed.asked), bed, None)
    if show:
        print(made)
    return made


def _chosen(lessons: Iterable[int] | None, asked: frozenset[str]) -> list[Proof]:
    wanted = None if lessons is None else set(lessons)
    possible = [one for one in PROOFS if not asked or one.own in asked]
    chosen = [one for one in possible if wanted is None or one.lesson in wanted]
    if not chosen:
        known = sorted({one.lesson for one in possible})
        raise InputError("There is no proof to run.", expected=f"lessons among {known}", got=sorted(wanted or ()),
                         todo="Choose one of these.")  # fmt: skip
    return chosen


def _run(proofs: list[Proof], bed: Bed, on_proof: OnProof | None) -> Certificate:
    start, results, threads = time.perf_counter(), [], torch.get_num_threads()
    if all(model.config.n_embd < 100 for model in bed.models.values()):
        torch.set_num_threads(1)  # handing products this small from thread to thread takes longer than computing them
    try:
        for proof in proofs:
            results.append(result_of(proof, bed))
            if on_proof is not None:
                on_proof(results[-1])
    finally:
        torch.set_num_threads(threads)
    return Certificate(tuple(results), time.perf_counter() - start, of_yours=bool(bed.asked))


def result_of(proof: Proof, bed: Bed) -> Result:
    """One proof, on what lies on the bed."""
    bench = Bench()
    with bench.case(proof.name):  # what is raised outside of a case
        proof.run(bed, bench)
    cases = len(bench.cases) - 1 or int(bench.comparisons > 0)
    counts = cases, bench.comparisons, bench.numbers
    for name, why in bed.refused.items():
        if name in bed.models:
            bench.skip(f"{name}, yours", why)
    return Result(proof.name, proof.lesson, *counts, tuple(bench.failures), tuple(bench.not_claimed))


def find_factory(place: str) -> Make:
    """What "package.module:name" or "file.py:name" names. Raises: InputError where there is nothing that can be called."""
    source, _, name = place.rpartition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # a command is not started from the folder where you are
    try:
        module: Any = _from_file(Path(source)) if source.endswith(".py") else import_module(source)
        made = getattr(module, name)
    except (Exception, SystemExit) as fault:  # whatever somebody's module raises while it is imported
        raise _not_found(place, f"{type(fault).__name__}: {fault}") from fault
    if not callable(made):
        raise _not_found(place, f"{type(made).__name__}, which cannot be called")
    factory: Make = made
    return factory


def _from_file(path: Path) -> Any:
    name = f"_cache_to_prove_{path.stem}"  # never the name of a module that others import
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _not_found(place: str, got: object) -> InputError:
    return InputError(f"There is no factory of caches at {place!r}.", expected="package.module:name, or file.py:name", got=got,
                      todo="Name a function of (model, capacity) that returns an empty cache.")  # fmt: skip

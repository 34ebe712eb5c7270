"""Every lesson: a batch on a Dask cluster. Knows nothing about notebooks: it sends what was read, and gets results back.

Workers need this package and nothing else: no shared folder. Each keeps a sealed grader as long as the batch lasts. Start them
with one thread for each core that is to grade: `dask worker ADDRESS --nworkers N --nthreads 1`.
"""

import asyncio
import atexit
import threading
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import kvcourse
from kvcourse.errors import InputError, SetupError
from kvcourse.grader.batch import Grader, MakeGrader, Prepared, grade
from kvcourse.grader.results import SubmissionResult

SCHEDULER_S = 10  # for a scheduler to answer
PATIENCE_S = 20  # for the first worker
LAST_WORDS_S = 10  # for workers to close their graders

# On a worker: the graders of each batch that are not at work, and the batches that are over.
_idle: dict[str, list[Grader]] = {}
_over: set[str] = set()
_lock = threading.Lock()


def on_cluster(
    prepared: Iterable[Prepared], seed: int, scheduler: str, make_grader: MakeGrader
) -> Iterator[tuple[int, SubmissionResult]]:
    """Yield (number, result) as they come.

    Dask gives up on what was on a worker each time one died: the guilty, and whoever stood in the queue behind it. So what it
    gave up on is tried again at the end, one by one: then only the guilty is left.

    Raises: SetupError without the extra; InputError if there is no cluster at that address, or one that cannot do this.
    """
    distributed = _distributed()
    batch = uuid.uuid4().hex
    with _connected(distributed, scheduler) as client:
        todo: dict[Any, tuple[int, Prepared]] = {}
        given_up: list[tuple[int, Prepared]] = []

        def submit(one: Prepared) -> Any:
            return client.submit(grade_there, batch, one, seed, make_grader, pure=False)

        try:
            for number, one in enumerate(prepared):
                todo[submit(one)] = (number, one)
            for future in distributed.as_completed(todo, loop=client.loop):
                number, one = todo[future]
                try:
                    result = future.result()
                except Exception:
                    given_up.append((number, one))
                else:
                    yield number, result
            for number, one in given_up:
                again = submit(one)
                todo[again] = (number, one)
                yield number, _last_result(again, one.name, seed)
        finally:
            _leave(client, list(todo), batch)


def _leave(client: Any, futures: list[Any], batch: str) -> None:
    """Drop what is at work and close this batch's graders. A worker that died meanwhile is not waited for: it has none."""

    def leave() -> None:
        with suppress(Exception):
            client.cancel(futures, force=True)
        with suppress(Exception):
            client.run(close_there, batch, on_error="ignore")

    leaving = threading.Thread(target=leave, daemon=True)
    leaving.start()
    leaving.join(LAST_WORDS_S)


def _last_result(future: Any, name: str, seed: int) -> SubmissionResult:
    try:
        return future.result()
    except Exception as error:
        fault = f"It could not be graded on the cluster: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return SubmissionResult(submission=name, fault=fault, seed=seed)


def grade_there(batch: str, prepared: Prepared, seed: int, make_grader: MakeGrader) -> SubmissionResult:
    """On a worker: grade one submission with a grader of this batch."""
    taken: list[Grader] = []

    def grader() -> Grader:
        if not taken:
            with _lock:
                mine = _idle.setdefault(batch, [])
                taken.extend([mine.pop()] if mine else [])
            if not taken:
                taken.append(make_grader(seed))
        return taken[0]

    try:
        return grade(prepared, grader, seed)
    finally:
        with _lock:
            over = batch in _over
            if not over:
                _idle.setdefault(batch, []).extend(taken)
        if over:
            _close(taken)


def close_there(batch: str) -> None:
    """On a worker: this batch is over."""
    with _lock:
        _over.add(batch)
        mine = _idle.pop(batch, [])
    _close(mine)


@atexit.register
def close_all_there() -> None:
    """A worker that ends takes its graders with it."""
    for batch in list(_idle):
        close_there(batch)


def _close(graders: list[Grader]) -> None:
    for one in graders:
        with suppress(Exception):
            one.close()


def version_there() -> str:
    """On a worker: which release of this package it has."""
    return kvcourse.__version__


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise SetupError(
            "--scheduler needs Dask.",
            expected="the extra kvcourse[dask]",
            got="no module named distributed",
            todo='Type: pip install "kvcourse[dask]"',
        ) from None
    return distributed


async def _answers(scheduler: str) -> None:
    """Raise if nobody answers there. A Client that finds nobody takes far longer, and leaves a traceback behind it."""
    from distributed.comm import connect
    from distributed.security import Security

    wanted = connect(scheduler, timeout=SCHEDULER_S, **Security().get_connection_args("client"))
    comm = await asyncio.wait_for(wanted, SCHEDULER_S)  # connect's own limit leaves out a server that never says a word
    await comm.close()


def _connected(distributed: Any, scheduler: str) -> Any:
    """A client of a cluster that has workers with this release of the package."""
    try:
        with ThreadPoolExecutor(1) as thread:  # a loop of its own: this may be called from a notebook, where one is running
            thread.submit(asyncio.run, _answers(scheduler)).result()
        client = distributed.Client(scheduler, timeout=PATIENCE_S, set_as_default=False)
    except Exception as error:  # a server of another kind answers with bytes that may raise anything
        raise InputError(
            "No Dask scheduler answers there.",
            expected="its address, such as tcp://HOST:8786",
            got=scheduler,
            todo="Start one with `dask scheduler`, or leave --scheduler out.",
        ) from error
    try:
        client.wait_for_workers(1, timeout=PATIENCE_S)
        there = {str(version) for version in client.run(version_there).values()}
    except Exception as error:
        client.close()
        got = "no worker" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
        todo = f"Start workers with kvcourse {kvcourse.__version__} installed: `dask worker {scheduler} --nthreads 1`."
        raise InputError("The cluster cannot grade.", expected="workers that have kvcourse", got=got, todo=todo) from error
    if there != {kvcourse.__version__}:
        client.close()
        raise InputError(
            "The cluster has another release.",
            expected=kvcourse.__version__,
            got=", ".join(sorted(there)),
            todo="Install the same release of kvcourse on every worker.",
        )
    return client

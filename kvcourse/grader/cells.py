"""Every lesson: reads a learner's cells into a namespace, forgivingly. Knows nothing about tasks or graders.

The learner's other cells are read for what they define: imports, functions, classes, assignments, and `if` and `try` around
them; what fails is tried again when all else is there. The answer's own cell is run statement by statement; one that fails
after, or before, the definition costs nothing. Annotations are not evaluated: one may name a class of the course, which is not
there. Magics and shell lines are no Python and are left out. Also mounted in the sandbox, without the package.
"""

import __future__

import ast
import contextlib
import linecache
import re
import signal
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

from . import limits

MAGIC = re.compile(r"^\s*(%|!|\?)|\?\s*$|^[\w\s,.\[\]]+=\s*(%|!)")
TIMED = re.compile(r"^\s*%time\s+(?=\S)")
DEFINES = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.Try, ast.TryStar)
LATER = __future__.annotations.compiler_flag  # annotations are kept as text
MAX_MAGICS = 200


class CannotRead(Exception):
    """The answer's own cell is no Python."""


class TooSlow(BaseException):
    """A statement outside a function took too long. Not an Exception: `except Exception` in the cell must not swallow it."""


def parse(source: str, name: str) -> list[ast.stmt]:
    """The statements of a cell, without magics and shell lines; of `%time x = 1` the statement stays. A line that is Python,
    such as one that begins with % inside a string or brackets, is left alone: only a line at which parsing fails is looked at.

    Raises: CannotRead.
    """
    lines = source.removeprefix("\ufeff").split("\n")
    for _ in range(MAX_MAGICS):
        try:
            body = ast.parse("\n".join(lines), name).body
            linecache.cache[name] = (len(source), None, [f"{line}\n" for line in lines], name)  # for inspect.getsource
            return body
        except SyntaxError as error:
            at = _magic_at(lines, error.lineno or 0)
            if at is None:
                raise CannotRead(f"{error.msg} (line {error.lineno})") from None
            indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
            timed = TIMED.sub("", lines[at])
            lines[at] = indent + (timed if timed != lines[at] else "pass")
        except (ValueError, RecursionError, MemoryError) as error:
            raise CannotRead(str(error).split("\n")[0] or type(error).__name__) from None
    raise CannotRead("too many magics")


def _magic_at(lines: list[str], lineno: int) -> int | None:
    """The line to leave out: where parsing failed, or a magic just above it, since some fail a line later."""
    for at in range(min(lineno, len(lines)) - 1, -1, -1):
        if MAGIC.search(lines[at]):
            return at
        if lines[at].strip() and at < lineno - 2:
            return None
    return None


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    """Of processor time, so that a busy machine costs nobody an answer; and of the clock, for what waits."""

    def stop(*_: object) -> None:
        raise TooSlow

    signal.signal(signal.SIGALRM, stop)
    signal.signal(signal.SIGPROF, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, limits.STATEMENT_WALL_S)
        signal.setitimer(signal.ITIMER_PROF, limits.STATEMENT_CPU_S)
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _run(statement: ast.stmt, namespace: dict[str, Any], name: str) -> BaseException | None:
    """Run one statement; what it raised, sys.exit and an endless loop included, is returned."""
    module = ast.Module([statement], type_ignores=[])
    try:
        with _time_limit():
            exec(compile(module, name, "exec", flags=LATER, dont_inherit=True), namespace)
    except BaseException as error:
        return error
    return None


def _only_defines(statement: ast.stmt) -> bool:
    """Whether a statement of another cell is wanted. `torch.cat = mine` is not: it would change what is not the cell's."""
    if isinstance(statement, ast.Assign):
        return all(_is_plain(target) for target in statement.targets)
    if isinstance(statement, ast.AnnAssign | ast.AugAssign):
        return _is_plain(statement.target)
    return isinstance(statement, DEFINES)


def _is_plain(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return all(_is_plain(element) for element in target.elts)
    if isinstance(target, ast.Starred):
        return _is_plain(target.value)
    return isinstance(target, ast.Name | ast.Subscript)


def _binds(statement: ast.stmt) -> set[str]:
    """Names that a statement may bind; those inside its functions too, which does no harm here."""
    stored = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {getattr(statement, "name", "")}


def new_namespace(preamble: str) -> dict[str, Any]:
    """An empty notebook after its first cell."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    module.__dict__["display"] = lambda *args, **kwargs: None  # a notebook has it
    run_preamble(preamble, module.__dict__)
    return module.__dict__


def run_preamble(preamble: str, namespace: dict[str, Any]) -> None:
    """What the exercise's first cell imports."""
    exec(compile(preamble, "<preamble>", "exec"), namespace)


def define(cells: Sequence[str], namespace: dict[str, Any]) -> None:
    """Read cells for what they define; whatever cannot be read, or fails twice, is passed over. The second time is after all
    else: `where = my_positions` may stand above the answer. By then another cell may have bound the name, which then stays."""
    failed: list[tuple[ast.stmt, str]] = []
    for number, source in enumerate(cells):
        name = f"<cell {number}>"
        with contextlib.suppress(CannotRead):
            for statement in parse(source, name):
                fault = _run(statement, namespace, name) if _only_defines(statement) else None
                if fault is not None and not isinstance(fault, TooSlow):
                    failed.append((statement, name))
    for statement, name in failed:
        if not _binds(statement) & namespace.keys():
            _run(statement, namespace, name)


def answer(source: str, wanted: str, namespace: dict[str, Any]) -> str | None:
    """Run the answer's own cell. What went wrong, when it does not define `wanted`; None when it does.

    Raises: CannotRead.
    """
    before = namespace.pop(wanted, None)  # a draft in another cell: does not count if this cell defines it
    fault: BaseException | None = None
    for statement in parse(source, "<answer>"):
        found = _run(statement, namespace, "<answer>")
        fault = fault if isinstance(fault, TooSlow) else found or fault
    if wanted in namespace:
        return None
    if before is not None:
        namespace[wanted] = before
        return None
    if fault is None:
        return f"The cell does not define {wanted}."
    if isinstance(fault, TooSlow):
        limit = f"{limits.STATEMENT_CPU_S:g} s of processor time, or {limits.STATEMENT_WALL_S:g} s by the clock"
        return f"The cell does not define {wanted}: a statement was stopped because it took more than {limit}."
    return f"The cell does not define {wanted}: it stopped with {type(fault).__name__}."


def withhold(names: Sequence[str]) -> None:
    """Take finished implementations out of libraries: dotted names such as torch.nn.functional.softmax."""
    for dotted in names:
        path, _, last = dotted.rpartition(".")
        owner: Any = sys.modules.get(path)
        if owner is None:
            first, *rest = path.split(".")
            owner = sys.modules.get(first)
            for part in rest:
                owner = getattr(owner, part, None)
        with contextlib.suppress(AttributeError, TypeError):
            delattr(owner, last)

"""Every lesson: shows the package's own code, so that nothing is ever pasted into a notebook. Knows no class or function.

    show_source(causal_mask)                          # as the last line of a cell
    show_diff(attend_before, attend_after)
    show_diff("x = 1\\n", "x = 2\\n", labels=("before", "after"))

Line numbers count from the object's own first line, not from its file's, so that an edit elsewhere in the file changes no
notebook. Added and removed lines carry + and - signs; colour only repeats what the sign says. Colours are written into each
element with a background of their own, which reads the same on GitHub, in nbviewer and on a dark page. A line that is longer
than the page is wide goes on below, further in than it began.
"""

import ast
import difflib
import html
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from types import ModuleType

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

from kvcourse.errors import InputError

INK, MUTED, PAPER = "#1F2430", "#59606D", "#F6F7F9"
ADDED, REMOVED = "#DDF4E1", "#FDE4E1"  # backgrounds: every text colour below reads on both
TOKENS = (  # the first that fits; none is a role's colour
    (Comment, f"color:{MUTED};font-style:italic"),
    (String.Doc, f"color:{MUTED}"),
    (String, "color:#0B5A6B"),
    (Number, "color:#0B5A6B"),
    (Operator.Word, "color:#8F1F5C"),
    (Keyword, "color:#8F1F5C"),
    (Name.Decorator, "color:#6B4A16"),
    (Name.Function, "font-weight:bold"),
    (Name.Class, "font-weight:bold"),
)
_BOX = (
    f"background:{PAPER};color:{INK};border:1px solid #D5D9E0;border-radius:4px;padding:8px 12px;margin:4px 0;"
    "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:13px;line-height:1.45;"
    "text-align:left;white-space:pre-wrap;overflow-wrap:break-word;word-break:normal"  # JupyterLab would break words
)
_CHARACTER = 0.6  # em: how wide one is, about, in a font where all are; JupyterLab knows no `ch` in a notebook not yet trusted


@dataclass(frozen=True)
class Code:
    """Some Python text and the line that says where it is from: `kvcourse/attention.py  causal_mask`."""

    text: str
    title: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


class SourceView:
    """What `show_source` returns: highlighted in a notebook, plain elsewhere."""

    def __init__(self, code: Code) -> None:
        self.code = code

    def __repr__(self) -> str:
        width = len(str(len(self.code.lines)))
        return "\n".join([self.code.title, *(f"{n:{width}}  {line}".rstrip() for n, line in enumerate(self.code.lines, 1))])

    def _repr_html_(self) -> str:
        width = len(str(len(self.code.lines)))
        shown = zip(self.code.lines, _highlighted(self.code.text), strict=True)
        rows = [_row(f"{_muted(f'{n:{width}}')}  {line}", width + 2, plain) for n, (plain, line) in enumerate(shown, 1)]
        return _box([_row(_muted(html.escape(self.code.title)), 0, ""), *rows])


class DiffView:
    """What `show_diff` returns: a unified diff, coloured in a notebook, plain elsewhere."""

    def __init__(self, before: Code, after: Code, context: int) -> None:
        self.before, self.after, self.context = before, after, context

    def __repr__(self) -> str:
        return "\n".join(f"{sign}{line}".rstrip() for sign, line in self._rows(self.before.lines, self.after.lines))

    def _repr_html_(self) -> str:
        plain = list(self._rows(self.before.lines, self.after.lines))
        shown = self._rows(_highlighted(self.before.text), _highlighted(self.after.text), html.escape)
        rows = []
        for (sign, text), (_, line) in zip(plain, shown, strict=True):
            if len(sign) > 1:
                rows.append(_row(_muted(sign + line), 0, ""))
            else:
                rows.append(_row(f"{sign} {line}", 2, text, {"+": ADDED, "-": REMOVED}.get(sign)))
        return _box(rows)

    def _rows(self, before: list[str], after: list[str], escape: Callable[[str], str] = str) -> Iterator[tuple[str, str]]:
        """(sign, line) pairs. What is compared is the plain text; what is shown is `before` and `after`, line for line."""
        yield "--- ", escape(self.before.title)
        yield "+++ ", escape(self.after.title)
        groups = list(
            difflib.SequenceMatcher(None, self.before.lines, self.after.lines, autojunk=False).get_grouped_opcodes(self.context)
        )
        if not groups:
            yield "= ", "no difference"
        for group in groups:
            yield "@@ ", f"-{_span(group[0][1], group[-1][2])} +{_span(group[0][3], group[-1][4])} @@"
            for kind, i1, i2, j1, j2 in group:
                if kind == "equal":
                    yield from ((" ", line) for line in before[i1:i2])
                    continue
                yield from (("-", line) for line in before[i1:i2])
                yield from (("+", line) for line in after[j1:j2])


def show_source(obj: object, *, strip_docstring: bool = False) -> SourceView:
    """The Python text of a function, method, class or module, with its file (inside its package) and its name.

    Raises InputError for an object that was not written in Python, or whose text is not kept.
    """
    return SourceView(_code(obj, None, strip_docstring))


def show_diff(
    a: object,
    b: object,
    *,
    labels: tuple[str | None, str | None] = (None, None),
    context: int = 3,
    strip_docstring: bool = False,
) -> DiffView:
    """What changes from `a` to `b`, both as for `show_source`, or two strings of source text.

    labels: the two titles; by default file and name, or "before" and "after" for strings.
    context: how many unchanged lines to show around each change.
    """
    if context < 0:
        raise InputError("Context lines are counted from 0.", expected="context >= 0", got=context, todo="Pass 0 or more.")
    before, after = labels
    a_code = _code(a, before or ("before" if isinstance(a, str) else None), strip_docstring)
    b_code = _code(b, after or ("after" if isinstance(b, str) else None), strip_docstring)
    return DiffView(a_code, b_code, context)


def _code(obj: object, title: str | None, strip_docstring: bool) -> Code:
    if isinstance(obj, str):
        text, where = obj, "text"
    else:
        plain = inspect.unwrap(obj) if callable(obj) else obj
        text, where = _text_of(plain), _where(plain)
    text = textwrap.dedent(text).strip("\n")
    return Code(_without_docstrings(text) if strip_docstring else text, title or where)


def _text_of(obj: object) -> str:
    try:
        return inspect.getsource(obj)  # type: ignore[arg-type]
    except (OSError, TypeError) as error:
        text = _notebook_class(obj) if isinstance(obj, type) else None
        if text is None:
            raise InputError(
                "There is no Python source to show.",
                expected="a function, method, class or module written in Python, or a string",
                got=repr(obj),
                todo="Pass the function or class itself, not what it returns.",
            ) from error
        return text


def _notebook_class(cls: type) -> str | None:
    """The text of a class defined in a notebook: before Python 3.13, inspect cannot find it, but its methods know."""
    for member in vars(cls).values():
        code = getattr(inspect.unwrap(member) if callable(member) else member, "__code__", None)
        text = "".join(linecache.getlines(code.co_filename)) if code else ""
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__ and code and node.lineno <= code.co_firstlineno:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                return "".join(text.splitlines(keepends=True)[first - 1 : node.end_lineno])
    return None


def _where(obj: object) -> str:
    """`kvcourse/attention.py  causal_mask`: the path inside the package, never this machine's."""
    module = obj if isinstance(obj, ModuleType) else inspect.getmodule(obj)
    name = "" if isinstance(obj, ModuleType) else getattr(obj, "__qualname__", "").rpartition("<locals>.")[2]
    file = getattr(module, "__file__", None)
    if module is None or not file or module.__name__ == "__main__":
        return f"this notebook  {name}".rstrip()
    parts = module.__name__.split(".")
    is_package = PurePath(file).name == "__init__.py"
    inside = PurePath(*parts, "__init__.py") if is_package else PurePath(*parts).with_suffix(".py")
    return f"{inside.as_posix()}  {name}".rstrip()


def _without_docstrings(text: str) -> str:
    lines = text.splitlines()
    drop: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = node.body
        if len(body) < 2 or ast.get_docstring(node, clean=False) is None:
            continue  # a body that is only a docstring keeps it: it must stay Python
        doc = body[0]
        end = doc.end_lineno or doc.lineno
        while end < len(lines) and not lines[end].strip():
            end += 1  # and the blank lines after it
        drop.update(range(doc.lineno - 1, end))
    return "\n".join(line for number, line in enumerate(lines) if number not in drop)


def _highlighted(text: str) -> list[str]:
    """One piece of HTML for each line of the text, each complete in itself."""
    lines = [""]
    for kind, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens(text):
        style = _style_of(kind)
        for index, piece in enumerate(value.split("\n")):
            if index:
                lines.append("")
            if piece:
                escaped = html.escape(piece, quote=False)
                lines[-1] += f'<span style="{style}">{escaped}</span>' if style and piece.strip() else escaped
    return lines


def _style_of(kind: _TokenType) -> str | None:
    return next((style for parent, style in TOKENS if kind in parent), None)


def _span(start: int, stop: int) -> str:
    """Lines as a unified diff counts them, from 1; an empty range names the line before it."""
    length = stop - start
    return f"{start + 1 if length else start},{length}"


def _muted(text: str) -> str:
    return f'<span style="color:{MUTED}">{text}</span>'


def _row(shown: str, margin: int, text: str, background: str | None = None) -> str:
    """One line of the box. What does not fit goes on below, four characters further in than its text began.

    margin: characters in front of the text. The line's end is inside: without any style it is still a line, and with one no
    empty line comes after it.
    """
    deep = _CHARACTER * (margin + len(text) - len(text.lstrip(" ")) + 4)
    colour = f"background:{background};" if background else ""
    return f'<span style="{colour}display:block;padding-left:{deep:.1f}em;text-indent:-{deep:.1f}em">{shown}\n</span>'


def _box(rows: list[str]) -> str:
    return f'<pre style="{_BOX}">{"".join(rows)}</pre>'

"""Maintainers only: what Sphinx is taught for this site. Knows nothing about which pages there are.

- Formulas become MathML when the site is built: no script, no font and no picture is needed to show them.
- A link `source:PATH#Lnn` leads to a page with that file's text, which is written here.
- Docstrings go through `docstrings`, and a signature is shown as it is written, shapes included.
"""

import ast
import copy
import dataclasses
import inspect
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import JsonLexer, TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.application import Sphinx
from sphinx.util import logging

import kvcourse.errors
from tools.site.docstrings import as_rst, escaped

ROOT = Path(__file__).resolve().parents[2]
SCHEME = "source:"
LISTED = ["kvcourse/**/*.py", "benchmarks/**/*.py", "tools/**/*.py"]  # have a page whether something links to them or not
SHAPED = ("Float", "Int", "Bool")  # jaxtyping's
log = logging.getLogger(__name__)


# Formulas


def mathml(formula: str, block: bool) -> str:
    """A formula as MathML. Raises: MathError for a command that is not known."""
    formula = re.sub(r"\\([bB]igg?)(?![a-zA-Z])", r"\\\1l", formula)  # docutils knows \bigl, and not \big
    formula = re.sub(r"\\dots(?![a-zA-Z])", r"\\ldots", formula)  # and \ldots, and not \dots
    return latex2mathml.tex2mathml(formula, as_block=block)


def visit_math(self: Any, node: nodes.Element) -> None:
    block = isinstance(node, nodes.math_block)
    try:
        shown = mathml(node.astext(), block)
    except MathError as error:
        log.warning("a formula cannot be shown: %s (%s)", error, node.astext(), location=node)
        shown = f"<code>{self.encode(node.astext())}</code>"
    self.body.append(f'<div class="math-block">{shown}</div>\n' if block else shown)
    raise nodes.SkipNode


# Source files


def resolve_source_links(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """`source:PATH#Lnn` to the address of that file's page, as seen from this page."""
    for link in doctree.findall(nodes.reference):
        address = link.get("refuri", "")
        if not address.startswith(SCHEME):
            continue
        path, _, line = address.removeprefix(SCHEME).partition("#")
        if not (ROOT / path).is_file():
            log.warning("no such file: %s", path, location=link)
        app.env.source_files_linked.add(path)  # type: ignore[attr-defined]
        here = posixpath.dirname(app.builder.get_target_uri(docname)) or "."
        link["refuri"] = posixpath.relpath(app.builder.get_target_uri(page_of(path)), here) + (f"#{line}" if line else "")


def page_of(path: str) -> str:
    return f"source/{path}"


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each source file."""
    listed = {path.relative_to(ROOT).as_posix() for pattern in app.config.listed_sources for path in ROOT.glob(pattern)}
    for path in sorted(listed | app.env.source_files_linked):  # type: ignore[attr-defined]
        text = (ROOT / path).read_text(encoding="utf-8")
        yield page_of(path), {"title": path, "body": f"<h1>{path}</h1>\n{coloured(path, text)}"}, "page.html"


def coloured(path: str, text: str) -> str:
    """A file's text as HTML, each line with the anchor Lnn."""
    try:
        lexer = get_lexer_for_filename(path)
    except ClassNotFound:
        lexer = TextLexer()
    return highlight(text, lexer, HtmlFormatter(cssclass="highlight", linespans="L", wrapcode=True)).replace('id="L-', 'id="L')


def begin(app: Sphinx) -> None:
    app.env.source_files_linked = set()  # type: ignore[attr-defined]


# Docstrings and signatures


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Where the source of a documented object is; called by sphinx.ext.linkcode."""
    try:
        found: Any = __import__(info["module"], fromlist=["_"])
        for name in info["fullname"].split("."):
            found = getattr(found, name)
        if isinstance(found, property):
            found = found.fget
        found = inspect.unwrap(found)
        path, (_, line) = Path(inspect.getsourcefile(found) or ""), inspect.getsourcelines(found)
    except (AttributeError, TypeError, OSError):
        return None  # a plain value has no place of its own
    return f"{SCHEME}{path.relative_to(ROOT).as_posix()}#L{line}" if path.is_relative_to(ROOT) else None


def parameters_of(documented: Any) -> list[str]:
    """Names that a docstring may explain: a function's parameters; a class's, and its fields."""
    names: list[str] = []
    try:
        names += inspect.signature(documented).parameters
    except (TypeError, ValueError):
        pass
    if inspect.isclass(documented):
        names += [name for base in documented.__mro__ for name in vars(base).get("__annotations__", {})]
    return [name for name in dict.fromkeys(names) if name not in ("self", "args", "kwargs")]


def process_docstring(app: Sphinx, what: str, name: str, documented: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rst(list(lines), parameters_of(documented), errors())
    if inspect.isclass(documented):
        explained = {line.split(":")[1].removeprefix("param ") for line in lines if line.startswith(":param ")}
        fields = [one for one in fields_of(documented) if one.name not in explained]
        label = "ivar" if getattr(documented, "_is_protocol", False) else "param"
        lines[:] = [*lines, *(f":{label} {one.name}: {escaped(one.comment)}" for one in fields if one.comment), ""]


def skip_member(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """A named tuple's fields are in its signature."""
    return True if (getattr(member, "__doc__", None) or "").startswith("Alias for field number") else None


@cache
def errors() -> dict[str, str]:
    """Names of our errors, each as a link to what is said of it."""
    return {
        name: f":py:class:`~kvcourse.errors.{name}`" for name, value in vars(kvcourse.errors).items() if inspect.isclass(value)
    }


class FieldOf(NamedTuple):
    """One annotated name of a class body, with the comment at the end of its line."""

    name: str
    annotation: str
    default: str | None
    comment: str


def fields_of(documented: type) -> list[FieldOf]:
    """The fields of a dataclass, a named tuple or a protocol, as its source has them."""
    try:
        path = Path(inspect.getsourcefile(documented) or "")
    except TypeError:
        return []
    if not path.is_relative_to(ROOT):
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    bodies = (node for node in ast.walk(_parsed(str(path))) if isinstance(node, ast.ClassDef))
    body = next((node.body for node in bodies if node.name == documented.__name__), [])
    found = []
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            rest = lines[(node.end_lineno or node.lineno) - 1].encode()[node.end_col_offset :].decode()
            comment = rest.partition("#")[2].strip()
            found.append(FieldOf(node.target.id, ast.unparse(node.annotation), default_of(node.value), comment))
    return found


def default_of(value: ast.expr | None) -> str | None:
    """A field's default as a caller would write it; `...` where one is made for every object."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "field":
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in value.keywords}
        return given.get("default") or ("..." if "default_factory" in given else None)
    return ast.unparse(value) if value else None


def process_signature(app: Sphinx, what: str, name: str, documented: Any, *rest: Any) -> tuple[str, str] | None:
    """The signature as the source has it: jaxtyping's shapes and defaults by name, not their evaluated forms."""
    if inspect.isclass(documented) and getattr(documented, "_is_protocol", False):
        return "", ""  # nobody makes one
    if inspect.isclass(documented) and (dataclasses.is_dataclass(documented) or hasattr(documented, "_fields")):
        shown = [
            f"{one.name}: {one.annotation}" + (f" = {one.default}" if one.default else "") for one in fields_of(documented)
        ]
        return f"({', '.join(shown)})", ""
    node = written(documented.__init__ if inspect.isclass(documented) else documented)
    if node is None:
        return None
    arguments = node.args
    if arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments.args = arguments.args[1:]
    returned = ast.unparse(node.returns) if node.returns and not inspect.isclass(documented) else ""
    return f"({ast.unparse(arguments)})", returned


class Unquoted(ast.NodeTransformer):
    """Names in quotes, for what is defined further down, without them. Shapes in brackets keep theirs."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        if not (isinstance(node.value, ast.Name) and node.value.id in (*SHAPED, "Literal")):
            node.slice = self.visit(node.slice)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node


def without_quotes(node: ast.FunctionDef) -> ast.FunctionDef:
    """The function with annotations a reader wants to see."""
    given = node.args
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if argument is not None and argument.annotation is not None:
            argument.annotation = Unquoted().visit(argument.annotation)
    if node.returns is not None:
        node.returns = Unquoted().visit(node.returns)
    return node


def written(function: Any) -> ast.FunctionDef | None:
    """The definition of a function in its file. None for one that is in no file of ours, such as a dataclass's `__init__`."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or not Path(code.co_filename).is_relative_to(ROOT):
        return None
    for node in ast.walk(_parsed(code.co_filename)):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first <= code.co_firstlineno <= node.lineno:
                return without_quotes(copy.deepcopy(node))
    return None


@cache
def _parsed(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text(encoding="utf-8"))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("listed_sources", LISTED, "html", list)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    app.add_lexer("jsonl", JsonLexer)  # Pygments has no name for it
    app.connect("builder-inited", begin)
    app.connect("doctree-resolved", resolve_source_links)
    app.connect("html-collect-pages", source_pages)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-process-signature", process_signature)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": False}

"""Maintainers only: our docstrings as reStructuredText. Knows nothing about Sphinx, or what a docstring says.

We write plain text: `name: what it is` at the start of a line or a sentence for a parameter, `Returns:`, `Raises:`, `Cost:` and
`See:` at the start of a line, single backticks for code, an indented block for a formula or code.
"""

import re
from collections.abc import Collection, Mapping

FIELDS = ("Returns", "Raises", "Cost", "See", "Yields", "Source")
SPHINX = {"Returns": "returns", "Raises": "raises", "Yields": "yields"}  # others appear under their own name


def as_rst(lines: list[str], parameters: Collection[str] = (), links: Mapping[str, str] | None = None) -> list[str]:
    """The docstring's lines: parameters and the rest of it as fields, prose escaped, indented blocks literal.

    links: what stands for a name after `Raises:`.
    """
    body: list[str] = []
    fields: list[str] = []
    for block in _blocks(lines):
        if block[0].startswith(" "):
            body += ["::", "", *(f"    {line}" for line in block), ""]
            continue
        if re.match(r"(?:- |\d+\. )", block[0]):
            body += [*_items(block), ""]
            continue
        prose, found = _split(block, parameters, links or {})
        if prose:
            body += [escaped(prose), ""]
        fields += found
    return [*body, *fields, ""] if fields else body


def escaped(text: str) -> str:
    """Prose in which only backticks mean something: they become literals; whatever else has a meaning there is escaped."""
    parts = re.split(r"(`+[^`]+`+)", text)
    return "".join(_literal(part) if index % 2 else re.sub(r"([\\*|_`])", r"\\\1", part) for index, part in enumerate(parts))


def _literal(code: str) -> str:
    return "``" + code.strip("`") + "``\\ "


def _blocks(lines: list[str]) -> list[list[str]]:
    """Paragraphs: runs of lines without an empty one."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line.rstrip())
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def _items(block: list[str]) -> list[str]:
    """A list, of which a line that begins no item goes on with the one before."""
    items: list[str] = []
    for line in block:
        if re.match(r"(?:- |\d+\. )", line):
            mark, _, text = line.partition(" ")
            items.append(f"{mark} {escaped(text)}")
        else:
            items[-1] += f" {escaped(line.strip())}"
    return items


def _split(block: list[str], parameters: Collection[str], links: Mapping[str, str]) -> tuple[str, list[str]]:
    """A paragraph as its prose, and its fields.

    In a paragraph that begins with a field, any name at the start of a line is one: a function may hand its arguments on.
    """
    text = "\n".join(line.strip() for line in block)
    known = "|".join([*FIELDS, *map(re.escape, sorted(parameters, key=len, reverse=True))])
    any_name = r"|\n[a-z]\w*|(?<=[.;)]) [a-z]+_\w+" if re.match(rf"(?:{known}): ", text) else ""
    start = re.compile(rf"((?:^|(?<=[.;)])[ \n]|\n)(?:{known}){any_name}): ")
    pieces = start.split(text)
    fields = []
    for name, content in zip(map(str.strip, pieces[1::2]), pieces[2::2], strict=True):
        label = f"param {name}" if name not in FIELDS else SPHINX.get(name, name)
        said = escaped(" ".join(content.split()).rstrip(";"))
        if name == "Raises":
            said = re.sub(r"\b[A-Z]\w+", lambda word: links.get(word[0], word[0]), said)
        fields.append(f":{label}: {said}")
    return " ".join(pieces[0].split()), fields

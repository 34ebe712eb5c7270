"""Maintainers only: links in a page's text, made to work on the site. Knows nothing about files: it is told which there are.

    a link to a page of the site        stays, and is checked by Sphinx
    a link to another file              source:PATH, which `extension` turns into a link to the page of that file
    "lesson 06", "exercises 02 and 03"  become links
    `kvcourse/attention.py`, `work/06_kv_cache.ipynb`   become links, too

Code blocks, formulas and headings are left alone.
"""

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

PROTECTED = r"""
    (?P<fence>^[ ]{0,3}(?P<marks>`{3,}|~{3,}).*?^[ ]{0,3}(?P=marks)[ \t]*$)
  | (?P<heading>^\#{1,6}[ ][^\n]*$)
  | (?P<formula>\$\$.*?\$\$ | (?<![\w\\$])\$[^$\n]+\$(?![\w$]))
  | (?P<link>(?P<image>!)?\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\))
  | (?P<code>(?P<ticks>`+)(?P<inside>[^`\n]+)(?P=ticks))
  | (?P<html><[^<>\n]+>)
  | \b(?P<kind>[Ll]essons?|[Ee]xercises?)(?P<gap>\s+)(?P<numbers>\d\d(?:(?:\s*,\s*|\s+(?:and|or|to)\s+)\d\d)*)(?!\d|\.\d)
"""
PATTERN = re.compile(PROTECTED, re.MULTILINE | re.DOTALL | re.VERBOSE)
ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:|#")  # an address with a scheme, or a place on the same page


class Unknown(NamedTuple):
    """A link that leads nowhere."""

    page: str
    target: str
    why: str = "there is no such file"

    def __str__(self) -> str:
        return f"{self.page}: {self.target} ({self.why})"


@dataclass(frozen=True)
class Site:
    """What there is to link to, by its path in the repository."""

    pages: frozenset[str]
    is_file: Callable[[str], bool]
    is_folder: Callable[[str], bool]
    lessons: Mapping[int, str]  # number to the lesson's page
    exercises: Mapping[int, str]
    moved: Mapping[str, str] = field(default_factory=dict)  # pages with another place on the site than in the repository


def rewritten(text: str, page: str, site: Site) -> tuple[str, list[Unknown]]:
    """The text of `page` with links that work on the site, and the links that lead nowhere."""
    unknown: list[Unknown] = []

    def replace(found: re.Match[str]) -> str:
        if found["link"]:
            return _link(found, page, site, unknown)
        if found["code"]:
            target = _named_file(found["inside"], page, site)
            return f"[{found['code']}]({target})" if target else found["code"]
        if found["kind"]:
            return _mention(found, page, site)
        return found[0]

    return PATTERN.sub(replace, text), unknown


def from_page(page: str, target: str, site: Site) -> str:
    """The address of one page of the site as seen from another."""
    here, there = site.moved.get(page, page), site.moved.get(target, target)
    return posixpath.relpath(there, posixpath.dirname(here) or ".")


def _link(found: re.Match[str], page: str, site: Site, unknown: list[Unknown]) -> str:
    if ELSEWHERE.match(found["target"]):
        return found[0]
    target, mark, place = found["target"].partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    if found["image"]:
        if not site.is_file(path):
            unknown.append(Unknown(page, found["target"]))
        return f"![{found['text']}]({from_page(page, path, site)})"
    for candidate in (path, f"{path}/README.md"):  # a link to a folder means what it says of itself
        if candidate in site.pages:
            return f"[{found['text']}]({from_page(page, candidate, site)}{mark}{place})"
    if site.is_folder(path):  # has no text to show
        unknown.append(Unknown(page, found["target"], "a folder without a README.md: name a file in it"))
    elif not site.is_file(path):
        unknown.append(Unknown(page, found["target"]))
    return f"[{found['text']}](source:{path})"


def _named_file(inside: str, page: str, site: Site) -> str | None:
    """Where a file that a text names in backticks is to be found, if it is one of ours."""
    path = inside.removeprefix("../")
    if re.fullmatch(r"(?:(?:work|exercises)/)?\d\d_\w+\.ipynb", path):
        path = f"exercises/{path.rpartition('/')[2]}"
    if path in site.pages:
        return None if path == page else from_page(page, path, site)
    if "/" in path and re.fullmatch(r"[\w./-]+\.(?:py|toml|yml|txt|sh)", path) and site.is_file(path):
        return f"source:{path}"
    return None


def _mention(found: re.Match[str], page: str, site: Site) -> str:
    targets = site.lessons if found["kind"].lower().startswith("lesson") else site.exercises

    def linked(number: str, words: str) -> str:
        target = targets.get(int(number))
        return words if target is None or target == page else f"[{words}]({from_page(page, target, site)})"

    if found["numbers"].isdigit():
        return linked(found["numbers"], found[0])
    return found["kind"] + found["gap"] + re.sub(r"\d\d", lambda one: linked(one[0], one[0]), found["numbers"])

"""Maintainers only: reads a finished site: every link inside it leads somewhere, and no page needs a network. Knows no Sphinx.

A page may link to a place on the web. What it may not do is load something from there: a script, a style, a picture, a font.
"""

import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {  # element: the attribute whose address a browser loads by itself
    "script": "src",
    "img": "src",
    "iframe": "src",
    "frame": "src",
    "source": "src",
    "track": "src",
    "input": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
    "image": "href",
    "use": "href",
    "base": "href",  # every other address of the page is read from there
}
LOADED_LINKS = {
    "stylesheet",
    "icon",
    "apple-touch-icon",
    "shortcut",
    "preload",
    "prefetch",
    "modulepreload",
    "preconnect",
    "dns-prefetch",
    "manifest",
}
IN_STYLES = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")
IN_SCRIPTS = re.compile(r"""\b(?:import|from|importScripts|fetch|Worker)\b\s*\(?\s*['"`]\s*([^'"`]+)""")
IN_SRCSET = re.compile(r"([^\s,](?:\S*[^\s,])?)(?:\s+[^,]*)?(?:,|$)")  # an address, and its width or density
WEB = re.compile(r"(?:[a-z][a-z+.-]*:)?//", re.IGNORECASE)


class Page(HTMLParser):
    """The addresses of one page: what it loads, what it links to, and the places in it that a link can name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.undescribed: list[str] = []
        self.base = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        self.loads += [
            given[name] for name in (LOADED.get(tag), "xlink:href", "poster") if name and tag != "a" and given.get(name)
        ]
        self.loads += [one for name in ("srcset", "imagesrcset") for one in IN_SRCSET.findall(given.get(name, ""))]
        self.loads += _in_css(given.get("style", ""))
        if tag == "link" and LOADED_LINKS & set(given.get("rel", "").lower().split()):
            self.loads.append(given.get("href", ""))
        if tag == "base":
            self.base = given.get("href", "")
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "img" and given.get("alt", "").strip() in ("", given.get("src", "")):
            self.undescribed.append(given.get("src", ""))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self.loads += _in_css(data)
        if self._inside == "script":
            self.loads += _in_script(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


def _in_css(text: str) -> list[str]:
    return [one or other for one, other in IN_STYLES.findall(text)]


def _in_script(text: str) -> list[str]:
    """What it imports or fetches from the web. What it names else may be a name in a bundle, and no address."""
    return [one for one in IN_SCRIPTS.findall(text) if WEB.match(one)]


def pages_of(site: Path) -> dict[str, Page]:
    """Every page of a site by its path."""
    return {path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def from_the_web(site: Path, pages: dict[str, Page]) -> list[str]:
    """What would be loaded from somewhere else when a page is opened."""
    loads = {name: page.loads for name, page in pages.items()}
    for pattern, read in (("*.css", _in_css), ("*.js", _in_script)):
        for path in sorted(site.rglob(pattern)):
            loads[path.relative_to(site).as_posix()] = read(path.read_text(encoding="utf-8"))
    found = [(name, address.strip()) for name, addresses in loads.items() for address in addresses]
    return [f"{name} loads {address}" for name, address in found if WEB.match(address)]


def broken(site: Path, pages: dict[str, Page]) -> list[str]:
    """Links and loaded files that are not there, and links to a place that its page does not have."""
    found = []
    for name, page in pages.items():
        if page.base:
            found.append(f"{name}: {page.base} (a <base> moves every address of its page: none of them is checked)")
            continue
        for address in sorted({*page.loads, *page.links}):
            problem = _problem(site, pages, name, address)
            if problem:
                found.append(f"{name}: {address} ({problem})")
    return found


def _problem(site: Path, pages: dict[str, Page], name: str, address: str) -> str | None:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path))) if parts.path else name
    if path.startswith(("..", "/")):
        return "outside the site"
    if path not in pages:
        return None if (site / path).is_file() else "no such file"
    place = unquote(parts.fragment)
    return None if not place or place in pages[path].places else "no such place in that page"


def undescribed(pages: dict[str, Page]) -> list[str]:
    """Pictures without a text that stands for them. Sphinx writes a picture's address where it knows none."""
    return [f"{name}: {address} has no alternative text" for name, page in pages.items() for address in page.undescribed]

"""The site: links are rewritten, docstrings and formulas shown, nothing comes from the web, what is wrong is refused."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from docutils.utils.math import MathError
from jaxtyping import Float
from torch import Tensor

import kvcourse
import kvcourse.viz
from kvcourse.course import LESSONS
from tools.site import audit, pages
from tools.site.docstrings import as_rst
from tools.site.extension import fields_of, mathml, process_signature
from tools.site.links import Site, rewritten

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "site" / "html"
FILES = {"kvcourse/attention.py", "docs/ci/README.md", ".binder/environment.yml", "docs/a.png", "LICENSE"}
FOLDERS = {"kvcourse", "docs", "docs/ci", ".binder"}
SITE = Site(
    pages=frozenset({"README.md", "docs/map.md", "docs/ci/README.md", "notebooks/05_a.ipynb", "notebooks/06_b.ipynb"})
    | {"exercises/06_b.ipynb", "docs/site/api/text.md"},
    is_file=FILES.__contains__,
    is_folder=FOLDERS.__contains__,
    lessons={5: "notebooks/05_a.ipynb", 6: "notebooks/06_b.ipynb"},
    exercises={6: "exercises/06_b.ipynb"},
    moved={"README.md": "index.md", "docs/site/api/text.md": "api/text.md"},
)


# Links.


@pytest.mark.parametrize(
    ("page", "text", "wanted"),
    [
        ("notebooks/06_b.ipynb", "as lesson 05 says", "as [lesson 05](05_a.ipynb) says"),
        ("notebooks/06_b.ipynb", "in this lesson 06", "in this lesson 06"),
        ("notebooks/06_b.ipynb", "lesson 09 is planned", "lesson 09 is planned"),
        (
            "exercises/06_b.ipynb",
            "Lessons 05, 06 and 09.",
            "Lessons [05](../notebooks/05_a.ipynb), [06](../notebooks/06_b.ipynb) and 09.",
        ),
        ("docs/map.md", "exercise 06", "[exercise 06](../exercises/06_b.ipynb)"),
        ("docs/map.md", "lesson 05.2", "lesson 05.2"),
        ("notebooks/05_a.ipynb", "# Lesson 06", "# Lesson 06"),
        ("notebooks/05_a.ipynb", "`lesson 06`", "`lesson 06`"),
        ("notebooks/05_a.ipynb", "```\nlesson 06\n```", "```\nlesson 06\n```"),
        ("notebooks/05_a.ipynb", "$lesson 06$", "$lesson 06$"),
        ("notebooks/05_a.ipynb", "[lesson 06](https://example.invalid)", "[lesson 06](https://example.invalid)"),
        ("notebooks/05_a.ipynb", "`06_b.ipynb` in `work/`", "[`06_b.ipynb`](../exercises/06_b.ipynb) in `work/`"),
        ("docs/map.md", "`work/06_b.ipynb`", "[`work/06_b.ipynb`](../exercises/06_b.ipynb)"),
        ("docs/map.md", "`kvcourse/attention.py`", "[`kvcourse/attention.py`](source:kvcourse/attention.py)"),
        ("docs/map.md", "`kvcourse/missing.py`", "`kvcourse/missing.py`"),
        ("docs/map.md", "[a](../kvcourse/attention.py#L3)", "[a](source:kvcourse/attention.py)"),
        ("README.md", "[grading](docs/ci)", "[grading](docs/ci/README.md)"),
        ("README.md", "[license](LICENSE)", "[license](source:LICENSE)"),
        ("docs/map.md", "[home](../README.md#start)", "[home](../index.md#start)"),
        ("docs/site/api/text.md", "lesson 05", "[lesson 05](../notebooks/05_a.ipynb)"),
        ("README.md", "![a\nb](docs/a.png)", "![a\nb](docs/a.png)"),
    ],
)
def test_links_and_mentions_lead_to_the_page_on_the_site(page, text, wanted):
    assert rewritten(text, page, SITE) == (wanted, [])


@pytest.mark.parametrize("text", ["[a](../nowhere.py)", "![a](gone.png)", "![a](ci)", "[a](../docs/nowhere.md#b)"])
def test_a_link_that_leads_nowhere_is_reported_with_its_page(text):
    _, unknown = rewritten(text, "docs/map.md", SITE)
    assert [str(one).partition(": ")[0] for one in unknown] == ["docs/map.md"]
    assert str(unknown[0]).endswith("(there is no such file)")


def test_a_link_to_a_folder_that_says_nothing_of_itself_is_reported_before_sphinx_opens_it():
    _, unknown = rewritten("[a](.binder) and [b](.binder/environment.yml)", "README.md", SITE)
    assert [str(one) for one in unknown] == ["README.md: .binder (a folder without a README.md: name a file in it)"]


# Docstrings and formulas.


@pytest.mark.parametrize(
    ("docstring", "parameters", "wanted"),
    [
        ("One *star*, `code` and a_name_.", [], ["One \\*star\\*, ``code``\\  and a\\_name\\_.", ""]),
        ("Cut.\n\nn: how many\nRaises: ValueError.", ["n"], ["Cut.", "", ":param n: how many", ":raises: E.", ""]),
        ("Two. a: one. b: other.", ["a", "b"], ["Two.", "", ":param a: one.", ":param b: other.", ""]),
        ("n: how many\nhanded_on: elsewhere", ["n"], [":param n: how many", ":param handed_on: elsewhere", ""]),
        ("A sentence. note: this is prose.", ["n"], ["A sentence. note: this is prose.", ""]),
        ("So:\n\n    a = b_*c", [], ["So:", "", "::", "", "        a = b_*c", ""]),
        ("- one\n- two", [], ["- one", "- two", ""]),
    ],
)
def test_a_docstring_becomes_fields_lists_and_literal_blocks(docstring, parameters, wanted):
    assert as_rst(docstring.splitlines(), parameters, {"ValueError": "E"}) == wanted


@dataclass
class Sample:
    """Two fields."""

    first: int  # what it is
    second: list[int] = field(default_factory=list)


def test_fields_are_shown_with_the_comments_and_defaults_of_their_lines():
    assert [tuple(one) for one in fields_of(Sample)] == [
        ("first", "int", None, "what it is"),
        ("second", "list[int]", "...", ""),
    ]


def test_a_signature_keeps_shapes_and_loses_the_quotes_of_names_defined_further_down():
    def later(q: Float[Tensor, "B T"], other: "Sample | None" = None, kind: Literal["a"] = "a") -> "Sample": ...

    shown = process_signature(None, "function", "later", later)
    assert shown == ("(q: Float[Tensor, 'B T'], other: Sample | None=None, kind: Literal['a']='a')", "Sample")


def formulas() -> list[str]:
    texts = ["".join(cell["source"]) for path in sorted(ROOT.glob("*/[0-9][0-9]_*.ipynb")) for cell in markdown_cells(path)]
    found = [found for text in texts for found in re.findall(r"\$\$(.+?)\$\$|(?<!\$)\$([^$\n]+)\$(?!\$)", text, re.DOTALL)]
    return sorted({block or inline for block, inline in found})


def markdown_cells(path: Path) -> list[dict]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "markdown"]


def test_every_formula_of_the_course_can_be_shown_without_a_script():
    assert len(formulas()) > 5
    for formula in formulas():
        assert mathml(formula, block=True).lstrip().startswith("<math")


def test_a_formula_with_an_unknown_command_is_refused():
    with pytest.raises(MathError, match="nonsense"):
        mathml(r"\nonsense{x}", block=False)


# What Sphinx reads.


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("site") / "source"
    pages.lay_out(ROOT, target)
    return target


def test_every_lesson_and_exercise_is_in_the_table_of_contents_in_order(laid_out):
    contents = (laid_out / "index.md").read_text(encoding="utf-8")
    for folder in pages.NOTEBOOK_FOLDERS:
        there = [f"{folder}/{one.name}.ipynb" for one in LESSONS if (ROOT / folder / f"{one.name}.ipynb").is_file()]
        assert len(there) >= 10
        assert re.findall(rf"^{folder}/\S+$", contents, re.MULTILINE) == there


def test_every_page_is_in_a_table_of_contents(laid_out):
    listed = set()
    for index in ("index.md", "api/index.md"):
        for block in re.findall(r"```\{toctree\}\n(.*?)```", (laid_out / index).read_text(encoding="utf-8"), re.DOTALL):
            entries = [line for line in block.splitlines() if line and not line.startswith(":")]
            listed |= {(Path(index).parent / entry).with_suffix("").as_posix() for entry in entries}
    there = {path.relative_to(laid_out).with_suffix("").as_posix() for path in laid_out.rglob("*.md")}
    assert there - listed == {"index"}


def test_a_lesson_names_its_exercise_and_the_exercise_its_lesson(laid_out):
    lesson, exercise = (
        markdown_cells(laid_out / folder / "06_kv_cache.ipynb")[0]["source"] for folder in pages.NOTEBOOK_FOLDERS
    )
    assert "[Exercise 06](../exercises/06_kv_cache.ipynb)" in lesson
    assert "[Lesson 06](../notebooks/06_kv_cache.ipynb)" in exercise
    assert lesson.startswith("# 06 ") and "{download}" in lesson


def test_notebooks_to_take_are_the_committed_ones(laid_out):
    for name in ("notebooks/06_kv_cache.ipynb", "exercises/06_kv_cache.ipynb"):
        assert (laid_out / "files" / name).read_bytes() == (ROOT / name).read_bytes()


def test_the_lesson_of_a_word_is_linked_in_the_glossary(laid_out):
    assert "| [06](../notebooks/06_kv_cache.ipynb) |" in (laid_out / "docs" / "glossary.md").read_text(encoding="utf-8")


def test_every_public_name_has_its_entry():
    entries = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "site" / "api").glob("*.md"))
    documented = set(re.findall(r"^\.\. auto(?:class|function):: (kvcourse\.\S+)$", entries, re.MULTILINE))
    public = [getattr(kvcourse, name) for name in kvcourse.__all__]
    wanted = {f"{one.__module__}.{one.__qualname__}" for one in public if callable(one)}
    assert wanted - documented == {"kvcourse.errors.KVCourseError"}, "errors.md lists the whole module"
    assert ".. automodule:: kvcourse.errors" in entries


def test_names_that_a_package_gains_get_their_entry_without_being_listed(laid_out):
    page = (laid_out / "api" / "notebook.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\.\. auto(?:class|function):: kvcourse\.\S+\.(\w+)$", page, re.MULTILINE)
    wanted = [name for name in kvcourse.viz.__all__ if callable(getattr(kvcourse.viz, name))]
    assert sorted(set(wanted) - set(documented)) == []
    assert len(documented) == len(set(documented)), "none is there twice"


def small_course(root: Path, page: str) -> Path:
    """A course of one lesson and one page."""
    for folder in ("docs/site", "notebooks", "kvcourse"):
        (root / folder).mkdir(parents=True)
    name = LESSONS[0].name
    title = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# 01 · A title\n\nProse."}
    picture = {"output_type": "display_data", "data": {"image/png": PIXEL, "text/plain": "<Figure>"}, "metadata": {}}
    cell = {"cell_type": "code", "execution_count": 1, "id": "b", "metadata": {}, "outputs": [picture], "source": "draw()"}
    notebook = {"cells": [title, cell], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    (root / "notebooks" / f"{name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    readme = "# Small\n\n<!-- lessons: written by python -m tools.docs_map -->\n<!-- end of lessons -->\n"
    (root / "README.md").write_text(readme, encoding="utf-8")
    (root / "docs" / "page.md").write_text(page, encoding="utf-8")
    contents = "```{toctree}\n\n<!-- lessons -->\ndocs/page\n```\n"
    (root / "docs" / "site" / "index.md").write_text(contents, encoding="utf-8")
    pages.lay_out(root, root / "source")
    return root


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNg+M9QDwADgQGAWjR9awAAAABJRU5ErkJggg=="


def build(root: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "-q", "-E", "-D", "listed_sources=kvcourse/config.py"]
    command += ["-c", str(ROOT / "docs" / "site"), str(root / "source"), str(root / "html")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


PAGE = """# A page

$$\\text{softmax}\\big(q k^\\top / \\sqrt{D}\\big)$$

[source](source:kvcourse/attention.py) and {py:obj}`kvcourse.attention.attend`

```{eval-rst}
.. autofunction:: kvcourse.attention.attend
```
"""


def test_a_page_is_built_with_formula_picture_signature_and_source_and_needs_no_network(tmp_path):
    root = small_course(tmp_path, PAGE)
    done = build(root)
    assert done.returncode == 0, done.stderr
    html = (root / "html" / "docs" / "page.html").read_text(encoding="utf-8")
    assert "<math" in html and "<msqrt>" in html
    assert "Float" in html and "H_kv" in html, "the signature is the source's, shapes included"
    assert re.search(r'href="\.\./source/kvcourse/attention\.py\.html#L\d+"', html)
    lesson = (root / "html" / "notebooks" / f"{LESSONS[0].name}.html").read_text(encoding="utf-8")
    assert re.search(r'<img alt="Figure: 01 · A title" src="\.\./_images/\w+\.png"', lesson)
    built = audit.pages_of(root / "html")
    assert "source/kvcourse/config.py.html" in built
    assert audit.from_the_web(root / "html", built) == []
    assert audit.broken(root / "html", built) == audit.undescribed(built) == []


FAULTS = {
    "[a](#nowhere)": "nowhere",
    "{py:obj}`kvcourse.nothing`": "kvcourse.nothing",
    "$\\nonsense$": "a formula cannot be shown",
    "[a](source:nothing.py)": "no such file: nothing.py",
    "![](../docs/nothing.png)": "image file not readable",
}


def test_each_fault_of_a_page_is_a_warning_and_a_warning_fails_the_build(tmp_path):
    root = small_course(tmp_path, "# A page\n")
    (root / "source" / "docs" / "page.md").write_text("# A page\n\n" + "\n\n".join(FAULTS), encoding="utf-8")
    done = build(root)
    assert done.returncode != 0
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert [sum(complaint in line for line in warnings) for complaint in FAULTS.values()] == [1] * len(FAULTS), done.stderr


def test_a_link_to_a_file_that_is_gone_stops_before_sphinx_runs(tmp_path):
    with pytest.raises(pages.PageError, match=r"docs/page\.md: \.\./gone\.py \(there is no such file\)"):
        small_course(tmp_path, "# A page\n\n[a](../gone.py)\n")


def test_so_does_a_link_to_a_folder(tmp_path):
    with pytest.raises(pages.PageError, match=r"docs/page\.md: site \(a folder without a README\.md"):
        small_course(tmp_path, "# A page\n\n[a](site)\n")


# What came out.


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example.invalid/a.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.invalid/a.css">',
        '<link rel="preconnect" href="https://fonts.example.invalid">',
        '<img src="http://example.invalid/a.png" alt="a">',
        "<style>@font-face { src: url('https://example.invalid/a.woff2') }</style>",
        '<p style="background: url(https://example.invalid/a.png)">a</p>',
        '<svg><image href="https://example.invalid/a.svg"/></svg>',
        '<img src="a.png" srcset="b.png 1x, https://example.invalid/c.png 2x" alt="a">',
        '<source srcset="https://example.invalid/a,b.png">',
        '<link rel="preload" imagesrcset="https://example.invalid/a.png 300w, a.png">',
        '<input type="image" src="https://example.invalid/a.png">',
        '<track src="https://example.invalid/a.vtt">',
        '<base href="https://example.invalid/">',
        '<LINK REL="STYLESHEET" HREF="HTTPS://example.invalid/a.css">',
        '<link rel="Apple-Touch-Icon" href="https://example.invalid/a.png">',
        '<img src=" https://example.invalid/a.png" alt="a">',
        "<script>const it = await import('https://example.invalid/a.js')</script>",
        '<script type="module">import { a } from "https://example.invalid/a.js"</script>',
        '<script type="module">import "//example.invalid/a.js"</script>',
        "<script>fetch(`https://example.invalid/a.json`)</script>",
        '<script>new Worker("https://example.invalid/a.js")</script>',
    ],
)
def test_whatever_a_page_would_load_from_the_web_is_found(tmp_path, html):
    (tmp_path / "a.html").write_text(html, encoding="utf-8")
    assert len(audit.from_the_web(tmp_path, audit.pages_of(tmp_path))) == 1


def test_a_style_file_that_loads_from_the_web_is_found(tmp_path):
    (tmp_path / "a.css").write_text('@import "https://example.invalid/b.css";', encoding="utf-8")
    assert audit.from_the_web(tmp_path, {}) == ["a.css loads https://example.invalid/b.css"]


def test_so_is_a_script_file(tmp_path):
    (tmp_path / "a.js").write_text('export * from "https://example.invalid/b.js"; const x = "https://example.invalid/c"')
    assert audit.from_the_web(tmp_path, {}) == ["a.js loads https://example.invalid/b.js"]


def test_every_picture_of_a_set_has_to_be_there(tmp_path):
    (tmp_path / "a.html").write_text('<img src="a.png" srcset="a.png, b.png 2x,c.png 3x, d.png 4x" alt="A picture.">')
    for there in "abc":
        (tmp_path / f"{there}.png").touch()
    assert audit.broken(tmp_path, audit.pages_of(tmp_path)) == ["a.html: d.png (no such file)"]


def test_a_base_is_refused_wherever_it_leads(tmp_path):
    (tmp_path / "a.html").write_text('<base href="b/"><a href="c.html">a</a>', encoding="utf-8")
    (tmp_path / "b.html").write_text('<base target="_blank">', encoding="utf-8")
    found = audit.broken(tmp_path, audit.pages_of(tmp_path))
    assert len(found) == 1 and found[0].startswith("a.html: b/ (a <base> moves every address")


def test_a_link_to_the_web_is_allowed_and_a_picture_in_the_page_is_too(tmp_path):
    html = '<a href="https://example.invalid">a</a><img src="data:image/png;base64,AAAA" alt="a">'
    (tmp_path / "a.html").write_text(html, encoding="utf-8")
    built = audit.pages_of(tmp_path)
    assert audit.from_the_web(tmp_path, built) == audit.broken(tmp_path, built) == []


def test_a_picture_without_words_is_found_and_one_that_has_its_address_for_words_too(tmp_path):
    (tmp_path / "a.html").write_text('<img src="a.png"><img src="b.png" alt="b.png"><img src="c.png" alt="A triangle.">')
    assert [line.split()[1] for line in audit.undescribed(audit.pages_of(tmp_path))] == ["a.png", "b.png"]


def test_a_figure_s_own_words_are_its_alternative_text():
    output = {"data": {"image/png": ""}, "metadata": {"image/png": {"alt": "A tree,\nthen two."}}}
    cells = [{"outputs": [output], "metadata": {}}, {"outputs": [{**output, "metadata": {}}], "metadata": {}}]
    for cell in cells:
        pages.describe(cell, "Trees")
    assert [cell["metadata"]["mystnb"]["image"]["alt"] for cell in cells] == ["A tree, then two.", "Figure: Trees"]


def test_links_to_missing_files_and_places_are_found(tmp_path):
    links = ["b.html", "b.html#there", "#here", "b.html#gone", "c.html", "../outside.html", "#gone"]
    html = '<p id="here">' + "".join(f'<a href="{link}">a</a>' for link in links)
    (tmp_path / "a.html").write_text(html, encoding="utf-8")
    (tmp_path / "b.html").write_text('<p id="there">', encoding="utf-8")
    found = audit.broken(tmp_path, audit.pages_of(tmp_path))
    assert [re.search(r": (\S+)", line)[1] for line in found] == ["#gone", "../outside.html", "b.html#gone", "c.html"]


def test_the_site_that_was_built_here_is_whole_and_needs_no_network():
    if not (BUILT / "index.html").is_file():
        pytest.skip("no site was built here: make site")
    built = audit.pages_of(BUILT)
    assert audit.from_the_web(BUILT, built) == []
    assert audit.broken(BUILT, built) == audit.undescribed(built) == []

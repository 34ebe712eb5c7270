"""Reports: the same facts in four formats, and nothing that a learner wrote can do anything in any of them."""

import csv
import io
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from cohort import FILE, notebook, solved

from kvcourse import cli_grade
from kvcourse.cli import main
from kvcourse.errors import InputError
from kvcourse.grader import page, report
from kvcourse.grader.report import check_folder, clean, csv_text, json_text, junit_text, record, write_reports
from kvcourse.grader.results import SubmissionResult, TaskResult
from kvcourse.viz import style

EVIL = "</td><script>alert(1)</script>\x1b[31m\x00\u202e\udc80"


def task(name: str, points: int, state: str = "passed", broken: str | None = None, message: str = "said") -> TaskResult:
    return TaskResult(name, "mask", points, 3, message, state, broken)


RESULTS = [
    SubmissionResult("ada", (task("6.1", 3), task("6.2", 3), task("6.10", 3)), protections=("no network",), seed=4),
    SubmissionResult(
        "bob",
        (task("6.1", 3), task("6.2", 0, "failed", "sees_itself"), task("6.10", 0, "not started")),
        notes=("An id was lost.",),
        protections=("no network",),
        seed=4,
    ),
    SubmissionResult("cem", (task("6.2", 0, "failed", "sees_itself"), task("6.1", 0, "failed", "sees_the_past")), seed=4),
    SubmissionResult("dua", fault="dua.ipynb is not a notebook.", seed=4),
]
DOUBLE = "b.ipynb: 06_kv_cache once more, which does not count; a.ipynb does."
TWICE = SubmissionResult("eve", (task("6.1", 3),), notes=(DOUBLE, "An id was lost."), look=(DOUBLE,), seed=4)


def made(folder: Path, results=RESULTS) -> dict[str, str]:
    write_reports(results, folder)
    return {path.name: path.read_bytes().decode("utf-8") for path in folder.iterdir()}


def test_the_four_files_are_there_and_nothing_else_and_the_same_results_give_the_same_bytes(tmp_path):
    one, two = made(tmp_path / "deep" / "one"), made(tmp_path / "two")
    assert set(one) == {"report.json", "report.csv", "report.xml", "report.html"}
    assert one == two == made(tmp_path / "two")


def test_the_json_is_one_object_a_submission(tmp_path):
    report = json.loads(made(tmp_path)["report.json"])
    assert [(one["submission"], one["points"], one["max_points"], one["seed"]) for one in report] == [
        ("ada", 9, 9, 4), ("bob", 3, 9, 4), ("cem", 0, 6, 4), ("dua", 0, 0, 4),
    ]  # fmt: skip
    assert report[0]["protections"] == ["no network"]
    bob = report[1]["exercises"][1]
    assert bob == {"name": "6.2", "title": "mask", "points": 0, "max_points": 3, "message": "said", "state": "failed",
                   "broken": "sees_itself"}  # fmt: skip
    assert report[1]["notes"] == ["An id was lost."] and report[3]["fault"] == "dua.ipynb is not a notebook."


def test_the_csv_has_a_column_for_each_task_in_their_order_and_tells_0_from_nothing():
    rows = list(csv.reader(io.StringIO(csv_text(RESULTS))))
    assert rows[0] == ["submission", "points", "max_points", "6.1", "6.2", "6.10", "fault", "notes"]
    assert rows[1:] == [
        ["ada", "9", "9", "3", "3", "3", "", ""],
        ["bob", "3", "9", "3", "0", "0", "", "An id was lost."],
        ["cem", "0", "6", "0", "0", "", "", ""],
        ["dua", "", "", "", "", "", "dua.ipynb is not a notebook.", ""],
    ]


def test_which_of_two_notebooks_counted_stands_in_every_report_that_people_read():
    row = next(csv.DictReader(io.StringIO(csv_text([TWICE]))))
    assert row["notes"] == f"{DOUBLE} An id was lost."
    assert record(TWICE)["notes"][0] == DOUBLE
    words = Page(page.html_page([*RESULTS, TWICE])).words
    assert "2 need a look" in words
    look = words[words.index("Need a look Not graded") : words.index("What to teach again A task")]
    assert f"eve : {DOUBLE}" in look and "dua : dua.ipynb is not a notebook." in look
    assert "An id was lost." not in look and "name or number in its name" in look
    assert csv_text([SubmissionResult("x", notes=("=1",))]).endswith(",'=1\r\n")


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1"])
def test_a_spreadsheet_takes_no_name_for_a_formula(name):
    cell = next(csv.DictReader(io.StringIO(csv_text([SubmissionResult(name)]))))["submission"]
    assert cell == f"'{name}"


def test_junit_counts_tasks_failures_and_errors():
    root = ET.fromstring(junit_text(RESULTS))
    counts = {suite.get("name"): [int(suite.get(name)) for name in ("tests", "failures", "errors")] for suite in root}
    assert counts == {"ada": [3, 0, 0], "bob": [3, 2, 0], "cem": [2, 2, 0], "dua": [1, 0, 1]}
    failure = root.find("./testsuite[@name='bob']/testcase[@name='6.2 mask']/failure")
    assert (failure.get("type"), failure.get("message")) == ("sees_itself", "said")
    assert root.find("./testsuite[@name='dua']/testcase/error").text == "dua.ipynb is not a notebook."


# The page


class Page(HTMLParser):
    """Checks that tags are closed in order, and remembers what is there."""

    VOID = {"meta", "br", "link", "img"}  # noqa: RUF012

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.tags, self.text, self.ids, self.links = [], [], [], [], []
        self.cells: list[tuple[str, str]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes["href"]] if "href" in attributes else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def test_the_page_needs_nothing_from_outside_and_every_link_leads_somewhere():
    seen = Page(page.html_page(RESULTS))
    assert not [tag for tag, _ in seen.tags if tag in {"script", "link", "img", "iframe", "object", "form"}]
    assert not [name for _, attributes in seen.tags for name in attributes if name in {"src", "onclick", "srcset"}]
    assert len(seen.ids) == len(set(seen.ids))
    assert seen.links and all(link.removeprefix("#") in seen.ids for link in seen.links)
    assert "url(" not in page.html_page(RESULTS)


def test_the_page_says_who_which_task_and_which_property_broke_how_often():
    words = Page(page.html_page(RESULTS)).words
    assert "4 submissions" in words and "4.0 of 9 points on average" in words
    assert "dua : dua.ipynb is not a notebook." in words
    assert re.search(r"6\.2 mask 1 of 3 passed.* 2 sees itself said bob , cem", words)
    assert "1 of 2 passed, 1 without an answer" in words
    assert "--seed 4" in words and "2 submissions: no network" in words
    assert "nothing. Do not trust these points" in words, "cem's answers ran without protection"


def test_the_property_that_broke_most_often_stands_first():
    results = [SubmissionResult(str(n), (task("6.1", 0, "failed", name),)) for n, name in enumerate(["a_x", "b_x", "b_x"])]
    assert [(one.name, len(one.learners)) for one in page.summaries(results)[0].difficulties] == [("b x", 2), ("a x", 1)]


def test_every_state_has_a_mark_and_a_word_besides_its_colour():
    seen = Page(page.html_page(RESULTS))
    cells = [attributes["class"] for tag, attributes in seen.tags if tag == "td" and "cell" in attributes.get("class", "")]
    labels = [attributes["aria-label"] for _, attributes in seen.tags if attributes.get("role") == "img"]
    assert len(cells) == 4 * 3 and {"cell passed", "cell failed", "cell not-started", "cell none"} == set(cells)
    assert set(page.WORDS) == set(page.MARKS) and len(set(page.MARKS.values())) == len(page.MARKS)
    assert {page.WORDS["passed"], page.WORDS["failed"], page.WORDS["not started"], page.WORDS["none"]} <= set(labels)


def test_the_colours_are_the_course_s():
    assert (page.INK, page.MUTED, page.GRID) == (style.INK, style.MUTED, style.GRID)
    assert (page.GREEN, page.GREEN_TEXT) == (style.ACTIVATION.fill, style.ACTIVATION.text)
    assert (page.AMBER, page.AMBER_TEXT) == (style.AGGREGATE.fill, style.AGGREGATE.text)
    assert page.BLUE_TEXT == style.PARAMETER.text


def test_the_page_gives_no_mean_of_nothing_and_says_what_points_need():
    assert "on average" not in Page(page.html_page(RESULTS[3:])).words
    assert "points need all of its properties" in Page(page.html_page(RESULTS)).words


def test_a_page_of_nothing_is_a_page():
    assert "0 submissions" in Page(page.html_page([])).words


# What learners write


def test_nothing_that_a_learner_wrote_does_anything_in_any_report(tmp_path):
    bad = SubmissionResult(EVIL, (task("6.1", 0, "failed", "sees_itself", EVIL),), notes=(EVIL,), fault=EVIL)
    texts = made(tmp_path, [bad])
    assert "<script" not in texts["report.html"] and "&lt;script&gt;" in texts["report.html"]
    Page(texts["report.html"])
    ET.fromstring(texts["report.xml"])
    assert json.loads(texts["report.json"])[0]["exercises"][0]["message"].startswith("</td><script>")
    for text in texts.values():
        assert not re.search("[\x00-\x08\x1b\u202e]", text)


def test_a_long_message_is_cut():
    assert len(clean("x" * 100_000)) < 2100 and clean("short") == "short"


@pytest.mark.parametrize(
    "text",
    ["a\n::notice title=Autograding complete::Points 10/10", "a ##[notice]b", "\x1b[2Ja", ":::error::x", "###[x] ##vso[y]"],
)
def test_a_message_steers_neither_a_terminal_nor_a_ci_system(text):
    line = cli_grade._line(text)
    assert "::" not in line and "##" not in line and "\x1b" not in line and "\n" not in line


@pytest.mark.parametrize(
    "text", [":::error::x", "a\n  ::notice::b", "##vso[task]x", "a ##vso[task]x", "\n###[group]x", "b ##[x]"]
)
def test_no_line_of_a_report_is_a_command_to_a_ci_system(text):
    assert not re.search(r"(?m)^\s*(::|##)|##vso\[|##\[", clean(text))
    assert clean("x[::2] # a ## b") == "x[::2] # a ## b"


FORMULAS = ["=1", " \u00a0=1", "\uff1d1", "\uff0b1", "@x", "\t-1", "a;=1", "a; \uff201"]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_of_the_table_is_a_formula_however_it_is_hidden(text):
    assert not re.search(r"(^|;)\s*[=+\-@\uff1d\uff0b\uff0d\uff20]", report._cell(text))
    assert report._cell("a - b; c = d") == "a - b; c = d"


def test_a_report_replaces_the_one_before_and_a_crash_leaves_it_whole(tmp_path, monkeypatch):
    before = made(tmp_path)
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(OSError(28, "no space")))
    with pytest.raises(OSError, match="no space"):
        write_reports(RESULTS[:1], tmp_path)
    assert {path.name: path.read_bytes().decode("utf-8") for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="report cannot be written"):
        write_reports(RESULTS, tmp_path / "file" / "report")


def test_a_record_holds_what_the_json_holds():
    assert json.loads(json_text(RESULTS)) == [record(result) for result in RESULTS]


# The command


@pytest.fixture
def fake_results(monkeypatch):
    """`kvcourse grade` with these results instead of a grader's."""

    def use(results):
        monkeypatch.setattr("kvcourse.grader.batch.grade_found", lambda found, **options: results)

    return use


def run(*arguments) -> int:
    with pytest.raises(SystemExit) as end:
        main(["grade", *map(str, arguments)])
    return end.value.code or 0


@pytest.fixture
def submission(tmp_path):
    path = tmp_path / "ada" / f"{FILE}.ipynb"
    path.parent.mkdir()
    path.write_text(solved(), encoding="utf-8")
    return path.parent


def test_lost_points_are_no_failure_unless_asked_for(tmp_path, submission, fake_results, capsys):
    fake_results(RESULTS[:2])
    assert run(submission, "--out", tmp_path / "1") == 0
    assert run(submission, "--out", tmp_path / "2", "--require-all") == 1
    fake_results(RESULTS[:1])
    assert run(submission, "--out", tmp_path / "3", "--require-all") == 0
    fake_results(RESULTS)
    assert run(submission, "--out", tmp_path / "4", "--require-all") == 2


def test_a_single_submission_is_told_task_by_task(tmp_path, submission, fake_results, capsys):
    fake_results(RESULTS[1:2])
    assert run(submission, "--out", tmp_path / "out", "--seed", "4") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1:5] == ["6.1 mask 3/3: said", "6.2 mask 0/3: said", "6.10 mask 0/3: said", "Note: An id was lost."]
    assert shown[5] == "A task's points need all of its properties."
    assert shown[6] == "1 of 1 submissions graded, mean 3.0 of 9 points."


def test_nothing_graded_has_no_mean(tmp_path, submission, fake_results, capsys):
    fake_results(RESULTS[3:])
    assert run(submission, "--out", tmp_path / "out", "--seed", "4") == 2
    assert capsys.readouterr().out.splitlines()[1] == "0 of 1 submissions graded."


def test_a_class_is_told_in_one_line_which_of_two_notebooks_counted(tmp_path, submission, fake_results, capsys):
    fake_results([*RESULTS, TWICE])
    run(submission, "--out", tmp_path / "out", "--seed", "4")
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Note: ")]
    assert notes == [f"Note: eve: {DOUBLE}"]


def test_a_report_is_not_written_over_unless_that_is_asked_for(tmp_path, submission, fake_results, capsys, monkeypatch):
    fake_results(RESULTS)
    out = tmp_path / "out"
    run(submission, "--out", out)
    before = (out / "report.json").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr("kvcourse.grader.batch.grade_found", lambda *found, **options: pytest.fail("it was graded"))
        capsys.readouterr()
        assert run(submission, "--out", out) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and (out / "report.json").read_bytes() == before
    assert shown.err == f"kvcourse: {out}/ holds a report (seed 4). Name another folder, or add --force.\n"
    fake_results(RESULTS[:1])
    assert run(submission, "--out", out, "--force") == 0
    assert len(json.loads((out / "report.json").read_text())) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", '[{"seed": "x"}]'])
def test_a_report_that_nobody_can_read_is_not_written_over_either(tmp_path, text):
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(InputError, match=r"/ holds a report\. Name another folder"):
        check_folder(tmp_path)


def test_the_help_names_the_extra_and_says_what_counts(capsys):
    assert run("--help") == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "needs kvcourse[dask]." in words
    assert "name counts, then one with the exercise's name or number in its name" in words
    assert "points need all of its properties" in words


def test_a_seed_is_drawn_and_told(tmp_path, submission, fake_results, capsys):
    fake_results(RESULTS[:1])
    seeds = []
    for number in range(2):
        assert run(submission, "--out", tmp_path / str(number)) == 0
        seeds.append(re.match(r"Seed (\d+): with --seed \1 ", capsys.readouterr().out)[1])
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize("arguments", [["nowhere"], ["nowhere.ipynb", "--seed", "-1"], [], ["x", "--jobs", "0"]])
def test_bad_input_is_exit_status_2(tmp_path, arguments, capsys):
    assert run(*arguments, "--out", tmp_path / "out") == 2
    assert capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_notebook_leaves_no_folder_for_its_report(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / "empty", "--out", tmp_path / "deep" / "out") == 2
    assert "holds no notebook" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_missing_file_costs_the_others_nothing(tmp_path, submission, capsys):
    (submission / f"{FILE}.ipynb").write_text(notebook({}), encoding="utf-8")
    assert run(submission, tmp_path / "nobody.ipynb", "--out", tmp_path / "out", "--seed", "1") == 2
    shown = capsys.readouterr()
    assert "1 of 2 submissions graded" in shown.out
    assert [line for line in shown.err.splitlines() if line] == [line for line in shown.err.splitlines() if "nobody" in line]


def test_the_out_folder_is_checked_before_any_work(tmp_path, submission):
    (tmp_path / "out").write_text("a file")
    command = [sys.executable, "-m", "kvcourse", "grade", submission, "--out", tmp_path / "out"]
    shown = subprocess.run(command, capture_output=True, text=True)
    assert shown.returncode == 2 and shown.stdout == "" and len(shown.stderr.strip().splitlines()) == 1

"""Maintainers only: what is kept of a cell's outputs, and what is refused. No kernel is started here."""

import base64
import struct
import tempfile
import zlib
from datetime import datetime
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output

from tools.notebooks.outputs import WIDGET, faults, tidy, widget_fault

ROOT = Path(__file__).resolve().parents[2]
HOME, USERS, TMP = (f"/{name}" for name in ("home", "Users", "tmp"))  # in pieces: no file of the project holds such a path


def cell(*outputs: NotebookNode, tags: tuple[str, ...] = ()) -> NotebookNode:
    return new_code_cell("pass", outputs=list(outputs), metadata={"tags": list(tags)})


def display(**data: object) -> NotebookNode:
    return new_output("display_data", {mime.replace("_", "/"): value for mime, value in data.items()})


def stream(text: str, name: str = "stdout") -> NotebookNode:
    return new_output("stream", name=name, text=text)


def png(*chunks: tuple[bytes, bytes]) -> str:
    parts = [struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks]
    return base64.encodebytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def test_consecutive_pieces_of_one_stream_become_one_output() -> None:
    given = cell(stream("a"), stream("b\n"), stream("w", "stderr"), stream("c"), display(text_plain="x"), stream("d"))
    tidy(given)
    assert [(out.get("name"), out.get("text")) for out in given.outputs] == [
        ("stdout", "ab\n"),
        ("stderr", "w"),
        ("stdout", "c"),
        (None, None),
        ("stdout", "d"),
    ]


def test_a_progress_bar_leaves_its_last_state() -> None:
    given = cell(stream("10%\r 50%"), stream("\r100%\ndone\r\n"))
    tidy(given)
    assert given.outputs[0].text == "100%\ndone\r\n"


def test_a_traceback_keeps_the_error_and_loses_the_frames() -> None:
    given = cell(new_output("error", ename="E", evalue="\x1b[31mno\x1b[0m", traceback=["File ~/a.py:1", "E: no"]))
    tidy(given)
    assert given.outputs[0].traceback == ["E: no"]


def test_a_picture_loses_its_text_chunks_and_nothing_else() -> None:
    header, data, end = (b"IHDR", b"1" * 13), (b"IDAT", b"pixels"), (b"IEND", b"")
    given = cell(display(image_png=png(header, (b"tEXt", b"Software\0matplotlib 3"), data, (b"tIME", b"1234567"), end)))
    tidy(given)
    assert base64.b64decode(given.outputs[0].data["image/png"]) == base64.b64decode(png(header, data, end))


def test_a_widget_leaves_its_static_figure_and_no_view() -> None:
    view = nbformat.from_dict({"model_id": "12", "version_major": 2})
    given = cell(display(image_png=png((b"IEND", b"")), text_plain="<Figure>"), tags=("volatile",))
    given.outputs[0].data[WIDGET] = view
    given.outputs.append(display(text_plain="IntSlider(value=1)"))
    given.outputs[1].data[WIDGET] = view
    assert widget_fault(given) is None
    tidy(given)
    assert [sorted(output.data) for output in given.outputs] == [["image/png", "text/plain"]]


@pytest.mark.parametrize(("picture", "says"), [(False, "without a static figure"), (True, "add the tag volatile")])
def test_a_widget_that_leaves_nothing_or_a_surprise_is_refused(picture: bool, says: str) -> None:
    lone = display(text_plain="IntSlider(value=1)")
    lone.data[WIDGET] = {"model_id": "12"}
    given = cell(lone, *([display(image_png="")] if picture else []))
    assert says in (widget_fault(given) or "")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("<object object at 0x7f53a1b2c3d0>", "a memory address"),
        ("[<matplotlib.lines.Line2D at 0x7F53A1B2C3D0>]", "a memory address"),
        (f"{HOME}/ada/course/model", "a path"),
        (f"saved to '{TMP}/ab12/x.bin'", "a path"),
        (f"file://{USERS}/ada/x", "a path"),
        (r"C:\Users\ada\x", "a path"),
        ("File ~/course/kvcourse/cli.py:12", "a path"),
        ("ipykernel_4711/1.py", "a path"),
        ("lib/python3.11/site-packages/numpy", "a path"),
        (f"read {ROOT}/README.md", "a path"),
        (tempfile.gettempdir() + "/x", "a path"),
        (f"{datetime.now():%Y-%m-%d}T10:00:00", "a time stamp"),
        (f"{datetime.now().replace(hour=10, minute=0, second=0).ctime()}", "a time stamp"),
    ],
)
@pytest.mark.parametrize("kind", ["stream", "html", "error"])
def test_addresses_machine_paths_and_time_stamps_are_refused(text: str, what: str, kind: str) -> None:
    output = {
        "stream": stream(f"before\n{text}\n"),
        "html": display(text_html=f"<b>{text}</b>"),
        "error": new_output("error", ename="E", evalue=text, traceback=[]),
    }[kind]
    assert what in next(faults(cell(output), ROOT, fresh=True))


@pytest.mark.parametrize(
    "text",
    [
        "0x7f53a1b2c3d0 is 139996, and look at 0x1f",
        "https://example.org/home/page and /usr",
        "tokens/home and/or a/b",
        "You are a helpful assistant. The time is 2019-05-01T12:00:00.",
        "kvcourse/models/gpt.py  GPT",
        "~5 ms",
    ],
)
def test_words_that_only_look_like_a_leak_pass(text: str) -> None:
    assert list(faults(cell(stream(text), display(text_html=text)), ROOT, fresh=True)) == []


def test_a_date_is_a_time_stamp_only_in_an_output_that_was_just_made() -> None:
    assert list(faults(cell(stream(f"{datetime.now():%Y-%m-%d}")), ROOT)) == []

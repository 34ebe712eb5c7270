"""Maintainers only: makes a cell's outputs the same on every machine, or refuses them. Knows nothing about sources.

Everything here works on one executed cell. `tidy` changes its outputs in place; `faults` names what must not be committed.
"""

import base64
import re
import struct
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from nbformat import NotebookNode

WIDGET = "application/vnd.jupyter.widget-view+json"
_PICTURES = ("image/png", "image/svg+xml", "image/jpeg")
_OVERWRITTEN = re.compile(r"^.*\r(?=[^\n])", re.MULTILINE)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}")
_PATH = re.compile(
    r"(?<![\w./~:-])(?:file://)?/(?:home|Users|root|tmp|var|private|usr|mnt|srv|media|Volumes|nix)/[\w.@+-]+"
    r"|\b[A-Za-z]:\\{1,2}(?:Users|Windows|Program|Temp)\b|\bFile ~[\\/]|\bipykernel_\d+|\bsite-packages/"
)
_PNG_TEXT = (b"tEXt", b"zTXt", b"iTXt", b"tIME", b"eXIf")


def tidy(cell: NotebookNode) -> None:
    """Merge stream pieces, drop widget state, shorten tracebacks, and strip names and times out of pictures."""
    outputs: list[NotebookNode] = []
    for output in cell.outputs:
        last = outputs[-1] if outputs else None
        if output.output_type == "stream" and last and last.output_type == "stream" and last.name == output.name:
            last.text += output.text  # how a stream is cut into messages is a matter of timing
            continue
        if output.output_type == "error":  # the frames of a traceback hold this machine's paths; nbval ignores them
            output.traceback = [f"{output.ename}: {_ANSI.sub('', output.evalue)}"]
        if "data" in output:
            if "image/png" in output.data:
                output.data["image/png"] = _plain_png(output.data["image/png"])
            # A saved widget view without its state shows "model not found" when the notebook is opened again, and the
            # state would be larger than the lesson. The static figure in the same output is what is kept.
            if output.data.pop(WIDGET, None) is not None and set(output.data) <= {"text/plain"}:
                continue
        outputs.append(output)
    for output in outputs:
        if output.output_type == "stream":
            output.text = _OVERWRITTEN.sub("", output.text)  # a progress bar leaves its last state
    cell.outputs = outputs


def widget_fault(cell: NotebookNode) -> str | None:
    """Call it before `tidy`: a widget that would leave nothing to see on GitHub, nbviewer or in a PDF."""
    views = [output for output in cell.outputs if WIDGET in output.get("data", {})]
    if not views:
        return None
    if not any(mime in output.get("data", {}) for output in cell.outputs for mime in _PICTURES):
        return "a widget without a static figure beside it."
    lone = any(set(view.data) <= {"text/plain", WIDGET} for view in views)
    if lone and "volatile" not in cell.metadata.get("tags", []):
        return "a widget whose own output holds no figure, in a cell that is compared: add the tag volatile."
    return None


def faults(cell: NotebookNode, root: Path, *, fresh: bool = False) -> Iterator[str]:
    """What must not be committed. fresh: the cell has just run, so today's date is a time stamp and not a quotation."""
    rules = [(_ADDRESS, "a memory address"), (_PATH, "a path of this machine")]
    rules += [(re.compile(re.escape(str(path)) + r"(?!\w)"), "a path of this machine") for path in _own_paths(root)]
    if fresh:
        for now in (datetime.now(), datetime.now(UTC)):
            today = rf"{now:%Y-%m-%d}|\b0?{now.day} {now:%b} {now:%Y}|\b{now:%a %b}\s+{now.day}\b"
            rules.append((re.compile(today), "a time stamp"))
    for text in texts(cell):
        for pattern, what in rules:
            found = pattern.search(text)
            if found:
                line = text[text.rfind("\n", 0, found.start()) + 1 :].split("\n", 1)[0]
                yield f"the output holds {what} ({found[0]!r}, in {line[:100]!r})."


def _own_paths(root: Path) -> list[Path]:
    paths = {root, root.resolve(), Path.home(), Path(sys.prefix), Path(sys.base_prefix), Path(tempfile.gettempdir())}
    return sorted(path for path in paths if len(path.parts) > 2)  # "/usr" alone is a word, not a leak


def texts(cell: NotebookNode) -> Iterator[str]:
    """Every text among the cell's outputs."""
    for output in cell.outputs:
        if output.output_type == "stream":
            yield output.text
        elif output.output_type == "error":
            yield "\n".join([output.evalue, *output.traceback])
        else:
            yield from (str(value) for mime, value in output.data.items() if mime not in ("image/png", "image/jpeg"))


def _plain_png(encoded: str) -> str:
    """The same picture without its text chunks: matplotlib writes its own version there."""
    data = base64.b64decode(encoded)
    kept, position = [data[:8]], 8
    while position < len(data):
        (length,) = struct.unpack(">I", data[position : position + 4])
        chunk = data[position : position + length + 12]
        if chunk[4:8] not in _PNG_TEXT:
            kept.append(chunk)
        position += len(chunk)
    return base64.b64encode(b"".join(kept)).decode("ascii")

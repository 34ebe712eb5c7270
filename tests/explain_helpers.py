"""Two requests in files, and what `kvcourse explain` says of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvcourse.cli import main

Run = Callable[..., tuple[int, str, str]]


def explainer(folder: Path, capsys: Any, *always: str) -> Run:
    """A function of two requests (as text, or as what JSON says) and options: exit status, output, errors."""

    def run(first: Any, second: Any, *options: str) -> tuple[int, str, str]:
        paths = []
        for name, request in (("A.json", first), ("B.json", second)):
            paths.append(str(folder / name))
            Path(paths[-1]).write_text(request if isinstance(request, str) else json.dumps(request), encoding="utf-8")
        with pytest.raises(SystemExit) as end:
            main(["explain", *paths, *always, *options])
        shown = capsys.readouterr()
        return int(end.value.code or 0), shown.out, shown.err

    return run

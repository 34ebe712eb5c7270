"""Maintainers only: the site builder's command line. Exit status: 0 all is well, 1 a page or a link is wrong."""

import os
import shutil
import sys
import time
from pathlib import Path

from sphinx.cmd.build import build_main

from tools.site.audit import broken, from_the_web, pages_of, undescribed
from tools.site.pages import OWN, PageError, lay_out

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "site"


def main(root: Path = ROOT, folder: Path = FOLDER) -> int:
    started = time.monotonic()
    source, html = folder / "source", folder / "html"
    try:
        lay_out(root, source)
    except PageError as error:
        print(error, file=sys.stderr)
        return 1
    shutil.rmtree(html, ignore_errors=True)
    os.environ.setdefault("SOURCE_DATE_EPOCH", "0")  # the same pages from the same sources
    strict = ["-W", "--keep-going", "-n", "-E", "-a", "-q"]
    status = build_main([*strict, "-b", "html", "-c", str(root / OWN), "-d", str(folder / "doctrees"), str(source), str(html)])
    if status:
        print("The site was not finished: see above.", file=sys.stderr)
        return 1
    pages = pages_of(html)
    faults = [*broken(html, pages), *from_the_web(html, pages), *undescribed(pages)]
    if faults:
        print("\n".join(faults), file=sys.stderr)
        return 1
    print(f"{len(pages)} pages in {time.monotonic() - started:.0f} s, every link checked. Open {html / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

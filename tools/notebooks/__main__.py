"""Maintainers only: the builder's command line. Exit status: 0 all is well, 1 a fault was found, 2 wrong usage."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.notebooks.build import build, check
from tools.notebooks.execute import TIMEOUT_S
from tools.notebooks.source import BuildError

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.notebooks", description="Builds the notebooks from sources/.")
    command = parser.add_subparsers(dest="command", required=True).add_parser("build", help="execute what changed and write it")
    command.add_argument("names", nargs="*", metavar="NAME", help="06, 06_kv_cache or a path; all when none is given")
    command.add_argument("--timeout", type=int, default=TIMEOUT_S, metavar="SECONDS", help="for one cell (%(default)s)")
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--force", action="store_true", help="execute the unchanged ones too")
    mode.add_argument("--check", action="store_true", help="execute nothing; say what does not match the sources")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            found = check(root, options.names)
            print("\n".join(found) or "every notebook matches its source")
            return 1 if found else 0
        build(root, options.names, force=options.force, timeout_s=options.timeout)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

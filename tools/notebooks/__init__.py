"""Maintainers only: turns sources/ into the executed notebooks. Knows nothing about what a lesson teaches.

    python -m tools.notebooks build [--force] [NAME ...]      execute what changed, or everything
    python -m tools.notebooks build --check [NAME ...]        execute nothing: do the committed notebooks match?

    sources/lessons/NN_name.py    -> notebooks/NN_name.ipynb
    sources/exercises/NN_name.py  -> solutions/NN_name.ipynb (executed) and exercises/NN_name.ipynb (stubs)

`source` reads a source and says what its notebooks must hold, `exercises` cuts the solutions out, `grading` writes what
graders need into an exercise, `execute` runs a notebook, `outputs` makes what came out the same everywhere (or refuses it),
`build` writes and checks.

What the tests compare is shared out between two tools, so that each notebook is executed once: `build --check` compares
everything but the outputs (sources, ids, tags, metadata, digest), and nbval runs every cell and compares the outputs.
nbval compares streams, text/plain, text/html and every other text, and an error's name and message. It ignores the cells
tagged `volatile`, and in the others it ignores tracebacks, the metadata of an output, widget views, and PNG and JPEG pictures.
That last one is wanted: the same figure differs in a few pixels between two versions of FreeType. What is left of a
picture in the comparison is its text/plain (`<Figure size 640x480 with 2 Axes>`: there, of that size, with so many
axes); what the picture shows is stated by assertions, and drawn by functions that have tests of their own.
"""

from tools.notebooks.build import build, check
from tools.notebooks.source import BuildError, Source

__all__ = ["BuildError", "Source", "build", "check"]

"""Every lesson: what JupyterLab may write. Knows nothing about notebooks, only about where they lie.

Lessons are tracked files. A saved one would make the next pull a conflict, so JupyterLab gets them read-only: their cells run
and can be changed, and nothing is written. `Save Notebook As` keeps a copy, and work/ is the learner's own.
"""

import platform
from typing import Any

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from tornado.web import HTTPError

TRACKED = ("notebooks", "exercises", "solutions", "sources")


class LessonFiles(AsyncLargeFileManager):
    """The usual files, of which the course's own cannot be written."""

    async def get(self, path: str, *args: Any, **options: Any) -> dict[str, Any]:
        model = await super().get(path, *args, **options)
        for entry in [model, *(model["content"] if model["type"] == "directory" and model["content"] else [])]:
            if is_tracked(entry["path"]):
                entry["writable"] = False
        if model["type"] == "notebook" and model["content"]:
            _name_version(model["content"]["metadata"])
        return dict(model)

    async def save(self, model: dict[str, Any], path: str = "") -> dict[str, Any]:
        if is_tracked(path):
            raise HTTPError(403, "Lessons stay as they are, so that updates never conflict. Save a copy below work/.")
        return dict(await super().save(model, path))


def is_tracked(path: str) -> bool:
    """Is this a file of the course, and not the learner's?"""
    folder, _, rest = path.strip("/").partition("/")
    return folder in TRACKED and bool(rest)


def _name_version(metadata: dict[str, Any]) -> None:
    """The course's notebooks name no version of Python. The kernel would add its own, and the page would take that for a
    change that somebody made: a notebook that was only opened would ask to be saved."""
    language = metadata.get("language_info")
    if isinstance(language, dict) and language.get("name") == "python":
        language.setdefault("version", platform.python_version())

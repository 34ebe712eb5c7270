"""What could not be run where it was written (Docker, repo2docker, Colab) names files, commands and versions that exist."""

import json
import os
import re
import shlex
import subprocess
import tomllib
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

import pytest
import typer
import yaml

from kvcourse.cli import app
from tools import colab

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_RUN = ("Dockerfile", ".binder/environment.yml", ".binder/postBuild")
PAGES = ("docs/jupyterhub.md", "docs/colab.md")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, continued lines joined, without comments."""
    lines = [line for line in read("Dockerfile").splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def of(kind: str) -> list[str]:
    return [rest for name, rest in instructions() if name == kind]


def commands(text: str) -> list[list[str]]:
    """The commands of a shell line, or of a script."""
    lines = re.split(r"\n|&&|;", re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE))
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def kvcourse_commands(text: str) -> list[list[str]]:
    """What is typed behind `kvcourse`, whatever stands in front of it."""
    return [words[words.index("kvcourse") + 1 :] for words in commands(text) if "kvcourse" in words[:-1]]


def ignored(path: str) -> bool:
    patterns = [line for line in read(".dockerignore").splitlines() if line and not line.startswith("#")]
    parts = [str(parent) for parent in (PurePosixPath(path), *PurePosixPath(path).parents)]
    return any(fnmatch(part, pattern) or fnmatch(part, pattern.removeprefix("**/")) for part in parts for pattern in patterns)


@pytest.mark.parametrize("name", NOT_RUN)
def test_a_file_that_was_never_run_says_so_in_its_first_line(name):
    head = read(name).removeprefix("#!/bin/bash\n").splitlines()[0]
    assert head.startswith("# NOT RUN: there was no ")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_was_not_run(name):
    assert "**Not run:**" in read(name)


def test_every_instruction_of_the_dockerfile_is_one_that_docker_knows():
    known = {"FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "CMD"}
    assert {name for name, _ in instructions()} == known
    assert instructions()[0][0] == "FROM"


def test_what_the_dockerfile_copies_is_there_and_is_sent_to_docker():
    copied = [source for line in of("COPY") for source in line.split()[:-1]]
    assert len(copied) > 8
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert [source for source in copied if ignored(source)] == []


def test_the_image_gets_all_that_the_wheel_s_build_and_the_command_lab_read():
    copied = {source for line in of("COPY") for source in line.split()[:-1]}
    build = tomllib.loads(read("pyproject.toml"))["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert copied >= {"pyproject.toml", PROJECT["readme"], *PROJECT["license-files"], *build, "constraints.txt", "notebooks"}


def test_the_image_s_python_is_one_that_the_package_names():
    version = re.fullmatch(r"python:(\d\.\d+)-slim", of("FROM")[0])
    assert version
    assert f"Programming Language :: Python :: {version[1]}" in PROJECT["classifiers"]


def test_the_image_runs_as_a_learner_whose_answers_outlive_it():
    assert of("USER") == ["learner"]
    assert of("VOLUME") == [f"{of('WORKDIR')[0]}/work"]


def test_containers_install_extras_and_constraints_that_exist():
    installs = [words for line in of("RUN") for words in commands(line) if words[:2] == ["pip", "install"]]
    assert installs == [["pip", "install", "-c", "constraints.txt", "-e", ".[lab]"]]
    assert "lab" in PROJECT["optional-dependencies"]


@pytest.mark.parametrize("name", ["Dockerfile", ".binder/postBuild", *PAGES])
def test_commands_that_are_typed_exist(name):
    text = read(name)
    if name == "Dockerfile":
        text = "\n".join([*of("RUN"), *(json.loads(line)[-1] for line in of("CMD"))])
    if name.endswith(".md"):
        text = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    typed = kvcourse_commands(text)
    known = set(typer.main.get_command(app).commands)
    assert {words[0] for words in typed} <= known
    for words in re.findall(r"python -m (tools\.\w+)", text):
        assert find_spec(words), words
    assert typed or "tools.colab" in text


def test_the_search_for_commands_finds_one_that_does_not_exist():
    text = "pip install x && kvcourse fetch smollm2; exec kvcourse lap --ip=0\n# kvcourse no\nsudo kvcourse start"
    assert [words[0] for words in kvcourse_commands(text)] == ["fetch", "lap", "start"]


def test_binder_gets_the_packages_of_environment_yml():
    own, binder = (yaml.safe_load(read(name)) for name in ("environment.yml", ".binder/environment.yml"))
    assert binder["name"] == own["name"]
    assert binder["channels"] == own["channels"]
    assert binder["dependencies"] == [entry for entry in own["dependencies"] if isinstance(entry, str)]


def test_binder_s_script_is_bash_and_can_be_started():
    assert os.access(ROOT / ".binder" / "postBuild", os.X_OK)
    assert subprocess.run(["bash", "-n", str(ROOT / ".binder" / "postBuild")]).returncode == 0
    assert ["pip", "install", "--no-deps", "-e", "."] in commands(read(".binder/postBuild"))


def test_the_page_on_colab_shows_the_cell_that_is_written_into_the_copies():
    assert f"```python\n{colab.first_cell()}\n```" in read("docs/colab.md")


def test_the_cell_does_nothing_where_the_course_is_installed(monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: pytest.fail("something was run"))
    exec(colab.first_cell(), {})


def test_the_cell_installs_the_course_and_then_fetches_the_model_where_it_is_missing(monkeypatch):
    ran = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", lambda command, check: ran.append(command[1:]) or check)
    exec(colab.first_cell("git+https://example.invalid/a.git"), {})
    assert ran == [
        ["-m", "pip", "install", "--quiet", "git+https://example.invalid/a.git"],
        ["-m", "kvcourse", "fetch", "smollm2"],
    ]


@pytest.mark.parametrize("source", ['x"; import os', "a\\", "a\nb", "a\n", "a\rb", "", " "])
def test_a_source_that_is_none_or_would_break_out_of_the_cell_is_refused_before_anything_is_changed(source, tmp_path, capsys):
    with pytest.raises(ValueError, match="no quotes"):
        colab.first_cell(source)
    kept = tmp_path / "build" / "colab" / "kept"
    kept.parent.mkdir(parents=True)
    kept.write_text("a")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "01_a.ipynb").write_text('{"cells": [{"cell_type": "markdown", "source": "# 01"}]}')
    with pytest.raises(ValueError, match="no quotes"):
        colab.write_copies(tmp_path, kept.parent, source)
    with pytest.raises(SystemExit) as end:
        colab.main(["--source", source], root=tmp_path)
    told = capsys.readouterr()
    assert end.value.code == 2 and "no quotes" in told.err and not told.out
    assert kept.read_text() == "a"


def test_copies_differ_from_the_committed_notebooks_by_the_cell_alone(tmp_path):
    written = colab.write_copies(ROOT, tmp_path / "colab")
    assert {path.parent.name for path in written} == {"notebooks", "exercises"}
    for path in written:
        made = json.loads(path.read_text(encoding="utf-8"))
        cell = made["cells"].pop(1)
        assert cell["source"] == colab.first_cell()
        assert made == json.loads((ROOT / path.parent.name / path.name).read_text(encoding="utf-8"))

"""Files that say the same thing in two places agree, and nothing that belongs to one machine is committed."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONDA_NAME = {"torch": "pytorch"}


def requirements(*groups: str) -> dict[str, Requirement]:
    lines = list(PROJECT["dependencies"])
    for group in groups:
        lines += PROJECT["optional-dependencies"][group]
    parsed = [Requirement(line) for line in lines]
    return {canonicalize_name(one.name): one for one in parsed if one.name != "kvcourse"}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_environment_yml_has_the_names_and_ranges_of_pyproject():
    entries = yaml.safe_load(read("environment.yml"))["dependencies"]
    conda = {one.name: str(one.specifier) for one in (Requirement(entry) for entry in entries if isinstance(entry, str))}
    wanted = {CONDA_NAME.get(name, name): str(one.specifier) for name, one in requirements("lab").items()}
    assert conda == {"python": PROJECT["requires-python"], "pip": "", **wanted}
    assert entries[-1] == {"pip": ["-e ."]}


def constraints() -> dict[str, Version]:
    lines = [line for line in read("constraints.txt").splitlines() if line and not line.startswith("#")]
    pairs = [re.fullmatch(r"([A-Za-z0-9._-]+)==([0-9A-Za-z.+!]+)", line) for line in lines]
    assert all(pairs), [line for line, pair in zip(lines, pairs, strict=True) if not pair]
    return {canonicalize_name(pair[1]): Version(pair[2]) for pair in pairs if pair}


def test_every_direct_dependency_is_pinned_within_its_range():
    pins = constraints()
    for name, requirement in requirements("lab", "dask", "site", "test", "browser").items():
        assert name in pins, f"constraints.txt does not pin {name}"
        assert requirement.specifier.contains(pins[name]), f"{name}=={pins[name]} is outside {requirement.specifier}"


def test_no_pin_has_a_local_version_tag():
    assert [name for name, version in constraints().items() if version.local] == []


def test_the_tests_run_with_the_pinned_versions():
    pins = constraints()
    for name in requirements("lab", "dask", "site", "test"):
        assert Version(metadata.version(name)).public == str(pins[name]), f"{name} is not the pinned one"


def everything_needed() -> set[str]:
    """Names of all packages that any system gets: dependencies of dependencies, but not those of one platform or Python
    only, nor what is below torch, where each build (CPU, CUDA) has its own."""
    needed, waiting = set(), list(requirements("lab", "dask", "site", "test").values())
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name in needed or one.marker is not None:  # a marker: an extra nobody asked for, or one platform only
            continue
        needed.add(name)
        if name != "torch":
            waiting += [Requirement(line) for line in metadata.requires(name) or []]
    return needed


def test_every_package_that_any_system_gets_is_pinned():
    """A dependency of a dependency that is not pinned would move under the course's feet."""
    needed = everything_needed()
    assert len(needed) > 80, "the walk through the dependencies stopped early"
    assert needed - set(constraints()) == set()


def test_pre_commit_runs_the_commands_of_make_check():
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", read("Makefile"), re.MULTILINE)
    assert recipe
    commands = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]
    hooks = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    assert [hook["entry"] for hook in hooks] == commands


def test_the_version_is_the_same_everywhere():
    import kvcourse

    assert kvcourse.__version__ == PROJECT["version"] == metadata.version("kvcourse")
    assert f"## {PROJECT['version']}" in read("CHANGELOG.md")


def test_contributing_fits_on_a_page():
    assert len(read("CONTRIBUTING.md").splitlines()) <= 60


IGNORED = {".git", ".venv", "work", "build", "__pycache__", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
MACHINE = {
    "a home folder": re.compile(r"(?<![\w.])/(?:home|Users|root)/[\w.-]+"),
    "a folder of one machine": re.compile(r"(?<![\w./~:-])/(?:work|opt|tmp|mnt|srv)/[\w.-]+"),
    "a package registry's host": re.compile(
        r"\b(?:files\.pythonhosted|pypi|test\.pypi|download\.pytorch|conda\.anaconda)\.org\b"
    ),
    "an address inside a network": re.compile(r"\b(?:10|192\.168)\.\d{1,3}\.\d{1,3}(?:\.\d{1,3})?:\d+"),
}


def text_files() -> list[Path]:
    files = [path for path in ROOT.rglob("*") if path.is_file() and not IGNORED & set(path.relative_to(ROOT).parts)]
    return [path for path in files if path.suffix not in {".png", ".pyc", ".gguf", ".safetensors"}]


def machine_traces(text: str) -> list[str]:
    return [f"{kind}: {found[0]}" for kind, pattern in MACHINE.items() for found in pattern.finditer(text)]


def test_no_machine_path_and_no_registry_host_is_in_the_project():
    here = Path(__file__).resolve()
    seen = {
        str(path.relative_to(ROOT)): machine_traces(path.read_text(encoding="utf-8")) for path in text_files() if path != here
    }
    assert {name: traces for name, traces in seen.items() if traces} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("saved in /home/ada/x", True),
        ("File /root/kv/a.py", True),
        ("/tmp/ipykernel_12/3.py:4", True),
        ('"/work/main/kvcourse"', True),
        ("from https://pypi.org/simple", True),
        ("work/06_kv_cache.ipynb", False),
        ("../work/06_kv_cache.ipynb", False),
        ("the course's /work folder", False),
        ("(tmp/x) see docs/opt/flags", False),
    ],
)
def test_the_search_for_machine_paths_finds_them_and_nothing_else(text, found):
    assert bool(machine_traces(text)) is found

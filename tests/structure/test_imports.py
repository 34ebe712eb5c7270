"""The direction of imports: design.md section 3. Read from the source, so nothing is imported to be judged."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kvcourse"

# A module imports only from its own layer or an earlier one. A name covers the module and, for a package, all it holds,
# unless a longer name is listed too.
LAYERS: list[set[str]] = [
    {"__init__", "config", "errors", "amounts", "meter", "probe", "content", "common_prefix", "huge_pages"}
    | {"streams", "outputs"},
    {"attention", "caches.base", "caches"},
    {"models", "tokenizers", "tokenizer_base", "chat_template"},
    {"checkpoints", "gguf_reader", "hf_config", "hf_folder", "fetch", "tiny", "trace"}
    | {"weights", "weight_files", "weight_names", "model_shapes", "memory"}
    | {f"caches.{kind}" for kind in ("bound", "full", "growing", "preallocated", "sliding", "quantized", "make")}
    | {f"caches.{kind}" for kind in ("block_pool", "paged_pool", "paged")},
    {"sampling", "steps", "prompt_ids", "loops", "generate", "speculative", "corpus", "recall", "train"},
    {"prefix"},
    {"ledger", "providers", "causes", "stamps"},
    {"sessions"},
    {"context", "prompts", "zoo"},
    {"checks", "viz", "certificate"},
    {"grader", "cli", "cli_exercises", "cli_grade", "cli_weights", "__main__", "course", "doctor", "lab", "lesson_files"}
    | {"tables", "terminal", "cli_memory", "cli_replay", "cli_explain", "cli_lint", "cli_certify", "cli_bench", "bench"}
    | {"cli_sessions", "session_folder", "session_tables", "chat_sessions", "chat_commands"},
]
EXCEPTIONS = {
    ("__init__", "course"): "the lesson table is a public name; course imports nothing but errors",
    ("checks", "course"): "checks work on the learner's copies",
    ("viz", "course"): "pictures link to lessons",
}


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts[-1] == "__init__" and len(parts) > 1:
        parts = parts[:-1]
    return ".".join(parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def layer_of(module: str) -> int:
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        for number, names in enumerate(LAYERS):
            if ".".join(parts[:length]) in names:
                return number
    raise AssertionError(f"kvcourse.{module} is in no layer: add it to the table in {Path(__file__).name}")


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def walk(node: ast.AST):
    """All nodes but those under `if TYPE_CHECKING:`, which never run."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not is_type_checking(child):
            yield from walk(child)


def imported(source: str, module: str, is_package: bool) -> set[str]:
    """Full dotted names of everything a source imports; inside functions too, since a late import is a dependency."""
    found: set[str] = set()
    for node in walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = ["kvcourse", *module.split(".")]
                here = here if is_package else here[:-1]
                above = here[: len(here) - (node.level - 1)]
                base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


def package_imports(module: str, path: Path) -> set[str]:
    """The modules of this package that `path` imports."""
    names = imported(path.read_text(encoding="utf-8"), module, path.name == "__init__.py")
    inside = {name.removeprefix("kvcourse.") for name in names if name.startswith("kvcourse.")}
    return {name for name in inside if name in MODULES}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_its_own_layer_or_an_earlier_one(module):
    for target in package_imports(module, MODULES[module]):
        if (module.split(".")[0], target) in EXCEPTIONS:
            continue
        assert layer_of(target) <= layer_of(module), f"kvcourse.{module} must not import kvcourse.{target}"


@pytest.mark.parametrize("module", [name for name in MODULES if name.split(".")[0] in {"models", "attention"}])
def test_models_know_no_cache_but_the_contract(module):
    caches = {name for name in package_imports(module, MODULES[module]) if name.startswith("caches")}
    assert caches <= {"caches", "caches.base"}


def test_generate_knows_the_contract_and_asks_make_for_the_rest():
    path = MODULES.get("generate")
    assert path is not None, "kvcourse/generate.py is missing"
    caches = {name for name in package_imports("generate", path) if name.startswith("caches")}
    assert caches <= {"caches", "caches.base", "caches.make"}


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("caches")])
def test_a_cache_never_imports_a_model(module):
    assert not {name for name in package_imports(module, MODULES[module]) if name.split(".")[0] == "models"}


@pytest.mark.parametrize("library", ["ipywidgets", "anywidget"])
def test_only_viz_widgets_imports_the_widget_library(library):
    users = [
        module
        for module, path in MODULES.items()
        if any(name.split(".")[0] == library for name in imported(path.read_text(encoding="utf-8"), module, False))
    ]
    assert set(users) <= {"viz.widgets"}


@pytest.mark.parametrize("module", ["kvcourse", "kvcourse.cli", "kvcourse.course", "kvcourse.doctor", "kvcourse.lab"])
def test_the_command_line_starts_without_heavy_libraries(module):
    heavy = ["torch", "nbformat", "transformers", "matplotlib", "numpy", "gguf", "jupyter_client"]
    code = f"import sys, {module}; print([name for name in {heavy!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["chat", "--help"]])
def test_help_needs_no_heavy_library(arguments):
    code = (
        "import sys; from kvcourse.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'torch', 'nbformat', 'numpy'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)


# The judge is judged: each rule must see what it forbids.


@pytest.mark.parametrize(
    ("source", "module", "expected"),
    [
        ("import kvcourse.cli", "config", "kvcourse.cli"),
        ("from kvcourse import cli", "config", "kvcourse.cli"),
        ("from kvcourse.caches import growing", "models.gpt", "kvcourse.caches.growing"),
        ("from ..caches.growing import GrowingCache", "models.gpt", "kvcourse.caches.growing"),
        ("from . import growing", "caches.make", "kvcourse.caches.growing"),
        ("def late():\n    from kvcourse import generate", "config", "kvcourse.generate"),
    ],
)
def test_the_reader_of_imports_sees_every_way_to_import(source, module, expected):
    assert expected in imported(source, module, is_package=False)


def test_imports_for_type_checkers_only_are_not_dependencies():
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import kvcourse.cli"
    assert "kvcourse.cli" not in imported(source, "config", is_package=False)


def test_a_new_module_has_to_be_given_a_layer():
    with pytest.raises(AssertionError, match="add it to the table"):
        layer_of("brand_new")


def test_a_longer_name_in_the_table_wins():
    assert layer_of("caches.base") < layer_of("caches.growing")
    assert layer_of("models.gpt") == layer_of("models")

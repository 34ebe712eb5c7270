"""What holds for every test: shapes are checked, runs repeat themselves, nothing looks for a model hub.

The import hook makes beartype check the jaxtyping shapes of every public signature of the package. It has to be in place
before the package is imported for the first time, so it is the first thing here.
"""

import os

import jaxtyping

IMPORT_HOOK = jaxtyping.install_import_hook("kvcourse", "shape_checks.checked")

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # transformers is a peer here: it must never wait for a network
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import hypothesis  # noqa: E402
import numpy  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

FULL = os.environ.get("KVCOURSE_FULL") == "1"  # make test-all

torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)  # two processes share the cores already
# CI always tries the same examples, so that it fails for a change and never by chance; at a desk new ones are tried.
hypothesis.settings.register_profile("default", max_examples=200, deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.register_profile("full", max_examples=5000, deadline=None)
hypothesis.settings.load_profile("full" if FULL else "default")

collect_ignore_glob = ["*.ipynb"]  # notebooks that serve as test data are not tests themselves


@pytest.fixture(autouse=True)
def seeds() -> None:
    torch.manual_seed(0)
    numpy.random.seed(0)


@pytest.fixture
def full_counts() -> bool:
    """True under `make test-all`: the counts that the issues name, instead of the reduced ones."""
    return FULL

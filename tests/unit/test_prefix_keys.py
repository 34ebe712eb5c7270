"""Names of prefixes: typed, chained, equal in every process, and never Python's own hash."""

import ast
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import small_models as small_models
from prefix_helpers import KINDS, FakeModel, maker, put, text

import kvcourse.prefix
from kvcourse.errors import InputError
from kvcourse.prefix.keys import DIGEST_BYTES, chained, digest_of, encoded, root_key, token_bytes

NAMES = [None, "", "a", b"", b"a", 0, 1, -1, -2, True, False, "1", "True", "None", (), ("",), (None,), ("a", "bc"), ("ab", "c")]
NAMES += [("abc",), ("a", "b", "c"), (("a", "b"), "c"), ("a", ("b", "c")), 2**63, 2**64, -(2**64), "é", "é".encode(), "\ud800"]


def test_no_two_names_are_encoded_alike():
    assert len({encoded(name) for name in NAMES}) == len(NAMES)
    for one, other in itertools.permutations(NAMES, 2):  # nor do two in a row read as others
        assert encoded((one, other)) != encoded((other, one))
    assert encoded(("a", 1)) == encoded(("a", 1))


# vLLM 44701
def test_every_field_of_a_root_counts():
    keys = {root_key(w, dtype, name) for w in ("w", "v") for dtype in ("float32 None", "float16 None") for name in NAMES}
    assert len(keys) == 4 * len(NAMES) and all(len(key) == DIGEST_BYTES for key in keys)
    assert root_key("ab", "c", None) != root_key("a", "bc", None)


@pytest.mark.parametrize("bad", [1.0, [], {}, {"a"}, object, ("a", 1.5), (("a", []),)], ids=str)
def test_a_value_whose_equality_is_its_own_is_refused(bad):
    with pytest.raises(InputError, match="plain value"):
        encoded(bad)


def test_a_chain_names_everything_in_front():
    before = root_key("w", "float32", None)
    assert token_bytes([1, 23]) != token_bytes([12, 3]) and len(token_bytes(range(5))) == 40
    one, other = chained(before, [1, 2]), chained(before, [1, 3])
    assert len({one, other, chained(one, [4]), chained(other, [4]), chained(before, [4]), chained(before, [1, 2, 4])}) == 6
    assert chained(before, [1, 2], lambda data: data[-1:]) == token_bytes([1, 2])[-1:]
    assert digest_of(b"") != digest_of(b"\0")


PRINT_KEYS = """
import sys
sys.path[:0] = {path!r}
from kvcourse.prefix.keys import chained, root_key
from prefix_helpers import KINDS, FakeModel, maker, put, text
names = (None, "ann", b"ann", 1, True, ("a", "bc"), ("ab", "c", (None, -1)))
for kind in KINDS.values():
    pc = maker(kind)()
    for name in names:
        put(pc, text(21), name)
        put(pc, [*text(9), *text(8, seed=1)], name)
    print(*sorted(entry.digest.hex() for entry in pc.index.entries()), *(key.hex() for key in pc.index.roots))
"""


# LMCache 1139, 2136
def test_keys_are_the_same_in_every_process():
    tests = Path(__file__).resolve().parents[1]
    program = PRINT_KEYS.format(path=[str(tests.parent), str(tests)])
    printed = set()
    for seed in ("0", "1", "12345", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        printed.add(done.stdout)
    assert len(printed) == 1 and len(printed.pop().split()) > 2 * 7 * 3


def calls_of_hash(source: str) -> list[int]:
    """Lines that use Python's own hash: the builtin by name, or the method."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Name) and node.id == "hash") or (isinstance(node, ast.Attribute) and node.attr == "__hash__")
    ]


# vLLM PR 12621 (CVE-2025-25183)
def test_pythons_own_hash_names_nothing():
    files = sorted(Path(kvcourse.prefix.__file__).parent.glob("*.py"))
    assert len(files) >= 10
    assert {file.name: calls_of_hash(file.read_text(encoding="utf-8")) for file in files} == {file.name: [] for file in files}
    assert calls_of_hash("key = hash(tokens)\nmap(hash, x)\nx.__hash__()\nblake2b(hash_ids)") == [1, 2, 3]


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("kind", KINDS)
def test_a_digest_names_all_tokens_up_to_its_end_however_they_were_stored(kind):
    """Stored at once or bit by bit, in one cache or another: the same text, the same name."""
    ids, names = text(20), []
    for ends in ([20], [8, 20], [12, 4, 20]):
        pc = maker(KINDS[kind])(FakeModel())
        for end in ends:
            put(pc, ids[:end])
        names.append({entry.stop: entry.digest for entry in pc.index.entries()})
    for stop in (8, 12, 20):
        assert len({digests[stop] for digests in names if stop in digests}) == 1
    assert names[0][20] not in {entry.digest for entry in _other_namespace(kind, ids)}


def _other_namespace(kind, ids):
    pc = maker(KINDS[kind])(FakeModel())
    put(pc, ids, "other")
    return pc.index.entries()

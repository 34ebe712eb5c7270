"""The certificate of somebody's own cache: faults that show late are found, right caches are not blamed, reasons are told."""

import json
import subprocess
import sys
from typing import ClassVar

import pytest
from helpers import small_models  # noqa: F401 (a fixture)
from mutants.caches import faulty_lives as lives
from mutants.caches.faulty_lives import FAULTS

from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.paged import PagedCache
from kvcourse.caches.paged_pool import PagedPool
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.caches.quantized import QuantizedCache
from kvcourse.caches.sliding import SlidingCache
from kvcourse.certificate import Bed, prove
from kvcourse.certificate.bed import bytes_of, small_model
from kvcourse.certificate.long_proofs import PROOFS
from kvcourse.certificate.running import result_of
from kvcourse.cli import main
from kvcourse.errors import CacheMismatch, InputError
from kvcourse.prefix.cache import BlockPrefixCache, RadixPrefixCache

pytestmark = pytest.mark.usefixtures("small_models")
TOO_MANY = "one token too many is refused and changes nothing"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_shows_late_is_found(fault):
    make, proof = FAULTS[fault]
    made = prove(make) if proof == lives.LONG and "float32" in fault else prove(make, small_model("gpt"))
    assert not made.ok
    assert not made[proof].ok, str(made)


def test_a_fault_is_told_with_what_was_done_before():
    made = prove(FAULTS["every second cut is ignored"][0], small_model("gpt"))
    (failure,) = made[lives.CUTS].failures
    assert failure.why.startswith(
        "length, rows held, takes bytes after 40 tokens, a cut to 37, a cut to 33: (37, 37, True), expected"
    )
    made = prove(FAULTS["a cut reaches the parent"][0], small_model("gpt"))
    assert "after" in made[lives.WALK].failures[0].why


# Right caches.


class FirstBlocks:
    """A prefix cache of somebody else: it keeps a cache for each text, and finds whole blocks of 128 tokens."""

    def __init__(self, model):
        self._kept = BlockPrefixCache(model, 2**26, block_tokens=128)
        self.insert, self.lease = self._kept.insert, self._kept.lease


class Raw(GrowingCache):
    """Keeps keys as they come, and has them turned when they are looked at."""

    keys = "raw"


POOLS = {}


def one_pool(model, n):
    """All caches of a model take their blocks from one pool."""
    if model not in POOLS:
        POOLS[model] = PagedPool(model, 512, block_tokens=4)
    return PagedCache(POOLS[model])


RIGHT = {
    "a capacity of its own, 33": lambda model, n: PreallocatedCache(33),
    "a capacity of its own, 129": lambda model, n: PreallocatedCache(129),
    "a capacity of its own, 1024": lambda model, n: PreallocatedCache(1024),
    "as much as the context": lambda model, n: PreallocatedCache(max(n, model.config.context_length)),
    "a pool of 256 tokens": lambda model, n: PagedCache(PagedPool(model, 64, block_tokens=4)),
    "a pool of blocks of 16": lambda model, n: PagedCache(PagedPool(model, 4 * -(-n // 16), block_tokens=16)),
    "one pool for all": one_pool,
    "raw keys": lambda model, n: Raw(),
    "a window of its own": lambda model, n: SlidingCache(5),
    "a window, and sinks": lambda model, n: SlidingCache(8, sinks=2),
    "4 bits": lambda model, n: QuantizedCache(4, 4, 0),
    "blocks of 16": lambda model, n: BlockPrefixCache(model, bytes_of(model, n), block_tokens=16),
    "bytes of its own": lambda model, n: RadixPrefixCache(model, 2**24),
    "somebody else's blocks of 128": lambda model, n: FirstBlocks(model),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_cache_is_not_blamed(name):
    made = prove(RIGHT[name])
    assert made.ok, str(made)
    assert sum(result.verdict == "holds" for result in made.results) >= (13 if "6" in made.results[0].name else 5)


def test_more_room_than_the_model_has_positions_is_not_claimed_and_said_why():
    made = prove(RIGHT["a capacity of its own, 1024"])
    assert made[TOO_MANY].verdict == "not claimed"
    assert "asked for 9 tokens it has room for 1024, and the model's context ends at 512" in told(made)
    assert prove(RIGHT["a capacity of its own, 129"])[TOO_MANY].verdict == "holds"


def test_less_room_than_was_asked_for_is_a_fault():
    made = prove(lambda model, n: PreallocatedCache(n - 1), small_model("gpt"))
    assert "asked for 9 tokens it has room for 8" in made[TOO_MANY].failures[0].why


def told(made):
    """The table, without line breaks."""
    return " ".join(str(made).split())


def test_a_model_that_a_cache_refuses_is_left_out_and_said_so():
    made = prove(RIGHT["a window, and sinks"])
    assert "not asked of gpt, yours, in 21 proofs: it does not serve this model: Sinks need positions" in told(made)
    assert made["texts of a batch stay apart"].verdict == "holds"


def test_a_cache_that_serves_no_model_is_not_proved():
    made = prove(RIGHT["a window, and sinks"], small_model("gpt"))
    assert not made.ok and made.failed == [] and made.comparisons == 0
    assert "Nothing was compared, so nothing is proved." in told(made)

    def refuses(model, n):
        raise CacheMismatch("not this one")

    with pytest.raises(InputError, match="not this one"):
        prove(refuses)


def test_a_factory_that_hands_out_one_cache_again_is_refused():
    one = GrowingCache()
    for model in (None, small_model("gpt")):
        with pytest.raises(InputError, match="one and the same"):
            prove(lambda model, n: one, model)


def test_of_one_that_is_not_exact_it_is_said_what_was_not_asked():
    made = prove(RIGHT["4 bits"])
    assert made.ok and made[lives.NEARER].verdict == "holds"
    assert "it says exact = False: of its logits a loose bound is asked" in told(made)
    record = made.as_record()
    assert json.loads(json.dumps(record)) == record


def test_reasons_are_not_told_of_the_courses_own(capsys):
    from kvcourse.certificate import certificate

    assert "not asked" not in str(certificate(lessons=[7], show=False))


# What is walked through.


class Watched(GrowingCache):
    lengths: ClassVar[list] = []

    def advance(self, T):
        super().advance(T)
        self.lengths.append((self.length - T, self.length))

    def truncate(self, length):
        self.lengths.append((self.length, length))
        super().truncate(length)


def test_the_walk_passes_16_64_and_100_rows_and_is_cut_back_below_them():
    Watched.lengths = []
    (walk,) = (proof for proof in PROOFS if proof.name == lives.WALK)
    assert result_of(walk, Bed({"gpt": small_model("gpt")}).own(lambda model, n: Watched())).ok
    for rows in (16, 64, 100):
        assert sum(before <= rows < after for before, after in Watched.lengths) >= 2
        assert any(after <= rows < before for before, after in Watched.lengths)


def test_a_small_room_is_told_and_what_fits_is_asked():
    made = prove(lambda model, n: PreallocatedCache(33), small_model("gpt"))
    assert made.ok and made[lives.LONG].verdict == made[lives.WALK].verdict == "holds"
    assert "it says that it has room for 33 tokens, and not for 300" in told(made)


# The command.


def run(arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code


NOISY = """
import os, subprocess, sys
from sys import stdout
from kvcourse import GrowingCache

print("loaded")
os.write(1, b"raw\\n")
subprocess.run([sys.executable, "-c", "print('child')"])


def it(model, capacity):
    print("made")
    stdout.write("kept\\n")
    return GrowingCache()
"""


def test_json_is_all_that_is_on_stdout_whatever_a_module_prints(tmp_path, capfd):
    (tmp_path / "noisy.py").write_text(NOISY)
    assert not run(["certify", "--cache", f"{tmp_path / 'noisy.py'}:it", "--lesson", "9", "--json"])
    print("after")
    out, err = capfd.readouterr()
    record, end = json.JSONDecoder().raw_decode(out)
    assert record["ok"] and out[end:].split() == ["after"]
    assert {"loaded", "raw", "child", "made", "kept"} <= {*err.split()}


def test_json_is_all_that_is_printed_where_stderr_was_closed_before(tmp_path):
    (tmp_path / "quiet.py").write_text(
        'from kvcourse import GrowingCache\n\n\ndef it(model, capacity):\n    print("made")\n    return GrowingCache()\n'
    )
    arguments = ["certify", "--cache", f"{tmp_path / 'quiet.py'}:it", "--lesson", "9", "--json"]
    code = f"from kvcourse.cli import main; main({arguments})"
    shell = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code]
    done = subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["ok"]


NOBODY = """
from kvcourse import GrowingCache
from kvcourse.errors import CacheMismatch


class Mine(GrowingCache):
    def bind(self, *given):
        raise CacheMismatch("It serves nobody.")


def it(model, capacity):
    return Mine()
"""


def test_the_command_ends_with_1_where_nothing_was_asked(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(NOBODY)
    assert run(["certify", "--cache", f"{tmp_path / 'mine.py'}:it"]) == 1
    assert "Nothing was compared" in capsys.readouterr().out

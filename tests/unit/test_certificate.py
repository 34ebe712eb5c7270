"""The certificate: every proof holds on the package, and fails where somebody breaks what it is about."""

import json
import re
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from helpers import shape_checks, small_models  # noqa: F401 (a fixture)
from mutants.caches import faulty_caches as faulty
from mutants.caches import faulty_lives as lives

from kvcourse.attention import attend, causal_mask
from kvcourse.caches.block_pool import BlockPool
from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.paged import PagedCache
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.caches.quantized import QuantizedCache
from kvcourse.caches.sliding import SlidingCache
from kvcourse.certificate import PROOFS, Bed, Bench, Certificate, NotProved, Result, certificate, prove
from kvcourse.certificate import attention_proofs as on_attention
from kvcourse.certificate import budget_proofs as on_budgets
from kvcourse.certificate import memory_proofs as on_memory
from kvcourse.certificate import prefix_proofs as on_prefixes
from kvcourse.certificate import session_proofs as on_sessions
from kvcourse.certificate.bed import CHUNKINGS, banded, ids, small_model, unsteadiness
from kvcourse.certificate.bench import rounding, rounding_of_an_unsteady_model
from kvcourse.certificate.running import find_factory, result_of
from kvcourse.checkpoints import load_model
from kvcourse.cli import main
from kvcourse.context.agent import _Counting, run_agent
from kvcourse.errors import InputError
from kvcourse.generate import generate
from kvcourse.ledger import Ledger, Totals
from kvcourse.models.base import CausalLM
from kvcourse.prompts.layout import lint_requests
from kvcourse.providers import Replayed
from kvcourse.sessions.session import Session
from kvcourse.speculative import _Reader
from kvcourse.trace import trace
from kvcourse.weights import split_qkv
from kvcourse.zoo import HEALTHY, SPECIMENS
from kvcourse.zoo.keeping import WindowOneShort

pytestmark = pytest.mark.usefixtures("small_models")
NAMES = [proof.name for proof in PROOFS]
BY_NAME = {proof.name: proof for proof in PROOFS}
ZOO = {specimen.fault: specimen.make for specimen in SPECIMENS}


# One fault for each proof. A fault is a factory in place of one of the course's, or a change of the package.


def kind(fault, base):
    """A full cache with a fault, as a factory."""
    made = faulty.broken(fault, base)
    if base is GrowingCache:
        return lambda model, n, starts=None: made(starts)
    return lambda model, n, starts=None: made(n, starts)


FACTORIES = {
    "cached logits equal uncached ones at every position": kind(faulty.SquareMask, GrowingCache),
    "prefill and decode equal one pass": kind(faulty.PositionsOffByOne, GrowingCache),
    "it holds the keys and values of one pass": kind(faulty.ReadsOneRowFurther, PreallocatedCache),
    "texts of a batch stay apart": kind(faulty.RowsOfTheBatchMixed, PreallocatedCache),
    "a padded batch equals each text alone": kind(faulty.PaddingSeen, GrowingCache),
    "after a reset it is as new": kind(faulty.ResetKeepsLength, PreallocatedCache),
    "a failed pass changes nothing": kind(faulty.CommitsWithTheLastLayer, GrowingCache),
    "two caches share nothing": kind(faulty.OneStorageForAll, GrowingCache),
    "another model or batch is refused": kind(faulty.ServesAnyone, PreallocatedCache),
    "generate writes the same with and without it": kind(faulty.ValuesNotWritten, GrowingCache),
    "it is cut to every length it allows and goes on": kind(faulty.ZeroKeepsAll, GrowingCache),
    "one token too many is refused and changes nothing": kind(faulty.NoCapacityCheck, PreallocatedCache),
    "forks go their own ways": kind(faulty.ForksShareStorage, PreallocatedCache),
    "a window equals full attention under a band": ZOO["window off by one"],
    "the memory of a window never grows": ZOO["memory grows"],
    "what is kept depends on the text and not on the passes": ZOO["rounded per call"],
    "a prefix hit equals computing it again": ZOO["hit by reference"],
    "one token at least is computed": ZOO["nothing left to compute"],
    "nobody finds the prefix of another tenant": ZOO["namespace ignored"],
    "other weights are a miss": ZOO["stale weights"],
    "eviction changes costs and never an answer": ZOO["hit by reference"],
    lives.LONG: lives.FAULTS["wrong past 256 rows"][0],
    lives.CUTS: lives.FAULTS["every second cut is ignored"][0],
    lives.BRANCHES: lives.FAULTS["a fork after a cut shares rows"][0],
    lives.WALK: lives.FAULTS["a cut reaches the parent"][0],
    lives.NEARER: lives.FAULTS["nonsense, and not exact"][0],
    lives.CLEARED: lives.FAULTS["clear does nothing"][0],
    lives.LEASED: lives.FAULTS["a lease leaves a pin"][0],
}
CHANGES = {}


def breaks(proof):
    """Enter a change of the package under the proof that has to notice it."""

    def enter(change):
        CHANGES[proof] = change
        return change

    return enter


@breaks("attention equals its formula in loops")
def no_scale(patch):
    patch.setattr(on_attention, "attend", lambda q, k, v, mask: attend(q * 2, k, v, mask))


@breaks("queries after a past get what one pass gives them")
def triangle_at_the_left(patch):
    patch.setattr(on_attention, "causal_mask", lambda q, k: causal_mask(torch.arange(len(q)), k))


@breaks("texts of a batch do not see each other")
def leaking_batch(patch):
    for model in ("gpt", "llama"):
        patch.setattr(f"kvcourse.models.{model}.attend", lambda *given: (z := attend(*given)) + z.roll(1, 0))


@breaks("a key is its input times the key weights")
def parts_in_another_order(patch):
    patch.setattr(on_attention, "split_qkv", lambda fused: (split_qkv(fused)[i] for i in (0, 2, 1)))


@breaks("saved weights are the same model")
def a_weight_lost_on_the_way(patch):
    def load(*given, **options):
        model = load_model(*given, **options)
        with torch.no_grad():
            model.norm_weight[0] += 0.01
        return model

    patch.setattr(on_attention, "load_model", load)


@breaks("a later token never changes earlier keys and values")
def a_model_that_looks_ahead(patch):
    patch.setattr(on_attention, "trace", partial(trace, causal=False))


@breaks("without the causal mask it does")
def a_counter_example_that_is_none(patch):
    patch.setattr(on_attention, "trace", lambda model, tokens, causal: trace(model, tokens))


@breaks("recomputing everything writes the same and costs the formula")
def a_loop_that_keeps_rows_in_secret(patch):
    patch.setattr(on_attention, "generate", lambda *given, cache, **options: generate(*given, **options))


@breaks("only new tokens are computed")
def everything_twice(patch):
    one = CausalLM._pass
    patch.setattr(CausalLM, "_pass", lambda model, tokens, cache, keep: (model(tokens), one(model, tokens, cache, keep))[1])


@breaks("a preallocated cache copies nothing and takes its formula's bytes")
def grown_all_the_same(patch):
    patch.setattr(on_memory, "PreallocatedCache", lambda capacity: GrowingCache())


@breaks("speculation writes what plain generation writes")
def wrong_guesses_stay(patch):
    patch.setattr(_Reader, "cut", lambda reader, n: None)


@breaks("shared heads equal repeated ones")
def heads_dealt_out_in_turn(patch):
    def dealt(q, k, v, mask=None):
        n = q.shape[1] // k.shape[1]
        return attend(q, k.repeat(1, n, 1, 1), v.repeat(1, n, 1, 1), mask)

    patch.setattr("kvcourse.models.llama.attend", dealt)


@breaks("a window with sinks equals a cache that forgets nothing")
def one_sink_too_few(patch):
    patch.setattr(on_memory, "SlidingCache", lambda window, sinks: SlidingCache(window, sinks - 1))


@breaks("rounded numbers stay within half a step")
def coarser_than_it_says(patch):
    class Coarse(QuantizedCache):
        def half_step(self, layer):
            return [half / 2 for half in super().half_step(layer)]

    patch.setattr(on_memory, "QuantizedCache", Coarse)


@breaks("blocks of any size and order equal one pass")
def places_in_a_block_off_by_one(patch):
    patch.setattr(on_memory, "PagedCache", faulty.broken(faulty.PositionsOffByOne, PagedCache))


@breaks("branches share blocks until they write")
def written_without_a_copy(patch):
    patch.setattr(PagedCache, "_shared_rows", lambda cache: [])


@breaks("every block comes back")
def blocks_kept_by_the_dead(patch):
    patch.setattr(BlockPool, "release", lambda pool, blocks: None)


@breaks("a poor hash costs hits and never an answer")
def believed_unseen(patch):
    from kvcourse.zoo.sharing import BelievesTheHash

    patch.setattr(on_prefixes, "BlockPrefixCache", BelievesTheHash)


@breaks("a kept conversation equals its ids computed afresh")
def the_last_token_is_forgotten(patch):
    class Forgetful(Session):
        def _decode(self, prompt, *given):
            last = max(0, len(self._ids) - 1)
            super()._decode(prompt[:last] + prompt[len(self._ids) :], *given)

    patch.setattr(on_sessions, "Session", Forgetful)


@breaks("sent again, found again or kept: the words are the same")
def nobody_asks_the_prefix_cache(patch):
    patch.setattr(on_sessions, "generate", lambda *given, prefix_cache=None, **options: generate(*given, **options))


@breaks("branches and rewinds equal their own ids")
def branches_of_one_cache(patch):
    class Shared(Session):
        def fork(self):
            other = super().fork()
            other.cache = self.cache
            return other

    patch.setattr(on_sessions, "Session", Shared)


@breaks("saved and loaded goes on as kept")
def a_file_without_its_last_row(patch):
    load = Session.load

    def short(*given, **options):
        chat = load(*given, **options)
        chat._ids = chat._ids[:-1]
        return chat

    patch.setattr(Session, "load", short)


@breaks("a file that is not what it was is refused")
def any_file_is_good(patch):
    patch.setattr(Session, "load", lambda path, model: Session(model))


@breaks("cached and computed add up and the window is never passed")
def totals_of_the_last_turn(patch):
    patch.setattr(Ledger, "totals", property(lambda ledger: Totals(1, ledger[-1].prompt_tokens)))


@breaks("an agent counted without a model equals one run on a model")
def counted_by_halves(patch):
    ask = _Counting.ask
    patch.setattr(_Counting, "ask", lambda counting, *texts: ask(counting, *texts) // 2)


@breaks("replaying everything costs the closed formula")
def a_step_is_left_out(patch):
    def run(script, policy, limit):
        made = run_agent(script, policy, limit=limit)
        return replace(made, ledger=Ledger(limit, list(made.ledger)[1:]))

    patch.setattr(on_budgets, "run_agent", run)


@breaks("predicted hits are the real ones")
def rules_of_somebody_else(patch):
    patch.setattr(on_budgets, "lint_requests", lambda *given: lint_requests(*given, provider="openai"))


@breaks("every prompt token is billed once")
def billed_twice(patch):
    cost = Replayed.cost.fget
    patch.setattr(Replayed, "cost", property(lambda log: cost(log) + log.cached_tokens))


def broken_result(name, patch):
    proof, bed = BY_NAME[name], Bed()
    if name in FACTORIES:
        return result_of(proof, bed.own(FACTORIES[name]))
    CHANGES[name](patch)
    return result_of(proof, bed)


@pytest.mark.parametrize("name", NAMES)
def test_a_proof_fails_on_its_fault_and_says_what_differed(name, monkeypatch):
    result = broken_result(name, monkeypatch)
    assert not result.ok and result.verdict == "FAILS"
    assert all(failure.case and failure.why for failure in result.failures)
    table = str(Certificate((result,)))
    assert " ".join(result.failures[0].why.split()) in " ".join(table.split()) and "0 of 1 proofs hold, 1 fail" in table
    assert too_long(table) == []


def too_long(table):
    """Lines that a page of JupyterLab would break, perhaps within a number."""
    return [line for line in table.split("\n") if len(line) > 104]


def test_there_is_a_fault_for_every_proof_and_none_without():
    assert sorted(FACTORIES | CHANGES) == sorted(NAMES) and not FACTORIES.keys() & CHANGES.keys()


# The whole.


@pytest.fixture(scope="module")
def whole():
    with shape_checks(False):  # before small_models, which is each test's own
        return certificate(show=False)


def test_every_proof_of_the_course_holds(whole):
    assert whole.ok, str(whole)
    assert len(whole.results) == len(NAMES) == len(set(NAMES)) >= 25
    assert {result.verdict for result in whole.results} == {"holds"}
    assert {result.lesson for result in whole.results} == set(range(2, 14))
    assert whole.comparisons == sum(result.comparisons for result in whole.results) > 1_000


def test_counts_and_table_are_the_same_the_second_time(whole):
    again = certificate(show=False)
    assert again == whole and str(again) == str(whole)


def test_no_line_of_the_table_is_longer_than_a_page_shows_and_its_columns_stand_under_their_titles(whole):
    title, *lines = str(whole).split("\n")[: len(NAMES) + 1]
    assert too_long(str(whole)) == []
    for line, result in zip(lines, whole.results, strict=True):
        assert line.split() == [
            *f"{result.lesson} {result.name} {result.cases:,} {result.comparisons:,} {result.numbers:,} holds".split()
        ]
        assert line[len(title) :] == "  holds"


def test_every_kind_of_cache_is_tried_on_both_models_for_every_chunking(whole):
    cases = whole["cached logits equal uncached ones at every position"].cases
    assert cases == 2 * 3 * 5


def test_the_table_is_printed_unless_it_is_not_wanted(capsys):
    made = certificate(lessons=[2])
    assert capsys.readouterr().out == f"{made}\n"
    certificate(lessons=[2], show=False)
    assert capsys.readouterr().out == ""


def test_a_lesson_without_proofs_is_refused():
    with pytest.raises(InputError, match="no proof to run"):
        certificate(lessons=[1], show=False)


def test_progress_is_told_proof_by_proof():
    told = []
    made = certificate(lessons=[2, 3], show=False, on_proof=told.append)
    assert tuple(told) == made.results


def test_a_third_model_is_tried_where_caches_are(whole):
    model = small_model("gpt", seed=9, n_head=2, vocab_size=80).float()
    made = certificate(model=model, lessons=[6], show=False)
    assert made.ok, str(made)
    name = "cached logits equal uncached ones at every position"
    assert made[name].cases == whole[name].cases * 3 // 2


# Rounding.


def test_what_rounding_may_do_is_measured_on_the_model_and_bounded_by_the_logits():
    expected = torch.full((1, 3, 2), 20.0)
    plain = rounding(expected)
    assert rounding_of_an_unsteady_model(expected, 0.0) == rounding_of_an_unsteady_model(expected, plain / 11) == plain
    assert rounding_of_an_unsteady_model(expected, 0.01) == pytest.approx(0.1)
    assert rounding_of_an_unsteady_model(expected, 5.0) == pytest.approx(0.2), "a fault shows, however unsteady the model is"


@pytest.mark.parametrize("kind", ["gpt", "llama"])
def test_the_small_models_are_steady_and_measuring_leaves_them_as_they_were(kind):
    model, tokens = small_model(kind), ids(22, batch=2)
    before, fingerprint = banded(model, tokens, 5), model.fingerprint
    for dtype in (torch.float64, torch.float32):
        eps = torch.finfo(dtype).eps
        moved = unsteadiness(model.to(dtype), tokens, 5)
        assert eps < moved < 1000 * eps
        assert rounding_of_an_unsteady_model(before.to(dtype), moved) == rounding(before.to(dtype))
    assert torch.equal(banded(small_model(kind), tokens, 5), before) and small_model(kind).fingerprint == fingerprint


def test_a_trained_model_that_rounding_moves_far_keeps_its_right_window_and_loses_the_wrong_one(monkeypatch):
    """SmolLM2 at a window of 5: see the proof. In float32 its logits are off by five times what `rounding` allows."""
    model, tokens = load_model("smollm2"), ids(22, batch=2)
    assert unsteadiness(model, tokens, 5) > 10 * unsteadiness(model, tokens, 21)
    monkeypatch.setattr(on_memory, "CHUNKINGS", {"uneven chunks": CHUNKINGS["uneven chunks"]})
    proof = BY_NAME["a window equals full attention under a band"]
    right, wrong = (
        result_of(proof, Bed({"real": model}, windows={"yours": lambda model, n, kind=kind: kind(n)}))
        for kind in (SlidingCache, WindowOneShort)
    )
    assert right.ok, right.failures
    assert wrong.failures[0].case == "real, yours, window 5, uneven chunks"


def test_the_number_of_threads_is_put_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    certificate(lessons=[2], show=False)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


# Somebody's own cache.


@pytest.mark.parametrize("name", HEALTHY)
def test_right_caches_of_every_kind_pass(name):
    made = prove(HEALTHY[name])
    assert made.ok, str(made)
    assert sum(result.verdict == "holds" for result in made.results) >= 5


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.fault)
def test_every_specimen_of_the_zoo_is_caught(specimen):
    assert not prove(specimen.make).ok


@pytest.mark.parametrize("fault", faulty.FAULTS, ids=lambda fault: fault.__name__)
def test_every_faulty_cache_of_the_tests_is_caught(fault):
    found = prove(kind(fault, fault.only[-1]), small_model("gpt"))
    if fault.__name__ in NOT_ASKED:
        assert found.ok, NOT_ASKED[fault.__name__]
    else:
        assert not found.ok


NOT_ASKED = {
    "BuffersOfInferenceMode": "a mix of inference mode and none is no claim of the course",
}


def test_what_differs_is_said_with_its_place_and_size():
    made = prove(kind(faulty.SquareMask, GrowingCache), small_model("gpt"))
    failures = made["cached logits equal uncached ones at every position"].failures
    assert [failure.case for failure in failures] == ["model, yours, chunks of 4", "model, yours, uneven chunks"]
    assert re.fullmatch(r"logits differ by up to \d.*, first at position 4; rounding explains \d.*e-\d\d", failures[0].why)


def test_an_error_in_a_cache_is_a_failure_of_its_case_and_the_rest_goes_on():
    made = prove(kind(faulty.ValuesNotAppended, GrowingCache), small_model("gpt"))
    assert len(made.results) == len([proof for proof in PROOFS if proof.own == "kinds"])
    assert not made.ok and all("\n" not in failure.why for result in made.failed for failure in result.failures)


def test_a_factory_that_makes_no_cache_is_refused():
    with pytest.raises(InputError, match="makes no cache"):
        prove(lambda model, n: object())


def test_a_factory_that_fails_is_refused():
    with pytest.raises(InputError, match=r"This factory fails.*TypeError"):
        prove(lambda: GrowingCache())


def test_whoever_ends_the_process_has_not_proved_anything(tmp_path):
    class Leaves(GrowingCache):
        def advance(self, T):
            raise SystemExit(0)

    made = prove(lambda model, n: Leaves())
    assert not made.ok and "SystemExit" in made.failed[0].failures[0].why
    with pytest.raises(InputError, match=r"This factory fails.*SystemExit"):
        prove(lambda model, n: sys.exit(0))
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)")
    with pytest.raises(InputError, match="SystemExit"):
        find_factory(f"{tmp_path / 'leaves.py'}:make")


def test_a_cache_that_promises_less_is_not_blamed_for_it():
    made = prove(HEALTHY["quantized"])
    assert made["cached logits equal uncached ones at every position"].verdict == "not claimed"
    assert "not claimed" in str(made)


# The bench.


def test_nan_is_not_equal_and_shapes_and_dtypes_count():
    one = torch.zeros(1, 3, 2)
    for other in (one + torch.nan, one[:, :2], one.double()):
        with pytest.raises(NotProved):
            Bench().close(other, one)
    bench = Bench()
    bench.close(one, one.clone())
    assert (bench.comparisons, bench.numbers) == (1, 6)


def test_a_refusal_has_to_be_the_right_one():
    def fail():
        raise ValueError

    Bench().refuses(ValueError, fail, "it")
    for act, why in ((fail, "ValueError was raised"), (lambda: None, "nothing was raised")):
        with pytest.raises(NotProved, match=why):
            Bench().refuses(KeyError, act, "it")


def test_nothing_compared_is_no_certificate():
    assert not Certificate((Result("it", 6, 0, 0, 0),)).ok


# The command.


def run(arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code


def test_the_command_prints_the_table_and_ends_with_0(capsys):
    assert not run(["certify", "--lesson", "2"])
    assert "2 of 2 proofs hold" in capsys.readouterr().out


def test_the_command_judges_a_cache_in_a_file_and_ends_with_1_if_it_is_wrong(tmp_path, capsys):
    place = tmp_path / "mine.py"
    place.write_text(
        "from kvcourse import PreallocatedCache\n\n\nclass Mine(PreallocatedCache):\n"
        "    def reset(self):\n        n = self.length\n        super().reset()\n        self.length = n\n\n\n"
        "def wrong(model, capacity):\n    return Mine(capacity)\n\n\n"
        "def right(model, capacity):\n    return PreallocatedCache(capacity)\n"
    )
    assert run(["certify", "--cache", f"{place}:wrong", "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    failed = [one["name"] for one in record["results"] if one["verdict"] == "FAILS"]
    assert not record["ok"] and failed == ["after a reset it is as new", lives.CUTS, lives.BRANCHES, lives.WALK]
    assert not run(["certify", "--cache", f"{place}:right"])


def test_a_file_is_run_under_a_name_that_hides_no_module(tmp_path, capsys):
    place = tmp_path / "torch.py"
    place.write_text("from kvcourse import GrowingCache\n\n\ndef it(model, capacity):\n    return GrowingCache()\n")
    assert not run(["certify", "--cache", f"{place}:it", "--lesson", "9"])
    place.write_text("1 / 0\n")
    assert run(["certify", "--cache", f"{place}:it"]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["nothing", "nowhere:it", "json:nothing", "json:__name__", "absent.py:it"])
def test_a_place_without_a_factory_is_one_line_and_2(place, capsys):
    assert run(["certify", "--cache", place]) == 2
    assert capsys.readouterr().err.startswith("kvcourse: ")

"""Lesson 14: what the books of lessons 12 and 13 promise: counts add up, and what is predicted comes true. Knows no cache."""

from typing import Any

from kvcourse.certificate.bed import Bed, small_model
from kvcourse.certificate.bench import Bench
from kvcourse.certificate.entries import Book
from kvcourse.certificate.session_proofs import chat_model
from kvcourse.context.agent import Script, replayed_tokens, run_agent, scripted
from kvcourse.context.policies import CompactNearLimit, CropOldest, Externalise, Policy, ReplayAll, Summarise
from kvcourse.generate import generate
from kvcourse.ledger import Prices
from kvcourse.prefix.cache import RadixPrefixCache
from kvcourse.prompts.bodies import body_of, render
from kvcourse.prompts.layout import lint_requests
from kvcourse.providers import Logged, known_providers, replay_requests, rules_of

PROOFS = Book()
proof = PROOFS
LIMIT = 64  # tokens of the window


def _policies() -> list[Policy]:
    """New ones: some remember."""
    summary = (60, 59, 58)
    return [
        ReplayAll(),
        CropOldest(),
        Summarise(lambda parts: summary, keep=2),
        Externalise(lambda handle: (57, int(handle.rpartition("-")[2])), longest=3),
        CompactNearLimit(lambda parts: summary),
    ]


def _script(policy: Policy) -> Script:
    """A task that fits the window under this policy."""
    n_steps = 5 if isinstance(policy, ReplayAll) else 8
    return scripted(n_steps, system=6, task=5, answer=3, result=5, vocab_size=61)


@proof(12)
def cached_and_computed_add_up_and_the_window_is_never_passed(bed: Bed, bench: Bench) -> None:
    for policy in _policies():
        with bench.case(policy.name):
            ledger = run_agent(_script(policy), policy, limit=LIMIT).ledger
            for turn in ledger:
                bench.same(turn.cached_tokens + turn.computed_tokens, turn.prompt_tokens, "cached and computed")
                bench.holds(turn.occupancy <= LIMIT, "occupancy within the window")
            sums, turns = ledger.totals, list(ledger)
            for name in ("prompt_tokens", "cached_tokens", "computed_tokens", "completion_tokens"):
                bench.same(getattr(sums, name), sum(getattr(turn, name) for turn in turns), f"total of {name}")
            bench.holds(0 < ledger.share <= 1, "the gauge is a share")
            bill = ledger.billed(Prices(1.0, 1.0, 1.0))
            bench.same(bill.total, sums.prompt_tokens + sums.completion_tokens, "billed tokens, at one price for all")


@proof(12, "an agent counted without a model equals one run on a model")
def counted_and_run(bed: Bed, bench: Bench) -> None:
    model = small_model("llama")
    for counted, run in zip(_policies(), _policies(), strict=True):
        for cached in (True, False):
            with bench.case(counted.name, "prefixes kept" if cached else "nothing kept"):
                script = _script(counted)
                counts = run_agent(script, counted, limit=LIMIT, cached=cached).ledger
                really = run_agent(script, run, limit=LIMIT, model=model, cached=cached).ledger
                bench.same(list(really), list(counts), "the ledger's turns")


@proof(12)
def replaying_everything_costs_the_closed_formula(bed: Bed, bench: Bench) -> None:
    for n in (1, 2, 7, 30):
        with bench.case(f"{n} steps"):
            script = scripted(n, system=50, task=20, answer=10, result=30)
            ledger = run_agent(script, ReplayAll(), limit=10**6).ledger
            formula = n * (50 + 20) + (10 + 30) * n * (n - 1) // 2
            bench.same(ledger.totals.prompt_tokens, formula, "cumulative input")
            bench.same(replayed_tokens(script), formula, "replayed_tokens")


def _requests() -> list[dict[str, Any]]:
    """Chats that share a system part, one with a counter in front, and one whose history is rewritten."""
    system = {"role": "system", "content": "you are a helpful system . say yes or no ."}
    said = ["where is ana ?", "ana is in the garden .", "and ben ?", "in the kitchen .", "who has the key ?"]
    turns = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
    grown = [{"messages": [system, *turns[:n]]} for n in (1, 3, 5)]
    clocked = [{"messages": [{**system, "content": f"{n} is now . {system['content']}"}, turns[0]]} for n in ("one", "two")]
    edited = {"messages": [system, {**turns[0], "content": "where is lena ?"}, *turns[1:3]]}
    return [grown[0], clocked[0], grown[1], edited, clocked[1], grown[2], grown[2]]


@proof(13)
def predicted_hits_are_the_real_ones(bed: Bed, bench: Bench) -> None:
    model = chat_model()
    pc, requests = RadixPrefixCache(model, max_bytes=2**26), _requests()
    predicted = lint_requests(requests, model.tokenizer).counts
    for n, (body, count) in enumerate(zip(requests, predicted, strict=True), start=1):
        with bench.case(f"request {n}"):
            usage = generate(model, render(body_of(body), model.tokenizer).ids, max_new_tokens=1, prefix_cache=pc).usage
            bench.same(count.prompt_tokens, usage.prompt_tokens, "prompt tokens")
            bench.same(count.cached_tokens, usage.cached_tokens, "cached tokens, predicted and real")


@proof(13)
def every_prompt_token_is_billed_once(bed: Bed, bench: Bench) -> None:
    common = list(range(5000))
    for provider in known_providers():
        with bench.case(provider):
            rules = rules_of(provider)
            log = [
                Logged([*common, *range(9000 + 100 * n, 9050 + 100 * n)], ends=(5000, 5050), marks=(5000,)) for n in range(4)
            ]
            billed = replay_requests(log, provider)
            for count in billed.counts:
                plain = count.prompt_tokens - count.cached_tokens - count.written_tokens
                bench.same((count.prompt_tokens, plain >= 0), (5050, True), "prompt tokens, none of them billed twice")
            cached, written = (sum(getattr(one, f"{name}_tokens") for one in billed.counts) for name in ("cached", "written"))
            expected = 4 * 5050 - cached - written + cached * rules.read + written * rules.write
            bench.holds(abs(billed.cost - expected) < 1e-6, "the bill is the sum of its classes")
            bench.holds(
                billed.cost <= billed.cost_without_cache, "four requests with one start are cheaper than without a cache"
            )

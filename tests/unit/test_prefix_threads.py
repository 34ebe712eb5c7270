"""Many threads and one prefix cache: what comes out is what one thread alone gets, and the books are right at the end."""

import random
import sys
import threading

import pytest
import torch
from helpers import make_empty, make_model
from helpers import small_models as small_models
from prefix_helpers import KINDS, FakeModel, Watched, assert_holds, down, fake_rows, filled, known, maker, read, text, write
from thread_helpers import LONGEST_WAIT_S, in_threads

from kvcourse.errors import CacheMisuse
from kvcourse.generate import generate
from kvcourse.prefix.policies import POLICIES

pytestmark = pytest.mark.usefixtures("small_models")
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def many_switches():
    """Threads take turns a thousand times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def requests(n, seed=0):
    """Texts with shared starts: one of four system prompts, one of five questions, a few words more; one of three tenants."""
    rng = random.Random(seed)
    for number in range(n):
        trunk = text(17, seed=rng.randrange(4)) + text(9, seed=100 + rng.randrange(5))
        yield number, trunk[: rng.randint(3, 26)] + text(rng.randint(1, 6), seed=number % 40), rng.choice([None, "ann", "bob"])


def answer(pc, ids, tenant, kind):
    """What a request computes in the end: the rows of its whole text, some of them from the prefix cache."""
    cache = make_empty(kind, capacity=64)
    with pc.lease(ids, namespace=tenant) as hit:
        hit.load_into(cache)
        length = hit.length
    assert cache.length == length < len(ids)
    cache.text = ids[:length]
    write(pc.model, cache, ids[length:])
    pc.insert(ids, cache, namespace=tenant)
    return read(cache)


# mlx-lm 965, mlx-openai-server 305: concurrent requests mix answers; the trie is corrupted
@every_kind
@pytest.mark.parametrize("policy", POLICIES)
def test_eight_threads_with_2000_requests_get_what_one_alone_gets(kind, policy):
    work = list(requests(2000 if policy == "lru" else 400))
    pc = maker(KINDS[kind])(max_tokens=300, policy=policy, ttl=0.05)
    rows: dict[int, torch.Tensor] = {}

    def serve(thread):
        for number, ids, tenant in work[thread::8]:
            rows[number] = answer(pc, ids, tenant, ("growing", "preallocated", "paged")[number % 3])
            if number % 7 == 0:
                pc.match(ids, namespace=tenant)
            if number % 11 == 0:
                pc.evict(20 * pc.token_bytes)
            if number % 13 == 0:
                pc.check()
            assert pc.stats.bytes <= pc.max_bytes

    in_threads(8, serve)
    assert sorted(rows) == list(range(len(work)))
    assert all(torch.equal(rows[number], fake_rows(ids)) for number, ids, _ in work), "what a text's rows are, whoever is asked"
    pc.check()
    s = pc.stats
    assert (s.lookups, s.lookup_tokens, s.leases) == (len(work), sum(len(ids) for _, ids, _ in work), 0)
    assert s.inserted_tokens - s.evicted_tokens - s.expired_tokens == s.tokens and 0 < s.hits
    pc.clear()
    assert pc.stats.bytes == 0 and pc.index.roots == {}


@every_kind
def test_without_pressure_threads_store_what_one_alone_stores(kind):
    work = list(requests(240, seed=1))
    alone, together = (maker(KINDS[kind])(max_tokens=20_000) for _ in range(2))
    for _, ids, tenant in work:
        answer(alone, ids, tenant, "growing")

    def serve(thread):
        for _, ids, tenant in work[thread::8]:
            answer(together, ids, tenant, "growing")

    in_threads(8, serve)
    together.check()
    assert together.stats.tokens == alone.stats.tokens == together.stats.inserted_tokens
    for _, ids, tenant in work:
        assert known(together, ids, tenant) == known(alone, ids, tenant) == down(alone, len(ids))


# nano-vllm 208
@every_kind
def test_threads_that_insert_equal_texts_store_them_once(kind):
    ids = text(21)
    for extra in (0, 1, 5):
        pc = maker(KINDS[kind])()
        new = []

        def work(thread, pc=pc, new=new, extra=extra):
            mine = ids + text(extra * (thread % 3), seed=thread % 3)
            new.append(pc.insert(mine, filled(pc.model, mine)))
            cache = make_empty("growing")
            with pc.lease([*mine, 0]) as hit:
                hit.load_into(cache)
            assert_holds(cache, mine[: down(pc, len(mine))])

        in_threads(6, work)
        pc.check()
        assert sum(new) == pc.stats.tokens == pc.stats.inserted_tokens
        assert not extra or known(pc, ids) == down(pc, 21)
        if not extra:
            assert sorted(new) == [0, 0, 0, 0, 0, down(pc, 21)]


@every_kind
def test_two_inserts_of_one_text_that_overlap_store_it_once_whichever_comes_first(kind):
    """Both are in the middle of copying at the same time, every time."""
    pc, ids = maker(KINDS[kind])(), text(21)
    meet, new = threading.Barrier(2), []

    def work(thread):
        mine = ids[: 21 - 6 * thread]
        copying = iter([lambda: meet.wait(LONGEST_WAIT_S)])
        look = lambda: next(copying, lambda: None)()  # noqa: E731
        new.append(pc.insert(mine, Watched(filled(pc.model, mine), look)))

    in_threads(2, work)
    pc.check()
    assert sum(new) == pc.stats.tokens == down(pc, 21) == known(pc, ids)


@every_kind
def test_generate_in_threads_gives_the_tokens_of_generate_alone(kind):
    model, rng = make_model("llama"), random.Random(0)
    prompts = [text(10, seed=rng.randrange(3)) + text(rng.randint(1, 6), seed=rng.randrange(9)) for _ in range(64)]
    alone = [generate(model, ids, max_new_tokens=4).tokens for ids in prompts]
    pc = maker(KINDS[kind])(model, max_tokens=120)
    pc.verify, pc.strict = 0.3, True
    out = {}

    def serve(thread):
        for number in range(thread, len(prompts), 8):
            out[number] = generate(model, prompts[number], max_new_tokens=4, prefix_cache=pc)

    in_threads(8, serve)
    pc.check()
    assert [out[number].tokens for number in range(len(prompts))] == alone
    assert sum(one.usage.cached_tokens for one in out.values()) == pc.stats.hit_tokens > 0
    assert all(one.cost.tokens == one.usage.computed_tokens + 3 for one in out.values()), "cached means not computed"
    assert pc.stats.verified > 0 == pc.stats.mismatches


@every_kind
def test_a_change_of_weights_under_threads_is_refused_while_anything_is_out_and_never_served(kind):
    model = FakeModel()
    pc = maker(KINDS[kind])(model)
    held, go_on = threading.Event(), threading.Event()

    def holds_a_lease():
        with pc.lease(text(9)):
            held.set()
            assert go_on.wait(LONGEST_WAIT_S)

    def changes_weights():
        assert held.wait(LONGEST_WAIT_S)
        model.salt += 1
        with pytest.raises(CacheMisuse):
            pc.match(text(9))
        go_on.set()

    in_threads(2, lambda thread: (holds_a_lease, changes_weights)[thread]())
    assert pc.match(text(9)).length == 0
    pc.check()

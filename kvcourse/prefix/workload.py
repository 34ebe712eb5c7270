"""Lesson 10: a made-up log of chats, for readers who have no real one. Knows nothing about caches or policies.

    python -m kvcourse.prefix.workload > chats.jsonl          # 12,031 requests, in the format of the Mooncake traces
    python -m kvcourse.prefix.workload --requests 2000 --seed 1

Every chat begins with the same system prompt of one block, brings a first message (often a long document), and comes back
after a while with the whole text so far, the last answer and a new message. Some go back first, and ask again from an earlier
point. The shapes were measured on the Mooncake conversation trace (Qin et al., FAST 2025); with the default number of requests
its averages come back, within a few parts in a hundred: 12,035 input and 343 output tokens a request, 1.6 requests a chat,
3.4 requests a second, two minutes (the median) until a chat comes back, and 0.37 of all blocks seen before. Fewer requests
have seen less before.
"""

import argparse
import heapq
import itertools
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import SupportsIndex

from kvcourse.amounts import whole
from kvcourse.prefix.trace_files import BLOCK_TOKENS, Request, require_whole
from kvcourse.streams import faults_in_one_line

REQUESTS = 12_031
LONGEST_TOKENS = 126_195
CHATS_PER_MS = 2.0 / 1000
GOES_BACK = 0.18  # the share of later turns that first drop some of the text


@dataclass
class Chat:
    """A text that grows. blocks: the ids of those that are full, the system prompt's first."""

    blocks: list[int]
    input_length: int
    output_length: int
    turns: int = 1


def chat_workload(n_requests: SupportsIndex = REQUESTS, seed: SupportsIndex = 0) -> list[Request]:
    """Requests of many chats, mixed as they arrive: milliseconds from 0, blocks of 512 tokens. The same seed, the same log.

    Raises: InputError unless n_requests is 1 or more, and the seed 0 or more.
    """
    n = require_whole("n_requests", n_requests, "12031 is what the trace has.")
    return list(itertools.islice(_requests(random.Random(whole("seed", seed))), n))


def _requests(rng: random.Random) -> Iterator[Request]:
    ids = itertools.count()
    system = next(ids)
    order = itertools.count()  # of two that come at one moment, the one that was planned first
    waiting: list[tuple[float, int, Chat | None]] = [(0.0, next(order), None)]  # None: a chat that begins
    while True:
        now, _, chat = heapq.heappop(waiting)
        if chat is None:
            heapq.heappush(waiting, (now + rng.expovariate(CHATS_PER_MS), next(order), None))
            chat = Chat([system], _first_length(rng), 0)
        else:
            _grow(chat, rng)
        chat.output_length = _answer_length(rng)
        yield Request(round(now), chat.input_length, chat.output_length, _ids(chat, ids))
        goes_on = 1 - 0.67 / (1 + 0.3 * (chat.turns - 1))  # the longer it has been going on, the likelier
        if rng.random() < goes_on and chat.input_length < LONGEST_TOKENS:
            heapq.heappush(waiting, (now + 1000 * rng.lognormvariate(math.log(123), 0.95), next(order), chat))


def _grow(chat: Chat, rng: random.Random) -> None:
    """The next turn: the last answer and a new message, after going back or not."""
    chat.turns += 1
    length = chat.input_length + chat.output_length
    if rng.random() < GOES_BACK:
        kept = max(1, round(rng.random() * len(chat.blocks)))
        length -= (len(chat.blocks) - kept) * BLOCK_TOKENS
        del chat.blocks[kept:]
    message = 1 + round(rng.lognormvariate(math.log(60), 2.3))
    chat.input_length = min(LONGEST_TOKENS, max(length + message, BLOCK_TOKENS + 1))


def _ids(chat: Chat, ids: Iterator[int]) -> tuple[int, ...]:
    """The ids of a request's blocks. A full one keeps its id; a part filled one has an id that never comes back."""
    full, rest = divmod(chat.input_length, BLOCK_TOKENS)
    chat.blocks.extend(next(ids) for _ in range(full - len(chat.blocks)))
    return (*chat.blocks, next(ids)) if rest else tuple(chat.blocks)


def _first_length(rng: random.Random) -> int:
    return min(LONGEST_TOKENS, 890 + round(rng.lognormvariate(math.log(4950), 1.33)))


def _answer_length(rng: random.Random) -> int:
    return min(2000, max(1, round(rng.gauss(337, 230))))


def main(arguments: list[str] | None = None) -> None:
    """Print a workload, one JSON object a line."""
    parser = argparse.ArgumentParser(prog="python -m kvcourse.prefix.workload", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--requests", type=int, default=REQUESTS, help="how many; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="the same seed, the same log; default: %(default)s")
    options = parser.parse_args(arguments)
    with faults_in_one_line(parser.prog):
        for request in chat_workload(options.requests, options.seed):
            print(json.dumps(request.as_record()))


if __name__ == "__main__":
    main()

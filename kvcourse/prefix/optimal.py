"""Lesson 10: the ceiling: evict what is needed again last. Knows nothing about prefixes, hit rates or how a cache is kept.

It sees the future, so no cache can run it. Source: Belady 1966.

Is it the best there is? For blocks that are found one by one, yes: of every stretch from a block's use to its next, the most
possible are bridged if the one that ends last is given up (interval scheduling: Faigle and Nawijn 1995). Here a hit counts only
up to a request's first miss, and that changes nothing as long as an id names its whole prefix, as the format promises: a block
is then never needed sooner than what stands in front of it, so farthest-next-use with ties to the larger position never
keeps a block without its front, and loses nothing to the first-miss rule. So `opt` has the highest block hit rate of all.

Two limits. On a log whose ids do not name their prefixes it may keep a block without its front, and another policy may beat it.
And it is blocks that it maximises: hit rates in tokens, where a request's last block counts less, and the mean over requests,
where a short request's blocks count more, may be higher under another policy, by a little.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

from kvcourse.prefix.entries import Entry
from kvcourse.prefix.policies import Policy

NEVER = float("inf")


class FarthestNextUse(Policy):
    """Evict what is needed again last. keys: of each request, from the first, the keys of the entries that it uses."""

    name = "opt"

    def __init__(self, rescore: Callable[[Entry], None], keys: Iterable[Iterable[Hashable]]) -> None:
        super().__init__(rescore)
        self._uses: dict[Hashable, list[int]] = defaultdict(list)
        for request, used in enumerate(keys, start=1):
            for key in used:
                self._uses[key].append(request)

    def score(self, entry: Entry) -> float:
        uses = self._uses[entry.key]
        later = bisect_right(uses, entry.used)
        return -uses[later] if later < len(uses) else -NEVER

"""Lesson 07: how fast this machine reads memory: the floor under a decode step. Knows nothing about models."""

import statistics
import time
from collections.abc import Callable

import torch


def read_bandwidth(megabytes: int = 512, runs: int = 5) -> float:
    """Bytes a second at which all threads together read a large array: the best of two ways, each the median of `runs`.

    The array is far larger than what a core caches. It is summed, and it is multiplied by a row, as a decode step does.
    """
    width = 1024
    array = torch.ones(width, megabytes * 2**20 // (4 * width))  # float32
    row = torch.ones(1, width)
    return array.nbytes / min(_median_s(array.sum, runs), _median_s(lambda: row @ array, runs))


def _median_s(read: Callable[[], object], runs: int) -> float:
    seconds = []
    for _ in range(runs + 1):  # the first run touches the pages
        start = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])

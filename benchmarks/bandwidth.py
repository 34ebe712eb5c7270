"""Lesson 07: how fast this machine reads memory: the floor under a decode step. Knows nothing about models."""

import statistics
import time

import torch


def read_bandwidth(megabytes: int = 512, runs: int = 5) -> float:
    """Bytes a second at which all threads together read a large array; the median of `runs`.

    The array is far larger than any processor cache, and is summed, so that every byte is read once.
    """
    array = torch.ones(megabytes * 2**20 // 4)  # float32
    seconds = []
    for _ in range(runs + 1):  # the first run touches the pages
        start = time.perf_counter()
        array.sum()
        seconds.append(time.perf_counter() - start)
    return array.nbytes / statistics.median(seconds[1:])

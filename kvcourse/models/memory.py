"""Lesson 07: memory that is read fast. Knows nothing about what is kept in it.

A processor finds each 4 KB page of memory through a table, and a decode step walks through half a gigabyte of them. In huge
pages of 2 MB there are 500 times fewer to find. Linux gives them to whoever asks; elsewhere this is ordinary memory.
"""

import mmap

import torch
from torch import Tensor

HUGE_PAGE_BYTES = 2 * 2**20


def empty_matrix(rows: int, columns: int, like: Tensor) -> Tensor:
    """An uninitialised (rows, columns) matrix of the dtype and device of `like`, in huge pages where that is possible."""
    n_bytes = rows * columns * like.element_size()
    if like.device.type != "cpu" or n_bytes < HUGE_PAGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(rows, columns, dtype=like.dtype, device=like.device)
    block = mmap.mmap(-1, n_bytes + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    memory = torch.frombuffer(block, dtype=torch.uint8)  # keeps `block` alive
    start = -memory.data_ptr() % HUGE_PAGE_BYTES
    return memory[start : start + n_bytes].view(like.dtype).view(rows, columns)

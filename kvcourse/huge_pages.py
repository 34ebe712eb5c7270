"""Lesson 07: memory that is read fast. Knows nothing about what is kept in it.

A processor finds each 4 KB page of memory through a table, and a decode step walks through half a gigabyte of them. In huge
pages of 2 MB there are 500 times fewer to find, and to hand over when they are first written. Linux gives them to whoever asks;
elsewhere this is ordinary memory.
"""

import mmap

import torch
from torch import Tensor

HUGE_PAGE_BYTES = 2 * 2**20
MOST_KEPT_BYTES = 256 * 2**20  # in all: what a process keeps of memory that nobody uses
LARGEST_SHARE = 4  # a block that is larger than so many times what is asked for goes to the system


_given_back: list[Tensor] = []  # at most one block of bytes, which its last user is done with


def empty_matrix(rows: int, columns: int, like: Tensor) -> Tensor:
    """An uninitialised (rows, columns) matrix of the dtype and device of `like`, in huge pages where that is possible."""
    n_bytes = rows * columns * like.element_size()
    if like.device.type != "cpu" or n_bytes < HUGE_PAGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(rows, columns, dtype=like.dtype, device=like.device)
    try:
        block = mmap.mmap(-1, n_bytes + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # a kernel that was built without them
        return torch.empty(rows, columns, dtype=like.dtype, device=like.device)
    memory = torch.frombuffer(block, dtype=torch.uint8)  # keeps `block` alive
    start = -memory.data_ptr() % HUGE_PAGE_BYTES
    return memory[start : start + n_bytes].view(like.dtype).view(rows, columns)


def used_matrix(rows: int, columns: int, like: Tensor) -> Tensor:
    """The same, in memory that was given back where there is enough of it: the system has filled it with zeros once already."""
    n_bytes = rows * columns * like.element_size()
    try:
        memory = _given_back.pop()
    except IndexError:
        return empty_matrix(rows, columns, like)
    behind = memory.untyped_storage().nbytes() - HUGE_PAGE_BYTES  # the whole block, of which the last user had a part perhaps
    if like.device.type != "cpu" or not (n_bytes <= memory.nbytes and behind <= LARGEST_SHARE * n_bytes):
        return empty_matrix(rows, columns, like)
    return memory[:n_bytes].view(like.dtype).view(rows, columns)


def give_back(matrix: Tensor) -> None:
    """Hand a matrix's memory to the next `used_matrix`. Whoever calls this knows that nobody reads it any more."""
    if HUGE_PAGE_BYTES <= matrix.nbytes <= MOST_KEPT_BYTES and matrix.device.type == "cpu":
        _given_back[:] = [matrix.view(-1).view(torch.uint8)]

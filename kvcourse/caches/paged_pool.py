"""Lesson 09: the memory of many sequences, in blocks of one size. Knows nothing about sequences: a cache's tables say which
blocks are whose. Of a model it wants the shape of a row.
"""

from typing import Any

import torch

from kvcourse.caches.base import KeysValues
from kvcourse.caches.block_pool import BlockPool
from kvcourse.config import Config, kv_bytes_per_token
from kvcourse.errors import CacheMismatch, InputError
from kvcourse.meter import count


class PagedPool:
    """Room for n_blocks blocks of `block_tokens` tokens each, in every layer of a model. Any number of caches may share it.

    keys, values: one tensor (N, P, H_kv, D) a layer, all made at once.
    blocks: which of them are free.
    """

    def __init__(self, model: Any, n_blocks: int, block_tokens: int = 16) -> None:
        self.block_tokens = checked_block_tokens(block_tokens)
        self.blocks = BlockPool(n_blocks)
        self._allocate(model.config, model.dtype, model.device)

    def _allocate(self, config: Config, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.n_layer, self.n_kv_head, self.head_size = config.n_layer, config.n_kv_head, config.head_size
        self.block_bytes = self.block_tokens * kv_bytes_per_token(config, dtype.itemsize)
        shape = self.blocks.n_blocks, self.block_tokens, self.n_kv_head, self.head_size
        # Ordinary tensors even inside torch.inference_mode(): one made there could not be written to outside.
        with torch.inference_mode(False):
            self.keys, self.values = (
                [torch.empty(shape, dtype=dtype, device=device) for _ in range(self.n_layer)] for _ in range(2)
            )
            # The same memory as one long row of N·P slots, (1, H_kv, N·P, D), as attention wants it.
            self.strips = [
                KeysValues(*(t.flatten(0, 1).transpose(0, 1).unsqueeze(0) for t in rows))
                for rows in zip(self.keys, self.values, strict=True)
            ]

    @property
    def nbytes(self) -> int:
        """Bytes of K and V in memory, used or not."""
        return self.blocks.n_blocks * self.block_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes of the blocks in use; a block that several tables share is counted once."""
        return self.blocks.n_used * self.block_bytes

    def require(self, config: Config, dtype: torch.dtype, device: torch.device) -> None:
        """Nothing, if a model's rows fit.

        Raises: CacheMismatch if they do not.
        """
        for name, expected, got in (
            ("layers", self.n_layer, config.n_layer),
            ("K/V heads", self.n_kv_head, config.n_kv_head),
            ("head size", self.head_size, config.head_size),
            ("dtype", self.dtype, dtype),
            ("device", self.device, device),
        ):
            if expected != got:
                raise CacheMismatch(
                    f"The pool holds rows of another {name}.",
                    expected=expected,
                    got=got,
                    todo="Make a pool for this model: PagedPool(model, n_blocks).",
                )

    def copy_rows(self, sources: list[int], targets: list[int], n_rows: int) -> None:
        """The first n_rows rows of some blocks into others, in every layer. Counted as bytes copied."""
        for tensor in (*self.keys, *self.values):
            tensor[targets, :n_rows] = tensor[sources, :n_rows]
        count("bytes_copied", len(sources) * n_rows * self.block_bytes // self.block_tokens)


def checked_block_tokens(block_tokens: Any) -> int:
    """The tokens of a block. Raises: InputError for what is no whole number above 0."""
    if isinstance(block_tokens, bool) or not isinstance(block_tokens, int) or block_tokens < 1:
        raise InputError(
            "A block holds tokens.", expected="block_tokens of 1 or more", got=repr(block_tokens), todo="Leave it out: 16."
        )
    return block_tokens

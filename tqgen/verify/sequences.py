"""Unpacking whole sequences by their block table: what a cell's cache gives, against the reference.

Needs torch. Sequences are empty, end in the middle of a block, or fill theirs; one of them has a negative block; and
the table names blocks in any order, one of them twice.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from tqgen import reference
from tqgen.codecs.base import Span
from tqgen.layout import Layout
from tqgen.reference import compare
from tqgen.reference.compare import Comparison, Mismatch
from tqgen.verify.cells import Cell
from tqgen.verify.trial import DTYPES, SENTINEL, GuardedCache, device_arguments, seed_of

PLACES = frozenset({"shuffled", "consecutive", "edges", "far"})
# Of a sequence so many tokens are unpacked, and so many token-heads: larger blocks are cut.
MOST_TOKENS, MOST_ROWS = 40, 160


@dataclass(frozen=True)
class Sequences:
    """Blocks and lengths, int32, and how many tokens of each sequence are asked for."""

    block_table: np.ndarray
    seq_lens: np.ndarray
    tokens: int

    def slots(self, block_size: int) -> np.ndarray:
        """The slot of every token that is asked for, [sequences, tokens]; -1 where there is none."""
        position = np.arange(self.tokens)
        block = self.block_table[:, position // block_size].astype(np.int64)
        live = (position < self.seq_lens[:, None]) & (block >= 0)
        return np.where(live, block * block_size + position % block_size, -1)


def sequences_of(cell: Cell, num_blocks: int) -> Sequences:
    """The sequences of a cell over a cache of `num_blocks` blocks."""
    rng = np.random.default_rng(seed_of(cell))
    size = cell.block_size
    table = rng.integers(0, num_blocks, (4, 3)).astype(np.int32)
    table[0] = table[0, 0]
    table[3, 1] = -1
    held = 3 * size
    most = min(MOST_TOKENS, max(1, MOST_ROWS // cell.num_kv_heads))
    tokens = min(held if cell.inputs == "dense" else max(1, held - 1), most)
    lengths = np.array([held, 0, min(tokens - 1, size + size // 2), tokens], dtype=np.int32)
    return Sequences(table, lengths, tokens)


def unpack(
    layout: Layout, module: ModuleType, cell: Cell, cache: GuardedCache, run_time: dict[str, np.ndarray]
) -> Comparison:
    """Unpack the sequences of the cell from the cache as it is."""
    where = cache.tensor.device
    wanted = sequences_of(cell, cache.shape[0])
    accepted = inspect.signature(module.unpack).parameters
    given = {name: array for name, array in run_time.items() if name in accepted}
    options: dict[str, Any] = {"space": cell.space, **device_arguments(given, where)}
    count, held = len(wanted.seq_lens), wanted.block_table.shape[1] * cell.block_size
    buffers: dict[str, torch.Tensor] = {}
    if wanted.tokens < held or cell.inputs != "dense":
        shape = (count, wanted.tokens + 1, cell.num_kv_heads + 1)
        for side in layout.sides:
            larger = torch.full((*shape, side.head_dim), SENTINEL, dtype=DTYPES[cell.out_dtype], device=where)
            buffers[side.name] = larger
        views = {name: larger[:, 1:, 1:] for name, larger in buffers.items()}
        options["out"] = (views.get("key"), views.get("value"))
    before = cache.blocks()
    returned = module.unpack(
        cache.tensor,
        block_table=torch.from_numpy(wanted.block_table).to(where),
        seq_lens=torch.from_numpy(wanted.seq_lens).to(where),
        dtype=DTYPES[cell.out_dtype],
        **options,
    )
    slots = wanted.slots(cell.block_size).reshape(-1)
    got: dict[str, np.ndarray] = {}
    for name, tensor in zip(("key", "value"), returned, strict=True):
        if tensor is not None:
            numbers = tensor.cpu().to(torch.float64).numpy()
            if numbers.shape[:3] != (count, wanted.tokens, cell.num_kv_heads):
                raise ValueError(
                    f"{name} is {list(numbers.shape)}, and {wanted.tokens} tokens a sequence were asked for"
                )
            got[name] = numbers.reshape(-1, *numbers.shape[2:])
    expected: dict[str, Span] = reference.unpack(
        layout, before, slots, space=cell.space, dtype=cell.out_dtype, **run_time
    )
    result = compare.compare_unpacked(expected, got, slots)
    for name, larger in buffers.items():
        larger[:, 1:, 1:] = SENTINEL
        if not bool((larger == SENTINEL).all()):
            result.add(1, [Mismatch(f"output around the {name} vectors", f"{SENTINEL:g}", "another")])
    return result

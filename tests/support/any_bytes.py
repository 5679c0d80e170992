"""Caches that no store writes: every code, and numbers of every kind beside them."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import torch

from tqgen import reference, verify
from tqgen.layout import Layout
from tqgen.numerics import floats
from tqgen.reference import cache_bytes, compare
from tqgen.reference.compare import Comparison
from tqgen.verify.cells import Cell
from tqgen.verify.trial import DTYPES, device_arguments, run_time_arguments


def any_bytes(
    layout: Layout, shape: tuple[int, int, int, int], slots: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A cache of random bytes: all codes there are. Floats are of every kind, but small enough for sums of them."""
    cache = rng.integers(0, 256, shape, dtype=np.uint8)
    for field in layout.fields:
        dtype = field.part.dtype or {16: "fp16", 32: "fp32"}.get(field.part.bits)
        if dtype is None:
            continue
        numbers = np.ldexp(rng.standard_normal((len(slots), shape[2], field.part.count)), rng.integers(-60, 16))
        kinds = rng.choice(7, numbers.shape[:2], p=[0.7, 0.1, 0.05, 0.05, 0.05, 0.03, 0.02])
        for kind, number in enumerate((0.0, -0.0, math.nan, math.inf, -math.inf, 1e-42), start=1):
            numbers[kinds == kind, 0] = number
        bits = floats.to_bits(numbers, dtype).astype(f"<u{field.part.bits // 8}")
        cache_bytes.scatter(layout, cache, field, slots, bits.view(np.uint8).reshape(*numbers.shape[:2], -1))
    return cache


def unpacked_any_bytes(layout: Layout, module: ModuleType, cell: Cell, seed: int) -> Comparison:
    """What is unpacked from bytes that no store writes, every code and numbers of every kind, against the reference."""
    heads, block_size, where = min(cell.num_kv_heads, 3), min(cell.block_size, 64), verify.device()
    rng = np.random.default_rng(seed)
    slots = rng.permutation(8 * block_size)[:8].astype(np.int64)
    shape = (8, block_size, heads, layout.slot_bytes)
    cache = any_bytes(layout, shape, slots, rng)
    run_time = run_time_arguments(layout, heads)
    with np.errstate(all="ignore"):
        expected = reference.unpack(layout, cache, slots, space=cell.space, dtype=cell.out_dtype, **run_time)
        got = module.unpack(
            module.allocate(*shape[:3], device=where).copy_(torch.from_numpy(cache)),
            torch.from_numpy(slots).to(where),
            space=cell.space,
            dtype=DTYPES[cell.out_dtype],
            **device_arguments(run_time, where),
        )
    numbers = {name: tensor.cpu().double().numpy() for name, tensor in zip(("key", "value"), got) if tensor is not None}
    return compare.compare_unpacked(expected, numbers, slots)

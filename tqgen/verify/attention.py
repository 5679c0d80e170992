"""Fused decode attention of a generated module against float64 attention over the same bytes, within a derived bound.

The cache is what the module's own store wrote, with 0xFF in every byte that no token owns: positions past a sequence's
length must never reach an output.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from tqgen import reference
from tqgen.layout import Layout
from tqgen.numerics import floats
from tqgen.reference.compare import Comparison, Mismatch
from tqgen.verify.cells import Cell
from tqgen.verify.patterns import vectors
from tqgen.verify.trial import DTYPES, GuardedCache, device_arguments, run_time_arguments, seed_of

POISON = 0xFF
# Attention has its own slots: one in five cells is enough to meet every value of the axes that it depends on.
# Where blocks are far apart there are few of them, which one sequence has again and again: more than a tile of tokens,
# with the farthest in the first tile and in the second.
PLACES = ("edges", "far")
FAR_TABLE = (1, 2, 0, 1, 2, 2)
# Patterns of finite numbers whose scores are not so large that the rounding of a query to fp16 decides a softmax.
PATTERNS = ("normal", "real", "constant", "one_different", "zeros", "negative_zero", "ties", "tiny")
FP16_ROUNDING = 2.0**-11
DEVIATIONS = 8
GATHERED = 4  # how much larger than one rounding a rotated sum of independent ones may be
FP32_SLACK = 2.0**-18  # sums of a few thousand fp32 terms, exp2 and log2 of the hardware


@dataclass(frozen=True)
class Call:
    """What one cell asks of `decode_attention`, drawn from the cell's id."""

    group: int
    queries: int
    lengths: tuple[int, ...]
    options: dict[str, Any]
    flat: bool


def call_of(layout: Layout, cell: Cell) -> Call:
    """The call of a cell: every option is drawn on its own, so that the cells of a layout cover their pairs."""
    rng = np.random.default_rng(zlib.crc32(f"attention {cell.id}".encode()))
    size = cell.block_size
    lengths = [0, 1, size, size + 1, 2 * size + 3, 70]
    chosen = tuple(int(min(length, 140)) for length in rng.permutation(lengths)[:3])
    if cell.places == "far":
        chosen = (min((len(FAR_TABLE) - 1) * size + 3, len(FAR_TABLE) * size, 140),)
    options: dict[str, Any] = {}
    if rng.random() < 0.3:
        options["window"] = int(rng.integers(1, 60))
    centered = layout.key.parameters.center or layout.value.parameters.center
    if rng.random() < 0.3 and not layout.key.parameters.center:
        options["softcap"] = 20.0
    if rng.random() < 0.3 and not centered:
        options["sinks"] = True
    splits = rng.integers(0, 3)
    if cell.places == "far":
        options.pop("window", None)
        options["num_splits"] = 1
    elif splits:
        options.update({"num_splits": 3} if splits == 1 else {"batch_invariant": True})
    return Call(
        group=int(rng.choice([1, 4, 5, 20])),
        queries=int(rng.choice([1, 1, 3])),
        lengths=chosen,
        options=options,
        flat=bool(rng.random() < 0.3),
    )


def attend(layout: Layout, module: ModuleType, cell: Cell, where: torch.device) -> Comparison:
    """Store tokens, call `decode_attention`, and compare every output and logarithm."""
    call = call_of(layout, cell)
    heads, size = cell.num_kv_heads, cell.block_size
    rng = np.random.default_rng(seed_of(cell))
    run_time = run_time_arguments(layout, heads)
    blocks = -(-max(1, *call.lengths) // size)
    table = rng.permutation(len(call.lengths) * blocks).reshape(len(call.lengths), blocks).astype(np.int32)
    if cell.places == "far":
        table = np.array([FAR_TABLE], dtype=np.int32)
    cache = GuardedCache(layout, cell, int(table.max()) + 1, where).tensor
    cache.fill_(POISON)
    pattern = cell.pattern if cell.pattern in PATTERNS else "normal"
    for row, length in zip(table, call.lengths, strict=True):
        positions = np.arange(length)
        slots = torch.from_numpy(np.unique(row[positions // size].astype(np.int64) * size + positions % size)).to(where)
        shapes = {side: (len(slots), heads, side.head_dim) for side in (layout.key, layout.value)}
        sides = [
            torch.from_numpy(vectors(pattern, shape, side, cell.dtype, seed_of(cell) + length))
            .to(DTYPES[cell.dtype])
            .to(where)
            for side, shape in shapes.items()
        ]
        module.store(*sides, cache, slots, **device_arguments(run_time, where))
    # Few and many query rows have kernels of their own, both of which must reach blocks that are far away.
    groups = (4, 20) if cell.places == "far" else (call.group,)
    for group in groups:
        shape = (len(call.lengths) * call.queries, heads * group, layout.key.head_dim)
        query = vectors("normal", shape, layout.key, cell.dtype, seed_of(cell) + 1)
        query = query.reshape(len(call.lengths), call.queries, *shape[1:])
        one = dataclasses.replace(call, group=group)
        compared = _compare(layout, module, cell, one, cache, table, query, run_time, where)
        if not compared.ok:
            break
    return compared


def _compare(
    layout: Layout,
    module: ModuleType,
    cell: Cell,
    call: Call,
    cache: torch.Tensor,
    table: np.ndarray,
    query: np.ndarray,
    run_time: dict[str, np.ndarray],
    where: torch.device,
) -> Comparison:
    given = torch.from_numpy(query).to(DTYPES[cell.dtype]).to(where)
    lengths = torch.tensor(call.lengths, dtype=torch.int32, device=where)
    arguments = {name: array for name, array in run_time.items() if name != "key_center"}
    options: dict[str, Any] = {**call.options, **device_arguments(arguments, where)}
    sinks = None
    if options.pop("sinks", False):
        sinks = np.linspace(-1.0, 2.0, query.shape[2], dtype=np.float32)
        options["sinks"] = torch.from_numpy(sinks).to(where)
    wants_lse = not layout.key.parameters.center
    flat = given.reshape(-1, *given.shape[2:])
    if call.flat:
        starts = torch.arange(len(call.lengths) + 1, dtype=torch.int32, device=where) * call.queries
        options.update(query_start_loc=starts, max_query_len=call.queries)
    asked = flat if call.flat or call.queries == 1 else given
    result = module.decode_attention(
        asked, cache, torch.from_numpy(table).to(where), lengths, return_lse=wants_lse, **options
    )
    output, lse = result if wants_lse else (result, None)
    exact, logarithm = reference.attention(
        layout,
        query,
        cache.cpu().numpy(),
        table,
        np.array(call.lengths),
        sinks=sinks,
        window=call.options.get("window"),
        softcap=call.options.get("softcap"),
        key_rotation=arguments.get("key_rotation"),
        value_rotation=arguments.get("value_rotation"),
        value_center=arguments.get("value_center"),
    )
    bound, score_bound = bounds(layout, query, cache.cpu().numpy(), table, call, sinks, arguments)
    comparison = Comparison()
    got = output.cpu().to(torch.float64).numpy().reshape(exact.shape)
    bound = bound + _output_rounding(exact, cell.dtype)
    _add(comparison, "attention output", got, exact, bound)
    if lse is not None:
        got_lse = lse.cpu().to(torch.float64).numpy().reshape(logarithm.shape)
        _add(comparison, "logarithm of the sum of exponentials", got_lse, logarithm, score_bound)
    return comparison


def bounds(
    layout: Layout,
    query: np.ndarray,
    cache: np.ndarray,
    table: np.ndarray,
    call: Call,
    sinks: np.ndarray | None,
    arguments: dict[str, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Largest errors of outputs [B, T, Hq, Dv] and of logarithms [B, T, Hq] that the arithmetic allows.

    Each element of a query and of a key's tile is rounded to fp16, at most u = 2**-11 of itself, independently and
    evenly: a score is off by a sum of standard deviation u * sqrt(2 / 3) * sqrt(sum (q_i k_i)**2) * scale. DEVIATIONS
    of them, e, are a bound with a chance of failure below 1e-14 a score. A logarithm is off by at most the largest e.
    An output sum p v is off by at most sum p (exp(e) - 1) |v - output|, and by the rounding to fp16 of the weights and
    of the value's tile, sum p 2 u |v| of values as they are stored, which an orthogonal matrix may gather.
    """
    size, side = cache.shape[1], layout.value
    scale = 1 / math.sqrt(layout.key.head_dim)
    outputs, logarithms = [], []
    for rows, blocks, length in zip(query, table, call.lengths, strict=True):
        positions = np.arange(length)
        slots = blocks.astype(np.int64)[positions // size] * size + positions % size
        keys = reference.decoded_vectors(layout, cache, slots, "key", space="rotated")
        values = reference.decoded_vectors(
            layout,
            cache,
            slots,
            "value",
            rotation=arguments.get("value_rotation"),
            center=arguments.get("value_center"),
        )
        group = rows.shape[1] // keys.shape[1]
        keys, values = (np.repeat(array, group, axis=1) for array in (keys, values))
        rotated = _rotated(layout, rows.astype(np.float64), arguments.get("key_rotation"))
        scores = np.einsum("thd,shd->hts", rotated, keys) * scale
        off = np.sqrt(np.einsum("thd,shd->hts", rotated**2, keys**2)) * scale * FP16_ROUNDING * math.sqrt(2 / 3)
        floor = FP32_SLACK * (1 + np.abs(scores))
        error = DEVIATIONS * off + floor
        if "softcap" in call.options:
            scores = call.options["softcap"] * np.tanh(scores / call.options["softcap"])
        own = length - len(rows) + np.arange(len(rows))[:, None]
        seen = positions <= own
        if "window" in call.options:
            seen &= positions > own - call.options["window"]
        scores = np.where(seen, scores, -np.inf)
        peak = scores.max(-1, initial=-np.inf, keepdims=True)
        if sinks is not None:
            peak = np.maximum(peak, sinks[:, None, None])
        weights = np.exp(scores - np.where(np.isinf(peak), 0.0, peak))
        total = weights.sum(-1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(sinks[:, None, None] - peak)
        shares = weights / np.where(total == 0, 1.0, total)
        result = np.einsum("hts,shd->htd", shares, values)
        error = np.where(seen, error, 0.0)
        growth = np.expm1(error)
        away = np.abs(values.transpose(1, 0, 2)[:, None] - result[:, :, None])
        bound = np.einsum("hts,htsd->htd", shares * growth, away)
        stored = np.repeat(reference.decoded_vectors(layout, cache, slots, "value", space="rotated"), group, axis=1)
        # a tile's numbers are counted from the middle of a vector's range, so that any may be as large as its largest
        stored = np.broadcast_to(np.abs(stored).max(-1, keepdims=True, initial=0.0), stored.shape)
        tile = np.einsum("hts,shd->htd", shares, stored)
        gathered = tile if side.rotation.kind == "none" else GATHERED * tile.max(-1, keepdims=True, initial=0.0)
        bound += 2 * FP16_ROUNDING * gathered + FP32_SLACK * np.abs(stored).max(initial=0.0)
        outputs.append(bound.transpose(1, 0, 2))
        height = np.abs(np.where(np.isinf(peak), 0.0, peak))[..., 0]
        logarithms.append((error.max(-1, initial=0.0) + FP32_SLACK * (1 + height)).T)
    return np.stack(outputs), np.stack(logarithms)


def _rotated(layout: Layout, rows: np.ndarray, rotation: np.ndarray | None) -> np.ndarray:
    from tqgen.numerics import rotations

    return rows @ rotations.matrix(layout.key.rotation, layout.key.head_dim, rotation)


def _output_rounding(values: np.ndarray, dtype: str) -> np.ndarray:
    """Half a unit in the last place of `dtype`, twice over where a result is rounded on the way back as well."""
    relative = {"fp16": 2.0**-10, "bf16": 2.0**-7, "fp32": 2.0**-18}[dtype]
    largest = np.abs(values).max(-1, keepdims=True, initial=0.0)
    return relative * np.abs(values) + 2.0**-14 * largest + floats.SMALLEST_NORMAL


def _add(comparison: Comparison, what: str, got: np.ndarray, exact: np.ndarray, bound: np.ndarray) -> None:
    with np.errstate(invalid="ignore"):
        fits = np.abs(got - exact) <= bound
    fits |= got == exact  # minus infinity of an empty sequence
    comparison.elements += got.size
    wrong = np.argwhere(~fits)
    shown = [
        Mismatch(
            f"{what} at sequence, query, head, element {list(map(int, at))}",
            f"{exact[tuple(at)]:.6g} +- {np.broadcast_to(bound, exact.shape)[tuple(at)]:.2g}",
            f"{got[tuple(at)]:.6g}",
        )
        for at in wrong[:4]
    ]
    comparison.add(len(wrong), shown)

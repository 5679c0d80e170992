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
from tqgen.numerics import floats, rotations
from tqgen.reference import cache_bytes
from tqgen.reference.compare import Comparison, Mismatch
from tqgen.verify.attention_bounds import bounds, output_rounding
from tqgen.verify.cells import Cell
from tqgen.verify.patterns import vectors
from tqgen.verify.trial import (
    DTYPES,
    SENTINEL,
    GuardedCache,
    attention_arguments,
    device_arguments,
    run_time_arguments,
    seed_of,
    side_vectors,
)

POISON = 0xFF
# Attention has its own slots: one in five cells is enough to meet every value of the axes that it depends on.
# Where blocks are far apart there are few of them, which one sequence has again and again: more than a tile of tokens,
# with the farthest in the first tile and in the second.
PLACES = ("edges", "far")
FAR_TABLE = (1, 2, 0, 1, 2, 2)
# Patterns of finite numbers whose scores are not so large that the rounding of a query to fp16 decides a softmax.
PATTERNS = ("normal", "real", "constant", "one_different", "zeros", "negative_zero", "ties", "tiny")
MOST_HEADS = 40  # of queries: each row is merged by a program of its own, which takes time in the interpreter
NOWHERE = 2**31 - 1  # a block that no cache has
AROUND = 5  # numbers before and behind a buffer that must stay what they are
FORMS = ("own", "flat", "ragged")


@dataclass(frozen=True)
class Call:
    """What one cell asks of `decode_attention`.

    `form` of the queries: an axis of their own, `flat` with the same number of each sequence, or `ragged` with one
    less from each sequence to the next. `sliced`: query and block table are parts of larger tensors. `buffers`: output
    and workspace are given. `probes`: packed codes are any there are, and a query is one element of rotated keys: with
    a window of one position a result is one number of a key's tile, and numbers of a value's.
    """

    group: int
    queries: int
    lengths: tuple[int, ...]
    options: dict[str, Any]
    form: str = "own"
    sliced: bool = False
    buffers: bool = False
    probes: bool = False

    def asks(self) -> np.ndarray:
        """Which of the queries [B, T] of the largest number are asked for: of each sequence the last ones."""
        fewer = np.arange(len(self.lengths))[:, None] if self.form == "ragged" else 0
        return np.arange(self.queries) >= np.broadcast_to(fewer, (len(self.lengths), 1))


def is_for(cell: Cell) -> bool:
    """Whether a cell asks for attention: it does not depend on the space to unpack to, so of far blocks one does."""
    return cell.places in PLACES and (cell.places != "far" or cell.space == "model")


def call_of(layout: Layout, cell: Cell) -> Call:
    """The call of a cell: every option is drawn on its own, from the cell's id, so that cells cover pairs of them."""
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
    groups = [group for group in (1, 4, 5, 12, 24) if group * cell.num_kv_heads <= MOST_HEADS]
    group, queries = int(rng.choice(groups)), int(rng.choice([1, 1, 3]))
    form = FORMS[int(rng.integers(1, 3))] if rng.random() < 0.3 else FORMS[0]
    if rng.random() < 0.3:
        options["softmax_scale"] = 0.07
    sliced, buffers = (bool(rng.random() < 0.5) for _ in range(2))
    return Call(group, queries, chosen, options, form, sliced, buffers)


def attend(layout: Layout, module: ModuleType, cell: Cell, where: torch.device, call: Call | None = None) -> Comparison:
    """Store tokens, call `decode_attention` as `call` or the cell has it, and compare every output and logarithm."""
    call = call or call_of(layout, cell)
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
            torch.from_numpy(side_vectors(pattern, shape, side, cell.dtype, seed_of(cell) + length, run_time))
            .to(DTYPES[cell.dtype])
            .to(where)
            for side, shape in shapes.items()
        ]
        module.store(*sides, cache, slots, **device_arguments(run_time, where))
        if call.probes:
            _put_any_codes(layout, cache, slots.cpu().numpy(), rng)
    # Few and many query rows have kernels of their own, both of which must reach blocks that are far away.
    both = (4, 17) if hasattr(module, "_decode_few_kernel") else (17,)
    groups = both if cell.places == "far" else (call.group,)
    for group in groups:
        shape = (len(call.lengths) * call.queries, heads * group, layout.key.head_dim)
        query = vectors("normal", shape, layout.key, cell.dtype, seed_of(cell) + 1)
        if call.probes:
            query = _probes(layout, query, run_time.get("key_rotation"), cell.dtype)
        query = query.reshape(len(call.lengths), call.queries, *shape[1:])
        one = dataclasses.replace(call, group=group)
        compared = _compare(layout, module, cell, one, cache, table, query, run_time, where)
        if not compared.ok:
            break
    return compared


def _put_any_codes(layout: Layout, cache: torch.Tensor, slots: np.ndarray, rng: np.random.Generator) -> None:
    """Random codes at the slots, of codecs whose codes are all finite numbers."""
    blocks = cache.cpu().numpy()
    for side in layout.sides:
        if side.codec.name in ("mse", "uniform"):
            field = next(one for one in layout.fields if one.name == f"{side.name}.codes")
            shape = (len(slots), cache.shape[2], field.part.num_bytes)
            cache_bytes.scatter(layout, blocks, field, slots, rng.integers(0, 256, shape, dtype=np.uint8))
    cache.copy_(torch.from_numpy(blocks))


def _probes(layout: Layout, query: np.ndarray, rotation: np.ndarray | None, dtype: str) -> np.ndarray:
    """Rows of the shape of `query` that are, rotated and but for their rounding, one element each, of all in turn."""
    head_dim = layout.key.head_dim
    turns = np.arange(query.size // head_dim) * 5 % head_dim
    elements = np.eye(head_dim)[turns] @ rotations.matrix(layout.key.rotation, head_dim, rotation).T
    return floats.round_to(elements, dtype).reshape(query.shape)


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
    arguments = attention_arguments(run_time)
    options: dict[str, Any] = {**call.options, **device_arguments(arguments, where)}
    sinks = None
    if options.pop("sinks", False):
        sinks = np.linspace(-1.0, 2.0, query.shape[2], dtype=np.float32)
        sinks[1:2] = -np.inf  # one head has none
        sinks[2:4] = [3e38, -3e38][: len(sinks[2:4])]  # beyond fp32 to base 2
        options["sinks"] = torch.from_numpy(sinks).to(where)
    wants_lse = not layout.key.parameters.center
    asks = call.asks()
    asked = given[torch.from_numpy(asks).to(where)]
    # What a sequence has no tokens for is never looked at.
    held = np.arange(table.shape[1]) < -(-np.array(call.lengths)[:, None] // cell.block_size)
    blocks = torch.from_numpy(np.where(held, table, NOWHERE).astype(np.int32)).to(where)
    if call.sliced:
        asked, blocks = _part_of_larger(asked, float("nan")), _part_of_larger(blocks, NOWHERE)
    if call.form != "own":
        starts = np.concatenate([[0], np.cumsum(asks.sum(1))]).astype(np.int32)
        # the largest number of queries may be larger than that of any sequence
        options.update(query_start_loc=torch.from_numpy(starts).to(where), max_query_len=call.queries + call.sliced)
    elif call.queries > 1:
        asked = asked.view(-1, call.queries, *asked.shape[1:])
    buffers: list[torch.Tensor] = []
    if call.buffers:
        shape = (*asked.shape[:-1], layout.value.head_dim)
        splits = options.get("num_splits") or _default_splits(
            module, call, asked, cache, table.shape[1], options.get("max_query_len", call.queries)
        )
        size = module.decode_workspace_size(math.prod(shape[:-2]), shape[-2], splits)
        options["out"] = _between_guards(shape, asked.dtype, where, buffers)
        options["workspace"] = _between_guards((size,), torch.float32, where, buffers)
    result = module.decode_attention(asked, cache, blocks, lengths, return_lse=wants_lse, **options)
    output, lse = result if wants_lse else (result, None)
    exact, logarithm = reference.attention(
        layout,
        query,
        cache.cpu().numpy(),
        table,
        np.array(call.lengths),
        call.options.get("softmax_scale"),
        sinks=sinks,
        window=call.options.get("window"),
        softcap=call.options.get("softcap"),
        key_rotation=arguments.get("key_rotation"),
        value_rotation=arguments.get("value_rotation"),
        value_center=arguments.get("value_center"),
    )
    bound, score_bound = bounds(layout, query, cache.cpu().numpy(), table, call.lengths, call.options, sinks, arguments)
    comparison = Comparison()
    if output.shape != (*asked.shape[:-1], layout.value.head_dim) or output.dtype != asked.dtype:
        raise ValueError(f"the output is {output.dtype} {list(output.shape)} for a query of {list(asked.shape)}")
    bound = bound + output_rounding(exact, cell.dtype)
    _add(comparison, "attention output", _back(output, asks, exact), exact, bound)
    if lse is not None:
        got = _back(lse, asks, logarithm)
        _add(comparison, "logarithm of the sum of exponentials", got, logarithm, score_bound)
    if call.buffers and output is not options["out"]:
        raise ValueError("the output is not the one that was given")
    for buffer in buffers:
        if not bool((torch.cat([buffer[:AROUND], buffer[-AROUND:]]) == SENTINEL).all()):
            comparison.add(1, [Mismatch("a number around a buffer", f"{SENTINEL:g}", "another")])
    return comparison


def _part_of_larger(dense: torch.Tensor, around: float) -> torch.Tensor:
    """The same numbers as a part of a tensor that is larger along every axis, and holds `around` elsewhere."""
    larger = torch.full([size + 2 for size in dense.shape], around, dtype=dense.dtype, device=dense.device)
    part = larger[tuple(slice(1, size + 1) for size in dense.shape)]
    return part.copy_(dense)


def _between_guards(
    shape: tuple[int, ...], dtype: torch.dtype, where: torch.device, kept: list[torch.Tensor]
) -> torch.Tensor:
    """A contiguous tensor of NaN within a buffer of sentinels, which is added to `kept`."""
    count = math.prod(shape)
    kept.append(torch.full((count + 2 * AROUND,), SENTINEL, dtype=dtype, device=where))
    return kept[-1][AROUND : AROUND + count].fill_(float("nan")).view(shape)


def _default_splits(
    module: ModuleType, call: Call, query: torch.Tensor, cache: torch.Tensor, blocks: int, queries: int
) -> int:
    """Splits that a launch makes which does not say how many; more than enough where they are at fixed positions."""
    positions = blocks * cache.shape[1]
    if "batch_invariant" in call.options:
        return positions
    heads, device = (query.shape[-2], cache.shape[2]), cache.device
    splits: int = module.decode_num_splits(len(call.lengths), *heads, positions, device, queries_per_sequence=queries)
    return splits


def _back(numbers: torch.Tensor, asks: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Results of the queries that were asked for, at their places [B, T, ..]; what is exact where none was."""
    got = exact.copy()
    got[asks] = numbers.cpu().to(torch.float64).numpy().reshape(-1, *exact.shape[2:])
    return got


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

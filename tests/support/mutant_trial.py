"""Whether the cells of a layout's matrix see that a module is faulty."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Collection, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import torch

from support import far_apart, ptx_machine, refusals
from support.any_bytes import unpacked_any_bytes
from support.far_apart import AXES, differs, differs_in_a_large_block, far_buffer, large_block
from support.mutants import Mutant
from support.rotation_matrices import matrix_of
from tqgen import verify
from tqgen.layout import Layout
from tqgen.verify import attention, trial
from tqgen.verify.cells import AXES as CELL_AXES
from tqgen.verify.cells import Cell
from tqgen.verify.trial import misfit

# Token-heads from which a store is taken for one of many tokens: large tiles are tried on fewer.
FEW_LARGE_ROWS = 2000
SECONDS = 10.0  # of the processor for one cell; right modules take less than two
FEW_CELLS = 8
ARGUMENTS = "run_time_arguments"
LARGE_TILE = 32  # rows: a program's own order of them shows in more than 16
QUICK, QUICK_OF_ATTENTION = 14, 2  # cells that come first: they meet every value of the axes that most faults show in


def load_mutant(mutant: Mutant) -> ModuleType | None:
    """A mutant's module, or None where the fault is such that there is none."""
    try:
        return verify.load_module("mutant", mutant.text)
    except Exception:
        return None


class TooLong(Exception):
    """A kernel does not end."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """TooLong after so many seconds of the processor, where the main thread runs; again where it was swallowed."""

    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def ordered(layout: Layout) -> list[Cell]:
    """The cells of a layout: first a few that are quick and differ in much, then all others, the quick ones first."""
    cells = [cell for cell in verify.cells_of(layout) if not misfit(layout, cell.block_size, cell.num_kv_heads)]
    cells.sort(key=lambda cell: (cell.places == "many", cell.block_size * cell.num_kv_heads))
    first, met = [], set()
    for cell in cells:
        values = {(axis, getattr(cell, axis)) for axis in ("dtype", "places", "cache", "space", "out", "inputs")}
        if len(first) < QUICK and cell.block_size < 1000 and (not values <= met or cell.pattern in ("ties", "nan")):
            first.append(cell)
            met |= values
    return [*first, *(cell for cell in cells if cell not in first)]


def one_of_each(cells: list[Cell], *axes: str) -> list[Cell]:
    """The first cell of each combination of values of some axes."""
    found: dict[tuple[Any, ...], Cell] = {}
    for cell in cells:
        found.setdefault(tuple(getattr(cell, axis) for axis in axes), cell)
    return list(found.values())


def who_sees(
    layout: Layout, module: ModuleType, cells: list[Cell], launchers: Collection[str] = verify.LAUNCHERS
) -> str:
    """The launcher and the cell that see a fault of a module, or nothing. `launchers` are those that it can reach."""
    if refusals.misdescribed(layout, module):
        return "what the module says of its layout"
    first = QUICK
    if set(launchers) == {"decode_attention"}:
        quick, *others = [cell for cell in cells if attention.is_for(cell)]
        # those that ask for most see most
        others.sort(key=lambda cell: -len(attention.call_of(layout, cell).options))
        cells, first = [quick, *others], QUICK_OF_ATTENTION
    return (
        _in_cells(layout, module, cells[:first], launchers)
        or _with_hardware_fp8(layout, module, cells, launchers)
        or _with_matrices(layout, module, launchers)
        or _with_any_bytes(layout, module, cells, launchers)
        or _with_ptx(layout, module, cells, launchers)
        or _without_blocks(layout, module, launchers)
        or _of_any_size(layout, module, launchers)
        or _far_apart(layout, module, launchers)
        or _large_block(layout, module, launchers)
        or next(iter(refusals.unrefused(layout, module)), "")
        or _in_cells(layout, module, cells[first:], launchers)
    )


def _in_cells(layout: Layout, module: ModuleType, cells: list[Cell], launchers: Collection[str]) -> str:
    for cell in cells:
        try:
            with limited(SECONDS):
                run = verify.verify_module(layout, module, [cell], verify.device(), FEW_LARGE_ROWS, launchers)
                for one in (one for outcomes in run for one in outcomes):
                    if not one.ok:
                        return f"{one.launcher} in {cell.id}"
        except TooLong:
            return f"no end in {cell.id}"
    return ""


def _with_hardware_fp8(layout: Layout, module: ModuleType, cells: list[Cell], launchers: Collection[str]) -> str:
    """Whether a store that converts to fp8 as new GPUs do sees a fault."""
    if "store" not in launchers or not hasattr(module, "_has_hardware_fp8"):
        return ""
    kept, module._has_hardware_fp8 = module._has_hardware_fp8, lambda _: True
    try:
        edges = [cell for cell in cells if cell.pattern in ("ties", "nan", "inf", "huge", "subnormal")]
        return _in_cells(layout, module, edges[:FEW_CELLS], ("store",))
    finally:
        module._has_hardware_fp8 = kept


def _with_matrices(layout: Layout, module: ModuleType, launchers: Collection[str]) -> str:
    """Whether a fault is seen where programs have several large tiles, by matrices that fit what they keep or not."""
    if not {"store", "unpack"} & set(launchers) or any(side.rotation.kind != "matrix" for side in layout.sides):
        return ""
    noisy = {f"{side.name}_rotation": matrix_of("noisy", side.head_dim) for side in layout.sides}
    kept = [(of, name, getattr(of, name)) for of, name in ((trial, ARGUMENTS), (far_apart, ARGUMENTS))]
    kept += [(module, name, getattr(module, name)) for name in ("_kept_tile",) if hasattr(module, name)]
    try:
        if hasattr(module, "_kept_tile"):
            module._kept_tile = lambda *_: (LARGE_TILE, 1)
        if seen := _in_several_tiles(layout, module, launchers):
            return seen
        for of in (trial, far_apart):
            setattr(of, ARGUMENTS, lambda *_: noisy)
        seen = _in_several_tiles(layout, module, launchers)
        seen = seen or (_far_apart(layout, module, launchers) if hasattr(module, "_kept_tile") else "")
        return f"{seen} with a matrix of noise" if seen else ""
    finally:
        for of, name, value in kept:
            setattr(of, name, value)


def _in_several_tiles(layout: Layout, module: ModuleType, launchers: Collection[str]) -> str:
    """Launches of 99 rows, their heads never in step with tiles, of every dtype; unpack reads slots, and sequences."""
    heads = 11
    block_size = next(size for size in (16, 64, 32, 1056) if not misfit(layout, size, heads))
    one = Cell(block=f"b{block_size}", heads=f"h{heads}", places="negative", inputs="sliced")
    stored = [dataclasses.replace(one, dtype=dtype) for dtype in CELL_AXES["dtype"]]
    # two elements a vector: of a matrix of noise most of what they become is noise alone, whose signs are seen
    stored.append(dataclasses.replace(one, dtype="fp16", pattern="ties", inputs="dense"))
    unpacked = [
        dataclasses.replace(one, out=out, cache=cache, places=places)
        for out, cache in zip(CELL_AXES["out"], ("even", "odd", "padded"), strict=True)
        for places in ("negative", "shuffled")
    ]
    for launcher, cells in (("store", stored), ("unpack", unpacked)):
        if launcher in launchers and (seen := _in_cells(layout, module, cells, (launcher,))):
            return seen
    return ""


def _with_any_bytes(layout: Layout, module: ModuleType, cells: list[Cell], launchers: Collection[str]) -> str:
    """Whether a fault is seen in what is unpacked from bytes that no store writes."""
    chosen = one_of_each(cells, "space", "out_dtype") if "unpack" in launchers else []
    try:
        for seed, cell in enumerate(chosen):
            with limited(SECONDS):
                if not unpacked_any_bytes(layout, module, cell, seed).ok:
                    return f"unpack of any bytes in {cell.id}"
    except Exception as error:  # whatever a wrong kernel raises
        return f"unpack of any bytes: {type(error).__name__}"
    return ""


def _large_block(layout: Layout, module: ModuleType, launchers: Collection[str]) -> str:
    """Whether a fault is seen in a block larger than 32 bits count."""
    if not {"store", "unpack", "decode_attention"} & set(launchers):
        return ""
    try:
        for heads in (1, 3):
            with limited(SECONDS):
                if launcher := differs_in_a_large_block(layout, module, large_block(layout, heads), launchers):
                    return f"{launcher} of a large block"
    except Exception as error:  # whatever a wrong kernel raises
        return f"a large block: {type(error).__name__}"
    return ""


def _of_any_size(layout: Layout, module: ModuleType, launchers: Collection[str]) -> str:
    """Whether attention sees a fault where keys are larger or smaller by a power of two than fp16 holds."""
    key = layout.key
    dtypes = {part.dtype for part in key.parts if part.dtype} or {getattr(key.parameters, "dtype", "fp16")}
    if "decode_attention" not in launchers or key.parameters.center or not dtypes <= {"bf16", "fp32"}:
        return ""
    found = []
    try:
        for power in (1.0, 2.0**40, 2.0**-16):
            with limited(SECONDS):
                found.append(_attended(layout, module, power))
    except Exception as error:  # whatever a wrong kernel raises
        return f"decode_attention of keys of any size: {type(error).__name__}"
    # codes may be others next to an edge
    same = all(torch.allclose(one, found[0], rtol=0, atol=0.15) for one in found)
    return "" if same else "decode_attention of keys of any size"


def _attended(layout: Layout, module: ModuleType, power: float) -> torch.Tensor:
    """Attention over keys times a power, whose scores are divided by it."""
    where, tokens, heads = verify.device(), 32, 1
    generator = torch.Generator().manual_seed(5)
    key, value, query = (
        torch.randn(tokens, heads, head_dim, generator=generator).to(where)
        for head_dim in (layout.key.head_dim, layout.value.head_dim, layout.key.head_dim)
    )
    run_time = trial.device_arguments(trial.run_time_arguments(layout, heads), where)
    taken = trial.attention_arguments(run_time)
    cache = module.allocate(2, tokens, heads, device=where)
    module.store(key * power, value, cache, torch.arange(tokens, device=where), **run_time)
    table, lengths = (torch.full(shape, n, dtype=torch.int32, device=where) for shape, n in (((1, 1), 0), ((1,), 32)))
    scale = 0.25 / power
    given = query.view(1, tokens, layout.key.head_dim), cache, table, lengths
    result: torch.Tensor = module.decode_attention(*given, softmax_scale=scale, **taken)
    return result


def _far_apart(layout: Layout, module: ModuleType, launchers: Collection[str]) -> str:
    """Whether a fault is seen where vectors are further apart than 32 bits can count."""
    if not {"store", "unpack", "decode_attention"} & set(launchers):
        return ""
    buffer = far_buffer()
    for axis, name in enumerate(AXES):
        try:
            with limited(SECONDS):
                if launcher := differs(layout, module, axis, buffer, launchers):
                    return f"{launcher} of {name} that are far apart"
        except Exception as error:  # whatever a wrong kernel raises
            return f"{name} that are far apart: {type(error).__name__}"
    return ""


# Calls of few query rows and of many, which together ask for all there is: a layout's cells are few. With and without
# assembly, by both orders of operands, on caches of every alignment that a layout allows. Few are 32 at most, counted
# by the largest number of queries that a call names.
CELL = Cell(block="b24", heads="h2", places="edges", cache="padded")
ODD = dataclasses.replace(CELL, cache="odd")
FEW = 32
CALLS = (
    # two blocks of few rows; sequences end, here and below, at each of four tokens in both halves of a warp's 32
    ((4, 2), 16, attention.Call(8, 3, (85, 0, 37), {"window": 18, "num_splits": 3}, "ragged", True, True)),
    # the step of few rows is 128 tokens: less than that, and a second step
    ((2, 4), 16, attention.Call(6, 2, (131, 127, 30), {"softcap": 2.0, "num_splits": 1}, "own", False, False)),
    ((4, 2), 16, attention.Call(12, 3, (70, 0, 137), {"window": 18, "num_splits": 3}, "ragged", True, True)),
    # full blocks: what is read behind the last token is outside of the cache
    ((2, 4), 1, attention.Call(40, 1, (144, 144), {"softcap": 2.0, "sinks": True, "batch_invariant": True}, "own")),
    # scores that an exponential does not hold, two steps, and a split of which the first queries see nothing
    ((4, 2), 16, attention.Call(2, 3, (258, 20, 36), {"softmax_scale": 12.0, "num_splits": 2})),
    ((2, 4), 2, attention.Call(4, 9, (72, 72), {"softmax_scale": -12.0, "num_splits": 2})),
    # splits that are full to the last token
    ((4, 2), 16, attention.Call(4, 1, (256, 128), {"num_splits": 1})),
    ((2, 4), 2, attention.Call(40, 1, (256, 128), {"num_splits": 1})),
    # numbers of tiles one by one
    ((4, 2), 16, attention.Call(8, 2, (72, 72), {"softmax_scale": 1.0, "window": 1}, probes=True)),
    ((2, 4), 4, attention.Call(18, 2, (72, 72), {"softmax_scale": 1.0, "window": 1}, probes=True)),
)
ENTERS_A_CENTER = {"softcap", "sinks"}  # which layouts that have one refuse


def _in_calls(layout: Layout, module: ModuleType) -> str:
    """Whether attention sees a fault in `CALLS`."""
    names = [name for name in ("_has_ptx", "OPERAND_WIDTHS") if hasattr(module, name)]
    kept = {name: getattr(module, name) for name in names}
    refused = ENTERS_A_CENTER if layout.key.parameters.center or layout.value.parameters.center else set()
    try:
        for widths, alignment, call in CALLS:
            options = {name: option for name, option in call.options.items() if name not in refused}
            chosen = {"OPERAND_WIDTHS": widths, "_has_ptx": lambda *_, widths=widths: widths == (4, 2)}
            for name in names:
                setattr(module, name, chosen[name])
            _forget_constants(module)
            with limited(SECONDS), np.errstate(all="ignore"):
                one = dataclasses.replace(call, options=options)
                cell = CELL if alignment == 16 else ODD
                placed = dataclasses.replace(layout, alignment=max(alignment, layout.alignment))
                ptx_machine.WAITS.clear()
                if not attention.attend(placed, module, cell, verify.device(), one).ok:
                    return f"decode_attention of {call.group * call.queries} query rows"
                # launches that overlap, as those do that may use new instructions, wait for one another
                overlap = ptx_machine.OVERLAP if "_has_ptx" in names and widths == (4, 2) else ()
                if set(ptx_machine.WAITS) != set(overlap):
                    return f"overlapping launches of {call.group * call.queries} query rows"
    except Exception as error:  # whatever a wrong kernel raises
        return f"decode_attention of some query rows: {type(error).__name__}"
    finally:
        for name, value in kept.items():
            setattr(module, name, value)
        _forget_constants(module)
    return ""


def _without_blocks(layout: Layout, module: ModuleType, launchers: Collection[str]) -> str:
    """Whether attention looks into a cache that has no block, which is one where all sequences are empty."""
    if "decode_attention" not in launchers or not hasattr(module, "decode_attention"):
        return ""
    where, heads = verify.device(), 2
    taken = trial.attention_arguments(trial.device_arguments(trial.run_time_arguments(layout, heads), where))
    cache = module.allocate(1, 32, heads, device=where)[:0]
    table, lengths = (torch.zeros(shape, dtype=torch.int32, device=where) for shape in ((2, 0), (2,)))
    query = torch.ones(2, 2 * heads, layout.key.head_dim, device=where)
    try:
        with limited(SECONDS):
            output = module.decode_attention(query, cache, table, lengths, num_splits=2, **taken)
    except Exception as error:  # whatever a wrong kernel raises
        return f"decode_attention without blocks: {type(error).__name__}"
    return "" if not output.any() else "decode_attention without blocks"


def _forget_constants(module: ModuleType) -> None:
    """Where a module keeps any: an order of its queries is one of them, which depends on that of operands."""
    if hasattr(module, "_constant"):
        module._constant.cache_clear()


def _with_ptx(layout: Layout, module: ModuleType, cells: list[Cell], launchers: Collection[str]) -> str:
    """The same of unpack and attention as GPUs run them."""
    ptx_machine.install()
    if "decode_attention" in launchers and hasattr(module, "decode_attention") and (seen := _in_calls(layout, module)):
        return seen
    if not hasattr(module, "_has_ptx"):
        return ""
    kept, module._has_ptx = module._has_ptx, lambda *_: True
    unpacked = one_of_each(cells, "space", "out_dtype", "cache") if "unpack" in launchers else []
    attended = [cell for cell in cells if attention.is_for(cell)][:2] if "decode_attention" in launchers else []
    try:
        for launcher, cell in [
            *(("unpack", cell) for cell in unpacked),
            *(("decode_attention", cell) for cell in attended),
        ]:
            with limited(SECONDS):
                run = verify.verify_module(layout, module, [cell], verify.device(), FEW_LARGE_ROWS, (launcher,))
                if not all(one.ok for outcomes in run for one in outcomes):
                    return f"{launcher} with PTX in {cell.id}"
    except Exception as error:  # whatever a wrong kernel raises
        return f"with PTX: {type(error).__name__}"
    finally:
        module._has_ptx = kept
    return ""

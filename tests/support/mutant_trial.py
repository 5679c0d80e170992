"""Whether the cells of a layout's matrix see that a module is faulty."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Collection, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from support import ptx_machine, refusals
from support.far_apart import AXES, differs, far_buffer
from support.mutants import Mutant
from tqgen import verify
from tqgen.layout import Layout
from tqgen.verify import attention
from tqgen.verify.cells import Cell
from tqgen.verify.trial import misfit

# Token-heads from which a store is taken for one of many tokens: large tiles are tried on fewer.
FEW_LARGE_ROWS = 2000
SECONDS = 10.0  # of the processor for one cell; right modules take less than two
FEW_CELLS = 8
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
        or _with_ptx(layout, module, cells, launchers)
        or _far_apart(layout, module, launchers)
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
# assembly, by both orders of operands. Few are 16 at most, counted by the largest number of queries that a call names.
CELL = Cell(block="b16", heads="h2", places="edges", cache="padded")
CALLS = (
    ((4, 2), attention.Call(4, 3, (70, 0, 37), {"window": 18, "num_splits": 3}, "ragged", True, True)),
    ((2, 4), attention.Call(4, 1, (135, 16), {"softcap": 2.0}, "own", False, False)),
    ((4, 2), attention.Call(12, 3, (70, 0, 137), {"window": 18, "num_splits": 3}, "ragged", True, True)),
    ((2, 4), attention.Call(24, 1, (135, 16), {"softcap": 2.0, "sinks": True, "batch_invariant": True}, "own")),
)
ENTERS_A_CENTER = {"softcap", "sinks"}  # which layouts that have one refuse


def _in_calls(layout: Layout, module: ModuleType) -> str:
    """Whether attention sees a fault in `CALLS`."""
    names = [name for name in ("_has_ptx", "OPERAND_WIDTHS") if hasattr(module, name)]
    kept = {name: getattr(module, name) for name in names}
    refused = ENTERS_A_CENTER if layout.key.parameters.center or layout.value.parameters.center else set()
    try:
        for widths, call in CALLS:
            options = {name: option for name, option in call.options.items() if name not in refused}
            chosen = {"OPERAND_WIDTHS": widths, "_has_ptx": lambda *_, widths=widths: widths == (4, 2)}
            for name in names:
                setattr(module, name, chosen[name])
            _forget_constants(module)
            with limited(SECONDS), np.errstate(all="ignore"):
                one = dataclasses.replace(call, options=options)
                if not attention.attend(layout, module, CELL, verify.device(), one).ok:
                    return f"decode_attention of {call.group * call.queries} query rows"
    except Exception as error:  # whatever a wrong kernel raises
        return f"decode_attention of some query rows: {type(error).__name__}"
    finally:
        for name, value in kept.items():
            setattr(module, name, value)
        _forget_constants(module)
    return ""


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
    unpacked = [cell for cell in cells if cell.out_dtype == "fp16"][:2] if "unpack" in launchers else []
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

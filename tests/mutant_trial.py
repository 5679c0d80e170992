"""Whether the cells of a layout's matrix see that a module is faulty."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import ptx_machine
import refusals
from mutants import Mutant

from tqgen import verify
from tqgen.layout import Layout
from tqgen.verify import attention
from tqgen.verify.cells import Cell
from tqgen.verify.trial import misfit

# Token-heads from which a store is taken for one of many tokens: large tiles are tried on fewer.
FEW_LARGE_ROWS = 2000
SECONDS = 30.0  # for one cell; right modules take less than one
QUICK = 14  # cells that come first: they meet every value of the axes that most faults show in


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
    """TooLong after so many seconds, where the main thread runs."""

    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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


ATTENTION = re.compile(
    r"plan\.attention|_decode_|_merge_|_(load_)?tile_|_expand_|decode_attention"
    r"|_(load|read)_(run|step)|_(pair_)?numbers_|_(rows|columns)_of_|_by_(row|column|thread)|_operand_place|_(load|rotated)_queries|_stack|_block_of"
)


def who_sees(layout: Layout, module: ModuleType, cells: list[Cell], where: str = "") -> str:
    """The launcher and the cell that see a fault of a module, or nothing; `where` as in `Mutant` decides the order."""
    if refusals.misdescribed(layout, module):
        return "what the module says of its layout"
    if ATTENTION.match(where):
        if seen := _with_ptx(layout, module, cells):
            return seen
        cells = sorted(cells, key=lambda cell: cell.places not in attention.PLACES)
    for cell in cells:
        try:
            with limited(SECONDS):
                for outcomes in verify.verify_module(layout, module, [cell], verify.device(), FEW_LARGE_ROWS):
                    for one in outcomes:
                        if not one.ok:
                            return f"{one.launcher} in {cell.id}"
        except TooLong:
            return f"no end in {cell.id}"
    return "" if ATTENTION.match(where) else _with_ptx(layout, module, cells)


# Calls of few query rows, which few of a layout's cells are: with and without assembly, by both orders of operands.
FEW = Cell(block="b16", heads="h2", places="edges", cache="padded")
FEW_CALLS = {
    (4, 2): attention.Call(5, 3, (70, 0, 37), {"window": 18, "num_splits": 3}, "ragged", True, True),
    (2, 4): attention.Call(4, 1, (135, 16), {}, "own", False, False),
}


def _few_rows(layout: Layout, module: ModuleType) -> str:
    """Whether attention of few query rows sees a fault, where it has a kernel of its own."""
    if not hasattr(module, "_decode_few_kernel"):
        return ""
    kept = module._has_ptx, module.OPERAND_WIDTHS
    try:
        for module.OPERAND_WIDTHS, call in FEW_CALLS.items():
            module._has_ptx = lambda *_, assembled=module.OPERAND_WIDTHS == (4, 2): assembled
            with limited(SECONDS), np.errstate(all="ignore"):
                if not attention.attend(layout, module, FEW, verify.device(), call).ok:
                    return "decode_attention of few query rows"
    except Exception as error:  # whatever a wrong kernel raises
        return f"decode_attention of few query rows: {type(error).__name__}"
    finally:
        module._has_ptx, module.OPERAND_WIDTHS = kept
    return ""


def _with_ptx(layout: Layout, module: ModuleType, cells: list[Cell]) -> str:
    """The same of unpack and attention as GPUs run them."""
    if not hasattr(module, "_has_ptx"):
        return ""
    ptx_machine.install()
    if seen := _few_rows(layout, module):
        return seen
    kept, module._has_ptx = module._has_ptx, lambda *_: True
    try:
        for cell in [cell for cell in cells if cell.out_dtype == "fp16"][:2]:
            with limited(SECONDS):
                outcomes = verify.verify_module(layout, module, [cell], verify.device(), FEW_LARGE_ROWS)
                if not all(one.ok for of_cell in outcomes for one in of_cell):
                    return f"unpack with PTX in {cell.id}"
        for cell in [cell for cell in cells if cell.places in attention.PLACES][:2]:
            with limited(SECONDS), np.errstate(all="ignore"):
                if not attention.attend(layout, module, cell, verify.device()).ok:
                    return f"decode_attention with PTX in {cell.id}"
    except Exception as error:  # whatever a wrong kernel raises
        return f"with PTX: {type(error).__name__}"
    finally:
        module._has_ptx = kept
    return ""

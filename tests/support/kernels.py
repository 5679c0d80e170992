"""Specs as loaded modules, and what is said about a cell that fails."""

from __future__ import annotations

import dataclasses
import functools
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from support.leftovers import leftovers
from tqgen import emit, verify
from tqgen.layout import Layout
from tqgen.layout.resolve import resolve
from tqgen.lower import lower
from tqgen.plan import ModulePlan
from tqgen.spec import parse_spec
from tqgen.verify.cells import Cell


@dataclass(frozen=True)
class Kernels:
    """A spec's layout, plan and loaded module."""

    text: str
    layout: Layout
    plan: ModulePlan
    module: ModuleType

    def failures(self, *cells: Cell) -> list[str]:
        """What went wrong in these cells, described; empty where all is well."""
        found = []
        for outcomes in verify.verify_module(
            self.layout, self.module, cells, verify.device(), self.plan.store_large_rows
        ):
            for one in outcomes:
                if not one.ok:
                    found.append(f"kernel `{one.launcher}` in cell {one.cell.id}: {one.error or one.comparison}")
        return found


def load(name: str, plan: ModulePlan) -> ModuleType:
    """The module of a plan. Its text is not formatted: that takes a hundred times as long, and changes nothing."""
    return verify.load_module(name, emit.draft(plan))


SPLIT_AT = 128  # positions: whole steps of every tile
FEW_MERGED = 24  # query rows of which each has a program of the merge; a launch of them takes a second here


def with_tile(plan: ModulePlan, tile: str) -> ModulePlan:
    """The plan with sizes that launches of tests reach, so that both sides of every such choice are run.

    With the tile `large`, every store, unpack and merge is launched as those of many tokens are, and where quads hold
    rows, with about as many rows a program as on a GPU. Splits at fixed positions are shorter than sequences of tests.
    """
    large = tile == "large"
    changed: dict[str, Any] = {}
    if large:
        unpack = plan.unpack_model if plan.has_spaces else plan.unpack
        changed = {"store_large_rows": 1, "interpreted_rows": unpack.rows}
    if plan.attention:
        merged = {"merge_many_rows": 1} if large else {"merge_many_rows": FEW_MERGED, "merge_splits": 2}
        changed["attention"] = dataclasses.replace(plan.attention, invariant_split=SPLIT_AT, **merged)
    return dataclasses.replace(plan, **changed)


@functools.lru_cache(maxsize=8)
def kernels_of(spec: str, tile: str = "small") -> Kernels:
    """The kernels of a spec's text, in launches as `with_tile` has them; nothing is left over in their module.

    How many places of a sum a thread brings, which is a choice by Triton's version, takes turns, too.
    """
    layout = resolve(parse_spec(spec, "matrix.yaml"))
    plan = with_tile(lower(layout, f"{layout.name}.yaml"), tile)
    text = emit.draft(plan)
    left = leftovers(text)
    assert not left, f"{left}, in a module of\n{spec}"
    module = verify.load_module(layout.name, text)
    if hasattr(module, "OPERAND_WIDTHS"):
        module.OPERAND_WIDTHS = (4, 2) if tile == "large" else (2, 4)
    return Kernels(spec, layout, plan, module)


def described(kernels: Kernels, failures: list[str], test: str, cell: Cell | None = None) -> str:
    """A failed cell as a person wants it: the first differences, the spec, the commands that run it again.

    `tqgen verify` runs a `cell` of the spec, which is put into a file for it; it has the tiles that engines get.
    """
    lines = ["", *failures, "", "spec:", kernels.text, "run this one again with", f"  python -m pytest '{test}'"]
    if cell is not None:
        path = Path(tempfile.mkdtemp(prefix="tqgen-failed-")) / f"{kernels.layout.name}.yaml"
        path.write_text(kernels.text, encoding="utf-8")
        lines += [
            "or, with the tiles of the plan,",
            f"  {shlex.join(['tqgen', 'verify', str(path), '--cell', cell.id])}",
        ]
    return "\n".join(lines)

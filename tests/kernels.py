"""Specs as loaded modules, and what is said about a cell that fails."""

from __future__ import annotations

import dataclasses
import functools
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

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


@functools.lru_cache(maxsize=8)
def kernels_of(text: str, tile: str = "small") -> Kernels:
    """The kernels of a spec's text. With the tile `large`, every store is launched as those of many tokens are."""
    layout = resolve(parse_spec(text, "matrix.yaml"))
    plan = lower(layout, f"{layout.name}.yaml")
    if tile == "large":
        plan = dataclasses.replace(plan, store_large_rows=1)
    return Kernels(text, layout, plan, load(layout.name, plan))


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

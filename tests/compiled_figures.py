"""Registers, shared memory, instructions and widths of compiled kernels, as they are held: `compiled_figures.json`.

    python tests/compiled_figures.py renew [PART OF A CASE'S NAME ...]

compiles the default cases of the compile tier whose names contain one of the parts, all of them without one, and writes
what they are now. Figures may get better without that; what gets worse fails the tests, until it is renewed on purpose.
They are figures of one version of Triton, and are compared with that version alone. Of specs that are not shipped
nothing is held but the registers that they spill, where they do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.compile_cases import Case, default_cases
from support.compile_server import Compiler

from tqgen.inspect import TARGETS

FILE = Path(__file__).parent / "compiled_figures.json"
# A multiprocessor hands out registers eight at a time for each thread, and a compiler's schedule moves by a few.
REGISTER_STEP = 8
GROWTH = 1.03
SPILLED_GROWTH = 1.25  # what is spilled moves with every change, where something is spilled
FIGURES = ("registers", "spilled_bytes", "shared_bytes", "instructions", "loop", "per_element", "loads", "stores")

Figures = dict[str, Any]


def figures_of(case: Case, facts: list[dict[str, Any]]) -> dict[str, Figures]:
    """What is held of a case's kernels, by `case kernel`."""
    if case.text:
        spilling = [one for one in facts if one["spilled_bytes"] and TARGETS[case.target].is_nvidia]
        return {f"{case.id} {one['kernel']}": {"spilled_bytes": one["spilled_bytes"]} for one in spilling}
    return {f"{case.id} {one['kernel']}": {name: one[name] for name in FIGURES} for one in facts}


def load() -> tuple[str, dict[str, Figures]]:
    """The version of Triton that the figures are of, and the figures."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    return data["triton"], data["figures"]


def save(triton: str, figures: Mapping[str, Figures]) -> None:
    """Write figures, one kernel a line."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(figures[name])}" for name in sorted(figures))
    FILE.write_text(f'{{"triton": {json.dumps(triton)}, "figures": {{\n{lines}\n}}}}\n', encoding="utf-8")


def worse(held: Figures, now: Figures) -> list[str]:
    """What of a kernel is worse than it is held to be."""
    if "registers" not in held:
        return _grown("spilled_bytes", held, now, SPILLED_GROWTH)
    found = _grown("spilled_bytes", held, now, SPILLED_GROWTH) + _grown("shared_bytes", held, now)
    steps = {name: -(-figures["registers"] // REGISTER_STEP) for name, figures in (("held", held), ("now", now))}
    if steps["now"] > steps["held"]:
        found.append(f"registers: {held['registers']} held, {now['registers']} now")
    for name in ("instructions", "per_element"):
        found += _grown(name, held, now, GROWTH)
    for kind in ("loads", "stores"):
        for field, width in held[kind].items():
            if now[kind].get(field, 0) < width:
                found.append(f"{kind} of {field}: {width} bytes held, {now[kind].get(field, 0)} now")
    return found


def _grown(name: str, held: Figures, now: Figures, growth: float = 1.0) -> list[str]:
    return [f"{name}: {held[name]} held, {now[name]} now"] if now[name] > held[name] * growth else []


def better(held: Figures, now: Figures) -> bool:
    """Whether the figures should be renewed, so that what was gained is held."""
    if now["spilled_bytes"] < held["spilled_bytes"]:
        return True
    return any(now[name] < held[name] * 0.95 for name in ("instructions", "per_element") if name in held)


def renew(parts: list[str]) -> None:
    """Compile, and write what came of it; figures of cases that are gone are dropped."""
    import triton

    every = default_cases()
    chosen = [case for case in every if not parts or any(part in case.id for part in parts)]
    with ThreadPoolExecutor(2) as pool:
        halves = pool.map(lambda cases: _compiled(Compiler(), cases), (chosen[::2], chosen[1::2]))
        made = {name: figures for half in halves for name, figures in half.items()}
    kept: dict[str, Figures] = {}
    if parts and FILE.exists():
        renewed, names = {case.id for case in chosen}, {case.id for case in every}
        kept = {name: one for name, one in load()[1].items() if name.split()[0] in names - renewed}
    save(triton.__version__, {**kept, **made})
    print(f"{len(made)} kernels of {len(chosen)} cases are written, {len(kept)} kept")


def _compiled(compiler: Compiler, cases: list[Case]) -> dict[str, Figures]:
    made: dict[str, Figures] = {}
    for case in cases:
        made |= figures_of(case, compiler.facts(**case.request))
        print(case.id, flush=True)
    compiler.close()
    return made


if __name__ == "__main__":
    if sys.argv[1:2] != ["renew"]:
        sys.exit((__doc__ or "").strip())
    renew(sys.argv[2:])

"""What each part of the GPU tier runs, as jobs: small pieces of work that a process of its own can be given as JSON."""

from __future__ import annotations

from typing import Any

PARTS = {
    "golden": "the golden vectors of other implementations",
    "shipped": "every shipped module, in launches of `tqgen verify`",
    "matrix": "every spec of the covering matrix in its launch, and unpacking any bytes",
    "large": "caches of more than 2**32 bytes",
    "sanitizer": "a few launches under compute-sanitizer's memcheck and racecheck",
}
TURNS = 5  # of the launches of `tqgen verify` each module has every fifth, and all special ones
CELLS_A_JOB = 4
ROWS_A_JOB = 4
SANITIZED_ROWS = 24
LARGE = ("mse4_v4", "mse3_v4_aos", "mse4_v4_hm")
TOOLS = ("memcheck", "racecheck")

Job = dict[str, Any]


def jobs(part: str) -> list[Job]:
    """The jobs of a part; those first that take long."""
    return {"golden": golden, "shipped": shipped, "matrix": matrix, "large": large, "sanitizer": sanitized}[part]()


def golden() -> list[Job]:
    from support import golden_cases

    files = (*golden_cases.TURBOQUANT, "value_mse")
    return [{"kind": "golden", "file": file, "case": case} for file in files for case in golden_cases.names(file)]


def shipped() -> list[Job]:
    from tqgen import manifest, verify
    from tqgen.compiler import compile_spec
    from tqgen.verify.cells import SPECIAL_PLACES

    found: list[Job] = []
    for number, entry in enumerate(manifest.shipped()):
        cells = verify.cells_of(compile_spec(entry.path).layout)
        special = [cell.id for cell in cells if cell.places in SPECIAL_PLACES]
        others = [cell.id for index, cell in enumerate(cells) if (index + number) % TURNS == 0]
        chosen = list(dict.fromkeys([*special, *others]))
        pieces = [chosen[at : at + CELLS_A_JOB] for at in range(0, len(chosen), CELLS_A_JOB)]
        found += [{"kind": "shipped", "name": entry.name, "cells": piece} for piece in pieces]
    return sorted(found, key=lambda job: not any("-many-" in cell or "-far-" in cell for cell in job["cells"]))


def matrix() -> list[Job]:
    rows = range(number_of_rows())
    return [{"kind": "matrix", "rows": list(rows[at : at + ROWS_A_JOB])} for at in rows[::ROWS_A_JOB]]


def number_of_rows() -> int:
    from test_matrix_kernels import combinations

    return len(combinations().rows)


def large() -> list[Job]:
    return [{"kind": "large", "name": name} for name in LARGE]


def sanitized() -> list[Job]:
    """Every shipped module and some specs of the matrix for each tool; `tool` says which."""
    from tqgen import manifest
    from tqgen.verify.cells import Cell

    cells = [
        Cell(heads="h2", places="edges").id,
        Cell(dtype="fp32", heads="h1", places="edges", cache="odd", inputs="sliced", out="obf16").id,
    ]
    few: list[Job] = [
        {"kind": "shipped", "name": entry.name, "cells": [cells[number % len(cells)]]}
        for number, entry in enumerate(manifest.shipped())
    ]
    rows = range(0, number_of_rows(), -(-number_of_rows() // SANITIZED_ROWS))
    few += [{"kind": "matrix", "rows": [row]} for row in rows]
    return [{"kind": "canary", "tool": TOOLS[0]}, *({**job, "tool": tool} for tool in TOOLS for job in few)]

"""Sides that a matrix rotates whose parts programs keep, over pairs of what they, the matrix and a launch can be.

Of the specs of `test_matrix_kernels.py` few are such: all sides must be rotated by a matrix, and be fit for quads.
"""

import dataclasses
import functools

import pytest
import test_matrix_quads
from support.any_bytes import unpacked_any_bytes
from support.covering import covering
from support.kernels import Kernels, described, load
from support.rotation_matrices import KINDS, matrix_of
from test_matrix_quads import CELL, SKIPPED, cell_of, spec_of

from tqgen import emit, verify
from tqgen.layout.resolve import resolve
from tqgen.lower import lower
from tqgen.plan import TilePlan
from tqgen.spec import parse_spec
from tqgen.verify import trial
from tqgen.verify.cells import Cell

FEW = "few"
AXES = {
    **test_matrix_quads.AXES,
    "head_dim": ("32", "64", "128"),
    "rotation": ("matrix",),
    "other": ("same", "none"),
    # rows of a tile: of a program that keeps nothing, or of one that keeps the matrix and works on every other tile
    "tile": (FEW, "16", "32", "64", "128"),
    "matrix": KINDS,
}


def allowed(row):
    return test_matrix_quads.allowed({**row, "rotation": "matrix"})


@pytest.fixture
def rotated_by(monkeypatch):
    """Sets which matrix launches get."""

    def rotate(kind):
        def arguments(layout, num_kv_heads):
            return {f"{side.name}_rotation": matrix_of(kind, side.head_dim) for side in layout.sides}

        for module in (trial, unpacked_any_bytes.__globals__):
            put = monkeypatch.setitem if isinstance(module, dict) else monkeypatch.setattr
            put(module, "run_time_arguments", arguments)

    return rotate


@functools.lru_cache(maxsize=8)
def kernels_of(text, tile, near=""):
    """The kernels of a spec, with tiles of this many rows; `near` replaces the condition for two fp16 parts."""
    layout = resolve(parse_spec(text))
    plan = lower(layout, "kept.yaml")
    if tile != FEW:
        kept = dataclasses.replace(plan.kept, other=TilePlan(int(tile), 1))
        plan = dataclasses.replace(plan, kept=kept, store_large_rows=1)
    if not near:
        return Kernels(text, layout, plan, load(layout.name, plan))
    source = emit.draft(plan)
    assert source.count(NEAR) == 1
    return Kernels(text, layout, plan, verify.load_module(layout.name, source.replace(NEAR, near)))


NEAR = "(magnitude >= 2.0**-27)"


@functools.cache
def rows():
    return covering(AXES, allowed, SKIPPED).rows


def parameters():
    return [
        pytest.param(
            row,
            id=f"{n:03d}-{row['codec']}{row['bits']}-{row['packing']}-{row['head_dim']}-{row['matrix']}-{row['tile']}-{cell_of(row).id}",
        )
        for n, row in enumerate(rows())
    ]


@pytest.mark.parametrize("row", parameters())
def test_cell(row, rotated_by, request, tally):
    rotated_by(row["matrix"])
    kernels = kernels_of(spec_of(row), row["tile"])
    assert kernels.plan.kept and all(side.quads for side in kernels.plan.sides)
    failures = kernels.failures(cell_of(row))
    assert not failures, described(kernels, failures, request.node.nodeid, cell_of(row))
    result = unpacked_any_bytes(kernels.layout, kernels.module, cell_of(row), len(request.node.nodeid))
    assert result.ok, described(kernels, [f"unpack of any bytes: {result}"], request.node.nodeid)
    tally("interpreter", cells=2, values=row, wanted=AXES)


@pytest.mark.parametrize("rotation", ["orthogonal", "noisy"])
@pytest.mark.parametrize("non_finite", ["propagate", "saturate"])
@pytest.mark.parametrize("codec", test_matrix_quads.CODECS)
def test_special_numbers(codec, non_finite, rotation, rotated_by, tally):
    """NaN, infinities, the largest and the smallest numbers, in each dtype of inputs: fp16 ones are one part."""
    rotated_by(rotation)
    side = f"codec: {'mse' if codec == 'mse' else 'uniform'}, bits: 3, non_finite: {non_finite}, rotation: matrix"
    side += ", symmetric: true" if codec == "symmetric" else ""
    text = f"{{tqgen: 1, name: kept, head_dim: 64, key: {{{side}}}, value: {{codec: none}}, block: aos}}"
    kernels = kernels_of(text, "32")
    for number, pattern in enumerate(test_matrix_quads.SPECIAL):
        for dtype in ("fp16", CELL["dtype"][number % 3]):
            cell = Cell(dtype=dtype, pattern=pattern, places="negative", out=f"o{CELL['dtype'][number % 3]}")
            failures = kernels.failures(cell)
            assert not failures, described(kernels, failures, f"{__name__}.py", cell)
    tally("interpreter", cells=2 * len(test_matrix_quads.SPECIAL))


# The smallest element of each vector is stored in fp32, so that every bit of what is small is seen.
EXACT = (
    "{tqgen: 1, name: kept, head_dim: 64, value: {codec: none}, block: aos, "
    "key: {codec: uniform, bits: 8, rotation: matrix, scale: {dtype: fp32}, zero: {dtype: fp32}}}"
)


@pytest.mark.parametrize("tile", ["16", "64"])
def test_matrices_that_two_parts_do_not_hold_are_multiplied_as_they_are(tile, rotated_by, tally):
    """And it shows if they are not: elements of 2**-27 and more alone are known well enough in two fp16 parts."""
    rotated_by("noisy")
    cell = Cell(dtype="fp16", pattern="ties")
    failures = kernels_of(EXACT, tile).failures(cell)
    assert not failures, described(kernels_of(EXACT, tile), failures, f"{__name__}.py", cell)
    assert any("key.zero" in text for text in kernels_of(EXACT, tile, near="(magnitude >= 0)").failures(cell))
    tally("interpreter", cells=1)


@pytest.mark.parametrize("out", CELL["dtype"])
def test_levels_are_not_multiplied_by_parts_that_a_small_matrix_has_not(out, rotated_by, tally):
    """Levels, too, are multiplied in two parts by two parts of a matrix, unless these would be too small."""
    rotated_by("tiny")
    text = "{tqgen: 1, name: kept, head_dim: 64, key: {codec: mse, bits: 4, rotation: matrix}, value: {codec: none}}"
    cell = Cell(out=f"o{out}")
    kernels = kernels_of(text, "32")
    failures = kernels.failures(cell)
    assert not failures, described(kernels, failures, f"{__name__}.py", cell)
    seen = kernels_of(text, "32", near="(magnitude >= 0)").failures(cell)
    assert any("unpack" in one for one in seen) == (out != "fp16"), seen
    tally("interpreter", cells=1)

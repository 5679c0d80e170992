"""Generated kernels against the reference, over pairs of everything that a spec and a launch can be."""

import functools
import itertools
import json

import pytest
from support.any_bytes import unpacked_any_bytes
from support.covering import covering
from support.kernels import described, kernels_of
from support.matrix import ABSENT, CODECS, SIDE, allowed, has, refusals, row_name, side_spec, spec_axes, spec_text

from tqgen.verify.cells import AXES, UNRELATED, Cell

LAUNCH = {**{f"cell.{axis}": values for axis, values in AXES.items()}, "tile": ("small", "large")}
UNRELATED_HERE = [frozenset(f"cell.{axis}" for axis in pair) for pair in UNRELATED]


@functools.cache
def combinations():
    """Every pair of values of two axes, of the spec, of the launch, or one of each."""
    return covering({**spec_axes(), **LAUNCH}, allowed, UNRELATED_HERE)


def cell_of(row):
    return Cell(**{axis: row[f"cell.{axis}"] for axis in AXES})


def parameters():
    rows = combinations().rows
    return [
        pytest.param(row, id=f"{n:03d}-{row_name(row)}-{row['tile']}-{cell_of(row).id}") for n, row in enumerate(rows)
    ]


def test_every_pair_has_a_cell():
    """Counted once more, from the rows alone."""
    found = combinations()
    axes = {**spec_axes(), **LAUNCH}
    seen = {pair for row in found.rows for pair in _pairs(row)}
    impossible = {frozenset(pair) for pair in found.impossible}
    wanted = {
        frozenset(((a, left), (b, right)))
        for a in axes
        for b in axes
        if a < b and frozenset((a, b)) not in UNRELATED_HERE
        for left in axes[a]
        for right in axes[b]
    }
    assert wanted - seen == impossible and not seen & impossible
    assert all(allowed(row) for row in found.rows)


def _pairs(row):
    items = list(row.items())
    return (frozenset((left, right)) for n, left in enumerate(items) for right in items[:n])


@pytest.mark.parametrize("row", parameters())
def test_cell(row, request, tally):
    kernels = kernels_of(spec_text(row), row["tile"])
    failures = kernels.failures(cell_of(row))
    assert not failures, described(kernels, failures, request.node.nodeid, cell_of(row))
    tally("interpreter", cells=1, values=row, wanted={**spec_axes(), **LAUNCH})


# Vectors that do not fill a tile: lanes beyond them must not take part in a minimum, a sum or a packed byte.
PADDED_DIM = 12
PATTERNS = AXES["pattern"]


def padded_side(codec, number):
    """A legal side of this codec, of values of its axes that differ from one number to the next."""
    for turn in itertools.count(number):
        one = {"codec": codec}
        for place, (axis, values) in enumerate(SIDE.items()):
            if axis != "codec":
                one[axis] = values[(turn * (2 * place + 1)) % len(values)] if has(codec, axis) else ABSENT
        if not refusals(one, PADDED_DIM):
            return one


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_every_pattern_in_padded_tiles(codec, tally):
    """As keys or as values: an even number of codecs take turns."""
    others = [other for other in CODECS if other != "none"]
    for number, pattern in enumerate(PATTERNS):
        if (others.index(codec) + number) % 2:
            continue
        value = others[(others.index(codec) + 2 * number + 1) % len(others)]
        sides = {"key": padded_side(codec, number), "value": padded_side(value, 2 * number + 1)}
        spec = {"tqgen": 1, "name": "padded", "head_dim": PADDED_DIM, "block": ("aos", "soa")[number % 2]}
        text = json.dumps({**spec, **{side: side_spec(one, PADDED_DIM) for side, one in sides.items()}})
        kernels = kernels_of(text)
        cell = Cell(dtype=AXES["dtype"][number % 3], pattern=pattern, out=AXES["out"][number // 2 % 3])
        failures = kernels.failures(cell)
        assert not failures, described(kernels, failures, f"{__name__}.py", cell)
        tally("interpreter", cells=1, values={"cell.pattern": pattern})


@pytest.mark.parametrize("row", parameters())
def test_any_bytes_are_unpacked_as_the_reference_reads_them(row, request, tally):
    kernels = kernels_of(spec_text(row))
    result = unpacked_any_bytes(kernels.layout, kernels.module, cell_of(row), len(row_name(row)))
    assert result.ok, described(kernels, [f"unpack of any bytes: {result}"], request.node.nodeid)
    tally("interpreter", cells=1)

"""Generated kernels against the reference, over pairs of everything that a spec and a launch can be."""

import functools
import itertools
import json
import math

import numpy as np
import pytest
import torch
from support.covering import covering
from support.kernels import described, kernels_of
from support.matrix import ABSENT, CODECS, SIDE, allowed, has, refusals, row_name, side_spec, spec_axes, spec_text

from tqgen import reference, verify
from tqgen.numerics import floats
from tqgen.reference import cache_bytes, compare
from tqgen.verify.cells import AXES, UNRELATED, Cell
from tqgen.verify.trial import DTYPES, device_arguments, run_time_arguments

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


def any_bytes(layout, shape, slots, rng):
    """A cache of random bytes: all codes there are. Floats are of every kind, but small enough for sums of them."""
    cache = rng.integers(0, 256, shape, dtype=np.uint8)
    for field in layout.fields:
        dtype = field.part.dtype or {16: "fp16", 32: "fp32"}.get(field.part.bits)
        if dtype is None:
            continue
        numbers = np.ldexp(rng.standard_normal((len(slots), shape[2], field.part.count)), rng.integers(-60, 16))
        kinds = rng.choice(7, numbers.shape[:2], p=[0.7, 0.1, 0.05, 0.05, 0.05, 0.03, 0.02])
        for kind, number in enumerate((0.0, -0.0, math.nan, math.inf, -math.inf, 1e-42), start=1):
            numbers[kinds == kind, 0] = number
        bits = floats.to_bits(numbers, dtype).astype(f"<u{field.part.bits // 8}")
        cache_bytes.scatter(layout, cache, field, slots, bits.view(np.uint8).reshape(*numbers.shape[:2], -1))
    return cache


def unpacked_any_bytes(kernels, cell, seed):
    """What is unpacked from bytes that no store writes, every code and numbers of every kind, against the reference."""
    layout = kernels.layout
    heads, block_size, where = min(cell.num_kv_heads, 3), min(cell.block_size, 64), verify.device()
    rng = np.random.default_rng(seed)
    slots = rng.permutation(8 * block_size)[:8].astype(np.int64)
    shape = (8, block_size, heads, layout.slot_bytes)
    cache = any_bytes(layout, shape, slots, rng)
    run_time = run_time_arguments(layout, heads)
    with np.errstate(all="ignore"):
        expected = reference.unpack(layout, cache, slots, space=cell.space, dtype=cell.out_dtype, **run_time)
        got = kernels.module.unpack(
            kernels.module.allocate(*shape[:3], device=where).copy_(torch.from_numpy(cache)),
            torch.from_numpy(slots).to(where),
            space=cell.space,
            dtype=DTYPES[cell.out_dtype],
            **device_arguments(run_time, where),
        )
    numbers = {name: tensor.cpu().double().numpy() for name, tensor in zip(("key", "value"), got) if tensor is not None}
    return compare.compare_unpacked(expected, numbers, slots)


@pytest.mark.parametrize("row", parameters())
def test_any_bytes_are_unpacked_as_the_reference_reads_them(row, request, tally):
    kernels = kernels_of(spec_text(row))
    result = unpacked_any_bytes(kernels, cell_of(row), len(row_name(row)))
    assert result.ok, described(kernels, [f"unpack of any bytes: {result}"], request.node.nodeid)
    tally("interpreter", cells=1)

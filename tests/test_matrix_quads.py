"""Sides whose rows quads of threads hold, over pairs of what they and a launch can be.

Of the specs of `test_matrix_kernels.py` few are such: both sides must be fit for it, or not rotated. Here one side is
of this kind, and the other is too, or is not stored, or is one of floats.
"""

import dataclasses
import functools
import json

import pytest
from support import ptx_machine
from support.any_bytes import unpacked_any_bytes
from support.covering import covering
from support.kernels import described, kernels_of, load
from support.matrix import parts_of

from tqgen.verify.cells import AXES as CELL_AXES
from tqgen.verify.cells import SPECIAL_CACHES, UNRELATED, Cell

CODECS = ("mse", "uniform", "symmetric")
BITS = {"mse": ("2", "3", "4"), "uniform": ("1", "2", "3", "4", "6", "8"), "symmetric": ("2", "3", "4", "6", "8")}
LEAST_CODES = {"1": 128, "2": 64}  # elements that a vector needs for a unit of each thread; others need 32
ABSENT = "-"
CELL = {axis: values for axis, values in CELL_AXES.items() if axis not in ("block", "heads")}
CELL |= {"block": ("b16", "b1", "b24"), "heads": ("h3", "h1"), "cache": (*CELL_AXES["cache"], *SPECIAL_CACHES)}
AXES = {
    "codec": CODECS,
    "bits": BITS["uniform"],
    "head_dim": ("32", "64", "128", "256"),
    "rotation": ("none", "hadamard", "signed_hadamard", "blocks", "signed_blocks"),
    "packing": ("linear", "halves"),
    "other": ("same", "none", "e4m3"),
    "side": ("key", "value"),
    "arrangement": ("aos", "soa", "planes"),
    "dtype_of_part": ("fp16", "bf16", "fp32"),
    "non_finite": ("propagate", "saturate"),
    "correction": ("none", "store", "load", ABSENT),
    "tie": ("up", "down", ABSENT),
    "rounding": ("half_up", "half_even", "half_away", ABSENT),
    "quantize_with": ("exact", "stored", ABSENT),
    **{f"cell.{axis}": values for axis, values in CELL.items()},
    "tile": ("small", "large"),
    "form": ("plain", "assembly"),
}
ASSEMBLED = ("3", "4")  # widths of `mse` of which unpack has a form with inline assembly
ONLY_MSE = ("correction", "tie")
ONLY_GRIDS = ("rounding", "quantize_with")
SKIPPED = [frozenset(f"cell.{axis}" for axis in pair) for pair in UNRELATED]


def allowed(row):
    """Which values can stand together, by the rules of `docs/spec.md` and of quads."""
    if row.get("packing") == "halves" and (row.get("bits") == "8" or row.get("rotation", "").endswith("blocks")):
        return False
    codecs = (row["codec"],) if "codec" in row else CODECS
    if row.get("form") == "assembly":
        codecs = tuple(codec for codec in codecs if codec == "mse" and row.get("bits", "4") in ASSEMBLED)
    return any(_fits(row, codec) for codec in codecs)


def _fits(row, codec):
    bits = (row["bits"],) if "bits" in row else BITS[codec]
    dims = (row["head_dim"],) if "head_dim" in row else AXES["head_dim"]
    lacks = ONLY_GRIDS if codec == "mse" else ONLY_MSE
    return any(
        width in BITS[codec] and int(dim) >= LEAST_CODES.get(width, 32) for width in bits for dim in dims
    ) and all((row[axis] == ABSENT) == (axis in lacks) for axis in (*ONLY_MSE, *ONLY_GRIDS) if axis in row)


def spec_of(row):
    codec, dtype = row["codec"], {"dtype": row["dtype_of_part"]}
    side = {"codec": "mse" if codec == "mse" else "uniform", "bits": int(row["bits"])}
    side |= {"non_finite": row["non_finite"], "packing": row["packing"]}
    blocks = row["rotation"].endswith("blocks")
    side["rotation"] = {"blocks": "hadamard", "signed_blocks": "signed_hadamard"}.get(row["rotation"], row["rotation"])
    if blocks:
        side["rotation_block"] = 16
    if codec == "mse":
        side |= {"norm": dtype, "norm_correction": row["correction"], "tie": row["tie"]}
    else:
        side |= {"scale": dtype, "rounding": row["rounding"], "quantize_with": row["quantize_with"]}
        side |= {"symmetric": True} if codec == "symmetric" else {"zero": {"dtype": "bf16"}}
    others = {"same": side, "none": {"codec": "none"}, "e4m3": {"codec": "fp8"}}
    names = ("key", "value") if row["side"] == "key" else ("value", "key")
    sides = dict(zip(names, (side, others[row["other"]])))
    block = row["arrangement"]
    if block == "planes":
        facts = {"bits": row["bits"], "dtype": row["dtype_of_part"], "zero": "bf16", "group": "whole"}
        known = {"mse": codec, "fp8": "e4m3", "none": "none", "uniform": codec}
        fields = [
            f"{name}.{part}"
            for name, one in sides.items()
            for part in parts_of({"codec": known[one["codec"]], **facts}, int(row["head_dim"]))
        ]
        block = {"regions": [{"name": "all", "order": ["field", "head", "token"], "fields": fields}]}
    return json.dumps({"tqgen": 1, "name": "quads", "head_dim": int(row["head_dim"]), **sides, "block": block})


def cell_of(row):
    return Cell(**{axis: row[f"cell.{axis}"] for axis in CELL})


@functools.cache
def rows():
    return covering(AXES, allowed, SKIPPED).rows


def parameters():
    return [
        pytest.param(
            row,
            id=f"{n:03d}-{row['codec']}{row['bits']}-{row['packing']}-{row['rotation']}-{row['head_dim']}-{cell_of(row).id}",
        )
        for n, row in enumerate(rows())
    ]


@pytest.mark.parametrize("row", parameters())
def test_cell(row, request, monkeypatch, tally):
    kernels = kernels_of(spec_of(row), row["tile"])
    quads = getattr(kernels.plan, row["side"]).quads
    assert kernels.plan.quads and quads
    if row["form"] == "assembly":
        assert quads.row_numbers
        ptx_machine.install()
        monkeypatch.setattr(kernels.module, "_has_ptx", lambda *_: True)
    failures = kernels.failures(cell_of(row))
    assert not failures, described(kernels, failures, request.node.nodeid, cell_of(row))
    result = unpacked_any_bytes(kernels.layout, kernels.module, cell_of(row), len(request.node.nodeid))
    assert result.ok, described(kernels, [f"unpack of any bytes: {result}"], request.node.nodeid)
    tally("interpreter", cells=2, values=row, wanted=AXES)


# What is special of a number, or of all numbers of a vector: each meets every codec and every policy.
SPECIAL = ("nan", "inf", "huge", "large", "zeros", "negative_zero", "tiny", "subnormal", "ties", "constant")


@pytest.mark.parametrize("rotation", ["none", "hadamard"])
@pytest.mark.parametrize("non_finite", ["propagate", "saturate"])
@pytest.mark.parametrize("codec", CODECS)
def test_special_numbers(codec, non_finite, rotation, tally):
    side = {"codec": "mse" if codec == "mse" else "uniform", "bits": 3, "non_finite": non_finite, "rotation": rotation}
    side |= {"symmetric": True} if codec == "symmetric" else {}
    spec = {"tqgen": 1, "name": "quads", "head_dim": 64, "key": side, "value": {"codec": "none"}, "block": "aos"}
    kernels = kernels_of(json.dumps(spec))
    assert kernels.plan.quads and kernels.plan.key.quads
    for number, pattern in enumerate(SPECIAL):
        cell = Cell(dtype=CELL["dtype"][(number + len(codec)) % 3], pattern=pattern, places="negative", out="ofp32")
        failures = kernels.failures(cell)
        assert not failures, described(kernels, failures, f"{__name__}.py", cell)
    tally("interpreter", cells=len(SPECIAL))


def test_words_around_codes_stay_in_the_block(tally):
    """Codes that end a block are read as their alignment allows; words around them would reach beyond it."""
    side = {"codec": "mse", "bits": 4, "rotation": "hadamard"}
    spec = {"tqgen": 1, "name": "ending", "head_dim": 128, "key": side, "value": {"codec": "none"}}
    cell = Cell(places="edges", cache="padded", block="b1", heads="h1")
    around = {}
    for fields in (["key.codes", "key.norm"], ["key.norm", "key.codes"]):
        regions = [{"name": "all", "order": ["token", "head", "field"], "fields": fields}]
        kernels = kernels_of(json.dumps({**spec, "block": {"regions": regions}}))
        around[fields[-1]] = kernels.plan.key.quads.around
        assert not kernels.failures(cell)
        tally("interpreter", cells=1)
    assert around == {"key.norm": 4, "key.codes": 0}
    key = dataclasses.replace(kernels.plan.key, quads=dataclasses.replace(kernels.plan.key.quads, around=4))
    plan = dataclasses.replace(kernels.plan, key=key)
    forced = dataclasses.replace(kernels, plan=plan, module=load("ending", plan))
    failures = forced.failures(cell)
    assert failures and all("`unpack" in one and "outside of every argument" in one for one in failures), failures

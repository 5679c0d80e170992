"""Decode attention over pairs of what changes its kernels: how sides are taken apart, and every way to call it.

The matrix of `test_matrix_kernels.py` draws calls of attention for cells that are about the cache. Here they are axes,
and layouts are those that have kernels of their own: packed codes that become numbers of a tile, or of registers where
query rows are few.
"""

import functools
import json

import numpy as np
import ptx_machine
import pytest
from covering import covering
from kernels import kernels_of

from tqgen import verify
from tqgen.verify import attention
from tqgen.verify.cells import Cell

KEYS = {
    "mse4": {"codec": "mse", "bits": 4, "norm_correction": "store"},
    "mse4_load": {"codec": "mse", "bits": 4, "norm_correction": "load", "norm": {"dtype": "bf16"}},
    "mse3": {"codec": "mse", "bits": 3, "norm": {"dtype": "fp32"}},
    "mse3_load": {"codec": "mse", "bits": 3, "norm_correction": "load"},
    "mse2": {"codec": "mse", "bits": 2},
    "uniform4": {"codec": "uniform", "bits": 4, "zero": {"dtype": "bf16"}},
    "uniform3": {"codec": "uniform", "bits": 3},
    "symmetric4": {"codec": "uniform", "bits": 4, "symmetric": True, "scale": {"dtype": "fp32"}},
    "halves": {"codec": "uniform", "bits": 4, "packing": "halves"},
    "e4m3": {"codec": "fp8"},
    "e5m2": {"codec": "fp8", "format": "e5m2", "scale": {"dtype": "bf16"}},
}
VALUES = {
    "uniform4": {"codec": "uniform", "bits": 4},
    "uniform3": {"codec": "uniform", "bits": 3, "scale": {"dtype": "bf16"}},
    "uniform2": {"codec": "uniform", "bits": 2, "zero": {"dtype": "fp32"}},
    "symmetric4": {"codec": "uniform", "bits": 4, "symmetric": True},
    "symmetric3": {"codec": "uniform", "bits": 3, "symmetric": True},
    "mse4": {"codec": "mse", "bits": 4, "norm_correction": "store"},
    "mse4_load": {"codec": "mse", "bits": 4, "norm_correction": "load"},
    "mse3": {"codec": "mse", "bits": 3},
    "mse2": {"codec": "mse", "bits": 2, "norm": {"dtype": "bf16"}},
    "halves": {"codec": "uniform", "bits": 4, "packing": "halves"},
    "e4m3": {"codec": "fp8", "scale": {}},
    "e5m2": {"codec": "fp8", "format": "e5m2"},
}
ORDERS = {
    "head_major": ["head", "token", "field"],
    "planes": ["field", "head", "token"],
    "head_planes": ["head", "field", "token"],
}
AXES = {
    "key": tuple(KEYS),
    "value": tuple(VALUES),
    "block": ("aos", "soa", *ORDERS),
    "head_dim": ("64", "128"),
    "key.rotation": ("none", "hadamard", "signed_hadamard", "matrix"),
    "value.rotation": ("none", "hadamard", "signed_hadamard", "matrix"),
    "center": ("none", "key", "value"),
    # few query rows have a kernel of their own, up to 8 and up to 16; of many, a tile takes 32 or 64
    "group": ("1", "5", "12", "20"),
    "queries": ("1", "3"),
    "form": attention.FORMS,
    "lengths": ("70-0-16", "17-33-1", "5-48-97"),
    "window": ("none", "1", "18", "60"),
    "softcap": ("none", "2.5"),
    "sinks": ("no", "yes"),
    "scale": ("default", "0.07"),
    "splits": ("default", "3", "invariant"),
    "sliced": ("no", "yes"),
    "buffers": ("no", "yes"),
    "dtype": ("bf16", "fp16", "fp32"),
    "size": ("b16", "b4", "b24"),
    "tile": ("small", "large"),
    "assembly": ("no", "yes"),
}
# Keys and values are taken apart one after the other by the same templates.
UNRELATED = [frozenset(("key", "value")), frozenset(("key.rotation", "value.rotation"))]


def allowed(row):
    """What launchers refuse: options that a centre would have to enter."""
    sinks, softcap = row.get("sinks") == "yes", row.get("softcap", "none") != "none"
    return not (sinks and row.get("center", "none") != "none") and not (softcap and row.get("center") == "key")


def spec_of(row):
    key, value = dict(KEYS[row["key"]]), dict(VALUES[row["value"]])
    key["rotation"], value["rotation"] = row["key.rotation"], row["value.rotation"]
    key["center"], value["center"] = row["center"] == "key", row["center"] == "value"
    block = row["block"]
    if block in ORDERS:
        parts = {"mse": ("codes", "norm")}

        def parts_of(side, one):
            names = parts.get(one["codec"], ("codes", "scale", "zero"))
            if one["codec"] == "fp8":
                names = ("codes", "scale") if "scale" in one else ("codes",)
            if one.get("symmetric"):
                names = ("codes", "scale")
            return [f"{side}.{name}" for name in names]

        fields = [*parts_of("key", key), *parts_of("value", value)]
        block = {"regions": [{"name": "all", "order": ORDERS[block], "fields": fields}]}
    return {
        "tqgen": 1,
        "name": "attending",
        "head_dim": int(row["head_dim"]),
        "key": key,
        "value": value,
        "block": block,
    }


def call_of(row):
    options = {}
    if row["window"] != "none":
        options["window"] = int(row["window"])
    if row["softcap"] != "none":
        options["softcap"] = float(row["softcap"])
    if row["sinks"] == "yes":
        options["sinks"] = True
    if row["scale"] != "default":
        options["softmax_scale"] = float(row["scale"])
    if row["splits"] != "default":
        options.update({"batch_invariant": True} if row["splits"] == "invariant" else {"num_splits": 3})
    return attention.Call(
        group=int(row["group"]),
        queries=int(row["queries"]),
        lengths=tuple(map(int, row["lengths"].split("-"))),
        options=options,
        form=row["form"],
        sliced=row["sliced"] == "yes",
        buffers=row["buffers"] == "yes",
    )


@functools.cache
def rows():
    return covering(AXES, allowed, UNRELATED).rows


def parameters():
    return [
        pytest.param(row, id=f"{n:02d}-{row['key']}-{row['value']}-{row['block']}-{row['head_dim']}")
        for n, row in enumerate(rows())
    ]


@pytest.mark.parametrize("row", parameters())
def test_attention(row, monkeypatch, tally):
    text = json.dumps(spec_of(row))
    kernels = kernels_of(text, row["tile"])
    if row["assembly"] == "yes" and verify.device().type == "cpu":
        ptx_machine.install()
        monkeypatch.setattr(kernels.module, "_has_ptx", lambda *_: True)
    cell = Cell(dtype=row["dtype"], block=row["size"], heads="h2", places="edges", cache="padded")
    with np.errstate(all="ignore"):
        result = attention.attend(kernels.layout, kernels.module, cell, verify.device(), call_of(row))
    assert result.ok, f"{row}\n{text}\n{result}"
    tally("interpreter", cells=1, values=row, wanted=AXES)

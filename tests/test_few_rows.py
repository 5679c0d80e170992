"""Attention of few query rows where a run of codes, or metadata, does not come as whole aligned words."""

import importlib
import json

import numpy as np
import ptx_machine
import pytest
from kernels import kernels_of
from test_ptx import few_rows

from tqgen import manifest, verify
from tqgen.compiler import compile_spec
from tqgen.verify import attention

FP32_NORM = {"codec": "mse", "bits": 4, "rotation": "hadamard", "norm": {"dtype": "fp32"}}
SPECS = {
    # 0xFF is NaN in fp8, also where no token is
    "fp8 values between odd fields": {
        "head_dim": 64,
        "key": {"codec": "mse", "bits": 4},
        "value": {"codec": "fp8", "scale": {}},
        "block": "aos",
    },
    "norms of 4 bytes that are not neighbours": {
        "head_dim": 128,
        "key": FP32_NORM,
        "value": {"codec": "uniform", "bits": 4},
        "block": "aos",
    },
    "more units than a thread takes": {
        "head_dim": 256,
        "key": {"codec": "mse", "bits": 2},
        "value": {"codec": "uniform", "bits": 4},
        "block": "soa",
    },
    "scales of any size": {
        "head_dim": 64,
        "key": {"codec": "mse", "bits": 4},
        "value": {"codec": "uniform", "bits": 4, "scale": {"dtype": "fp32"}},
        "block": "soa",
    },
}
HAS_FRAGMENTS = {"fp8 values between odd fields": True, "norms of 4 bytes that are not neighbours": True}


@pytest.mark.parametrize("name", SPECS)
def test_attention(name, tally):
    kernels = kernels_of(json.dumps({"tqgen": 1, "name": "few", **SPECS[name]}))
    plan = kernels.plan.attention
    assert bool(plan.fragments) == HAS_FRAGMENTS.get(name, False)
    cell = few_rows(kernels.layout)
    with np.errstate(all="ignore"):
        result = attention.attend(kernels.layout, kernels.module, cell, verify.device())
    assert result.ok, str(result)
    tally("interpreter", cells=1)


@pytest.mark.parametrize("assembled", [True, False], ids=["with PTX", "without"])
@pytest.mark.parametrize("heads", ["h1", "h3", "h8"])
@pytest.mark.parametrize("name", ["mse4_v4_aos", "mse3_v3_aos", "mse3_v3"])
def test_runs_that_start_in_the_middle_of_a_word(name, heads, assembled, monkeypatch, tally):
    """With an odd number of heads every other token does, otherwise those of some heads, or of some threads."""
    layout = compile_spec(manifest.locate(name)).layout
    module = importlib.import_module(f"generated.{name}")
    ptx_machine.install()
    monkeypatch.setattr(module, "_has_ptx", lambda *_: assembled)
    monkeypatch.delattr(module, "_attention_tile")  # another kernel's
    cell = few_rows(layout, [heads])
    with np.errstate(all="ignore"):
        result = attention.attend(layout, module, cell, verify.device())
    assert result.ok, f"decode_attention in cell {cell.id}: {result}"
    tally("interpreter", cells=1)

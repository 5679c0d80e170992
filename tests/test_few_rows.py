"""Attention of few query rows where a run of codes, or metadata, does not come as whole aligned words."""

import json

import numpy as np
import pytest
from kernels import kernels_of
from test_ptx import few_rows

from tqgen import verify
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

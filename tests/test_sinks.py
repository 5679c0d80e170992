"""Attention sinks of any size: what is finite counts as the reference says, and what is not has one meaning."""

import json

import numpy as np
import pytest
import torch
from support.kernels import kernels_of

from tqgen import reference
from tqgen.verify import device
from tqgen.verify.attention_bounds import bounds

HEAD_DIM, BLOCK_SIZE, BLOCKS, LARGEST = 16, 16, 3, float(np.finfo(np.float32).max)
KEY, VALUE = {"codec": "mse", "bits": 4, "rotation": "hadamard"}, {"codec": "uniform", "bits": 4}
SPEC = json.dumps({"tqgen": 1, "name": "sinks", "head_dim": HEAD_DIM, "key": KEY, "value": VALUE, "block": "soa"})
# Scores to base 2 are larger by log2(e), so that 2.36e38 is the last natural one that fp32 holds there.
BEYOND = [LARGEST, 3e38, 2.37e38]
FINITE = [0.0, -0.0, 1e-45, 3.0, 300.0, 2e38, *BEYOND]
LENGTHS = (0, 1, 40)


def attended(sinks, splits, dtype=torch.float32, lengths=LENGTHS, rows="small"):
    """Output and logarithms of a kernel, of the reference, and the bounds of their difference; a head for each sink."""
    made, where = kernels_of(SPEC, rows), device()
    draw = np.random.default_rng(5)
    cache = made.module.allocate(BLOCKS, BLOCK_SIZE, 1, device=where)
    vectors = [torch.from_numpy(draw.normal(size=(40, 1, HEAD_DIM)).astype(np.float32)).to(where) for _ in range(2)]
    made.module.store(*vectors, cache, torch.arange(40, device=where))
    sinks = torch.tensor(sinks, dtype=dtype)
    query = draw.normal(size=(len(lengths), len(sinks), HEAD_DIM)).astype(np.float32)
    table = np.tile(np.arange(BLOCKS, dtype=np.int32), (len(lengths), 1))
    got = made.module.decode_attention(
        torch.from_numpy(query).to(where),
        cache,
        torch.from_numpy(table).to(where),
        torch.tensor(lengths, dtype=torch.int32, device=where),
        sinks=sinks.to(where),
        num_splits=splits,
        return_lse=True,
    )
    stored, given = cache.cpu().numpy(), sinks.double().numpy()
    exact = reference.attention(made.layout, query, stored, table, np.array(lengths), sinks=given)
    with np.errstate(invalid="ignore"):
        allowed = bounds(made.layout, query[:, None], stored, table, lengths, {}, given, {})
    return [one.cpu().double().numpy() for one in got], exact, [one[:, 0] for one in allowed]


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("rows", ["small", "large"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_a_finite_sink_counts_as_it_is(dtype, rows, splits):
    largest = torch.finfo(dtype).max
    sinks = [sign * min(size, largest) for size in FINITE for sign in (1, -1)]
    (output, lse), (exact, logarithm), (bound, lse_bound) = attended(sinks, splits, dtype, rows=rows)
    assert np.isfinite(exact).all() and np.isfinite(logarithm).all()
    assert (np.abs(output - exact) <= bound + 1e-30).all()
    assert (np.abs(lse - logarithm) <= lse_bound).all()
    given = torch.tensor(sinks, dtype=dtype).double().numpy()
    alone = given >= 300  # by far larger than every score: nothing but the sink is left
    assert (output[:, alone] == 0).all() and (lse[:, alone] == given[alone]).all()
    assert (lse[0] == given).all()  # a sequence of nothing has its sink's


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("rows", ["small", "large"])
def test_a_sink_of_minus_infinity_is_none(rows, splits):
    (output, lse), (exact, logarithm), (bound, lse_bound) = attended([float("-inf")] * 2, splits, rows=rows)
    without, nothing = attended([-LARGEST] * 2, splits, rows=rows)[0]
    assert (np.abs(output - exact) <= bound).all() and (output == without).all()
    assert np.isneginf(lse[0]).all() and (lse[1:] == nothing[1:]).all()
    assert np.isneginf(logarithm[0]).all() and (np.abs(lse[1:] - logarithm[1:]) <= lse_bound[1:]).all()


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("rows", ["small", "large"])
@pytest.mark.parametrize("sink", [float("inf"), float("nan")])
def test_other_sinks_make_their_head_nan(sink, rows, splits):
    (output, lse), (exact, logarithm), (bound, lse_bound) = attended([0.5, sink, 0.5], splits, rows=rows)
    for found, alone in ((output, exact), (lse, logarithm)):
        assert np.isnan(found[:, 1]).all() and np.isnan(alone[:, 1]).all()
    others = [0, 2]
    assert (np.abs(output - exact)[:, others] <= bound[:, others]).all()
    assert (np.abs(lse - logarithm)[:, others] <= lse_bound[:, others]).all()

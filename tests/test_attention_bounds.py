"""How far attention may be off, against its derivation by hand: a bound that was loosened hides what is wrong."""

import math

import numpy as np
import pytest
from support.layouts import layout_of

from tqgen import reference
from tqgen.verify.attention_bounds import bounds, output_rounding

RAW = "codec: raw, dtype: fp32"
U = 2.0**-11  # largest relative error of a rounding to fp16
FP32 = 2.0**-18  # of sums in fp32 and of exponentials
SCORES = 8 * U * math.sqrt(2 / 3)  # eight standard deviations of a rounded query times a rounded key
D = 16


def bounds_of(keys, values, query, rotation="none", sinks=None, **options):
    """Bounds of the output and the logarithm of queries [T, Hq, D] over keys and values [S, H, D]."""
    layout = layout_of(f"{{{RAW}}}", f"{{{RAW}, rotation: {rotation}}}", head_dim=D)
    cache = np.zeros((1, max(1, len(keys)), keys.shape[1], layout.slot_bytes), dtype=np.uint8)
    reference.store(layout, cache, keys, values, np.arange(len(keys)))
    table = np.zeros((1, 1), dtype=np.int32)
    output, logarithm = bounds(layout, query[None], cache, table, (len(keys),), options, sinks, {})
    return output[0], logarithm[0]


def one(size, at=0):
    """A vector [1, 1, D] with one element that is not zero."""
    vector = np.zeros((1, 1, D))
    vector[0, 0, at] = size
    return vector


@pytest.mark.parametrize("scale", [None, 0.5, -0.5])
def test_one_position_has_the_roundings_of_its_value_alone(scale):
    options = {} if scale is None else {"softmax_scale": scale}
    output, logarithm = bounds_of(one(3.0), one(-5.0, at=2), one(2.0), **options)
    score = abs(3.0 * 2.0 * (scale or 1 / 4))
    assert output == pytest.approx(np.full((1, 1, D), (2 * U + FP32) * 5.0), rel=1e-6)
    assert logarithm == pytest.approx(np.full((1, 1), SCORES * score + FP32 * (1 + score) * 2), rel=1e-6)


def test_a_rotated_value_may_gather_what_its_elements_are_off():
    output, _ = bounds_of(one(3.0), np.full((1, 1, D), 5.0), one(2.0), rotation="hadamard")
    assert output == pytest.approx(np.full((1, 1, D), (4 * 2 * U + FP32) * 5.0 * math.sqrt(D)), rel=1e-6)


def test_two_positions_may_exchange_weight():
    """Equal scores: half of the weight may move by as much as its exponential is off, times what the values differ."""
    keys, values = np.concatenate([one(3.0), one(3.0)]), np.concatenate([one(1.0), one(-1.0)])
    output, logarithm = bounds_of(keys, values, one(2.0))
    score = 1.5
    error = SCORES * score + FP32 * (1 + score)
    expected = np.full((1, 1, D), 2 * U + FP32)
    expected[0, 0, 0] += math.expm1(error)
    assert output == pytest.approx(expected, rel=1e-6)
    assert logarithm == pytest.approx(np.full((1, 1), error + FP32 * (1 + score)), rel=1e-6)


def test_what_is_not_seen_and_sinks_add_nothing():
    keys, values = np.concatenate([one(100.0), one(3.0)]), np.concatenate([one(100.0), one(1.0)])
    query = np.concatenate([np.zeros((1, 2, D)), np.repeat(one(2.0), 2, axis=1)])
    output, logarithm = bounds_of(keys, values, query, window=1, sinks=np.array([-np.inf, 1.5]))
    alone, of_score = bounds_of(one(3.0), one(1.0), one(2.0))
    largest = FP32 * 99.0  # sums are as far off as the largest of all values makes them
    assert output[1, 0] == pytest.approx(alone[0, 0] + largest, rel=1e-6)
    assert logarithm[1, 0] == pytest.approx(of_score[0, 0], rel=1e-6)
    # a sink as large as the score takes half of the weight: of the value, and of how far that may move
    moved = 0.5 * 0.5 * math.expm1(SCORES * 1.5 + FP32 * 2.5)
    assert output[1, 1] == pytest.approx(np.where(np.arange(D), 0.0, moved) + U + FP32 + largest, rel=1e-6)
    empty, nothing = bounds_of(keys[:0], values[:0], query[:1])
    assert not empty.any() and nothing == pytest.approx(np.full((1, 2), FP32))


@pytest.mark.parametrize(
    ("dtype", "relative", "smallest"),
    [("fp16", 2.0**-10, 2.0**-24), ("bf16", 2.0**-7, 2.0**-133), ("fp32", 2.0**-18, 2.0**-149)],
)
def test_an_output_is_rounded_to_its_dtype(dtype, relative, smallest):
    small = (1 + math.sqrt(3)) * smallest / 2  # of the result, and of all that a rotation adds up to it
    got = output_rounding(np.array([[1.0, -4.0, 0.0]]), dtype)
    assert got == pytest.approx(relative * np.array([[1.0, 4.0, 0.0]]) + 2.0**-12 + small, rel=1e-9)
    assert output_rounding(np.zeros((1, 3)), dtype) == pytest.approx(np.full((1, 3), small + 2.0**-126), rel=1e-9)

"""What is left out where factors of a product are multiplied in parts, against what a span allows for it."""

import numpy as np
import pytest
import torch

from generated import none_vmse3
from tqgen import codebooks
from tqgen.lower.quads import WIDEST_MATRIX
from tqgen.numerics import floats

# Of a sum of D products a span allows D / 8 roundings, which sums themselves need, and beside them as many as of D = 0.
ALLOWED = floats.accumulation(0) / floats.ROUNDING
# What two fp16 parts of an element of a matrix are off by at most, as `test_fp32_bounds.py` shows, and what the second
# part is of both at most: the first one is rounded.
HALF_PARTS = 2.0**-23 / floats.ROUNDING
REST = 2.0**-11

CODEBOOKS = [
    pytest.param(name, bits, head_dim, id=f"{name}-{bits}-{head_dim}")
    for name in codebooks.names()
    for bits in codebooks.widths(name)
    for head_dim in (32, 64, WIDEST_MATRIX)
]


@pytest.mark.parametrize(("name", "bits", "head_dim"), CODEBOOKS)
def test_levels_in_two_parts_times_a_matrix_in_two_parts(name, bits, head_dim):
    """What both parts of a level lack, those of a matrix' element, and the product of both rests, which is left out."""
    levels = np.array(codebooks.load(name, bits).levels) * head_dim**-0.5
    levels = levels.astype(np.float32).astype(np.float64)
    table = none_vmse3._level_parts(levels.tolist(), torch.device("cpu")).numpy()
    halves = np.ascontiguousarray(table[:, 0]).view(np.float16).reshape(-1, 2).astype(np.float64)
    high, low = halves[:, 0] / 16, halves[:, 1] / 16 / 2048
    assert np.array_equal(np.ascontiguousarray(table[:, 1]).view(np.float32), (levels**2).astype(np.float32))
    lacking = np.abs(levels - high - low) / np.abs(levels)
    left_out = np.abs(levels - high) / np.abs(levels) * REST
    assert HALF_PARTS + ((lacking + left_out) / floats.ROUNDING).max() < ALLOWED


def cut(numbers):
    return (numbers.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(np.float64)


def test_three_parts_cut_off_the_bits_of_a_number():
    """They are all of it. Of a vector's parts, which are rounded, as much is left out as two roundings at most."""
    rng = np.random.default_rng(4)
    numbers = rng.standard_normal(200_000).astype(np.float32).astype(np.float64)
    high = cut(numbers)
    middle = cut(numbers - high)
    low = numbers - high - middle
    assert np.array_equal(cut(low), low)
    of_middle, of_low = 2.0**-9, 2.0**-17  # what is left of a number after one and two roundings to bf16
    left_out = (of_middle * np.abs(low) + of_low * (np.abs(middle) + np.abs(low))) / np.abs(numbers)
    assert left_out.max() / floats.ROUNDING < 2.1 < ALLOWED

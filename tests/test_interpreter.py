"""The repairs of Triton's interpreter, by kernels that would show each fault."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from tqgen.verify import interpreter

pytestmark = pytest.mark.skipif(not interpreter.is_chosen(), reason="runs in Triton's interpreter only")


@triton.jit
def cast_kernel(source_ptr, target_ptr, count: tl.constexpr):
    index = tl.arange(0, count)
    tl.store(target_ptr + index, tl.load(source_ptr + index).to(target_ptr.dtype.element_ty))


@triton.jit
def fp8_kernel(source_ptr, codes_ptr, values_ptr, dtype: tl.constexpr, count: tl.constexpr):
    index = tl.arange(0, count)
    narrow = tl.load(source_ptr + index).to(dtype)
    tl.store(codes_ptr + index, narrow.to(tl.uint8, bitcast=True))
    tl.store(values_ptr + index, narrow.to(tl.float32))


@triton.jit
def dot_kernel(a_ptr, b_ptr, out_ptr, size: tl.constexpr):
    row, column = tl.arange(0, size)[:, None], tl.arange(0, size)[None, :]
    a = tl.load(a_ptr + row * size + column)
    b = tl.load(b_ptr + row * size + column)
    tl.store(out_ptr + row * size + column, tl.dot(a, b))


@triton.jit
def multiply_kernel(a_ptr, b_ptr, out_ptr, count: tl.constexpr):
    index = tl.arange(0, count)
    tl.store(out_ptr + index, tl.load(a_ptr + index) * tl.load(b_ptr + index))


@triton.jit
def fma_kernel(x_ptr, y_ptr, z_ptr, out_ptr, count: tl.constexpr):
    index = tl.arange(0, count)
    tl.store(out_ptr + index, tl.fma(tl.load(x_ptr + index), tl.load(y_ptr + index), tl.load(z_ptr + index)))


@triton.jit
def count_kernel(limit_ptr, out_ptr):
    limit = tl.load(limit_ptr)
    total = 0
    for step in range(limit):
        total += step
    if limit > 3:
        total += 100
    tl.store(out_ptr, total)


def test_fp32_to_bf16_rounds_to_nearest_even():
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 2**32, 4096, dtype=np.uint32)
    bits[:6] = [0x3F808000, 0x3F818000, 0x3F80FFFF, 0x7F7FFFFF, 0x7F800000, 0x00000001]
    values = torch.from_numpy(bits.view(np.float32).copy())
    values = torch.where(values.isnan(), torch.zeros_like(values), values)
    target = torch.empty(4096, dtype=torch.bfloat16)
    cast_kernel[(1,)](values, target, 4096)
    assert torch.equal(target.view(torch.int16), values.to(torch.bfloat16).view(torch.int16))


def test_nan_stays_nan_in_bf16():
    values = torch.tensor([0x7F800001, 0x7FFFFFFF], dtype=torch.int32).view(torch.float32)
    target = torch.empty(2, dtype=torch.bfloat16)
    cast_kernel[(1,)](values, target, 2)
    assert target.isnan().all()


def test_every_bf16_widens_exactly():
    values = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    target = torch.empty(2**16, dtype=torch.float32)
    cast_kernel[(1,)](values, target, 2**16)
    expected = values.to(torch.float32)
    assert torch.equal(target.isnan(), expected.isnan())
    assert torch.equal(target.nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize(
    ("dtype", "torch_dtype", "largest"),
    [(tl.float8e4nv, torch.float8_e4m3fn, 448.0), (tl.float8e5, torch.float8_e5m2, 57344.0)],
    ids=["e4m3", "e5m2"],
)
def test_fp8_rounds_to_nearest_even_and_saturates(dtype, torch_dtype, largest):
    every = torch.arange(256, dtype=torch.uint8).view(torch_dtype).to(torch.float32)
    finite = every[every.isfinite()].sort().values
    between = (finite[:-1] + finite[1:]) / 2  # every tie
    more = torch.tensor([449.0, 464.0, 1e4, 6e4, 1e9, float("inf"), -float("inf"), -0.0, 2.0**-40])
    values = torch.cat([finite, between, between * (1 + 2**-20), between * (1 - 2**-20), more])
    count = 2048
    values = torch.cat([values, torch.zeros(count - len(values))])
    codes, back = torch.empty(count, dtype=torch.uint8), torch.empty(count)
    fp8_kernel[(1,)](values, codes, back, dtype, count)
    expected = values.clamp(-largest, largest).to(torch_dtype)
    assert torch.equal(codes, expected.view(torch.uint8))
    assert torch.equal(back, expected.to(torch.float32))


def test_fp8_known_codes():
    values = [1.0, 1.0625, 1.97, -0.49268, 448, 449, 464, 1e4, 2**-6, 2**-9, 1.5 * 2**-10, 2**-10, -0.0, float("nan")]
    codes = interpreter.round_to_fp8(np.array(values, np.float32), "fp8e4nv")
    assert codes.tobytes().hex() == "383840b07e7e7e7e08010100807f"


def test_dot_of_bf16_multiplies_values():
    torch.manual_seed(0)
    a, b = torch.randn(16, 16).to(torch.bfloat16), torch.randn(16, 16).to(torch.bfloat16)
    out = torch.empty(16, 16)
    dot_kernel[(1,)](a, b, out, 16)
    torch.testing.assert_close(out, a.float() @ b.float(), rtol=1e-5, atol=1e-5)


def test_product_of_bf16_is_rounded_to_bf16():
    a = torch.tensor([1.5, -3.0, 1.0078125, 0.1], dtype=torch.bfloat16)
    b = torch.tensor([2.5, 7.0, 1.0078125, 0.3], dtype=torch.bfloat16)
    out = torch.empty(4, dtype=torch.bfloat16)
    multiply_kernel[(1,)](a, b, out, 4)
    assert torch.equal(out, a * b)


@pytest.mark.parametrize(("limit", "expected"), [(3, 3), (5, 110)])
def test_loops_and_branches_on_loaded_numbers(limit, expected):
    out = torch.zeros(1, dtype=torch.int32)
    count_kernel[(1,)](torch.tensor([limit], dtype=torch.int32), out)
    assert out.item() == expected


def test_fma_rounds_once():
    # numbers whose exact result lies next to the middle between two fp32 numbers, or cancels
    generator = np.random.default_rng(1)
    x = generator.standard_normal(4096).astype(np.float32)
    y = (2.0 ** generator.integers(-14, 14, 4096) * (1 + generator.integers(0, 2**12, 4096) / 2**12)).astype(np.float32)
    z = np.where(generator.random(4096) < 0.5, -(x * y), generator.standard_normal(4096)).astype(np.float32)
    z[:8] = [0.0, -0.0, np.inf, np.nan, 2.0**-149, 2.0**127, 1.0, -1.0]
    out = torch.empty(4096)
    fma_kernel[(1,)](*map(torch.from_numpy, (x, y, z)), out, 4096)
    expected = []
    for a, b, c in zip(x.tolist(), y.tolist(), z.tolist(), strict=True):
        exact = Fraction(a) * Fraction(b) + Fraction(c) if np.isfinite(c) else None
        expected.append(c if exact is None else nearest_fp32(exact))
    np.testing.assert_array_equal(out.numpy(), np.array(expected, dtype=np.float32))
    assert (out.numpy()[8:] != (x * y + z)[8:]).mean() > 0.2, "numbers that show the difference"


def nearest_fp32(exact):
    """An exact number rounded to fp32, to nearest even."""
    if exact == 0:
        return 0.0
    exponent = max(math.frexp(float(exact))[1] - 24, -149)
    return float(Fraction(2) ** exponent * round(exact / Fraction(2) ** exponent))

"""Floating-point formats in numpy: rounding, bit patterns, and what a correct rounding of an inexact number may be.

Numbers are float64 arrays throughout, which hold every number of every format here exactly. Rounding is to nearest,
ties to even.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tqgen.codecs.base import Span

ROUNDING = 2.0**-24  # largest relative error of one correctly rounded fp32 operation
SMALLEST_NORMAL = 2.0**-126  # of fp32; results below it may be flushed to zero


def accumulation(count: int) -> float:
    """How far a sum of `count` products in fp32 may be off, relative to the sum of their magnitudes.

    Sums are made in blocks: a tensor core adds at least 8 exact products to its accumulator before it rounds, a matrix
    product or a reduction on a CPU or in a warp keeps 8 and more partial sums. So at most count / 8 roundings follow
    one another, then those of the tree that joins partial sums, of the scaling, and of factors split in parts.
    """
    return (count / 8 + 8) * ROUNDING


def sum_to_odd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b of float64 numbers, rounded to odd: of two neighbours to the one whose last bit is set.

    That keeps enough of what is lost for a further rounding, to fp32 or less, to be right (S. Boldo, G. Melquiond:
    Emulation of FMA and correctly rounded sums, 2008).
    """
    with np.errstate(all="ignore"):
        total = np.asarray(a + b)
        virtual = total - a
        lost = (a - (total - virtual)) + (b - virtual)
        bits = total.view(np.int64)
        step = np.where(np.signbit(lost) == np.signbit(total), 1, -1)
        to_odd = np.isfinite(total) & (lost != 0) & (bits % 2 == 0)
        return np.where(to_odd, bits + step, bits).view(np.float64)


@dataclass(frozen=True)
class FloatFormat:
    """A sign, an exponent and a mantissa, in this order from the most significant bit, with gradual underflow."""

    name: str
    bits: int
    mantissa_bits: int
    smallest_exponent: int  # of normal numbers: 2**smallest_exponent is the smallest
    largest: float
    nan: int  # the quiet NaN that is stored
    infinity: int | None  # None: numbers beyond the largest become the largest, infinities too

    @property
    def code_dtype(self) -> np.dtype:
        return np.dtype(f"<u{self.bits // 8}")

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)


FORMATS = {
    "fp16": FloatFormat("fp16", 16, 10, -14, 65504.0, 0x7E00, 0x7C00),
    "bf16": FloatFormat("bf16", 16, 7, -126, (2 - 2.0**-7) * 2.0**127, 0x7FC0, 0x7F80),
    "fp32": FloatFormat("fp32", 32, 23, -126, (2 - 2.0**-23) * 2.0**127, 0x7FC00000, 0x7F800000),
    "e4m3": FloatFormat("e4m3", 8, 3, -6, 448.0, 0x7F, None),
    # OCP e5m2 has infinities, and they decode as such; encoding saturates, so none is written.
    "e5m2": FloatFormat("e5m2", 8, 2, -14, 57344.0, 0x7F, None),
}


def _quantum_exponent(magnitude: np.ndarray, form: FloatFormat) -> np.ndarray:
    """Exponent of the distance between neighbours of the format around finite numbers."""
    _, exponent = np.frexp(magnitude)
    return np.where(magnitude == 0, form.smallest_exponent, np.maximum(exponent - 1, form.smallest_exponent)) - (
        form.mantissa_bits
    )


def round_to(values: np.ndarray, dtype: str, *, saturate: bool = False) -> np.ndarray:
    """`values` rounded to a format, as float64. Too large becomes infinite, or the largest number with `saturate`."""
    form = FORMATS[dtype]
    values = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(values)
    magnitude = np.where(finite, np.abs(values), 0.0)
    exponent = _quantum_exponent(magnitude, form)
    rounded = np.ldexp(np.rint(np.ldexp(magnitude, -exponent)), exponent)
    rounded = np.where(finite, rounded, np.abs(values))
    beyond = form.largest if saturate or form.infinity is None else np.inf
    rounded = np.where(rounded > form.largest, beyond, rounded)
    return np.copysign(rounded, values)


def to_bits(values: np.ndarray, dtype: str, *, saturate: bool = False) -> np.ndarray:
    """The bit patterns (uint8, uint16 or uint32) of `values` rounded to a format; every NaN is the canonical one."""
    form = FORMATS[dtype]
    rounded = round_to(values, dtype, saturate=saturate)
    magnitude = np.abs(rounded)
    finite = np.isfinite(rounded)
    magnitude = np.where(finite, magnitude, 0.0)
    exponent = _quantum_exponent(magnitude, form)
    mantissa = np.ldexp(magnitude, -exponent).astype(np.int64)
    # A normal number's mantissa carries its leading one into the exponent field, a subnormal one's does not.
    field = exponent + form.mantissa_bits - form.smallest_exponent
    code = (field.astype(np.int64) << form.mantissa_bits) + mantissa
    if form.infinity is not None:
        code = np.where(np.isinf(rounded), form.infinity, code)
    code = np.where(np.signbit(rounded), code | form.sign, code)
    return np.where(np.isnan(rounded), form.nan, code).astype(form.code_dtype)


def from_bits(codes: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers (float64) of bit patterns."""
    form = FORMATS[dtype]
    codes = np.asarray(codes).astype(np.int64)
    magnitude = codes & (form.sign - 1)
    field = magnitude >> form.mantissa_bits
    mantissa = magnitude & ((1 << form.mantissa_bits) - 1)
    leading = np.where(field > 0, 1 << form.mantissa_bits, 0)
    exponent = np.maximum(field, 1) - 1 + form.smallest_exponent - form.mantissa_bits
    values = np.ldexp((leading + mantissa).astype(np.float64), exponent.astype(np.int32))
    if dtype == "e4m3":
        values = np.where(magnitude == form.nan, np.nan, values)
    else:
        special = field == (form.sign - 1) >> form.mantissa_bits
        values = np.where(special, np.where(mantissa == 0, np.inf, np.nan), values)
    return np.where(codes & form.sign != 0, -values, values)


def ordinals(codes: np.ndarray, dtype: str) -> np.ndarray:
    """Integers that are ordered as the numbers of bit patterns are: -0 just below +0, a positive NaN above all."""
    form = FORMATS[dtype]
    codes = np.asarray(codes).astype(np.int64)
    magnitude = codes & (form.sign - 1)
    return np.where(codes & form.sign != 0, -magnitude - 1, magnitude)


def span(values: np.ndarray, error: np.ndarray, dtype: str) -> Span:
    """What a correct rounding of numbers that are known to within `error` (broadcasts) may be.

    Rounding never decreases where its argument grows, so the ends of the interval bound it. Returns float64.
    """
    values = np.asarray(values, dtype=np.float64)
    with np.errstate(invalid="ignore"):  # an infinite number has no interval about it
        below = np.where(np.isfinite(values), values - error, values)
        above = np.where(np.isfinite(values), values + error, values)
    low, exact, high = (round_to(v, dtype) for v in (below, values, above))
    return Span(low, exact, high)

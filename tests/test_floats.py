"""Floating-point formats: against definitions, against numpy's own types, by enumeration."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tqgen.numerics import floats

rng = np.random.default_rng(5)
SAMPLE = np.concatenate(
    [
        rng.normal(size=20_000) * 10.0 ** rng.integers(-46, 39, 20_000),
        [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.99, 65520.0, 65504.0, -65520.0, 2.0**-25, 2.0**-149, 2.0**-150],
    ]
)


def meaning(code, form):
    """The number of a bit pattern, from the definition of the formats."""
    sign = -1.0 if code & form.sign else 1.0
    magnitude = code & (form.sign - 1)
    exponent, mantissa = magnitude >> form.mantissa_bits, magnitude & ((1 << form.mantissa_bits) - 1)
    all_ones = (form.sign >> form.mantissa_bits) - 1
    if form.name == "e4m3":
        if magnitude == 0x7F:
            return math.nan
    elif exponent == all_ones:
        return sign * math.inf if mantissa == 0 else math.nan
    if exponent == 0:
        return sign * mantissa * 2.0 ** (form.smallest_exponent - form.mantissa_bits)
    fraction = 1 + mantissa / 2**form.mantissa_bits
    return sign * fraction * 2.0 ** (exponent - 1 + form.smallest_exponent)


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "fp16", "bf16"])
def test_every_bit_pattern_decodes_and_encodes(name):
    form = floats.FORMATS[name]
    codes = np.arange(2**form.bits)
    values = floats.from_bits(codes, name)
    expected = np.array([meaning(int(code), form) for code in codes])
    assert np.array_equal(values, expected, equal_nan=True)
    number = ~np.isnan(expected)
    assert np.array_equal(np.signbit(values)[number], np.signbit(expected)[number])
    finite = np.isfinite(values)
    assert np.array_equal(floats.to_bits(values[finite], name), codes[finite])
    assert set(floats.to_bits(values[np.isnan(values)], name).tolist()) == {form.nan}


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "fp16", "bf16"])
def test_rounding_is_to_the_nearest_and_to_even(name):
    form = floats.FORMATS[name]
    codes = np.arange(form.sign - 1)
    values = floats.from_bits(codes, name)
    codes, values = codes[np.isfinite(values)], values[np.isfinite(values)]
    middle = (values[:-1] + values[1:]) / 2
    even = np.where(codes[:-1] % 2 == 0, codes[:-1], codes[1:])
    for sign in (1, -1):
        mark = 0 if sign > 0 else form.sign
        assert np.array_equal(floats.to_bits(sign * middle, name), even | mark)
        assert np.array_equal(floats.to_bits(sign * np.nextafter(middle, 0), name), codes[:-1] | mark)
        assert np.array_equal(floats.to_bits(sign * np.nextafter(middle, np.inf), name), codes[1:] | mark)


@pytest.mark.parametrize("name, own, integer", [("fp16", np.float16, np.uint16), ("fp32", np.float32, np.uint32)])
def test_numpy_rounds_alike(name, own, integer):
    with np.errstate(over="ignore"):
        theirs = SAMPLE.astype(own)
    number = ~np.isnan(SAMPLE)
    assert np.array_equal(floats.to_bits(SAMPLE, name)[number], theirs.view(integer)[number])
    assert np.array_equal(floats.round_to(SAMPLE, name), theirs.astype(np.float64), equal_nan=True)
    assert np.array_equal(floats.from_bits(theirs.view(integer), name), theirs.astype(np.float64), equal_nan=True)


def test_bf16_rounds_as_the_upper_half_of_fp32():
    with np.errstate(over="ignore"):
        single = SAMPLE.astype(np.float32)
    bits = single.view(np.uint32).astype(np.int64)
    upper = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    number = ~np.isnan(single)
    assert np.array_equal(floats.to_bits(single, "bf16")[number], upper[number])


def test_e4m3_by_hand():
    values = [1.0, 1.0625, 1.97, -0.49268, 448, 449, 464, 1e4, 2**-6, 2**-9, 1.5 * 2**-10, 2**-10, -0.0, np.nan]
    expected = "38 38 40 B0 7E 7E 7E 7E 08 01 01 00 80 7F"
    assert floats.to_bits(np.array(values), "e4m3").tobytes() == bytes.fromhex(expected)
    assert floats.to_bits(np.array([np.inf, -np.inf, -np.nan]), "e4m3").tobytes() == bytes.fromhex("7E FE 7F")


def test_e5m2_by_hand():
    values = [
        1.0,
        1.125,
        1.375,
        57344,
        61440,
        1e9,
        np.inf,
        -np.inf,
        2**-14,
        2**-16,
        2**-17,
        1.01 * 2**-17,
        -0.0,
        np.nan,
    ]
    expected = "3C 3C 3E 7B 7B 7B 7B FB 04 01 00 01 80 7F"
    assert floats.to_bits(np.array(values), "e5m2").tobytes() == bytes.fromhex(expected)
    assert floats.from_bits(np.array([0x7C, 0xFC]), "e5m2").tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize(
    "name, nan, infinity, largest",
    [("fp16", 0x7E00, 0x7C00, 0x7BFF), ("bf16", 0x7FC0, 0x7F80, 0x7F7F), ("fp32", 0x7FC00000, 0x7F800000, 0x7F7FFFFF)],
)
def test_special_numbers(name, nan, infinity, largest):
    form = floats.FORMATS[name]
    values = np.array([np.nan, -np.nan, np.inf, -np.inf, 1e300, -1e300, form.largest])
    expected = [nan, nan, infinity, infinity | form.sign, infinity, infinity | form.sign, largest]
    assert floats.to_bits(values, name).tolist() == expected
    saturated = [nan, nan, largest, largest | form.sign, largest, largest | form.sign, largest]
    assert floats.to_bits(values, name, saturate=True).tolist() == saturated


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "fp16", "bf16"])
def test_ordinals_follow_the_numbers(name):
    form = floats.FORMATS[name]
    codes = np.arange(2**form.bits)
    values = floats.from_bits(codes, name)
    codes = codes[~np.isnan(values)]
    ranked = codes[np.argsort(floats.ordinals(codes, name))]
    values = floats.from_bits(ranked, name)
    assert np.all(np.diff(values[np.isfinite(values)]) >= 0)
    assert len(set(floats.ordinals(codes, name).tolist())) == len(codes)
    assert floats.ordinals(np.array([form.sign]), name) < floats.ordinals(np.array([0]), name)
    assert floats.ordinals(np.array([form.nan]), name) > floats.ordinals(floats.to_bits(np.inf, name), name)


def test_a_span_is_what_numbers_within_the_error_round_to():
    rng = np.random.default_rng(6)
    values = rng.normal(size=2000) * 10.0 ** rng.integers(-8, 5, 2000)
    error = np.abs(values) * 2.0**-12
    span = floats.span(values, error, "fp16")
    for share in np.linspace(-1, 1, 21):
        rounded = floats.round_to(values + share * error, "fp16")
        assert np.all((span.low <= rounded) & (rounded <= span.high))
    assert np.array_equal(span.low, floats.round_to(values - error, "fp16"))
    assert np.array_equal(span.high, floats.round_to(values + error, "fp16"))
    assert 0 < np.count_nonzero(span.low != span.high) < len(values)


def test_a_span_of_what_is_not_finite():
    span = floats.span(np.array([np.nan, np.inf, -np.inf, 65519.0]), np.full(4, 2.0), "fp16")
    assert np.array_equal(span.low, [np.nan, np.inf, -np.inf, 65504.0], equal_nan=True)
    assert np.array_equal(span.high, [np.nan, np.inf, -np.inf, np.inf], equal_nan=True)


def test_sums_to_odd_keep_what_a_further_rounding_needs():
    """Exact where a float64 is, else that of the two neighbours whose last bit is set."""
    rng = np.random.default_rng(5)
    a, b = (np.ldexp(rng.standard_normal(3000), rng.integers(-40, 41, 3000)) for _ in range(2))
    a[:500], b[:500] = np.ldexp(1.0 + rng.integers(0, 4, 500) / 4, 60), rng.choice([-1.0, 1.0, 3.0, 256.0], 500)
    for left, right in ((a, b), (b, a)):
        for one, other, total in zip(left.tolist(), right.tolist(), floats.sum_to_odd(left, right).tolist()):
            exact = Fraction(one) + Fraction(other)
            if Fraction(total) != exact:
                assert np.float64(total).view(np.int64) % 2 == 1
                assert Fraction(np.nextafter(total, -np.inf)) < exact < Fraction(np.nextafter(total, np.inf))
                assert Fraction(float(exact)) != exact
    special, more = np.array([np.inf, -np.inf, np.nan, np.inf]), np.array([1.0, 1.0, 1.0, -np.inf])
    np.testing.assert_array_equal(floats.sum_to_odd(special, more), [np.inf, -np.inf, np.nan, np.nan])
    assert np.signbit(floats.sum_to_odd(np.array([-0.0]), np.array([-0.0]))).all()

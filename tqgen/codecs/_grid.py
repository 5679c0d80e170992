"""Numbers on a grid that a group's extremes stretch: the arithmetic that `uniform` and `fp8` share, in numpy.

`quantize` computes twice. Once in fp32, operation by operation as it is specified: that is the exact result. And, where
the elements are known only to within an error, once in intervals of float64, for what a correct result may be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tqgen.codecs.base import Span
from tqgen.numerics import floats

ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "half_up": lambda t: np.floor(t + t.dtype.type(0.5)),
    "half_even": np.rint,
    "half_away": lambda t: np.copysign(np.floor(np.abs(t) + t.dtype.type(0.5)), t),
}


def clamped(
    rounding: Callable[[np.ndarray], np.ndarray], lowest: int, highest: int
) -> Callable[[np.ndarray], np.ndarray]:
    """The integer code of a quotient: rounded, clamped as a float, and zero where it is not a number."""
    return lambda t: np.clip(np.nan_to_num(rounding(t), nan=0.0), lowest, highest).astype(np.int64)


@dataclass(frozen=True)
class Grid:
    """How the elements of a group become codes."""

    steps: float  # the scale is the extent of a group divided by this
    code: Callable[[np.ndarray], np.ndarray]  # quotient, fp32 or float64, to an integer; never decreasing
    addend: float  # that `code` adds before it rounds down
    invalid: int  # the code of every element of a group that holds NaN or infinity
    scale_dtype: str
    zero_dtype: str | None  # None: the extent is the largest magnitude, and nothing is subtracted
    scale_floor: float
    stored: bool  # codes are computed with scale and zero as they were rounded for storing
    saturate: bool


def quantize(grid: Grid, groups: int, rotated: np.ndarray, error: np.ndarray, division_ulps: float) -> dict[str, Span]:
    """Codes [..., D] (as `grid.code` numbers them), scale and zero [..., groups] of float64 vectors [..., D]."""
    elements = rotated.reshape(*rotated.shape[:-1], groups, rotated.shape[-1] // groups)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = _in_fp32(grid, elements.astype(np.float32))
        ends = exact, exact
        if np.ndim(error) or division_ulps:
            margin = np.broadcast_to(error, rotated.shape).reshape(elements.shape)
            ends = _in_intervals(grid, elements - margin, elements + margin, division_ulps)
    spans = {}
    for name, values in exact.items():
        # A group that is not finite has one right result, and no interval may lose what fp32 gives. A scale that is too
        # large for its dtype alone is infinite, in a group that is not.
        finite = ~np.isnan(exact["scale"])
        finite = finite[..., None] if name == "codes" else finite
        low = np.where(finite, np.fmin(ends[0][name], values), values)
        high = np.where(finite, np.fmax(ends[1][name], values), values)
        spans[name] = Span(low, values, high)
    spans["codes"] = Span(*(codes.reshape(rotated.shape).astype(np.int64) for codes in spans["codes"].ends))
    return spans


def _in_fp32(grid: Grid, v: np.ndarray) -> dict[str, np.ndarray]:
    """Every operation rounded to fp32, in the order of the specification; `v` is float32 [..., groups, g]."""
    floor = np.float32(grid.scale_floor)
    zero = v.min(-1) if grid.zero_dtype else np.zeros(v.shape[:-1], np.float32)
    extent = v.max(-1) - zero if grid.zero_dtype else np.abs(v).max(-1)
    scale = extent / np.float32(grid.steps)
    finite = np.isfinite(v).all(-1) & np.isfinite(scale)
    scale = np.where(scale > floor, scale, floor)
    parts = _stored(grid, scale, zero)
    if grid.stored:
        scale = np.maximum(parts["scale"].astype(np.float32), floor)
        zero = parts["zero"].astype(np.float32) if grid.zero_dtype else zero
    numerator = v - zero[..., None]
    codes = np.where(finite[..., None], grid.code(numerator / scale[..., None]), grid.invalid)
    return {"codes": codes} | {name: np.where(finite, values, np.nan) for name, values in parts.items()}


def _stored(grid: Grid, scale: np.ndarray, zero: np.ndarray) -> dict[str, np.ndarray]:
    parts = {"scale": floats.round_to(scale, grid.scale_dtype, saturate=grid.saturate)}
    if grid.zero_dtype:
        parts["zero"] = floats.round_to(zero, grid.zero_dtype, saturate=grid.saturate)
    return parts


def _in_intervals(
    grid: Grid, below: np.ndarray, above: np.ndarray, division_ulps: float
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The least and the greatest of each part, for elements in [below, above], float64 [..., groups, g]."""
    floor = float(np.float32(grid.scale_floor))
    # A division is right to half a unit in the last place, or wrong by `division_ulps` units; a unit is two roundings.
    slack = (2 + 2 * division_ulps) * floats.ROUNDING
    if grid.zero_dtype:
        zero = below.min(-1), above.min(-1)
        extent = below.max(-1) - zero[1], above.max(-1) - zero[0]
    else:
        zero = np.zeros(below.shape[:-1]), np.zeros(below.shape[:-1])
        nearest = np.where((below <= 0) & (above >= 0), 0.0, np.minimum(np.abs(below), np.abs(above)))
        extent = nearest.max(-1), np.maximum(np.abs(below), np.abs(above)).max(-1)
    scale = (
        np.maximum(extent[0] / grid.steps * (1 - slack), floor),
        np.maximum(extent[1] / grid.steps * (1 + slack), floor),
    )
    parts = _stored(grid, scale[0], zero[0]), _stored(grid, scale[1], zero[1])
    if grid.stored:
        scale = np.maximum(parts[0]["scale"], floor), np.maximum(parts[1]["scale"], floor)
        zero = (parts[0]["zero"], parts[1]["zero"]) if grid.zero_dtype else zero
    least, most = (s[..., None] for s in scale)
    low, high = below - zero[1][..., None], above - zero[0][..., None]
    low = low / np.where(low >= 0, most, least)
    high = high / np.where(high >= 0, least, most)
    parts[0]["codes"] = grid.code(low - _quotient_slack(grid, low, slack))
    parts[1]["codes"] = grid.code(high + _quotient_slack(grid, high, slack))
    return parts


def _quotient_slack(grid: Grid, quotient: np.ndarray, slack: float) -> np.ndarray:
    """What the difference, the quotient and the addition before rounding down may be wrong by."""
    addition = np.abs(quotient) + grid.addend if grid.addend else 0.0
    return (slack + floats.ROUNDING) * np.abs(quotient) + floats.ROUNDING * addition


def elementwise(rotated: np.ndarray, error: np.ndarray, dtype: str, *, saturate: bool = False) -> Span:
    """The codes [..., D] of vectors that are rounded element by element to a floating-point format."""
    with np.errstate(over="ignore"):
        exact = floats.to_bits(rotated.astype(np.float32), dtype, saturate=saturate)
    if not np.ndim(error):
        return Span(exact, exact, exact)
    with np.errstate(invalid="ignore"):
        below, above = rotated - error, rotated + error
    # A sum that is zero may be so with either sign. What is no number has one right result.
    known = np.isfinite(rotated)
    low = floats.to_bits(np.where(below == 0, -0.0, below), dtype, saturate=saturate)
    high = floats.to_bits(np.where(above == 0, 0.0, above), dtype, saturate=saturate)
    order = floats.ordinals(exact, dtype)
    low = np.where(known & (floats.ordinals(low, dtype) < order), low, exact)
    high = np.where(known & (floats.ordinals(high, dtype) > order), high, exact)
    return Span(low, exact, high)


def from_ordinals(order: np.ndarray, dtype: str) -> np.ndarray:
    """The bit patterns that `floats.ordinals` numbers."""
    return np.where(order < 0, (-order - 1) | floats.FORMATS[dtype].sign, order)


def decode(codes: np.ndarray, scale: np.ndarray, zero: np.ndarray | None) -> np.ndarray:
    """codes [..., D] * scale [..., groups] + zero [..., groups], in float64."""
    grouped = codes.reshape(*scale.shape, codes.shape[-1] // scale.shape[-1])
    with np.errstate(invalid="ignore"):
        numbers = grouped * scale[..., None]
        numbers = numbers if zero is None else numbers + zero[..., None]
    return numbers.reshape(codes.shape)


def decode_span(codes: np.ndarray, scale: np.ndarray, zero: np.ndarray | None) -> Span:
    """`decode` in fp32: product and sum rounded one after the other, which is `exact` here, or fused."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = decode(codes, scale, None)
        rounded = product.astype(np.float32)
        if zero is None:
            exact = rounded.astype(np.float64)
            return Span(exact, exact, exact)
        shift = np.broadcast_to(zero[..., None], (*zero.shape, codes.shape[-1] // zero.shape[-1])).reshape(codes.shape)
        fused = floats.sum_to_odd(product, shift.astype(np.float64)).astype(np.float32).astype(np.float64)
        separate = (rounded + shift.astype(np.float32)).astype(np.float64)
    return Span(np.minimum(separate, fused), separate, np.maximum(separate, fused))

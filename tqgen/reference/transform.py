"""Between given vectors and the space that a codec sees, in float64, with bounds of what fp32 arithmetic gives.

Forward: the policy for numbers that are not finite, the centre, the norm, the rotation. Back: the inverse rotation and
the centre. A product of a rotation is known to within `floats.accumulation` of the sum of magnitudes that enters it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tqgen.codecs.base import Span
from tqgen.layout import Side
from tqgen.numerics import floats, rotations

SATURATED = {"fp16": 65504.0}  # the largest magnitude that `saturate` lets in where a side stores fp16
SATURATED_OTHERWISE = 2.0**56  # its square, times a head dimension of up to 2**15, is finite in fp32


@dataclass(frozen=True)
class Transformed:
    """Vectors as a codec sees them: float64 [..., D], the error of each element, and the length before rotation."""

    vectors: np.ndarray
    error: np.ndarray  # a scalar 0 where the vectors are fp32 numbers and exact
    norm: Span  # float64 [...]


def largest_magnitude(side: Side) -> float:
    """What `non_finite: saturate` clamps elements to: numbers whose parts the stored dtypes can hold."""
    stored = {part.dtype for part in side.parts} | {getattr(side.parameters, "dtype", None)}
    return SATURATED["fp16"] if "fp16" in stored else SATURATED_OTHERWISE


def forward(
    side: Side, vectors: np.ndarray, *, rotation: np.ndarray | None = None, center: np.ndarray | None = None
) -> Transformed:
    """Vectors [..., H, D] (float64, the exact inputs) as the codec of `side` sees them.

    `rotation` [D, D] is for sides rotated by a matrix, `center` [H, D] for centred ones; ValueError where one is
    missing or superfluous.
    """
    check_run_time(side, rotation, center)
    x = np.asarray(vectors, dtype=np.float64)
    if side.parameters.non_finite == "saturate":
        limit = largest_magnitude(side)
        x = np.clip(np.nan_to_num(x, nan=0.0, posinf=limit, neginf=-limit), -limit, limit)
    magnitude = np.abs(x)
    if center is not None:
        center = np.asarray(center, dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            x = (x.astype(np.float32) - center).astype(np.float64)
        # The centre may be taken off after the rotation as well, so its own magnitude enters the bound.
        magnitude = magnitude + np.abs(center)
    norm = _length(x)
    if side.rotation.kind == "none":
        return Transformed(x, np.zeros(()), norm)
    matrix = rotations.matrix(side.rotation, side.head_dim, rotation)
    finite = np.isfinite(x).all(-1, keepdims=True)
    rotated = np.where(finite, x, 0.0) @ matrix
    magnitude = np.where(finite, magnitude, 0.0)
    error = floats.accumulation(side.rotation.size) * (magnitude @ np.abs(matrix))
    # Products may be flushed to zero; those of zeros are zero.
    error += np.where(magnitude.any(-1, keepdims=True), side.head_dim * floats.SMALLEST_NORMAL, 0.0)
    # A vector that holds NaN or infinity has no finite element after a rotation.
    return Transformed(np.where(finite, rotated, np.nan), error, norm)


def _length(x: np.ndarray) -> Span:
    """sqrt(sum of squares) of the last axis; infinite where the sum overflows in fp32."""
    count = x.shape[-1]
    with np.errstate(over="ignore", invalid="ignore"):
        total = (x * x).sum(-1)
        error = floats.accumulation(count) * total + np.where(total > 0, count * floats.SMALLEST_NORMAL, 0.0)
        sums = np.maximum(total - error, 0.0), total, total + error
        factors = 1 - floats.ROUNDING, 1.0, 1 + floats.ROUNDING
        with_overflow = (np.where(np.isinf(s.astype(np.float32)), np.inf, s) for s in sums)
        low, exact, high = (np.sqrt(s) * factor for s, factor in zip(with_overflow, factors, strict=True))
        # Infinity minus infinity: a length that is not finite is exactly that.
        known = np.isfinite(exact)
        return Span(np.where(known, low, exact), exact, np.where(known, high, exact))


def backward(
    side: Side,
    rotated: Span,
    dtype: str,
    *,
    rotation: np.ndarray | None = None,
    center: np.ndarray | None = None,
) -> Span:
    """Model-space vectors [..., H, D] in `dtype` from rotated ones: y @ R.T + center, rounded.

    With fp16 the rotated vector is first rounded to fp16. A result that is not finite, from a rotated vector with
    elements that are not, is a span from -inf to inf about NaN: any number that is not finite.
    """
    check_run_time(side, rotation, center)
    if side.rotation.kind != "none" and dtype == "fp16":
        rotated = Span(*(floats.round_to(end, "fp16") for end in rotated.ends))
    model, error = rotated.exact, np.zeros(())
    with np.errstate(invalid="ignore"):
        margin = np.maximum(rotated.exact - rotated.low, rotated.high - rotated.exact)
    if side.rotation.kind != "none":
        matrix = rotations.matrix(side.rotation, side.head_dim, rotation).T
        finite = np.isfinite(rotated.exact).all(-1, keepdims=True)
        known = np.where(finite, rotated.exact, 0.0)
        model = np.where(finite, known @ matrix, np.nan)
        size = np.abs(known) @ np.abs(matrix)
        error = floats.accumulation(side.rotation.size) * size
        error += np.where(known.any(-1, keepdims=True), side.head_dim * floats.SMALLEST_NORMAL, 0.0)
        margin = np.where(finite, margin, 0.0) @ np.abs(matrix)
    if center is not None:
        model = model + np.asarray(center, dtype=np.float64)
        error = error + floats.ROUNDING * np.abs(model)
    result = floats.span(model, error + np.nan_to_num(margin), dtype)
    if side.rotation.kind == "none":
        return result
    return Span(np.where(finite, result.low, -np.inf), result.exact, np.where(finite, result.high, np.inf))


def check_run_time(side: Side, rotation: np.ndarray | None, center: np.ndarray | None) -> None:
    """ValueError unless the run-time arrays are those that the side takes."""
    for name, given, wanted in (
        ("rotation", rotation, side.rotation.kind == "matrix"),
        ("center", center, side.parameters.center),
    ):
        if wanted and given is None:
            raise ValueError(f"{side.name}_{name} is not given, and this layout needs one")
        if given is not None and not wanted:
            raise ValueError(f"{side.name}_{name} is given, and this layout takes none")

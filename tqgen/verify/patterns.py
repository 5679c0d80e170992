"""Input vectors that find mistakes: what a cell of the verification matrix stores.

Every pattern is a function of a shape and a seed, and gives the same numbers everywhere: float64 arrays of numbers that
the input dtype holds exactly.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tqgen.layout import Side
from tqgen.numerics import floats

Shape = tuple[int, int, int]  # tokens, heads, head_dim
Pattern = Callable[[np.random.Generator, Shape, Side, str], np.ndarray]

LARGEST_FP16 = 65504.0
# Keys (after RoPE) and values [tokens, heads, 64] of SmolLM2-135M-Instruct, layer 29, on English text, as bf16 bits.
ACTIVATIONS = Path(__file__).parent / "data" / "activations.npz"


def _normal(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
    return rng.standard_normal(shape)


@functools.cache
def _activations(side: str) -> np.ndarray:
    with np.load(ACTIVATIONS) as arrays:
        return floats.from_bits(arrays[side], "bf16")


def _real(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
    """Activations of a small model; other shapes repeat its heads along the channels, and its tokens."""
    rows = _activations(side.name)
    return np.resize(rows.reshape(len(rows), -1), (shape[0], shape[1] * shape[2])).reshape(shape)


def _mean_offset(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
    return 2.0 + rng.standard_normal(shape)


def _outlier_channel(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
    vectors = rng.standard_normal(shape)
    vectors[..., shape[2] // 3] *= 100
    return vectors


def _constant(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
    return np.broadcast_to(np.array([3.0, 0.1, -7.0])[np.arange(shape[0]) % 3, None, None], shape).copy()


def _one_different(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
    vectors = np.ones(shape)
    token, head, _ = np.indices(shape)
    element = (7 * token + 3 * head) % shape[2]
    np.put_along_axis(vectors, element[..., :1], 10.0, axis=-1)
    return vectors


def _zeros(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
    return np.zeros(shape)


def _negative_zero(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
    return np.where(rng.random(shape) < 0.5, -0.0, np.where(np.arange(shape[2]) % 2, 0.0, 1.0))


def _tiny(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
    """Far below every guard, as small as guards are, or above them; below the smallest normal number of fp16."""
    return 10.0 ** (np.arange(shape[0]) % 3 - 9)[:, None, None] * rng.standard_normal(shape)


def _subnormal(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
    """Multiples of the smallest subnormal number of the input dtype."""
    form = floats.FORMATS[dtype]
    return np.ldexp(rng.integers(-40, 41, shape).astype(float), form.smallest_exponent - form.mantissa_bits)


def _large(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
    """The largest magnitudes of fp16, of either sign."""
    return LARGEST_FP16 * rng.choice([-1.0, 1.0], shape)


def _long(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
    """Vectors longer than fp16 holds, with elements that it holds, rotated or not.

    A length times the outermost level of many is beyond fp16, too; no element is.
    """
    sigma = np.geomspace(1e4, 2e4, 5)[np.arange(shape[0]) % 5, None, None]
    return sigma * np.clip(rng.standard_normal(shape), -3, 3)


def _huge(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
    """Beyond fp16, where the input dtype goes there; from one vector to the next also beyond what fp32 can square."""
    exponents = np.array([5.0, 9.0, 15.0, 25.0, 37.0])[np.arange(shape[0]) % 5]
    vectors = rng.uniform(-1, 1, shape) * 10.0 ** exponents[:, None, None]
    if side.rotation.kind == "none":  # sums of these overflow or not, as their order will have it
        vectors[2::5, ::2] = floats.FORMATS[dtype].largest
    return vectors


def _with(value: float) -> Pattern:
    def pattern(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
        vectors = rng.standard_normal(shape)
        # every other vector, so that a neighbour that is touched shows
        for token, head in np.ndindex(*shape[:2]):
            if (token + head) % 2 == 0:
                vectors[token, head, rng.integers(shape[2])] = math.copysign(value, rng.choice([-1.0, 1.0]))
        return vectors

    return pattern


def _ties(rng: np.random.Generator, shape: Shape, side: Side, dtype: str) -> np.ndarray:
    """Values that lie exactly between two codes of this side's codec, as far as there are any."""
    name = side.codec.name
    parameters: Any = side.parameters  # those of the codec that the name says
    if name == "mse" or side.rotation.kind != "none":
        # two elements of one magnitude: a Hadamard rotation cancels half of them to exactly zero, which is an edge
        vectors = np.zeros(shape)
        for token, head in np.ndindex(*shape[:2]):
            pair = rng.choice(shape[2], 2, replace=shape[2] < 2)
            vectors[token, head, pair] = 2.0 ** rng.integers(-3, 4) * rng.choice([-1.0, 1.0], 2)
        return vectors
    if name == "uniform":
        symmetric = parameters.symmetric
        top = 2 ** (parameters.bits - 1) - 1 if symmetric else 2**parameters.bits - 1
        vectors = rng.integers(-2 * top if symmetric else 0, 2 * top + 1, shape) / 2
        group = parameters.group or shape[2]
        vectors[..., ::group] = top  # makes the scale of a group exactly one
        if group > 1 and not symmetric:
            vectors[..., 1::group] = 0
        return vectors
    if name == "fp8":
        mantissa_bits = floats.FORMATS[parameters.format].mantissa_bits
        between = 1 + (2 * rng.integers(0, 2**mantissa_bits, shape) + 1) / 2 ** (mantissa_bits + 1)
        vectors = np.ldexp(between, rng.integers(-5, 8, shape)) * rng.choice([-1.0, 1.0], shape)
        vectors[..., :: parameters.group or shape[2]] = floats.FORMATS[parameters.format].largest
        return vectors
    # 16-bit floats: one bit more than bf16 has
    return (1 + (2 * rng.integers(0, 128, shape) + 1) / 256) * rng.choice([-1.0, 1.0], shape)


PATTERNS: dict[str, Pattern] = {
    "normal": _normal,
    "real": _real,
    "mean_offset": _mean_offset,
    "outlier_channel": _outlier_channel,
    "constant": _constant,
    "one_different": _one_different,
    "zeros": _zeros,
    "negative_zero": _negative_zero,
    "tiny": _tiny,
    "subnormal": _subnormal,
    "large": _large,
    "huge": _huge,
    "nan": _with(math.nan),
    "inf": _with(math.inf),
    "ties": _ties,
    "long": _long,
}


def vectors(pattern: str, shape: Shape, side: Side, dtype: str, seed: int) -> np.ndarray:
    """Input vectors [tokens, heads, head_dim], float64, of numbers that `dtype` (fp16, bf16, fp32) has.

    Numbers that the dtype cannot hold become its largest, so that infinities come from the pattern `inf` alone.
    """
    rng = np.random.default_rng([seed, len(side.name), list(PATTERNS).index(pattern)])
    wanted = PATTERNS[pattern](rng, shape, side, dtype)
    saturated = np.where(np.isinf(wanted), wanted, floats.round_to(wanted, dtype, saturate=True))
    return np.where(np.isnan(wanted), wanted, saturated)  # of either sign

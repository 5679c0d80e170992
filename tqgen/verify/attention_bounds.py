"""How far a right attention may be from float64 attention over the same bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tqgen import reference
from tqgen.layout import Layout
from tqgen.numerics import floats, rotations

FP16_ROUNDING = 2.0**-11
DEVIATIONS = 8
GATHERED = 4  # how much larger than one rounding a rotated sum of independent ones may be
FP32_SLACK = 2.0**-18  # sums of a few thousand fp32 terms, exp2 and log2 of the hardware


def bounds(
    layout: Layout,
    query: np.ndarray,
    cache: np.ndarray,
    table: np.ndarray,
    lengths: Sequence[int],
    options: Mapping[str, Any],
    sinks: np.ndarray | None,
    arguments: dict[str, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Largest errors of outputs [B, T, Hq, Dv] and of logarithms [B, T, Hq] that the arithmetic allows.

    Each element of a query and of a key's tile is rounded to fp16, at most u = 2**-11 of itself, independently and
    evenly: a score is off by a sum of standard deviation u * sqrt(2 / 3) * sqrt(sum (q_i k_i)**2) * scale. DEVIATIONS
    of them, e, are a bound with a chance of failure below 1e-14 a score. A logarithm is off by at most the largest e.
    An output sum p v is off by at most sum p (exp(e) - 1) |v - output|, and by the rounding to fp16 of the weights and
    of the value's tile, sum p 2 u |v| of values as they are stored, which an orthogonal matrix may gather.
    """
    size, side = cache.shape[1], layout.value
    scale = options.get("softmax_scale", 1 / math.sqrt(layout.key.head_dim))  # of either sign
    outputs, logarithms = [], []
    for rows, blocks, length in zip(query, table, lengths, strict=True):
        positions = np.arange(length)
        slots = blocks.astype(np.int64)[positions // size] * size + positions % size
        keys = reference.decoded_vectors(layout, cache, slots, "key", space="rotated")
        values = reference.decoded_vectors(
            layout,
            cache,
            slots,
            "value",
            rotation=arguments.get("value_rotation"),
            center=arguments.get("value_center"),
        )
        group = rows.shape[1] // keys.shape[1]
        keys, values = (np.repeat(array, group, axis=1) for array in (keys, values))
        rotated = _rotated(layout, rows.astype(np.float64), arguments.get("key_rotation"))
        scores = np.einsum("thd,shd->hts", rotated, keys) * scale
        off = np.sqrt(np.einsum("thd,shd->hts", rotated**2, keys**2)) * abs(scale) * FP16_ROUNDING * math.sqrt(2 / 3)
        floor = FP32_SLACK * (1 + np.abs(scores))
        error = DEVIATIONS * off + floor
        if "softcap" in options:
            scores = options["softcap"] * np.tanh(scores / options["softcap"])
        own = length - len(rows) + np.arange(len(rows))[:, None]
        seen = positions <= own
        if "window" in options:
            seen &= positions > own - options["window"]
        scores = np.where(seen, scores, -np.inf)
        peak = scores.max(-1, initial=-np.inf, keepdims=True)
        if sinks is not None:
            peak = np.maximum(peak, sinks[:, None, None])
        shift = np.where(np.isinf(peak), 0.0, peak)  # a query may see nothing, and have no sink
        weights = np.exp(scores - shift)
        total = weights.sum(-1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(sinks[:, None, None] - shift)
        shares = weights / np.where(total == 0, 1.0, total)
        result = np.einsum("hts,shd->htd", shares, values)
        error = np.where(seen, error, 0.0)
        growth = np.expm1(error)
        away = np.abs(values.transpose(1, 0, 2)[:, None] - result[:, :, None])
        bound = np.einsum("hts,htsd->htd", shares * growth, away)
        stored = np.repeat(reference.decoded_vectors(layout, cache, slots, "value", space="rotated"), group, axis=1)
        # a tile's numbers are counted from the middle of a vector's range, so that any may be as large as its largest
        stored = np.broadcast_to(np.abs(stored).max(-1, keepdims=True, initial=0.0), stored.shape)
        tile = np.einsum("hts,shd->htd", shares, stored)
        gathered = tile if side.rotation.kind == "none" else GATHERED * tile.max(-1, keepdims=True, initial=0.0)
        bound += 2 * FP16_ROUNDING * gathered + FP32_SLACK * np.abs(stored).max(initial=0.0)
        outputs.append(bound.transpose(1, 0, 2))
        height = np.abs(shift)[..., 0]
        logarithms.append((error.max(-1, initial=0.0) + FP32_SLACK * (1 + height)).T)
    return np.stack(outputs), np.stack(logarithms)


def _rotated(layout: Layout, rows: np.ndarray, rotation: np.ndarray | None) -> np.ndarray:
    return rows @ rotations.matrix(layout.key.rotation, layout.key.head_dim, rotation)


def output_rounding(values: np.ndarray, dtype: str) -> np.ndarray:
    """Half a unit in the last place of `dtype`, twice over where a result is rounded on the way back as well.

    Below the normal numbers of a dtype a unit is the smallest of them, and a rotation adds up those of a whole vector:
    sum |R_ij| is at most the root of its length.
    """
    relative = {"fp16": 2.0**-10, "bf16": 2.0**-7, "fp32": 2.0**-18}[dtype]
    largest = np.abs(values).max(-1, keepdims=True, initial=0.0)
    form = floats.FORMATS[dtype]
    smallest = 2.0 ** (form.smallest_exponent - form.mantissa_bits)
    small = (1 + math.sqrt(values.shape[-1])) * smallest / 2 + floats.SMALLEST_NORMAL
    return relative * np.abs(values) + 2.0**-14 * largest + small

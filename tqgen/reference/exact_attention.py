"""Softmax attention of one sequence in float64."""

from __future__ import annotations

import numpy as np


def attend(
    query: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    softmax_scale: float,
    *,
    sinks: np.ndarray | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Causal attention of the queries [T, Hq, D] at the last T of S positions over keys, values [S, H, D].

    The query heads of a KV head are neighbours: query head i reads KV head i // (Hq / H). score = scale * q . k, capped
    as softcap * tanh(score / softcap) where `softcap` is given. Query t sees positions up to its own, S - T + t, and of
    those the last `window` where it is given. `sinks` [Hq] are scores of a position without a value.

    Returns the output [T, Hq, Dv] and the natural logarithm of the sum of exponentials [T, Hq], sinks included. A query
    that sees nothing gives zeros, and minus infinity where there is no sink either. A sink of minus infinity is none;
    one that is infinite or NaN leaves no number of its head, also where nothing is seen.
    """
    num_queries, num_heads, _ = query.shape
    num_positions, num_kv_heads, _ = keys.shape
    if num_heads % num_kv_heads:
        raise ValueError(f"{num_heads} query heads are not a multiple of {num_kv_heads} KV heads")
    grouped = query.astype(np.float64).reshape(num_queries, num_kv_heads, -1, query.shape[-1])
    scores = np.einsum("thgd,shd->hgts", grouped, keys, optimize=True) * softmax_scale
    scores = scores.reshape(num_heads, num_queries, num_positions)
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    own = num_positions - num_queries + np.arange(num_queries)[:, None]
    position = np.arange(num_positions)
    visible = position <= own
    if window is not None:
        visible &= position > own - window
    scores = np.where(visible, scores, -np.inf)
    highest = scores.max(-1, initial=-np.inf)
    if sinks is not None:
        highest = np.maximum(highest, np.asarray(sinks, dtype=np.float64)[:, None])
    shift = np.where(np.isneginf(highest), 0.0, highest)
    weights = np.exp(scores - shift[..., None])
    total = weights.sum(-1)
    if sinks is not None:
        with np.errstate(invalid="ignore"):  # an infinite sink less itself
            total = total + np.exp(np.asarray(sinks, dtype=np.float64)[:, None] - shift)
    empty = total == 0
    shares = weights / np.where(empty, 1.0, total)[..., None]
    logarithm = np.where(empty, -np.inf, shift + np.log(np.where(empty, 1.0, total)))
    # A position that is not seen contributes nothing, whatever it holds.
    shares = shares.reshape(num_kv_heads, num_heads // num_kv_heads, num_queries, num_positions)
    seen = visible.any(0)
    output = np.einsum("hgts,shd->thgd", shares[..., seen], values[seen], optimize=True)
    output = output.reshape(num_queries, num_heads, values.shape[-1])
    return np.where(np.isnan(total.T)[..., None], np.nan, output), logarithm.T

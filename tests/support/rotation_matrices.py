"""Matrices that vectors are rotated by at run time, of every kind that kernels tell apart."""

from __future__ import annotations

import numpy as np

KINDS = ("orthogonal", "identity", "permutation", "noisy", "blocks")


def matrix_of(kind: str, head_dim: int) -> np.ndarray:
    """fp32 [head_dim, head_dim]. `noisy` and `tiny` have elements below 2**-27, not zero, which two fp16 parts lose."""
    rng = np.random.default_rng(head_dim)
    if kind == "identity":
        return np.eye(head_dim, dtype=np.float32)
    if kind == "permutation":
        signs = rng.choice([-1, 1], head_dim)
        return (np.eye(head_dim)[rng.permutation(head_dim)] * signs).astype(np.float32)
    if kind == "noisy":  # as rounding leaves it where zeros are meant
        noise = rng.standard_normal((head_dim, head_dim)) * 2.0 ** rng.integers(-60, -36, (head_dim, head_dim))
        noise[0] = noise[:, 0] = 0  # one row and one column that two parts hold: none of the others may go by them
        return (np.eye(head_dim) + noise).astype(np.float32)
    if kind == "tiny":  # all of it smaller than what two parts hold
        return (2.0**-31 * matrix_of("orthogonal", head_dim)).astype(np.float32)
    if kind == "blocks":
        half = np.linalg.qr(rng.standard_normal((head_dim // 2, head_dim // 2)))[0]
        small = np.full_like(half, 2.0**-27)
        return np.block([[half, small], [-small.T, half]]).astype(np.float32)
    return np.linalg.qr(rng.standard_normal((head_dim, head_dim)))[0].astype(np.float32)

"""Orthogonal transforms of a side's vectors, and the signs that are pinned for one of them.

Everything is in terms of row vectors: y = x @ R, and back x = y @ R.T.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from tqgen.layout import Rotation

SIGNS_NAME = "tqgen signed_hadamard"


@cache
def pinned_signs(head_dim: int) -> tuple[int, ...]:
    """The +1 and -1 of `signed_hadamard`: element i is -1 where bit i of a fixed stream is set.

    The stream is SHA-256 of the name and a block counter, `tqgen signed_hadamard 0`, `.. 1` and so on, 256 bits each,
    least significant bit of the first byte first. Shorter vectors take a prefix of it, so the signs of one head
    dimension never depend on another's. They are part of the layout: a cache written with other signs is unreadable.
    """
    signs: list[int] = []
    for block in range(-(-head_dim // 256)):
        digest = hashlib.sha256(f"{SIGNS_NAME} {block}".encode()).digest()
        signs += [1 - 2 * ((byte >> bit) & 1) for byte in digest for bit in range(8)]
    return tuple(signs[:head_dim])


def sylvester(size: int) -> np.ndarray:
    """The Sylvester Hadamard matrix [size, size] of +1 and -1, float64; ValueError unless `size` is a power of two.

    Entry (i, j) is -1 where the number of common set bits of i and j is odd.
    """
    import numpy as np

    if size < 1 or size & (size - 1):
        raise ValueError(f"a Sylvester Hadamard matrix has a power of two of rows, not {size}")
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def matrix(rotation: Rotation, head_dim: int, given: np.ndarray | None = None) -> np.ndarray:
    """R [head_dim, head_dim] in float64, so that y = x @ R; `given` is the run-time matrix of kind `matrix`."""
    import numpy as np

    if rotation.kind == "none":
        return np.eye(head_dim)
    if rotation.kind == "matrix":
        if given is None:
            raise ValueError("this side is rotated by a matrix that is given at run time, and none is given")
        given = np.asarray(given, dtype=np.float64)
        if given.shape != (head_dim, head_dim):
            raise ValueError(f"the rotation is {list(given.shape)}, expected [{head_dim}, {head_dim}]")
        return given
    block = sylvester(rotation.size) / np.sqrt(float(rotation.size))
    result = np.kron(np.eye(head_dim // rotation.size), block)
    if rotation.kind == "signed_hadamard":
        result = np.asarray(rotation.signs, dtype=np.float64)[:, None] * result
    return result

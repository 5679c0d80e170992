"""Rotations are orthogonal, and their signs are pinned."""

import hashlib

import numpy as np
import pytest

from tqgen.layout import Rotation
from tqgen.numerics import rotations

PINNED = "65f54436dc6caf30eb748c306e94fa9618c21bdfcc5ce206bbaf045c120eed69"


def test_pinned_signs_never_change():
    signs = rotations.pinned_signs(256)
    assert signs[:16] == (-1, -1, -1, 1, -1, 1, -1, 1, -1, 1, 1, -1, -1, 1, -1, 1)
    text = "".join("+-"[sign < 0] for sign in rotations.pinned_signs(1024))
    assert hashlib.sha256(text.encode()).hexdigest() == PINNED
    assert set(signs) == {1, -1}


@pytest.mark.parametrize("head_dim", [1, 64, 80, 96, 128, 255, 257])
def test_signs_are_a_prefix(head_dim):
    assert rotations.pinned_signs(head_dim) == rotations.pinned_signs(1024)[:head_dim]
    assert len(rotations.pinned_signs(head_dim)) == head_dim


def test_sylvester_by_hand():
    assert rotations.sylvester(1).tolist() == [[1]]
    assert rotations.sylvester(4).tolist() == [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]
    size = 64
    parity = [[bin(i & j).count("1") % 2 for j in range(size)] for i in range(size)]
    assert np.array_equal(rotations.sylvester(size), 1 - 2 * np.array(parity))
    for wrong in (0, 3, 96):
        with pytest.raises(ValueError, match="power of two"):
            rotations.sylvester(wrong)


@pytest.mark.parametrize("kind", ["none", "hadamard", "signed_hadamard", "matrix"])
@pytest.mark.parametrize("head_dim, size", [(64, 64), (96, 32), (80, 16), (128, 128), (128, 32)])
def test_rotations_are_orthogonal(kind, head_dim, size):
    signs = rotations.pinned_signs(head_dim) if kind == "signed_hadamard" else ()
    rotation = Rotation(kind, size if "hadamard" in kind else head_dim, signs)
    given, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(head_dim, head_dim)))
    matrix = rotations.matrix(rotation, head_dim, given)
    assert np.allclose(matrix @ matrix.T, np.eye(head_dim), atol=1e-14)
    if "hadamard" in kind:
        # Blocks on the diagonal, and nothing beside them.
        inside = np.kron(np.eye(head_dim // size), np.ones((size, size)))
        assert np.array_equal(np.abs(matrix) > 0, inside > 0)


def test_signs_come_before_the_transform():
    signs = rotations.pinned_signs(8)
    rotation = Rotation("signed_hadamard", 8, signs)
    x = np.arange(8.0)
    expected = (x * signs) @ rotations.sylvester(8) / np.sqrt(8)
    assert np.allclose(x @ rotations.matrix(rotation, 8), expected)


def test_a_given_matrix_is_checked():
    rotation = Rotation("matrix", 4)
    with pytest.raises(ValueError, match="none is given"):
        rotations.matrix(rotation, 4)
    with pytest.raises(ValueError, match=r"\[3, 3\], expected \[4, 4\]"):
        rotations.matrix(rotation, 4, np.eye(3))

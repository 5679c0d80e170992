"""Codes of a codebook guessed by arithmetic, to within one: one comparison then decides."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tqgen.numerics.literals import fp32


@dataclass(frozen=True)
class Guess:
    """A code to within one by arithmetic: it is n or n + 1, n the integer nearest to P(clamp(z * scale + 0.5, 0, 1)).

    Whether z is past edge n decides. `terms` are the coefficients of P from the highest power to the first; there is
    no constant term. Numbers are literals.
    """

    scale: str
    terms: tuple[str, ...]

    def source(self, position: str) -> str:
        """Source of the integer nearest to P, next to 1.5 * 2**23."""
        first, *rest = self.terms
        written = first
        for term in (*rest, "12582912.0"):
            written = f"tl.fma({position}, {written}, {term})"
        return written


# How far P may be from the middle of what is right; at one half an edge would be missed.
GUESS_TOLERANCE = 0.42


def guess(edges: tuple[float, ...]) -> Guess | None:
    """A polynomial of degree 1 or 3 that guesses codes between ascending edges, symmetric; None without one."""
    half = [(edge, float(n)) for n, edge in enumerate(edges[len(edges) // 2 :]) if edge > 0]
    if not half or any(abs(low + high) > 1e-9 for low, high in zip(edges, reversed(edges), strict=True)):
        return None
    top = (len(edges) - 1) / 2
    for odd in (1, 2):
        # Weighted least squares, whose weights grow where the error is large, come close to the least maximum.
        weights = [1.0] * len(half)
        for _ in range(1000):
            a, b = _fitted(half, weights, odd)
            errors = [abs(a * z + b * z**3 - n) for z, n in half]
            weights = [w * (1e-3 + e) ** 0.05 for w, e in zip(weights, errors, strict=True)]
        # P must rise up to where it reaches the last code, and is clamped there.
        low, high = 0.0, min(2 * half[-1][0], (a / (-3 * b)) ** 0.5 if b < 0 else math.inf)
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if a * middle + b * middle**3 < top else (low, middle)
        reaches = abs(a * high + b * high**3 - top) < 1e-6
        if reaches and max(errors) < GUESS_TOLERANCE:
            # z = 2 * high * (t - 0.5)
            cubic = b * (2 * high) ** 3
            terms = (cubic, -1.5 * cubic, a * 2 * high + 0.75 * cubic)
            return Guess(fp32(0.5 / high), tuple(map(fp32, terms if odd == 2 else terms[2:])))
    return None


def _fitted(points: list[tuple[float, float]], weights: list[float], odd: int) -> tuple[float, float]:
    """Least squares of a * z, or a * z + b * z**3."""
    zz, z4, z6 = (sum(w * z**power for (z, _), w in zip(points, weights, strict=True)) for power in (2, 4, 6))
    nz, nz3 = (sum(w * n * z**power for (z, n), w in zip(points, weights, strict=True)) for power in (1, 3))
    if odd == 1:
        return nz / zz, 0.0
    determinant = zz * z6 - z4 * z4
    return (nz * z6 - nz3 * z4) / determinant, (nz3 * zz - nz * z4) / determinant

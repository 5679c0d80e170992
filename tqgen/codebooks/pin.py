"""How the pinned tables were made; `python -m tqgen.codebooks.pin` writes the JSON files beside this module.

Only this script and its test need numpy. `tests/test_codebooks.py` holds the files to what these functions return.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

WIDTHS = range(1, 9)

DESCRIPTIONS = {
    "lloyd_max": "the Lloyd-Max quantiser of N(0, 1), converged: every level is the mean of its cell",
    "vllm": "what vLLM's TurboQuant uses: Lloyd iterations by trapezoid sums, stopped before the tail has converged",
}


def _density(x: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _cell_means(edges: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Mean of N(0, 1) in the cells [edges[i], edges[i + 1]], of which `mass` holds the probabilities."""
    density = _density(edges)
    return (density[:-1] - density[1:]) / mass


def _cell_mass(edges: np.ndarray) -> np.ndarray:
    """Probability of the cells [edges[i], edges[i + 1]] of N(0, 1), to the last digits; the last edge is infinite.

    Differences of the distribution function would lose digits in narrow cells; a Gauss-Legendre sum of positive terms
    does not.
    """
    nodes, weights = np.polynomial.legendre.leggauss(32)
    half = (edges[1:-1] - edges[:-2]) / 2
    middle = (edges[1:-1] + edges[:-2]) / 2
    inner = (_density(middle[:, None] + half[:, None] * nodes) * weights).sum(-1) * half
    return np.append(inner, 0.5 * math.erfc(edges[-2] / math.sqrt(2)))


def solve_lloyd_max(bits: int) -> np.ndarray:
    """Levels [2**bits] of the Lloyd-Max quantiser of N(0, 1) (Lloyd 1982; Max 1960), in float64.

    Each level is the mean of its cell, each edge the midpoint of its two levels. Plain iteration of the two conditions
    needs some 10**5 rounds at 8 bits; this is Newton's method on the positive half of the symmetric solution, started
    from the quantiser of high resolution, whose levels have a density proportional to exp(-x*x / 6) (Panter and Dite
    1951).
    """
    n = 2 ** (bits - 1)
    grid = np.linspace(0.0, 12.0, 120_001)
    share = np.cumsum(np.exp(-grid * grid / 6))
    levels = np.interp((np.arange(n) + 0.5) / n, share / share[-1], grid)
    for _ in range(100):
        edges = np.concatenate([[0.0], (levels[:-1] + levels[1:]) / 2, [np.inf]])
        mass = _cell_mass(edges)
        means = _cell_means(edges, mass)
        # The mean of a cell moves with its edges: d mean / d upper = density(upper) * (upper - mean) / mass.
        density = _density(edges)
        upper = density[1:-1] * (edges[1:-1] - means[:-1]) / mass[:-1]
        lower = density[1:-1] * (means[1:] - edges[1:-1]) / mass[1:]
        jacobian = np.eye(n)
        index = np.arange(n - 1)
        jacobian[index, index] -= upper / 2
        jacobian[index, index + 1] -= upper / 2
        jacobian[index + 1, index] -= lower / 2
        jacobian[index + 1, index + 1] -= lower / 2
        step = np.linalg.solve(jacobian, means - levels)
        # A whole step may leave the order of the levels; half of it may not.
        while np.any(np.diff(levels + step) <= 0) or levels[0] + step[0] <= 0:
            step /= 2
        levels = levels + step
        if np.max(np.abs(step)) < 1e-15:
            break
    return np.concatenate([-levels[::-1], levels])


def solve_vllm(bits: int, head_dim: int = 128) -> np.ndarray:
    """Levels [2**bits], in units of sigma, of the solver that vLLM 0.33 runs for N(0, 1 / head_dim), in float64.

    Lloyd's iteration from uniform cell centres on +-3.5 sigma, with outer edges at +-10.5 sigma, means by a trapezoid
    sum of 200 panels, at most 200 rounds, stopped when no level moves by 1e-10 or more. It stops at a distance in
    absolute units, so that tables of other head dimensions differ in the tenth digit; in float32 they are equal.
    The result is made exactly symmetric.
    """
    sigma = 1 / math.sqrt(head_dim)
    n = 2**bits
    levels = -3.5 * sigma + 7 * sigma * (np.arange(n) + 0.5) / n
    for _ in range(200):
        edges = np.concatenate([[-10.5 * sigma], (levels[:-1] + levels[1:]) / 2, [10.5 * sigma]])
        x = np.linspace(edges[:-1], edges[1:], 201, axis=-1)
        density = np.exp(-x * x / (2 * sigma * sigma))
        width = np.diff(x)
        moment = x * density
        mass = (width * (density[:, 1:] + density[:, :-1])).sum(-1)
        means = (width * (moment[:, 1:] + moment[:, :-1])).sum(-1) / mass
        moved = np.max(np.abs(means - levels))
        levels = means
        if moved < 1e-10:
            break
    half = (levels[n // 2 :] - levels[: n // 2][::-1]) / 2 * math.sqrt(head_dim)
    return np.concatenate([-half[::-1], half])


SOLVERS = {"lloyd_max": solve_lloyd_max, "vllm": solve_vllm}


def write(name: str, folder: Path) -> Path:
    """Write the table `name` to `folder` and return the file."""
    levels = {str(bits): [float(level) for level in SOLVERS[name](bits)] for bits in WIDTHS}
    table = {"description": DESCRIPTIONS[name], "levels": levels}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    for name in SOLVERS:
        print(write(name, Path(__file__).parent))

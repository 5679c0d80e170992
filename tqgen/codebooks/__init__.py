"""Pinned codebooks: tables of levels as data, one JSON file each in this folder.

A table holds the reconstruction levels of a scalar quantiser for N(0, 1), in units of the standard deviation, for each
width in bits. Tables are data and not a solver's output at run time: the bytes of a cache depend on their last digit.
`pin.py` beside them shows where the numbers come from and writes the files anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class Codebook:
    """The levels of one table at one width, in units of sigma, ascending and symmetric about zero."""

    name: str
    bits: int
    levels: tuple[float, ...]  # 2**bits, float64

    @property
    def edges(self) -> tuple[float, ...]:
        """The 2**bits - 1 midpoints between neighbouring levels: where one code ends and the next begins."""
        return tuple((low + high) / 2 for low, high in pairwise(self.levels))


def names() -> tuple[str, ...]:
    """The tables that exist, in alphabetical order."""
    files = (entry.name for entry in resources.files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in files if name.endswith(".json")))


@cache
def _table(name: str) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(resources.files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return table


def description(name: str) -> str:
    """One sentence on where a table comes from; KeyError where there is no such table."""
    if name not in names():
        raise KeyError(name)
    return str(_table(name)["description"])


def widths(name: str) -> tuple[int, ...]:
    """The widths in bits that a table has, ascending; KeyError where there is no such table."""
    if name not in names():
        raise KeyError(name)
    return tuple(sorted(int(bits) for bits in _table(name)["levels"]))


@cache
def load(name: str, bits: int) -> Codebook:
    """The table `name` at `bits` bits; KeyError where there is none."""
    if name not in names() or bits not in widths(name):
        raise KeyError(f"{name} at {bits} bits")
    return Codebook(name, bits, tuple(_table(name)["levels"][str(bits)]))

"""Sides whose rows the store gives to quads of threads: who can be treated so, and how."""

from __future__ import annotations

from tqgen.codecs.base import KernelConstants
from tqgen.layout import Side
from tqgen.lower.lanes import MIN_LANES, next_power_of_two
from tqgen.plan import QuadsPlan

QUAD = 4
# Codes of a unit, by their width: units of 32 bits, or of 24, four of which are three words.
UNIT_CODES = {1: 32, 2: 16, 3: 8, 4: 8, 6: 4, 8: 4}
ROTATIONS = ("none", "hadamard", "signed_hadamard")


def quads_plan(side: Side, constants: KernelConstants, grouped: bool) -> QuadsPlan | None:
    """How quads hold the rows of `side`; None where they cannot."""
    head_dim, parameters = side.head_dim, side.parameters
    bits = side.part("codes").bits
    codes = UNIT_CODES.get(bits, 0)
    fits = head_dim == next_power_of_two(head_dim) and head_dim >= max(2 * MIN_LANES, QUAD * codes)
    plain = parameters.packing == "linear" and not parameters.center and not grouped
    if not codes or not fits or not plain or side.rotation.kind not in ROTATIONS:
        return None
    if constants.quad_codes is None:
        return None
    fill, empty = (unit_of(code, bits, codes) for code in constants.quad_codes)
    low = head_dim // MIN_LANES  # elements that differ in the bits below the four highest of their index
    steps = min(side.rotation.size, low).bit_length() - 1 if side.rotation.is_hadamard else 0
    return QuadsPlan(head_dim // codes, codes, codes.bit_length() - 1, fill, empty, steps)


def unit_of(code: int, bits: int, codes: int) -> int:
    """A unit of equal codes, as a signed integer of 32 bits."""
    unit = sum(code << bits * position for position in range(codes))
    return unit - (1 << 32) * (unit >= 1 << 31)

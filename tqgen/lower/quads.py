"""Sides whose rows the store gives to quads of threads: who can be treated so, and how."""

from __future__ import annotations

from tqgen.codecs.base import KernelConstants
from tqgen.layout import Layout, Rotation, Side
from tqgen.lower.lanes import MIN_LANES, element_of, next_power_of_two, parts_of_packing
from tqgen.lower.ptx_rows import row_numbers
from tqgen.lower.words import run_around
from tqgen.plan import QuadsPlan

QUAD = 4
# Codes of a unit, by their width: units of 32 bits, or of 24, four of which are three words.
UNIT_CODES = {1: 32, 2: 16, 3: 8, 4: 8, 6: 4, 8: 4}
WIDEST_MATRIX = 128  # rows of a matrix of which three parts of 16-bit numbers fit shared memory, twice
PAIRED_UNIT_BITS = 24
PIECE = 8  # 16-bit numbers that a thread stores at once; the pieces of a quad are neighbours


def quads_plan(layout: Layout, side: Side, constants: KernelConstants, grouped: bool) -> QuadsPlan | None:
    """How quads hold the rows of `side`; None where they cannot."""
    head_dim, parameters = side.head_dim, side.parameters
    bits = side.part("codes").bits
    codes = UNIT_CODES.get(bits, 0)
    fits = head_dim == next_power_of_two(head_dim) and head_dim >= max(2 * MIN_LANES, QUAD * codes)
    plain = not parameters.center and not grouped
    by_matrix = side.rotation.kind == "matrix"
    if not codes or not fits or not plain or (by_matrix and head_dim > WIDEST_MATRIX):
        return None
    if not rotates_packed(side):
        return None
    if constants.quad_codes is None:
        return None
    fill, empty = (unit_of(code, bits, codes) for code in constants.quad_codes)
    parts = parts_of_packing(side)
    field = next(field for field in layout.fields if (field.side, field.part.name) == (side.name, "codes"))
    units, words = head_dim // codes, codes * bits // 8
    around = 0 if by_matrix else run_around(layout, field, units, words)
    dealt = not by_matrix and words == 3 and field.alignment % 4 == 0 and units % 16 == 0
    levels = None if by_matrix else constants.quad_levels
    by_quads = bool(around) or dealt or words == 4
    return QuadsPlan(
        units=units,
        codes=codes,
        steps=codes.bit_length() - 1,
        fill=fill,
        fill_code=constants.quad_codes[0],
        empty=empty,
        butterflies=butterflies(side.rotation, head_dim),
        parts=parts,
        element=element_of(side, "place"),
        row_numbers=None if levels is None else row_numbers(bits, levels, head_dim, side.rotation.scale, by_quads),
        around=around,
        dealt=dealt,
        run=run(head_dim, codes, bits),
        pairs=codes * bits == PAIRED_UNIT_BITS and run(head_dim, codes, bits) == 2 * codes,
        spread=spread(head_dim, parts),
    )


def rotates_packed(side: Side) -> bool:
    """Whether a Hadamard matrix mixes neighbouring bits of an index in the order of packing, too."""
    return not side.rotation.is_hadamard or side.rotation.size == side.head_dim or parts_of_packing(side) == 1


def butterflies(rotation: Rotation, head_dim: int) -> int:
    """Steps of a Hadamard transform that are left beside the product, which mixes the four highest bits of an index."""
    low = head_dim // MIN_LANES  # elements that differ in the bits below those
    return min(rotation.size, low).bit_length() - 1 if rotation.is_hadamard else 0


def run(head_dim: int, codes: int, bits: int) -> int:
    """Neighbouring elements of a thread after a rotation by a matrix, which leaves it free which ones they are.

    What a thread stores at once: four threads then write to neighbouring places, of what each of them has. That is a
    word, or of units of 24 bits two, which are three halves of words; where a thread has one such unit, that one.
    """
    own = head_dim // QUAD
    return min(own, codes * 2) if codes * bits == PAIRED_UNIT_BITS else codes


def spread(head_dim: int, parts: int) -> int:
    """How far below the highest bits of a packed position those are that say which thread of a quad stores it.

    They are the two above the position in a piece. A product gives a thread any two neighbouring bits of the four
    highest; in other places numbers have to move between threads.
    """
    lowest = PIECE.bit_length() - 1 + parts.bit_length() - 1
    return min(2, max(0, head_dim.bit_length() - 1 - 2 - lowest))


def unit_of(code: int, bits: int, codes: int) -> int:
    """A unit of equal codes, as a signed integer of 32 bits."""
    unit = sum(code << bits * position for position in range(codes))
    return unit - (1 << 32) * (unit >= 1 << 31)

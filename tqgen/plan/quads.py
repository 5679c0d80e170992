"""The part of a plan that is about rows held by quads of threads; see `tqgen.lower.quads` for how it works."""

from __future__ import annotations

from dataclasses import dataclass

from tqgen.plan.assembly import assembly_text


@dataclass(frozen=True)
class RowNumbersPlan:
    """Assembly that makes 16-bit numbers of codes by a table for each row, or two of each; see `tqgen.lower.ptx_rows`.

    `table` has one fp32 input and the registers of the row's table as outputs, `numbers` a packed unit and these
    registers as inputs and the numbers of the unit's codes as outputs. `parts` has a packed unit as input, and as
    outputs the larger and then the smaller fp16 parts of its codes' levels.
    """

    constants: tuple[
        tuple[int, str], ...
    ]  # operands, and what they are; as literals they would be moved again and again
    table: str  # of fp16 numbers
    table_bf16: str
    table_constraints: str
    numbers: str
    constraints: str
    numbers_constants: tuple[int, ...]  # which of `constants` are further inputs
    registers: int  # of a table
    codes: int  # of a unit
    operand_width: str  # source: neighbouring places of a product's sum that Triton lets one thread bring
    parts: str
    parts_constraints: str
    parts_constants: tuple[int, ...]
    parts_unit: str  # by what a row's factor is multiplied where parts are rotated
    parts_unit_comment: str
    squares: str  # the sum of squares of a unit's levels as an integer; empty where lengths are not corrected
    squares_constraints: str
    squares_constants: tuple[int, ...]
    square_unit: str  # by what it is multiplied
    square_unit_comment: str
    guard: str  # added to the sum

    @property
    def numbers_text(self) -> str:
        """Sentences on the numbers in the assembly."""
        return assembly_text(self.table, self.table_bf16, self.numbers)

    @property
    def parts_text(self) -> str:
        return assembly_text(self.parts).strip()

    @property
    def squares_text(self) -> str:
        return assembly_text(self.squares)


@dataclass(frozen=True)
class QuadsPlan:
    """How the store works on a side whose rows are each held by four neighbouring threads, without shared memory.

    A tile is [ROWS, units, codes]: the units of a thread are neighbours, so that codes are packed where they are, and
    the numbers of a row are computed by four threads instead of sixteen. Elements are in the order in which their codes
    are packed. A Hadamard matrix is the same whatever the order of an index's bits, so it is for the rotation, too.
    """

    units: int
    codes: int  # of a unit
    steps: int  # 2**steps codes
    fill: int  # the unit of a vector that is not finite
    fill_code: int  # of which it is made
    empty: int  # the unit that decodes to positive numbers, where that of zeros does not; else 0
    butterflies: int  # steps of the Hadamard transform in registers; the others are a product with a 16 x 16 matrix
    parts: int  # of a vector, whose elements take turns in the order of packing; 1: they are packed as they come
    element: str  # source over `place`: the element at a place of a packed row, for rotations by a matrix
    row_numbers: RowNumbersPlan | None  # how unpack decodes where there is PTX; None: as everywhere
    around: int  # words of a run that unpack reads by aligned words around it; 0: as alignment allows
    dealt: bool  # units of 24 bits, whose words unpack asks for in the order in which Triton deals out a tile
    run: int  # neighbouring elements that a thread has in one piece of a row that a matrix has rotated
    pairs: bool  # two units of 24 bits are stored as three halves of words
    spread: int  # how far an inverse rotation moves the bits of a position that say which thread has it

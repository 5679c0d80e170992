"""The part of a plan that is about rows held by quads of threads; see `tqgen.lower.quads` for how it works."""

from __future__ import annotations

from dataclasses import dataclass

from tqgen.plan.assembly import assembly_text


@dataclass(frozen=True)
class RowNumbersPlan:
    """Assembly that makes fp16 numbers of codes by a table for each row; see `tqgen.lower.ptx_rows`.

    `table` has one fp32 input and the registers of the row's table as outputs, `numbers` a packed unit and these
    registers as inputs and the numbers of the unit's codes as outputs.
    """

    table: str
    table_constraints: str
    numbers: str
    constraints: str
    registers: int  # of a table
    codes: int  # of a unit
    operand_width: str  # source: neighbouring places of a product's sum that Triton lets one thread bring

    @property
    def assembly_text(self) -> str:
        """Sentences on the numbers in the assembly."""
        return assembly_text(self.table, self.numbers)


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
    row_numbers: RowNumbersPlan | None  # how unpack decodes to fp16 where there is PTX; None: as everywhere
    run: int  # neighbouring elements that a thread has in one piece of a row that a matrix has rotated
    pairs: bool  # two units of 24 bits are stored as three halves of words
    spread: int  # how far an inverse rotation moves the bits of a position that say which thread has it

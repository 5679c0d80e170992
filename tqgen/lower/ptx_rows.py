"""PTX that decodes packed codes to fp16 numbers of a row: each is a number of a small table times the row's factor.

The products are made first, a table for each row: eight fp16 numbers in four registers, the upper bytes of the first
four, those of the last four, and then the lower bytes. Codes are looked up in it by byte permutations, as
`tqgen.lower.ptx` looks them up in tables of constants.
"""

from __future__ import annotations

import struct

from tqgen.lower.ptx import magnitudes, spread
from tqgen.plan import RowNumbersPlan

ENTRIES = 8  # of a row's table; codes of one bit more have a sign
TABLE = 4  # registers of a row's table
WORD = 32  # bits
WIDEST = 4  # bits
NARROWEST = 3  # bits of which eight codes are a unit


def row_numbers(bits: int, numbers: tuple[float, ...]) -> RowNumbersPlan | None:
    """Assembly for codes of `bits` bits that stand for `numbers` of fp32; None where there is none.

    The products are rounded to fp32 and then to fp16, as where they are made one by one.
    """
    mirrored = numbers == tuple(-number for number in reversed(numbers))
    if not NARROWEST <= bits <= WIDEST or (bits == WIDEST and not mirrored):
        return None
    entries = numbers[ENTRIES:] if bits == WIDEST else numbers
    return RowNumbersPlan(
        table=" ".join(("{", *_table(entries), "}")),
        table_constraints=",".join(["=r"] * TABLE + ["f"]),
        numbers=" ".join(("{", *_numbers(bits), "}")),
        constraints=",".join(["=h"] * ENTRIES + ["r"] * (1 + TABLE)),
        registers=TABLE,
        codes=ENTRIES,
        # Numbers are joined eight at a time. Units of 24 bits were joined, too, before.
        operand_width="JOINED_WIDTH" if bits * ENTRIES == WORD else "4",
    )


def _table(entries: tuple[float, ...]) -> list[str]:
    lines = [".reg .f32 a, b;", ".reg .b32 p, q, r, s;"]
    for register, low, high in zip("pqrs", entries[::2], entries[1::2], strict=True):
        lines += [
            f"mul.rn.f32 a, $4, {_literal(low)};",
            f"mul.rn.f32 b, $4, {_literal(high)};",
            f"cvt.rn.f16x2.f32 {register}, b, a;",
        ]
    for output, selector in ((0, "0x7531"), (2, "0x6420")):
        lines += [f"prmt.b32 ${output}, p, q, {selector};", f"prmt.b32 ${output + 1}, r, s, {selector};"]
    return lines


def _literal(number: float) -> str:
    return f"0f{struct.pack('>f', number).hex().upper()}"


def _numbers(bits: int) -> list[str]:
    unit = f"${ENTRIES}"
    upper, lower = (f"${ENTRIES + 1 + n}, ${ENTRIES + 2 + n}" for n in (0, 2))
    lines = [".reg .b32 x, y, z, h, l, s, p, q;"]
    lines += magnitudes(unit) if bits == WIDEST else [*spread(bits, unit), "shr.u32 z, x, 16;"]
    for half, (selector, codes) in enumerate((("x", unit), ("z", "y"))):
        lines.append(f"prmt.b32 h, {upper}, {selector};")
        if bits == WIDEST:
            # 0x7f where the code's upper bit is clear, 0 where it is set: there the permutation repeats a sign bit
            lines += [
                f"prmt.b32 s, 0x7f7f7f7f, 0x7f7f7f7f, {codes};",
                "add.u32 s, s, s;",
                "and.b32 s, s, 0x80808080;",
                "xor.b32 h, h, s;",
            ]
        lines += [f"prmt.b32 l, {lower}, {selector};", "prmt.b32 p, l, h, 0x5140;", "prmt.b32 q, l, h, 0x7362;"]
        at = 4 * half
        lines += [f"mov.b32 {{${at}, ${at + 1}}}, p;", f"mov.b32 {{${at + 2}, ${at + 3}}}, q;"]
    return lines

"""PTX that decodes packed codes to 16-bit numbers: levels of a codebook, times the row's factor or in two parts.

For numbers that are rounded at once the products are made first, a table for each row: eight fp16 or bf16 numbers in
four registers, the upper bytes of the first four, those of the last four, and then the lower bytes. Codes are looked up
in it by byte permutations, as `tqgen.lower.ptx` looks them up in tables of constants.

For numbers that are rotated in fp32 the levels are looked up alone, each as the sum of two fp16 numbers, and multiplied
by the row's factor when they are rotated.
"""

from __future__ import annotations

import functools
import math
import struct

from tqgen.codecs.base import Levels
from tqgen.lower.ptx import Constants, half_bits, magnitudes, spread
from tqgen.numerics.literals import fp32, plain
from tqgen.plan import RowNumbersPlan

ENTRIES = 8  # of a table; codes of one bit more have a sign
TABLE = 4  # registers of a table of 16-bit numbers
WIDEST = 4  # bits
NARROWEST = 3  # bits of which eight codes are a unit
HALF_LARGEST = 65504.0
HALF_MANTISSA = 11  # bits
PLANES = 3  # bytes of a square
TRIED = 20_000  # scales of squares


def row_numbers(bits: int, levels: Levels, head_dim: int, scale: float, by_quads: bool) -> RowNumbersPlan | None:
    """Assembly for codes of `bits` bits; None where there is none. `scale` is what is left of an inverse rotation.

    `by_quads`: four threads load a row, so that units are where they are multiplied.

    Products with a row's factor are rounded to fp32 and then to 16 bits, as where they are made one by one.
    """
    mirrored = levels.exact == tuple(-level for level in reversed(levels.exact))
    if not NARROWEST <= bits <= WIDEST or not mirrored:
        return None
    first = ENTRIES if bits == WIDEST else 0
    entries = levels.exact[first:]
    exponent, high, low = two_parts(entries)
    in_numbers, in_parts, in_squares = Constants(ENTRIES + 1 + TABLE), Constants(2 * ENTRIES + 1), Constants(2)
    numbers, parts = _numbers(bits, in_numbers), _parts(bits, high, low, in_parts)
    squares, squares_per_one = _squares(bits, entries, head_dim, in_squares) if levels.normalised else ([], 1)
    said = in_numbers.said | in_parts.said | in_squares.said
    constants = tuple(said)
    unscaled = "" if scale == 1 else f" * sqrt({scale * scale:.0f})"
    return RowNumbersPlan(
        constants=tuple(said.items()),
        table=_block(_table(levels.rounded[first:], "f16x2")),
        table_bf16=_block(_table(levels.rounded[first:], "bf16x2")),
        table_constraints=",".join(["=r"] * TABLE + ["f"]),
        numbers=_block(numbers),
        constraints=",".join(["=h"] * ENTRIES + ["r"] * (1 + TABLE + len(in_numbers.values))),
        numbers_constants=tuple(map(constants.index, in_numbers.values)),
        registers=TABLE,
        codes=ENTRIES,
        # Numbers are joined eight at a time. Units of 24 bits that others load were joined, too, before.
        operand_width="JOINED_WIDTH" if by_quads else "4",
        parts=_block(parts),
        parts_constraints=",".join(["=h"] * 2 * ENTRIES + ["r"] * (1 + len(in_parts.values))),
        parts_constants=tuple(map(constants.index, in_parts.values)),
        parts_unit=fp32(levels.unit * scale * 2.0**-exponent),
        parts_unit_comment=f"2**-{exponent} / sqrt({head_dim}){unscaled}",
        squares=_block(squares) if squares else "",
        squares_constraints=",".join(["=r"] + ["r"] * (1 + len(in_squares.values))),
        squares_constants=tuple(map(constants.index, in_squares.values)),
        square_unit=fp32(levels.unit**2 / squares_per_one),
        square_unit_comment=f"1 / ({head_dim} * {squares_per_one})",
        guard=plain(levels.guard),
    )


def two_parts(levels: tuple[float, ...]) -> tuple[int, tuple[float, ...], tuple[float, ...]]:
    """An exponent, and two fp16 numbers for each level whose sum is level * 2**exponent to within 2**-22 of it."""
    exponent = math.floor(math.log2(HALF_LARGEST / max(map(abs, levels))))
    high = tuple(_half(level * 2.0**exponent) for level in levels)
    return exponent, high, tuple(_half(level * 2.0**exponent - part) for level, part in zip(levels, high, strict=True))


def _half(number: float) -> float:
    """The fp16 number nearest to `number`."""
    rounded: float = struct.unpack("<e", struct.pack("<e", number))[0]
    return rounded


def _block(lines: list[str]) -> str:
    return " ".join(("{", *lines, "}"))


def _table(entries: tuple[float, ...], pair: str) -> list[str]:
    lines = [".reg .f32 a, b;", ".reg .b32 p, q, r, s;"]
    for register, low, high in zip("pqrs", entries[::2], entries[1::2], strict=True):
        lines += [
            f"mul.rn.f32 a, $4, {_literal(low)};",
            f"mul.rn.f32 b, $4, {_literal(high)};",
            f"cvt.rn.{pair}.f32 {register}, b, a;",
        ]
    for output, selector in ((0, "0x7531"), (2, "0x6420")):
        lines += [f"prmt.b32 ${output}, p, q, {selector};", f"prmt.b32 ${output + 1}, r, s, {selector};"]
    return lines


def _literal(number: float) -> str:
    return f"0f{struct.pack('>f', number).hex().upper()}"


def _selectors(bits: int, unit: str) -> list[str]:
    """Selectors of eight codes in x and z; the upper codes' signs are in y."""
    return magnitudes(unit) if bits == WIDEST else [*spread(bits, unit), "shr.u32 z, x, 16;"]


def _signs(codes: str, constant: Constants) -> list[str]:
    """The upper bit of each byte of s, set where a code stands for a number below zero.

    0x7f where the code's upper bit is clear, 0 where it is set: there the permutation repeats a sign bit.
    """
    mask = constant(0x7F7F7F7F, "a permutation gives its bytes, or their sign, which is 0, by the upper bit of a code")
    return [
        f"prmt.b32 s, {mask}, {mask}, {codes};",
        "add.u32 s, s, s;",
        "and.b32 s, s, 0x80808080;",
    ]


def _look_up(upper: str, lower: str, selector: str, first: int, signed: bool) -> list[str]:
    """Outputs from `first` on: four numbers of the tables of upper and of lower bytes."""
    return [
        f"prmt.b32 h, {upper}, {selector};",
        *["xor.b32 h, h, s;"] * signed,
        f"prmt.b32 l, {lower}, {selector};",
        "prmt.b32 p, l, h, 0x5140;",
        "prmt.b32 q, l, h, 0x7362;",
        f"mov.b32 {{${first}, ${first + 1}}}, p;",
        f"mov.b32 {{${first + 2}, ${first + 3}}}, q;",
    ]


def _numbers(bits: int, constant: Constants) -> list[str]:
    unit, signed = f"${ENTRIES}", bits == WIDEST
    upper, lower = (f"${ENTRIES + 1 + n}, ${ENTRIES + 2 + n}" for n in (0, 2))
    lines = [".reg .b32 x, y, z, h, l, s, p, q;", *_selectors(bits, unit)]
    for half, (selector, codes) in enumerate((("x", unit), ("z", "y"))):
        lines += _signs(codes, constant) if signed else []
        lines += _look_up(upper, lower, selector, 4 * half, signed)
    return lines


def _parts(bits: int, high: tuple[float, ...], low: tuple[float, ...], constant: Constants) -> list[str]:
    unit, signed = f"${2 * ENTRIES}", bits == WIDEST
    lines = [".reg .b32 x, y, z, h, l, s, p, q;", *_selectors(bits, unit)]
    tables = [
        [
            _bytes(numbers, shift, f"{byte} bytes of the {part} parts", constant)
            for shift, byte in ((8, "upper"), (0, "lower"))
        ]
        for numbers, part in ((high, "larger"), (low, "smaller"))
    ]
    for half, (selector, codes) in enumerate((("x", unit), ("z", "y"))):
        lines += _signs(codes, constant) if signed else []
        for part, (upper, lower) in enumerate(tables):
            lines += _look_up(upper, lower, selector, ENTRIES * part + 4 * half, signed)
    return lines


def _bytes(numbers: tuple[float, ...], shift: int, what: str, constant: Constants) -> str:
    """One byte of each of eight fp16 numbers, as the operands of a permutation."""
    return _operands([half_bits(number) >> shift & 0xFF for number in numbers], what, constant)


def _operands(table: list[int], what: str, constant: Constants) -> str:
    """Eight bytes, `what` they are of levels: a permutation takes one literal, and wants the other in a register."""
    low, high = (sum(byte << 8 * n for n, byte in enumerate(table[at : at + 4])) for at in (0, 4))
    return f"{constant(low, f'{what}, of the levels 0 to 3')}, 0x{high:08x}"


def _squares(bits: int, levels: tuple[float, ...], head_dim: int, constant: Constants) -> tuple[list[str], int]:
    """Assembly for the sum of the squares of a unit's levels as an integer, and what stands for one."""
    parts, squares = whole_squares(levels, head_dim)
    names = "abc"[:PLANES]
    lines = [".reg .b32 x, y, z, h, a, b, c;", *_selectors(bits, "$1")]
    for plane, name in enumerate(names):
        table = _operands([square >> 8 * plane & 0xFF for square in squares], f"bytes {plane} of the squares", constant)
        for selector, total in (("x", "0"), ("z", name)):
            lines += [f"prmt.b32 h, {table}, {selector};", f"dp4a.u32.u32 {name}, h, 0x01010101, {total};"]
    return [*lines, "mad.lo.u32 b, c, 256, b;", "mad.lo.u32 $0, b, 256, a;"], parts


@functools.cache
def whole_squares(levels: tuple[float, ...], head_dim: int) -> tuple[int, tuple[int, ...]]:
    """What stands for one, and the squares of levels in integers, of which `head_dim` have a sum of 31 bits.

    Of the largest such numbers for one those are taken whose squares come closest to integers, relative to themselves.
    """
    squares = [level * level for level in levels]
    most = min(2 ** (8 * PLANES), 2**31 // head_dim) - 1
    largest = int(most / max(squares))

    def error(parts: int) -> float:
        return max(abs(round(square * parts) / (square * parts) - 1) for square in squares)

    parts = min(range(largest - TRIED, largest + 1), key=error)
    return parts, tuple(round(square * parts) for square in squares)

"""PTX that turns packed codes into fp16 numbers, eight codes at a time.

Codes of `bits` bits sit in a register, least significant first. A byte permutation looks four of them up at once: its
selector is four nibbles, each the index of a byte in a table of eight. Two such look-ups give the upper and the lower
bytes of four fp16 numbers. Tables of whole numbers need the upper bytes alone, or, for 4 bits, no table: a nibble or-ed
into the mantissa of 1024 is the number 1024 + n.
"""

from __future__ import annotations

import bisect
import functools
import struct
from dataclasses import dataclass

CODES = 8
BYTE = 256
WORD_BITS = 32


@dataclass(frozen=True)
class Counting:
    """Whole numbers one after the other: code ^ flip - offset. `flip` is the sign bit of two's complement, or 0."""

    flip: int
    offset: int

    def source(self, codes: str) -> str:
        """Source of the numbers of codes."""
        turned = f"({codes} ^ {self.flip})" if self.flip else codes
        return f"{turned} - {self.offset}" if self.offset else turned


def counting(bits: int, numbers: tuple[float, ...]) -> Counting | None:
    """How a table of 2**bits numbers counts; None where it does not."""
    middle = 2 ** (bits - 1)
    for flip, offset in ((0, 0), (0, middle), (middle, middle)):
        if numbers == tuple(float((code ^ flip) - offset) for code in range(2 * middle)):
            return Counting(flip, offset)
    return None


@dataclass(frozen=True)
class Expansion:
    """Assembly with fp16 outputs $0.., one 32-bit input and constants; output k is the code at position `order[k]`.

    The constants are operands, not literals: an assembler would load a literal into a register again and again.
    """

    lines: tuple[str, ...]
    order: tuple[int, ...]
    constants: tuple[int, ...] = ()
    comments: tuple[str, ...] = ()  # what each constant is
    squares_per_one: int = 0  # where not 0, one more output, 32 bits: the sum of the numbers' squares in parts of one

    @property
    def assembly(self) -> str:
        return " ".join(("{", *self.lines, "}"))

    @property
    def constraints(self) -> str:
        outputs = ["=h"] * len(self.order) + ["=r"] * bool(self.squares_per_one)
        return ",".join(outputs + ["r"] * (1 + len(self.constants)))

    @property
    def paired_constraints(self) -> str:
        """With two inputs, and two outputs for each code."""
        return ",".join(["=h"] * 2 * len(self.order) + ["r"] * (2 + len(self.constants)))


class Constants:
    """Operands for 32-bit constants, in the order of their first use."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.said: dict[int, str] = {}  # each constant, and what it is

    def __call__(self, value: int, comment: str) -> str:
        self.said.setdefault(value, comment)
        return f"${self.first + list(self.said).index(value)}"

    def pair(self, number: float) -> str:
        """An operand that holds an fp16 number twice."""
        text = f"1 / {1 / number:.11g}" if abs(number) < 1 else f"{number:.11g}"
        return self(half_bits(number) * 0x10001, f"{text}, twice in fp16")

    @property
    def values(self) -> tuple[int, ...]:
        return tuple(self.said)

    @property
    def comments(self) -> tuple[str, ...]:
        return tuple(self.said.values())


def half_bits(number: float) -> int:
    """The fp16 bit pattern nearest to `number`."""
    return int.from_bytes(struct.pack("<e", number), "little")


def _table(entries: list[int], what: str, constant: Constants) -> str:
    """Eight bytes as the operands of two registers; `what` they are of numbers."""
    padded = entries + [0] * (8 - len(entries))
    operands = []
    for first in (0, 4):
        word = sum(byte << (8 * n) for n, byte in enumerate(padded[first : first + 4]))
        last = min(first + 4, len(entries)) - 1
        operands.append(constant(word, f"{what} {first} to {last}" if last >= first else "of no number"))
    return ", ".join(operands)


def spread(bits: int, source: str) -> list[str]:
    """Eight codes of 2 or 3 bits, side by side, into the nibbles of x."""
    if bits == 4:
        return [f"mov.b32 x, {source};"]
    steps = {
        3: ((0x00000FFF, 0x00FFF000, 4), (0x003F003F, 0x0FC00FC0, 2), (0x07070707, 0x38383838, 1)),
        2: ((0x000000FF, 0x0000FF00, 8), (0x000F000F, 0x00F000F0, 4), (0x03030303, 0x0C0C0C0C, 2)),
        1: ((0x0000000F, 0x000000F0, 12), (0x00030003, 0x000C000C, 6), (0x01010101, 0x02020202, 3)),
    }[bits]
    lines = [f"mov.b32 x, {source};"]
    for stay, move, distance in steps:
        lines += [
            f"and.b32 y, x, 0x{move:08x};",
            f"and.b32 x, x, 0x{stay:08x};",
            f"shl.b32 y, y, {distance};",
            "or.b32 x, x, y;",
        ]
    return lines


def magnitudes(source: str) -> list[str]:
    """Selectors x and z of the magnitudes of eight codes of 4 bits, and the upper codes' signs in y.

    A code of 8 or more stands for a number above zero, of index code - 8, another for one below, of index 7 - code.
    """
    return [
        f"not.b32 y, {source};",
        "and.b32 y, y, 0x88888888;",
        "shr.u32 z, y, 3;",
        "sub.u32 y, y, z;",
        f"xor.b32 x, {source}, y;",
        "and.b32 x, x, 0x77777777;",
        "shr.u32 z, x, 16;",
        f"shr.u32 y, {source}, 16;",
    ]


def look_up(
    numbers: tuple[float, ...],
    selectors: tuple[str, str],
    signs: tuple[str, str] | None,
    constant: Constants,
    squares: str = "",
    first: int = 0,
) -> list[str]:
    """Numbers of eight codes, four for each selector, as outputs from `first` on."""
    patterns = [half_bits(number) for number in numbers]
    which = "positive numbers" if signs else "numbers"
    upper = _table([pattern >> 8 for pattern in patterns], f"upper bytes of the fp16 {which}", constant)
    whole = all(pattern & 0xFF == 0 for pattern in patterns)
    lower = (
        "" if whole else _table([pattern & 0xFF for pattern in patterns], f"lower bytes of the fp16 {which}", constant)
    )
    lines: list[str] = []
    for half, selector in enumerate(selectors):
        lines.append(f"prmt.b32 h, {upper}, {selector};")
        if signs:
            # 0x7f where the code's upper bit is clear, 0 where it is set: there the permutation repeats a sign bit
            mask = constant(
                0x7F7F7F7F, "a permutation gives its bytes, or their sign, which is 0, by the upper bit of a code"
            )
            lines += [
                f"prmt.b32 s, {mask}, {mask}, {signs[half]};",
                "add.u32 s, s, s;",
                "and.b32 s, s, 0x80808080;",
                "or.b32 h, h, s;",
            ]
        if whole:
            lines += ["prmt.b32 p, h, 0, 0x1404;", "prmt.b32 q, h, 0, 0x3424;"]
        else:
            lines += [f"prmt.b32 l, {lower}, {selector};"]
            lines += ["prmt.b32 p, l, h, 0x5140;", "prmt.b32 q, l, h, 0x7362;"]
        at = first + 4 * half
        lines += [f"mov.b32 {{${at}, ${at + 1}}}, p;", f"mov.b32 {{${at + 2}, ${at + 3}}}, q;"]
    if squares:
        _, factors = square_factors(numbers)
        what = ("first factors of the squares", "second factors of the squares")
        tables = [_table([pair[n] for pair in factors], what[n], constant) for n in range(2)]
        for total, selector in zip(("0", "s"), selectors, strict=True):
            lines += [f"prmt.b32 {name}, {table}, {selector};" for name, table in zip("lp", tables, strict=True)]
            lines.append(f"dp4a.u32.u32 s, l, p, {total};")
        lines.append(f"mov.b32 {squares}, s;")
    return lines


@functools.cache
def square_factors(numbers: tuple[float, ...]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Two bytes for each number, whose product is its square in parts of one, and how many parts.

    One instruction sums four products of bytes. Of all fractions of one that leave 15 bits or more for the largest
    square, that is taken whose products come closest: the levels of 4 bits to 7e-5, of fewer bits to 2e-5.
    """
    products = {first * second: (first, second) for first in range(BYTE) for second in range(first, BYTE)}
    known = sorted(products)
    squares = [number * number for number in numbers]
    best: tuple[float, int, tuple[int, ...]] | None = None
    for parts in range(int(known[-1] / 2 / max(squares)), int(known[-1] / max(squares)) + 1):
        nearest = []
        for square in squares:
            place = bisect.bisect(known, square * parts)
            nearest.append(min(known[place - 1 : place + 1], key=lambda product: abs(product - square * parts)))
        error = max(abs(product / parts - square) for product, square in zip(nearest, squares, strict=True))
        if best is None or error < best[0]:
            best = (error, parts, tuple(nearest))
    assert best is not None
    return best[1], tuple(products[product] for product in best[2])


def is_antisymmetric(numbers: tuple[float, ...]) -> bool:
    """Whether the numbers backwards are their own negatives: of those a look-up of 4 bits has room for one half."""
    return numbers == tuple(-number for number in reversed(numbers))


def expansion(bits: int, numbers: tuple[float, ...], squares: bool = False) -> Expansion | None:
    """Assembly for the table `numbers` of 2**bits fp16 numbers; None where there is none better than a plain table.

    With `squares`, the numbers' squares are summed too.
    """
    counted = counting(bits, numbers)
    if bits == 8 and counted and not squares:
        return _bytes(counted)
    if bits > 4 or (bits == 4 and not is_antisymmetric(numbers) and not counted):
        return None
    registers = ".reg .b32 x, y, z, h, l, s, p, q;"
    natural = tuple(range(CODES))
    source = f"${CODES + squares}"
    sum_of_squares = f"${CODES}" if squares else ""
    constant = Constants(CODES + squares + 1)
    if bits == 4 and counted:
        lines = [registers, *_nibbles(source, constant, counted)]
        return Expansion(tuple(lines), (0, 4, 1, 5, 2, 6, 3, 7), constant.values, constant.comments)
    if bits == 4:
        numbers = numbers[CODES:]
        selecting, signs = magnitudes(source), (source, "y")
    else:
        selecting, signs = [*spread(bits, source), "shr.u32 z, x, 16;"], None
    lines = [registers, *selecting, *look_up(numbers, ("x", "z"), signs, constant, sum_of_squares)]
    parts = square_factors(numbers)[0] if squares else 0
    return Expansion(tuple(lines), natural, constant.values, constant.comments, parts)


def flipped(source: str, target: str, bits: int, counted: Counting) -> list[str]:
    """The codes of a register with their sign bits turned over, where they have some: a name that holds them, too."""
    mask = sum(counted.flip << (bits * n) for n in range(WORD_BITS // bits))
    return [f"xor.b32 {target}, {source}, 0x{mask:08x};"] if mask else []


def _nibbles(source: str, constant: Constants, counted: Counting) -> list[str]:
    """n - offset of eight nibbles n: 1024 + n less 1024 + offset, and (1024 + 16 n) / 16 less 64 + offset."""
    less, sixteenth = constant.pair(-(1024.0 + counted.offset)), constant.pair(1 / 16)
    less_upper = constant.pair(-(64.0 + counted.offset))
    lines = flipped(source, "x", 4, counted)
    source = "x" if lines else source
    lines.append(f"shr.u32 y, {source}, 8;")
    for register, first in ((source, 0), ("y", 4)):
        lines += [
            f"and.b32 p, {register}, 0x000f000f;",
            "or.b32 p, p, 0x64006400;",
            f"and.b32 q, {register}, 0x00f000f0;",
            "or.b32 q, q, 0x64006400;",
            f"add.rn.f16x2 p, p, {less};",
            f"fma.rn.f16x2 q, q, {sixteenth}, {less_upper};",
            f"mov.b32 {{${first}, ${first + 1}}}, p;",
            f"mov.b32 {{${first + 2}, ${first + 3}}}, q;",
        ]
    return lines


def _bytes(counted: Counting) -> Expansion:
    """n - offset of four bytes n: a byte below the upper byte of 1024 is the number 1024 + n."""
    constant = Constants(5)
    exponent, less = (
        constant(0x64646464, "the upper byte of 1024 in fp16, four times"),
        constant.pair(-(1024.0 + counted.offset)),
    )
    lines = [".reg .b32 x, p, q;", *flipped("$4", "x", 8, counted)]
    source = "x" if counted.flip else "$4"
    for register, selector, first in (("p", 0x4140, 0), ("q", 0x4342, 2)):
        lines += [
            f"prmt.b32 {register}, {source}, {exponent}, 0x{selector:04x};",
            f"add.rn.f16x2 {register}, {register}, {less};",
            f"mov.b32 {{${first}, ${first + 1}}}, {register};",
        ]
    return Expansion(tuple(lines), (0, 1, 2, 3), constant.values, constant.comments)


def fp8_expansion(format: str) -> Expansion:
    """The fp16 numbers of four fp8 codes: e5m2 is the upper byte of fp16, e4m3 has an instruction from sm_89 on."""
    if format == "e5m2":
        lines = [".reg .b32 p, q;", "prmt.b32 p, $4, 0, 0x1404;", "prmt.b32 q, $4, 0, 0x3424;"]
    else:
        lines = [
            ".reg .b32 p, q;",
            ".reg .b16 a, b;",
            "mov.b32 {a, b}, $4;",
            "cvt.rn.f16x2.e4m3x2 p, a;",
            "cvt.rn.f16x2.e4m3x2 q, b;",
        ]
    return Expansion((*lines, "mov.b32 {$0, $1}, p;", "mov.b32 {$2, $3}, q;"), (0, 1, 2, 3))

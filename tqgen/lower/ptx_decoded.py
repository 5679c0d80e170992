"""PTX that decodes packed codes to fp16 numbers, two at a time: code * scale + zero, or fp8 number * scale.

Scales and zero points of 16 bits are fp16 numbers still when a power of two is taken out of them, and so are codes. One
multiply-add of two such numbers rounds once: nothing is more exact. A code that is or-ed into the mantissa of 1024, at
its bit o, is the number 1024 + code * 2**o.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tqgen.lower.ptx import Constants, fp8_expansion

WORD = 32  # bits
HALF = 16  # bits of a number
MANTISSA = 10  # bits of an fp16 number's
BIAS = 1024.0


@dataclass(frozen=True)
class Decoding:
    """Assembly with an fp16 output for each code of a word; inputs are the word, factors, offsets, then constants.

    Factors and offsets, of each group in turn, hold an fp16 number twice. Output n is the number of code `order[n]`.
    """

    assembly: str
    constraints: str
    order: tuple[int, ...]
    constants: tuple[int, ...]
    comments: tuple[str, ...]  # what each constant is


def decoding(bits: int, groups: tuple[int, ...], flip: int, counted_from: int, offsets: bool) -> Decoding | None:
    """(code ^ flip) - counted_from times the factor of each code's group, plus its offset where there are `offsets`.

    None where codes are not pairs of a word's halves, or the two of a pair are not of one group.
    """
    codes = WORD // bits
    if WORD % bits or any(groups[first] != groups[second] for first, second in pairs(bits)):
        return None
    constant, inputs = _operands(codes, groups, offsets)
    lines = [".reg .b32 x, y, p;"]
    source = f"${codes}"
    if flip:
        lines.append(f"xor.b32 x, {source}, 0x{sum(flip << bits * n for n in range(codes)):08x};")
        source = "x"
    if bits == 8:
        exponents = constant(0x64646464, "upper bytes of 1024 in fp16")
        steps = [(source, 0, f"prmt.b32 p, {source}, {exponents}, 0x{selector:04x};") for selector in (0x4140, 0x4342)]
    else:
        exponents = constant.pair(BIAS)
        steps = []
        for code in range(HALF // bits):
            word, bit = source, bits * code
            if bit + bits > MANTISSA:
                if not any(line.startswith("shr") for line in lines):
                    lines.append(f"shr.u32 y, {source}, {_shift(bits)};")
                word, bit = "y", bit - _shift(bits)
            mask = (2**bits - 1) * 0x10001 << bit
            steps.append((word, bit, f"lop3.b32 p, {word}, 0x{mask:08x}, {exponents}, 0xea;"))
    for number, ((first, _), (_, bit, taken)) in enumerate(zip(pairs(bits), steps, strict=True)):
        lines.append(taken)
        less = constant.pair(-(BIAS / 2**bit + counted_from))
        if bit:
            lines.append(f"fma.rn.f16x2 p, p, {constant.pair(2.0**-bit)}, {less};")
        else:
            lines.append(f"add.rn.f16x2 p, p, {less};")
        factor, offset = inputs(groups[first])
        lines.append(f"fma.rn.f16x2 p, p, {factor}, {offset};" if offsets else f"mul.rn.f16x2 p, p, {factor};")
        lines.append(f"mov.b32 {{${2 * number}, ${2 * number + 1}}}, p;")
    return _decoding(lines, tuple(code for pair in pairs(bits) for code in pair), groups, offsets, constant)


def _shift(bits: int) -> int:
    """How far codes move down that are above the mantissa."""
    return HALF // 2 if bits in (1, 2, 4) else 0


def pairs(bits: int) -> list[tuple[int, int]]:
    """The codes of a word that are taken at once: of the two halves, or of bytes."""
    if bits == 8:
        return [(0, 1), (2, 3)]
    return [(code, code + HALF // bits) for code in range(HALF // bits)]


def fp8_decoding(format: str, groups: tuple[int, ...]) -> Decoding | None:
    """The numbers of four fp8 codes times the factors of their groups."""
    if groups[0] != groups[1] or groups[2] != groups[3]:
        return None
    constant, inputs = _operands(4, groups, False)
    *lines, first, second = fp8_expansion(format).lines
    for register, code in (("p", 0), ("q", 2)):
        lines.append(f"mul.rn.f16x2 {register}, {register}, {inputs(groups[code])[0]};")
    return _decoding([*lines, first, second], tuple(range(4)), groups, False, constant)


def plain_fp8_decoding(format: str) -> Decoding:
    """The numbers of four fp8 codes."""
    expansion = fp8_expansion(format)
    return Decoding(expansion.assembly, expansion.constraints, expansion.order, expansion.constants, expansion.comments)


def _operands(codes: int, groups: tuple[int, ...], offsets: bool) -> tuple[Constants, Callable[[int], tuple[str, str]]]:
    """Names of the assembly's constants, and of the factor and the offset of a group."""
    count = max(groups) + 1
    first = codes + 1

    def inputs(group: int) -> tuple[str, str]:
        return f"${first + group}", f"${first + count + group}" if offsets else ""

    return Constants(first + count * (1 + offsets)), inputs


def _decoding(
    lines: list[str], order: tuple[int, ...], groups: tuple[int, ...], offsets: bool, constant: Constants
) -> Decoding:
    inputs = 1 + (max(groups) + 1) * (1 + offsets) + len(constant.values)
    constraints = ",".join(["=h"] * len(order) + ["r"] * inputs)
    return Decoding(" ".join(("{", *lines, "}")), constraints, order, constant.values, constant.comments)

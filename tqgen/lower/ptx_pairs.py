"""PTX that turns the packed codes of two tokens into registers of two fp16 numbers, one of each token.

Tensor cores take values turned: a register holds the same element of two neighbouring tokens. So the codes of the two
are brought side by side while they are still packed, which is cheaper than to move the numbers.
"""

from __future__ import annotations

from tqgen.lower.ptx import Constants, Counting, Expansion, counting, flipped, look_up, magnitudes, spread

CODES = 8
HALF = 16  # bits of a register for each token
MANTISSA = 10  # bits of fp16: a code or-ed into them, next to the exponent of 1024, is the number 1024 + code
EVEN_THEN_ODD = (0, 2, 4, 6, 1, 3, 5, 7)


def paired_expansion(bits: int, numbers: tuple[float, ...]) -> Expansion | None:
    """Assembly with 16 fp16 outputs, the inputs $16 and $17, units of 8 codes of two tokens, and constants.

    Outputs 2 k and 2 k + 1 are the numbers of code `order[k]` of the first and of the second token.
    """
    constant = Constants(2 * CODES + 2)
    first, second = f"${2 * CODES}", f"${2 * CODES + 1}"
    counted = counting(bits, numbers)
    if bits == 8 and counted:
        return _bytes(counted)
    if counted:
        registers = ".reg .b32 a, b, p, x, y, f, g;" if counted.flip else ".reg .b32 a, b, p, x, y;"
        lines = [registers, *_counted(bits, first, second, counted, constant)]
        return Expansion(tuple(lines), tuple(range(CODES)), constant.values, constant.comments)
    symmetric = numbers == tuple(-number for number in reversed(numbers))
    if bits > 4 or (bits == 4 and not symmetric):
        return None
    lines = [
        ".reg .b32 a, b, u, v, x, y, z, h, l, s, p, q;",
        *(*spread(bits, first), "mov.b32 a, x;", *spread(bits, second), "mov.b32 b, x;"),
        # nibbles of the two tokens alternate: even codes in u, odd ones in v
        *("and.b32 u, a, 0x0f0f0f0f;", "shl.b32 y, b, 4;", "and.b32 y, y, 0xf0f0f0f0;", "or.b32 u, u, y;"),
        *("shr.u32 v, a, 4;", "and.b32 v, v, 0x0f0f0f0f;", "and.b32 y, b, 0xf0f0f0f0;", "or.b32 v, v, y;"),
    ]
    for output, word in ((0, "u"), (CODES, "v")):
        if bits == 4:
            lines += magnitudes(word)
            lines += look_up(numbers[8:], ("x", "z"), (word, "y"), constant, first=output)
        else:
            lines += [f"shr.u32 z, {word}, 16;", *look_up(numbers, (word, "z"), None, constant, first=output)]
    return Expansion(tuple(lines), EVEN_THEN_ODD, constant.values, constant.comments)


def _counted(bits: int, first: str, second: str, counted: Counting, constant: Constants) -> list[str]:
    """code - offset: a code at bit o of 1024's mantissa is 1024 + code * 2**o, and one step leads back."""
    in_half = HALF // bits
    lines = [*flipped(first, "f", bits, counted), *flipped(second, "g", bits, counted)]
    if lines:
        first, second = "f", "g"
    lines.append(f"prmt.b32 a, {first}, {second}, 0x5410;")
    if bits == 4:
        lines.append(f"prmt.b32 b, {first}, {second}, 0x7632;")
    elif in_half < CODES:
        shift = in_half * bits
        lines += [f"shr.u32 x, {first}, {shift};", f"shr.u32 y, {second}, {shift};", "prmt.b32 b, x, y, 0x5410;"]
    exponent = constant.pair(1024.0)
    for word, codes in (("a", range(0, min(in_half, CODES))), ("b", range(in_half, CODES))):
        offset = 0
        for code in codes:
            if offset + bits > MANTISSA:
                lines.append(f"shr.u32 {word}, {word}, {offset};")
                offset = 0
            mask = (2**bits - 1) << offset
            lines.append(f"lop3.b32 p, {word}, 0x{mask | mask << HALF:08x}, {exponent}, 0xea;")
            back = constant.pair(-(1024 / 2**offset + counted.offset))
            if offset:
                lines.append(f"fma.rn.f16x2 p, p, {constant.pair(2.0**-offset)}, {back};")
            else:
                lines.append(f"add.rn.f16x2 p, p, {back};")
            lines.append(f"mov.b32 {{${2 * code}, ${2 * code + 1}}}, p;")
            offset += bits
    return lines


def _bytes(counted: Counting) -> Expansion:
    """The numbers of four codes of 8 bits of two tokens: inputs $8 and $9."""
    constant = Constants(10)
    exponent, less = (
        constant(0x64646464, "the upper byte of 1024 in fp16, four times"),
        constant.pair(-(1024.0 + counted.offset)),
    )
    first, second = ("x", "y") if counted.flip else ("$8", "$9")
    lines = [".reg .b32 x, y, p, t;", *flipped("$8", "x", 8, counted), *flipped("$9", "y", 8, counted)]
    for pair, selector in ((0, 0x5140), (2, 0x7362)):
        lines.append(f"prmt.b32 t, {first}, {second}, 0x{selector:04x};")
        for code, halves in ((pair, 0x4140), (pair + 1, 0x4342)):
            lines += [
                f"prmt.b32 p, t, {exponent}, 0x{halves:04x};",
                f"add.rn.f16x2 p, p, {less};",
                f"mov.b32 {{${2 * code}, ${2 * code + 1}}}, p;",
            ]
    return Expansion(tuple(lines), (0, 1, 2, 3), constant.values, constant.comments)


def paired_fp8_expansion(format: str) -> Expansion:
    """The numbers of four fp8 codes of two tokens: inputs $8 and $9."""
    if format == "e5m2":
        # the upper bytes of fp16 numbers: 0xff00 of each half
        codes = [
            f"prmt.b32 p, $8, $9, 0x{4 + code:x}0{code:x}0; and.b32 p, p, 0xff00ff00; "
            f"mov.b32 {{${2 * code}, ${2 * code + 1}}}, p;"
            for code in range(4)
        ]
        return Expansion((".reg .b32 p;", *codes), (0, 1, 2, 3))
    lines = [".reg .b32 p, q, t, u;", ".reg .b16 a, b;"]
    for word, selector, output in (("t", 0x5140, 0), ("u", 0x7362, 4)):
        lines += [
            f"prmt.b32 {word}, $8, $9, 0x{selector:04x};",
            f"mov.b32 {{a, b}}, {word};",
            "cvt.rn.f16x2.e4m3x2 p, a;",
            "cvt.rn.f16x2.e4m3x2 q, b;",
            f"mov.b32 {{${output}, ${output + 1}}}, p;",
            f"mov.b32 {{${output + 2}, ${output + 3}}}, q;",
        ]
    return Expansion(tuple(lines), (0, 1, 2, 3))

"""Lower a side for attention that has no one scale to fold, or no assembly: packed words are decoded in registers.

A thread loads up to 16 bytes of a row, takes the codes out of them, and rounds each number to fp16 once, divided by a
power of two that is about as large as the row's largest magnitude. What the metadata says bounds that magnitude, so
nobody looks at all numbers first. Numbers of 16 bits are multiplied as they are stored.
"""

from __future__ import annotations

import math

from tqgen.codecs.base import Folding
from tqgen.layout import Field, Layout, Side
from tqgen.lower.lanes import MIN_LANES, next_power_of_two, parts_of_packing
from tqgen.lower.ptx import counting
from tqgen.lower.ptx_decoded import decoding, fp8_decoding, plain_fp8_decoding
from tqgen.lower.sides import WIDEST_ALIGNMENT
from tqgen.numerics.literals import fp32
from tqgen.plan import DecodedPlan, FieldPlan, ItemsPlan, PlacedCode, SidePlan

WORD = 32  # bits
PIECE_BYTES = 8
MOST_PIECES = 8  # of a field of metadata that every thread of a row loads as a whole
LARGEST_FP8 = {"e4m3": 448.0, "e5m2": 57344.0}
PLAIN = ("fp16", "bf16")


def decoded_plan(layout: Layout, side: Side, folding: Folding, plan: SidePlan) -> DecodedPlan:
    field = next(field for field in layout.fields if field.name == f"{side.name}.codes")
    if folding.format in PLAIN:
        return plain_plan(side, folding.format, field)
    bits = field.part.bits
    words, per_unit = unit_of(bits)
    used = -(-side.head_dim // per_unit)
    units = max(next_power_of_two(used), MIN_LANES // per_unit)
    count = max((one.count for one in plan.metadata), default=1)
    sources = group_sources(side, per_unit, count)
    distinct = tuple(dict.fromkeys(sources))
    group_of = tuple(distinct.index(source) for source in sources)
    items = tuple(items_plan(one, layout.field(one.title)) for one in plan.metadata)
    numbers = folding.numbers or ()
    counted = counting(bits, numbers) if numbers and not folding.normalised else None
    kind = "counted" if counted else "table" if numbers else "fp32" if folding.format == "fp32" else "format"
    scaled = kind in ("counted", "fp32") or (kind == "format" and count > 1)
    flip, offset = (counted.flip, counted.offset) if counted else (0, 0)
    zero = folding.zero if scaled else None
    largest = max(map(abs, numbers), default=LARGEST_FP8.get(folding.format, 0.0))
    if kind == "counted" and folding.origin and not flip:
        zero, offset, largest = folding.origin, 0, 2.0**bits - 1
    # Numbers of 16 bits stay what they are in fp16 when a power of two is taken out of them.
    exact = all(item.item_bytes == 2 for item in items)
    made, multiplied = None, scaled and exact
    if kind == "counted" and exact:
        made = decoding(bits, group_of, flip, offset, zero is not None)
    elif kind == "format":
        made = fp8_decoding(folding.format, group_of) if multiplied else None
        multiplied = made is not None
        made = made or plain_fp8_decoding(folding.format)
    exponent = (127 + bits) << 23
    order = made.order if made else tuple(range(per_unit))
    return DecodedPlan(
        kind=kind,
        bits=bits,
        size=units * per_unit,
        units=units,
        used_units=used,
        used_codes=side.head_dim % per_unit,
        words=words,
        num_bytes=field.part.num_bytes,
        full=4 * words * units == field.part.num_bytes,
        alignment=alignment_of(field, 4),
        codes=tuple(placed(bits, n, group_of[n]) for n in order),
        order=order,
        groups=tuple(source for source in distinct if source),
        items=items,
        scaled=scaled,
        zero=zero,
        largest=fp32(largest),
        flips=flips(bits, words, flip),
        counted_from=fp32(2.0**bits + offset),
        exponent=exponent,
        format=folding.format if kind == "format" else "",
        assembly=made.assembly if made else "",
        constraints=made.constraints if made else "",
        multiplied=multiplied,
        constants=made.constants if made else (exponent,) if kind == "counted" else (),
        comment=made.comments if made else (f"the bits of {2**bits} in fp32",) if kind == "counted" else (),
        ends=(fp32(numbers[0]), fp32(numbers[1])) if kind == "table" and bits == 1 else None,
    )


def plain_plan(side: Side, dtype: str, field: Field) -> DecodedPlan:
    """A side whose numbers are multiplied as they are stored."""
    size = max(MIN_LANES, next_power_of_two(side.head_dim))
    return DecodedPlan(
        kind="plain",
        bits=field.part.bits,
        size=size,
        units=size,
        used_units=side.head_dim,
        used_codes=0,
        words=1,
        num_bytes=field.part.num_bytes,
        full=size == side.head_dim,
        alignment=alignment_of(field, 2),
        codes=(),
        order=(),
        groups=(),
        items=(),
        scaled=False,
        dtype=dtype,
    )


def flips(bits: int, words: int, flip: int) -> tuple[int, ...]:
    """What turns over the sign bits of all codes of a unit, word by word as signed numbers; empty if there are none."""
    unit = sum(flip << bits * number for number in range(words * WORD // bits))
    found = [unit >> WORD * word & (1 << WORD) - 1 for word in range(words)]
    return tuple(word - (1 << WORD) * (word >> WORD - 1) for word in found) if flip else ()


def unit_of(bits: int) -> tuple[int, int]:
    """The fewest words that hold whole codes, and how many."""
    words = 1
    while words * WORD % bits:
        words += 1
    return words, words * WORD // bits


def placed(bits: int, number: int, group: int) -> PlacedCode:
    word, bit = divmod(bits * number, WORD)
    return PlacedCode(word, bit, bit + bits > WORD, group)


def alignment_of(field: Field, most: int) -> str:
    """Source of the alignment of loads of up to `most` bytes, of which the last one ends with the field."""
    size = field.part.num_bytes
    end = size & -size
    known = field.alignment if end >= most else min(end, field.alignment)
    return "ALIGNMENT" if known == WIDEST_ALIGNMENT else f"min(ALIGNMENT, {known})"


def group_sources(side: Side, per_unit: int, count: int) -> list[str]:
    """For each code of a unit source over `unit` of its group, of `count`; empty where there is one scale for all."""
    if count == 1:
        return [""] * per_unit
    parts, size = parts_of_packing(side), side.head_dim // count
    step = per_unit // parts  # elements from one unit to the next
    return [
        group_source(step, number % parts * (side.head_dim // parts) + number // parts, size)
        for number in range(per_unit)
    ]


def group_source(step: int, first: int, size: int) -> str:
    """Source of (step * unit + first) // size, as short as it can be."""
    if step % size == 0:
        times, more = step // size, first // size
        return (f"{times} * unit" if times > 1 else "unit") + (f" + {more}" if more else "")
    if size % step == 0:
        units, more = size // step, first // step
        if more % units == 0:
            return f"unit // {units}" + (f" + {more // units}" if more else "")
        return f"(unit + {more}) // {units}"
    first -= first % math.gcd(step, size)
    return f"({step} * unit + {first}) // {size}" if first else f"{step} * unit // {size}"


def items_plan(plan: FieldPlan, field: Field) -> ItemsPlan:
    size = field.part.num_bytes
    piece = plan.item_bytes
    while piece < PIECE_BYTES and size % (2 * piece) == 0 and field.alignment % (2 * piece) == 0:
        piece *= 2
    by_unit = field.part.count > 1 and size // piece > MOST_PIECES
    return ItemsPlan(
        name=plan.name,
        short=plan.title.partition(".")[2],
        dtype=str(plan.dtype),
        item_bytes=plan.item_bytes,
        alignment=plan.alignment,
        piece_bytes=piece,
        pieces=field.part.count if by_unit else size // piece,
        one=field.part.count == 1,
        by_unit=by_unit,
    )

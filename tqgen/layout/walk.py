"""Addresses: from regions with an axis order to the base and the strides of every field.

The axes after `field` in a region's order run inside each field: from the innermost outwards, the stride of an axis is
what lies inside it, rounded up to the axis' alignment. Fields follow each other, each from an offset that is rounded up
to its alignment. The axes before `field` run outside all fields; their strides are also rounded up to the largest
alignment of a field, so that the fields of every token and head are as aligned as those of the first: the rule of
arrays of structs in C.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tqgen.layout import Field, Part, Region, Reserved
from tqgen.layout.form import SIZES, ZERO, Form
from tqgen.spec.models import AlignedAxis, Block, Entry, FieldItem, Reserve
from tqgen.spec.models import Region as SpecRegion

WIDEST_ACCESS = 16  # bytes: no machine loads or stores more for one thread at once


def walk(block: Block, parts: Mapping[str, Part]) -> tuple[Region, ...]:
    """The regions of a block that passed all checks; `parts` are those of both sides by name."""
    regions = []
    end = ZERO
    for region in block.regions:
        regions.append(_region(region, parts, end))
        end = regions[-1].base + regions[-1].size
    return tuple(regions)


def asked_alignment(block: Block) -> int:
    """The largest alignment in the spec, which a block's start must have; 1 where that is below 4.

    Two bytes are what the shorthands align to. They keep 16-bit numbers together and ask nothing of whoever allocates.
    """
    asked = [1]
    for region in block.regions:
        asked.append(region.align)
        asked += [item.align for item in region.order if isinstance(item, AlignedAxis)]
        asked += [_align(item) for item in region.fields]
    return max(asked) if max(asked) >= 4 else 1


def _align(item: FieldItem) -> int:
    return item.align if isinstance(item, (Entry, Reserve)) else 1


def _num_bytes(item: FieldItem, parts: Mapping[str, Part]) -> int:
    if isinstance(item, Reserve):
        return item.reserved
    return parts[item.field if isinstance(item, Entry) else item].num_bytes


def _region(region: SpecRegion, parts: Mapping[str, Part], end: Form) -> Region:
    axes = [(item.axis, item.align) if isinstance(item, AlignedAxis) else (item, 1) for item in region.order]
    at = [axis for axis, _ in axes].index("field")
    outer, inner = axes[:at], axes[at + 1 :]
    widest = max(_align(item) for item in region.fields)
    alignment = max(region.align, widest)
    base = end.round_up(alignment)

    offset = ZERO
    placed: list[tuple[FieldItem, Form, dict[str, Form]]] = []
    for item in region.fields:
        offset = offset.round_up(_align(item))
        strides: dict[str, Form] = {}
        size = Form.constant(_num_bytes(item, parts))
        for axis, align in reversed(inner):
            strides[axis] = size.round_up(align)
            size = strides[axis] * SIZES[axis]
        placed.append((item, offset, strides))
        offset += size

    size = offset
    outer_strides: dict[str, Form] = {}
    for axis, align in reversed(outer):
        outer_strides[axis] = size.round_up(max(align, widest))
        size = outer_strides[axis] * SIZES[axis]

    entries = tuple(
        _entry(item, region.name, parts, base + offset, {**outer_strides, **strides})
        for item, offset, strides in placed
    )
    return Region(region.name, tuple(axis for axis, _ in axes), base, size, alignment, entries)


def _entry(
    item: FieldItem, region: str, parts: Mapping[str, Part], base: Form, strides: Mapping[str, Form]
) -> Field | Reserved:
    token, head = strides["token"], strides["head"]
    if isinstance(item, Reserve):
        return Reserved(item.reserved, region, base, token, head)
    name = item.field if isinstance(item, Entry) else item
    alignment = math.gcd(WIDEST_ACCESS, base.divisor(), token.divisor(), head.divisor())
    return Field(name.partition(".")[0], parts[name], region, base, token, head, alignment)

"""Lower one side: lanes, packing, rotation, and the fields as expressions."""

from __future__ import annotations

from tqgen.layout import ITEM_BYTES, Field, Layout, Side
from tqgen.layout.form import Form
from tqgen.lower.lanes import Axis, Lanes, Tile, codes_per_unit, fragment_order, next_power_of_two, tile
from tqgen.lower.quads import quads_plan
from tqgen.numerics.literals import fp32
from tqgen.plan import EncodedPlan, FieldPlan, LanesPlan, PackingPlan, QuadsPlan, RotationPlan, SidePlan

# Elements of the rotation's inner dimension that are multiplied at a time: the factors wait in shared memory, which is
# 64 KiB on the smallest target. A sign matrix is one bf16 tile, any other matrix is split into three.
SIGNS_TILE_BYTES = 32 * 1024
MATRIX_TILE_BYTES = 16 * 1024
BF16_BYTES = 2
HELD_COLUMNS = 32  # of a matrix that is used as it is in memory, beside the parts that programs of many rows keep
WIDEST_KEPT = 128  # elements of a matrix of which three bf16 parts fit shared memory

WORD_BITS = 4  # codes of which eight are packed into one 32-bit word
WIDEST_ALIGNMENT = 16  # what a launch tells of the cache's alignment at most

# What `saturate` lets in. With fp16 metadata nothing larger could be stored; otherwise the square of any vector's
# elements must stay a finite fp32 sum: 1024 * (2**56)**2 = 2**122.
FP16_LARGEST = 65504.0
SQUARE_SAFE = 2.0**56


def lanes_plan(lanes: Lanes) -> LanesPlan:
    return LanesPlan(lanes.size, lanes.index("lane"), lanes.mask("lane"), lanes.is_plain)


def offset_source(field: Field) -> str:
    """The byte offset of a field of (token, head), as source."""

    def term(variable: str, stride: Form) -> str:
        text = stride.source("BLOCK_SIZE", "NUM_KV_HEADS")
        return f"{variable} * ({text})" if len(stride.terms) > 1 or " " in text else f"{variable} * {text}"

    parts = [field.base.source("BLOCK_SIZE", "NUM_KV_HEADS")] if field.base.terms else []
    parts += [term("token", field.token_stride), term("head", field.head_stride)]
    return " + ".join(parts)


def field_plan(field: Field) -> FieldPlan:
    part = field.part
    item_bytes = ITEM_BYTES[part.dtype] if part.dtype else max(1, part.bits // 8) if part.bits % 8 == 0 else 1
    is_packed = part.dtype is None and part.bits <= 8
    stored = f"{part.bits}-bit codes" if part.dtype is None else part.dtype
    span = f"{part.num_bytes} bytes" + (f" ({part.count} x {stored})" if part.count > 1 else f" ({stored})")
    return FieldPlan(
        name=field.name.replace(".", "_"),
        title=field.name,
        region=field.region,
        offset=offset_source(field),
        num_bytes=part.num_bytes,
        item_bytes=1 if is_packed else item_bytes,
        dtype=part.dtype,
        count=part.count,
        bits=part.bits,
        alignment="ALIGNMENT" if field.alignment == WIDEST_ALIGNMENT else f"min(ALIGNMENT, {field.alignment})",
        comment=f"Byte offset in the block of `{field.name}`: {span}, region `{field.region}`.",
    )


def packing_plan(side: Side, shape: Tile) -> PackingPlan:
    codes = side.part("codes")
    unit = codes_per_unit(codes.bits)
    unit_bytes = unit * codes.bits // 8
    num_units = -(-codes.count // unit)
    halves = side.parameters.packing == "halves"
    part = side.head_dim // unit
    if unit == 1:
        order = "one after the other"
    elif not halves:
        order = "element after element, least significant bit first"
    elif codes.bits in (1, 2, 4):
        order = f"{unit} to a byte: elements j + i * {part} share byte j"
    else:
        order = f"{unit} to a unit: elements j + i * {part} share unit j"
    return PackingPlan(
        bits=codes.bits,
        mask=2**codes.bits - 1,
        codes_per_unit=unit,
        unit_bytes=unit_bytes,
        word="int64" if unit_bytes > 4 else "int32",
        position_axis=1 if halves and unit > 1 else 2,
        units=lanes_plan(shape.units),
        num_units=num_units,
        last_unit_bytes=codes.num_bytes - (num_units - 1) * unit_bytes,
        order=order,
        wide=codes.bits in (16, 32),
    )


def encoded_plan(side: Side, shape: Tile, grouped: bool) -> tuple[EncodedPlan, Lanes]:
    """The tile of the store, and its lanes."""
    bits = side.part("codes").bits
    halves = side.parameters.packing == "halves"
    full = shape.elements.is_full and shape.elements.is_plain
    rotated = side.rotation.kind != "none"
    whole_words = bits == WORD_BITS and full and not halves and side.head_dim >= 32
    unit = 32 // bits if whole_words else codes_per_unit(bits)
    if rotated and full and not grouped and not halves and unit > 2 and side.head_dim >= 4 * unit:
        lanes, units = fragment_order(side.head_dim, unit)
        view = tuple(axis.padded for axis in lanes.axes)
        unit_axes: tuple[tuple[int, str], ...] = (
            (2, f"{2 * bits} * tl.arange(0, {view[1]})"),
            (4, f"{bits} * tl.arange(0, 2)"),
        )
    else:
        lanes, units = shape.elements, shape.units
        position = f"{bits} * tl.arange(0, {unit})"
        if halves:
            view, unit_axes = (unit, units.size), ((1, position),)
        else:
            if whole_words:
                units = Lanes((Axis(side.head_dim // unit, side.head_dim // unit, 1),))
            view, unit_axes = (units.size, unit), ((2, position),)
    words = unit * bits == 24 and full and side.head_dim >= 4 * unit and units.axes[0].padded % 4 == 0
    word_lanes = None
    if words:
        first, *rest = units.axes
        word_lanes = Lanes(
            (
                Axis(first.count // 4, first.padded // 4, first.stride),
                *(Axis(a.count, a.padded, a.stride // 4) for a in rest),
            )
        )
    plan = EncodedPlan(
        lanes=lanes_plan(lanes),
        units=lanes_plan(units),
        view=view,
        unit_axes=unit_axes if unit > 1 else (),
        words=words,
        whole_words=whole_words,
        unit_bytes=unit * bits // 8,
        pair_shifts=tuple(range(2 * bits, unit * bits, 2 * bits)),
        word_lanes=lanes_plan(word_lanes) if word_lanes else None,
    )
    return plan, lanes


def quads_encoded(side: Side, quads: QuadsPlan, shape: Tile) -> EncodedPlan:
    """The tile of the store where quads hold rows: [ROWS, units, codes]."""
    bits = side.part("codes").bits
    whole_words = quads.codes * bits == 32
    words = Lanes((Axis(quads.units // 4, quads.units // 4, 1),))
    return EncodedPlan(
        lanes=lanes_plan(shape.elements),
        units=lanes_plan(Lanes((Axis(quads.units, quads.units, 1),))),
        view=(quads.units, quads.codes),
        unit_axes=((2, f"{bits} * tl.arange(0, {quads.codes})"),),
        words=not whole_words,
        whole_words=whole_words,
        unit_bytes=quads.codes * bits // 8,
        pair_shifts=(),
        word_lanes=None if whole_words else lanes_plan(words),
    )


def rotation_plan(side: Side, lanes: Lanes, unpacked: Lanes, held: QuadsPlan | None) -> RotationPlan:
    rotation, head_dim = side.rotation, side.head_dim
    padded = max(16, next_power_of_two(head_dim))
    is_kept = rotation.kind == "matrix" and max(padded, lanes.size) <= WIDEST_KEPT and held is None
    budget = SIGNS_TILE_BYTES if rotation.is_hadamard else MATRIX_TILE_BYTES

    def chunk(other: int) -> int:
        fitting = max(16, min(padded, budget // (BF16_BYTES * other)))
        # A chunk that divides the vector leaves no lanes idle and needs no mask.
        whole = [size for size in (fitting, fitting // 2) if size >= 16 and head_dim % size == 0]
        return whole[0] if whole else fitting

    rows, columns = padded if is_kept else chunk(lanes.size), chunk(lanes.size)
    if rotation.kind == "matrix" and held:
        columns = HELD_COLUMNS
    row_chunks, column_chunks = -(-head_dim // rows), -(-head_dim // columns)
    inner = "d" if row_chunks == 1 and lanes.is_plain and rows == lanes.size else "k"
    masked = head_dim % rows != 0
    lane_mask = unpacked.mask("lane")
    encoded_mask = lanes.mask("lane")
    how = "quad_" if held else "dealt_" if rotation.is_hadamard and not lanes.is_plain else ""
    return RotationPlan(
        kind=rotation.kind,
        is_hadamard=rotation.is_hadamard,
        product="_signs_product" if rotation.is_hadamard else "_matrix_product",
        signs=rotation.signs,
        scale=fp32(rotation.scale),
        scale_squared=fp32(rotation.scale**2),
        is_scaled=rotation.scale != 1.0,
        chunk=rows,
        chunks=row_chunks,
        inner=inner,
        vector_mask=f"live[:, None] & ({inner} < {head_dim})[None, :]" if masked else "live[:, None]",
        matrix_mask=" & ".join(
            [f"({inner} < {head_dim})[:, None]"] * masked + ["in_vector[None, :]"] * (encoded_mask is not None)
        )
        or None,
        dealt=rotation.is_hadamard and not lanes.is_plain,
        is_kept=is_kept,
        stored=f"{how}rotation",
        column_chunk=columns,
        column_chunks=column_chunks,
        columns_masked=head_dim % columns != 0,
        transposed_mask=" & ".join(
            ["in_vector[:, None]"] * (lane_mask is not None)
            + [f"(column < {head_dim})[None, :]"] * (head_dim % columns != 0)
        )
        or None,
    )


def side_plan(layout: Layout, side: Side, quads: bool = False) -> SidePlan:
    """The plan of a side; `quads`: its rows may be held by quads of threads."""
    group = getattr(side.parameters, "group", None) or side.head_dim
    halves = side.parameters.packing == "halves"
    shape = tile(side.head_dim, group, codes_per_unit(side.part("codes").bits), halves)
    if isinstance(shape, str):
        raise ValueError(shape)  # refused by the spec's checks
    constants = side.codec.kernel_constants(side)
    grouped = shape.groups.size > 1
    held = quads_plan(layout, side, constants, grouped) if quads else None
    if held:
        encoded, encoded_lanes = quads_encoded(side, held, shape), shape.elements
    else:
        encoded, encoded_lanes = encoded_plan(side, shape, grouped)
    fields = {field.part.name: field_plan(field) for field in layout.fields if field.side == side.name}
    has_fp16 = any(part.dtype == "fp16" for part in side.parts) or getattr(side.parameters, "dtype", None) == "fp16"
    rotation = rotation_plan(side, encoded_lanes, shape.elements, held)
    return SidePlan(
        name=side.name,
        title=f"{side.name}: {describe(side)}",
        codec=side.codec.name,
        macros=f"codecs/{side.codec.name}.py.j2",
        head_dim=side.head_dim,
        lanes=lanes_plan(shape.elements),
        encoded=encoded,
        groups=lanes_plan(shape.groups),
        group_lanes=shape.group_lanes,
        grouped=grouped,
        center=side.parameters.center,
        saturate=side.parameters.non_finite == "saturate",
        limit=fp32(FP16_LARGEST if has_fp16 else SQUARE_SAFE),
        rotation=rotation,
        constants=constants,
        encode_tables=constants.quad_tables if held else constants.encode_tables,
        decode_tables=constants.decode_tables,
        back_tables=constants.back_tables if held and side.rotation.kind == "matrix" else (),
        correct_tables=() if held else constants.correct_tables,
        encode_options=("ROWS",) * grouped + ("HARDWARE_FP8",) * constants.uses_hardware_fp8,
        uses_hardware_fp8=constants.uses_hardware_fp8,
        codes=fields["codes"],
        metadata=tuple(plan for name, plan in fields_in_order(side, fields) if name != "codes"),
        packing=packing_plan(side, shape),
        reading=reading(side, rotation, constants.needs_norm),
        quads=held,
    )


def fields_in_order(side: Side, fields: dict[str, FieldPlan]) -> list[tuple[str, FieldPlan]]:
    """In the order of the codec's parts, which the macros return."""
    return [(part.name, fields[part.name]) for part in side.parts]


def describe(side: Side) -> str:
    """The codec and its transform in a few words."""
    bits = side.part("codes").bits
    return f"{bits}-bit {side.codec.name}, rotation {side.rotation.kind}"


def reading(side: Side, rotation: RotationPlan, needs_norm: bool) -> str:
    steps = []
    if side.parameters.center:
        steps.append("less the head's center")
    if rotation.kind != "none":
        # elements of the matrix are powers of two, so that products with them are exact
        elements = 2 ** (side.rotation.size.bit_length() // 2)
        factor = f" (times {side.rotation.size}**0.5 / {elements})" if needs_norm and rotation.is_scaled else ""
        steps.append(f"rotated{factor}")
    if needs_norm:
        steps.append("and their norms [ROWS]")
    return "".join(
        f", {step}" if number or not step.startswith("and") else f" {step}" for number, step in enumerate(steps)
    )

"""Lower a layout to the plan of its module: everything is decided here, the templates only write it down."""

from __future__ import annotations

import dataclasses

from tqgen.layout import Layout
from tqgen.lower.attention import attention_plan
from tqgen.lower.header import comment_lines, docstring_text, facts, summary
from tqgen.lower.sides import side_plan
from tqgen.lower.tables import attention_constants, side_constants
from tqgen.plan import Argument, KeptPlan, ModulePlan, TilePlan
from tqgen.version import __version__

# Rows (token-heads) of one program. tl.dot needs 16; with many rows the rotation matrix is loaded less often by
# larger tiles, as long as the tile fits the registers.
FEW_ROWS = TilePlan(rows=16, warps=4)
QUADS_ROWS = TilePlan(rows=8, warps=1)  # one row for each quad of a warp's threads
WIDEST_OF_QUADS = 256  # elements of a row, of which a thread has a quarter in registers
QUADS_UNPACK = TilePlan(rows=16, warps=1)
KEPT_ROWS = TilePlan(rows=128, warps=8)  # where a matrix waits in shared memory
KEPT_UNPACK = TilePlan(rows=64, warps=4)
TILES = 8  # for which a program splits a matrix
# Where quads hold rows that are multiplied by a matrix. Two programs share a multiprocessor: one multiplies while the
# other one looks for codes. Those of 4 warps have the registers for the next tile's rows, which are on their way then.
KEPT = KeptPlan(
    tile=TilePlan(rows=64, warps=4),
    other=TilePlan(rows=32, warps=4),
    programs=2,
    few=TilePlan(rows=16, warps=8),
    few_unpacked=FEW_ROWS,
    chunk=32,
)
INTERPRETED_ROWS = 64  # Triton's interpreter takes a time for each program, whatever it does
MANY_ROWS = {64: TilePlan(64, 4), 128: TilePlan(64, 4), 256: TilePlan(32, 8)}
MANY_FROM = 16384  # rows from which there are enough large tiles to fill a GPU
KEPT_FROM = 4096  # rows from which it pays that programs keep a matrix
ALLOCATED_AT = 64  # bytes, at multiples of which torch's memory starts: on the CPU; on GPUs at those of 512
ALIGNMENT_SEEN = 16  # bytes: Triton's kernels for aligned tensors, and the widest accesses, ask for no more


def lower(layout: Layout, spec_file: str) -> ModulePlan:
    """The plan of `layout`'s module; `spec_file` is named in its header."""
    sides = {side.name: side_plan(layout, side, quads=True) for side in layout.sides}
    by_matrix = [plan.rotation.kind == "matrix" for plan in sides.values()]
    quads = all(
        plan.lanes.size <= WIDEST_OF_QUADS and (plan.quads or plan.rotation.kind == "none") for plan in sides.values()
    ) and any(by_matrix) == all(by_matrix)
    if not quads:
        sides = {side.name: side_plan(layout, side) for side in layout.sides}
    attention = attention_plan(layout, sides)
    in_tiles = [name for name, side in attention.sides if not side.in_words] if attention else []
    sides = {
        name: dataclasses.replace(
            plan,
            decodes_tiles=not plan.quads or name in in_tiles,
            stores_tiles=not plan.quads or (name == "value" and attention is not None and plan.rotation.kind == "none"),
            unrotates_tiles=plan.rotation.kind == "matrix"
            or (plan.rotation.kind != "none" and (not plan.quads or name == "value")),
        )
        for name, plan in sides.items()
    }
    key, value = sides.get("key"), sides.get("value")
    widest = max(plan.lanes.size for plan in sides.values())
    kept = KEPT if quads and all(by_matrix) else None
    keeps = any(plan.rotation.is_kept for plan in sides.values())
    large = KEPT_ROWS if keeps else MANY_ROWS.get(max(64, widest), FEW_ROWS)
    arguments = run_time_arguments(layout)
    absent = tuple(side.name for side in (layout.key, layout.value) if not side.is_stored)
    keywords = "".join(f", {argument.name}" for argument in arguments)
    unpack_keywords = "".join(f", {argument.name}=None" for argument in arguments)
    of_sides = side_constants(layout, tuple(sides.values()))
    tables = (*of_sides, *attention_constants(layout, attention, of_sides))
    return ModulePlan(
        name=layout.name,
        doc=summary(layout),
        spec_file=docstring_text(spec_file),
        version=__version__,
        layout_id=layout.layout_id,
        key=key,
        value=value,
        key_head_dim=layout.key.head_dim,
        value_head_dim=layout.value.head_dim,
        slot_bytes=layout.slot_bytes,
        alignment=layout.alignment,
        room_to_align=layout.alignment - 1 if layout.alignment > ALLOCATED_AT else 0,
        address_modulus=max(ALIGNMENT_SEEN, layout.alignment),
        always_fits=always_fits(layout),
        needed_bytes=layout.end.source(),
        byte_map=tuple(comment_lines(layout)),
        facts=tuple(facts(layout)),
        fields=tuple(field for plan in sides.values() for field in plan.fields),
        absent=absent,
        run_time_arguments=arguments,
        output_arguments=tuple(argument for argument in arguments if argument.name.startswith("value_")),
        constants=tables,
        store_signature=f"key, value, kv_cache, slot_mapping{', *' if keywords else ''}{keywords}",
        unpack_signature="kv_cache, slot_mapping=None, *, block_table=None, seq_lens=None, "
        f'space="model", dtype=None, out=None{unpack_keywords}',
        has_spaces=any(side.rotation.kind != "none" or side.parameters.center for side in layout.sides),
        uses_hardware_fp8=any(plan.uses_hardware_fp8 for plan in sides.values()),
        attention=attention,
        attention_arguments=tuple(argument for argument in arguments if argument.name != "key_center"),
        store_small=QUADS_ROWS if quads else FEW_ROWS,
        store_large=QUADS_ROWS if quads else large,
        store_large_rows=KEPT_FROM if kept else MANY_FROM,
        tiles=TILES if keeps else 1,
        quads=quads,
        kept=kept,
        unpack=QUADS_UNPACK if quads else TilePlan(rows=16, warps=4),
        unpack_model=QUADS_ROWS,
        unpack_many=KEPT_UNPACK,
        interpreted_rows=INTERPRETED_ROWS,
        rotate_output=FEW_ROWS,
    )


def always_fits(layout: Layout) -> bool:
    """Whether the regions end inside the block for every block size and head count.

    For one token of one head they take most: an extent that is rounded up is rounded by as much for many, or by less.
    """
    return layout.end.evaluate(1, 1) <= layout.slot_bytes


def run_time_arguments(layout: Layout) -> tuple[Argument, ...]:
    arguments = []
    for side in layout.sides:
        if side.rotation.kind == "matrix":
            d = side.head_dim
            arguments.append(
                Argument(
                    f"{side.name}_rotation",
                    f"fp32 [{d}, {d}], orthogonal R: {side.name}s are stored as x @ R.",
                    f"({d}, {d})",
                    needed_in_model_space=True,
                    per_head=False,
                )
            )
        if side.parameters.center:
            arguments.append(
                Argument(
                    f"{side.name}_center",
                    f"fp32 [num_kv_heads, {side.head_dim}], subtracted from {side.name}s before they are encoded.",
                    f"(num_kv_heads, {side.head_dim})",
                    needed_in_model_space=True,
                    per_head=True,
                )
            )
    return tuple(arguments)

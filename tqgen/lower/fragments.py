"""Lower a side for attention of few query rows: each thread loads the codes that tensor cores want of it.

The tensor core's product of a tile of 16 rows decides which numbers of its left operand a thread brings: those of rows
g and g + 8 and, of every 16 places of the sum, four, for thread 4 g + c of a warp. Which token is a row, and which
element a place, is free, as long as the other operand agrees. So a thread takes a run of neighbouring codes, which it
loads at once and expands where they are: nothing goes through shared memory, and no warp waits for another.

Keys are the left operand of the scores: thread 4 g + c takes, of four tokens from 4 g on, the c-th quarter of each.
Values are the left operand of the output, turned: of four tokens from 4 c and four from 16 + 4 c on, the g-th eighth.
"""

from __future__ import annotations

import math

from tqgen.layout import Field, Layout, Side
from tqgen.lower import ptx
from tqgen.lower.lanes import element_of, parts_of_packing
from tqgen.lower.ptx_pairs import EVEN_THEN_ODD, paired_expansion, paired_fp8_expansion
from tqgen.lower.quads import butterflies, rotates_packed
from tqgen.plan import (
    AttentionSidePlan,
    FieldPlan,
    FragmentPlan,
    GroupsPlan,
    PairsPlan,
    QueryPlan,
    RunFieldPlan,
    RunPlan,
    SidePlan,
)

TOKENS = 32  # of one warp in one step: four for each of 8 threads
WARPS = 4
RUN = 4  # neighbouring tokens of a thread, which must lie in one block
THREADS_OF_ROW = {"key": 4, "value": 8}
HEAD_DIMS = (64, 128, 256)
ALIGNMENT = 16  # bytes, that this form asks of a cache; those of `allocate` have it
WORD = 4  # bytes
MOST_UNITS = 4  # of a run that is not whole words
MOST_GROUPS = 16  # of a vector, with scales of their own
HALVES = ("fp16", "bf16")  # scales whose products with a power of two fp16 holds, if they are not far apart
MOST_ROWS = 16  # query rows of a program: sums of more would fill the registers
FEW_ROWS = 32  # query rows up to which programs of MOST_ROWS are faster than those of `_decode_kernel`
# Weights are probability * scale. The scale's power of two moves into the exponential, between these: a sum of
# probabilities alone may be so much larger or smaller than that of the weights, and must not overflow or vanish.
SMALLEST_EXPONENT, LARGEST_EXPONENT = -40, 40
# Programs that a multiprocessor has registers for, about: some 128 of a thread, up to 168 where more is needed at one
# time, and up to 255 for vectors of 256 elements, or for more than 8 query rows.
MOST_PROGRAMS, FEWER_PROGRAMS, FEWEST_PROGRAMS = 4, 3, 2
REGISTERS_OF_FEWER_PROGRAMS = 168
QUERY_BYTES = 32768  # of shared memory, for the rotation of the query: one round trip to memory for 128 elements

NATURAL = tuple(range(8))
ORDERS = {
    NATURAL: "place",
    tuple(range(4)): "place",
    (0, 4, 1, 5, 2, 6, 3, 7): "place % 2 * 4 + place % 8 // 2",
    EVEN_THEN_ODD: "place % 4 * 2 + place % 8 // 4",
}


def fragment_plan(
    layout: Layout, plans: dict[str, SidePlan], expanded: dict[str, AttentionSidePlan | None]
) -> FragmentPlan | None:
    """None where a side is not made of whole runs of codes that expand by themselves, not too wide."""
    key_codes, value_codes = expanded["key"], expanded["value"]
    if key_codes is None or value_codes is None or value_codes.normalised:
        return None
    numbers = _expansion(layout.key, key_codes)
    pairs = _expansion(layout.value, value_codes)
    if numbers is None or pairs is None:
        return None
    key = run_plan(layout, layout.key, plans["key"], key_codes, numbers)
    value = run_plan(layout, layout.value, plans["value"], value_codes, pairs)
    if key is None or value is None:
        return None
    if any((value.groups or field.short != "zero") and field.dtype != "fp16" for field in value.fields):
        return None  # its powers of two go beyond what weights and exponentials can share
    # There is a block to read where a position has none.
    conditions = ["kv_cache.shape[0] > 0", f"block_size % {RUN} == 0", f"alignment % {ALIGNMENT} == 0"]
    # Offsets in a block are counted in 32 bits.
    conditions.append(f"{layout.end.source()} < 2**31")
    if key.around or value.around:
        # Words around bytes stay inside a block that is made of whole words.
        conditions.append(f"({layout.end.source()}) % {WORD} == 0")
    # Words around runs, and metadata of which each takes a register, leave none for values.
    values_ahead = not key.shifted and all(field.words for field in key.fields + value.fields)
    value_pairs = pairs_plan(value_codes, pairs)
    is_small = values_ahead and not value_pairs.looks_up and max(key_codes.bits, value_codes.bits) < 8
    query = query_plan(layout.key, numbers)
    is_long = max(layout.key.head_dim, layout.value.head_dim) > 128
    # A few registers more than three programs have room for, which the assembler does without.
    is_large = not is_long and (key.groups or value.groups or min(key_codes.bits, value_codes.bits) == 8)
    return FragmentPlan(
        why="few query rows: operands are expanded in the registers that tensor cores take them from",
        key_codes=key_codes,
        value_codes=value_codes,
        key=key,
        value=value,
        pairs=value_pairs,
        tokens=TOKENS,
        warps=WARPS,
        most_rows=MOST_ROWS,
        few_rows=FEW_ROWS,
        condition=" and ".join(conditions),
        values_ahead=values_ahead,
        query=query,
        query_tables=query_tables(layout.key, query),
        query_chunk=min(
            layout.key.head_dim,
            QUERY_BYTES // (layout.key.head_dim * (4 if plans["key"].rotation.kind == "matrix" else 2)),
        ),
        smallest_exponent=SMALLEST_EXPONENT,
        largest_exponent=LARGEST_EXPONENT,
        programs_per_processor=FEWEST_PROGRAMS if is_long else MOST_PROGRAMS if is_small else FEWER_PROGRAMS,
        programs_of_more_rows=FEWEST_PROGRAMS,
        registers=REGISTERS_OF_FEWER_PROGRAMS if is_large else None,
    )


def query_plan(key: Side, expansion: ptx.Expansion) -> QueryPlan | None:
    """None where no row can be rotated within the four threads that hold it."""
    if key.rotation.kind == "matrix" or not rotates_packed(key):
        return None
    return QueryPlan(
        parts=parts_of_packing(key),
        butterflies=butterflies(key.rotation, key.head_dim),
        signed=key.rotation.kind == "signed_hadamard",
        unit_order=unit_order(expansion.order),
    )


def query_tables(key: Side, query: QueryPlan | None) -> tuple[str, ...]:
    """Constants by which a query is rotated; a matrix comes with the call."""
    if not key.rotation.is_hadamard:
        return ()
    if query is None:
        return ("key_rotation",)
    return ("key_quad_rotation", "key_signs") if query.signed else ("key_quad_rotation",)


def unit_order(order: tuple[int, ...]) -> tuple[int, ...]:
    """Axes that bring a unit's codes into the order in which their numbers come, where each axis is a bit of a code's
    number, the highest first, after two axes of rows and units; empty where they come as they are."""
    if order == tuple(range(len(order))):
        return ()
    steps = len(order).bit_length() - 1
    # The highest bit of a place says which half of the order it is in, and so which bit of a code's number moves.
    moved = [order[1 << (steps - 1 - axis)].bit_length() - 1 for axis in range(steps)]
    return tuple(2 + steps - 1 - bit for bit in moved)


def run_plan(
    layout: Layout, side: Side, plan: SidePlan, tile: AttentionSidePlan, expansion: ptx.Expansion
) -> RunPlan | None:
    """None where the runs of a row are not whole units, or not aligned."""
    fields = {field.part.name: field for field in layout.fields if field.side == side.name}
    bits = tile.bits
    run = side.head_dim // THREADS_OF_ROW[side.name]
    per_unit = len(expansion.order)
    num_bytes = run * bits // 8
    alignment = math.gcd(fields["codes"].alignment, num_bytes)
    whole_words = alignment % 4 == 0 and per_unit * bits == 32
    if not whole_words and (alignment < 2 or run // per_unit > MOST_UNITS):
        return None
    shifted = alignment % WORD != 0
    metadata = tuple(run_field(fields[field.title.partition(".")[2]], field) for field in plan.metadata)
    if any(not field.words and fields[field.short].alignment % min(field.item_bytes, 4) for field in metadata):
        return None
    groups = groups_plan(side, tile, per_unit) if tile.groups > 1 else None
    if tile.groups > 1 and (groups is None or any(field.dtype not in HALVES for field in plan.metadata)):
        return None
    order = ORDERS[expansion.order]
    within = order if order == "place" else f"place // 8 * 8 + {order}"
    return RunPlan(
        run=run,
        units=run // per_unit,
        num_bytes=num_bytes,
        piece_words=min(alignment, ALIGNMENT) // 4 if whole_words else 0,
        pieces=max(1, num_bytes // alignment) if whole_words else 0,
        around=0 if whole_words else -(-(num_bytes + 2 * shifted) // WORD),
        optional=shifted and num_bytes % WORD == 0,
        shifted=shifted,
        units_of_run=() if whole_words else units_of_run(run // per_unit, per_unit * bits // 8, shifted),
        tokens=TOKENS,
        masked=side.name == "value" and (tile.format != "" or groups is not None),
        code=f"thread * {run} + {within}",
        element=element_of(side, "code"),
        fields=metadata,
        groups=groups,
    )


def groups_plan(side: Side, tile: AttentionSidePlan, per_unit: int) -> GroupsPlan | None:
    """None where groups are not whole units, or more than a thread has room for."""
    threads, groups = THREADS_OF_ROW[side.name], tile.groups
    if groups > MOST_GROUPS or side.head_dim // max(groups, threads) % per_unit or parts_of_packing(side) > 1:
        return None

    def first(of: int) -> str:
        if groups >= of:
            return f"thread * {groups // of}" if groups > of else "thread"
        return f"thread // {of // groups}"

    return GroupsPlan(
        of_run=max(1, groups // threads),
        first_of_run=first(threads),
        of_quarter=max(1, groups // 4),
        first_of_quarter=first(4),
        largest=tile.largest,
        has_zero=tile.zero is not None,
    )


def pairs_plan(tile: AttentionSidePlan, expansion: ptx.Expansion) -> PairsPlan:
    order = ORDERS[expansion.order]
    return PairsPlan(
        assembly=expansion.assembly,
        constraints=expansion.paired_constraints,
        constants=expansion.constants,
        comment=expansion.comments,
        per_unit=len(expansion.order),
        order=order,
        shift=f"{tile.bits} * place" if order == "place" else f"{tile.bits} * ({order})",
        looks_up=tile.looks_up,
    )


def _expansion(side: Side, tile: AttentionSidePlan) -> ptx.Expansion | None:
    """How units of a key, or of the values of two tokens, become numbers; None for sides that are not expanded so."""
    folding = side.codec.folding(side)
    if folding is None or side.head_dim not in HEAD_DIMS:
        return None
    if folding.numbers is None:
        return ptx.fp8_expansion(folding.format) if side.name == "key" else paired_fp8_expansion(folding.format)
    if side.name == "key":
        return ptx.expansion(tile.bits, folding.numbers)
    return paired_expansion(tile.bits, folding.numbers)


def units_of_run(units: int, num_bytes: int, shifted: bool) -> tuple[str, ...]:
    """Source of each unit of so many bytes, over the words around the run; bits above a unit do not count.

    A run that may start in the middle of a word starts at bit `shift` of the first one, 0 or 16. Either way a unit lies
    in the same word or two, so that one shift brings it down.
    """
    found = []
    for start in range(0, units * num_bytes, num_bytes):
        word, bit = start // WORD, 8 * (start % WORD)
        distance = str(bit or "") if not shifted else f"shift + {bit}" if bit else "shift"
        if bit + 16 * shifted + 8 * num_bytes > 8 * WORD:
            found.append(f"_funnel(word_{word}, word_{word + 1}, {distance})")
        elif distance:
            found.append(f"word_{word} >> " + (f"({distance})" if " " in distance else distance))
        else:
            found.append(f"word_{word}")
    return tuple(found)


def run_field(field: Field, plan: FieldPlan) -> RunFieldPlan:
    """Four items of neighbouring tokens come as one load where they are neighbours themselves."""
    item = plan.item_bytes
    alignment = math.gcd(ALIGNMENT, field.base.divisor(RUN), field.head_stride.divisor(RUN))
    grouped = plan.count > 1
    neighbours = not grouped and field.token_stride.is_constant and field.token_stride.evaluate(1, 1) == item
    whole = neighbours and alignment % (RUN * item) == 0
    return RunFieldPlan(
        name=plan.name,
        title=plan.title,
        short=plan.title.partition(".")[2],
        dtype=str(plan.dtype),
        item_bytes=item,
        stride=field.token_stride.source("BLOCK_SIZE", "NUM_KV_HEADS"),
        words=RUN * item // 4 if whole else 0,
        grouped=grouped,
    )

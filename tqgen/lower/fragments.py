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
from tqgen.plan import AttentionSidePlan, FieldPlan, FragmentPlan, PairsPlan, QueryPlan, RunFieldPlan, RunPlan, SidePlan

TOKENS = 32  # of one warp in one step: four for each of 8 threads
WARPS = 4
RUN = 4  # neighbouring tokens of a thread, which must lie in one block
THREADS_OF_ROW = {"key": 4, "value": 8}
HEAD_DIMS = (64, 128, 256)
ALIGNMENT = 16  # bytes, that this form asks of a cache; those of `allocate` have it
WORD = 4  # bytes
MOST_UNITS = 4  # of a run that is not whole words
MOST_ROWS = 16  # query rows of a program: sums of more would fill the registers
# Weights are probability * scale. The scale's power of two moves into the exponential, between these: a sum of
# probabilities alone may be so much larger or smaller than that of the weights, and must not overflow or vanish.
SMALLEST_EXPONENT, LARGEST_EXPONENT = -40, 40
# Programs that a multiprocessor has registers for, about: some 128 of a thread, up to 168 where more is needed at one
# time, and up to 255 for vectors of 256 elements, or for more than 8 query rows.
MOST_PROGRAMS, FEWER_PROGRAMS, FEWEST_PROGRAMS = 4, 3, 2
QUERY_BYTES = 32768  # of shared memory, for the rotation of the query: one round trip to memory for 128 elements

NATURAL = tuple(range(8))
ORDERS = {
    NATURAL: "place",
    tuple(range(4)): "place",
    (0, 4, 1, 5, 2, 6, 3, 7): "place % 2 * 4 + place % 8 // 2",
    EVEN_THEN_ODD: "place % 4 * 2 + place % 8 // 4",
}


def fragment_plan(
    layout: Layout, plans: dict[str, SidePlan], tiles: dict[str, AttentionSidePlan]
) -> FragmentPlan | None:
    """None where a side is not made of whole runs of codes with one scale for each token, not too wide."""
    numbers = _expansion(layout.key, tiles["key"])
    pairs = _expansion(layout.value, tiles["value"])
    if numbers is None or pairs is None or tiles["value"].normalised:
        return None
    key = run_plan(layout, layout.key, plans["key"], tiles["key"], numbers)
    value = run_plan(layout, layout.value, plans["value"], tiles["value"], pairs)
    if key is None or value is None:
        return None
    if any(field.short != "zero" and field.dtype != "fp16" for field in value.fields):
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
    value_pairs = pairs_plan(tiles["value"], pairs)
    is_small = values_ahead and not value_pairs.looks_up and not any(tile.format for tile in tiles.values())
    query = query_plan(layout.key, numbers)
    is_long = max(layout.key.head_dim, layout.value.head_dim) > 128
    return FragmentPlan(
        why="few query rows: operands are expanded in the registers that tensor cores take them from",
        key=key,
        value=value,
        pairs=value_pairs,
        tokens=TOKENS,
        warps=WARPS,
        most_rows=MOST_ROWS,
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
        masked=side.name == "value" and tile.format != "",
        code=f"thread * {run} + {within}",
        element=element_of(side, "code"),
        fields=metadata,
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
    if not tile.folded or folding is None or side.head_dim not in HEAD_DIMS:
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
    neighbours = field.token_stride.is_constant and field.token_stride.evaluate(1, 1) == item
    whole = neighbours and alignment % (RUN * item) == 0
    return RunFieldPlan(
        name=plan.name,
        title=plan.title,
        short=plan.title.partition(".")[2],
        dtype=str(plan.dtype),
        item_bytes=item,
        stride=field.token_stride.source("BLOCK_SIZE", "NUM_KV_HEADS"),
        words=RUN * item // 4 if whole else 0,
    )

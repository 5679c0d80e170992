"""Lower a side for fused attention: how the packed codes of a tile of tokens become a matrix of fp16 numbers."""

from __future__ import annotations

from tqgen.codecs.base import Folding
from tqgen.layout import Field, Layout, Reserved, Side
from tqgen.lower import ptx
from tqgen.lower.fragments import fragment_plan
from tqgen.lower.lanes import element_of, next_power_of_two
from tqgen.numerics.literals import fp32
from tqgen.plan import AttentionPlan, AttentionSidePlan, SidePlan, TileChoice

# Widths whose codes are taken from 32-bit words by assembly, eight at a time or four.
WORD_BITS = (2, 3, 4, 8)
SMALLEST_WORD_DIM = 64

# Tiles that are loaded ahead of the one that is worked on.
STAGES = 1

# Query rows of a program: 64, with tiles of 32 tokens, spill registers, and took 577 us where 32 with 64 took 563.
MOST_COLUMNS = 32

# 16-byte groups of shared memory's banks.
BANK_GROUPS = 8

# Rows of the query's rotation at a time: few, since the matrix waits in shared memory beside nothing else.
QUERY_CHUNK = 32
# Weights are probability * scale relative to the largest such product; the sum of the probabilities alone, which may be
# 2**60 times larger, must stay finite for any number of tokens.
EXPONENT_LIMIT = 60
# Programs of 4 warps that a multiprocessor holds at once, by the registers of compiled kernels.
PROGRAMS_PER_PROCESSOR = 2
# Microseconds on one H200, fitted to 150 launches of `mse4_v4` with 8 to 256 splits, of 1 to 8 KV heads, 8 to 64 query
# heads and 4,096 to 32,768 tokens, to 7% of each: 1.5, 2.2, 2.8 and 3.5 a step of one to four programs, here on a line.
STEP_TIME, SPLIT_TIME, MERGE_TIME, MERGE_TURN_TIME = 0.75, 0.01, 0.0007, 1.25
MOST_WAVES = 4
LARGEST_FACTOR, SMALLEST_SOFTCAP = "2.0**127", "2.0**-100"
INVARIANT_SPLIT = 1024
INVARIANT_MERGE = 16
MERGE_MANY_ROWS = 4096
MERGE_NUMBERS = 16384  # of the splits of one query row that the merge holds at a time: 64 a thread


def attention_plan(layout: Layout, plans: dict[str, SidePlan]) -> AttentionPlan | None:
    """None for a layout that does not store both sides."""
    if not (layout.key.is_stored and layout.value.is_stored):
        return None
    expanded = {side.name: expanded_side(layout, side, plans[side.name]) for side in layout.sides}
    key, value = (attention_side(layout, side, plans[side.name], expanded[side.name]) for side in layout.sides)
    widest = max(key.size, value.size)
    tile = TileChoice(tokens=64 if widest <= 128 else 32, warps=4)
    small = TileChoice(tokens=64 if widest <= 128 else 16, warps=4)
    chunk = min(QUERY_CHUNK, max(16, next_power_of_two(layout.key.head_dim)))
    return AttentionPlan(
        key=key,
        value=value,
        tile=tile,
        tile_many_rows=small,
        most_columns=MOST_COLUMNS,
        prefetch=key.folded and value.folded,
        stages=STAGES,
        query_chunk=chunk,
        query_masked=layout.key.head_dim % chunk != 0,
        exponent_limit=EXPONENT_LIMIT,
        programs_per_processor=PROGRAMS_PER_PROCESSOR,
        step_time=STEP_TIME,
        split_time=SPLIT_TIME,
        merge_time=MERGE_TIME,
        merge_turn_time=MERGE_TURN_TIME,
        most_waves=MOST_WAVES,
        largest_factor=LARGEST_FACTOR,
        smallest_softcap=SMALLEST_SOFTCAP,
        invariant_split=INVARIANT_SPLIT,
        invariant_merge=INVARIANT_MERGE,
        merge_many_rows=MERGE_MANY_ROWS,
        merge_splits=MERGE_NUMBERS // max(64, next_power_of_two(layout.value.head_dim)),
        fragments=fragment_plan(layout, plans, expanded),
    )


def attention_side(layout: Layout, side: Side, plan: SidePlan, expanded: AttentionSidePlan | None) -> AttentionSidePlan:
    """The plan of a side in tiles, of which `expanded` is what its codes become by themselves."""
    if expanded and expanded.folded:
        return expanded
    (codes,) = (field for field in layout.fields if field.side == side.name and field.part.name == "codes")
    return AttentionSidePlan(
        folded=False,
        why=why_decoded(layout, side, side.codec.folding(side), codes),
        raw=(f"{side.name}_vector",),
        size=plan.lanes.size,
        element=plan.lanes.index.replace("lane", "p") if not plan.lanes.is_plain else "p",
        mask=plan.lanes.mask.replace("lane", "p") if plan.lanes.mask else None,
    )


def expanded_side(layout: Layout, side: Side, plan: SidePlan) -> AttentionSidePlan | None:
    """How packed codes become fp16 numbers by themselves; None where they do not."""
    fields = {field.part.name: field for field in layout.fields if field.side == side.name}
    folding = side.codec.folding(side)
    expansion = expansion_of(layout, side, folding, fields["codes"])
    if folding is None or expansion is None:
        return None
    bits = side.part("codes").bits
    order = expansion.order
    natural = order == tuple(range(len(order)))
    # A thread loads 16 bytes of a row and writes its fp16 numbers to shared memory 16 bytes, a chunk of 8 codes, at a
    # time. Eight such writes go at once, to 8 / readers rows; shared memory is laid out so that the chunk's number, the
    # row's lower bits xored in, says which banks they take. Runs of 8 / readers chunks make them all different.
    source = source_of(layout, fields["codes"])
    held = {"words": 16 * 8 // bits, "halves": 16 * 8 // bits, "shifted": 8, "pairs": 16}[source]
    readers, chunks = side.head_dim // held, held // 8
    run = min(chunks, max(1, BANK_GROUPS // readers))
    within = "p % 8" if natural else "(p % 2 * 4 + p % 8 // 2)"
    reader, chunk = f"p // {8 * run} % {readers}", f"p // {8 * readers}"
    if run > 1:
        chunk = f"p // {8 * run * readers} * {run} + p // 8 % {run}"
    code = f"({reader}) * {held} + ({chunk}) * 8 + {within}"
    per_unit = len(order)
    element = element_of(side, code)
    numbers = folding.numbers or ()
    counted = ptx.counting(bits, numbers)
    return AttentionSidePlan(
        folded=folding.groups == 1,
        why=f"codes become fp16 numbers {per_unit} at a time; scale and zero are folded out of the tile",
        raw=(f"{side.name}_units", *(field.name for field in plan.metadata)),
        size=side.head_dim,
        element=element,
        mask=None,
        code=code,
        bits=bits,
        code_mask=2**bits - 1,
        per_unit=per_unit,
        units=side.head_dim // per_unit,
        words=side.head_dim * bits // 32,
        source=source,
        assembly=expansion.assembly,
        constraints=expansion.constraints,
        constants=expansion.constants,
        comment=expansion.comments,
        needs_capability=89 if folding.format == "e4m3" else 0,
        readers=readers,
        chunks=chunks,
        run=run,
        order="position" if natural else "position // 2 + position % 2 * 4",
        counted=counted.source("codes") if counted else "",
        numbers=tuple(fp32(number) for number in numbers),
        format=folding.format,
        scale=folding.scale,
        zero=folding.zero,
        normalised=folding.normalised,
        squares_per_one=expansion.squares_per_one,
        groups=folding.groups,
        largest=fp32(max(map(abs, numbers), default=0.0)),
    )


def source_of(layout: Layout, codes: Field) -> str:
    """How packed units are loaded: whole aligned words, or words around them that are shifted into place."""
    bits = codes.part.bits
    if bits == 3:
        return "pairs"
    if bits == 4 and codes.alignment == 2 and has_bytes_after(layout, codes):
        return "shifted"
    return "halves" if bits == 2 else "words"


def has_bytes_after(layout: Layout, codes: Field) -> bool:
    """Whether words may be read around a field's bytes: no bytes of somebody else, and none after the block."""
    if any(isinstance(entry, Reserved) for region in layout.regions for entry in region.entries):
        return False
    last = layout.regions[-1].entries[-1]
    return last is not codes


def expansion_of(layout: Layout, side: Side, folding: Folding | None, codes: Field) -> ptx.Expansion | None:
    """The assembly for a side, or None where its codes do not come in whole words of a power of two."""
    bits = side.part("codes").bits
    if folding is None or side.head_dim != next_power_of_two(side.head_dim) or side.head_dim < SMALLEST_WORD_DIM:
        return None
    if folding.numbers is None:
        return ptx.fp8_expansion(folding.format)
    if bits == 3 and (codes.alignment < 2 or not has_bytes_after(layout, codes)):
        return None
    return ptx.expansion(bits, folding.numbers, squares=folding.normalised) if bits in WORD_BITS else None


def why_decoded(layout: Layout, side: Side, folding: Folding | None, codes: Field) -> str:
    """Why a side is decoded before it is multiplied, whatever its codec says of `folding`."""
    bits = codes.part.bits
    if folding is None:
        reason = "there is no scale to fold"
    elif folding.groups > 1:
        reason = "there is more than one scale a token"
    elif side.head_dim != next_power_of_two(side.head_dim) or side.head_dim < SMALLEST_WORD_DIM:
        reason = f"{side.head_dim} elements are not whole words of a power of two"
    elif bits not in WORD_BITS:
        reason = f"no assembly for {bits} bits"
    elif bits == 3 and codes.alignment < 2:
        reason = "codes of 3 bits stand at odd addresses"
    elif bits == 3 and not has_bytes_after(layout, codes):
        reason = "words around codes of 3 bits would reach into bytes that are not the layout's"
    else:
        reason = "numbers of 4 bits are looked up where backwards they are their own negatives, and these are not"
    return f"vectors are decoded first: {reason}"

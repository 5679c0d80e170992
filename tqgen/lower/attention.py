"""Lower a side for fused attention: how the packed codes of a tile of tokens become a matrix of fp16 numbers."""

from __future__ import annotations

from tqgen.codecs.base import Folding
from tqgen.layout import Field, Layout, Side
from tqgen.lower import ptx
from tqgen.lower.decoded import decoded_plan
from tqgen.lower.fragments import fragment_plan
from tqgen.lower.lanes import element_of, next_power_of_two
from tqgen.lower.words import has_bytes_after
from tqgen.numerics.literals import fp32
from tqgen.plan import AttentionPlan, AttentionSidePlan, DecodedPlan, SidePlan, TileChoice

# Widths whose codes are taken from 32-bit words by assembly, eight at a time or four.
WORD_BITS = (2, 3, 4, 8)
SMALLEST_WORD_DIM = 64
WORD = 32  # bits
THREADS = 128

# Tiles that are loaded ahead of the one that is worked on.
STAGES = 1
# Numbers that are multiplied as they are stored are copied to shared memory, the places of blocks one step before them:
# of as many tiles ahead as fit so many bytes.
COPIED_BYTES = 80 * 1024

# Query rows of a program: 64, with tiles of 32 tokens, spill registers, and took 577 us where 32 with 64 took 563.
MOST_COLUMNS = 32

# 16-byte groups of shared memory's banks.
BANK_GROUPS = 8

# Rows of the query's rotation at a time: few, since the matrix waits in shared memory beside nothing else.
QUERY_CHUNK = 32
# Weights are probability * scale relative to the largest such product; the sum of the probabilities alone, which may be
# 2**60 times larger, must stay finite for any number of tokens.
EXPONENT_LIMIT = 60
# What is decoded has numbers up to 2**15, and scales that are so much smaller. Probabilities of large values, which are
# smaller than weights, are normal numbers down to 2**-126.
EXPONENTS_OF_DECODED = (-75, 100)
# Values without a scale may differ by all that fp16 can hold, and so may their weights, which use all of its upper end.
# bf16 numbers may be as large as sums can be, so what they are multiplied by is small.
WEIGHTS_UP, WEIGHTS_UP_OF_BF16, QUERY_UP = 15, -16, -10
# Programs of 4 warps that a multiprocessor holds at once, by the registers of compiled kernels.
PROGRAMS_PER_PROCESSOR = 2
PROGRAMS_OF_DECODED = 3
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
    widest = max(next_power_of_two(side.head_dim) for side in layout.sides)
    tokens = 64 if widest <= 128 else 32
    is_wide = widest > 64 and any(side.codec.name == "raw" and side.part("codes").bits == 32 for side in layout.sides)
    tokens = tokens // 2 if is_wide else tokens
    expanded = {side.name: expanded_side(layout, side, plans[side.name]) for side in layout.sides}
    key, value = (attention_side(layout, side, plans[side.name], expanded[side.name], tokens) for side in layout.sides)
    tile = TileChoice(tokens, warps=4)
    # More registers would be spilled where words are decoded, or vectors long.
    small = TileChoice(tokens if tokens == 64 and key.folded and value.folded else tokens // 2, warps=4)
    is_plain = key.is_plain and value.is_plain
    smallest_exponent, largest_exponent = (
        EXPONENTS_OF_DECODED if value.decoded and value.decoded.scaled else (-EXPONENT_LIMIT, EXPONENT_LIMIT)
    )
    stages = stages_of_copies(2 * tokens * (key.size + value.size)) if is_plain else STAGES
    chunk = min(QUERY_CHUNK, max(16, next_power_of_two(layout.key.head_dim)))
    return AttentionPlan(
        key=key,
        value=value,
        tile=tile,
        tile_many_rows=small,
        most_columns=MOST_COLUMNS,
        prefetch=not is_plain and key.has_room and value.has_room,
        stages=stages,
        query_chunk=chunk,
        query_up=QUERY_UP if key.in_bf16 else 0,
        weights_up=weights_up(value),
        query_masked=layout.key.head_dim % chunk != 0,
        smallest_exponent=smallest_exponent,
        largest_exponent=largest_exponent,
        programs_per_processor=PROGRAMS_OF_DECODED if key.decoded or value.decoded else PROGRAMS_PER_PROCESSOR,
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


def attention_side(
    layout: Layout, side: Side, plan: SidePlan, expanded: AttentionSidePlan | None, tokens: int
) -> AttentionSidePlan:
    """The plan of a side in tiles of so many tokens, of which `expanded` is what its codes become by themselves."""
    if expanded and expanded.folded:
        return expanded
    folding = side.codec.folding(side)
    if folding is not None:
        return decoded_side(layout, side, plan, folding, tokens)
    return AttentionSidePlan(
        folded=False,
        why="vectors are decoded first: how codes become numbers is not known",
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
    size = next_power_of_two(side.head_dim)
    readers, chunks, run = dealt(size, held)
    code = code_of(held, readers, run, "p % 8" if natural else "(p % 2 * 4 + p % 8 // 2)")
    per_unit = len(order)
    element = element_of(side, code)
    numbers = folding.numbers or ()
    counted = ptx.counting(bits, numbers)
    return AttentionSidePlan(
        folded=folding.groups == 1,
        why=f"codes become fp16 numbers {per_unit} at a time; scale and zero are folded out of the tile",
        raw=(f"{side.name}_units", *(field.name for field in plan.metadata)),
        size=size,
        head_dim=side.head_dim,
        element=element,
        mask=f"({code}) < {side.head_dim}" if size > side.head_dim else None,
        code=code,
        bits=bits,
        code_mask=2**bits - 1,
        per_unit=per_unit,
        units=size // per_unit,
        used_units=side.head_dim // per_unit,
        words=size * bits // 32,
        num_bytes=side.head_dim * bits // 8,
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


def decoded_side(layout: Layout, side: Side, plan: SidePlan, folding: Folding, tokens: int) -> AttentionSidePlan:
    """A side whose words are decoded in registers, or whose numbers are multiplied as they are stored."""
    decoded = decoded_plan(layout, side, folding, plan)
    size, code, readers, chunks, run = decoded.size, "p", 1, 0, 0
    if decoded.kind != "plain":
        natural = decoded.order == tuple(range(len(decoded.order)))
        # Of words that stand alone a thread loads up to 16 bytes, if there are so many for each.
        words = 1 if decoded.apart else min(4, max(1, decoded.units * tokens // THREADS))
        held = words * len(decoded.codes)
        if not natural or 8 < held < size:
            readers, chunks, run = dealt(size, held)
            code = code_of(held, readers, run, "p % 8", decoded.order)
    return AttentionSidePlan(
        folded=False,
        why=why_decoded(side, folding, decoded),
        raw=tuple(f"{side.name}_{one}" for one in decoded.raw),
        size=size,
        head_dim=side.head_dim,
        element=element_of(side, code),
        mask=f"({code}) < {side.head_dim}" if size > side.head_dim else None,
        code=code,
        bits=decoded.bits,
        readers=readers,
        chunks=chunks,
        run=run,
        numbers=tuple(map(fp32, folding.numbers or ())) if decoded.kind == "table" and not decoded.ends else (),
        needs_capability=89 if decoded.format == "e4m3" else 0,
        scale=None if decoded.scaled else folding.scale,
        normalised=folding.normalised,
        constants=decoded.constants,
        comment=decoded.comment,
        decoded=decoded,
    )


def dealt(size: int, held: int) -> tuple[int, int, int]:
    """Of a tile of whose rows a thread holds so many numbers: threads of a row, chunks of a thread, runs of them."""
    readers, chunks = size // held, held // 8
    return readers, chunks, min(chunks, max(1, BANK_GROUPS // readers))


def code_of(held: int, readers: int, run: int, within: str, order: tuple[int, ...] = ()) -> str:
    """Source over p of the code at a place of such a tile; `order`: how the codes of a unit come, if not one by one."""
    reader, chunk = f"p // {8 * run} % {readers}", f"p // {8 * readers}"
    if run > 1:
        chunk = f"p // {8 * run * readers} * {run} + p // 8 % {run}"
    if order == tuple(range(len(order))):
        return f"({reader}) * {held} + ({chunk}) * 8 + {within}"
    # The halves of a unit take turns.
    unit, place = len(order), f"(({chunk}) * 8 + {within})"
    turns = f"{place} % 2 * {unit // 2} + {place} % {unit} // 2"
    return f"({reader}) * {held} + {f'{place} // {unit} * {unit} + ' if held > unit else ''}{turns}"


def source_of(layout: Layout, codes: Field) -> str:
    """How packed units are loaded: whole aligned words, or words around them that are shifted into place."""
    bits = codes.part.bits
    if bits == 3:
        return "pairs"
    if bits == 4 and codes.alignment == 2 and is_whole(codes.part.count) and has_bytes_after(layout, codes):
        return "shifted"
    return "halves" if bits == 2 else "words"


def expansion_of(layout: Layout, side: Side, folding: Folding | None, codes: Field) -> ptx.Expansion | None:
    """The assembly that makes bare numbers of a side's codes; None where there is none, or they are not whole words."""
    bits, head_dim = codes.part.bits, side.head_dim
    if folding is None or head_dim < SMALLEST_WORD_DIM or head_dim * bits % WORD:
        return None
    if folding.numbers is None:
        is_fp8 = folding.format in ("e4m3", "e5m2") and folding.groups == 1
        return ptx.fp8_expansion(folding.format) if is_fp8 else None
    if bits == 3 and (codes.alignment < 2 or not has_bytes_after(layout, codes) or not is_whole(head_dim)):
        return None
    return ptx.expansion(bits, folding.numbers, squares=folding.normalised) if bits in WORD_BITS else None


def stages_of_copies(tile_bytes: int) -> int:
    """Stages of the software pipeline for two tiles on their way, or for one, or none."""
    ahead = min(2, COPIED_BYTES // tile_bytes)
    return 1 + 2 * ahead


def weights_up(value: AttentionSidePlan) -> int:
    """Up to two to the how many weights are, of values whose scales do not move into exponentials."""
    return 0 if value.has_scale else WEIGHTS_UP_OF_BF16 if value.in_bf16 else WEIGHTS_UP


def is_whole(head_dim: int) -> bool:
    """Whether vectors fill a tile, whose width is a power of two."""
    return head_dim == next_power_of_two(head_dim)


def why_decoded(side: Side, folding: Folding, decoded: DecodedPlan) -> str:
    """Why a side's scales are not folded out of a tile of bare numbers."""
    bits = decoded.bits
    if decoded.kind == "plain":
        return f"{decoded.dtype} numbers are multiplied as they are stored"
    if folding.format == "fp32":
        reason = "fp32 numbers are rounded to fp16"
    elif folding.groups > 1:
        reason = "there is more than one scale a token"
    elif side.head_dim < SMALLEST_WORD_DIM or side.head_dim * bits % WORD:
        reason = f"{side.head_dim} elements are few, or not whole words"
    elif bits not in WORD_BITS:
        reason = f"no assembly for {bits} bits"
    elif bits == 3:
        reason = (
            "words around codes of 3 bits are at odd addresses, or hold bytes that are not the layout's, or no tile"
        )
    else:
        reason = "numbers of 4 bits are looked up where backwards they are their own negatives, and these are not"
    return f"words are decoded in registers: {reason}"

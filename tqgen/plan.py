"""Kernel plans: every decision and number that the templates write, small and printable.

`lower` makes them from a layout; `emit` hands them to the templates, which decide nothing. Expressions are source text
over the names that the generated functions use: `token`, `head`, `BLOCK_SIZE`, `NUM_KV_HEADS`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from tqgen.plan_fragments import FragmentPlan
from tqgen.plan_quads import QuadsPlan


@dataclass(frozen=True)
class FieldPlan:
    """One stored part: where it is and how it is accessed."""

    name: str  # key_codes
    title: str  # key.codes
    region: str
    offset: str  # source of the byte offset in the block
    num_bytes: int  # for one token and head
    item_bytes: int
    dtype: str | None
    count: int
    bits: int  # of one number
    alignment: str  # source: of every address, in bytes
    comment: str


@dataclass(frozen=True)
class LanesPlan:
    """A tile index: `lane` runs over `size` lanes and means element, unit or group `index` where `mask` holds."""

    size: int
    index: str
    mask: str | None
    is_plain: bool


@dataclass(frozen=True)
class EncodedPlan:
    """The tile that the store encodes and packs; its lanes may be in another order than the unpack's.

    `view` is the shape in which the codes of a unit lie along the axes `unit_axes`, with shifts `shifts` (source, one
    for each of these axes).
    """

    lanes: LanesPlan
    units: LanesPlan
    view: tuple[int, ...]
    unit_axes: tuple[tuple[int, str], ...]  # axis of the tile of rows, source of the shifts along it
    words: bool  # units of three bytes are stored four at a time as three 32-bit words
    whole_words: bool  # units are 32-bit words
    unit_bytes: int
    pair_shifts: tuple[int, ...]  # of the second and further pairs of codes in a unit
    word_lanes: LanesPlan | None


@dataclass(frozen=True)
class PackingPlan:
    """How codes become bytes: `codes_per_unit` codes make a unit of `unit_bytes` whole bytes."""

    bits: int
    mask: int
    codes_per_unit: int
    unit_bytes: int
    word: str  # integer type that holds a unit
    position_axis: int  # of the tile of codes seen as units: 2, the codes of a unit are neighbours; 1, they are not
    units: LanesPlan
    num_units: int
    last_unit_bytes: int  # bytes of the last unit that belong to the field
    order: str  # a phrase
    wide: bool  # a unit is one 2- or 4-byte number


@dataclass(frozen=True)
class RotationPlan:
    """How vectors are multiplied by the rotation: forward in chunks of its rows, backward in chunks of its columns."""

    kind: str
    is_hadamard: bool
    product: str  # the function that multiplies
    signs: tuple[int, ...]
    scale: str  # literal
    scale_squared: str  # literal
    is_scaled: bool
    chunk: int
    chunks: int
    inner: str  # the index along the chunk
    vector_mask: str
    matrix_mask: str | None
    is_kept: bool  # a matrix that programs of the store split once, for all their tiles
    stored: str  # the constant that the store multiplies by
    dealt: bool  # the store has a copy of the matrix with its columns in the order of the lanes
    column_chunk: int
    column_chunks: int
    columns_masked: bool
    transposed_mask: str | None


@dataclass(frozen=True)
class SidePlan:
    """Keys or values, as the kernels treat them."""

    name: str
    title: str
    codec: str
    macros: str  # the codec's template
    head_dim: int
    lanes: LanesPlan  # of unpacked vectors
    encoded: EncodedPlan
    groups: LanesPlan
    group_lanes: int
    grouped: bool
    center: bool
    saturate: bool
    limit: str  # literal: the largest magnitude that `saturate` lets in
    rotation: RotationPlan
    constants: Any  # what the codec's macros write
    encode_tables: tuple[str, ...]
    decode_tables: tuple[str, ...]
    correct_tables: tuple[str, ...]
    encode_options: tuple[str, ...]  # constants that the encoder takes
    uses_hardware_fp8: bool
    codes: FieldPlan
    metadata: tuple[FieldPlan, ...]
    packing: PackingPlan
    reading: str  # a phrase: what `_read` returns
    quads: QuadsPlan | None = None
    # What unpack without quads or attention does with tiles [rows, lanes].
    decodes_tiles: bool = True
    stores_tiles: bool = True
    unrotates_tiles: bool = True

    @property
    def fields(self) -> tuple[FieldPlan, ...]:
        return (self.codes, *self.metadata)

    @property
    def runs(self) -> bool:
        """Whether the store has many warps for rows held by quads, which write codes by neighbours in memory."""
        return self.quads is not None and self.rotation.kind == "matrix"


@dataclass(frozen=True)
class Argument:
    """A tensor that a launcher takes at run time, fp32."""

    name: str
    text: str
    shape: str  # source
    needed_in_model_space: bool
    per_head: bool


@dataclass(frozen=True)
class Constant:
    """A tensor that launchers keep on the device."""

    name: str
    source: str


@dataclass(frozen=True)
class TilePlan:
    """Rows (token-heads) of one program and its warps."""

    rows: int
    warps: int


@dataclass(frozen=True)
class KeptPlan:
    """How programs of many rows multiply tile after tile by matrices whose parts they keep in shared memory."""

    tile: TilePlan  # on GPUs from sm_90 on, of vectors of 16-bit numbers
    wide: TilePlan  # and of fp32 numbers, which are three parts
    other: TilePlan  # on other machines, where operands of products take registers
    programs_per_processor: int  # that one holds at once
    registers: int  # of a thread of `tile`, so that it does
    few: TilePlan  # where the parts would be made for one tile alone
    chunk: int  # places of a sum that are multiplied at a time where no parts are kept


@dataclass(frozen=True)
class TileChoice:
    """Tokens of one tile of attention, and the warps that work on it."""

    tokens: int
    warps: int


@dataclass(frozen=True)
class AttentionSidePlan:
    """How attention reads one side: a tile [tokens, size] of fp16 numbers, in which position p means an element.

    A folded side holds bare numbers, and its scale and zero are applied to scores or probabilities. Any other side is
    decoded first and divided by its largest magnitude.
    """

    folded: bool
    why: str
    raw: tuple[str, ...]  # names of what is loaded for a tile
    size: int
    element: str  # source over p
    mask: str | None  # source over p
    code: str = ""  # source over p: the code in the row's bytes
    bits: int = 0
    code_mask: int = 0
    per_unit: int = 0
    units: int = 0
    words: int = 0
    source: str = ""  # how units come out of memory: words | shifted | pairs | halves
    assembly: str = ""
    constraints: str = ""
    constants: tuple[int, ...] = ()
    needs_capability: int = 0
    order: str = ""  # source over `position`: which code of a unit comes at a position
    readers: int = 0  # threads that load one row, 16 bytes each
    chunks: int = 0  # of 8 codes that one of them holds
    run: int = 0  # of its chunks that stay neighbours in the tile
    centered_by: int | None = None  # numbers are code - centered_by
    numbers: tuple[str, ...] = ()
    format: str = ""
    scale: str | None = None
    zero: str | None = None
    normalised: bool = False
    squares_per_one: int = 0  # unit of the sums of squares that a normalised side's assembly gives

    @property
    def order_text(self) -> str:
        """A phrase: in which order the numbers of a unit's codes come."""
        return "in order" if self.order == "position" else "0, 4, 1, 5, 2, 6, 3, 7"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the assembly's fp16 results."""
        return tuple(f"h{n}" for n in range(self.per_unit))

    @property
    def looks_up(self) -> bool:
        """Whether the form without assembly takes numbers from a table."""
        return bool(self.numbers) and self.centered_by is None

    @property
    def has_operands(self) -> bool:
        """Whether the expansion takes a table: operands of the assembly, then the numbers of the codes."""
        return bool(self.constants) or self.looks_up


@dataclass(frozen=True)
class AttentionPlan:
    """Fused decode attention."""

    key: AttentionSidePlan
    value: AttentionSidePlan
    tile: TileChoice
    tile_many_rows: TileChoice  # where a KV head has more than 16 query rows
    prefetch: bool  # a tile is loaded while the one before it is worked on
    stages: int  # of the software pipeline over tiles
    query_chunk: int  # rows of the rotation at a time
    query_masked: bool
    exponent_limit: int  # of the power of two that is taken out of a value's scale
    programs_per_processor: int  # that one holds at once
    steps_of_a_program: int  # what a program does once takes as long as so many steps of its loop
    largest_factor: str  # below which scores are multiplied by what a caller gives, and are finite in fp32
    smallest_softcap: str  # by which fp32 divides scores
    most_waves: int  # of programs, among which the number of splits is chosen
    invariant_split: int  # tokens of a split at fixed positions
    merge_many_rows: int  # query rows from which the merge takes 16 at a time
    merge_splits: int  # the most splits of one query row that the merge takes at a time
    invariant_merge: int  # splits at fixed positions that the merge takes at a time, however many there are
    fragments: FragmentPlan | None  # for few query rows; None: they are worked on like many

    @property
    def sides(self) -> tuple[tuple[str, AttentionSidePlan], ...]:
        return (("key", self.key), ("value", self.value))


@dataclass(frozen=True)
class ModulePlan:
    """One generated module."""

    name: str
    doc: str
    spec_file: str
    version: str
    layout_id: str
    key: SidePlan | None
    value: SidePlan | None
    key_head_dim: int
    value_head_dim: int
    slot_bytes: int
    alignment: int  # that the layout asks of a cache
    room_to_align: int  # bytes that a cache is allocated with beyond its own, to start at a multiple of the alignment
    address_modulus: int  # what tells addresses of one alignment from those of another
    always_fits: bool
    needed_bytes: str  # source: bytes that a block needs
    byte_map: tuple[str, ...]
    facts: tuple[str, ...]
    fields: tuple[FieldPlan, ...]
    helpers: frozenset[str]  # shared functions that this module needs
    absent: tuple[str, ...]
    run_time_arguments: tuple[Argument, ...]
    output_arguments: tuple[Argument, ...]
    constants: tuple[Constant, ...]
    store_signature: str
    unpack_signature: str
    has_spaces: bool
    uses_hardware_fp8: bool
    attention: AttentionPlan | None
    attention_arguments: tuple[Argument, ...]
    store_small: TilePlan
    store_large: TilePlan
    store_large_rows: int  # from this many rows on, `store_large`
    tiles: int  # that a program of the store works on one after the other, from `store_large_rows` rows on
    quads: bool  # rotated sides are held by quads of threads, by programs of one warp if they are not `kept`
    kept: KeptPlan | None  # quads hold rows that are multiplied by a matrix
    unpack: TilePlan
    unpack_many: TilePlan  # of many rows that are multiplied by a matrix
    interpreted_rows: int  # rows of a program in Triton's interpreter
    rotate_output: TilePlan

    @property
    def unpacks_with_ptx(self) -> bool:
        """Whether unpack has a form with inline assembly."""
        return any(side.quads and side.quads.row_numbers for side in self.sides)

    @property
    def joins_operands(self) -> bool:
        """Whether a product's operand is dealt out to threads as the version of Triton deals out what was joined."""
        found = (side.quads.row_numbers for side in self.sides if side.quads and side.rotation.is_hadamard)
        return any(one is not None and one.operand_width == "JOINED_WIDTH" for one in found)

    @property
    def sides(self) -> tuple[SidePlan, ...]:
        return tuple(side for side in (self.key, self.value) if side)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data."""
        return {**dataclasses.asdict(self), "helpers": sorted(self.helpers)}

    def describe(self) -> str:
        """The plan as indented text, one decision a line."""
        lines: list[str] = []

        def walk(value: Any, name: str, depth: int) -> None:
            pad = "  " * depth
            if isinstance(value, dict):
                lines.append(f"{pad}{name}:")
                for key, item in value.items():
                    walk(item, key, depth + 1)
            elif isinstance(value, (list, tuple)) and any(isinstance(item, (dict, list, tuple)) for item in value):
                lines.append(f"{pad}{name}:")
                for number, item in enumerate(value):
                    walk(item, item.get("title", str(number)) if isinstance(item, dict) else str(number), depth + 1)
            else:
                shown = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
                lines.append(f"{pad}{name}: {shown}")

        for key, item in self.to_json().items():
            walk(item, key, 0)
        return "\n".join(lines)

"""Keys or values in a plan: where fields are, which lanes hold what, how codes are packed and vectors rotated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tqgen.plan.quads import QuadsPlan


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
    limit: str  # literal: the largest magnitude that `saturate` lets in, of fp16 or one whose square fp32 holds
    rotation: RotationPlan
    constants: Any  # what the codec's macros write
    encode_tables: tuple[str, ...]
    decode_tables: tuple[str, ...]
    back_tables: tuple[str, ...]  # where numbers are multiplied by a matrix in parts, their factors afterwards
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
    def limit_comment(self) -> str:
        """What `limit` is."""
        return "fp16's largest" if self.limit == "65504.0" else "2**56, of whose squares fp32 holds a sum"

    @property
    def unpack_tables(self) -> tuple[str, ...]:
        """Tables of all ways in which unpack decodes."""
        return (*self.decode_tables, *self.back_tables)

    @property
    def runs(self) -> bool:
        """Whether the store has many warps for rows held by quads, which write codes by neighbours in memory."""
        return self.quads is not None and self.rotation.kind == "matrix"

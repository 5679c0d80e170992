"""The resolved layout: what a block's bytes mean. Every reader derives from this one object.

`resolve` makes it from a spec; the allocator, the kernels, the byte map, the numpy reference, the documentation and
the tests read it. Nothing else computes an offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tqgen.layout.form import Form

if TYPE_CHECKING:
    from tqgen.codecs.base import Codec

ITEM_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}


@dataclass(frozen=True)
class Part:
    """One thing that a codec stores for one token and head.

    `name` is `codes`, `norm`, `scale` or `zero`. Codes are `count` numbers of `bits` bits each, packed without gaps;
    other parts are `count` floating-point numbers (one a group) of `dtype`.
    """

    name: str
    count: int
    bits: int
    dtype: str | None = None  # None: packed codes

    @property
    def num_bytes(self) -> int:
        """Bytes for one token and head; the last byte of packed codes may be partly used."""
        return -(-self.count * self.bits // 8)


@dataclass(frozen=True)
class Rotation:
    """An orthogonal transform of a side's vectors: y = x @ R, and back x = y @ R.T.

    kind `none`: R is the identity. `hadamard`: R = diag(H, .., H) / sqrt(size) with the Sylvester matrix H of `size`.
    `signed_hadamard`: x is first multiplied by the pinned `signs`. `matrix`: R is given at run time.
    """

    kind: str
    size: int  # of one Hadamard block; head_dim for other kinds
    signs: tuple[int, ...] = ()

    @property
    def is_hadamard(self) -> bool:
        return self.kind in ("hadamard", "signed_hadamard")

    @property
    def matrix_exponent(self) -> int:
        """Kernels multiply by a Hadamard matrix of +-2**matrix_exponent: exact, and close to orthogonal."""
        return -(self.size.bit_length() // 2) if self.is_hadamard else 0

    @property
    def scale(self) -> float:
        """What a product with that matrix has to be multiplied by, 1 or sqrt(2); 1 for other kinds."""
        return float((2.0 ** (-2 * self.matrix_exponent) / self.size) ** 0.5) if self.is_hadamard else 1.0


@dataclass(frozen=True)
class Side:
    """Keys or values: how their vectors become parts."""

    name: str  # key | value
    codec: Codec
    parameters: Any  # an instance of the codec's `Parameters`
    head_dim: int
    rotation: Rotation
    parts: tuple[Part, ...]

    @property
    def is_stored(self) -> bool:
        return bool(self.parts)

    def part(self, name: str) -> Part:
        """The part called `name`; KeyError where the codec does not store it."""
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(f"{self.name}.{name}")

    def has(self, name: str) -> bool:
        return any(part.name == name for part in self.parts)


@dataclass(frozen=True)
class Field:
    """A part at its place: byte address = base + token * token_stride + head * head_stride, from the block's start."""

    side: str
    part: Part
    region: str
    base: Form
    token_stride: Form
    head_stride: Form
    alignment: int  # largest power of two (at most 16) that divides every address, in a block that starts at one

    @property
    def name(self) -> str:
        return f"{self.side}.{self.part.name}"

    def address(self, token: int, head: int, block_size: int, num_kv_heads: int) -> int:
        """Byte offset from the block's start of this field of one token and head."""
        forms = ((self.base, 1), (self.token_stride, token), (self.head_stride, head))
        return sum(times * form.evaluate(block_size, num_kv_heads) for form, times in forms)


@dataclass(frozen=True)
class Reserved:
    """Bytes of somebody else: placed like a field, never read or written."""

    num_bytes: int
    region: str
    base: Form
    token_stride: Form
    head_stride: Form


@dataclass(frozen=True)
class Region:
    """A stretch of the block with one axis order."""

    name: str
    order: tuple[str, ...]
    base: Form
    size: Form
    alignment: int
    entries: tuple[Field | Reserved, ...]


@dataclass(frozen=True)
class Layout:
    """A whole layout. `layout_id` names its bytes and numerics: equal ids mean interchangeable caches."""

    name: str
    doc: str
    key: Side
    value: Side
    regions: tuple[Region, ...]
    slot_bytes: int
    alignment: int  # that the spec asks of a block's start; 1 where it asks none
    layout_id: str

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides that are stored, keys first."""
        return tuple(side for side in (self.key, self.value) if side.is_stored)

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(entry for region in self.regions for entry in region.entries if isinstance(entry, Field))

    def field(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    @property
    def end(self) -> Form:
        """The first byte after the last region."""
        return self.regions[-1].base + self.regions[-1].size

    def block_bytes(self, block_size: int, num_kv_heads: int) -> int:
        return block_size * num_kv_heads * self.slot_bytes

    def missing_bytes(self, block_size: int, num_kv_heads: int) -> int:
        """Bytes by which the fields of a launch do not fit into its block: 0 where they fit.

        Only alignment whose padding depends on the launch can make a block too small; see `tqgen.layout.resolve`.
        """
        return max(0, self.end.evaluate(block_size, num_kv_heads) - self.block_bytes(block_size, num_kv_heads))

"""The models of a spec: what the YAML says, before anything is computed from it.

All models are immutable and strict, and refuse unknown keys. What they demand of a value is here; how a problem is
told is in `schema_errors`.
"""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, PrivateAttr, Tag
from pydantic_core import PydanticCustomError

from tqgen.codecs import CODECS
from tqgen.codecs.base import SideParameters, Strict, meanings
from tqgen.diagnostics import Place
from tqgen.spec.document import Document, NodePath
from tqgen.spec.taken import is_taken

VERSION = 1  # of the spec language
MAX_NAME = 100  # characters: it becomes the name of a file
MAX_HEAD_DIM = 1024  # a kernel holds a whole vector in one row of a tile, and a wider row does not fit its registers
MAX_ALIGNMENT = 4096
MAX_BYTES = 65536  # of a slot or a reserved stretch, so that a mistyped number is found here

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise PydanticCustomError("power_of_two", "not a power of two")
    return value


def _identifier(value: str) -> str:
    if not _IDENTIFIER.fullmatch(value) or keyword.iskeyword(value):
        raise PydanticCustomError("identifier", "not an identifier")
    return value


def is_module_name(value: str) -> bool:
    """Whether a spec may have this name."""
    try:
        return _module_name(value) == value
    except PydanticCustomError:
        return False


def _module_name(value: str) -> str:
    if len(value) > MAX_NAME:
        raise PydanticCustomError("long_name", "too long")
    if is_taken(value):
        raise PydanticCustomError("module_name", "hides a module")
    return _identifier(value)


def _known_version(value: Any) -> Any:
    if type(value) is not int or value != VERSION:
        raise PydanticCustomError("version", "not a version of the language")
    return value


def _side_head_dim(side: SideParameters) -> SideParameters:
    if (side.head_dim or 1) > MAX_HEAD_DIM:
        raise PydanticCustomError("side_head_dim", "head_dim is too large")
    return side


# Unions are told apart by a tag, so that a problem is reported for what was meant and not for every alternative.
# pydantic puts the tags into the path of a problem; the mark tells them from keys.
TAG = "@"


def _kind(text: str | None = None, mapping: str | None = None, *, reserved: str | None = None) -> Discriminator:
    def choose(value: Any) -> str | None:
        if isinstance(value, str):
            return text
        if reserved is not None and ("reserved" in value if isinstance(value, dict) else isinstance(value, Reserve)):
            return reserved
        return mapping if isinstance(value, (dict, Strict)) else None

    return Discriminator(choose)


def _codec_of(side: Any) -> str | None:
    codec = side.get("codec") if isinstance(side, dict) else getattr(side, "codec", None)
    return TAG + codec if isinstance(codec, str) else None


POWERS_OF_TWO = [1 << n for n in range(MAX_ALIGNMENT.bit_length())]

Alignment = Annotated[
    int, Field(ge=1, le=MAX_ALIGNMENT, json_schema_extra={"enum": POWERS_OF_TWO}), AfterValidator(_power_of_two)
]
Identifier = Annotated[
    str, Field(json_schema_extra={"pattern": f"^{_IDENTIFIER.pattern}$"}), AfterValidator(_identifier)
]
ModuleName = Annotated[
    str, Field(json_schema_extra={"pattern": f"^{_IDENTIFIER.pattern}$"}), AfterValidator(_module_name)
]
if TYPE_CHECKING:
    AnySide = SideParameters
else:  # one of the parameters of the codecs that there are
    AnySide = Annotated[
        Union[tuple(Annotated[codec.Parameters, Tag(TAG + name)] for name, codec in CODECS.items())],  # noqa: UP007
        Discriminator(_codec_of),
        AfterValidator(_side_head_dim),
    ]


class AlignedAxis(Strict):
    """An axis whose stride is rounded up."""

    axis: Literal["token", "head"] = Field(description="the axis")
    align: Alignment = Field(default=1, description="its stride is rounded up to a multiple of so many bytes")


class Entry(Strict):
    """A part whose place is rounded up."""

    field: str = Field(description="name of a stored part, as `key.codes`")
    align: Alignment = Field(default=1, description="its offset is rounded up to a multiple of so many bytes")


class Reserve(Strict):
    """Bytes that belong to somebody else and are never read or written."""

    reserved: int = Field(ge=1, le=MAX_BYTES, description="how many bytes for each token and head")
    align: Alignment = Field(default=1, description="their offset is rounded up to a multiple of so many bytes")


Axis = Annotated[
    Literal["token", "head", "field"],
    Field(
        json_schema_extra=meanings(
            token="the tokens of the block", head="the KV heads", field="the region's fields, one after the other"
        )
    ),
]
Shorthand = Annotated[
    Literal["aos", "soa"],
    Field(
        json_schema_extra=meanings(
            aos="everything of a token and head side by side, in one slot",
            soa="codes in slots at the block's start, all other numbers in strips along the tokens at its end",
        )
    ),
]
OrderItem = Annotated[
    Annotated[Axis, Tag(TAG + "axis")] | Annotated[AlignedAxis, Tag(TAG + "aligned")],
    _kind(TAG + "axis", TAG + "aligned"),
]
FieldItem = Annotated[
    Annotated[str, Tag(TAG + "part")] | Annotated[Entry, Tag(TAG + "entry")] | Annotated[Reserve, Tag(TAG + "reserve")],
    _kind(TAG + "part", TAG + "entry", reserved=TAG + "reserve"),
]


class Region(Strict):
    """A stretch of the block with one axis order; where `field` stands in it decides between AoS and SoA."""

    name: Identifier = Field(description="name of the region, unlike any other in the block")
    order: tuple[OrderItem, ...] = Field(
        strict=False,
        description="the axes `token`, `head` and `field`, the outermost first",
        json_schema_extra={"minItems": 3, "maxItems": 3},
    )
    fields: tuple[FieldItem, ...] = Field(
        strict=False, min_length=1, description="the parts that stand here, and reserved bytes, in their order"
    )
    align: Alignment = Field(default=1, description="the region's offset is rounded up to a multiple of so many bytes")


class Block(Strict):
    """The bytes of one cache block: regions that follow each other."""

    regions: tuple[Region, ...] = Field(strict=False, min_length=1, description="the regions, in their order")
    slot_bytes: int | None = Field(
        default=None,
        ge=1,
        le=MAX_BYTES,
        description="bytes of a block for each token and head; default what fields and alignment need",
    )


AnyBlock = Annotated[
    Annotated[Shorthand, Tag(TAG + "shorthand")] | Annotated[Block, Tag(TAG + "block")],
    _kind(TAG + "shorthand", TAG + "block"),
]


class Origin:
    """Where a spec was written. It does not matter to what the spec says: all origins are equal."""

    def __init__(self, document: Document | None = None) -> None:
        self.document = document

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin)

    def __hash__(self) -> int:
        return 0


class Spec(Strict):
    """A whole spec."""

    tqgen: Annotated[Literal[1], BeforeValidator(_known_version)] = Field(description="version of the spec language")
    name: ModuleName = Field(description="name of the layout, and the stem of its file and module")
    doc: str = Field(default="", description="what the layout is, in a sentence or two")
    head_dim: int = Field(ge=1, le=MAX_HEAD_DIM, description="elements of one vector")
    key: AnySide = Field(description="how keys are stored")
    value: AnySide = Field(description="how values are stored")
    block: AnyBlock = Field(default="soa", description="where each stored part stands: `aos`, `soa` or regions")

    _origin: Origin = PrivateAttr(default_factory=Origin)

    def place(self, path: NodePath, on: Literal["key", "value"] = "value") -> Place:
        """Where the spec says what `path` leads to, or the nearest thing above it."""
        document = self._origin.document
        return document.place(path, on) if document else Place(f"spec {self.name}")

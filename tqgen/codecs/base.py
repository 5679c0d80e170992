"""What a codec is: parameters, stored parts, exact arithmetic in numpy, and the constants of its kernels.

A codec is one file in this folder that defines a subclass of `Codec` with one instance in `CODEC`, and one macro file
of the same name in `templates/codecs/`. `tqgen.codecs` finds it by its presence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    import numpy as np

    from tqgen.layout import Part, Side


def meanings(**of: str) -> Any:
    """What each choice of a key means, for `Field(json_schema_extra=...)`: editors and the spec reference show it."""
    return {"meanings": of}


class Strict(BaseModel):
    """Base of every model of a spec: immutable, no conversions, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Stored(Strict):
    """A stored floating-point number."""

    dtype: Literal["fp16", "bf16", "fp32"] = Field(
        "fp16",
        description="how the number is stored",
        json_schema_extra=meanings(
            fp16="2 bytes, up to 65504", bf16="2 bytes, the range of fp32 with 8 bits of mantissa", fp32="4 bytes"
        ),
    )


class SideParameters(Strict):
    """Keys that every side of a spec takes, whatever its codec."""

    codec: str = Field(description="how vectors become codes")
    head_dim: int | None = Field(None, ge=1, description="elements of this side's vectors; default the spec's head_dim")
    rotation: Literal["none", "hadamard", "signed_hadamard", "matrix"] = Field(
        "none",
        description="orthogonal transform of vectors before they are encoded",
        json_schema_extra=meanings(
            none="vectors are encoded as they are",
            hadamard="Sylvester's Hadamard matrix, divided by the root of its size",
            signed_hadamard="elements are multiplied by pinned signs first",
            matrix="any orthogonal matrix, given at run time",
        ),
    )
    rotation_block: int | None = Field(
        None, ge=2, description="size of the Hadamard blocks, a power of two that divides head_dim; default head_dim"
    )
    packing: Literal["linear", "halves"] = Field(
        "linear",
        description="order of the codes in the packed bytes",
        json_schema_extra=meanings(
            linear="element after element, least significant bit first",
            halves="one byte holds element j and element j + head_dim / 2; for 2 bits j + head_dim / 4 and so on",
        ),
    )
    non_finite: Literal["propagate", "saturate"] = Field(
        "propagate",
        description="what NaN, Inf and too large numbers become",
        json_schema_extra=meanings(
            propagate="they are stored, or spoil the whole group that shares their scale",
            saturate="NaN becomes 0, the rest the largest number that can be stored",
        ),
    )
    center: bool = Field(
        False,
        description="subtract a vector for each head, given at run time, before encoding; unpack adds it back",
    )


@dataclass(frozen=True)
class Problem:
    """A mistake in a spec, at a place that is named by its path in the document; `resolve` makes a diagnostic of it."""

    code: str  # TQ....
    message: str
    path: tuple[str | int, ...]
    label: str = ""
    help: str = ""
    on: Literal["key", "value"] = "value"
    related: tuple[tuple[str | int, ...], str] | None = None  # a second place and its label


@dataclass(frozen=True)
class Span:
    """The numbers that a correct implementation may store: exactly `exact`, or anything in [low, high].

    `low` and `high` differ from `exact` only where the float64 value lies on an edge to within fp32 rounding: of a
    code cell for codes, between two neighbours of the stored dtype for metadata. Codes are integers, metadata is in
    the stored dtype's values (float64). NaN in all three means that NaN must be stored.
    """

    low: np.ndarray
    exact: np.ndarray
    high: np.ndarray

    @property
    def ends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.low, self.exact, self.high


@dataclass(frozen=True)
class Folding:
    """How attention takes a side apart: vector = number[code] * scale + zero, with one scale and zero for each group.

    Where a vector is one group, the tile that is multiplied may hold bare numbers, exact or rounded to fp16; scale and
    zero are folded into scores or probabilities. Scales and zeros of more groups are applied to the numbers, which are
    whole and not counted from the middle, so that one rounding to fp16 makes elements of them. `scale` and `zero` are
    source over the names of the stored metadata. Where numbers are counted from the middle, vector = code * scale +
    `origin`, too.
    """

    numbers: tuple[float, ...] | None  # for each code; None: the codes are numbers of `format`
    format: str = ""  # e4m3 | e5m2 | fp16 | bf16 | fp32
    scale: str | None = None
    zero: str | None = None
    origin: str | None = None
    normalised: bool = False  # divide by the length of the numbers of a vector
    groups: int = 1  # of a vector, each with a scale and zero of its own


@dataclass(frozen=True)
class Levels:
    """Numbers that codes stand for, beside a factor of the vector."""

    exact: tuple[float, ...]
    unit: float  # a code stands for its exact level times this
    rounded: tuple[float, ...]  # that product, of fp32
    normalised: bool  # a vector's levels are divided by their length, the root of the sum of squares and `guard`
    guard: float


@dataclass(frozen=True)
class KernelConstants:
    """What a codec's macros write. Subclasses add their own numbers, as literals; these are what every kernel asks.

    A table is a tuple `<SIDE>_<TABLE>` that the macro `tables` defines and a launcher keeps on the device.
    """

    needs_norm: ClassVar[bool] = False  # the encoder takes the vector's norm
    uses_hardware_fp8: ClassVar[bool] = False  # the encoder takes HARDWARE_FP8
    decode_tables: ClassVar[tuple[str, ...]] = ()
    # of `_decode_parts`: numbers in two fp16 parts, and a factor for each row; none: the codec has no such macro
    back_tables: ClassVar[tuple[str, ...]] = ()

    @property
    def encode_tables(self) -> tuple[str, ...]:
        return ()

    @property
    def correct_tables(self) -> tuple[str, ...]:
        """The table with which `_correct` mends the first metadata once codes are packed; none: no such step."""
        return ()

    @property
    def quad_codes(self) -> tuple[int, int] | None:
        """The code that fills a vector that is not finite, and one that decodes to a number above zero or to 0.

        None where the codec has no macros for rows that quads of threads hold.
        """
        return None

    @property
    def quad_levels(self) -> Levels | None:
        """What codes stand for, where `decode_quads` multiplies it by the first metadata, no more."""
        return None

    @property
    def quad_tables(self) -> tuple[str, ...]:
        """As `encode_tables`, where quads of threads hold rows."""
        return self.encode_tables

    def table_source(self, table: str, side_name: str) -> str:
        """Source of a table's tensor on `device`."""
        return f"torch.tensor({side_name.upper()}_{table.upper()}, dtype=torch.float32, device=device)"


class Codec:
    """One codec. All arrays are numpy; `[..., D]` are vectors in rotated space, `[...]` is one number a vector."""

    name: ClassVar[str]
    Parameters: ClassVar[type[SideParameters]]

    def problems(self, parameters: Any, head_dim: int) -> Iterator[Problem]:
        """Mistakes that the types cannot rule out; paths are relative to the side, as `("group",)`."""
        return iter(())

    def parts(self, parameters: Any, head_dim: int) -> tuple[Part, ...]:
        """What is stored for one token and head."""
        raise NotImplementedError

    def encode(
        self, side: Side, rotated: np.ndarray, error: np.ndarray, norm: Span, *, division_ulps: float = 0.0
    ) -> Mapping[str, Span]:
        """Encode float64 vectors `rotated` [..., D], each element of which is known to within `error` (broadcasts).

        `norm` is the length [...] of the vector before rotation. Returns the parts: codes [..., D] as they are stored,
        non-negative integers; others [..., count]. An `error` of 0 means that the elements are fp32 numbers that a
        kernel sees as they are. `division_ulps` allows for divisions that are wrong by so many units in the last place.
        """
        raise NotImplementedError

    def ordinals(self, side: Side, codes: np.ndarray) -> np.ndarray:
        """Integers that grow with the number that each stored code stands for; by default the codes themselves.

        The `low` and `high` of a span of codes are an interval in this order.
        """
        return codes

    def decode(self, side: Side, parts: Mapping[str, np.ndarray]) -> np.ndarray:
        """The vectors [..., D] in rotated space, in float64, from codes [..., D] and metadata [..., count]."""
        raise NotImplementedError

    def decode_span(self, side: Side, parts: Mapping[str, np.ndarray]) -> Span:
        """What fp32 arithmetic may give for `decode`, [..., D], before it is rounded to an output dtype."""
        raise NotImplementedError

    def folding(self, side: Side) -> Folding | None:
        """How attention takes vectors apart; None where it has to decode them first."""
        return None

    def kernel_constants(self, side: Side) -> KernelConstants:
        """Everything that the codec's macros write: all arithmetic is done here."""
        raise NotImplementedError

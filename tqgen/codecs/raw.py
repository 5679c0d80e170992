"""Codec `raw`: the elements themselves, rounded to 16- or 32-bit floating point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tqgen.codecs.base import Codec, Folding, KernelConstants, SideParameters, Span, meanings
from tqgen.layout import ITEM_BYTES, Part, Side

if TYPE_CHECKING:
    import numpy as np


class RawParameters(SideParameters):
    """A side whose elements are stored as floating-point numbers."""

    codec: Literal["raw"] = Field(description="floating-point numbers, not quantised")
    dtype: Literal["fp16", "bf16", "fp32"] = Field(
        description="how each element is stored",
        json_schema_extra=meanings(
            fp16="2 bytes, up to 65504", bf16="2 bytes, the range of fp32 with 8 bits of mantissa", fp32="4 bytes"
        ),
    )


@dataclass(frozen=True)
class RawKernel(KernelConstants):
    """What the macros of `raw` write."""

    dtype: str


class RawCodec(Codec):
    """`codes` [D]: the bit patterns of the elements, as 16- or 32-bit items."""

    name = "raw"
    Parameters = RawParameters

    def parts(self, parameters: RawParameters, head_dim: int) -> tuple[Part, ...]:
        return (Part("codes", head_dim, 8 * ITEM_BYTES[parameters.dtype]),)

    def encode(
        self, side: Side, rotated: np.ndarray, error: np.ndarray, norm: Span, *, division_ulps: float = 0.0
    ) -> dict[str, Span]:
        """code = the bit pattern of the nearest number of the dtype."""
        from tqgen.codecs import _grid

        saturate = side.parameters.non_finite == "saturate"
        return {"codes": _grid.elementwise(rotated, error, side.parameters.dtype, saturate=saturate)}

    def ordinals(self, side: Side, codes: np.ndarray) -> np.ndarray:
        """The order of the numbers, -0 below +0."""
        from tqgen.numerics import floats

        return floats.ordinals(codes, side.parameters.dtype)

    def decode(self, side: Side, parts: Mapping[str, np.ndarray]) -> np.ndarray:
        """The numbers."""
        from tqgen.numerics import floats

        return floats.from_bits(parts["codes"], side.parameters.dtype)

    def decode_span(self, side: Side, parts: Mapping[str, np.ndarray]) -> Span:
        """Nothing is computed."""
        decoded = self.decode(side, parts)
        return Span(decoded, decoded, decoded)

    def folding(self, side: Side) -> Folding:
        return Folding(None, format=side.parameters.dtype)

    def kernel_constants(self, side: Side) -> RawKernel:
        return RawKernel(dtype=side.parameters.dtype)


CODEC = RawCodec()

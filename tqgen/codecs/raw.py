"""Codec `raw`: the elements themselves, rounded to 16- or 32-bit floating point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from tqgen.codecs.base import Codec, SideParameters
from tqgen.layout import ITEM_BYTES, Part, Side


class RawParameters(SideParameters):
    """A side whose elements are stored as floating-point numbers."""

    codec: Literal["raw"] = Field(description="floating-point numbers, not quantised")
    dtype: Literal["fp16", "bf16", "fp32"] = Field(description="how each element is stored")


@dataclass(frozen=True)
class RawKernel:
    """What the macros of `raw` write."""

    dtype: str

    @property
    def needs_norm(self) -> bool:
        return False


class RawCodec(Codec):
    """`codes` [D]: the bit patterns of the elements, as 16- or 32-bit items."""

    name = "raw"
    Parameters = RawParameters

    def parts(self, parameters: RawParameters, head_dim: int) -> tuple[Part, ...]:
        return (Part("codes", head_dim, 8 * ITEM_BYTES[parameters.dtype]),)


    def kernel_constants(self, side: Side) -> RawKernel:
        return RawKernel(dtype=side.parameters.dtype)


CODEC = RawCodec()

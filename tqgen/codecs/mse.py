"""Codec `mse`: a vector's norm, and Lloyd-Max codes of its rotated direction (TurboQuant, arXiv 2504.19874)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from tqgen import codebooks
from tqgen.codecs.base import Codec, Problem, SideParameters, Stored
from tqgen.layout import ITEM_BYTES, Part


class MseParameters(SideParameters):
    """A side whose rotated elements become the nearest level of a codebook for N(0, 1)."""

    codec: Literal["mse"] = Field(description="a norm, and the nearest levels of a codebook for each rotated element")
    bits: int = Field(ge=1, le=8, description="width of a code; the codebook has 2**bits levels")
    codebook: str = Field("lloyd_max", description="name of a pinned table of levels for N(0, 1)")
    norm_correction: Literal["none", "store", "load"] = Field(
        "none",
        description="make the decoded vector as long as the original: divide by the length of the chosen levels when "
        "storing the norm, when loading it, or not at all",
    )
    tie: Literal["up", "down"] = Field("up", description="the cell of a value that lies on an edge: upper or lower")
    norm: Stored = Field(Stored(), description="how the norm is stored")


class MseCodec(Codec):
    """`codes` [D] and `norm` [1]."""

    name = "mse"
    Parameters = MseParameters

    def problems(self, parameters: MseParameters, head_dim: int) -> Iterator[Problem]:
        known = codebooks.names()
        if parameters.codebook not in known:
            yield Problem(
                code="TQ3203",
                message=f"no codebook is called `{parameters.codebook}`",
                path=("codebook",),
                label="unknown codebook",
                help=f"choose one of {', '.join(known)}",
            )
        elif parameters.bits not in codebooks.widths(parameters.codebook):
            widths = ", ".join(map(str, codebooks.widths(parameters.codebook)))
            yield Problem(
                code="TQ3204",
                message=f"codebook `{parameters.codebook}` has no table for {parameters.bits} bits",
                path=("bits",),
                label="no table of this width",
                help=f"choose one of {widths} bits, or another codebook",
                related=(("codebook",), "of this codebook"),
            )

    def parts(self, parameters: MseParameters, head_dim: int) -> tuple[Part, ...]:
        dtype = parameters.norm.dtype
        return (
            Part("codes", head_dim, parameters.bits),
            Part("norm", 1, 8 * ITEM_BYTES[dtype], dtype),
        )


CODEC = MseCodec()

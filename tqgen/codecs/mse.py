"""Codec `mse`: a vector's norm, and Lloyd-Max codes of its rotated direction (TurboQuant, arXiv 2504.19874)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from tqgen import codebooks
from tqgen.codecs.base import Codec, Problem, SideParameters, Stored
from tqgen.layout import ITEM_BYTES, Part, Side
from tqgen.literals import fp32


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


# Up to this width a code is found by comparisons with literals, above it by bisection of a table.
WIDEST_COMPARED = 4


@dataclass(frozen=True)
class MseKernel:
    """What the macros of `mse` write; numbers are literals."""

    bits: int
    codebook: str
    z_scale: str  # brings rotated / norm to unit variance, the product's scale included
    compared: bool
    edges: tuple[str, ...]  # the positive ones, if compared
    zero_code: int  # the code of the cell above zero
    strict_side: str  # the sign whose edges belong to the cell nearer to zero
    bisection: tuple[int, ...]  # steps
    bisection_compare: str
    table_edges: tuple[str, ...]
    levels: tuple[str, ...]  # times 1 / sqrt(head_dim)
    correct_at_store: bool
    correct_at_load: bool

    @property
    def needs_norm(self) -> bool:
        return True

    @property
    def needs_levels_to_encode(self) -> bool:
        return self.correct_at_store


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


    def kernel_constants(self, side: Side) -> MseKernel:
        parameters: MseParameters = side.parameters
        table = codebooks.load(parameters.codebook, parameters.bits)
        compared = parameters.bits <= WIDEST_COMPARED
        up = parameters.tie == "up"
        return MseKernel(
            bits=parameters.bits,
            codebook=parameters.codebook,
            z_scale=fp32(side.head_dim**0.5 * side.rotation.scale),
            compared=compared,
            edges=tuple(fp32(edge) for edge in table.edges if edge > 0) if compared else (),
            zero_code=len(table.levels) // 2,
            strict_side="< 0" if up else "> 0",
            bisection=tuple(2**bit for bit in reversed(range(parameters.bits))),
            bisection_compare=">=" if up else ">",
            table_edges=() if compared else tuple(map(fp32, table.edges)),
            levels=tuple(fp32(level * side.head_dim**-0.5) for level in table.levels),
            correct_at_store=parameters.norm_correction == "store",
            correct_at_load=parameters.norm_correction == "load",
        )


CODEC = MseCodec()

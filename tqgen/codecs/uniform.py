"""Codec `uniform`: integers on an even grid between the smallest and the largest element of a group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from tqgen.codecs._groups import group_problems, group_size
from tqgen.codecs.base import Codec, Problem, SideParameters, Stored
from tqgen.layout import ITEM_BYTES, Part, Side
from tqgen.literals import fp32

SMALLEST_FLOOR = 2.0**-126  # the smallest normal fp32 number: a smaller divisor may be flushed to zero


class UniformParameters(SideParameters):
    """A side whose elements become evenly spaced integers, with a scale (and zero point) for each group."""

    codec: Literal["uniform"] = Field(description="evenly spaced integers, with a scale and a zero point per group")
    bits: int = Field(ge=1, le=8, description="width of a code")
    group: int | None = Field(
        None, ge=1, description="neighbouring elements that share one scale; default the whole vector"
    )
    symmetric: bool = Field(
        False, description="signed codes about zero, scaled by the largest magnitude; no zero point is stored"
    )
    rounding: Literal["half_up", "half_even", "half_away"] = Field(
        "half_up", description="which integer a value halfway between two becomes"
    )
    quantize_with: Literal["exact", "stored"] = Field(
        "exact", description="compute codes with the scale and zero point in fp32, or as they were rounded for storing"
    )
    scale_floor: float = Field(
        1e-8, ge=SMALLEST_FLOOR, le=1.0, description="the smallest scale; what a group of equal elements gets"
    )
    scale: Stored = Field(Stored(), description="how the scale is stored")
    zero: Stored = Field(Stored(), description="how the zero point, the smallest element of a group, is stored")


@dataclass(frozen=True)
class UniformKernel:
    """What the macros of `uniform` write; numbers are literals."""

    bits: int
    symmetric: bool
    steps: str  # codes between the smallest and the largest element, as a float
    lowest: str
    highest: str
    code_mask: int
    sign_bit: int
    rounding: str
    stored: bool
    scale_dtype: str
    zero_dtype: str
    scale_floor: str
    propagate: bool

    @property
    def needs_norm(self) -> bool:
        return False


class UniformCodec(Codec):
    """`codes` [D], `scale` [D / group] and, unless symmetric, `zero` [D / group]."""

    name = "uniform"
    Parameters = UniformParameters

    def problems(self, parameters: UniformParameters, head_dim: int) -> Iterator[Problem]:
        yield from group_problems(parameters.group, head_dim)
        if parameters.symmetric and parameters.bits == 1:
            yield Problem(
                code="TQ3205",
                message="symmetric codes need at least 2 bits",
                path=("bits",),
                label="one bit has no positive code",
                help="use 2 bits or more, or leave out `symmetric`",
                related=(("symmetric",), "symmetric here"),
            )
        if parameters.symmetric and "zero" in parameters.model_fields_set:
            yield Problem(
                code="TQ3206",
                message="a symmetric side stores no zero point",
                path=("zero",),
                label="never stored",
                help="remove `zero`, or remove `symmetric`",
                related=(("symmetric",), "symmetric here"),
            )

    def parts(self, parameters: UniformParameters, head_dim: int) -> tuple[Part, ...]:
        groups = head_dim // group_size(parameters.group, head_dim)
        scale, zero = parameters.scale.dtype, parameters.zero.dtype
        parts = (
            Part("codes", head_dim, parameters.bits),
            Part("scale", groups, 8 * ITEM_BYTES[scale], scale),
        )
        return parts if parameters.symmetric else (*parts, Part("zero", groups, 8 * ITEM_BYTES[zero], zero))


    def kernel_constants(self, side: Side) -> UniformKernel:
        parameters: UniformParameters = side.parameters
        bits, symmetric = parameters.bits, parameters.symmetric
        return UniformKernel(
            bits=bits,
            symmetric=symmetric,
            steps=fp32(2 ** (bits - 1) - 1 if symmetric else 2**bits - 1),
            lowest=fp32(-(2 ** (bits - 1)) if symmetric else 0),
            highest=fp32(2 ** (bits - 1) - 1 if symmetric else 2**bits - 1),
            code_mask=2**bits - 1,
            sign_bit=2 ** (bits - 1),
            rounding=parameters.rounding,
            stored=parameters.quantize_with == "stored",
            scale_dtype=parameters.scale.dtype,
            zero_dtype=parameters.zero.dtype,
            scale_floor=fp32(parameters.scale_floor),
            propagate=parameters.non_finite == "propagate",
        )


CODEC = UniformCodec()

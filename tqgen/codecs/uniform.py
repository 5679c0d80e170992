"""Codec `uniform`: integers on an even grid between the smallest and the largest element of a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tqgen.codecs._groups import group_problems, group_size
from tqgen.codecs.base import Codec, Folding, KernelConstants, Problem, SideParameters, Span, Stored, meanings
from tqgen.layout import ITEM_BYTES, Part, Side
from tqgen.numerics.literals import fp32

if TYPE_CHECKING:
    import numpy as np

    from tqgen.codecs._grid import Grid

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
        "half_up",
        description="which integer a value halfway between two becomes",
        json_schema_extra=meanings(
            half_up="the upper one", half_even="the even one", half_away="the one away from zero"
        ),
    )
    quantize_with: Literal["exact", "stored"] = Field(
        "exact",
        description="the scale and zero point that codes are computed with",
        json_schema_extra=meanings(exact="as they are in fp32", stored="as they were rounded for storing"),
    )
    scale_floor: float = Field(
        1e-8, ge=SMALLEST_FLOOR, le=1.0, description="the smallest scale; what a group of equal elements gets"
    )
    scale: Stored = Field(Stored(dtype="fp16"), description="how the scale is stored")
    zero: Stored = Field(
        Stored(dtype="fp16"), description="how the zero point, the smallest element of a group, is stored"
    )


# From here on the remainder of a quotient by a small integer is no subnormal number, so that it is exact.
SMALLEST_EXACT_QUOTIENT = 2.0**-100
# And from here on that of a quotient by a scale, where it decides on a code: from 2**-18 on, below half of the smallest
# number of every format. Remainders are multiples of 2**-46 of the product of both.
SMALLEST_EXACT_DIVISOR = 2.0**-62


def needs_division(scale_floor: str) -> bool:
    """Whether quotients by a scale from this literal on are divisions: a remainder might be a subnormal number."""
    return float(scale_floor) < SMALLEST_EXACT_DIVISOR


@dataclass(frozen=True)
class UniformKernel(KernelConstants):
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
    def divides(self) -> bool:
        """Whether codes need a division by the scale."""
        return needs_division(self.scale_floor)

    def step_of(self, extent: str) -> str:
        """Source of extent / steps, correctly rounded wherever that is not below the floor of scales."""
        if float(self.scale_floor) < SMALLEST_EXACT_QUOTIENT:
            return f"tl.div_rn({extent}, {self.steps})"
        return f"_quotient({extent}, {self.steps}, {fp32(1 / float(self.steps))})"

    @property
    def step_comment(self) -> str:
        """What is said behind that: where the reciprocal comes from."""
        return "" if float(self.scale_floor) < SMALLEST_EXACT_QUOTIENT else f"  # 1 / {self.steps}"

    @property
    def integer_offset(self) -> str:
        """What the integer in the low bits of 2**23 is more than a code."""
        return f"{2**23 + (self.sign_bit if self.symmetric else 0)}.0"

    @property
    def cuts(self) -> bool:
        """Codes are the whole part of a number that is in their range: rounded half up, and nowhere beyond."""
        return self.rounding == "half_up" and not self.symmetric and not self.stored

    @property
    def quad_codes(self) -> tuple[int, int]:
        return 0, 0


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

    def encode(
        self, side: Side, rotated: np.ndarray, error: np.ndarray, norm: Span, *, division_ulps: float = 0.0
    ) -> dict[str, Span]:
        """code = clamp(round((v - zero) / scale)); zero is the smallest element of a group, scale its step."""
        from tqgen.codecs import _grid

        parameters: UniformParameters = side.parameters
        spans = _grid.quantize(self._grid(side), side.part("scale").count, rotated, error, division_ulps)
        mask = 2**parameters.bits - 1  # two's complement of negative codes
        spans["codes"] = Span(*(codes & mask for codes in spans["codes"].ends))
        return spans

    def _grid(self, side: Side) -> Grid:
        from tqgen.codecs import _grid

        parameters: UniformParameters = side.parameters
        bits, symmetric = parameters.bits, parameters.symmetric
        lowest, highest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if symmetric else (0, 2**bits - 1)
        return _grid.Grid(
            steps=highest,
            code=_grid.clamped(_grid.ROUNDINGS[parameters.rounding], lowest, highest),
            addend=0.0 if parameters.rounding == "half_even" else 0.5,
            invalid=0,
            scale_dtype=parameters.scale.dtype,
            zero_dtype=None if symmetric else parameters.zero.dtype,
            scale_floor=parameters.scale_floor,
            stored=parameters.quantize_with == "stored",
            saturate=parameters.non_finite == "saturate",
        )

    def ordinals(self, side: Side, codes: np.ndarray) -> np.ndarray:
        """Signed codes for a symmetric side, the codes themselves otherwise."""
        import numpy as np

        parameters: UniformParameters = side.parameters
        if not parameters.symmetric:
            return codes
        return np.where(codes >= 2 ** (parameters.bits - 1), codes - 2**parameters.bits, codes)

    def decode(self, side: Side, parts: Mapping[str, np.ndarray]) -> np.ndarray:
        """codes * scale + zero."""
        from tqgen.codecs import _grid

        steps = self.ordinals(side, parts["codes"])
        return _grid.decode(steps, parts["scale"], parts.get("zero"))

    def decode_span(self, side: Side, parts: Mapping[str, np.ndarray]) -> Span:
        """The product and the sum rounded to fp32 one after the other, or the sum alone where they are fused."""
        from tqgen.codecs import _grid

        return _grid.decode_span(self.ordinals(side, parts["codes"]), parts["scale"], parts.get("zero"))

    def folding(self, side: Side) -> Folding | None:
        """Codes of one group are counted from the middle of their range, so that scale and zero do not cancel."""
        parameters: UniformParameters = side.parameters
        groups = side.part("scale").count
        center = 2 ** (parameters.bits - 1)
        if parameters.symmetric:
            # two's complement: codes from `center` on are negative
            numbers = tuple(float(code if code < center else code - 2 * center) for code in range(2 * center))
            return Folding(numbers, scale="scale", groups=groups)
        if groups > 1:
            return Folding(tuple(map(float, range(2 * center))), scale="scale", zero="zero", groups=groups)
        numbers = tuple(float(code - center) for code in range(2 * center))
        return Folding(numbers, scale="scale", zero=f"zero + {float(center)} * scale", origin="zero")

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

"""Codec `fp8`: 8-bit floating-point numbers of the OCP formats, with or without a scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tqgen.codecs._groups import group_problems, group_size
from tqgen.codecs.base import Codec, Folding, KernelConstants, Problem, SideParameters, Span, Stored, meanings
from tqgen.codecs.uniform import SMALLEST_FLOOR, needs_division
from tqgen.layout import ITEM_BYTES, Part, Side
from tqgen.numerics.literals import fp32

if TYPE_CHECKING:
    import numpy as np

    from tqgen.codecs._grid import Grid

ONLY_WITH_SCALE = ("group", "scale_floor", "quantize_with")


class Fp8Parameters(SideParameters):
    """A side whose elements become 8-bit floats."""

    codec: Literal["fp8"] = Field(description="8-bit floating-point numbers")
    format: Literal["e4m3", "e5m2"] = Field(
        "e4m3",
        description="one of the two OCP formats",
        json_schema_extra=meanings(
            e4m3="up to 448, with 3 bits of mantissa", e5m2="up to 57344, with 2 bits of mantissa"
        ),
    )
    group: int | None = Field(
        None, ge=1, description="neighbouring elements that share one scale; default the whole vector"
    )
    scale: Stored | None = Field(
        None, description="store a scale that maps the largest magnitude to the format's largest; default no scale"
    )
    scale_floor: float = Field(1e-8, ge=SMALLEST_FLOOR, le=1.0, description="the smallest scale")
    quantize_with: Literal["exact", "stored"] = Field(
        "exact",
        description="the scale that elements are divided by",
        json_schema_extra=meanings(exact="as it is in fp32", stored="as it was rounded for storing"),
    )


LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}


@dataclass(frozen=True)
class Fp8Kernel(KernelConstants):
    """What the macros of `fp8` write; numbers are literals."""

    format: str
    scaled: bool
    largest: str
    stored: bool
    scale_dtype: str
    scale_floor: str
    propagate: bool

    uses_hardware_fp8 = True

    @property
    def divides(self) -> bool:
        """Whether codes need a division by the scale."""
        return needs_division(self.scale_floor)


class Fp8Codec(Codec):
    """`codes` [D] of 8 bits and, with a scale, `scale` [D / group]."""

    name = "fp8"
    Parameters = Fp8Parameters

    def problems(self, parameters: Fp8Parameters, head_dim: int) -> Iterator[Problem]:
        if parameters.scale is not None:
            yield from group_problems(parameters.group, head_dim)
            return
        for key in ONLY_WITH_SCALE:
            if key in parameters.model_fields_set:
                yield Problem(
                    code="TQ3207",
                    message=f"`{key}` has no meaning without a scale",
                    path=(key,),
                    label="needs `scale`",
                    help="add `scale: {dtype: fp16}`, or remove this key",
                )

    def parts(self, parameters: Fp8Parameters, head_dim: int) -> tuple[Part, ...]:
        codes = Part("codes", head_dim, 8)
        if parameters.scale is None:
            return (codes,)
        dtype = parameters.scale.dtype
        groups = head_dim // group_size(parameters.group, head_dim)
        return (codes, Part("scale", groups, 8 * ITEM_BYTES[dtype], dtype))

    def encode(
        self, side: Side, rotated: np.ndarray, error: np.ndarray, norm: Span, *, division_ulps: float = 0.0
    ) -> dict[str, Span]:
        """code = the nearest number of the format to v, or to v / scale with scale = largest magnitude / MAX."""
        from tqgen.codecs import _grid

        form = side.parameters.format
        if side.parameters.scale is None:
            return {"codes": _grid.elementwise(rotated, error, form)}
        spans = _grid.quantize(self._grid(side), side.part("scale").count, rotated, error, division_ulps)
        spans["codes"] = Span(*(_grid.from_ordinals(codes, form) for codes in spans["codes"].ends))
        return spans

    def _grid(self, side: Side) -> Grid:
        from tqgen.codecs import _grid
        from tqgen.numerics import floats

        parameters: Fp8Parameters = side.parameters
        assert parameters.scale is not None  # without one nothing is stretched, and `encode` needs no grid
        form = floats.FORMATS[parameters.format]
        return _grid.Grid(
            steps=form.largest,
            code=lambda t: floats.ordinals(floats.to_bits(t, form.name), form.name),
            addend=0.0,
            invalid=form.nan,
            scale_dtype=parameters.scale.dtype,
            zero_dtype=None,
            scale_floor=parameters.scale_floor,
            stored=parameters.quantize_with == "stored",
            saturate=parameters.non_finite == "saturate",
        )

    def ordinals(self, side: Side, codes: np.ndarray) -> np.ndarray:
        """The order of the numbers, -0 below +0."""
        from tqgen.numerics import floats

        return floats.ordinals(codes, side.parameters.format)

    def decode(self, side: Side, parts: Mapping[str, np.ndarray]) -> np.ndarray:
        """The numbers, times their group's scale if there is one."""
        from tqgen.codecs import _grid
        from tqgen.numerics import floats

        numbers = floats.from_bits(parts["codes"], side.parameters.format)
        return numbers if side.parameters.scale is None else _grid.decode(numbers, parts["scale"], None)

    def decode_span(self, side: Side, parts: Mapping[str, np.ndarray]) -> Span:
        """The product with the scale rounded to fp32."""
        from tqgen.codecs import _grid
        from tqgen.numerics import floats

        numbers = floats.from_bits(parts["codes"], side.parameters.format)
        if side.parameters.scale is None:
            return Span(numbers, numbers, numbers)
        return _grid.decode_span(numbers, parts["scale"], None)

    def folding(self, side: Side) -> Folding | None:
        parameters: Fp8Parameters = side.parameters
        if parameters.scale is None:
            return Folding(None, format=parameters.format)
        return Folding(None, format=parameters.format, scale="scale", groups=side.part("scale").count)

    def kernel_constants(self, side: Side) -> Fp8Kernel:
        parameters: Fp8Parameters = side.parameters
        return Fp8Kernel(
            format=parameters.format,
            scaled=parameters.scale is not None,
            largest=fp32(LARGEST[parameters.format]),
            stored=parameters.quantize_with == "stored",
            scale_dtype=parameters.scale.dtype if parameters.scale else "",
            scale_floor=fp32(parameters.scale_floor),
            propagate=parameters.non_finite == "propagate",
        )


CODEC = Fp8Codec()

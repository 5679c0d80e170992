"""Codec `mse`: a vector's norm, and Lloyd-Max codes of its rotated direction (TurboQuant, arXiv 2504.19874)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tqgen import codebooks
from tqgen.codecs._guess import Guess, guess
from tqgen.codecs.base import Codec, Folding, KernelConstants, Levels, Problem, SideParameters, Span, Stored, meanings
from tqgen.diagnostics import did_you_mean, listed
from tqgen.layout import ITEM_BYTES, Part, Side
from tqgen.numerics.literals import fp32

if TYPE_CHECKING:
    import numpy as np

NORM_GUARD = 1e-8  # added to the norm before dividing by it
CORRECTION_GUARD = 1e-16  # added to the squared length of the chosen levels


class MseParameters(SideParameters):
    """A side whose rotated elements become the nearest level of a codebook for N(0, 1)."""

    codec: Literal["mse"] = Field(description="a norm, and the nearest levels of a codebook for each rotated element")
    bits: int = Field(ge=1, le=8, description="width of a code; the codebook has 2**bits levels")
    codebook: str = Field(
        "lloyd_max",
        description="name of a pinned table of levels for N(0, 1)",
        json_schema_extra=lambda schema: schema.update(enum=list(codebooks.names())),
    )
    norm_correction: Literal["none", "store", "load"] = Field(
        "none",
        description="divide by the length of the chosen levels, so that decoded vectors are as long as the originals",
        json_schema_extra=meanings(
            none="no division; decoded vectors are somewhat shorter",
            store="the norm is stored divided; decoding costs nothing",
            load="the norm is stored as it is, and decoding divides",
        ),
    )
    tie: Literal["up", "down"] = Field(
        "up",
        description="the code of a value on the edge between two levels",
        json_schema_extra=meanings(up="that of the upper level", down="that of the lower level"),
    )
    norm: Stored = Field(Stored(dtype="fp16"), description="how the norm is stored")


# Head dimensions that fill a tile, so that its codes can be taken in pairs.
POWERS_OF_TWO = tuple(2**n for n in range(4, 11))
# Widest codes of which a table of all pairs is small enough to stay in the cache.
WIDEST_PAIRED = 4
# Edges up to which comparisons with all of them cost less than a guess and the load of one edge.
MOST_COMPARED = 3
# How far, in cells, an edge must be from the border of its cell: far more than fp32 rounding moves the position.
CELL_MARGIN = 0.002


# Widest codes that are found by comparisons; wider ones would need more of them than a look-up costs.
WIDEST_SEARCHED = 4


@dataclass(frozen=True)
class SearchStep:
    """One comparison of a binary search over the positive edges."""

    name: str
    literal: str  # the edge, in the first step
    edge: str  # source: selects the edge by the steps before; empty in the first step
    weight: int  # of the step's outcome in the cell's number


def search_steps(edges: tuple[str, ...]) -> tuple[SearchStep, ...]:
    """Binary search over 2**n - 1 ascending positive edges, given as literals."""
    names = ("upper", "above", "beyond")
    steps: list[SearchStep] = []
    weight = (len(edges) + 1) // 2

    def select(low: int, high: int, taken: list[SearchStep]) -> str:
        middle = edges[(low + high) // 2 - 1]
        if not taken:
            return middle
        first, *rest = taken
        half = (low + high) // 2
        return f"tl.where({first.name}, {select(half, high, rest)}, {select(low, half, rest)})"

    while weight:
        source = select(0, len(edges) + 1, steps)
        first = not steps
        steps.append(SearchStep(names[len(steps)], source if first else "", "" if first else source, weight))
        weight //= 2
    return tuple(steps)


@dataclass(frozen=True)
class MseKernel(KernelConstants):
    """What the macros of `mse` write; numbers are literals.

    Codes are found by a table over cells of equal width. A cell knows its edge, if it has one, and how many are below.
    """

    bits: int
    codebook: str
    z_scale: str  # brings rotated / norm to unit variance, the product's scale included
    edges: tuple[str, ...]
    includes_edge: bool  # a value on an edge belongs to the upper cell of the codebook
    cells_per_sigma: int
    cell_offset: str  # position of z = 0
    num_cells: int
    bounded: bool  # no z is outside of the cells
    sigma: float  # 1 / sqrt(head_dim)
    levels: tuple[str, ...]  # times sigma
    correct_at_store: bool
    correct_at_load: bool
    paired: bool  # squares of levels are looked up for two codes at once
    search: tuple[SearchStep, ...]  # how a code is found by comparisons; empty: by a table of cells
    strict_side: str  # the sign of z whose edges belong to the cell nearer to zero
    when_mirrored: str  # source of a code over `cell`
    otherwise: str
    zero_code: int  # of z = 0
    guess: Guess | None  # how the store's quads find codes
    compares: bool  # by comparisons with every edge instead

    needs_norm = True
    decode_tables = ("levels",)
    back_tables = ("level_parts",)

    @property
    def quad_codes(self) -> tuple[int, int] | None:
        return None if self.guess is None else (self.zero_code, 1 << self.bits - 1)

    @property
    def quad_levels(self) -> Levels:
        exact = codebooks.load(self.codebook, self.bits).levels
        return Levels(exact, self.sigma, tuple(map(float, self.levels)), self.correct_at_load, CORRECTION_GUARD)

    @property
    def quad_tables(self) -> tuple[str, ...]:
        return ("edge_of",) * (not self.compares) + ("level_squares",) * self.correct_at_store

    @property
    def encode_tables(self) -> tuple[str, ...]:
        cells = ("cells",) * (not self.search and self.bits > 1)
        return cells + ("levels",) * (self.correct_at_store and not self.paired)

    @property
    def correct_tables(self) -> tuple[str, ...]:
        return ("squares",) * self.paired

    @property
    def pair_mask(self) -> int:
        """The bits of two codes."""
        return (1 << 2 * self.bits) - 1

    def table_source(self, table: str, side_name: str) -> str:
        if table == "cells":
            edges = f"{side_name.upper()}_EDGES"
            sizes = f"cells_per_sigma={self.cells_per_sigma}, offset={self.cell_offset}, num_cells={self.num_cells}"
            return f"_cells({edges}, {sizes}, device=device)"
        if table == "squares":
            return f"_pair_squares({side_name.upper()}_LEVELS, device)"
        if table == "level_parts":
            return f"_level_parts({side_name.upper()}_LEVELS, device)"
        if table == "edge_of":
            return f"_edge_of({side_name.upper()}_EDGES, device)"
        if table == "level_squares":
            return f"_level_squares({side_name.upper()}_LEVELS, device)"
        return super().table_source(table, side_name)


def cells(edges: tuple[float, ...], head_dim: int) -> tuple[int, float, int]:
    """Cells per sigma, the position of 0 and the number of cells, so that no cell holds two edges.

    The cells reach beyond sqrt(head_dim), which no element of a vector of unit variance exceeds, and hold every edge.
    """
    gap = min((high - low for low, high in pairwise(edges)), default=1.0)
    per_sigma = 2 ** max(0, math.ceil(-math.log2(gap)))
    reach = math.ceil(max(head_dim**0.5, *map(abs, edges)) * per_sigma) + 1
    for fraction in range(64):
        positions = [edge * per_sigma + fraction / 64 for edge in edges]
        inside = all(CELL_MARGIN < position % 1 < 1 - CELL_MARGIN for position in positions)
        if inside and len({math.floor(position) for position in positions}) == len(edges):
            return per_sigma, reach + fraction / 64, 2 * reach + 1
    raise ValueError("no grid separates the edges of this codebook")


class MseCodec(Codec):
    """`codes` [D] and `norm` [1]."""

    name = "mse"
    Parameters = MseParameters

    def problems(self, parameters: MseParameters, head_dim: int) -> Iterator[Problem]:
        known = codebooks.names()
        if parameters.codebook not in known:
            close = did_you_mean(parameters.codebook, known)
            yield Problem(
                code="TQ3203",
                message=f"no codebook is called `{parameters.codebook}`",
                path=("codebook",),
                label="unknown codebook",
                help=f"did you mean `{close}`?" if close else f"choose {listed(known)}",
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

    def encode(
        self, side: Side, rotated: np.ndarray, error: np.ndarray, norm: Span, *, division_ulps: float = 0.0
    ) -> dict[str, Span]:
        """code = number of edges at or below z = y / (norm + 1e-8) * sqrt(D), or strictly below with tie `down`."""
        import numpy as np

        from tqgen.numerics import floats

        parameters: MseParameters = side.parameters
        table = codebooks.load(parameters.codebook, parameters.bits)
        edges, levels = np.array(table.edges), np.array(table.levels)
        # Guard, division, the factor sqrt(D) and the edge itself are each rounded to fp32, some of them twice.
        slack = (8 + 2 * division_ulps) * floats.ROUNDING
        if side.rotation.is_hadamard and parameters.non_finite == "propagate":
            # The length is taken after the rotation, where Inf may have become NaN: either is stored as NaN.
            norm = Span(*(np.where(np.isfinite(n), n, np.nan) for n in norm.ends))
        shortest, length, longest = (n[..., None] + NORM_GUARD for n in (norm.low, norm.exact, norm.high))

        def codes(y: np.ndarray, divisor: np.ndarray, relative: float) -> np.ndarray:
            with np.errstate(invalid="ignore", over="ignore"):
                z = y / divisor * side.head_dim**0.5
                z = z + relative * np.abs(z)
            # A vector without a finite length has no direction: its codes are those of zero.
            z = np.where(np.isfinite(length) & np.isfinite(z), z, 0.0)
            return np.searchsorted(edges, z, side="right" if parameters.tie == "up" else "left")

        with np.errstate(invalid="ignore"):
            below, above = rotated - error, rotated + error
        low = codes(below, np.where(below >= 0, longest, shortest), -slack)
        high = codes(above, np.where(above >= 0, shortest, longest), slack)
        exact = codes(rotated, length, 0.0)
        stored = norm
        if parameters.norm_correction == "store":
            stored = self._corrected(side, norm, levels, Span(low, exact, high))
        saturate = parameters.non_finite == "saturate"
        rounded = (floats.round_to(n, parameters.norm.dtype, saturate=saturate)[..., None] for n in stored.ends)
        return {"codes": Span(low, exact, high), "norm": Span(*rounded)}

    def _corrected(self, side: Side, norm: Span, levels: np.ndarray, codes: Span) -> Span:
        """The norm divided by the length of the chosen unit-variance levels, norm / sqrt(sum c*c + 1e-16)."""
        import numpy as np

        from tqgen.numerics import floats

        squares = levels**2 / side.head_dim
        ends = squares[codes.low], squares[codes.high]
        middle = len(levels) // 2
        around_zero = (codes.low < middle) & (codes.high >= middle)
        least = np.where(around_zero, squares[middle], np.minimum(*ends)).sum(-1)
        most = np.maximum(*ends).sum(-1)
        # The square root halves the relative error of the sum; root, reciprocal and product are rounded.
        slack = (floats.accumulation(side.head_dim) + 8 * floats.ROUNDING) / 2 + 4 * floats.ROUNDING
        return Span(
            norm.low / np.sqrt(most + CORRECTION_GUARD) * (1 - slack),
            norm.exact / np.sqrt(squares[codes.exact].sum(-1) + CORRECTION_GUARD),
            norm.high / np.sqrt(least + CORRECTION_GUARD) * (1 + slack),
        )

    def decode(self, side: Side, parts: Mapping[str, np.ndarray]) -> np.ndarray:
        """levels[codes] / sqrt(D) * norm, the levels made a unit vector first with norm correction at load."""
        import numpy as np

        parameters: MseParameters = side.parameters
        levels = np.array(codebooks.load(parameters.codebook, parameters.bits).levels)
        unit = levels[parts["codes"]] * side.head_dim**-0.5
        if parameters.norm_correction == "load":
            unit = unit / np.sqrt((unit * unit).sum(-1, keepdims=True) + CORRECTION_GUARD)
        with np.errstate(invalid="ignore"):
            return unit * parts["norm"]

    def decode_span(self, side: Side, parts: Mapping[str, np.ndarray]) -> Span:
        """Level and product are rounded; with correction at load also the sum, its root and the quotient."""
        import numpy as np

        from tqgen.numerics import floats

        relative = 3 * floats.ROUNDING
        if side.parameters.norm_correction == "load":
            relative += floats.accumulation(side.head_dim) / 2 + 6 * floats.ROUNDING
        decoded = self.decode(side, parts)
        with np.errstate(invalid="ignore"):
            error = np.where(decoded == 0, 0.0, relative * np.abs(decoded) + floats.SMALLEST_NORMAL)
            error = np.where(np.isfinite(decoded), error, 0.0)
        return Span(decoded - error, decoded, decoded + error)

    def folding(self, side: Side) -> Folding | None:
        parameters: MseParameters = side.parameters
        sigma = fp32(side.head_dim**-0.5)
        correct_at_load = parameters.norm_correction == "load"
        return Folding(
            numbers=codebooks.load(parameters.codebook, parameters.bits).levels,
            scale="norm" if correct_at_load else f"norm * {sigma}",
            normalised=correct_at_load,
        )

    def kernel_constants(self, side: Side) -> MseKernel:
        parameters: MseParameters = side.parameters
        table = codebooks.load(parameters.codebook, parameters.bits)
        per_sigma, offset, num_cells = cells(table.edges, side.head_dim)
        correct_at_store = parameters.norm_correction == "store"
        searched = 2 <= parameters.bits <= WIDEST_SEARCHED
        up, zero_code = parameters.tie == "up", len(table.levels) // 2
        return MseKernel(
            bits=parameters.bits,
            codebook=parameters.codebook,
            z_scale=fp32(side.head_dim**0.5 * side.rotation.scale),
            edges=tuple(map(fp32, table.edges)),
            includes_edge=parameters.tie == "up",
            cells_per_sigma=per_sigma,
            cell_offset=fp32(offset),
            num_cells=num_cells,
            bounded=side.rotation.kind != "matrix",
            sigma=side.head_dim**-0.5,
            levels=tuple(fp32(level * side.head_dim**-0.5) for level in table.levels),
            correct_at_store=correct_at_store,
            correct_at_load=parameters.norm_correction == "load",
            search=search_steps(tuple(fp32(edge) for edge in table.edges if edge > 0)) if searched else (),
            strict_side="<" if up else ">",
            when_mirrored=f"{zero_code - 1} - cell" if up else f"{zero_code} + cell",
            otherwise=f"{zero_code} + cell" if up else f"{zero_code - 1} - cell",
            zero_code=zero_code if up else zero_code - 1,
            guess=guess(table.edges) if searched else None,
            compares=side.rotation.kind == "matrix" and len(table.edges) <= MOST_COMPARED,
            paired=correct_at_store and parameters.bits <= WIDEST_PAIRED and side.head_dim in POWERS_OF_TWO,
        )


CODEC = MseCodec()

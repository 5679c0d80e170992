"""The part of a plan that is about attention of few query rows; see `tqgen.lower.fragments` for how it works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tqgen.plan.attention import AttentionSidePlan

from tqgen.plan.assembly import assembly_text


@dataclass(frozen=True)
class RunFieldPlan:
    """A metadata field of a run of four neighbouring tokens."""

    name: str  # key_norm
    title: str  # key.norm
    short: str  # norm
    dtype: str
    item_bytes: int
    stride: str  # source: bytes from token to token
    words: int  # 32-bit words that hold the run where its items are neighbours and aligned; 0: four loads
    grouped: bool  # a token has one for each group of its elements

    @property
    def raw(self) -> tuple[str, ...]:
        """Names of what is loaded."""
        return (self.name,) if self.words else tuple(f"{self.name}_{n}" for n in range(4))


@dataclass(frozen=True)
class GroupsPlan:
    """Where a token's vector has groups with scales of their own: which of them a thread needs."""

    of_run: int  # groups in the run of a thread
    first_of_run: str  # source over `thread`
    of_quarter: int  # groups in a quarter of a vector, of which four threads find the largest number of a token
    first_of_quarter: str
    largest: str  # magnitude of a code's number
    has_zero: bool


@dataclass(frozen=True)
class RunPlan:
    """How a thread loads its run of neighbouring codes of a token, and the metadata of four tokens."""

    run: int  # codes of a thread
    units: int  # of codes that are expanded together
    num_bytes: int
    piece_words: int  # 32-bit words that one load brings, where units are words
    pieces: int  # such loads
    around: int  # 32-bit words that are loaded around the run where units are not words
    optional: bool  # of these, the last holds nothing of a run that starts with a word
    shifted: bool  # a run may start in the middle of a word
    units_of_run: tuple[str, ...]  # source of each unit over word_0.. and `shift`; none: units are words
    tokens: int  # of one warp in one step
    masked: bool  # values are read only where there is a token, since other codes may stand for NaN
    code: str  # source over `thread` and `place`: the code in the row's bytes
    element: str  # source over `code`
    fields: tuple[RunFieldPlan, ...]
    groups: GroupsPlan | None  # None: one scale for each token

    def raw(self, name: str) -> tuple[str, ...]:
        """Names of what is loaded of the run `name`."""
        return tuple(f"{name}_{n}" for n in range(self.around)) if self.around else (name,)

    @property
    def words(self) -> tuple[str, ...]:
        """Names of the words around a run."""
        return self.raw("word")

    @property
    def assembled(self) -> str:
        """Source of the pieces word_0.. along new last axes, one for each power of two, in order."""

        def joined(names: list[str]) -> str:
            return names[0] if len(names) == 1 else f"tl.join({joined(names[0::2])}, {joined(names[1::2])})"

        return joined([f"word_{n}" for n in range(self.pieces)])

    @property
    def assembled_order(self) -> str:
        """Source of the permutation that puts the words within a piece last."""
        return f"({', '.join(map(str, (0, *range(2, 1 + self.pieces.bit_length()), 1)))})"


@dataclass(frozen=True)
class PairsPlan:
    """How the units of values of two tokens become numbers side by side; what the codes are is in the tile's plan."""

    assembly: str
    constraints: str
    constants: tuple[int, ...]
    comment: tuple[str, ...]  # what each of the constants is
    per_unit: int  # codes
    order: str  # source over `place`: which code of a unit comes at a place among its numbers
    shift: str  # source over `place`: how far that code is shifted down
    looks_up: bool  # the form without assembly takes numbers from a table

    @property
    def assembly_text(self) -> str:
        """Sentences on the numbers in the assembly."""
        return assembly_text(self.assembly)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the assembly's fp16 results."""
        return tuple(f"h{n}" for n in range(2 * self.per_unit))

    @property
    def has_operands(self) -> bool:
        """Whether the expansion takes a table: operands of the assembly, then the numbers of the codes."""
        return bool(self.constants)

    @property
    def order_text(self) -> str:
        """A phrase: in which order the numbers of a unit's codes come."""
        return "in order" if self.order == "place" else "0, 2, 4, 6, 1, 3, 5, 7"


@dataclass(frozen=True)
class QueryPlan:
    """How each warp holds query rows, and rotates them by a Hadamard matrix where keys are rotated."""

    parts: int  # of a row that take turns in the order of packing
    butterflies: int  # steps of the transform that are left beside the product
    signed: bool
    unit_order: tuple[int, ...]  # of the last three axes, the bits of a code's number in its unit; empty: as they are


@dataclass(frozen=True)
class FragmentPlan:
    """Attention of few query rows whose operands are expanded in the registers that tensor cores take them from."""

    why: str
    key_codes: AttentionSidePlan  # how codes become numbers
    value_codes: AttentionSidePlan
    key: RunPlan
    value: RunPlan
    pairs: PairsPlan
    tokens: int  # of one warp in one step
    warps: int
    most_rows: int  # query rows of a program
    few_rows: int  # query rows of one KV head up to which this form is taken
    condition: str  # source over block_size, num_kv_heads and alignment: which caches it can read
    values_ahead: bool  # values are loaded a step ahead, as keys and metadata are
    query: QueryPlan | None  # None: rotated by one product with the whole matrix, which warps share
    query_tables: tuple[str, ...]  # constants that the query is rotated by
    query_chunk: int  # rows of the whole matrix at a time
    smallest_exponent: int
    largest_exponent: int
    programs_per_processor: int  # of up to 8 query rows, that one holds at once
    programs_of_more_rows: int
    registers: int | None  # of a thread at most, of programs of up to 8 query rows on NVIDIA's GPUs; None: as it comes

    @property
    def raw_ahead(self) -> tuple[str, ...]:
        """Names of what a thread loads a step ahead."""
        fields = [name for field in self.key.fields + self.value.fields for name in field.raw]
        keys = [name for n in range(4) for name in self.key.raw(f"key_{n}")]
        return (*fields, *keys, *(self.raw_values if self.values_ahead else ()))

    @property
    def raw_values(self) -> tuple[str, ...]:
        """Names of what a thread loads of values for one step."""
        groups = [field.short for field in self.value.fields if field.grouped]
        return tuple(
            name
            for n in range(8)
            for name in (*self.value.raw(f"value_{n}"), *(f"value_{n}_{short}" for short in groups))
        )

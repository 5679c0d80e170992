"""Attention in a plan: how packed codes become numbers of a tile, and how tiles are dealt out."""

from __future__ import annotations

from dataclasses import dataclass

from tqgen.plan.assembly import assembly_text
from tqgen.plan.decoded import DecodedPlan
from tqgen.plan.fragments import FragmentPlan


@dataclass(frozen=True)
class TileChoice:
    """Tokens of one tile of attention, and the warps that work on it."""

    tokens: int
    warps: int


@dataclass(frozen=True)
class AttentionSidePlan:
    """How attention reads one side: a tile [tokens, size] of fp16 numbers, in which position p means an element.

    A folded side holds bare numbers, and its scale and zero are applied to scores or probabilities. Any other side is
    decoded first and divided by its largest magnitude.
    """

    folded: bool
    why: str
    raw: tuple[str, ...]  # names of what is loaded for a tile
    size: int
    element: str  # source over p
    mask: str | None  # source over p
    code: str = ""  # source over p: the code in the row's bytes
    bits: int = 0
    code_mask: int = 0
    per_unit: int = 0
    units: int = 0
    words: int = 0
    source: str = ""  # how units come out of memory: words | shifted | pairs | halves
    assembly: str = ""
    constraints: str = ""
    constants: tuple[int, ...] = ()
    needs_capability: int = 0
    order: str = ""  # source over `position`: which code of a unit comes at a position
    readers: int = 0  # threads that load one row, 16 bytes each
    chunks: int = 0  # of 8 codes that one of them holds
    run: int = 0  # of its chunks that stay neighbours in the tile
    counted: str = ""  # source over `codes` of whole numbers; empty: numbers are looked up
    numbers: tuple[str, ...] = ()
    format: str = ""
    scale: str | None = None
    zero: str | None = None
    normalised: bool = False
    comment: tuple[str, ...] = ()  # what each of the constants is
    squares_per_one: int = 0  # unit of the sums of squares that a normalised side's assembly gives
    groups: int = 1  # of a vector; numbers of more are multiplied by their scales where they are expanded
    largest: str = "0.0"  # of the numbers' magnitudes
    head_dim: int = 0
    used_units: int = 0  # units that hold codes; the others are there to make a power of two
    num_bytes: int = 0
    decoded: DecodedPlan | None = None  # how words become numbers of a side that is not folded; None: not known

    @property
    def in_words(self) -> bool:
        """Whether packed words are loaded for a tile, and not vectors decoded."""
        return self.folded or self.decoded is not None

    @property
    def operands(self) -> str:
        """Name of the table that the kernel of tiles takes. Codes by themselves have one, too, for few query rows."""
        return "decoding" if self.decoded else "operands"

    @property
    def has_room(self) -> bool:
        """Whether what is loaded of a tile is little enough to wait in registers: words, no numbers for each unit."""
        return self.in_words and not (self.decoded and any(item.by_unit for item in self.decoded.items))

    @property
    def has_scale(self) -> bool:
        """Whether scores or weights are multiplied by a scale of each token."""
        return self.scale is not None or not self.in_words or bool(self.decoded and self.decoded.scaled)

    @property
    def is_plain(self) -> bool:
        """Whether numbers are multiplied as they are stored; those of values are loaded turned."""
        return self.decoded is not None and self.decoded.kind == "plain"

    @property
    def in_bf16(self) -> bool:
        """Whether numbers are multiplied as bf16, by two bf16 parts of what is more exact."""
        return self.decoded is not None and self.decoded.dtype == "bf16"

    @property
    def order_text(self) -> str:
        """A phrase: in which order the numbers of a unit's codes come."""
        return "in order" if self.order == "position" else "0, 4, 1, 5, 2, 6, 3, 7"

    @property
    def assembly_text(self) -> str:
        """Sentences on the numbers in the assembly."""
        return assembly_text(self.assembly)

    @property
    def numbers_comment(self) -> str:
        """A line: what the numbers of codes are."""
        scaled = any(float(number) != int(float(number)) for number in self.numbers)
        return (
            f"levels for N(0, 1), which times 1 / sqrt({self.head_dim}) are those above"
            if scaled
            else "what codes stand for"
        )

    @property
    def scale_comment(self) -> str:
        """A comment on the number in `scale`; empty where there is none."""
        return f"  # 1 / sqrt({self.head_dim})" if self.scale and "*" in self.scale else ""

    @property
    def zero_comment(self) -> str:
        """A comment on the number in `zero`; empty where there is none."""
        middle = -min(map(float, self.numbers), default=0.0)
        return f"  # {middle:g} is where numbers are counted from" if self.zero and "*" in self.zero else ""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the assembly's fp16 results."""
        return tuple(f"h{n}" for n in range(self.per_unit))

    @property
    def looks_up(self) -> bool:
        """Whether the form without assembly takes numbers from a table."""
        return bool(self.numbers) and not self.counted

    @property
    def has_operands(self) -> bool:
        """Whether the expansion takes a table: operands of the assembly, then the numbers of the codes."""
        return bool(self.constants) or self.looks_up


@dataclass(frozen=True)
class AttentionPlan:
    """Fused decode attention."""

    key: AttentionSidePlan
    value: AttentionSidePlan
    tile: TileChoice
    tile_many_rows: TileChoice  # where a KV head has more than 16 query rows
    most_columns: int  # query rows of a program
    prefetch: bool  # a tile is loaded while the one before it is worked on
    stages: int  # of the software pipeline over tiles
    query_chunk: int  # rows of the rotation at a time
    query_masked: bool
    query_up: int  # the query's largest magnitude is two to this
    weights_up: int  # the largest weight is about two to this
    smallest_exponent: int  # of the power of two that is taken out of a value's scale
    largest_exponent: int
    programs_per_processor: int  # that one holds at once
    # Microseconds that the number of splits is chosen by.
    step_time: float  # of a step, times 1 and the programs that share a multiprocessor
    split_time: float  # of each split
    merge_time: float  # of each split of a query row
    merge_turn_time: float  # of each turn of the merge, which takes `merge_splits` at a time
    largest_factor: str  # below which scores are multiplied by what a caller gives, and are finite in fp32
    smallest_softcap: str  # by which fp32 divides scores
    most_waves: int  # of programs, among which the number of splits is chosen
    invariant_split: int  # tokens of a split at fixed positions
    merge_many_rows: int  # query rows from which the merge takes 16 at a time
    merge_splits: int  # the most splits of one query row that the merge takes at a time
    invariant_merge: int  # splits at fixed positions that the merge takes at a time, however many there are
    fragments: FragmentPlan | None  # for few query rows; None: they are worked on like many

    @property
    def needs_capability(self) -> int:
        """Of a GPU that has the assembly of both sides."""
        return max(side.needs_capability for _, side in self.sides)

    @property
    def sides(self) -> tuple[tuple[str, AttentionSidePlan], ...]:
        return (("key", self.key), ("value", self.value))

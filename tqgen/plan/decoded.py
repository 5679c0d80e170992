"""The part of a plan that is about sides of attention whose scales cannot be folded out of a tile."""

from __future__ import annotations

from dataclasses import dataclass

from tqgen.plan.assembly import assembly_text


@dataclass(frozen=True)
class PlacedCode:
    """Where a code of a unit is: from bit `bit` of word `word` on, and on in the next word where it does not fit."""

    word: int
    bit: int
    across: bool
    group: int  # which of the plan's groups its scale is of


@dataclass(frozen=True)
class ItemsPlan:
    """One field of metadata: a number, or some, loaded in pieces of up to 8 bytes, or one by one for each unit."""

    name: str  # key_scale
    short: str  # scale
    dtype: str
    item_bytes: int
    alignment: str  # source
    piece_bytes: int
    pieces: int
    one: bool  # a single number for a token
    by_unit: bool  # loaded for each unit: there are too many pieces

    @property
    def per_piece(self) -> int:
        return self.piece_bytes // self.item_bytes


@dataclass(frozen=True)
class DecodedPlan:
    """How a tile is made of packed words: units [TOKENS, units] of `codes`, each unit in `words` words of 32 bits.

    `kind` says what a code is: `plain` numbers are loaded as they are and multiplied, `fp32` numbers are too wide for
    that; `counted` codes are whole numbers one after the other, `format` ones fp8, others are looked up in a `table`.
    """

    kind: str
    bits: int
    size: int
    units: int
    used_units: int  # units that hold codes; the others are there to make a power of two
    used_codes: int  # of the last of them; 0: all
    words: int
    num_bytes: int
    full: bool  # all words of all units are the field's
    alignment: str  # source
    codes: tuple[PlacedCode, ...]  # in the order in which their numbers come
    order: tuple[int, ...]  # which code of a unit each of them is
    groups: tuple[str, ...]  # source over `unit`, for each group that a unit's codes may be of; empty: one for all
    items: tuple[ItemsPlan, ...]
    scaled: bool  # rows are divided by a power of two about as large as their largest magnitude
    zero: str | None = None  # source over scale and zero
    largest: str = ""  # literal: the largest magnitude of a number of a code
    flips: tuple[int, ...] = ()  # for each word: sign bits of two's complement, which are turned over
    counted_from: str = ""  # literal: what is too much in 2**bits + code
    exponent: int = 0  # what is or-ed to a code in a mantissa's upper bits: 2**bits
    dtype: str = ""
    format: str = ""
    assembly: str = ""  # from a word, and factors and offsets of groups, to the numbers of its codes
    constraints: str = ""
    multiplied: bool = True  # by that assembly, where it has factors
    constants: tuple[int, ...] = ()  # operands of the assembly, or what is or-ed to codes where there is none
    comment: tuple[str, ...] = ()  # what each constant is
    ends: tuple[str, str] | None = None  # literals: the numbers of codes of one bit

    @property
    def apart(self) -> bool:
        """Whether words are loaded one by one: a thread's are no neighbours, or units have more for themselves."""
        return self.words > 1 or self.kind == "table" or any(item.by_unit for item in self.items)

    @property
    def counts_groups(self) -> bool:
        """Whether the number of a unit's group says which piece of metadata is its, and where in that."""
        return bool(self.groups) and any(not (item.one or item.by_unit) for item in self.items)

    @property
    def has_rest(self) -> bool:
        """Whether some places of a tile hold no code."""
        return not self.full or self.used_codes > 0

    @property
    def counts_units(self) -> bool:
        """Whether metadata is chosen, or left out, by the number of a unit."""
        return self.counts_groups or (bool(self.groups) and not self.full)

    @property
    def assembly_text(self) -> str:
        """Sentences on the numbers in assembly, each after a space."""
        return assembly_text(self.assembly)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the numbers of a unit's codes."""
        return tuple(f"h{n}" for n in range(len(self.codes)))

    @property
    def raw(self) -> tuple[str, ...]:
        """Names of what is loaded for a tile, without the side's."""
        names = [f"words_{word}" for word in range(self.words)]
        for one in self.items:
            count = len(self.groups) if one.by_unit else 1 if one.one else one.pieces
            names += (
                [("one_" if self.scaled else "") + one.short] if one.one else [f"{one.short}_{n}" for n in range(count)]
            )
        return tuple(names)

    @property
    def joined(self) -> str:
        """Source of the numbers [TOKENS, units, ..], the two halves of a unit's codes along each further axis."""

        def of(names: tuple[str, ...]) -> str:
            return names[0] if len(names) == 1 else f"tl.join({of(names[::2])}, {of(names[1::2])})"

        return of(self.outputs)

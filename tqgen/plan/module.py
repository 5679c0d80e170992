"""A module in a plan: what its launchers take and launch, and everything that the templates write."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from tqgen.plan.attention import AttentionPlan
from tqgen.plan.sides import FieldPlan, SidePlan


@dataclass(frozen=True)
class Argument:
    """A tensor that a launcher takes at run time, fp32."""

    name: str
    text: str
    shape: str  # source
    needed_in_model_space: bool
    per_head: bool


@dataclass(frozen=True)
class Constant:
    """A tensor that launchers keep on the device."""

    name: str
    source: str


@dataclass(frozen=True)
class TilePlan:
    """Rows (token-heads) of one program and its warps."""

    rows: int
    warps: int


@dataclass(frozen=True)
class KeptPlan:
    """How programs of many rows multiply tile after tile by matrices whose parts they keep in shared memory."""

    tile: TilePlan  # on GPUs from sm_90 on
    other: TilePlan  # on other machines, where operands of products take registers
    programs: int  # that a multiprocessor holds at once
    few: TilePlan  # of the store, where the parts would be made for one tile alone
    few_unpacked: TilePlan  # the same of the unpack
    chunk: int  # places of a sum that are multiplied at a time where programs of many tiles cannot keep a matrix


@dataclass(frozen=True)
class ModulePlan:
    """One generated module."""

    name: str
    doc: str
    spec_file: str
    version: str
    layout_id: str
    key: SidePlan | None
    value: SidePlan | None
    key_head_dim: int
    value_head_dim: int
    slot_bytes: int
    alignment: int  # that the layout asks of a cache
    room_to_align: int  # bytes that a cache is allocated with beyond its own, to start at a multiple of the alignment
    address_modulus: int  # what tells addresses of one alignment from those of another
    always_fits: bool
    needed_bytes: str  # source: bytes that a block needs
    byte_map: tuple[str, ...]
    facts: tuple[str, ...]
    fields: tuple[FieldPlan, ...]
    absent: tuple[str, ...]
    run_time_arguments: tuple[Argument, ...]
    output_arguments: tuple[Argument, ...]
    constants: tuple[Constant, ...]
    store_signature: str
    unpack_signature: str
    has_spaces: bool
    uses_hardware_fp8: bool
    attention: AttentionPlan | None
    attention_arguments: tuple[Argument, ...]
    store_small: TilePlan
    store_large: TilePlan
    store_large_rows: int  # from this many rows on, `store_large`
    tiles: int  # that a program of the store works on one after the other, from `store_large_rows` rows on
    quads: bool  # rotated sides are held by quads of threads, by programs of one warp if they are not `kept`
    kept: KeptPlan | None  # quads hold rows that are multiplied by a matrix
    unpack: TilePlan
    unpack_model: TilePlan  # to model space with assembly, of rows that quads hold
    unpack_many: TilePlan  # of many rows that are multiplied by a matrix
    interpreted_rows: int  # rows of a program in Triton's interpreter
    rotate_output: TilePlan

    @property
    def unpacks_with_ptx(self) -> bool:
        """Whether unpack has a form with inline assembly."""
        return any(side.quads and side.quads.row_numbers for side in self.sides)

    @property
    def joins_operands(self) -> bool:
        """Whether a product's operand is dealt out to threads as the version of Triton deals out what was joined."""
        found = (side.quads.row_numbers for side in self.sides if side.quads and side.rotation.is_hadamard)
        return any(one is not None and one.operand_width == "JOINED_WIDTH" for one in found)

    @property
    def has_signs(self) -> bool:
        """Whether a table is a Hadamard matrix with signs."""
        return any(side.rotation.signs for side in self.sides)

    @property
    def sides(self) -> tuple[SidePlan, ...]:
        return tuple(side for side in (self.key, self.value) if side)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data."""
        return dataclasses.asdict(self)

    def describe(self) -> str:
        """The plan as indented text, one decision a line."""
        lines: list[str] = []

        def walk(value: Any, name: str, depth: int) -> None:
            pad = "  " * depth
            if isinstance(value, dict):
                lines.append(f"{pad}{name}:")
                for key, item in value.items():
                    walk(item, key, depth + 1)
            elif isinstance(value, (list, tuple)) and any(isinstance(item, (dict, list, tuple)) for item in value):
                lines.append(f"{pad}{name}:")
                for number, item in enumerate(value):
                    walk(item, item.get("title", str(number)) if isinstance(item, dict) else str(number), depth + 1)
            else:
                shown = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
                lines.append(f"{pad}{name}: {shown}")

        for key, item in self.to_json().items():
            walk(item, key, 0)
        return "\n".join(lines)

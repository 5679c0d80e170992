"""How the elements of one vector lie across a tile's lanes.

A Triton tile is a power of two wide, a vector need not be, and reductions over groups as well as packing need
elements that belong together to be a slice of the tile. So an index of the tile (a lane) is split into axes, each
padded to a power of two; the element that a lane holds is the sum of index * stride over the axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tqgen.layout import Side

# tl.dot wants at least 16 along each side.
MIN_LANES = 16


def next_power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


@dataclass(frozen=True)
class Axis:
    """`count` indices in use of `padded` (a power of two); one step is `stride` elements."""

    count: int
    padded: int
    stride: int


@dataclass(frozen=True)
class Lanes:
    """Axes from the outermost to the innermost; together they count the lanes of a tile."""

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        product = 1
        for axis in self.axes:
            product *= axis.padded
        return product

    @property
    def is_plain(self) -> bool:
        """Lane i holds element i."""
        return len(self.axes) == 1 and self.axes[0].stride == 1

    @property
    def is_full(self) -> bool:
        """Every lane holds an element."""
        return all(axis.count == axis.padded for axis in self.axes)

    def _indices(self, lane: str) -> list[str]:
        """The index along each axis, as source."""
        written, below = [], self.size
        for axis in self.axes:
            below //= axis.padded
            index = f"{lane} // {below}" if below > 1 else lane
            outermost = axis is self.axes[0]
            written.append(
                index if outermost else f"({index}) % {axis.padded}" if below > 1 else f"{lane} % {axis.padded}"
            )
        return written

    def index(self, lane: str) -> str:
        """Source of the element that `lane` holds."""
        if self.is_plain:
            return lane
        terms = []
        for axis, index in zip(self.axes, self._indices(lane), strict=True):
            if axis.padded > 1:
                terms.append(f"({index}) * {axis.stride}" if axis.stride != 1 else f"({index})")
        return " + ".join(terms) or f"{lane} * 0"

    def mask(self, lane: str) -> str | None:
        """Source of the condition that `lane` holds an element; None where every lane does."""
        conditions = []
        for axis, index in zip(self.axes, self._indices(lane), strict=True):
            if axis.count != axis.padded:
                conditions.append(f"({index} < {axis.count})")
        return " & ".join(conditions) or None


@dataclass(frozen=True)
class Tile:
    """The lanes of a side's vectors, and the same lanes seen as packing units and as groups.

    `units` counts units of whole bytes (`codes_per_unit` codes each), `groups` counts groups that share a scale.
    """

    elements: Lanes
    units: Lanes
    groups: Lanes
    group_lanes: int  # lanes of one group; all lanes where the whole vector is one group


def tile(head_dim: int, group: int, codes_per_unit: int, halves: bool) -> Tile | str:
    """Lay a vector of `head_dim` elements in groups of `group` over lanes; a string says why it cannot be done."""
    u = codes_per_unit
    power = next_power_of_two
    if head_dim == power(head_dim) >= MIN_LANES and group == power(group):
        elements, units, in_groups = (
            Lanes((Axis(count, count, 1),)) for count in (head_dim, head_dim // u, head_dim // group)
        )
        return Tile(elements, units, in_groups, group)
    if halves:
        part = head_dim // u
        if group != head_dim and part % group:
            return f"groups of {group} straddle the {u} parts of {part} elements that `halves` packs together"
        inner = min(group, part)
        if group == head_dim or inner == power(inner):
            padded = max(power(part), MIN_LANES // u)
            rest: tuple[Axis, ...] = (Axis(part, padded, 1),)
            group_lanes = u * padded if group == head_dim else inner
            groups_in_part = () if group == head_dim else (Axis(part // inner, padded // inner, 1),)
        else:
            padded = power(inner)
            count = part // inner
            rest = (Axis(count, power(count), inner), Axis(inner, padded, 1))
            group_lanes = padded
            groups_in_part = (Axis(count, power(count), 1),)
        groups = (Axis(1, 1, 1),) if group == head_dim else (Axis(u, u, part // inner), *groups_in_part)
        return Tile(Lanes((Axis(u, u, part), *rest)), Lanes(rest), Lanes(groups), group_lanes)
    if group == head_dim or group == power(group):
        padded = max(power(head_dim), MIN_LANES)
        whole, packed = Lanes((Axis(head_dim, padded, 1),)), Lanes((Axis(-(-head_dim // u), padded // u, 1),))
        if group == head_dim:
            return Tile(whole, packed, Lanes((Axis(1, 1, 1),)), padded)
        return Tile(whole, packed, Lanes((Axis(head_dim // group, padded // group, 1),)), group)
    count, padded = head_dim // group, power(group)
    outer = max(power(count), MIN_LANES // padded)
    elements = Lanes((Axis(count, outer, group), Axis(group, padded, 1)))
    units = Lanes((Axis(count, outer, group // u), Axis(group // u, padded // u, 1)))
    return Tile(elements, units, Lanes((Axis(count, outer, 1),)), padded)


def fragment_order(head_dim: int, codes_per_unit: int) -> tuple[Lanes, Lanes]:
    """Lanes, and their packing units, for a tile that comes out of tensor cores.

    A thread holds columns 8m + 2t and 8m + 2t + 1 of the product for its t in 0..3 and every m. In this order of lanes
    these are whole units, and neighbouring ones: packing needs no exchange between threads. Units lie along axes 1 and
    3 of the tile seen as [units of a thread, pairs, 4 threads, 2].
    """
    pairs, per_thread = codes_per_unit // 2, head_dim // (4 * codes_per_unit)
    lanes = Lanes(
        (
            Axis(per_thread, per_thread, codes_per_unit),
            Axis(pairs, pairs, 2),
            Axis(4, 4, head_dim // 4),
            Axis(2, 2, 1),
        )
    )
    return lanes, Lanes((Axis(per_thread, per_thread, 1), Axis(4, 4, per_thread)))


def codes_per_unit(bits: int) -> int:
    """The smallest number of codes that fill whole bytes."""
    return 8 // math.gcd(8, bits)


def parts_of_packing(side: Side) -> int:
    """Equal parts of a vector whose elements take turns in the order of packing; 1: they are packed as they come."""
    return codes_per_unit(side.part("codes").bits) if side.parameters.packing == "halves" else 1


def element_of(side: Side, code: str) -> str:
    """Source of the element that the code `code`, source of its number in the packed row, belongs to."""
    shared = parts_of_packing(side)
    if shared == 1:
        return code
    number = code if code.isidentifier() else f"({code})"
    return f"{number} % {shared} * {side.head_dim // shared} + {number} // {shared}"

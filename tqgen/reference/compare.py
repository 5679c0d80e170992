"""Caches and vectors against what the reference says they may hold: spans, and no other tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tqgen import reference
from tqgen.codecs.base import Span
from tqgen.layout import Field, Layout
from tqgen.numerics import floats, packing
from tqgen.reference import cache_bytes

MAX_MISMATCHES = 20  # that are described; all are counted


@dataclass(frozen=True)
class Mismatch:
    """One number or byte that is not what it may be. `byte` counts from the block's start, `bit` within that byte."""

    what: str  # key.codes, value.scale, .. ; `untouched byte`, `unused bits`, `key vector`, ..
    expected: str
    got: str
    token: int | None = None
    slot: int | None = None
    head: int | None = None
    item: int | None = None
    block: int | None = None
    byte: int | None = None
    bit: int | None = None

    def __str__(self) -> str:
        places = ("token", "slot", "head", "item", "block", "byte", "bit")
        where = ", ".join(f"{name} {getattr(self, name)}" for name in places if getattr(self, name) is not None)
        return f"{self.what}{' at ' * bool(where)}{where}: expected {self.expected}, got {self.got}"


@dataclass
class Comparison:
    """What was compared, and what came of it.

    `allowances` are numbers that differ from the exact result within their span. A comparison of nothing is not `ok`.
    """

    bytes: int = 0  # of fields, and untouched ones
    codes: int = 0
    metadata: int = 0
    elements: int = 0  # of unpacked vectors
    allowances: int = 0
    num_mismatches: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.num_mismatches == 0 and self.bytes + self.elements > 0

    def add(self, count: int, described: list[Mismatch]) -> None:
        """Count mismatches; the first of all are kept."""
        self.num_mismatches += count
        self.mismatches += described[: MAX_MISMATCHES - len(self.mismatches)]

    def __str__(self) -> str:
        compared = [
            f"{count:,} {name}"
            for name, count in (
                ("bytes", self.bytes),
                ("codes", self.codes),
                ("metadata values", self.metadata),
                ("elements", self.elements),
            )
            if count
        ]
        lines = [f"compared {', '.join(compared) or 'nothing'}: {self.num_mismatches:,} mismatches"]
        lines[0] += f", {self.allowances:,} within fp32 rounding of an edge"
        lines += [f"  {mismatch}" for mismatch in self.mismatches]
        if self.num_mismatches > len(self.mismatches):
            lines.append(f"  and {self.num_mismatches - len(self.mismatches):,} more")
        return "\n".join(lines)


def compare_cache(
    layout: Layout,
    before: np.ndarray,
    after: np.ndarray,
    expected: Mapping[str, Mapping[str, Span]],
    slot_mapping: np.ndarray,
    *,
    buffer_before: np.ndarray | None = None,
    buffer_after: np.ndarray | None = None,
) -> Comparison:
    """Whether a store turned the cache `before` into `after` as it should.

    `expected` holds per stored side and part what `reference.encode` gives for the tokens [N] of `slot_mapping`, of
    which negative ones store nothing and no two are equal. Every other byte of the caches must be as before; with
    `buffer_before` and `buffer_after`, the flat uint8 arrays that the caches are views of, every byte around them too.
    """
    slots = np.asarray(slot_mapping, dtype=np.int64)
    tokens = np.flatnonzero(slots >= 0)
    slots = slots[tokens]
    if len(np.unique(slots)) != len(slots):
        raise ValueError("two tokens have the same slot, so that what it holds depends on which comes last")
    result = Comparison()
    for side in layout.sides:
        for part in side.parts:
            place = layout.field(f"{side.name}.{part.name}")
            span = Span(*(end[tokens] for end in expected[side.name][part.name].ends))
            _compare_field(result, layout, after, place, span, tokens, slots)
    _compare_untouched(result, layout, before, after, slots)
    if buffer_before is not None and buffer_after is not None:
        _compare_around(result, layout, before, buffer_before, after, buffer_after)
    return result


def _compare_field(
    result: Comparison,
    layout: Layout,
    cache: np.ndarray,
    place: Field,
    span: Span,
    tokens: np.ndarray,
    slots: np.ndarray,
) -> None:
    side, part = reference.side_of(layout, place.side), place.part
    data = cache_bytes.gather(layout, cache, place, slots)
    result.bytes += data.size
    arrangement = side.parameters.packing if part.dtype is None else "linear"
    bits = packing.unpack(data, part.count, part.bits, arrangement)
    if part.dtype is None:
        result.codes += bits.size
        low, exact, high, got = (side.codec.ordinals(side, codes) for codes in (*span.ends, bits))
        wrong = (got < low) | (got > high)
        differs = got != exact
    else:
        result.metadata += bits.size
        low, exact, high = span.ends
        got = floats.from_bits(bits, part.dtype)
        canonical = bits == floats.FORMATS[part.dtype].nan
        wrong = np.where(np.isnan(exact), ~canonical, ~((got >= low) & (got <= high)))
        differs = ~((got == exact) | (np.isnan(exact) & canonical))
    result.allowances += int(np.count_nonzero(differs & ~wrong))
    places = np.argwhere(wrong)
    position = np.argsort(packing.order(part.count, part.bits, arrangement))
    described = []
    for n, head, item in places[:MAX_MISMATCHES]:
        index = (n, head, item)
        first_bit = int(position[item]) * part.bits
        described.append(
            Mismatch(
                place.name,
                _interval(low[index], high[index]),
                f"{_number(got[index])} ({int(bits[index]):#0{2 + -(-part.bits // 4)}x})",
                **_where(cache, place, tokens[n], slots[n], head),
                item=int(item),
                **_byte(cache, place, slots[n], head, first_bit),
            )
        )
    result.add(len(places), described)
    unused = packing.unused_bits(data, part.count, part.bits)
    places = np.argwhere(unused != 0)
    described = [
        Mismatch(
            f"unused bits of {place.name}",
            "0",
            f"{int(unused[n, head]):#x}",
            **_where(cache, place, tokens[n], slots[n], head),
            **_byte(cache, place, slots[n], head, part.count * part.bits),
        )
        for n, head in places[:MAX_MISMATCHES]
    ]
    result.add(len(places), described)


def _where(cache: np.ndarray, place: Field, token: int, slot: int, head: int) -> dict[str, int]:
    return {"token": int(token), "slot": int(slot), "head": int(head), "block": int(slot) // cache.shape[1]}


def _byte(cache: np.ndarray, place: Field, slot: int, head: int, bit: int) -> dict[str, int]:
    start = place.address(int(slot) % cache.shape[1], int(head), cache.shape[1], cache.shape[2])
    return {"byte": start + bit // 8, "bit": bit % 8}


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, (int, np.integer)) else f"{float(value):.9g}"


def _interval(low: float, high: float) -> str:
    if low == high or low != low:
        return _number(low)
    return f"{_number(low)} to {_number(high)}"


def _compare_untouched(
    result: Comparison, layout: Layout, before: np.ndarray, after: np.ndarray, slots: np.ndarray
) -> None:
    free = ~cache_bytes.owned(layout, after, slots)
    old, new = cache_bytes.block_bytes(layout, before), cache_bytes.block_bytes(layout, after)
    result.bytes += int(np.count_nonzero(free))
    places = np.argwhere((old != new) & free)
    described = [
        Mismatch(
            "untouched byte", f"{old[block, byte]:#04x}", f"{new[block, byte]:#04x}", block=int(block), byte=int(byte)
        )
        for block, byte in places[:MAX_MISMATCHES]
    ]
    result.add(len(places), described)


def _compare_around(
    result: Comparison,
    layout: Layout,
    before: np.ndarray,
    buffer_before: np.ndarray,
    after: np.ndarray,
    buffer_after: np.ndarray,
) -> None:
    """Bytes of the buffers that are in no block: guards before and behind, and the padding between blocks."""
    outside = []
    for cache, buffer in ((before, buffer_before), (after, buffer_after)):
        blocks = cache_bytes.block_bytes(layout, cache)
        start = blocks.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]
        mask = np.ones(buffer.shape, dtype=bool)
        mask[start + np.arange(blocks.shape[0])[:, None] * blocks.strides[0] + np.arange(blocks.shape[1])] = False
        outside.append(mask)
    if not np.array_equal(outside[0], outside[1]):
        raise ValueError("the caches lie at different places of their buffers")
    result.bytes += int(np.count_nonzero(outside[0]))
    places = np.flatnonzero((buffer_before != buffer_after) & outside[0])
    described = [
        Mismatch(
            "byte of the buffer outside of every block",
            f"{buffer_before[byte]:#04x}",
            f"{buffer_after[byte]:#04x}",
            byte=int(byte),
        )
        for byte in places[:MAX_MISMATCHES]
    ]
    result.add(len(places), described)


def compare_unpacked(
    expected: Mapping[str, Span], got: Mapping[str, np.ndarray], slot_mapping: np.ndarray | None = None
) -> Comparison:
    """Whether unpacked vectors [N, H, D] (numbers of the output dtype, per side) are what `reference.unpack` allows.

    NaN must be NaN; a span from -inf to inf about NaN takes anything that is not finite.
    """
    result = Comparison()
    for side, span in expected.items():
        low, exact, high = span.ends
        values = np.asarray(got[side], dtype=np.float64)
        if values.shape != exact.shape:
            raise ValueError(f"{side} is {list(values.shape)}, expected {list(exact.shape)}")
        result.elements += values.size
        any_not_finite = np.isnan(exact) & np.isinf(low) & np.isinf(high)
        right = np.where(np.isnan(exact), np.isnan(values), (values >= low) & (values <= high))
        right = np.where(any_not_finite, ~np.isfinite(values), right)
        differs = ~((values == exact) | np.isnan(exact))
        result.allowances += int(np.count_nonzero(differs & right))
        places = np.argwhere(~right)
        described = [
            Mismatch(
                f"{side} vector",
                "a number that is not finite" if any_not_finite[n, h, i] else _interval(low[n, h, i], high[n, h, i]),
                _number(values[n, h, i]),
                token=int(n),
                slot=None if slot_mapping is None else int(slot_mapping[n]),
                head=int(h),
                item=int(i),
            )
            for n, h, i in places[:MAX_MISMATCHES]
        ]
        result.add(len(places), described)
    return result

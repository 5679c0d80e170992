"""The byte map of a layout as data: every stretch of a block, as a form and as an address in an example launch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from tqgen.codecs.base import SideParameters
from tqgen.layout import Field, Layout, Part, Region, Reserved, Side
from tqgen.layout.form import SIZES, Form

TOKEN_HEADS = SIZES["token"] * SIZES["head"]
BF16_BYTES = 2


@dataclass(frozen=True)
class Launch:
    """An example to evaluate addresses at: `token` is an offset in the block."""

    block_size: int = 16
    num_kv_heads: int = 8
    token: int = 5
    head: int = 1

    def evaluate(self, form: Form) -> int:
        return form.evaluate(self.block_size, self.num_kv_heads)


@dataclass(frozen=True)
class Row:
    """A stretch of the block. `num_bytes` is for one token and head, of padding for the whole block of the example."""

    kind: str  # field | reserved | padding
    name: str
    num_bytes: int
    width: str
    access: int | None  # bytes that every address is a multiple of, at most 16
    where: str  # the byte offset in the block, a form in token, head, block_size and num_kv_heads
    example: int | None


@dataclass(frozen=True)
class RegionMap:
    """A region and its rows, in the order of memory."""

    name: str
    order: tuple[str, ...]
    base: str
    size: str
    first_byte: int
    num_bytes: int
    rows: tuple[Row, ...]
    padding_after: Row | None


@dataclass(frozen=True)
class Sizes:
    """Bytes. The first four are for one token and head; `padding` is an average at the example's block."""

    slot: int
    stored: int
    reserved: int
    padding: float
    block: int
    needed: int  # of the example's block; more than `block` where alignment between regions does not fit
    bf16: int  # the stored sides in bf16, for one token and head

    @property
    def own(self) -> int:
        """Bytes of a slot that are there for what is stored: reserved ones belong to somebody else."""
        return self.slot - self.reserved

    @property
    def share_of_bf16(self) -> float:
        return self.own / self.bf16

    @property
    def compression(self) -> float:
        return self.bf16 / self.own


@dataclass(frozen=True)
class ByteMap:
    """Everything that `tqgen show` says about a layout."""

    name: str
    doc: str
    layout_id: str
    alignment: int
    sides: tuple[tuple[str, int, str], ...]  # name, head_dim, what the codec does
    launch: Launch
    regions: tuple[RegionMap, ...]
    sizes: Sizes

    def to_json(self) -> dict[str, Any]:
        """The map as plain data."""
        data = dataclasses.asdict(self)
        data["sides"] = [{"name": name, "head_dim": dim, "codec": codec} for name, dim, codec in self.sides]
        data["sizes"]["share_of_bf16"] = round(self.sizes.share_of_bf16, 6)
        data["sizes"]["compression"] = round(self.sizes.compression, 6)
        return data


def describe_side(side: Side) -> str:
    """A side's codec and every parameter that is not its default, as a spec writes them."""
    parameters = side.parameters
    fields = type(parameters).model_fields
    shared = SideParameters.model_fields
    written = []
    for name in sorted(fields, key=lambda name: name in shared):  # the codec's own come first
        value = getattr(parameters, name)
        if name in {"codec", "head_dim"} or (value == fields[name].default and name not in {"bits", "format", "dtype"}):
            continue
        dtype = getattr(value, "dtype", None)
        if value is not None:
            written.append(f"{name} {dtype or (str(value).lower() if isinstance(value, bool) else value)}")
    return ", ".join((side.codec.name, *written))


def describe_width(side: Side, part: Part) -> str:
    """`3 bits x 128`, `fp16`, `fp16 x 4`."""
    width = part.dtype or ("1 bit" if part.bits == 1 else f"{part.bits} bits")
    many = "" if part.count == 1 and part.dtype else f" x {part.count}"
    packing = f" {side.parameters.packing}" if part.dtype is None and side.parameters.packing != "linear" else ""
    return f"{width}{many}{packing}"


def where(entry: Field | Reserved, launch: Launch | None = None) -> str:
    """The byte offset as a sum, its terms in the order of their size at `launch`: what is outermost comes first."""
    launch = launch or Launch()
    terms = [(launch.evaluate(Form((term,))), str(Form((term,)))) for term in entry.base.terms]
    for index, stride in (("token", entry.token_stride), ("head", entry.head_stride)):
        form = str(stride)
        text = f"{index}*({form})" if len(stride.terms) > 1 else index if form == "1" else f"{index}*{form}"
        terms.append((launch.evaluate(stride), text))
    return " + ".join(text for _, text in sorted(terms, key=lambda term: -term[0]))


def _row(layout: Layout, entry: Field | Reserved, launch: Launch) -> Row:
    example = sum(
        launch.evaluate(form) * times
        for form, times in ((entry.base, 1), (entry.token_stride, launch.token), (entry.head_stride, launch.head))
    )
    if isinstance(entry, Reserved):
        return Row("reserved", "reserved", entry.num_bytes, "", None, where(entry, launch), example)
    side = layout.key if entry.side == "key" else layout.value
    width = describe_width(side, entry.part)
    return Row("field", entry.name, entry.part.num_bytes, width, entry.alignment, where(entry, launch), example)


def entry_bytes(entry: Field | Reserved) -> int:
    """Bytes of an entry for one token and head."""
    return entry.part.num_bytes if isinstance(entry, Field) else entry.num_bytes


def _padding(start: Form, end: Form, launch: Launch, name: str, where: str) -> Row | None:
    """Padding of `end - start` bytes, or None where the example launch has none."""
    extent = launch.evaluate(end) - launch.evaluate(start)
    return Row("padding", name, extent, "", None, where, None) if extent > 0 else None


def _region(layout: Layout, region: Region, after: Form, launch: Launch) -> RegionMap:
    used = TOKEN_HEADS * Form.constant(sum(map(entry_bytes, region.entries)))
    inside = _padding(used, region.size, launch, "padding", "between the fields")
    rows = tuple(_row(layout, entry, launch) for entry in region.entries)
    end = region.base + region.size
    return RegionMap(
        name=region.name,
        order=region.order,
        base=str(region.base),
        size=str(region.size),
        first_byte=launch.evaluate(region.base),
        num_bytes=launch.evaluate(region.size),
        rows=(*rows, inside) if inside else rows,
        padding_after=_padding(end, after, launch, "padding", f"from {end}"),
    )


def byte_map(layout: Layout, launch: Launch | None = None) -> ByteMap:
    """The byte map of `layout`, with addresses at `launch`."""
    launch = launch or Launch()
    block = TOKEN_HEADS * Form.constant(layout.slot_bytes)
    afters = (*(region.base for region in layout.regions[1:]), block)
    entries = [entry for region in layout.regions for entry in region.entries]
    stored = sum(entry_bytes(entry) for entry in entries if isinstance(entry, Field))
    reserved = sum(entry_bytes(entry) for entry in entries if isinstance(entry, Reserved))
    return ByteMap(
        name=layout.name,
        doc=layout.doc,
        layout_id=layout.layout_id,
        alignment=layout.alignment,
        sides=tuple((side.name, side.head_dim, describe_side(side)) for side in (layout.key, layout.value)),
        launch=launch,
        regions=tuple(
            _region(layout, region, after, launch) for region, after in zip(layout.regions, afters, strict=True)
        ),
        sizes=Sizes(
            slot=layout.slot_bytes,
            stored=stored,
            reserved=reserved,
            padding=layout.slot_bytes - stored - reserved,
            block=launch.evaluate(block),
            needed=launch.evaluate(layout.end),
            bf16=BF16_BYTES * sum(side.head_dim for side in layout.sides),
        ),
    )

"""A block to scale: each region as rows of its outermost axis, the bytes of one token and head picked out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tqgen.layout import Field, Region, Reserved
from tqgen.layout.byte_map import ByteMap, Launch, RegionMap, entry_bytes
from tqgen.picture.colours import FAINT, INK, PADDING, PAPER, fill_of, tint
from tqgen.picture.svg import element, fitting, rect, text, width_of

GUTTER = 78  # for the names of rows
MOST_ROWS = 32
WHOLE = 24  # height of the bar of the whole block
REGIONS = ("#d5dce3", "#e9edf1")
SMALLEST_GAP = 3.0  # units of the drawing: narrower cells are drawn as one


@dataclass(frozen=True)
class Cell:
    """The bytes of one field of one token and head, from the start of its row."""

    entry: Field | Reserved
    start: int
    end: int


@dataclass(frozen=True)
class Rows:
    """The rows of a region that look the same."""

    names: tuple[str, ...]
    first_byte: int
    stride: int
    cells: tuple[Cell, ...]
    headings: tuple[tuple[int, str], ...]  # over stretches of a row: where they start, and their names


def _address(entry: Field | Reserved, index: Mapping[str, int], launch: Launch) -> int:
    forms = (entry.base, 1), (entry.token_stride, index["token"]), (entry.head_stride, index["head"])
    return sum(launch.evaluate(form) * times for form, times in forms)


def _size(axis: str, launch: Launch) -> int:
    return launch.block_size if axis == "token" else launch.num_kv_heads


def _name(entry: Field | Reserved) -> str:
    return entry.name if isinstance(entry, Field) else "reserved"


def rows_of(region: Region, launch: Launch) -> Iterator[Rows]:
    """The region row by row, in the order of memory; rows that only differ in their index come together."""
    outer, *inner = region.order
    sizes = {axis: _size(axis, launch) for axis in ("token", "head")}
    if outer == "field":
        for entry in region.entries:
            cells = _cells((entry,), sizes, launch)
            start, end = min(cell.start for cell in cells), max(cell.end for cell in cells)
            moved = tuple(Cell(cell.entry, cell.start - start, cell.end - start) for cell in cells)
            stride = launch.evaluate(entry.token_stride if inner[0] == "token" else entry.head_stride)
            headings = tuple((index * stride, f"{inner[0]} {index}") for index in range(sizes[inner[0]]))
            yield Rows((_name(entry),), start, end - start, moved, headings)
        return
    first = region.entries[0]
    stride = launch.evaluate(first.token_stride if outer == "token" else first.head_stride)
    start = launch.evaluate(region.base)
    cells = _cells(region.entries, {**sizes, outer: 1}, launch)
    moved = tuple(Cell(cell.entry, cell.start - start, cell.end - start) for cell in cells)
    names = tuple(f"{outer} {index}" for index in range(sizes[outer]))
    if inner[0] == "field":
        headings = tuple((launch.evaluate(entry.base) - start, _name(entry)) for entry in region.entries)
    else:
        step = launch.evaluate(first.token_stride if inner[0] == "token" else first.head_stride)
        headings = tuple((index * step, f"{inner[0]} {index}") for index in range(sizes[inner[0]]))
    yield Rows(names, start, stride, moved, headings)


def _cells(entries: tuple[Field | Reserved, ...], sizes: Mapping[str, int], launch: Launch) -> tuple[Cell, ...]:
    found = []
    for entry in entries:
        for token in range(sizes["token"]):
            for head in range(sizes["head"]):
                start = _address(entry, {"token": token, "head": head}, launch)
                found.append(Cell(entry, start, start + entry_bytes(entry)))
    return tuple(sorted(found, key=lambda cell: cell.start))


def draw_whole(mapped: ByteMap, x: float, y: float, width: float) -> tuple[str, float]:
    """The regions of the block in one bar, and the height that it takes."""
    scale = width / max(mapped.sizes.block, mapped.sizes.needed)
    drawn = []
    for index, region in enumerate(mapped.regions):
        left, wide = x + region.first_byte * scale, region.num_bytes * scale
        drawn.append(rect(left, y, wide, WHOLE, fill=REGIONS[index % len(REGIONS)], stroke=PAPER))
        if width_of(region.name) + 8 <= wide:
            drawn.append(text(left + wide / 2, y + WHOLE / 2 + 4, region.name, fill=INK, text_anchor="middle"))
        if region.padding_after:
            after = region.padding_after.num_bytes * scale
            drawn.append(rect(left + wide, y, after, WHOLE, fill=PADDING))
    drawn.append(rect(x, y, mapped.sizes.block * scale, WHOLE, fill="none", stroke=INK))
    return "".join(drawn), WHOLE


def draw_region(
    region: Region, mapped: RegionMap, launch: Launch, order: dict[str, int], x: float, y: float, width: float
) -> tuple[str, float]:
    """A heading, the rows over the whole width, and the height that they take."""
    scale = (width - GUTTER) / max(rows.stride for rows in rows_of(region, launch))
    last = mapped.first_byte + mapped.num_bytes - 1
    where = f"bytes {mapped.first_byte:,} to {last:,}"
    if mapped.base != "0":
        where += f", from {mapped.base}"
    drawn = [text(x, y + 10, region.name, size=12, font_weight="bold", fill=INK)]
    about = f"[{', '.join(region.order)}]  {where}"
    drawn.append(text(x + GUTTER, y + 10, about, size=fitting(about, 11, width - GUTTER), fill=FAINT))
    drawn.append(_swatches(region, order, x + GUTTER, y + 26))
    at = y + 34
    for rows in rows_of(region, launch):
        piece, height = _rows(rows, launch, order, x, at, scale)
        drawn.append(piece)
        at += height
    if mapped.padding_after:
        words = f"then {mapped.padding_after.num_bytes:,} bytes of padding"
        drawn.append(text(x + GUTTER, at + 10, words, fill=FAINT))
        at += 16
    return "".join(drawn), at - y


def _swatches(region: Region, order: dict[str, int], x: float, y: float) -> str:
    """The colours of a region's fields, with their names."""
    drawn = []
    for entry in region.entries:
        drawn.append(rect(x, y - 8, 10, 9, fill=tint(fill_of(entry, order))))
        drawn.append(text(x + 14, y, _name(entry), size=10, fill=INK))
        x += 14 + width_of(_name(entry), 10) + 16
    return "".join(drawn)


def _rows(rows: Rows, launch: Launch, order: dict[str, int], x: float, y: float, scale: float) -> tuple[str, float]:
    count = min(len(rows.names), MOST_ROWS)
    height = 22.0 if len(rows.names) == 1 else max(7.0, min(16.0, 220 / count))
    left = x + GUTTER
    drawn = list(_headings(rows, left, y + 10, scale))
    top = y + (14 if drawn else 2)
    identity = f"row-{rows.first_byte}"
    shapes = [
        rect(start * scale, 0, (end - start) * scale, height - 1, fill=tint(fill))
        for start, end, fill in (*_merged(rows, order, scale), *_unused(rows))
    ]
    drawn.append(element("defs", element("g", *shapes, id=identity)))
    label_every = 1 if height >= 11 else 4
    for index in range(count):
        drawn.append(element("use", href=f"#{identity}", x=left, y=top + index * height))
        if index % label_every == 0:
            drawn.append(
                text(
                    left - 8,
                    top + index * height + height / 2 + 3,
                    rows.names[index],
                    size=10,
                    fill=FAINT,
                    text_anchor="end",
                )
            )
    drawn += _picked(rows, launch, order, left, top, scale, height, count)
    taken = top - y + count * height
    if count < len(rows.names):
        drawn.append(text(left, top + count * height + 11, f"and {len(rows.names) - count} rows alike", fill=FAINT))
        taken += 16
    return "".join(drawn), taken + 4


def _headings(rows: Rows, left: float, y: float, scale: float) -> Iterator[str]:
    """Names over stretches of a row; where those are too narrow, the numbers of an axis, or nothing."""
    starts = [start for start, _ in rows.headings]
    widths = [(end - start) * scale for start, end in zip(starts, [*starts[1:], rows.stride], strict=True)]
    words = [name for _, name in rows.headings]
    if not _fit(words, widths):
        axis, _, first = words[0].partition(" ")
        words = [word.rpartition(" ")[2] for word in words]
        if not first or not _fit(words, widths):
            return
        yield text(left - 8, y, axis, size=10, fill=FAINT, text_anchor="end")
    for start, word in zip(starts, words, strict=True):
        yield text(left + start * scale, y, word, size=10, fill=FAINT)


def _fit(words: list[str], widths: list[float]) -> bool:
    return all(width_of(word, 10) + 3 <= width for word, width in zip(words, widths, strict=True))


def _merged(rows: Rows, order: dict[str, int], scale: float) -> Iterator[tuple[float, float, str]]:
    """Stretches of one colour: cells that touch are one where a gap between them would not be seen."""
    pending: tuple[float, float, str] | None = None
    for cell in rows.cells:
        fill = fill_of(cell.entry, order)
        narrow = (cell.end - cell.start) * scale < SMALLEST_GAP
        if pending and narrow and pending[1] == cell.start and pending[2] == fill:
            pending = (pending[0], cell.end, fill)
            continue
        if pending:
            yield pending
        gap = 0 if narrow else min(0.8 / scale, (cell.end - cell.start) / 4)
        pending = (cell.start, cell.end if narrow else cell.end - gap, fill)
    if pending:
        yield pending


def _unused(rows: Rows) -> Iterator[tuple[float, float, str]]:
    """What no cell takes."""
    at = 0
    for cell in rows.cells:
        if cell.start > at:
            yield at, cell.start, PADDING
        at = max(at, cell.end)
    if at < rows.stride:
        yield at, rows.stride, PADDING


def _picked(
    rows: Rows,
    launch: Launch,
    order: dict[str, int],
    left: float,
    top: float,
    scale: float,
    height: float,
    count: int,
) -> Iterator[str]:
    """The bytes of the launch's token and head."""
    index = {"token": launch.token, "head": launch.head}
    for entry in dict.fromkeys(cell.entry for cell in rows.cells):
        at = _address(entry, index, launch) - rows.first_byte
        row, start = divmod(at, rows.stride)
        if row >= count or not isinstance(entry, Field):
            continue
        width = entry_bytes(entry) * scale
        yield rect(
            left + start * scale,
            top + row * height - 0.5,
            max(width, 1.2),
            height,
            fill=fill_of(entry, order),
            stroke=INK,
            stroke_width=0.8 if width > 3 else 0.4,
        )


def legend(launch: Launch, right: float, y: float) -> str:
    """What the outlined cells are; `right` is where it ends."""
    words = f"token {launch.token} of head {launch.head}"
    left = right - width_of(words) - 18
    return rect(left, y - 9, 12, 10, fill=PAPER, stroke=INK) + text(right, y, words, fill=FAINT, text_anchor="end")

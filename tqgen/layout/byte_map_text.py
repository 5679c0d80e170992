"""The byte map as text: a table where there is room, otherwise a paragraph for each field."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from tqgen.layout.byte_map import ByteMap, Launch, RegionMap, Row

LEGEND = "bs = block_size, H = num_kv_heads"
HEADINGS = ("field", "bytes", "content", "aligned", "offset in the block")
GAP = "  "


def shorten(form: str) -> str:
    """A form with the names of the byte map's legend."""
    return form.replace("block_size", "bs").replace("num_kv_heads", "H")


def columns(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """Rows of cells as aligned lines; columns in `right` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        GAP.join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _cells(row: Row) -> tuple[str, ...]:
    aligned = "" if row.access is None else str(row.access)
    example = "" if row.example is None else str(row.example)
    return (f"  {row.name}", str(row.num_bytes), _content(row), aligned, shorten(row.where), example)


def _content(row: Row) -> str:
    return "in the whole block" if row.kind == "padding" else row.width


def _region_line(region: RegionMap) -> str:
    order = ", ".join(region.order)
    last = region.first_byte + region.num_bytes - 1
    extent = f"bytes {region.first_byte}..{last}" if region.num_bytes else "no bytes"
    return f"{region.name}  [{order}]  from {shorten(region.base)}, {shorten(region.size)} bytes ({extent})"


def _region_rows(region: RegionMap) -> tuple[Row, ...]:
    return (*region.rows, region.padding_after) if region.padding_after else region.rows


def _table(byte_map: ByteMap, example: str) -> list[str]:
    grid: list[tuple[str, ...]] = [(*HEADINGS, example)]
    grid += [_cells(row) for region in byte_map.regions for row in _region_rows(region)]
    lines = iter(columns(grid, right=frozenset({1, 3, 5})))
    result = [next(lines)]
    for region in byte_map.regions:
        result.append(_region_line(region))
        result += [next(lines) for _ in _region_rows(region)]
    return result


def _paragraphs(byte_map: ByteMap, example: str, width: int) -> list[str]:
    result = []
    for region in byte_map.regions:
        result += _wrapped(_region_line(region), width)
        for row in _region_rows(region):
            aligned = "" if row.access is None else f", {row.access}-byte aligned"
            content = f", {_content(row)}" if _content(row) else ""
            size = f"{row.num_bytes} {'byte' if row.num_bytes == 1 else 'bytes'}"
            result += _wrapped(f"  {row.name}: {size}{content}{aligned}", width)
            result += _wrapped(f"    {'at ' if row.example is not None else ''}{shorten(row.where)}", width)
            if row.example is not None:
                result += _wrapped(f"    {example}: {row.example}", width)
    return result


def _wrapped(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(line, max(width, 20), subsequent_indent=indent, break_on_hyphens=False) or [""]


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _side(head_dim: int, codec: str) -> str:
    return "not stored" if codec == "none" else f"head_dim {head_dim}: {codec}"


def _heads(launch: Launch) -> str:
    return f"{launch.num_kv_heads} {'head' if launch.num_kv_heads == 1 else 'heads'}"


def _sizes(byte_map: ByteMap) -> list[str]:
    sizes, launch = byte_map.sizes, byte_map.launch
    shares = [f"{sizes.stored} stored"]
    if sizes.reserved:
        shares.append(f"{sizes.reserved} reserved")
    if sizes.padding:
        shares.append(f"{_number(sizes.padding)} padding")
    taken = f"the {sizes.own} bytes that are not reserved are" if sizes.reserved else "this layout takes"
    lines = [
        f"slot   {sizes.slot} bytes for one token and head: {', '.join(shares)}",
        f"block  {sizes.block} bytes at block size {launch.block_size} and {_heads(launch)}",
        f"bf16   {sizes.bf16} bytes for one token and head: {taken} {100 * sizes.share_of_bf16:.1f}%,"
        f" compression {sizes.compression:.2f}x",
    ]
    if sizes.needed > sizes.block:
        lines.append(
            f"does not fit at this block size and head count: the regions need {sizes.needed} bytes,"
            f" {sizes.needed - sizes.block} more than the block has"
        )
    return lines


def _legend(byte_map: ByteMap, last_column: str, width: int | None) -> list[str]:
    """What the names in the offsets mean, and where the addresses are those of."""
    launch = byte_map.launch
    text = f"{LEGEND}; {last_column} at block size {launch.block_size} and {_heads(launch)}"
    for multiple in sorted({int(found) for form in _forms(byte_map) for found in re.findall(r"up(\d+)\(", form)}):
        text = f"up{multiple}(x) = x rounded up to a multiple of {multiple}, {text}"
    return [text] if width is None else _wrapped(text, width)


def _forms(byte_map: ByteMap) -> Iterator[str]:
    for region in byte_map.regions:
        yield from (region.base, region.size)
        yield from (row.where for row in _region_rows(region))


def table(byte_map: ByteMap, width: int | None = None) -> list[str]:
    """The rows of the byte map and their legend as lines of at most `width` columns, or of any length without one."""
    example = f"token {byte_map.launch.token}, head {byte_map.launch.head}"
    lines = _table(byte_map, example)
    if width is None or max(map(len, lines)) <= width:
        return [*lines, "", *_legend(byte_map, "the last column is an address", width)]
    return [*_paragraphs(byte_map, example, width), "", *_legend(byte_map, "addresses", width)]


def render(byte_map: ByteMap, width: int | None = None) -> str:
    """The byte map as text; never wider than `width` columns, or as wide as it needs where there is no width."""
    head = [f"{byte_map.name}  {byte_map.doc}".rstrip(), f"layout {byte_map.layout_id}"]
    head += [f"{name.ljust(6)} {_side(dim, codec)}" for name, dim, codec in byte_map.sides]
    lines = [*head, "", *table(byte_map, width), "", *_sizes(byte_map)]
    if width is not None:
        lines = [part for line in lines for part in (_wrapped(line, width) if len(line) > width else [line])]
    return "\n".join(lines) + "\n"

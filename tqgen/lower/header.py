"""The comments at the head of a module: its byte map and its counts."""

from __future__ import annotations

from tqgen.layout.byte_map import byte_map
from tqgen.layout import Layout


def comment_lines(layout: Layout) -> list[str]:
    """The byte map as lines of a comment."""
    mapped = byte_map(layout)
    launch = mapped.launch
    lines = [
        f"Byte map of a block: block_size * num_kv_heads * {layout.slot_bytes} bytes. Offsets are from the block's start; the examples are",
        f"token {launch.token} of head {launch.head} in a block of {launch.block_size} tokens and {launch.num_kv_heads} heads.",
        "",
    ]
    table = [("field", "bytes", "width", "offset", "example")]
    for region in mapped.regions:
        table.append((f"region {region.name}: [{', '.join(region.order)}] from {region.base}", "", "", "", ""))
        for row in region.rows:
            example = "" if row.example is None else str(row.example)
            table.append((f"  {row.name}", str(row.num_bytes), row.width, row.where, example))
    return [*lines, *_columns(table)]


def _columns(table: list[tuple[str, ...]]) -> list[str]:
    rows = [row for row in table if row[1]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table[0]))]
    written = []
    for row in table:
        if not row[1]:
            written.append(row[0])
        else:
            written.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    return written


def facts(layout: Layout) -> list[str]:
    """Sizes in words."""
    sizes = byte_map(layout).sizes
    return [
        f"{sizes.slot} bytes for one token and head, {sizes.share_of_bf16:.1%} of bf16 ({sizes.bf16} bytes).",
    ]

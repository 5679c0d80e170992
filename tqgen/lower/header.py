"""The text at the head of a module: what it is, its sizes, and its byte map."""

from __future__ import annotations

import textwrap

from tqgen.layout import Layout
from tqgen.layout.byte_map import byte_map
from tqgen.layout.byte_map_text import table

WIDTH = 120  # columns of the module
COMMENT = "# "


def comment_lines(layout: Layout) -> list[str]:
    """The byte map as lines of a comment, without the comment's sign."""
    mapped = byte_map(layout)
    title = f"Byte map of a block of block_size * num_kv_heads * {layout.slot_bytes} bytes; offsets are from its start."
    return [title, "", *table(mapped, WIDTH - len(COMMENT))]


def summary(layout: Layout) -> str:
    """The spec's `doc` as it follows `\"""<name>: ` in a docstring: wrapped, and without a way out of the string."""
    lead = f'"""{layout.name}: '
    doc = " ".join(layout.doc.split()) or "a KV-cache layout."
    lines = textwrap.wrap(lead + docstring_text(doc), WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).removeprefix(lead)


def docstring_text(text: str) -> str:
    """Text as it is written between triple quotes."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def facts(layout: Layout) -> list[str]:
    """Sizes in words."""
    sizes = byte_map(layout).sizes
    taken = f"{sizes.slot} bytes for one token and head"
    if sizes.reserved:
        taken += f", {sizes.reserved} of them reserved and the others"
    return [f"{taken}{'' if sizes.reserved else ','} {sizes.share_of_bf16:.1%} of bf16 ({sizes.bf16} bytes)."]

"""A layout as a picture: what one token of one head takes, a block to scale, and how codes are packed.

SVG of the width of a document, without scripts, fonts or anything else from outside.
"""

from __future__ import annotations

from html import escape

from tqgen import seal
from tqgen.layout import Field, Layout, Part, Reserved, Side
from tqgen.layout.byte_map import ByteMap, Launch, byte_map, describe_width, entry_bytes
from tqgen.picture import block, packed, slot
from tqgen.picture.colours import FAINT, INK, LINE, PAPER, PATTERNS, fill_of
from tqgen.picture.svg import MONO, element, fitting, number, rect, text

WIDTH = 960.0
MARGIN = 24.0
INNER = WIDTH - 2 * MARGIN


def draw(layout: Layout, launch: Launch | None = None) -> str:
    """The picture's text, with a digest of itself; the block is that of `launch`."""
    launch = launch or Launch()
    mapped = byte_map(layout, launch)
    order = _order(layout)
    drawn, y = [_title(mapped)], MARGIN + 92
    for title, panel in (
        (f"One token of one head: {layout.slot_bytes} bytes", _slot),
        (_block_title(mapped), _block),
        ("", _packing),
    ):
        piece, height = panel(layout, mapped, order, y + (26 if title else 0))
        if piece:
            drawn += [_heading(title, y + 12)] if title else []
            drawn.append(piece)
            y += height + (26 if title else 0) + 22
    return seal.seal(_document(layout, mapped, "".join(drawn), y))


def _document(layout: Layout, mapped: ByteMap, drawn: str, height: float) -> str:
    about = f"Byte map of {layout.name}: {layout.doc}".rstrip(": ")
    size = f"{number(WIDTH)} {number(height)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{number(WIDTH)}"'
        f' height="{number(height)}" role="img" font-family="{MONO}">\n'
        f"<!-- text: {seal.UNSEALED} -->\n"
        f"<title>{escape(layout.name)}</title><desc>{escape(' '.join(about.split()))}</desc>\n"
        f"<defs>{PATTERNS}</defs>\n"
        f"{rect(0.5, 0.5, WIDTH - 1, height - 1, rx=6, fill=PAPER, stroke=LINE)}\n"
        f"{drawn.replace('<g', chr(10) + '<g')}\n</svg>\n"
    )


def _order(layout: Layout) -> dict[str, int]:
    """The place of each field among those of its side, codes first."""
    return {f"{side.name}.{part.name}": index for side in layout.sides for index, part in enumerate(side.parts)}


def _title(mapped: ByteMap) -> str:
    sizes = mapped.sizes
    share = min(1.0, sizes.share_of_bf16)
    words = f"{100 * sizes.share_of_bf16:.1f}% of the {sizes.bf16} bytes of bf16"
    sides = [f"{name}: {codec}" for name, _, codec in mapped.sides if codec != "none"]
    top = MARGIN + 14
    return "".join(
        (
            text(MARGIN, top, mapped.name, size=fitting(mapped.name, 20, 0.75 * INNER), font_weight="bold", fill=INK),
            text(WIDTH - MARGIN, top, f"layout {mapped.layout_id}", fill=FAINT, text_anchor="end"),
            *(
                text(MARGIN, top + 20 + 15 * line, side, size=fitting(side, 11, INNER), fill=FAINT)
                for line, side in enumerate(sides)
            ),
            rect(MARGIN, top + 46, INNER, 5, fill="#e6e9ec", rx=2.5),
            rect(MARGIN, top + 46, INNER * share, 5, fill=FAINT, rx=2.5),
            text(MARGIN, top + 63, words, size=10, fill=FAINT),
        )
    )


def _heading(words: str, y: float) -> str:
    return element("text", escape(words), x=MARGIN, y=y, font_size=14, font_weight="bold", fill=INK)


def _slot(layout: Layout, mapped: ByteMap, order: dict[str, int], y: float) -> tuple[str, float]:
    pieces = []
    for region in layout.regions:
        for entry in region.entries:
            pieces.append(_piece(layout, entry, order))
    if mapped.sizes.padding > 0:
        pieces.append(slot.padding(mapped.sizes.padding))
    return slot.draw(pieces, MARGIN, y, INNER)


def _piece(layout: Layout, entry: Field | Reserved, order: dict[str, int]) -> slot.Piece:
    size = entry_bytes(entry)
    about = f"{size} {'byte' if size == 1 else 'bytes'}"
    if isinstance(entry, Reserved):
        return slot.Piece("reserved", about, size, fill_of(entry, order))
    side = layout.key if entry.side == "key" else layout.value
    return slot.Piece(entry.name, f"{about}: {describe_width(side, entry.part)}", size, fill_of(entry, order))


def _block_title(mapped: ByteMap) -> str:
    launch = mapped.launch
    return f"A block of {launch.block_size} tokens and {launch.num_kv_heads} heads: {mapped.sizes.block:,} bytes"


def _block(layout: Layout, mapped: ByteMap, order: dict[str, int], y: float) -> tuple[str, float]:
    launch = mapped.launch
    drawn, at = [block.legend(launch, WIDTH - MARGIN, y - 14)], y
    if len(mapped.regions) > 1 or mapped.regions[0].padding_after:
        whole, height = block.draw_whole(mapped, MARGIN, y, INNER)
        drawn.append(whole)
        at += height + 12
    for region, shown in zip(layout.regions, mapped.regions, strict=True):
        piece, height = block.draw_region(region, shown, launch, order, MARGIN, at, INNER)
        drawn.append(piece)
        at += height + 8
    return "".join(drawn), at - y


def _packing(layout: Layout, mapped: ByteMap, order: dict[str, int], y: float) -> tuple[str, float]:
    drawn, at = [], y
    alike: dict[tuple[Part, str], list[Side]] = {}
    for side in layout.sides:
        if packed.is_packed(side.part("codes")):
            alike.setdefault((side.part("codes"), side.parameters.packing), []).append(side)
    for (part, packing), sides in alike.items():
        names = " and ".join(f"{side.name}.codes" for side in sides)
        drawn.append(_heading(f"Which element each bit of {names} belongs to", at + 12))
        drawn.append(text(WIDTH - MARGIN, at + 12, f"packing {packing}, bit 0 left", fill=FAINT, text_anchor="end"))
        piece, height = packed.draw(part, packing, sides[0].name, MARGIN, at + 22, INNER)
        drawn.append(piece)
        at += height + 36
    return "".join(drawn), at - y - 14 if drawn else 0

"""Packed codes bit by bit: the first bytes of a vector, with the element that each bit belongs to."""

from __future__ import annotations

from itertools import groupby

from tqgen.layout import Part
from tqgen.numerics import packing
from tqgen.picture.colours import FAINT, INK, LINE, SHADES, is_dark
from tqgen.picture.svg import rect, text, width_of

WIDEST_BIT = 22.0
HEIGHT = 24
GAP = 8  # between bytes


def is_packed(part: Part) -> bool:
    """Whether bytes of the part hold pieces of several codes."""
    return part.dtype is None and part.bits not in packing.CODE_DTYPES


def draw(part: Part, order: str, side: str, x: float, y: float, width: float) -> tuple[str, float]:
    """The smallest number of whole bytes that codes fill, bit 0 on the left, and the height that they take."""
    codes = min(packing.unit(part.bits), part.count)
    num_bytes = -(-codes * part.bits // 8)
    elements = [int(element) for element in packing.order(part.count, part.bits, order)[:codes]]
    bit = min(WIDEST_BIT, (width - GAP * (num_bytes - 1)) / (8 * num_bytes))
    shades = SHADES[side][0], SHADES[side][2]
    drawn = []
    for byte in range(num_bytes):
        left = x + byte * (8 * bit + GAP)
        drawn.append(text(left, y + 10, f"byte {byte}", size=10, fill=FAINT))
        owners = [position // part.bits for position in range(8 * byte, 8 * byte + 8)]
        at = left
        for owner, run in groupby(owners):
            wide = len(list(run)) * bit
            unused = owner >= codes
            fill = "none" if unused else shades[owner % 2]
            drawn.append(rect(at, y + 14, wide, HEIGHT, fill=fill, stroke=LINE if unused else "#ffffff"))
            word = "" if unused else str(elements[owner])
            if word and width_of(word) + 2 <= wide:
                ink = "#ffffff" if is_dark(fill) else INK
                drawn.append(text(at + wide / 2, y + 14 + HEIGHT / 2 + 4, word, fill=ink, text_anchor="middle"))
            at += wide
        for n in range(1, 8):
            drawn.append(rect(left + n * bit - 0.25, y + 14 + HEIGHT - 4, 0.5, 4, fill="#ffffff"))
    return "".join(drawn), 14 + HEIGHT

"""What one token of one head takes, as a bar to scale: every field with its name, bytes and content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tqgen.picture.colours import FAINT, INK, PADDING, PAPER, is_dark
from tqgen.picture.svg import element, path, rect, text, width_of

HEIGHT = 46
CALLOUT = 19  # height of a line of text under the bar


@dataclass(frozen=True)
class Piece:
    """A stretch of the bar. `bytes` may be a fraction, of padding that the tokens of a block share."""

    name: str
    about: str
    bytes: float
    fill: str


@dataclass(frozen=True)
class _Placed:
    piece: Piece
    x: float
    width: float

    @property
    def label(self) -> str:
        return f"{self.piece.name}, {self.piece.about}"

    @property
    def holds_its_label(self) -> bool:
        return max(width_of(self.piece.name, 13), width_of(self.piece.about)) + 12 <= self.width

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def draw(pieces: Sequence[Piece], x: float, y: float, width: float) -> tuple[str, float]:
    """The bar and its labels, and the height that they take."""
    scale = width / sum(piece.bytes for piece in pieces)
    placed = []
    at = x
    for piece in pieces:
        placed.append(_Placed(piece, at, piece.bytes * scale))
        at += piece.bytes * scale
    outside = [one for one in placed if not one.holds_its_label]
    levels = _levels(outside, x + width / 2)
    drawn = [_piece(one, y) for one in placed]
    drawn += [_callout(one, y + HEIGHT, levels[one.piece.name], one.middle > x + width / 2) for one in outside]
    drawn.append(rect(x, y, width, HEIGHT, fill="none", stroke=INK, stroke_width=1))
    return "".join(drawn), HEIGHT + (CALLOUT * (max(levels.values()) + 1) + 4 if levels else 0)


def _levels(outside: Sequence[_Placed], middle: float) -> dict[str, int]:
    """The line of each label under the bar, so that no leader crosses a text.

    Texts run to the left of their leaders in the right half, to the right in the left half.
    """
    right = [one for one in outside if one.middle > middle]
    left = [one for one in reversed(outside) if one.middle <= middle]
    return {one.piece.name: level for half in (right, left) for level, one in enumerate(half)}


def _piece(one: _Placed, y: float) -> str:
    fill = one.piece.fill
    drawn = [element("title", f"{one.label}"), rect(one.x, y, one.width, HEIGHT, fill=fill, stroke=PAPER)]
    if one.holds_its_label:
        ink = PAPER if is_dark(fill) else INK
        if not fill.startswith("#"):  # stripes are no ground for text
            wide = max(width_of(one.piece.name, 13), width_of(one.piece.about)) + 10
            drawn.append(rect(one.middle - wide / 2, y + 6, wide, HEIGHT - 12, fill=PAPER, rx=3))
        drawn.append(text(one.middle, y + 20, one.piece.name, size=13, fill=ink, text_anchor="middle"))
        drawn.append(text(one.middle, y + 36, one.piece.about, fill=ink, text_anchor="middle"))
    return element("g", *drawn)


def _callout(one: _Placed, y: float, level: int, to_the_left: bool) -> str:
    foot = y + CALLOUT * (level + 1) - 6
    x = one.middle - 5 if to_the_left else one.middle + 5
    anchor = "end" if to_the_left else "start"
    line = path([(one.middle, y), (one.middle, foot), (x, foot)], stroke=FAINT)
    return line + text(x + (-2 if to_the_left else 2), foot + 4, one.label, fill=INK, text_anchor=anchor)


def padding(num_bytes: float) -> Piece:
    """The piece of the bytes that nobody uses."""
    shown = f"{num_bytes:.2f}".rstrip("0").rstrip(".")
    return Piece("padding", f"{shown} {'byte' if shown == '1' else 'bytes'}", num_bytes, PADDING)

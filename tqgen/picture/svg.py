"""SVG as text: elements with attributes, escaped, and numbers with two decimals so that pictures are reproducible."""

from __future__ import annotations

from html import escape

MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
CHAR = 0.602  # width of a character of the fixed font, in units of its size

Value = str | float


def number(value: float) -> str:
    """At most two decimals, none where they are zero."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"


def element(name: str, *inside: str, **attributes: Value) -> str:
    """`<name ...>inside</name>`; `_` in the names of attributes stands for `-`, and a trailing one is dropped."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value) if isinstance(value, str) else number(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{''.join(inside)}</{name}>" if inside else f"<{name}{written}/>"


def rect(x: float, y: float, width: float, height: float, **attributes: Value) -> str:
    return element("rect", x=x, y=y, width=width, height=height, **attributes)


def path(points: list[tuple[float, float]], **attributes: Value) -> str:
    """Straight lines through the points."""
    steps = " ".join(f"{'L' if index else 'M'}{number(x)} {number(y)}" for index, (x, y) in enumerate(points))
    return element("path", d=steps, fill="none", **attributes)


def text(x: float, y: float, words: str, *, size: float = 11, **attributes: Value) -> str:
    """Text in the fixed font, its left end at `x` unless `text_anchor` says otherwise."""
    return element("text", escape(words, quote=False), x=x, y=y, font_size=size, **attributes)


def fitting(words: str, size: float, width: float) -> float:
    """The size, or a smaller one in which the words are no wider than `width`."""
    return min(size, width / (CHAR * max(1, len(words))))


def width_of(words: str, size: float = 11) -> float:
    """How wide the fixed font sets the words."""
    return len(words) * CHAR * size

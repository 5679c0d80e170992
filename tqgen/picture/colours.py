"""One colour for each field: a hue for each side, the codes dark, the numbers that belong to them lighter."""

from __future__ import annotations

from tqgen.layout import Field, Reserved

INK = "#1f2328"
FAINT = "#59636e"
LINE = "#d1d9e0"
PAPER = "#ffffff"
SHADES = {  # codes, then the other parts in the order in which a side stores them
    "key": ("#2f6f9f", "#5fa3c7", "#95c6dc", "#c3e0ec"),
    "value": ("#b5651d", "#dd9350", "#efb988", "#f8dcc0"),
}
RESERVED = "url(#reserved)"
PADDING = "url(#padding)"

# stripes: somebody else's bytes, and nobody's
PATTERNS = (
    '<pattern id="reserved" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#e6e9ec"/><rect width="2.5" height="6" fill="#b4bcc4"/></pattern>'
    '<pattern id="padding" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="5" height="5" fill="#ffffff"/><rect width="1" height="5" fill="#c9d0d6"/></pattern>'
)


def fill_of(entry: Field | Reserved, order: dict[str, int]) -> str:
    """The colour of an entry; `order` is the place of each field among those of its side."""
    if isinstance(entry, Reserved):
        return RESERVED
    shades = SHADES[entry.side]
    return shades[min(order[entry.name], len(shades) - 1)]


def tint(fill: str) -> str:
    """The colour as it looks on paper, thinned; stripes stay as they are."""
    if not fill.startswith("#"):
        return fill
    strength = 0.45 if is_dark(fill) else 0.75
    return "#" + "".join(f"{round(255 - strength * (255 - channel)):02x}" for channel in _channels(fill))


def _channels(fill: str) -> tuple[int, ...]:
    return tuple(int(fill[at : at + 2], 16) for at in (1, 3, 5))


def is_dark(fill: str) -> bool:
    """Whether white text is read better on a colour than dark text."""
    if not fill.startswith("#"):
        return False
    red, green, blue = _channels(fill)
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140

"""Changes as text: a heading for each category, a line for each change, two where it is long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from tqgen.difference import Change
from tqgen.layout.byte_map_text import LEGEND, shorten

WIDTH = 100  # columns; a change that is longer takes two lines
ARROW = "->"
OFFSETS = f"offsets are in bytes from the block's start; {LEGEND}"  # of changes that are `located`


def lines(changes: Iterable[Change], indent: str = "") -> Iterator[str]:
    """The lines of `changes`, which are in the order of their categories."""
    for category, group in groupby(changes, key=lambda change: change.category):
        members = list(group)
        width = max(len(change.subject) for change in members)
        yield f"{indent}{category.value}"
        for change in members:
            yield from _lines(change, width, f"{indent}  ")


def _lines(change: Change, width: int, indent: str) -> Iterator[str]:
    lead = f"{indent}{change.subject:<{width}}  "
    old, new = (text if text is not None else "nothing" for text in (change.old, change.new))
    if change.located:
        old, new = shorten(old), shorten(new)
    suffix = "" if change.breaks else "  (compatible)"
    line = f"{lead}{old} {ARROW} {new}{suffix}"
    if len(line) <= WIDTH:
        yield line
    else:
        yield f"{lead}{old}"
        yield f"{ARROW.rjust(len(lead) - 1)} {new}{suffix}"

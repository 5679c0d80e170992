"""docs/layouts/README.md: the shipped layouts, their sizes and their pictures."""

from __future__ import annotations

from collections.abc import Sequence

from tqgen.documents.markdown import page, table
from tqgen.layout import Layout
from tqgen.layout.byte_map import byte_map

INTRODUCTION = """\
# The shipped layouts

Names say `<key>_<value>[_<arrangement>]`: `mse3_v4` is 3-bit Lloyd-Max keys and 4-bit uniform values; `vmse3` are
Lloyd-Max values; `none` is a side that is not stored. The arrangement is struct of arrays where nothing else is said:
codes at the block's start, norms, scales and zero points in strips along the tokens at its end. `aos` is array of
structs, `hm` head-major, `aligned` has every strip of a field at a multiple of 16 bytes.


Sizes are for one token and head. The pictures are what `tqgen show NAME --svg FILE` draws; `tqgen show NAME` prints the
same as text.
"""


def text(layouts: Sequence[Layout]) -> str:
    """The page, with a digest of itself."""
    rows = []
    for layout in layouts:
        sizes = byte_map(layout).sizes
        link = f"[`{layout.name}`](#{layout.name})"
        rows.append((link, str(sizes.slot), f"{sizes.compression:.2f}x", " ".join(layout.doc.split())))
    sections = [INTRODUCTION, table(("layout", "bytes", "against bf16", "what it is"), rows)]
    sections += [_section(layout) for layout in layouts]
    return page("specs/", "\n".join(sections))


def _section(layout: Layout) -> str:
    doc = " ".join(layout.doc.split())
    return f"## {layout.name}\n\n{doc}\n\n![Byte map of {layout.name}]({layout.name}.svg)\n"

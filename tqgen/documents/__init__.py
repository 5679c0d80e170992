"""What is generated for this source tree beside the modules: the schema, the references, and pictures of layouts.

All of it is under `tqgen build --check`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tqgen.layout import Layout
from tqgen.outputs import Output

LAYOUTS = Path("docs/layouts")


def documents(root: Path, layouts: Sequence[Layout]) -> list[Output]:
    """The documents, below `root`; `layouts` are the shipped ones."""
    from tqgen.documents import error_list, layout_gallery, schema_file, spec_reference
    from tqgen.picture import draw

    pictures = [Output(root / LAYOUTS / f"{layout.name}.svg", draw(layout)) for layout in layouts]
    return [
        Output(root / "specs" / schema_file.NAME, schema_file.text()),
        Output(root / "docs" / "spec.md", spec_reference.text()),
        Output(root / "docs" / "errors.md", error_list.text()),
        Output(root / LAYOUTS / "README.md", layout_gallery.text(layouts)),
        *pictures,
    ]


def complete_folders(root: Path) -> tuple[Path, ...]:
    """Folders that hold nothing of tqgen's but `documents`."""
    return (root / LAYOUTS,)

"""`tqgen diff`: what differs between two layouts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tqgen.commands import usage
from tqgen.commands.changes_text import OFFSETS, lines
from tqgen.difference import Change
from tqgen.difference.versions import Version, changes, version_of
from tqgen.layout.byte_map_text import columns


def diff(arguments: Sequence[str], overrides: Mapping[str, str], as_json: bool) -> int:
    """Print how the second of two specs differs from the first; 1 where it does, names and comments apart."""
    from tqgen.compiler import compile_spec

    paths = usage.spec_paths(arguments)
    compiled = usage.each(paths, lambda path: compile_spec(path, dict(overrides) if path is paths[-1] else {}))
    old, new = (version_of(one) for one in compiled)
    found = changes(old, new)
    if as_json:
        print(json.dumps(_data(old, new, found), indent=2, ensure_ascii=False))
    else:
        print("\n".join(_text(old, new, found)))
    return usage.FINDINGS if found else usage.CLEAN


def _interchangeable(old: Version, new: Version) -> bool:
    return old.layout.layout_id == new.layout.layout_id


def _data(old: Version, new: Version, found: Sequence[Change]) -> dict[str, Any]:
    def side(version: Version) -> dict[str, Any]:
        layout = version.layout
        return {"name": layout.name, "layout_id": layout.layout_id, "slot_bytes": layout.slot_bytes}

    return {
        "old": side(old),
        "new": side(new),
        "interchangeable": _interchangeable(old, new),
        "changes": [change.to_json() for change in found],
    }


def _text(old: Version, new: Version, found: Sequence[Change]) -> list[str]:
    heads = [
        (layout.name, f"layout {layout.layout_id}", f"{layout.slot_bytes} bytes for one token and head")
        for layout in (old.layout, new.layout)
    ]
    text = [*columns(heads), "", *lines(found)]
    text += [""] if found else []
    if _interchangeable(old, new):
        text.append("caches of the two are interchangeable")
    else:
        text.append("caches of the two are not interchangeable")
    if any(change.located for change in found):
        text.append(OFFSETS)
    return text

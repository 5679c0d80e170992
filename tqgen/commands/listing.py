"""`tqgen list`: the shipped specs."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Any

from tqgen import manifest
from tqgen.commands import usage
from tqgen.commands.console import width_of
from tqgen.layout.byte_map import ByteMap, byte_map
from tqgen.layout.byte_map_text import columns


def listing(as_json: bool) -> int:
    """Print name, bytes and `doc` of every shipped spec."""
    from tqgen.layout.resolve import load

    paths = usage.spec_paths([entry.name for entry in manifest.shipped()])
    maps = usage.each(paths, lambda path: byte_map(load(path, {})[1]))
    if as_json:
        print(json.dumps([_summary(one) for one in maps], indent=2, ensure_ascii=False))
        return usage.CLEAN
    table = [("name", "head_dim", "bytes", "compression")]
    table += [(one.name, _head_dim(one), str(one.sizes.slot), f"{one.sizes.compression:.2f}x") for one in maps]
    lines = columns(table, right=frozenset({1, 2, 3}))
    print(f"{lines[0]}  doc")
    for line, one in zip(lines[1:], maps, strict=True):
        print("\n".join(_with_doc(line, one.doc, width_of(sys.stdout))))
    return usage.CLEAN


def _head_dim(one: ByteMap) -> str:
    dims = {dim for name, dim, codec in one.sides if codec != "none"}
    return "/".join(str(dim) for dim in sorted(dims))


def _with_doc(line: str, doc: str, width: int | None) -> list[str]:
    if width is None or len(line) + 2 + len(doc) <= width:
        return [f"{line}  {doc}".rstrip()]
    room = width - len(line) - 2
    if room >= 30:
        first, *rest = textwrap.wrap(doc, room)
        return [f"{line}  {first}", *(f"{' ' * len(line)}  {part}" for part in rest)]
    return [line, *textwrap.wrap(doc, max(width, 24), initial_indent="    ", subsequent_indent="    ")]


def _summary(one: ByteMap) -> dict[str, Any]:
    data = one.to_json()
    return {
        "name": one.name,
        "doc": one.doc,
        "layout_id": one.layout_id,
        "sides": data["sides"],
        "slot_bytes": one.sizes.slot,
        "bf16_bytes": one.sizes.bf16,
        "compression": data["sizes"]["compression"],
    }

"""What differs between two layouts: addresses and widths, and what the stored bits stand for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tqgen.codecs.base import SideParameters
from tqgen.difference import Category, Change
from tqgen.layout import Field, Layout, Reserved, Side
from tqgen.layout.byte_map import describe_width, where
from tqgen.layout.identity import side_facts

ELSEWHERE = ("codec", "head_dim", "rotation", "rotation_block", "packing")  # compared as they are resolved


def layout_changes(old: Layout, new: Layout) -> list[Change]:
    """Everything that makes caches of two layouts different, or asks something else of who allocates them."""
    moved = list(_field_changes(old, new))
    widths = {change.subject for change in moved}
    changes = [*_size_changes(old, new), *moved]
    for before, after in ((old.key, new.key), (old.value, new.value)):
        changes += _side_changes(before, after, widths)
    changes += _surroundings(old, new)
    return changes


def _size_changes(old: Layout, new: Layout) -> Iterator[Change]:
    if old.slot_bytes != new.slot_bytes:
        path = ("block", "slot_bytes")
        yield Change(Category.LAYOUT, "slot_bytes", str(old.slot_bytes), str(new.slot_bytes), path)


def _field_changes(old: Layout, new: Layout) -> Iterator[Change]:
    before, after = ({field.name: field for field in layout.fields} for layout in (old, new))
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        side = name.partition(".")[0]
        was, now = _content(old, one), _content(new, other)
        if was != now:
            yield Change(Category.LAYOUT, name, was, now, (side,))
        if one and other and _place(one) != _place(other):
            yield Change(Category.LAYOUT, f"{name} offset", where(one), where(other), ("block",), located=True)


def _content(layout: Layout, field: Field | None) -> str | None:
    if field is None:
        return None
    return describe_width(layout.key if field.side == "key" else layout.value, field.part)


def _place(entry: Field | Reserved) -> tuple[str, str, str]:
    return str(entry.base), str(entry.token_stride), str(entry.head_stride)


def _side_changes(old: Side, new: Side, widths: set[str]) -> Iterator[Change]:
    """`widths` are the names of fields whose dtype is known to differ."""
    side = old.name
    if old.codec.name != new.codec.name:
        yield Change(Category.NUMERICS, f"{side}.codec", old.codec.name, new.codec.name, (side, "codec"))
    if not (old.is_stored and new.is_stored):
        return
    if old.head_dim != new.head_dim:
        path = (side, "head_dim")
        yield Change(Category.LAYOUT, f"{side}.head_dim", str(old.head_dim), str(new.head_dim), path)
    if _rotation(old) != _rotation(new):
        path = (side, "rotation")
        yield Change(Category.NUMERICS, f"{side}.rotation", _rotation(old), _rotation(new), path)
    if old.codec.name == new.codec.name and side_facts(old).get("levels") != side_facts(new).get("levels"):
        was, now = (str(getattr(one.parameters, "codebook", None)) for one in (old, new))
        if was != now:  # of one codebook the levels differ with the width, which is a parameter
            yield Change(Category.NUMERICS, f"{side}.codebook", was, now, (side, "codebook"))
    yield from _parameter_changes(side, _parameters(old), _parameters(new), widths)


def _parameters(side: Side) -> dict[str, Any]:
    """As they are filled in; a group that is the whole vector is called so, since its size goes with the vector's."""
    parameters: dict[str, Any] = side_facts(side)["parameters"]
    if parameters.get("group") == side.head_dim:
        parameters["group"] = "the whole vector"
    return parameters


def _parameter_changes(side: str, old: dict[str, Any], new: dict[str, Any], widths: set[str]) -> Iterator[Change]:
    """Of two codecs, only the parameters that every codec has can be compared."""
    shared = old.keys() & new.keys() if old["codec"] == new["codec"] else SideParameters.model_fields.keys()
    for name in old:
        subject = f"{side}.{name}"
        if name in ELSEWHERE or name not in shared or old[name] == new[name]:
            continue
        before, after = _text(old[name]), _text(new[name])
        if isinstance(old[name] or new[name], dict):  # how a part is stored
            if subject not in widths:
                yield Change(Category.LAYOUT, subject, before, after, (side, name))
        else:
            yield Change(Category.NUMERICS, subject, before, after, (side, name))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("dtype"))
    return str(value).lower() if isinstance(value, bool) else "none" if value is None else str(value)


def _rotation(side: Side) -> str:
    """What is done to a vector; the size of a whole one is told by its head_dim."""
    rotation = side.rotation
    in_blocks = rotation.is_hadamard and rotation.size != side.head_dim
    return f"{rotation.kind} in blocks of {rotation.size}" if in_blocks else rotation.kind


def _surroundings(old: Layout, new: Layout) -> Iterator[Change]:
    """What the layouts ask of an allocator, and what they leave to others."""
    if old.alignment != new.alignment:
        breaks = new.alignment > old.alignment
        yield Change(Category.API, "start of a block", _alignment(old), _alignment(new), ("block",), breaks=breaks)
    was, now = _reserved(old), _reserved(new)
    if was != now:
        yield Change(Category.API, "reserved bytes", was, now, ("block",), located=True)


def _alignment(layout: Layout) -> str:
    return "anywhere" if layout.alignment == 1 else f"at a multiple of {layout.alignment} bytes"


def _reserved(layout: Layout) -> str | None:
    entries = [entry for region in layout.regions for entry in region.entries if isinstance(entry, Reserved)]
    return "; ".join(f"{entry.num_bytes} at {where(entry)}" for entry in entries) or None

"""The axes of the spec language as data: every combination is a spec, and what the language refuses is stated here.

A combination is a row, from axis to value; `-` is the value of an axis that a side's codec does not have. `KEY` and
`VALUE` say that of keys and values, `SHARED` of the whole spec. `refusals` says which diagnostics a side must give; it
is written from the rules of the language and shares nothing with the code that checks them.
"""

from __future__ import annotations

import functools
import json
import math
from typing import Any

from support.covering import Axes, Row

ABSENT = "-"

# codec -> what the side says, and which of the other axes it has
CODECS: dict[str, dict[str, Any]] = {
    "mse": {"codec": "mse"},
    "uniform": {"codec": "uniform"},
    "symmetric": {"codec": "uniform", "symmetric": True},
    "e4m3": {"codec": "fp8", "format": "e4m3"},
    "e5m2": {"codec": "fp8", "format": "e5m2"},
    "scaled_e4m3": {"codec": "fp8", "format": "e4m3"},
    "scaled_e5m2": {"codec": "fp8", "format": "e5m2"},
    "raw_fp16": {"codec": "raw", "dtype": "fp16"},
    "raw_bf16": {"codec": "raw", "dtype": "bf16"},
    "raw_fp32": {"codec": "raw", "dtype": "fp32"},
    "none": {"codec": "none"},
}
GRIDS = ("uniform", "symmetric")
SCALED = (*GRIDS, "scaled_e4m3", "scaled_e5m2")
OWN_AXES: dict[str, tuple[str, ...]] = {
    "bits": ("mse", *GRIDS),
    "codebook": ("mse",),
    "tie": ("mse",),
    "correction": ("mse",),
    "dtype": ("mse", *SCALED),  # of the norm or the scale
    "zero": ("uniform",),
    "rounding": GRIDS,
    "quantize_with": SCALED,
    "floor": SCALED,
    "group": SCALED,
    "packing": ("mse", *GRIDS),
}
SIDE: dict[str, tuple[str, ...]] = {
    "codec": tuple(CODECS),
    "bits": tuple("12345678"),
    "packing": ("linear", "halves"),
    "group": ("whole", "4", "8", "16", "24", "32", "40"),
    # in blocks: of 16 elements, or 4 where 16 do not divide the vector
    "rotation": ("none", "hadamard", "signed_hadamard", "matrix", "blocks", "signed_blocks"),
    "correction": ("none", "store", "load"),
    "dtype": ("fp16", "bf16", "fp32"),
    "zero": ("fp16", "bf16", "fp32"),
    "rounding": ("half_up", "half_even", "half_away"),
    "quantize_with": ("exact", "stored"),
    "non_finite": ("propagate", "saturate"),
    "center": ("no", "yes"),
    "codebook": ("lloyd_max", "vllm"),
    "tie": ("up", "down"),
    "floor": ("1e-8", "0.001"),
}
SHARED: dict[str, tuple[str, ...]] = {
    "head_dim": ("64", "80", "96", "100", "128", "192", "256"),
    "value_dim": ("same", "other"),
    "block": ("aos", "soa", "head_major", "planes", "head_planes", "mixed"),
}
ORDERS = {
    "head_major": ("head", "token", "field"),
    "planes": ("field", "head", "token"),
    "head_planes": ("head", "field", "token"),
}
OTHER_DIM = {dim: "96" if dim == "64" else "64" for dim in SHARED["head_dim"]}


def has(codec: str, axis: str) -> bool:
    """Whether a side of this codec has this axis."""
    if codec == "none":
        return axis == "codec"
    return codec in OWN_AXES.get(axis, tuple(CODECS))


def side_axes(side: str) -> Axes:
    """The axes of one side of a spec, each with the value of being absent where some codec does not have it."""
    axes = {}
    for axis, values in SIDE.items():
        everywhere = all(has(codec, axis) for codec in CODECS)
        axes[f"{side}.{axis}"] = values if everywhere else (*values, ABSENT)
    return axes


def spec_axes() -> Axes:
    """Every axis of a spec; those come first that decide what the others can be, which keeps a search short."""
    axes = {**side_axes("key"), **SHARED, **side_axes("value")}
    first = ("key.codec", "value.codec", "head_dim", "value_dim")
    return {axis: axes[axis] for axis in (*first, *(axis for axis in axes if axis not in first))}


def side_of(row: Row, side: str) -> Row:
    """The part of a row that concerns one side, without its prefix."""
    return {axis.partition(".")[2]: value for axis, value in row.items() if axis.startswith(f"{side}.")}


def head_dim_of(row: Row, side: str) -> int:
    dim = row["head_dim"]
    return int(OTHER_DIM[dim] if side == "value" and row.get("value_dim") == "other" else dim)


def block_of_rotation(head_dim: int) -> int:
    return 16 if head_dim % 16 == 0 else head_dim & -head_dim


def side_spec(one: Row, head_dim: int) -> dict[str, Any]:
    """What a spec says about a side, from its part of a row."""
    codec = one["codec"]
    said: dict[str, Any] = dict(CODECS[codec])
    given = {axis: value for axis, value in one.items() if value != ABSENT and axis != "codec"}
    direct = {"packing", "rounding", "quantize_with", "non_finite", "codebook", "tie"}
    for axis, value in given.items():
        if axis in direct:
            said[axis] = value
    if "bits" in given:
        said["bits"] = int(given["bits"])
    if "correction" in given:
        said["norm_correction"] = given["correction"]
    if "dtype" in given:
        said["norm" if codec == "mse" else "scale"] = {"dtype": given["dtype"]}
    if "zero" in given:
        said["zero"] = {"dtype": given["zero"]}
    if "floor" in given:
        said["scale_floor"] = float(given["floor"])
    if given.get("group", "whole") != "whole":
        said["group"] = int(given["group"])
    if given.get("center") == "yes":
        said["center"] = True
    rotation = given.get("rotation", ABSENT)
    if rotation in ("blocks", "signed_blocks"):
        said["rotation"] = "signed_hadamard" if rotation == "signed_blocks" else "hadamard"
        said["rotation_block"] = block_of_rotation(head_dim)
    elif rotation != ABSENT:
        said["rotation"] = rotation
    return said


def unit_of(bits: int) -> int:
    """Codes that fill whole bytes."""
    return 8 // math.gcd(8, bits)


def refusals(one: Row, head_dim: int) -> set[str]:
    """Codes of the diagnostics that a side must give, of the axes that are in `one`; empty where it is legal."""
    codec, found = one["codec"], set()
    for axis, value in one.items():
        if value != ABSENT and not has(codec, axis):
            found.add("axis")  # not a spec: the codec does not have it
        if value == ABSENT and has(codec, axis):
            found.add("axis")
    bits, group = one.get("bits", ABSENT), one.get("group", ABSENT)
    if codec == "symmetric" and bits == "1":
        found.add("TQ3205")
    is_power = head_dim & (head_dim - 1) == 0
    if one.get("rotation") in ("hadamard", "signed_hadamard") and not is_power:
        found.add("TQ3301")
    if group not in (ABSENT, "whole") and head_dim % int(group):
        found.add("TQ3201")
    if one.get("packing") == "halves" and bits != ABSENT:
        unit = unit_of(int(bits))
        if unit == 1:
            found.add("TQ3002")
        elif head_dim % unit:
            found.add("TQ3401")
        elif group not in (ABSENT, "whole", str(head_dim)) and head_dim % int(group) == 0 and not is_power:
            found |= {"TQ3402"} if head_dim // unit % int(group) else set()
    return found


def allowed(row: Row) -> bool:
    """Whether the values of a row, which need not have all axes, can stand in one legal spec."""
    if row.get("key.codec") == "none" == row.get("value.codec"):
        return False
    dims = (row["head_dim"],) if "head_dim" in row else SHARED["head_dim"]
    others = (row["value_dim"],) if "value_dim" in row else SHARED["value_dim"]
    value_dims = tuple(dict.fromkeys(OTHER_DIM[dim] if other == "other" else dim for dim in dims for other in others))
    return _possible(_items(row, "key"), dims) and _possible(_items(row, "value"), value_dims)


def _items(row: Row, side: str) -> frozenset[tuple[str, str]]:
    return frozenset(item for item in row.items() if item[0].startswith(side) and item[0] != "value_dim")


@functools.cache
def _possible(items: frozenset[tuple[str, str]], dims: tuple[str, ...]) -> bool:
    """Whether some head dimension takes a side with these values; one without a codec can have any that fits."""
    one = {axis.partition(".")[2]: value for axis, value in items}
    codecs = (one["codec"],) if "codec" in one else tuple(CODECS)
    return any(not refusals({**one, "codec": codec}, int(dim)) for codec in codecs for dim in dims)


FLOAT_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}


def parts_of(one: Row, head_dim: int) -> dict[str, int]:
    """The parts that a side stores, and the bytes of each for one token and head."""
    codec = one["codec"]
    if codec == "none":
        return {}
    if codec.startswith("raw"):
        return {"codes": head_dim * FLOAT_BYTES[codec.removeprefix("raw_")]}
    bits = int(one["bits"]) if has(codec, "bits") else 8
    parts = {"codes": -(-head_dim * bits // 8)}
    if codec == "mse":
        parts["norm"] = FLOAT_BYTES[one["dtype"]]
    if codec in SCALED:
        groups = 1 if one["group"] == "whole" else head_dim // int(one["group"])
        parts["scale"] = groups * FLOAT_BYTES[one["dtype"]]
        if codec == "uniform":
            parts["zero"] = groups * FLOAT_BYTES[one["zero"]]
    return parts


def spec_data(row: Row, name: str) -> dict[str, Any]:
    """The spec of a row, as plain data."""
    head_dim = head_dim_of(row, "key")
    data: dict[str, Any] = {"tqgen": 1, "name": name, "head_dim": head_dim}
    parts: dict[str, int] = {}
    for side in ("key", "value"):
        one, dim = side_of(row, side), head_dim_of(row, side)
        data[side] = side_spec(one, dim)
        if dim != head_dim:
            data[side]["head_dim"] = dim
        parts |= {f"{side}.{part}": size for part, size in parts_of(one, dim).items()}
    data["block"] = block_spec(row["block"], parts)
    return data


def block_spec(block: str, parts: dict[str, int]) -> Any:
    """The block of a row, for parts of these names and sizes."""
    if block in ("aos", "soa"):
        return block
    if block == "mixed":
        # Every kind of alignment, reserved bytes, and parts in another order than the codec has them; slots that are
        # large enough for what all this takes in a block of any size.
        first, *rest = parts
        regions: list[dict[str, Any]] = [
            {
                "name": "head",
                "order": [{"axis": "head", "align": 32}, "token", "field"],
                "fields": [{"reserved": 5}, {"field": first, "align": 8}],
            }
        ]
        if rest:
            regions.append({"name": "tail", "order": ["token", "field", "head"], "fields": rest[::-1], "align": 4})
        return {"regions": regions, "slot_bytes": -(-(sum(parts.values()) + 64) // 32) * 32}
    return {"regions": [{"name": "all", "order": list(ORDERS[block]), "fields": list(parts)}]}


def spec_text(row: Row, name: str = "matrix") -> str:
    """The spec of a row, one key a line; JSON is YAML too."""
    items = (f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in spec_data(row, name).items())
    return "{\n" + ",\n".join(items) + "\n}\n"


def side_name(one: Row) -> str:
    """A side in a few letters, for the id of a test."""
    codec = one["codec"]
    text = codec + (one["bits"] if one.get("bits", ABSENT) != ABSENT else "")
    if one.get("group", ABSENT) not in (ABSENT, "whole"):
        text += f"g{one['group']}"
    if one.get("rotation", ABSENT) not in (ABSENT, "none"):
        text += f"_{one['rotation']}"
    return text + ("_halves" if one.get("packing") == "halves" else "")


def row_name(row: Row) -> str:
    """A row in a few words, for the id of a test."""
    return "-".join([side_name(side_of(row, "key")), side_name(side_of(row, "value")), row["block"], row["head_dim"]])

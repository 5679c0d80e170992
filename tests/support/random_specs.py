"""Random legal specs, as data and as text; JSON is YAML too."""

import json
import math

from hypothesis import strategies as st

from tqgen.spec import parse_spec
from tqgen.spec.expand import stored_parts

HEAD_DIMS = st.sampled_from([1, 2, 7, 8, 12, 16, 24, 64, 80, 96, 100, 128, 256])
DTYPES = st.sampled_from(["fp16", "bf16", "fp32"])
ALIGNMENTS = st.sampled_from([1, 1, 1, 2, 4, 8, 16, 64])


def stored(draw):
    return {"dtype": draw(DTYPES)}


def groups(head_dim):
    return [n for n in range(1, head_dim) if head_dim % n == 0 and (n % 8 == 0 or n & (n - 1) == 0)] + [head_dim]


@st.composite
def sides(draw, head_dim, may_be_none=True):
    """A legal side of vectors of `head_dim` elements."""
    codec = draw(st.sampled_from(["mse", "uniform", "fp8", "raw"] + ["none"] * may_be_none))
    side = {"codec": codec}
    bits = 8
    if codec == "none":
        return side
    if codec in ("mse", "uniform"):
        bits = side["bits"] = draw(st.integers(1, 8))
    if codec == "mse":
        side["codebook"] = draw(st.sampled_from(["lloyd_max", "vllm"]))
        side["norm_correction"] = draw(st.sampled_from(["none", "store", "load"]))
        side["norm"] = stored(draw)
    if codec == "raw":
        side["dtype"] = draw(DTYPES)
        bits = 32 if side["dtype"] == "fp32" else 16
    if codec == "uniform":
        side["symmetric"] = bits > 1 and draw(st.booleans())
        side["rounding"] = draw(st.sampled_from(["half_up", "half_even", "half_away"]))
        if not side["symmetric"]:
            side["zero"] = stored(draw)
    if codec == "uniform" or (codec == "fp8" and draw(st.booleans())):
        side["scale"] = stored(draw)
        side["group"] = draw(st.sampled_from(groups(head_dim)))
        side["scale_floor"] = draw(st.sampled_from([1e-8, 1e-5, 2.0**-126, 1]))
    rotation = side["rotation"] = draw(st.sampled_from(["none", "matrix", "hadamard", "signed_hadamard"]))
    if "hadamard" in rotation:
        largest = head_dim & -head_dim
        if largest == 1 and head_dim > 1:
            side["rotation"] = "none"
        elif largest != head_dim or (draw(st.booleans()) and largest > 1):
            side["rotation_block"] = draw(st.sampled_from([2**n for n in range(1, largest.bit_length())]))
    unit = 8 // math.gcd(8, bits)
    group = side.get("group", head_dim)
    full = head_dim >= 16 and head_dim & (head_dim - 1) == 0
    if unit > 1 and head_dim % unit == 0 and (full or group == head_dim or head_dim // unit % group == 0):
        side["packing"] = draw(st.sampled_from(["linear", "halves"]))
    side["center"] = draw(st.booleans())
    side["non_finite"] = draw(st.sampled_from(["propagate", "saturate"]))
    return side


@st.composite
def regions(draw, names):
    """Regions that hold every part once, in random order, with random alignment and reserved bytes."""
    names = draw(st.permutations(names))
    cuts = sorted(draw(st.lists(st.integers(1, len(names)), max_size=2)))
    pieces = [names[a:b] for a, b in zip([0, *cuts], [*cuts, len(names)], strict=True) if a < b]
    result = []
    for index, piece in enumerate(pieces):
        fields = []
        for name in piece:
            if draw(st.integers(0, 3)) == 0:
                fields.append({"reserved": draw(st.integers(1, 40)), "align": draw(ALIGNMENTS)})
            align = draw(ALIGNMENTS)
            fields.append(name if align == 1 else {"field": name, "align": align})
        order = []
        for axis in draw(st.permutations(["token", "head", "field"])):
            align = draw(ALIGNMENTS)
            order.append(axis if align == 1 or axis == "field" else {"axis": axis, "align": align})
        region = {"name": f"region_{index}", "order": order, "fields": fields}
        if draw(st.booleans()):
            region["align"] = draw(ALIGNMENTS)
        result.append(region)
    return result


@st.composite
def spec_texts(draw):
    """The text of a legal spec."""
    head_dim = draw(HEAD_DIMS)
    data = {"tqgen": 1, "name": "drawn", "doc": draw(st.sampled_from(["", "a sentence", "a: b # c"]))}
    data["head_dim"] = head_dim
    value_dim = draw(st.one_of(st.just(head_dim), HEAD_DIMS))
    key = data["key"] = draw(sides(head_dim))
    data["value"] = draw(sides(value_dim, may_be_none=key["codec"] != "none"))
    if value_dim != head_dim:
        data["value"]["head_dim"] = value_dim
    data["block"] = draw(st.sampled_from(["aos", "soa", "regions", "regions"]))
    if data["block"] == "regions":
        names = list(stored_parts(parse_spec(json.dumps({**data, "block": "soa"}))))
        data["block"] = {"regions": draw(regions(names))}
    return json.dumps(data)

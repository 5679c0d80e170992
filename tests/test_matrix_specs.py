"""Every combination that the spec language has: what is refused and why, where bytes stand, how codes are read."""

import itertools
import json
import math

import numpy as np
import pytest
from support.matrix import (
    ABSENT,
    CODECS,
    GRIDS,
    OWN_AXES,
    SCALED,
    SHARED,
    SIDE,
    block_spec,
    has,
    parts_of,
    refusals,
    side_spec,
    unit_of,
)
from test_layout import check_layout

from tqgen import codebooks, codecs, reference
from tqgen.diagnostics import SpecError
from tqgen.layout.resolve import resolve
from tqgen.numerics import floats
from tqgen.spec import parse_spec

HEAD_DIMS = SHARED["head_dim"]
DEFAULTS = {axis: values[0] for axis, values in SIDE.items() if axis != "codec"}


def sides(*axes):
    """Every side of the product of these axes, the others at their first value; codecs have only axes of their own."""
    for codec in SIDE["codec"]:
        own = [axis for axis in axes if has(codec, axis)]
        for values in itertools.product(*(SIDE[axis] for axis in own)):
            one = {"codec": codec, **dict(zip(own, values, strict=True))}
            rest = {axis: DEFAULTS[axis] if has(codec, axis) else ABSENT for axis in DEFAULTS if axis not in one}
            yield one | rest


def text_of(head_dim, block="soa", **given):
    data = {"tqgen": 1, "name": "matrix", "head_dim": head_dim, "key": {"codec": "none"}, "value": {"codec": "none"}}
    return json.dumps({**data, **given, "block": block})


def codes_of(text):
    """The diagnostics that a spec gives."""
    try:
        resolve(parse_spec(text))
    except SpecError as error:
        return [found.code for found in error.diagnostics]
    return []


# specs


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_sides_are_refused_for_exactly_what_is_wrong_with_them(head_dim, tally):
    axes = ("bits", "packing", "group", "rotation")
    wrong, legal, refused = [], 0, 0
    for number, one in enumerate(sides(*axes)):
        if one["codec"] == "none" or one["rotation"].startswith("signed"):  # no rule tells signed ones from others
            continue
        side = ("key", "value")[number % 2]
        expected = sorted(refusals(one, int(head_dim)))
        got = sorted(codes_of(text_of(int(head_dim), **{side: side_spec(one, int(head_dim))})))
        legal, refused = legal + (not expected), refused + bool(expected)
        if got != expected:
            wrong.append(f"{side}: {side_spec(one, int(head_dim))}: expected {expected}, got {got}")
    assert not wrong, "\n".join(wrong)
    assert legal > 100 and refused > 20
    wanted = {axis: SIDE[axis] for axis in axes if axis != "rotation"} | {"head_dim": HEAD_DIMS}
    tally("specs", cells=legal, refused=refused, values=wanted, wanted=wanted)


def test_a_codec_takes_its_own_keys_and_no_others(tally):
    examples = {
        "bits": 4,
        "codebook": "vllm",
        "tie": "down",
        "norm_correction": "load",
        "norm": {"dtype": "bf16"},
        "scale": {"dtype": "bf16"},
        "zero": {"dtype": "bf16"},
        "rounding": "half_even",
        "quantize_with": "stored",
        "scale_floor": 0.5,
        "group": 32,
        "symmetric": True,
        "format": "e5m2",
        "dtype": "fp32",
    }
    own = {
        "mse": {"bits", "codebook", "tie", "norm_correction", "norm"},
        "uniform": {"bits", "scale", "zero", "rounding", "quantize_with", "scale_floor", "group", "symmetric"},
        "fp8": {"format", "scale", "quantize_with", "scale_floor", "group"},
        "raw": {"dtype"},
        "none": set(),
    }
    needed = {"mse": {"bits": 3}, "uniform": {"bits": 3}, "raw": {"dtype": "fp16"}, "fp8": {}, "none": {}}
    for codec, key in itertools.product(own, examples):
        said = {"codec": codec, **needed[codec], key: examples[key]}
        expected = [] if key in own[codec] else ["TQ2002"]
        if codec == "fp8" and key in {"quantize_with", "scale_floor", "group"}:
            expected = ["TQ3207"]
        other = {"key": {"codec": "fp8"}}
        assert codes_of(text_of(64, value=said, **other)) == expected, said
        tally("specs", cells=not expected, refused=bool(expected))


@pytest.mark.parametrize("rotation", ["none", "hadamard", "signed_hadamard", "matrix"])
def test_blocks_of_a_rotation(rotation, tally):
    for head_dim, block in itertools.product((64, 96, 100), (2, 3, 4, 16, 32, 48, 64, 128)):
        said = {"codec": "mse", "bits": 4, "rotation": rotation, "rotation_block": block}
        expected = []
        if rotation in ("none", "matrix"):
            expected = ["TQ3002"]
        elif block & (block - 1):
            expected = ["TQ3302"]
        elif head_dim % block:
            expected = ["TQ3303"]
        assert codes_of(text_of(head_dim, key=said)) == expected, (head_dim, said)
        tally("specs", cells=not expected, refused=bool(expected))


def test_groups_of_any_size(tally):
    for codec, head_dim in itertools.product(SCALED, (1, 12, 60, 64, 100, 126)):
        for group in range(1, head_dim + 2):
            expected = []
            if head_dim % group:
                expected = ["TQ3201"]
            elif group % 8 and group & (group - 1) and group != head_dim:
                expected = ["TQ3202"]
            said = {"codec": "uniform", "bits": 4} if codec in GRIDS else {"scale": {"dtype": "fp16"}}
            said |= {**CODECS[codec], "group": group}
            assert codes_of(text_of(head_dim, value=said)) == expected, (head_dim, said)
            tally("specs", cells=not expected, refused=bool(expected))


def test_every_codec_of_the_language_is_in_the_matrix():
    assert {said["codec"] for said in CODECS.values()} == set(codecs.CODECS)


def test_every_axis_is_an_axis_of_some_codec():
    assert set(OWN_AXES) < set(SIDE)
    for codec, axis in itertools.product(CODECS, SIDE):
        if codec != "none" and axis != "codec":
            assert has(codec, axis) == (axis not in OWN_AXES or codec in OWN_AXES[axis])


# layout


def sizes_of(head_dim):
    """Sides that store parts of different sizes, one for each list of sizes."""
    found = {}
    for one in sides("bits", "group", "dtype", "zero"):
        if not refusals(one, head_dim) and one["codec"] != "none":
            found.setdefault(tuple(parts_of(one, head_dim).items()), one)
    return list(found.values())


@pytest.mark.parametrize("block", SHARED["block"])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_every_byte_stands_where_the_order_of_the_axes_says(head_dim, block, tally):
    dim = int(head_dim)
    found = sizes_of(dim)
    turn = (HEAD_DIMS.index(head_dim) + SHARED["block"].index(block)) % 3
    chosen = list(enumerate(found))[turn::3]
    assert len(chosen) > 15
    for number, key in chosen:
        value = found[(7 * number + 3) % len(found)]
        parts = {f"key.{name}": size for name, size in parts_of(key, dim).items()}
        parts |= {f"value.{name}": size for name, size in parts_of(value, dim).items()}
        text = text_of(dim, block_spec(block, parts), key=side_spec(key, dim), value=side_spec(value, dim))
        spec = parse_spec(text)
        check_layout(spec)
        layout = resolve(spec)
        assert {field.name: field.part.num_bytes for field in layout.fields} == parts, text
        used = sum(parts.values())
        if block in ("aos", "soa"):
            assert layout.slot_bytes == used + used % 2, text
        elif block != "mixed":
            assert layout.slot_bytes == used, text
    wanted = {"head_dim": HEAD_DIMS, "block": SHARED["block"]}
    tally("layout", cells=len(chosen), values={"head_dim": head_dim, "block": block}, wanted=wanted)


# reference


def packed(codes, bits, packing):
    """Bytes [N, ceil(D*b/8)] of codes [N, D], one bit at a time."""
    count = codes.shape[1]
    unit = unit_of(bits)
    part = count // unit
    places = np.zeros((len(codes), -(-count * bits // 8) * 8), dtype=np.uint8)
    for element in range(count):
        place = element if packing == "linear" else element % part * unit + element // part
        for bit in range(bits):
            places[:, place * bits + bit] = codes[:, element] >> bit & 1
    return np.packbits(places, axis=1, bitorder="little")


def decoded(one, codes, parts, head_dim):
    """The numbers that codes [N, D] stand for, from their definition; `parts` are the stored numbers [N, count]."""
    codec, bits = one["codec"], int(one["bits"]) if one["bits"] != ABSENT else 8
    spread = {name: np.repeat(numbers, head_dim // numbers.shape[1], axis=1) for name, numbers in parts.items()}
    if codec == "mse":
        table = codebooks.load(one["codebook"], bits)
        return np.array(table.levels)[codes] / math.sqrt(head_dim) * spread["norm"]
    if codec == "symmetric":
        codes = np.where(codes >= 2 ** (bits - 1), codes - 2**bits, codes)
    if codec in GRIDS:
        return codes * spread["scale"] + spread.get("zero", 0.0)
    if codec.startswith("raw"):
        return floats.from_bits(codes, codec.removeprefix("raw_"))
    return floats.from_bits(codes, codec.removeprefix("scaled_")) * spread.get("scale", 1.0)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_every_code_in_every_lane_is_read_and_decoded(head_dim, tally):
    dim, cells = int(head_dim), 0
    for number, one in enumerate(sides("bits", "packing", "group")):
        if refusals(one, dim) or one["codec"] == "none":
            continue
        cells += 1
        side = ("key", "value")[number % 2]
        text = text_of(dim, ("aos", "soa")[number // 2 % 2], **{side: side_spec(one, dim)})
        layout = resolve(parse_spec(text))
        bits = layout.field(f"{side}.codes").part.bits
        tokens = 2 ** min(bits, 8)
        codes = (7 * np.arange(dim)[None] + np.arange(tokens)[:, None]) % 2**bits
        if bits > 8:
            codes = (codes * 16843009 + 15360) & (2**bits - 1)
        assert bits > 8 or all(len(set(lane)) == 2**bits for lane in codes.T)
        cache = np.full((1, tokens, 1, layout.slot_bytes), 0xEE, dtype=np.uint8)
        flat, parts = cache.reshape(-1), {}
        for field in (found for found in layout.fields if found.side == side):
            if field.part.dtype is None:
                data = packed(codes, bits, one["packing"] if one["packing"] != ABSENT else "linear")
            else:
                numbers = 1.5 + np.arange(tokens)[:, None] + np.arange(field.part.count)[None] / 4
                parts[field.part.name] = floats.round_to(numbers, field.part.dtype)
                data = packed(floats.to_bits(numbers, field.part.dtype), field.part.bits, "linear")
            for token in range(tokens):
                start = field.address(token, 0, tokens, 1)
                flat[start : start + data.shape[1]] = data[token]
        read = reference.read_parts(layout, cache, np.arange(tokens))[side]
        assert np.array_equal(read["codes"][:, 0], codes), text
        for name, numbers in parts.items():
            assert np.array_equal(read[name][:, 0], numbers), text
        got = reference.decoded_vectors(layout, cache, np.arange(tokens), side)[:, 0]
        assert np.allclose(got, decoded(one, codes, parts, dim), rtol=1e-12, atol=0, equal_nan=True), text
    wanted = {"head_dim": HEAD_DIMS, "codec": [codec for codec in CODECS if codec != "none"]}
    tally("reference", cells=cells, values={**wanted, "head_dim": head_dim}, wanted=wanted)

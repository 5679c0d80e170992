"""Addresses: known answers, the byte maps of the shipped specs, and what must hold for every legal spec.

`python tests/test_layout.py` writes the byte maps of the shipped specs anew.
"""

import itertools
import json
import math
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.random_specs import spec_texts

from tqgen.diagnostics import SpecError
from tqgen.layout import Field
from tqgen.layout.form import SIZES, Form
from tqgen.layout.resolve import resolve
from tqgen.lower import always_fits
from tqgen.numerics.rotations import pinned_signs
from tqgen.spec import load_spec, parse_spec
from tqgen.spec.expand import expand
from tqgen.spec.models import AlignedAxis, Entry, Reserve

ROOT = Path(__file__).parent.parent
SHIPPED = sorted((ROOT / "specs").glob("*.yaml"))
BYTE_MAPS = Path(__file__).parent / "byte_maps.txt"
LAUNCHES = [(1, 1), (1, 3), (2, 1), (3, 2), (5, 3), (16, 2)]


def shipped(name, **overrides):
    return resolve(load_spec(ROOT / "specs" / f"{name}.yaml", {key: str(value) for key, value in overrides.items()}))


def layout(key, value, block, head_dim=128):
    data = {"tqgen": 1, "name": "test", "head_dim": head_dim, "key": key, "value": value, "block": block}
    return resolve(parse_spec(json.dumps(data)))


RAW = {"codec": "raw", "dtype": "fp16"}
MSE3, MSE4, UNIFORM4 = ({"codec": c, "bits": b} for c, b in (("mse", 3), ("mse", 4), ("uniform", 4)))


def regions(*entries, **more):
    return {"regions": [{"name": f"r{i}", **entry} for i, entry in enumerate(entries)], **more}


# known answers


@pytest.mark.parametrize(
    "name, slot_bytes",
    [
        *[("fp8_v4", 196), ("mse4_v4", 134), ("mse3_v4", 118), ("mse3_v3", 102), ("mse4_v3", 118), ("fp8_v3", 180)],
        *[("none_vmse2", 84), ("none_vmse3", 100), ("none_vmse4", 116), ("mse3_vmse3", 100), ("mse4_vmse4", 132)],
        *[("mse4_v4_hm", 134), ("mse4_v4_aligned", 134)],
    ],
)
def test_slot_bytes(name, slot_bytes):
    assert shipped(name).slot_bytes == slot_bytes
    if name in ("fp8_v4", "mse4_v4", "mse3_v4", "mse3_v3", "mse4_v3", "fp8_v3"):
        assert shipped(f"{name}_aos").slot_bytes == slot_bytes


@pytest.mark.parametrize(
    "name, addresses, block_bytes",
    [
        (
            "mse4_v4_aos",
            {"key.codes": 1474, "key.norm": 1538, "value.codes": 1540, "value.scale": 1604, "value.zero": 1606},
            4288,
        ),
        (
            "mse4_v4",
            {"key.codes": 1408, "key.norm": 4202, "value.codes": 1472, "value.scale": 4234, "value.zero": 4266},
            4288,
        ),
        (  # codes [H][bs][128], metadata [H][3][bs]
            "mse4_v4_hm",
            {"key.codes": 2688, "key.norm": 4202, "value.codes": 2752, "value.scale": 4234, "value.zero": 4266},
            4288,
        ),
        (  # per head [bs][64] [bs][64] and three strips: 2144 bytes
            "mse4_v4_aligned",
            {"key.codes": 2464, "key.norm": 4202, "value.codes": 3488, "value.scale": 4234, "value.zero": 4266},
            4288,
        ),
    ],
)
def test_addresses_of_one_token(name, addresses, block_bytes):
    found = shipped(name)
    assert {field.name: field.address(5, 1, 16, 2) for field in found.fields} == addresses
    assert found.block_bytes(16, 2) == block_bytes


@pytest.mark.parametrize(
    "name, offsets",
    [
        ("fp8_v4_aos", [0, 128, 192, 194]),
        ("mse4_v4_aos", [0, 64, 66, 130, 132]),
        ("mse3_v4_aos", [0, 48, 50, 114, 116]),
        ("mse3_v3_aos", [0, 48, 50, 98, 100]),
        ("none_vmse2", [50, 82]),
        ("none_vmse3", [50, 98]),
        ("none_vmse4", [50, 114]),
    ],
)
def test_offsets_in_an_aos_slot(name, offsets):
    assert [str(field.base) for field in shipped(name).fields] == [str(offset) for offset in offsets]


@pytest.mark.parametrize("head_dim", [64, 80, 96, 100, 128, 192, 256])
@pytest.mark.parametrize("block", ["aos", "soa"])
@pytest.mark.parametrize("bits", [3, 4])
def test_slots_are_rounded_up_to_even(head_dim, block, bits):
    found = layout({"codec": "mse", "bits": bits}, {"codec": "uniform", "bits": bits}, block, head_dim)
    used = 2 * math.ceil(head_dim * bits / 8) + 6
    assert found.slot_bytes == used + used % 2
    assert all(found.missing_bytes(block_size, heads) == 0 for block_size, heads in LAUNCHES)


def test_odd_codes_before_soa_metadata():
    found = layout({"codec": "mse", "bits": 1}, {"codec": "uniform", "bits": 1}, "soa", head_dim=9)
    odd = layout({"codec": "mse", "bits": 1}, {"codec": "fp8"}, "soa", head_dim=9)
    assert (found.slot_bytes, odd.slot_bytes) == (10, 14)
    assert str(odd.field("key.norm").base) == "up2(block_size*num_kv_heads*11)"
    assert odd.field("key.norm").address(0, 0, 3, 1) == 34 and odd.missing_bytes(3, 1) == 0
    assert odd.field("key.norm").alignment == 2


def test_soa_without_metadata_has_one_region():
    found = layout(RAW, RAW, "soa", head_dim=3)
    assert [region.name for region in found.regions] == ["data"] and found.slot_bytes == 12


def test_planes():
    found = layout(
        MSE4, {"codec": "none"}, regions({"order": ["field", "head", "token"], "fields": ["key.codes", "key.norm"]})
    )
    codes, norm = found.fields
    assert (str(codes.base), str(codes.head_stride), str(codes.token_stride)) == ("0", "block_size*64", "64")
    assert str(norm.base) == "block_size*num_kv_heads*64"
    assert (str(norm.head_stride), str(norm.token_stride)) == ("block_size*2", "2")


def test_alignment_of_entries_pads_structs_as_in_c():
    """struct {char a[5]; aligned(8) short b; }: b at 8, size 16."""
    order = ["token", "head", "field"]
    found = layout(
        {"codec": "mse", "bits": 4},
        {"codec": "none"},
        regions({"order": order, "fields": ["key.codes", {"field": "key.norm", "align": 8}]}),
        head_dim=10,
    )
    codes, norm = found.fields
    assert [str(form) for form in (codes.head_stride, codes.token_stride, norm.base)] == ["16", "num_kv_heads*16", "8"]
    assert (found.slot_bytes, found.alignment, codes.alignment, norm.alignment) == (16, 8, 16, 8)


def test_alignment_of_rows_depends_on_the_launch():
    order = ["token", {"axis": "head", "align": 1}, "field"]
    rows = [{"axis": "token", "align": 16}, "head", "field"]
    for block, wanted in ((order, "num_kv_heads*50"), (rows, "up16(num_kv_heads*50)")):
        found = layout(MSE3, {"codec": "none"}, regions({"order": block, "fields": ["key.codes", "key.norm"]}))
        assert str(found.fields[0].token_stride) == wanted and found.slot_bytes == 50
    assert [found.missing_bytes(2, heads) for heads in (1, 2, 8)] == [28, 24, 0]


def test_alignment_of_regions():
    entries = [{"order": ["token", "head", "field"], "fields": ["key.codes"]}]
    entries += [{"order": ["head", "field", "token"], "fields": ["key.norm"], "align": 64}]
    found = layout(MSE3, {"codec": "none"}, regions(*entries))
    assert str(found.regions[1].base) == "up64(block_size*num_kv_heads*48)"
    assert (found.slot_bytes, found.alignment) == (50, 64)
    assert found.missing_bytes(4, 1) == 0 and found.missing_bytes(3, 1) == 192 + 6 - 150
    roomy = layout(MSE3, {"codec": "none"}, regions(*entries, slot_bytes=112))
    assert roomy.slot_bytes == 112 and roomy.missing_bytes(1, 1) == 0 and roomy.block_bytes(3, 5) == 1680


def test_each_region_starts_where_the_one_before_ends():
    order = ["head", "field", "token"]
    entries = [{"order": order, "fields": [name]} for name in ("key.codes", "key.norm", "value.codes")]
    found = layout(MSE3, RAW, regions(*entries))
    assert [str(region.base) for region in found.regions] == [
        "0",
        "block_size*num_kv_heads*48",
        "block_size*num_kv_heads*50",
    ]
    assert str(found.end) == "block_size*num_kv_heads*306"


def test_reserved_bytes_are_placed_like_fields():
    found = shipped("none_vmse3")
    reserved, codes, norm = found.regions[0].entries
    assert (reserved.num_bytes, str(reserved.base), str(reserved.head_stride)) == (50, "0", "100")
    assert [str(field.base) for field in (codes, norm)] == ["50", "98"]


def test_a_slot_is_checked_against_what_is_known():
    block = regions({"order": ["token", "head", "field"], "fields": ["key.codes", "value.codes"]}, slot_bytes=511)
    with pytest.raises(SpecError, match="need 512"):
        layout(RAW, RAW, block)
    assert layout(RAW, RAW, {**block, "slot_bytes": 512}).slot_bytes == 512


@pytest.mark.parametrize(
    "aligned, asked", [({}, 1), ({"align": 2}, 1), ({"align": 4}, 4), ({"align": 64}, 64)], ids=lambda found: str(found)
)
def test_what_a_launch_must_align(aligned, asked):
    where = {"order": ["token", "head", "field"]}
    assert layout(RAW, {"codec": "none"}, regions({**where, "fields": ["key.codes"], **aligned})).alignment == asked
    entry = {"field": "key.codes", **aligned}
    assert layout(RAW, {"codec": "none"}, regions({**where, "fields": [entry]})).alignment == asked
    where["order"][1] = {"axis": "head", **aligned}
    assert layout(RAW, {"codec": "none"}, regions({**where, "fields": ["key.codes"]})).alignment == asked


# sides


def test_rotations():
    turned = {**MSE4, "rotation": "signed_hadamard"}
    found = layout(turned, {**UNIFORM4, "rotation": "hadamard", "rotation_block": 16, "head_dim": 48}, "aos")
    assert (found.key.rotation.kind, found.key.rotation.size) == ("signed_hadamard", 128)
    assert found.key.rotation.signs == pinned_signs(128)
    assert (found.value.rotation.size, found.value.rotation.signs, found.value.head_dim) == (16, (), 48)
    assert layout(RAW, RAW, "aos").key.rotation.kind == "none"


def test_sides_that_are_not_stored():
    found = layout({"codec": "none", "head_dim": 7}, UNIFORM4, "soa")
    assert [side.name for side in found.sides] == ["value"] and not found.key.is_stored and found.key.head_dim == 7
    assert [field.name for field in found.fields] == ["value.codes", "value.scale", "value.zero"]


# byte maps of the shipped specs


def byte_map(found):
    """What decides the bytes, a line for each entry: bytes, alignment that is known, base, token and head stride."""
    head = f"{found.name}: {found.slot_bytes} bytes a slot, blocks aligned to {found.alignment}, id {found.layout_id}"
    lines = [head]
    for region in found.regions:
        lines.append(f"  {region.name} [{', '.join(region.order)}] at {region.base}, {region.size} bytes")
        for entry in region.entries:
            if isinstance(entry, Field):
                name, num_bytes, known = entry.name, entry.part.num_bytes, f"/{entry.alignment}"
            else:
                name, num_bytes, known = "reserved", entry.num_bytes, ""
            lines.append(f"    {name} {num_bytes}{known}: {entry.base}; {entry.token_stride}; {entry.head_stride}")
    return "\n".join(lines) + "\n"


def all_byte_maps():
    return "\n".join(byte_map(resolve(load_spec(path))) for path in SHIPPED)


def test_byte_maps_of_shipped_specs():
    assert all_byte_maps() == BYTE_MAPS.read_text(encoding="utf-8")


# every legal spec


def numeric_addresses(spec, parts, block_size, num_kv_heads):
    """Addresses by walking a block with numbers: {(name, token, head): (first byte, bytes)}, and the end.

    The rules of the spec language once more, for one launch and one number at a time.
    """
    size_of = {"token": block_size, "head": num_kv_heads}
    up = lambda value, align: -(-value // align) * align  # noqa: E731
    aligned = lambda item: item.align if isinstance(item, (Entry, Reserve)) else 1  # noqa: E731
    result, end, reserved = {}, 0, itertools.count()
    for region in expand(spec).block.regions:
        axes = [(item.axis, item.align) if isinstance(item, AlignedAxis) else (item, 1) for item in region.order]
        at = axes.index(("field", 1))
        widest = max(aligned(item) for item in region.fields)
        base = up(end, max(widest, region.align))
        row, rows = 0, []
        for item in region.fields:
            num_bytes = item.reserved if isinstance(item, Reserve) else parts[getattr(item, "field", item)].num_bytes
            name = f"reserved {next(reserved)}" if isinstance(item, Reserve) else getattr(item, "field", item)
            row = up(row, aligned(item))
            stride, size = {}, num_bytes
            for axis, align in axes[:at:-1]:
                stride[axis] = up(size, align)
                size = stride[axis] * size_of[axis]
            rows.append((name, num_bytes, row, stride))
            row += size
        size, outer = row, {}
        for axis, align in axes[:at][::-1]:
            outer[axis] = up(size, max(align, widest))
            size = outer[axis] * size_of[axis]
        for name, num_bytes, offset, stride in rows:
            steps = {**outer, **stride}
            for token, head in itertools.product(range(block_size), range(num_kv_heads)):
                first = base + offset + token * steps["token"] + head * steps["head"]
                result[name, token, head] = (first, num_bytes)
        end = base + size
    return result, end


def found_addresses(found, block_size, num_kv_heads):
    result, reserved = {}, itertools.count()
    for region in found.regions:
        for entry in region.entries:
            is_field = isinstance(entry, Field)
            name = entry.name if is_field else f"reserved {next(reserved)}"
            num_bytes = entry.part.num_bytes if is_field else entry.num_bytes
            base, token_stride, head_stride = (
                form.evaluate(block_size, num_kv_heads) for form in (entry.base, entry.token_stride, entry.head_stride)
            )
            for token, head in itertools.product(range(block_size), range(num_kv_heads)):
                result[name, token, head] = (base + token * token_stride + head * head_stride, num_bytes)
    return result


def check_layout(spec):
    found = resolve(spec)
    parts = {f"{side.name}.{part.name}": part for side in found.sides for part in side.parts}
    assert sorted(field.name for field in found.fields) == sorted(parts)
    smallest = found.end.without_rounding().evaluate(1, 1)
    assert found.slot_bytes >= smallest
    for block_size, heads in LAUNCHES:
        addresses = found_addresses(found, block_size, heads)
        expected, end = numeric_addresses(spec, parts, block_size, heads)
        assert addresses == expected and found.end.evaluate(block_size, heads) == end
        # disjoint, and inside the block where the launch fits into it
        taken = sorted(addresses.values())
        assert all(first + length <= second for (first, length), (second, _) in itertools.pairwise(taken))
        last = max(first + length for first, length in taken)
        assert last <= end and end - found.missing_bytes(block_size, heads) <= found.block_bytes(block_size, heads)
        assert (found.missing_bytes(block_size, heads) == 0) == (end <= found.block_bytes(block_size, heads))
        for field in found.fields:
            places = [addresses[field.name, t, h][0] for t in range(block_size) for h in range(heads)]
            assert all(place % field.alignment == 0 for place in places)
            assert places == [field.address(t, h, block_size, heads) for t in range(block_size) for h in range(heads)]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_shipped_layouts(path, head_dim):
    check_layout(load_spec(path, {"head_dim": str(head_dim)}))


@settings(max_examples=250, deadline=None, derandomize=True)
@given(spec_texts())
def test_random_layouts(text):
    check_layout(parse_spec(text))


@settings(max_examples=250, deadline=None, derandomize=True)
@given(spec_texts())
def test_what_fits_one_token_of_one_head_fits_all(text):
    found = resolve(parse_spec(text))
    sizes = [*LAUNCHES, (7, 1), (8, 5), (64, 8), (1056, 3)]
    fits = all(found.end.evaluate(*size) <= found.block_bytes(*size) for size in sizes)
    assert always_fits(found) == fits


@settings(max_examples=250, deadline=None, derandomize=True)
@given(spec_texts())
def test_known_alignment_is_the_largest(text):
    """The claim cannot be doubled: some launch has an address that twice the alignment does not divide."""
    found = resolve(parse_spec(text))
    for field in found.fields:
        if field.alignment < 16:
            places = [
                field.address(t, h, block_size, heads)
                for block_size, heads in [*LAUNCHES, (7, 5), (9, 1), (6, 3), (10, 7)]
                for t in range(min(2, block_size))
                for h in range(min(2, heads))
            ]
            if not any("up" in str(form) for form in (field.base, field.token_stride, field.head_stride)):
                assert any(place % (2 * field.alignment) for place in places)


# forms

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 40)),
        st.tuples(st.just("times"), st.sampled_from(["token", "head"])),
        st.tuples(st.just("up"), st.sampled_from([1, 2, 4, 8, 16, 64])),
        st.tuples(st.just("double"), st.none()),
    ),
    max_size=7,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(OPERATIONS, st.integers(1, 40), st.integers(1, 9))
@example([("add", 3), ("times", "head"), ("up", 16), ("times", "token"), ("up", 64)], 5, 3)
def test_forms_are_what_they_say(operations, block_size, num_kv_heads):
    form, number, size = Form(), 0, {"token": block_size, "head": num_kv_heads}
    for operation, operand in operations:
        if operation == "add":
            form, number = form + Form.constant(operand), number + operand
        elif operation == "times":
            form, number = form * SIZES[operand], number * size[operand]
        elif operation == "up":
            form, number = form.round_up(operand), -(-number // operand) * operand
        else:
            form, number = form + form, 2 * number
    assert form.evaluate(block_size, num_kv_heads) == number
    assert eval(form.source(), {"block_size": block_size, "num_kv_heads": num_kv_heads}) == number
    assert form.divisor() == 0 if not form.terms else number % form.divisor() == 0
    assert form.without_rounding().evaluate(block_size, num_kv_heads) <= number


# identity


def test_equal_layouts_have_equal_ids():
    base = layout(MSE4, UNIFORM4, "soa")
    data = {"order": ["token", "head", "field"], "fields": ["key.codes", "value.codes"]}
    meta = {"order": ["head", "field", "token"], "fields": ["key.norm", "value.scale", "value.zero"]}
    assert layout(MSE4, UNIFORM4, regions(data, meta)).layout_id == base.layout_id
    assert layout(MSE4, {**UNIFORM4, "group": 128}, "soa").layout_id == base.layout_id
    assert layout({**MSE4, "head_dim": 128}, UNIFORM4, "soa", head_dim=128).layout_id == base.layout_id
    assert len(base.layout_id) == 16 and int(base.layout_id, 16) >= 0


def test_different_layouts_have_different_ids():
    turned = {**MSE4, "rotation": "hadamard"}
    sides = [
        *[
            (MSE4, UNIFORM4),
            (MSE3, UNIFORM4),
            (MSE4, {**UNIFORM4, "bits": 3}),
            (UNIFORM4, MSE4),
            (MSE4, {"codec": "none"}),
        ],
        *[({**MSE4, "codebook": "vllm"}, UNIFORM4), ({**MSE4, "norm_correction": "load"}, UNIFORM4)],
        *[({**MSE4, "tie": "down"}, UNIFORM4), ({**MSE4, "norm": {"dtype": "bf16"}}, UNIFORM4), (turned, UNIFORM4)],
        *[({**turned, "rotation_block": 64}, UNIFORM4), ({**MSE4, "rotation": "signed_hadamard"}, UNIFORM4)],
        *[({**MSE4, "packing": "halves"}, UNIFORM4), ({**MSE4, "center": True}, UNIFORM4)],
        *[({**MSE4, "non_finite": "saturate"}, UNIFORM4), (MSE4, {**UNIFORM4, "group": 64})],
        *[(MSE4, {**UNIFORM4, "rounding": "half_even"}), (MSE4, {**UNIFORM4, "quantize_with": "stored"})],
        *[(MSE4, {**UNIFORM4, "scale_floor": 1e-7}), (MSE4, {**UNIFORM4, "symmetric": True})],
        *[(MSE4, {"codec": "fp8"}), (MSE4, {"codec": "fp8", "format": "e5m2"}), (MSE4, RAW)],
        *[(MSE4, {**RAW, "dtype": "bf16"}), ({**MSE4, "rotation": "matrix"}, UNIFORM4)],
    ]
    found = [layout(key, value, block).layout_id for key, value in sides for block in ("aos", "soa")]
    one = regions({"order": ["token", "head", "field"], "fields": ["key.codes", "value.codes"]}, slot_bytes=514)
    found += [layout(RAW, RAW, "soa").layout_id, layout(RAW, RAW, one).layout_id]
    found += [layout(MSE4, UNIFORM4, "soa", head_dim=64).layout_id]
    assert len(set(found)) == len(found)


if __name__ == "__main__":
    BYTE_MAPS.write_text(all_byte_maps(), encoding="utf-8")
    print(f"wrote {BYTE_MAPS}", file=sys.stderr)

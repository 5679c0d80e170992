"""What differs between two layouts is found, in the right category, and nothing else is."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_specs import spec_texts

from tqgen.cli import run
from tqgen.compiler import compile_parsed
from tqgen.difference import Category
from tqgen.difference.interface import interface_changes, interface_of, recorded_id
from tqgen.difference.layouts import layout_changes
from tqgen.difference.versions import changes, version_of
from tqgen.layout.resolve import resolve
from tqgen.spec import parse_spec

BASE = """\
tqgen: 1
name: base
head_dim: 128
key: {codec: mse, bits: 3, codebook: vllm, rotation: hadamard, norm_correction: store}
value: {codec: uniform, bits: 4}
block:
  regions:
    - {name: data, order: [token, head, field], fields: [key.codes, value.codes]}
    - {name: meta, order: [head, field, token], align: 2, fields: [key.norm, value.scale, value.zero]}
"""

LAYOUT, NUMERICS, API = Category.LAYOUT, Category.NUMERICS, Category.API


def compiled(overrides=None, text=BASE):
    options = {key: json.dumps(value) for key, value in (overrides or {}).items()}
    return compile_parsed(parse_spec(text, "base.yaml", {"name": "base", **options}), "base.yaml")


def found(overrides, text=BASE):
    """Category, subject, old and new of every change that the overrides make."""
    both = (version_of(compiled()), version_of(compiled(overrides, text)))
    return [(change.category, change.subject, change.old, change.new) for change in changes(*both)]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, []),
        ({"doc": "Other words."}, []),
        ({"block.regions.0.name": "other"}, []),
        ({"block.slot_bytes": 118}, []),
        ({"value.group": 128}, []),
        ({"key.rotation_block": 128}, []),
        ({"block.slot_bytes": 120}, [(LAYOUT, "slot_bytes", "118", "120")]),
        (
            {"block.regions.0.fields": ["value.codes", "key.codes"]},
            [
                (LAYOUT, "key.codes offset", "token*num_kv_heads*112 + head*112", None),
                (LAYOUT, "value.codes offset", None, "token*num_kv_heads*112 + head*112"),
            ],
        ),
        ({"key.packing": "halves"}, [(LAYOUT, "key.codes", "3 bits x 128", "3 bits x 128 halves")]),
        ({"key.norm": {"dtype": "bf16"}}, [(LAYOUT, "key.norm", "fp16", "bf16")]),
        (
            {"value.group": 64},
            [
                (LAYOUT, "slot_bytes", "118", "122"),
                (LAYOUT, "value.scale", "fp16", "fp16 x 2"),
                (LAYOUT, "value.scale offset", None, None),
                (LAYOUT, "value.zero", "fp16", "fp16 x 2"),
                (LAYOUT, "value.zero offset", None, None),
                (LAYOUT, "key.norm offset", None, None),
                (NUMERICS, "value.group", "the whole vector", "64"),
            ],
        ),
        ({"key.norm_correction": "load"}, [(NUMERICS, "key.norm_correction", "store", "load")]),
        ({"key.codebook": "lloyd_max"}, [(NUMERICS, "key.codebook", "vllm", "lloyd_max")]),
        ({"key.tie": "down"}, [(NUMERICS, "key.tie", "up", "down")]),
        ({"value.scale_floor": 1e-6}, [(NUMERICS, "value.scale_floor", "1e-08", "1e-06")]),
        ({"value.non_finite": "saturate"}, [(NUMERICS, "value.non_finite", "propagate", "saturate")]),
        (
            {"key.rotation_block": 32},
            [(NUMERICS, "key.rotation", "hadamard", "hadamard in blocks of 32")],
        ),
        ({"key.rotation": "none"}, [(NUMERICS, "key.rotation", "hadamard", "none")]),
        (
            {"key.bits": 4, "block.slot_bytes": 134},
            [
                (LAYOUT, "slot_bytes", "118", "134"),
                (LAYOUT, "key.codes", "3 bits x 128", "4 bits x 128"),
                (LAYOUT, "key.codes offset", None, None),
                (LAYOUT, "value.codes offset", None, None),
                (LAYOUT, "key.norm offset", None, None),
                (LAYOUT, "value.scale offset", None, None),
                (LAYOUT, "value.zero offset", None, None),
                (NUMERICS, "key.bits", "3", "4"),
            ],
        ),
        (
            {"key.center": True},
            [
                (NUMERICS, "key.center", "false", "true"),
                (API, "store", None, None),
                (API, "unpack", None, None),
            ],
        ),
        (
            {"block.regions.1.align": 8},
            [(API, "start of a block", "anywhere", "at a multiple of 8 bytes")],
        ),
    ],
    ids=str,
)
def test_changes(overrides, expected):
    actual = {one[:2]: one for one in found(overrides) if one[1] not in NEW_LAUNCHERS}
    # what rounds up the start of a region also moves what stands in it, for some launches
    if overrides == {"block.regions.1.align": 8}:
        actual = {key: one for key, one in actual.items() if key[0] is API}
    assert actual.keys() == {(category, subject) for category, subject, _, _ in expected}
    for category, subject, old, new in expected:
        one = actual[category, subject]
        assert old is None or one[2] == old
        assert new is None or one[3] == new


NEW_LAUNCHERS = ("decode_attention",)


def test_raw_numbers_of_equal_width_differ():
    text = BASE.replace(BASE[BASE.index("key:") : BASE.index("value:")], "key: {codec: raw, dtype: fp16}\n")
    text = text.replace("[key.norm, ", "[")
    old, new = (resolve(parse_spec(text.replace("fp16", dtype))) for dtype in ("fp16", "bf16"))
    assert [(one.category, one.subject) for one in layout_changes(old, new)] == [(NUMERICS, "key.dtype")]


def test_a_side_that_is_not_stored_any_more():
    text = BASE.replace("key: {codec: mse, bits: 3", "key: {codec: none} #").replace("[key.codes, ", "[")
    text = text.replace("[key.norm, ", "[{reserved: 50}, ")
    subjects = {one[1]: one[2:] for one in found({}, text)}
    assert subjects["key.codes"] == ("3 bits x 128", None) and subjects["key.norm"] == ("fp16", None)
    assert subjects["key.codec"] == ("mse", "none")
    assert subjects["reserved bytes"][0] is None and subjects["reserved bytes"][1].startswith("50 at ")
    assert "key.bits" not in subjects and "key.rotation" not in subjects


def test_another_codec_is_not_compared_key_by_key():
    value = {"codec": "mse", "bits": 4, "center": True}
    text = BASE.replace("value.scale, value.zero", "value.norm")
    subjects = {one[1] for one in found({"value": value}, text) if one[0] is NUMERICS}
    assert subjects == {"value.codec", "value.center"}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(spec_texts(), spec_texts())
def test_any_two_layouts_differ_where_their_ids_do(one, other):
    old, new = resolve(parse_spec(one)), resolve(parse_spec(other))
    differ = [change for change in layout_changes(old, new) if change.category is not API]
    assert bool(differ) == (old.layout_id != new.layout_id)
    assert layout_changes(old, old) == []


SMALL = {
    "bits": st.integers(1, 8),
    "group": st.sampled_from([16, 32, 64, 128]),
    "rounding": st.sampled_from(["half_up", "half_even", "half_away"]),
    "scale": st.sampled_from([{"dtype": "fp16"}, {"dtype": "bf16"}]),
    "packing": st.sampled_from(["linear", "halves"]),
    "rotation": st.sampled_from(["none", "hadamard", "signed_hadamard", "matrix"]),
    "center": st.booleans(),
    "head_dim": st.sampled_from([128, 256]),
    "quantize_with": st.sampled_from(["exact", "stored"]),
}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.tuples(*(st.fixed_dictionaries({}, optional=SMALL) for _ in range(2))))
def test_near_layouts_differ_where_their_ids_do(sides):
    layouts = []
    for side in sides:
        value = {"codec": "uniform", "bits": 4, **side}
        if value["bits"] == 8 or "group" in value:
            value.pop("packing", None)
        text = json.dumps({"tqgen": 1, "name": "x", "head_dim": 128, "key": {"codec": "none"}, "value": value})
        layouts.append(resolve(parse_spec(text)))
    differ = [change for change in layout_changes(*layouts) if change.category is not API]
    assert bool(differ) == (layouts[0].layout_id != layouts[1].layout_id)
    assert all(change.breaks and change.old != change.new for change in differ)
    assert len({(change.category, change.subject) for change in differ}) == len(differ)


# launchers


@pytest.mark.parametrize(
    ("old", "new", "breaks"),
    [
        ("f(a, b)", "f(a, b, c=1)", False),
        ("f(a, b)", "f(a, b, *, c=1)", False),
        ("f(a, *, b=1)", "f(a, b=1)", False),
        ("f(a, b)", "f(a, b, c)", True),
        ("f(a, b)", "f(a, b, *, c)", True),
        ("f(a, b)", "f(b, a)", True),
        ("f(a, b)", "f(a)", True),
        ("f(a, b)", "f(a, *, b)", True),
        ("f(a, *, b)", "f(a, *, b=None)", False),
        ("f(a, *, b=None)", "f(a, *, b)", True),
        ("f(a, b=1)", "f(a, b=2)", True),
        ("f(a, *, b)", "f(a)", True),
        ("f(a)", "g(a)", True),
    ],
)
def test_signatures(old, new, breaks):
    before, after = (interface_of(f"def {text}: pass\ndef _private(x): pass\n") for text in (old, new))
    found = interface_changes(before, after)
    assert found and any(change.breaks for change in found) == breaks
    assert found[0].old == old.removeprefix("f")
    assert interface_changes(before, before) == []


def test_what_a_module_says():
    one = compiled({"value.rotation": "matrix"})
    interface = interface_of(one.source)
    assert interface == interface_of(one.draft)
    assert {"allocate", "store", "unpack", "rotate_attention_output"} <= set(interface)
    assert str(interface["store"]) == "(key, value, kv_cache, slot_mapping, *, value_rotation)"
    assert recorded_id(one.source) == one.layout.layout_id and recorded_id("x = 1\n") is None
    with pytest.raises(ValueError, match="not a Python module"):
        interface_of("def f(:\n")


def test_only_offsets_are_shortened_and_what_is_long_is_aligned(capsys):
    assert run(["diff", "mse3_v4", "none_vmse3"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "token*H*112 + head*112 + 48 -> token*H*100 + head*100 + 50" in " ".join(lines)
    (at,) = [n for n, line in enumerate(lines) if line.startswith("  decode_num_splits ")]
    assert "(num_sequences, num_query_heads, num_kv_heads, max_seq_len" in lines[at]
    (at,) = [n for n, line in enumerate(lines) if line.startswith("  store ")]
    assert lines[at].index("(key") == lines[at + 1].index("(key")
    assert lines[at + 1].strip().startswith("-> (key")
    assert lines[-1] == "offsets are in bytes from the block's start; bs = block_size, H = num_kv_heads"

"""Decode attention over pairs of what changes its kernels: how sides are taken apart, and every way to call it.

The matrix of `test_matrix_kernels.py` draws calls of attention for cells that are about the cache. Here they are axes,
and layouts are those that have kernels of their own: packed codes that become numbers of a tile, or of registers where
query rows are few.
"""

import functools
import json

import numpy as np
import pytest
import torch
from support import ptx_machine
from support.covering import covering
from support.kernels import kernels_of

from tqgen import verify
from tqgen.codecs import CODECS
from tqgen.layout.resolve import resolve
from tqgen.lower import lower
from tqgen.spec import parse_spec
from tqgen.verify import attention
from tqgen.verify.cells import Cell

KEYS = {
    "mse4": {"codec": "mse", "bits": 4, "norm_correction": "store"},
    "mse4_load": {"codec": "mse", "bits": 4, "norm_correction": "load", "norm": {"dtype": "bf16"}},
    "mse3": {"codec": "mse", "bits": 3, "norm": {"dtype": "fp32"}},
    "mse3_load": {"codec": "mse", "bits": 3, "norm_correction": "load"},
    "mse2": {"codec": "mse", "bits": 2},
    "uniform4": {"codec": "uniform", "bits": 4, "zero": {"dtype": "bf16"}},
    "uniform3": {"codec": "uniform", "bits": 3},
    "symmetric4": {"codec": "uniform", "bits": 4, "symmetric": True, "scale": {"dtype": "fp32"}},
    "halves": {"codec": "uniform", "bits": 4, "packing": "halves"},
    "uniform8": {"codec": "uniform", "bits": 8},
    "symmetric8": {"codec": "uniform", "bits": 8, "symmetric": True},
    "groups4": {"codec": "uniform", "bits": 4, "group": 32, "scale": {"dtype": "bf16"}},
    "groups2": {"codec": "uniform", "bits": 2, "group": 16, "zero": {"dtype": "bf16"}},
    "groups8": {"codec": "uniform", "bits": 8, "group": 8},
    "symmetric_groups4": {"codec": "uniform", "bits": 4, "group": 16, "symmetric": True},
    "symmetric_groups3": {"codec": "uniform", "bits": 3, "group": 32, "symmetric": True},
    "e4m3": {"codec": "fp8"},
    "e5m2": {"codec": "fp8", "format": "e5m2", "scale": {"dtype": "bf16"}},
}
VALUES = {
    "uniform4": {"codec": "uniform", "bits": 4},
    "uniform3": {"codec": "uniform", "bits": 3, "zero": {"dtype": "bf16"}},
    "uniform2": {"codec": "uniform", "bits": 2, "zero": {"dtype": "fp32"}},
    "symmetric4": {"codec": "uniform", "bits": 4, "symmetric": True},
    "symmetric3": {"codec": "uniform", "bits": 3, "symmetric": True},
    "mse4": {"codec": "mse", "bits": 4, "norm_correction": "store"},
    "mse4_load": {"codec": "mse", "bits": 4, "norm_correction": "load"},
    "mse3": {"codec": "mse", "bits": 3},
    "mse2": {"codec": "mse", "bits": 2},
    "halves": {"codec": "uniform", "bits": 4, "packing": "halves"},
    "uniform8": {"codec": "uniform", "bits": 8},
    "symmetric8": {"codec": "uniform", "bits": 8, "symmetric": True},
    "groups4": {"codec": "uniform", "bits": 4, "group": 32},
    "groups2": {"codec": "uniform", "bits": 2, "group": 16},
    "groups8": {"codec": "uniform", "bits": 8, "group": 8},
    "groups3": {"codec": "uniform", "bits": 3, "group": 16},
    "symmetric_groups4": {"codec": "uniform", "bits": 4, "group": 16, "symmetric": True},
    "symmetric_groups8": {"codec": "uniform", "bits": 8, "group": 64, "symmetric": True},
    "e4m3": {"codec": "fp8", "scale": {}},
    "e5m2": {"codec": "fp8", "format": "e5m2"},
}
ORDERS = {
    "head_major": ["head", "token", "field"],
    "planes": ["field", "head", "token"],
    "head_planes": ["head", "field", "token"],
}
AXES = {
    "key": tuple(KEYS),
    "value": tuple(VALUES),
    "block": ("aos", "soa", *ORDERS),
    "head_dim": ("64", "128"),
    "key.rotation": ("none", "hadamard", "signed_hadamard", "blocks", "matrix"),
    "value.rotation": ("none", "hadamard", "signed_hadamard", "matrix"),
    "center": ("none", "key", "value"),
    # few query rows have a kernel of their own, up to 8, up to 16 and twice that; of many, a program takes up to 32
    "group": ("1", "5", "12", "24", "40"),
    "queries": ("1", "3"),
    "form": attention.FORMS,
    "lengths": ("70-0-16", "17-135-1", "5-48-97"),
    "window": ("none", "1", "18", "60"),
    "softcap": ("none", "2.5"),
    "sinks": ("no", "yes"),
    "scale": ("default", "-0.07", "12"),  # with 12 scores are more than an exponential holds
    "splits": ("default", "3", "invariant"),
    "sliced": ("no", "yes"),
    "buffers": ("no", "yes"),
    "dtype": ("bf16", "fp16", "fp32"),
    "size": ("b16", "b4", "b24", "b6"),
    "tile": ("small", "large"),
    "assembly": ("no", "yes"),
}
# Keys and values are taken apart one after the other by the same templates.
UNRELATED = [frozenset(("key", "value")), frozenset(("key.rotation", "value.rotation"))]


def allowed(row):
    """What launchers refuse: options that a centre would have to enter."""
    sinks, softcap = row.get("sinks") == "yes", row.get("softcap", "none") != "none"
    return not (sinks and row.get("center", "none") != "none") and not (softcap and row.get("center") == "key")


def spec_of(row):
    key, value = dict(KEYS[row["key"]]), dict(VALUES[row["value"]])
    key["rotation"], value["rotation"] = row["key.rotation"], row["value.rotation"]
    if row["key.rotation"] == "blocks":
        key |= {"rotation": "hadamard", "rotation_block": 16}
    key["center"], value["center"] = row["center"] == "key", row["center"] == "value"
    block = row["block"]
    if block in ORDERS:
        parts = {"mse": ("codes", "norm")}

        def parts_of(side, one):
            names = parts.get(one["codec"], ("codes", "scale", "zero"))
            if one["codec"] == "fp8":
                names = ("codes", "scale") if "scale" in one else ("codes",)
            if one.get("symmetric"):
                names = ("codes", "scale")
            return [f"{side}.{name}" for name in names]

        fields = [*parts_of("key", key), *parts_of("value", value)]
        block = {"regions": [{"name": "all", "order": ORDERS[block], "fields": fields}]}
    return {
        "tqgen": 1,
        "name": "attending",
        "head_dim": int(row["head_dim"]),
        "key": key,
        "value": value,
        "block": block,
    }


def call_of(row):
    options = {}
    if row["window"] != "none":
        options["window"] = int(row["window"])
    if row["softcap"] != "none":
        options["softcap"] = float(row["softcap"])
    if row["sinks"] == "yes":
        options["sinks"] = True
    if row["scale"] != "default":
        options["softmax_scale"] = float(row["scale"])
    if row["splits"] != "default":
        options.update({"batch_invariant": True} if row["splits"] == "invariant" else {"num_splits": 3})
    return attention.Call(
        group=int(row["group"]),
        queries=int(row["queries"]),
        lengths=tuple(map(int, row["lengths"].split("-"))),
        options=options,
        form=row["form"],
        sliced=row["sliced"] == "yes",
        buffers=row["buffers"] == "yes",
    )


@functools.cache
def rows():
    return covering(AXES, allowed, UNRELATED).rows


def parameters():
    return [
        pytest.param(row, id=f"{n:02d}-{row['key']}-{row['value']}-{row['block']}-{row['head_dim']}")
        for n, row in enumerate(rows())
    ]


# Without a form for few query rows: values whose runs are no whole bytes at even addresses, and long keys of many units
# or of many groups.
WITHOUT_FEW = {
    ("64", "key"): set(),
    ("64", "value"): {"uniform3", "symmetric3", "mse3", "groups3", "mse4_load"},
    ("128", "key"): set(),
    ("128", "value"): {"mse4_load"},
    ("256", "key"): {"mse3", "mse3_load", "mse2", "uniform3", *(name for name in KEYS if "groups" in name)}
    - {"groups4", "symmetric_groups4"},
    ("256", "value"): {"mse4_load", "groups8"},
}


@pytest.mark.parametrize("head_dim", ["64", "128", "256"])
@pytest.mark.parametrize("side", ["key", "value"])
def test_no_codec_loses_the_forms_of_kernels_that_it_has(side, head_dim):
    """Any other form gives the same numbers: nothing else here would tell that a quick one is gone."""
    without = set()
    for name, codec in {"key": KEYS, "value": VALUES}[side].items():
        sides = {"key": KEYS["mse4"], "value": VALUES["uniform4"], side: codec}
        spec = {"tqgen": 1, "name": "forms", "head_dim": int(head_dim), **sides, "block": "soa"}
        plan = lower(resolve(parse_spec(json.dumps(spec), "forms.yaml")), "forms.yaml").attention
        made = dict(plan.sides)[side]
        groups = "groups" in name and codec["group"] < int(head_dim)
        assert made.folded != groups and (made.decoded.kind == "counted" if groups else not made.decoded), name
        if made.folded:
            assert made.source == {2: "halves", 3: "pairs"}.get(codec.get("bits"), "words"), name
        without |= set() if plan.fragments else {name}
    assert without == WITHOUT_FEW[head_dim, side]


@pytest.mark.parametrize("row", parameters())
def test_attention(row, monkeypatch, tally):
    text = json.dumps(spec_of(row))
    kernels = kernels_of(text, row["tile"])
    if row["assembly"] == "yes" and verify.device().type == "cpu":
        ptx_machine.install()
        monkeypatch.setattr(kernels.module, "_has_ptx", lambda *_: True)
    cell = Cell(dtype=row["dtype"], block=row["size"], heads="h2", places="edges", cache="padded")
    with np.errstate(all="ignore"):
        result = attention.attend(kernels.layout, kernels.module, cell, verify.device(), call_of(row))
    assert result.ok, f"{row}\n{text}\n{result}"
    tally("interpreter", cells=1, values=row, wanted=AXES)


MERGED = {"none": {}, "hadamard": {"center": True}, "matrix": {"center": True}}


@pytest.mark.parametrize("rotation", MERGED)
@pytest.mark.parametrize("splits", [1, 2, 3, 5])
def test_splits_are_merged_some_at_a_time(splits, rotation, tally):
    """Query rows one by one, two splits at once: all of them, some that are left over, and empty ones at the end."""
    value = {"codec": "uniform", "bits": 4, "rotation": rotation, **MERGED[rotation]}
    spec = {"tqgen": 1, "name": "merging", "head_dim": 16, "key": {"codec": "mse", "bits": 4}, "value": value}
    kernels = kernels_of(json.dumps(spec))
    options = {"num_splits": splits, "sinks": True} if rotation == "none" else {"num_splits": splits}
    call = attention.Call(group=2, queries=2, lengths=(splits * 64 - 3, 65), options=options)
    cell = Cell(block="b16", heads="h2", places="edges")
    result = attention.attend(kernels.layout, kernels.module, cell, verify.device(), call)
    assert result.ok, str(result)
    tally("interpreter", cells=1)


@pytest.mark.parametrize("assembled", [False, True], ids=["without", "with PTX"])
@pytest.mark.parametrize("group", [4, 24])
@pytest.mark.parametrize(("key", "value"), [(key, tuple(VALUES)[n]) for n, key in enumerate(KEYS)])
def test_numbers_of_tiles_one_by_one(key, value, group, assembled, monkeypatch, tally):
    """Each query sees one position, and of its key one element: no sum hides a number that is a little off."""
    row = {"key": key, "value": value, "block": "aos", "head_dim": "64", "center": "none"}
    rotation = "signed_hadamard" if KEYS[key]["codec"] == "mse" else "none"
    kernels = kernels_of(json.dumps(spec_of({**row, "key.rotation": rotation, "value.rotation": "none"})))
    if assembled and verify.device().type == "cpu":
        ptx_machine.install()
        monkeypatch.setattr(kernels.module, "_has_ptx", lambda *_: True)
    call = attention.Call(group, 3, (64, 16), {"window": 1, "softmax_scale": 1.0}, probes=True)
    cell = Cell(dtype="fp16", block="b16", heads="h2", places="edges")
    result = attention.attend(kernels.layout, kernels.module, cell, verify.device(), call)
    assert result.ok, str(result)
    tally("interpreter", cells=1)


@pytest.mark.parametrize("value", ["uniform4", "mse4"])
@pytest.mark.parametrize("group", [4, 40])
@pytest.mark.parametrize(
    ("dtype", "size"), [("bf16", 1e-37), ("bf16", 1e-20), ("bf16", 1e18), ("fp16", 0.0), ("fp16", 1e-6), ("fp16", 4e3)]
)
def test_sums_stay_finite_whatever_the_size_of_values(dtype, size, group, value):
    """A scale's power of two goes into exponentials, of which the sum alone must neither overflow nor vanish."""
    side = {"uniform4": {"codec": "uniform", "bits": 4, "scale_floor": 2e-38}, "mse4": {"codec": "mse", "bits": 4}}[
        value
    ]
    name = "norm" if value == "mse4" else "scale"
    side |= {name: {"dtype": dtype}} | ({"zero": {"dtype": dtype}} if name == "scale" else {})
    spec = {"tqgen": 1, "name": "sized", "head_dim": 64, "key": {"codec": "mse", "bits": 4}, "value": side}
    kernels, where = kernels_of(json.dumps(spec)), verify.device()
    # few query rows have a kernel where scales cannot be of any size
    assert bool(kernels.plan.attention.fragments) == (dtype == "fp16")
    module = kernels.module
    cache = module.allocate(8, 16, 1, device=where)
    vectors = torch.randn(2, 128, 1, 64, generator=torch.Generator().manual_seed(1)).to(where)
    module.store(vectors[0], vectors[1] * size, cache, torch.arange(128, device=where))
    table, lengths = (
        torch.arange(8, dtype=torch.int32)[None].to(where),
        torch.tensor([128], dtype=torch.int32).to(where),
    )
    output = module.decode_attention(vectors[0, :group].view(1, group, 64), cache, table, lengths)
    assert output.isfinite().all() and output.abs().max() <= 4 * size


@pytest.mark.parametrize("group", [4, 40])
@pytest.mark.parametrize("exponent", [-100, -66, 10])
def test_queries_of_any_size(exponent, group):
    """Keys that are as much smaller or larger by a power of two give the same scores."""
    bf16 = {"dtype": "bf16"}
    key = {"codec": "uniform", "bits": 4, "scale": bf16, "zero": bf16}
    spec = {"tqgen": 1, "name": "sized", "head_dim": 64, "key": key, "value": {"codec": "uniform", "bits": 4}}
    module, where = kernels_of(json.dumps(spec)).module, verify.device()
    vectors = torch.randn(2, 48, 1, 64, generator=torch.Generator().manual_seed(1)).to(where)
    table, lengths = torch.arange(3, dtype=torch.int32)[None].to(where), torch.tensor([48], dtype=torch.int32).to(where)

    def attended(factor):
        cache = module.allocate(3, 16, 1, device=where)
        module.store(vectors[0] / factor, vectors[1], cache, torch.arange(48, device=where))
        return module.decode_attention(vectors[0, :group].view(1, group, 64) * factor, cache, table, lengths)

    torch.testing.assert_close(attended(2.0**exponent), attended(1.0), rtol=0, atol=1e-3)


@pytest.mark.parametrize("assembled", [False, True], ids=["without PTX", "with"])
@pytest.mark.parametrize("symmetric", [False, True], ids=["zeros", "symmetric"])
@pytest.mark.parametrize(("bits", "small"), [(4, 2.0**-10), (8, 2.0**-6)])
def test_groups_of_one_vector_may_be_far_apart(bits, small, symmetric, assembled, monkeypatch):
    """What a group says that is 2**22 times smaller than its neighbour, or 2**18 times with 8 bits, is not lost."""
    side = {"codec": "uniform", "bits": bits, "group": 32, "symmetric": symmetric}
    spec = {"tqgen": 1, "name": "apart", "head_dim": 64, "key": side, "value": side}
    kernels, where = kernels_of(json.dumps(spec)), verify.device()
    assert kernels.plan.attention.fragments
    if assembled and where.type == "cpu":
        ptx_machine.install()
        monkeypatch.setattr(kernels.module, "_has_ptx", lambda *_: True)
    sizes = torch.tensor([2.0**12, small]).repeat_interleave(32).to(where)
    key, value, query = torch.randn(3, 32, 1, 64, generator=torch.Generator().manual_seed(3)).to(where)
    cache = kernels.module.allocate(2, 16, 1, device=where)
    slots = torch.arange(32, device=where)
    kernels.module.store(key * sizes, value * sizes, cache, slots)
    query = query.reshape(1, 32, 64)[:, :8] * (sizes < 1) / small  # large elements of keys count for nothing
    table, lengths = torch.arange(2, dtype=torch.int32)[None].to(where), torch.tensor([32], dtype=torch.int32).to(where)
    got = kernels.module.decode_attention(query.contiguous(), cache, table, lengths, softmax_scale=0.125)
    keys, values = kernels.module.unpack(cache, slots, dtype=torch.float32)
    shares = torch.softmax(query[0].double() @ keys[:, 0].double().T * 0.125, 1)
    assert ((got[0] - shares @ values[:, 0].double()).abs() <= 2**-8 * sizes).all()


@pytest.mark.parametrize("codec", [{"codec": "raw", "dtype": "bf16"}, {"codec": "fp8", "scale": {"dtype": "fp32"}}])
@pytest.mark.parametrize("power", [2.0**40, 2.0**-16, 2.0**-18])
@pytest.mark.parametrize("known", [True, False], ids=["decoded in registers", "decoded first"])
def test_vectors_need_not_be_of_sizes_that_fp16_has(known, power, codec, monkeypatch):
    """Numbers that are larger or smaller by a power of two give the same attention, but for that power.

    Vectors of zeros among them are of no size. A codec need not say how its codes become numbers.
    """
    spec = {"tqgen": 1, "name": "powers" if known else "unknown", "head_dim": 16}
    if not known:
        monkeypatch.setattr(type(CODECS[codec["codec"]]), "folding", lambda *_: None)
    kernels, where = kernels_of(json.dumps({**spec, "key": codec, "value": codec, "block": "aos"})), verify.device()
    module, plan = kernels.module, kernels.plan.attention
    assert not plan.value.folded and bool(plan.value.decoded) == known
    key, value, query = torch.randn(3, 32, 1, 16, generator=torch.Generator().manual_seed(2)).to(where)
    value[::4] = 0
    table, lengths = torch.arange(2, dtype=torch.int32).repeat(4, 1), torch.full((4,), 32, dtype=torch.int32)

    def attended(key_size, value_size):
        cache = module.allocate(2, 16, 1, device=where)
        module.store(key * key_size, value * value_size, cache, torch.arange(32, device=where))
        scale = 0.25 / key_size
        given = query.reshape(4, 8, 16), cache, table.to(where), lengths.to(where)
        return module.decode_attention(*given, softmax_scale=scale) / value_size

    exact = attended(1.0, 1.0)
    assert torch.equal(attended(power, 1.0), exact) and exact.abs().max() > 0.1
    # a power of two is added to exponents, and weights are rounded to fp16 after that, here and there
    assert (attended(1.0, power) - exact).abs().max() <= 2 * 2**-11 * value.abs().max()


@pytest.mark.parametrize("rotation", ["none", "hadamard", "matrix"])
def test_sides_that_are_decoded_first_may_be_held_by_quads(rotation, monkeypatch, tally):
    """Of these the store has no tile to decode, and attention wants one."""
    for codec in ("mse", "uniform"):
        monkeypatch.setattr(type(CODECS[codec]), "folding", lambda *_: None)
    sides = {"key": {"codec": "mse", "bits": 4}, "value": {"codec": "uniform", "bits": 4}}
    sides = {name: {**side, "rotation": rotation} for name, side in sides.items()}
    kernels = kernels_of(json.dumps({"tqgen": 1, "name": "decoded_first", "head_dim": 64, **sides, "block": "aos"}))
    assert kernels.plan.quads and not any(side.in_words for _, side in kernels.plan.attention.sides)
    call = attention.Call(group=4, queries=1, lengths=(70, 3), options={})
    cell = Cell(block="b16", heads="h2", places="edges", cache="padded")
    result = attention.attend(kernels.layout, kernels.module, cell, verify.device(), call)
    assert result.ok, str(result)
    tally("interpreter", cells=1)


@pytest.mark.parametrize(("side", "head_dim"), [("key", 128), ("value", 256)])
def test_words_around_runs_stay_inside_of_the_block(side, head_dim):
    """Runs of 12 bytes at even addresses, the last of which ends two bytes before its block does."""
    other = {"key": "value", "value": "key"}[side]
    codes = {"codec": "mse", "bits": 3}
    fields = [f"{other}.codes", f"{other}.norm", f"{side}.codes", f"{side}.norm"]
    block = {"regions": [{"name": "all", "order": ["token", "head", "field"], "fields": fields}]}
    spec = {"tqgen": 1, "name": "near", "head_dim": head_dim, side: codes, other: {**codes, "bits": 4}, "block": block}
    kernels = kernels_of(json.dumps(spec))
    assert kernels.plan.attention.fragments
    call = attention.Call(group=2, queries=1, lengths=(32,), options={})
    cell = Cell(block="b16", heads="h2", places="edges", cache="padded")
    result = attention.attend(kernels.layout, kernels.module, cell, verify.device(), call)
    assert result.ok, str(result)


@pytest.mark.parametrize("window", [2**31 - 1, 2**31, 2**63, 2**70])
@pytest.mark.parametrize("group", [2, 40])
def test_windows_wider_than_any_sequence(group, window):
    """Sequences have fewer positions than queries, none, or as many as their blocks: windows are counted in 32 bits."""
    spec = {"tqgen": 1, "name": "wide", "head_dim": 64, "key": {"codec": "mse", "bits": 4}, "value": {"codec": "fp8"}}
    kernels, where = kernels_of(json.dumps(spec)), verify.device()
    assert kernels.plan.attention.fragments
    cache = kernels.module.allocate(3, 16, 1, device=where)
    generator = torch.Generator().manual_seed(1)
    tokens, query = (torch.randn(*shape, 64, generator=generator).to(where) for shape in ((48, 1), (3, 4, group)))
    kernels.module.store(tokens, tokens, cache, torch.arange(48, device=where))
    table = torch.arange(3, dtype=torch.int32, device=where)[:, None]
    lengths = torch.tensor([0, 1, 16], dtype=torch.int32, device=where)  # nothing, and all that the table holds
    expected = kernels.module.decode_attention(query, cache, table, lengths)
    assert expected[1:, -1].abs().amax(-1).all()
    assert torch.equal(kernels.module.decode_attention(query, cache, table, lengths, window=window), expected)

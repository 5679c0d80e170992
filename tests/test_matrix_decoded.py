"""Decode attention of sides whose scales are not folded out of a tile, over pairs of what their kernels depend on.

Words of every width, groups of every size, numbers that are multiplied as they are stored, and vectors that fill no
tile. `test_matrix_attention.py` has the sides whose scales are folded, and every way to call attention.
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
from tqgen.lower.decoded import PIECE_BYTES
from tqgen.lower.ptx_decoded import decoding, fp8_decoding
from tqgen.numerics import floats
from tqgen.verify import attention
from tqgen.verify.cells import Cell

CODECS = {
    **{f"uniform{bits}": {"codec": "uniform", "bits": bits} for bits in range(1, 9)},
    **{f"symmetric{bits}": {"codec": "uniform", "bits": bits, "symmetric": True} for bits in (3, 4, 8)},
    "e4m3": {"codec": "fp8", "scale": {}},
    "e5m2": {"codec": "fp8", "format": "e5m2", "scale": {}},
    **{f"mse{bits}": {"codec": "mse", "bits": bits} for bits in (1, 3, 4, 5)},
    "mse1_load": {"codec": "mse", "bits": 1, "norm_correction": "load"},
    "mse4_load": {"codec": "mse", "bits": 4, "norm_correction": "load"},
    "mse6_load": {"codec": "mse", "bits": 6, "norm_correction": "load"},
    **{dtype: {"codec": "raw", "dtype": dtype} for dtype in ("fp16", "bf16", "fp32")},
}
GROUPED = ("uniform", "fp8")
GROUPS = ("whole", "4", "16", "24", "32")
DTYPES = ("fp16", "bf16", "fp32")
SIDE = {"codec": tuple(CODECS), "group": GROUPS, "packing": ("linear", "halves"), "dtype": DTYPES}
AXES = {
    "head_dim": ("16", "80", "96", "128", "192"),
    **{f"key.{axis}": values for axis, values in SIDE.items()},
    **{f"value.{axis}": values for axis, values in SIDE.items()},
    "block": ("soa", "aos", "head_planes"),
    "cache": ("tight", "padded", "odd"),
    "rows": ("1", "5", "40"),
    "softcap": ("none", "2.5"),
    "assembly": ("yes", "no"),
    "pattern": ("normal", "outlier_channel", "huge"),
}
UNRELATED = [frozenset((f"key.{one}", f"value.{other}")) for one in SIDE for other in SIDE]


def codec_of(row, side):
    return CODECS[row[f"{side}.codec"]]


def allowed(row):
    """What the language refuses, and what an axis says nothing of: such a side has the axis' first value."""
    for side in ("key", "value"):
        if f"{side}.codec" not in row:
            continue
        codec = codec_of(row, side)
        group, packing = row.get(f"{side}.group", "whole"), row.get(f"{side}.packing", "linear")
        bits, head_dim = codec.get("bits", 8), int(row.get("head_dim", 0))
        if group != "whole" and (codec["codec"] not in GROUPED or head_dim % int(group)):
            return False
        if packing == "halves":
            unit = 8 // np.gcd(8, bits)
            if "bits" not in codec or bits == 8 or head_dim % (unit if group == "whole" else unit * int(group)):
                return False
        elif group != "whole" and int(group) * bits % 8:
            return False
        if codec["codec"] == "raw" and row.get(f"{side}.dtype", "fp16") != "fp16":
            return False
    return not (row.get("pattern") == "huge" and row.get("softcap", "none") != "none")


def side_of(row, side):
    said = dict(codec_of(row, side))
    if row[f"{side}.group"] != "whole":
        said["group"] = int(row[f"{side}.group"])
    if row[f"{side}.packing"] == "halves":
        said["packing"] = "halves"
    dtype = {"dtype": row[f"{side}.dtype"]}
    if said["codec"] == "mse":
        said["norm"] = dtype
    elif said["codec"] != "raw":
        said["scale"] = dtype
        if said["codec"] == "uniform" and not said.get("symmetric"):
            said["zero"] = dtype
    return said


def spec_of(row):
    key, value = side_of(row, "key"), side_of(row, "value")
    block = row["block"]
    if block == "head_planes":

        def fields(name, side):
            parts = {"mse": ("codes", "norm"), "raw": ("codes",), "fp8": ("codes", "scale")}
            grid = ("codes", "scale") if side.get("symmetric") else ("codes", "scale", "zero")
            return [f"{name}.{part}" for part in parts.get(side["codec"], grid)]

        names = [*fields("key", key), *fields("value", value)]
        block = {"regions": [{"name": "all", "order": ["head", "field", "token"], "fields": names}]}
    return {
        "tqgen": 1,
        "name": "decoding",
        "head_dim": int(row["head_dim"]),
        "key": key,
        "value": value,
        "block": block,
    }


@functools.cache
def rows():
    return covering(AXES, allowed, UNRELATED).rows


def parameters():
    return [
        pytest.param(row, id=f"{n:03d}-{row['key.codec']}-{row['value.codec']}-{row['head_dim']}")
        for n, row in enumerate(rows())
    ]


@pytest.mark.parametrize("row", parameters())
def test_attention(row, monkeypatch, tally):
    text = json.dumps(spec_of(row))
    kernels = kernels_of(text)
    if row["assembly"] == "yes" and verify.device().type == "cpu":
        ptx_machine.install()
        monkeypatch.setattr(kernels.module, "_has_ptx", lambda *_: True)
    options = {} if row["softcap"] == "none" else {"softcap": float(row["softcap"])}
    call = attention.Call(group=int(row["rows"]), queries=1, lengths=(70, 3), options=options)
    cell = Cell(block="b16", heads="h2", places="edges", cache=row["cache"], pattern=row["pattern"])
    with np.errstate(all="ignore"):
        result = attention.attend(kernels.layout, kernels.module, cell, verify.device(), call)
    assert result.ok, f"{row}\n{text}\n{result}"
    tally("interpreter", cells=1, values=row, wanted=AXES)


def test_every_way_to_load_metadata_is_taken():
    """One number, pieces of 8 bytes and of fewer, and items one by one for each unit."""
    ways = set()
    for row in rows():
        plan = kernels_of(json.dumps(spec_of(row))).plan.attention
        for _, side in plan.sides:
            for item in side.decoded.items if side.decoded else ():
                ways.add("one" if item.one else "by unit" if item.by_unit else item.piece_bytes)
    assert ways == {"one", "by unit", 2, 4, PIECE_BYTES}


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize(("flip", "offsets"), [(False, True), (False, False), (True, False)])
def test_two_codes_at_a_time_are_rounded_once(bits, flip, offsets):
    """Every code at every place of a word, times a factor plus an offset: the nearest fp16 number."""
    middle = 2 ** (bits - 1)
    codes_of_word, rng = 32 // bits, np.random.default_rng(bits)
    groups = tuple(n % codes_of_word * bits // 16 for n in range(codes_of_word)) if bits == 8 else (0,) * codes_of_word
    made = decoding(bits, groups, middle * flip, middle * flip, offsets)
    codes = rng.integers(0, 2**bits, (4096, codes_of_word))
    words = (codes.astype(np.uint64) << (bits * np.arange(codes_of_word, dtype=np.uint64))).sum(1).astype(np.uint32)
    count = max(groups) + 1
    factors, added = rng.normal(size=(2, count, len(words))).astype(np.float16)
    given = [*factors, *added] if offsets else [*factors]
    twice = [number.view(np.uint16).astype(np.uint32) * np.uint32(0x10001) for number in given]
    constants = [np.full_like(words, constant) for constant in made.constants]
    halves = ptx_machine.run(made.assembly, codes_of_word, [words, *twice, *constants])
    got = np.stack(halves, 1).astype(np.uint16).view(np.float16)
    of = np.array(groups)[list(made.order)]
    numbers = ((codes ^ middle) - middle if flip else codes)[:, made.order].astype(np.float64)
    exact = numbers * factors.T[:, of].astype(np.float64) + (added.T[:, of].astype(np.float64) if offsets else 0.0)
    assert np.array_equal(got.astype(np.float64), floats.round_to(exact, "fp16") + 0.0)


@pytest.mark.parametrize("format", ["e4m3", "e5m2"])
def test_numbers_of_fp8_are_multiplied_and_rounded_once(format):
    codes = np.arange(256).repeat(8)
    codes = codes[np.isfinite(floats.from_bits(codes, format))]
    codes = codes[: len(codes) // 4 * 4].reshape(-1, 4)
    factors = np.random.default_rng(3).normal(size=(2, len(codes))).astype(np.float16)
    made = fp8_decoding(format, (0, 0, 1, 1))
    words = (codes.astype(np.uint64) << (8 * np.arange(4, dtype=np.uint64))).sum(1).astype(np.uint32)
    twice = [number.view(np.uint16).astype(np.uint32) * np.uint32(0x10001) for number in factors]
    halves = ptx_machine.run(made.assembly, 4, [words, *twice])
    got = np.stack(halves, 1).astype(np.uint16).view(np.float16)
    exact = floats.from_bits(codes, format) * factors.T[:, [0, 0, 1, 1]].astype(np.float64)
    with np.errstate(over="ignore"):
        assert np.array_equal(got, exact.astype(np.float16))


def test_codes_of_two_groups_are_not_taken_as_a_pair():
    assert decoding(4, (0, 0, 0, 0, 1, 1, 1, 1), 0, 0, True) is None
    assert decoding(4, (0, 1, 0, 1, 0, 1, 0, 1), 0, 0, True) is not None
    assert decoding(3, (0,) * 10, 0, 0, True) is None
    assert fp8_decoding("e4m3", (0, 1, 1, 1)) is None


def small(size, codec, group):
    """Output and value magnitudes of sides whose vectors are as large as `size`, times a power of ten each."""
    spec = {"tqgen": 1, "name": "sized", "head_dim": 64, "key": {"codec": "fp8"}, "value": codec}
    module, where = kernels_of(json.dumps(spec)).module, verify.device()
    cache = module.allocate(8, 16, 1, device=where)
    vectors = torch.randn(2, 128, 1, 64, generator=torch.Generator().manual_seed(1)).to(where)
    module.store(vectors[0], vectors[1] * size, cache, torch.arange(128, device=where))
    table = torch.arange(8, dtype=torch.int32)[None].to(where)
    lengths = torch.tensor([128], dtype=torch.int32).to(where)
    return module.decode_attention(vectors[0, :group].view(1, group, 64), cache, table, lengths)


BF16 = {"dtype": "bf16"}


@pytest.mark.parametrize("group", [4, 24])
@pytest.mark.parametrize(
    "codec",
    [
        {"codec": "uniform", "bits": 4, "group": 32, "scale_floor": 2e-38, "scale": BF16, "zero": BF16},
        {"codec": "raw", "dtype": "bf16"},
        {"codec": "raw", "dtype": "fp32"},
    ],
)
@pytest.mark.parametrize("size", [1e-18, 1e-12, 1e18, 1e33])
def test_values_of_any_size(size, codec, group):
    """As much smaller or larger, with the same weights."""
    expected, got = small(1.0, codec, group), small(size, codec, group)
    assert ((got / size - expected).abs().max() <= 2e-2 * expected.abs().max()).item()


def test_a_power_of_two_does_not_change_numbers():
    """Values in tokens that differ by all that fp16 has: the small ones count where the large have no weight."""
    spec = {
        "tqgen": 1,
        "name": "far",
        "head_dim": 64,
        "key": {"codec": "fp8"},
        "value": {"codec": "raw", "dtype": "fp16"},
    }
    module, where = kernels_of(json.dumps(spec)).module, verify.device()
    cache = module.allocate(1, 16, 1, device=where)
    keys, values = torch.zeros(2, 2, 1, 64, device=where)
    keys[0, 0, 0], values[0] = 16.0, 1e-3
    keys[1, 0, 0], values[1] = 0.0, 6e4
    module.store(keys, values, cache, torch.arange(2, device=where))
    query = torch.zeros(1, 1, 64, device=where)
    query[0, 0, 0] = 1.5
    table, lengths = torch.zeros(1, 1, dtype=torch.int32, device=where), torch.tensor(
        [2], dtype=torch.int32, device=where
    )
    output = module.decode_attention(query, cache, table, lengths, softmax_scale=1.0)
    exact = (values[0, 0].double() + values[1, 0].double() * 2.718281828459045**-24) / (1 + 2.718281828459045**-24)
    assert ((output[0, 0].double() - exact).abs() <= 2e-3 * exact).all()

"""Generated kernels against results that were computed by hand, and against themselves in another order.

The reference is not asked here: these bytes are right whatever it says.
"""

import functools
import json
import math

import numpy as np
import pytest
import torch
from support.far_apart import differs, differs_in_a_large_block, far_buffer, large_block
from support.kernels import kernels_of

from tqgen.numerics import floats
from tqgen.verify import device

GUARD = 0xEE
UNIFORM = {"codec": "uniform", "scale": {"dtype": "fp32"}, "zero": {"dtype": "fp32"}}
FP8 = {"codec": "fp8", "format": "e4m3", "scale": {"dtype": "fp32"}}
NONE = {"codec": "none"}
PLAIN4 = {"codec": "mse", "bits": 4}
MSE4 = {**PLAIN4, "rotation": "hadamard"}


def kernels(key=NONE, value=NONE, *, head_dim=128, block="aos", tile="small"):
    data = {"tqgen": 1, "name": "by_hand", "head_dim": head_dim, "key": key, "value": value, "block": block}
    return kernels_of(json.dumps(data), tile)


def filled(made, num_blocks, block_size, heads):
    return made.module.allocate(num_blocks, block_size, heads, device=device()).fill_(GUARD)


def stored(side, vectors, *, dtype=torch.float32, where="value", head_dim=None, **run_time):
    """The bytes of each part of vectors [N, D], one token and one head each, as uint8 [N, bytes]."""
    tensor = torch.as_tensor(np.atleast_2d(vectors)).to(dtype).to(device())[:, None]
    made = kernels(**{where: side}, head_dim=head_dim or tensor.shape[-1])
    cache = filled(made, 1, len(tensor), 1)
    given = {"key": None, "value": None, where: tensor}
    made.module.store(given["key"], given["value"], cache, torch.arange(len(tensor), device=device()), **run_time)
    flat = cache.reshape(-1).cpu().numpy()
    found = {}
    for field in made.layout.fields:
        places = [field.address(token, 0, len(tensor), 1) for token in range(len(tensor))]
        found[field.part.name] = np.stack([flat[at : at + field.part.num_bytes] for at in places])
    return made, cache, found


def hexes(found, token=0):
    return {name: data[token].tobytes().hex(" ").upper() for name, data in found.items()}


def unpacked(made, cache, where="value", space="model", dtype=torch.float32, **run_time):
    slots = torch.arange(cache.shape[1], device=device())
    pair = made.module.unpack(cache, slots, space=space, dtype=dtype, **run_time)
    return pair[("key", "value").index(where)][:, 0].double().cpu().numpy()


# packing: with steps of at least 1, integers up to 2**bits - 1 above a zero are their own codes

PACKED = {
    1: "AA",
    2: "E4 E4",
    3: "88 C6 FA",
    4: "10 32 54 76",
    5: "20 88 41 8A 39",
    6: "40 20 0C 44 61 1C",
    7: "80 80 60 40 28 18 0E",
}


def packed(bits, codes):
    _, _, found = stored({**UNIFORM, "bits": bits, "scale_floor": 1.0}, np.asarray(codes, dtype=float))
    assert found["scale"].tobytes() == np.float32(1).tobytes() and not found["zero"].any()
    return hexes(found)["codes"]


@pytest.mark.parametrize("bits", PACKED)
def test_packing(bits):
    assert packed(bits, [i % 2**bits for i in range(8)]) == PACKED[bits]


@pytest.mark.parametrize(
    ("bits", "codes", "expected"),
    [
        (3, [*range(8), *range(4)], "88 C6 FA 88 06"),
        (3, [i % 8 for i in range(10)], "88 C6 FA 08"),
        (4, range(9), "10 32 54 76 08"),
        (3, [i % 8 for i in range(100)], " ".join(["88 C6 FA"] * 12 + ["88 06"])),
        (3, [0, 0, 7, 0, 0, 0, 0, 0], "C0 01 00"),
        (3, [0, 0, 0, 0, 0, 7, 0, 0], "00 80 03"),
        (5, [0, 0, 0, 31, 0, 0, 0, 0], "00 80 0F 00 00"),
    ],
    ids=["12 elements", "10 elements", "9 elements", "100 elements", "element 2", "element 5", "element 3"],
)
def test_tails_and_codes_across_bytes(bits, codes, expected):
    assert packed(bits, codes) == expected


# slots


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("block", ["aos", "soa"])
def test_padding_tokens_are_written_nowhere(dtype, block):
    made = kernels(MSE4, {"codec": "uniform", "bits": 4}, block=block)
    slots = torch.tensor([0, -1, 17, torch.iinfo(dtype).min], dtype=dtype, device=device())
    vectors = torch.randn(4, 2, 128, generator=torch.Generator().manual_seed(0)).to(device())
    cache = filled(made, 2, 16, 2)
    made.module.store(vectors, vectors, cache, slots)
    changed = np.argwhere(cache.reshape(2, -1).cpu().numpy() != GUARD)
    allowed = set()
    for block_index, token in ((0, 0), (1, 1)):
        for field in made.layout.fields:
            for head in (0, 1):
                start = field.address(token, head, 16, 2)
                allowed |= {(block_index, start + byte) for byte in range(field.part.num_bytes)}
    assert len(allowed) == 2 * 2 * 134
    assert set(map(tuple, changed.tolist())) <= allowed and len(changed) > 0.95 * len(allowed)


def test_addresses():
    """D=128, 4 + 4 bits, 16 tokens a block, 2 heads; the token at offset 5, head 1."""
    expected = {
        "aos": {"key.codes": 1474, "key.norm": 1538, "value.codes": 1540, "value.scale": 1604, "value.zero": 1606},
        "soa": {"key.codes": 1408, "key.norm": 4202, "value.codes": 1472, "value.scale": 4234, "value.zero": 4266},
    }
    for block, places in expected.items():
        made = kernels(MSE4, {"codec": "uniform", "bits": 4}, block=block)
        cache = filled(made, 1, 16, 2)
        assert cache.numel() == 4288
        key, value = torch.zeros(1, 2, 128), torch.zeros(1, 2, 128)
        key[0, 1, 0] = 10.0  # codes BB, norm 0x4900
        value[0, 1] = torch.arange(128) % 16 + 3  # codes 10 32 54 .., scale 0x3C00, zero 0x4200
        made.module.store(key.to(device()), value.to(device()), cache, torch.tensor([5], device=device()))
        flat = cache.reshape(-1).cpu().numpy()
        at = lambda name, length: flat[places[name] : places[name] + length].tobytes().hex()  # noqa: B023, E731
        assert at("key.codes", 64) == "bb" * 64
        assert at("key.norm", 2) == "0049"
        assert at("value.codes", 64) == "1032547698badcfe" * 8
        assert at("value.scale", 2) == "003c" and at("value.zero", 2) == "0042"


# codecs


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("bits", "expected"), [(4, "BB " * 64), (3, "6D DB B6 " * 16)])
def test_a_basis_vector(bits, expected, dtype):
    vector = 10 * np.eye(128)[0]
    key = {**MSE4, "bits": bits}
    _, _, found = stored(key, vector, dtype=dtype, where="key")
    assert hexes(found) == {"codes": expected.strip(), "norm": "00 49"}
    for correction in ("store", "load"):
        side = {**key, "norm_correction": correction, "norm": {"dtype": "fp32"}}
        made, cache, _ = stored(side, vector, dtype=dtype, where="key")
        assert np.abs(unpacked(made, cache, "key") - vector).max() < 1e-5


def test_zeros_and_tiny_numbers():
    tiny = 1e-9 * np.random.default_rng(0).standard_normal((8, 128))
    for vectors in (np.zeros((8, 128)), tiny):
        for correction in ("none", "store", "load"):
            made, cache, found = stored({**MSE4, "norm_correction": correction}, vectors, where="key")
            assert np.abs(unpacked(made, cache, "key")).max() < 1e-7
            if not vectors.any():
                assert not found["norm"].any()
        made, cache, _ = stored({"codec": "uniform", "bits": 4}, vectors)
        assert np.abs(unpacked(made, cache)).max() < 1e-7


@pytest.mark.parametrize(("number", "zero", "back"), [(3.0, "00 42", 3.0), (0.1, "66 2E", 0.0999755859375)])
def test_constants(number, zero, back):
    made, cache, found = stored({"codec": "uniform", "bits": 4}, np.full(16, number))
    parts = hexes(found)
    assert parts["codes"] == " ".join(["00"] * 8) and parts["zero"] == zero
    assert (unpacked(made, cache) == back).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", [{"codec": "uniform", "bits": 4}, MSE4, PLAIN4], ids=["uniform", "mse", "plain mse"])
def test_numbers_that_are_not_finite(side, bad):
    clean = np.tile(np.arange(1.0, 17.0), (3, 1))
    vectors = clean.copy()
    vectors[1, 4] = bad
    plain, marked = stored(side, clean)[2], stored(side, vectors)[2]
    for token in (0, 2):  # the neighbours are as they were
        assert hexes(marked, token) == hexes(plain, token)
    if side["codec"] == "mse":
        # what Inf does to a rotated vector depends on the order of its sums
        norm = "00 7E" if np.isnan(bad) or side is MSE4 else "00 7C"
        assert hexes(marked, 1) == {"codes": " ".join(["88"] * 8), "norm": norm}
    else:
        assert hexes(marked, 1) == {"codes": " ".join(["00"] * 8), "scale": "00 7E", "zero": "00 7E"}

    # saturate: as if another number had been given
    replaced = clean.copy()
    replaced[1, 4] = 0.0 if np.isnan(bad) else np.copysign(65504.0, bad)
    saturating = {**side, "non_finite": "saturate"}
    assert hexes(stored(saturating, vectors)[2], 1) == hexes(stored(side, replaced)[2], 1)


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [("half_up", [0, 1, 2, 3, 7, 15]), ("half_even", [0, 0, 2, 2, 6, 15]), ("half_away", [0, 1, 2, 3, 7, 15])],
)
def test_rounding(rounding, expected):
    _, _, found = stored({**UNIFORM, "bits": 4, "rounding": rounding}, [0, 0.5, 1.5, 2.5, 6.5, 15])
    nibbles = [nibble for byte in found["codes"][0] for nibble in (byte & 15, byte >> 4)]
    assert nibbles == expected


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        ("half_up", [0, -1, -2, 3, 7, -7]),
        ("half_even", [0, -2, -2, 2, 7, -7]),
        ("half_away", [-1, -2, -3, 3, 7, -7]),
    ],
)
def test_rounding_of_signed_codes(rounding, expected):
    side = {"codec": "uniform", "bits": 4, "symmetric": True, "rounding": rounding, "scale": {"dtype": "fp32"}}
    _, _, found = stored(side, [-0.5, -1.5, -2.5, 2.5, 7, -7])
    nibbles = [nibble for byte in found["codes"][0] for nibble in (byte & 15, byte >> 4)]
    assert nibbles == [code % 16 for code in expected]


@pytest.mark.parametrize("packing", ["linear", "halves"])
@pytest.mark.parametrize(("symmetric", "expected"), [(True, [7, -8, 1, -1]), (False, [15, 0, 13, 5])])
def test_codes_beyond_the_grid_are_clamped(symmetric, expected, packing):
    """A scale that loses almost a third as it is rounded to a subnormal fp16 number: quotients are as much larger."""
    extent = 7 if symmetric else 7.5
    vector = 1.4 * 2.0**-24 * np.float64([extent, -extent, 1, -1] if symmetric else [7.5, -7.5, 1.7, -4.0])
    side = {"codec": "uniform", "bits": 4, "symmetric": symmetric, "quantize_with": "stored", "packing": packing}
    side |= {} if symmetric else {"zero": {"dtype": "fp32"}}
    _, _, found = stored(side, np.resize(vector, 64))
    low, high = found["codes"][0] & 15, found["codes"][0] >> 4
    nibbles = np.concatenate([low, high]) if packing == "halves" else np.stack([low, high], -1).ravel()
    wanted = np.resize([code % 16 for code in expected], 64)
    np.testing.assert_array_equal(nibbles, wanted)


@pytest.mark.parametrize(("floor", "divides"), [(1e-8, False), (2.0**-99, False), (2.0**-101, True), (2.0**-126, True)])
def test_steps_are_quotients_where_no_remainder_is_subnormal(floor, divides):
    """GPUs flush a subnormal remainder to zero, which no interpreter does: smaller steps come of a division."""
    side = {**UNIFORM, "bits": 4, "scale_floor": floor}
    step = kernels(value=side).plan.value.constants.step_of("extent")
    assert ("div_rn" in step) == divides and ("_quotient" in step) != divides
    extents = np.float32(floor) * np.float32([[16.0, 37.0, 1000.0]]).T
    _, _, found = stored(side, extents * np.linspace(0, 1, 32, dtype=np.float32))
    np.testing.assert_array_equal(found["scale"].view("<f4"), extents / np.float32(15))


E4M3 = [1.0, 1.0625, 1.97, -0.49268, 448, 449, 464, 1e4, 2**-6, 2**-9, 1.5 * 2**-10, 2**-10, -0.0, np.nan, np.inf]


# A code and a little more than half, in units of a scale that is half a percent above the floor of scales: divided by a
# floor that is one percent too high, it would be less than half.
@pytest.mark.parametrize(
    "side, units, place, byte",
    [(UNIFORM | {"bits": 4}, [*[0.0] * 14, 1.503, 15.0], 7, 0xF2), (FP8, [17.05, 448.0, *[0.0] * 14], 0, 0x59)],
    ids=["uniform", "fp8"],
)
@pytest.mark.parametrize("quantize_with", ["exact", "stored"])
def test_a_scale_just_above_its_floor_is_what_is_divided_by(side, units, place, byte, quantize_with):
    scale = 1.005e-8
    _, _, found = stored({**side, "quantize_with": quantize_with}, scale * np.array(units))
    assert found["codes"][0][place] == byte
    np.testing.assert_allclose(found["scale"][0].view(np.float32), [scale], rtol=1e-6)


def test_e4m3():
    _, _, found = stored({"codec": "fp8"}, np.float32(E4M3))
    assert hexes(found)["codes"] == "38 38 40 B0 7E 7E 7E 7E 08 01 01 00 80 7F 7E"


@pytest.mark.parametrize(("name", "torch_dtype"), [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)])
def test_every_fp8_byte_is_decoded(name, torch_dtype):
    made = kernels(value={"codec": "fp8", "format": name}, head_dim=256)
    cache = filled(made, 1, 1, 1)
    cache[0, 0, 0] = torch.arange(256, dtype=torch.uint8)
    expected = torch.arange(256, dtype=torch.uint8).view(torch_dtype).double().numpy()
    np.testing.assert_array_equal(unpacked(made, cache)[0], expected)


@pytest.mark.parametrize("hardware", [False, True], ids=["by integers", "by the hardware's conversion"])
@pytest.mark.parametrize(("name", "torch_dtype"), [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)])
def test_fp8_rounds_as_the_format_says(name, torch_dtype, hardware, monkeypatch):
    """Every number of the format, every middle between two, and their neighbours in fp32, and what is beyond."""
    every = torch.arange(256, dtype=torch.uint8).view(torch_dtype).float()
    finite = every[every.isfinite()].sort().values
    middle = (finite[:-1] + finite[1:]) / 2
    nudged = [torch.nextafter(middle, torch.full_like(middle, side)) for side in (-np.inf, np.inf)]
    values = torch.cat([finite, middle, *nudged])
    values = torch.cat([values, torch.zeros(-len(values) % 64)]).reshape(-1, 64)
    side = {"codec": "fp8", "format": name}
    if device().type == "cpu":
        monkeypatch.setattr(kernels(value=side, head_dim=64).module, "_has_hardware_fp8", lambda _: hardware)
    _, _, found = stored(side, values.numpy())
    np.testing.assert_array_equal(found["codes"], values.to(torch_dtype).view(torch.uint8).numpy())
    beyond = np.float32([1.1, 2, 1e30, np.inf]) * float(finite.max())
    largest = int(finite.max().to(torch_dtype).view(torch.uint8))
    _, _, found = stored(side, np.resize(np.concatenate([beyond, -beyond, [np.nan, -np.nan]]), 64))
    wanted = [largest] * 4 + [largest | 0x80] * 4 + [0x7F] * 2
    np.testing.assert_array_equal(found["codes"][0], np.resize(wanted, 64))


MEAN_OFFSET = {
    ("signed_hadamard", 3): 0.030,
    ("signed_hadamard", 4): 0.0086,
    ("hadamard", 3): 0.537,
    ("hadamard", 4): 0.379,
}


FLOATS = {
    "fp16": (torch.float16, torch.int16, 0x7E00, range(-24, 15), 65520.0),
    "bf16": (torch.bfloat16, torch.int16, 0x7FC0, range(-133, 127), (2 - 2.0**-8) * 2.0**127),
    "fp32": (torch.float32, torch.int32, 0x7FC00000, range(-149, 127), math.inf),
}


@pytest.mark.parametrize("name", FLOATS)
def test_floats_round_as_the_format_says(name):
    """Numbers of every size and both signs, the middles between neighbours, whichever is even, what is next to them."""
    dtype, bits, nan, exponents, infinite = FLOATS[name]
    exponents = torch.tensor(exponents)
    numbers = (torch.tensor([1.0, 1.125, 1.25, 1.9921875])[:, None] * 2.0**exponents).to(dtype).ravel()
    after = (numbers.view(bits) + 1).view(dtype)
    middle = ((numbers.double() + after.double()) / 2).float()
    middle = torch.cat([middle, torch.tensor([infinite])])
    nudged = [torch.nextafter(middle, torch.full_like(middle, side)) for side in (0.0, np.inf)]
    values = torch.cat([numbers.float(), middle, *nudged, torch.zeros(1)])
    values = torch.cat([values, -values])
    values = torch.cat([values, torch.zeros(-len(values) % 64)]).reshape(-1, 64)
    side = {"codec": "raw", "dtype": name}
    made, cache, found = stored(side, values.numpy())
    rounded = values.to(dtype)
    assert found["codes"].tobytes() == rounded.view(bits).numpy().tobytes()
    np.testing.assert_array_equal(unpacked(made, cache), rounded.double().numpy())
    nans = np.uint32([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF]).view(np.float32)
    _, _, found = stored(side, np.resize(nans, 64))
    np.testing.assert_array_equal(found["codes"].view(f"<u{dtype.itemsize}"), np.full((1, 64), nan))


@pytest.mark.parametrize(("rotation", "bits"), MEAN_OFFSET)
def test_a_mean_offset_is_lost_without_signs(rotation, bits):
    vectors = 2 + np.random.default_rng(7).standard_normal((600, 128))
    side = {"codec": "mse", "bits": bits, "rotation": rotation, "norm_correction": "store"}
    made, cache, _ = stored(side, vectors, where="key")
    error = ((unpacked(made, cache, "key") - vectors) ** 2).sum() / (vectors**2).sum()
    assert error == pytest.approx(MEAN_OFFSET[rotation, bits], rel=0.06)


DISTORTION = {
    64: (0.117, 0.0329, 0.0089, 0.0023),
    128: (0.119, 0.0338, 0.0092, 0.0024),
    256: (0.120, 0.0343, 0.0094, 0.0025),
}


@pytest.mark.parametrize("bits", [2, 3, 4, 5])
@pytest.mark.parametrize("head_dim", DISTORTION)
def test_distortion_of_normal_vectors(head_dim, bits):
    """Fewer vectors than the reference is tried with, so the mean is known less well."""
    vectors = np.random.default_rng(1).standard_normal((30000 // head_dim, head_dim))
    side = {"codec": "mse", "bits": bits, "rotation": "hadamard", "norm_correction": "store", "norm": {"dtype": "fp32"}}
    made, cache, _ = stored(side, vectors, where="key")
    error = ((unpacked(made, cache, "key") - vectors) ** 2).sum() / (vectors**2).sum()
    assert error == pytest.approx(DISTORTION[head_dim][bits - 2], rel=0.06)


# in any order


ORDERS = {"at once": [40], "1 + 39": [1, 39], "one by one": [1] * 40, "shuffled": [40], "shuffled, by 7": [7] * 5 + [5]}
INVARIANT = {
    "mse3_uniform4": (
        {"codec": "mse", "bits": 3, "rotation": "hadamard", "norm_correction": "store"},
        {"codec": "uniform", "bits": 4},
    ),
    "fp8_mse5": (
        {"codec": "fp8", "scale": {"dtype": "fp16"}, "group": 32},
        {"codec": "mse", "bits": 5, "norm": {"dtype": "bf16"}},
    ),
    "grids": (
        {"codec": "uniform", "bits": 5, "symmetric": True, "group": 16, "rotation": "signed_hadamard"},
        {"codec": "uniform", "bits": 2, "packing": "halves", "rounding": "half_even"},
    ),
}


@pytest.mark.parametrize("block", ["aos", "soa"])
@pytest.mark.parametrize("sides", INVARIANT)
def test_order_and_dtype_of_tokens_change_no_byte(sides, block):
    key, value = INVARIANT[sides]
    made = kernels(key, value, head_dim=64, block=block)
    rng = np.random.default_rng(3)
    # numbers that fp16, bf16 and fp32 all have
    vectors = torch.from_numpy(rng.integers(-120, 121, (2, 40, 3, 64)) / 16)
    slots = torch.from_numpy(rng.permutation(3 * 16)[:40])
    caches = []
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        keys, values = vectors.to(dtype).to(device())
        for name, sizes in ORDERS.items() if dtype == torch.bfloat16 else [("at once", [40])]:
            order = torch.from_numpy(rng.permutation(40)) if "shuffled" in name else torch.arange(40)
            cache = filled(made, 3, 16, 3)
            for part in order.split(sizes):
                made.module.store(keys[part], values[part], cache, slots[part].to(device()))
            caches.append(cache.cpu())
    assert all(torch.equal(cache, caches[0]) for cache in caches[1:])


@pytest.mark.parametrize("tokens", [0, 1, 16, 17])
def test_unpack_reads_no_other_slot(tokens):
    """What is not asked for is 0xFF, which is NaN in every format, and never reaches an output."""
    made = kernels(MSE4, {"codec": "uniform", "bits": 4, "group": 32}, head_dim=64, block="soa")
    vectors = torch.randn(17, 2, 64, generator=torch.Generator().manual_seed(1)).to(device())
    slots = torch.arange(tokens, device=device())
    outputs = []
    for fill in (0xFF, 0x00):
        cache = filled(made, 2, 16, 2).fill_(fill)
        made.module.store(vectors[:tokens], vectors[:tokens], cache, slots)
        outputs.append(made.module.unpack(cache, slots))
    for one, other in zip(*outputs, strict=True):
        assert one.shape == (tokens, 2, 64) and one.isfinite().all() and torch.equal(one, other)


# padding

UNPACKED = (torch.float32, torch.float16)


@pytest.mark.parametrize("rotation", ["hadamard", "matrix"])
@pytest.mark.parametrize("correction", ["none", "load"])
def test_padding_takes_no_part_in_a_rotation(rotation, correction):
    """Norms at which a level that no element has, times the norm, is beyond fp16: it must not come into a sum."""
    side = {"codec": "mse", "bits": 8, "rotation": rotation, "norm": {"dtype": "bf16"}, "norm_correction": correction}
    run_time = {"value_rotation": torch.eye(96, device=device())} if rotation == "matrix" else {}
    if rotation == "hadamard":
        side["rotation_block"] = 32
    vectors = 1.8e4 * torch.randn(4, 96, generator=torch.Generator().manual_seed(0)).clamp(-3, 3)
    made, cache, _ = stored(side, vectors, **run_time)
    assert made.plan.sides[0].lanes.mask
    for space in ("model", "rotated"):
        exact, rounded = (unpacked(made, cache, dtype=dtype, space=space, **run_time) for dtype in UNPACKED)
        # Rounding of each rotated element, at most half of fp16's last place, and of the result.
        assert np.abs(rounded - exact).max() < 16 * (96**0.5 + 1)


# small scales


@pytest.mark.parametrize("head_dim", [32, 128])
@pytest.mark.parametrize("exponent", [-126, -62], ids=["smallest", "multiplied"])
@pytest.mark.parametrize("name", ["e4m3", "e5m2", "uniform", "symmetric"])
def test_quotients_by_small_scales_are_rounded_once(name, exponent, head_dim):
    """Elements halfway between two codes, times scales of which the quotients' remainders are subnormal numbers."""
    rng = np.random.default_rng(0)
    scales = np.ldexp(rng.uniform(1, 2, (400, 1)), exponent + rng.integers(0, 16, (400, 1)))
    small = {"scale": {"dtype": "fp32"}, "scale_floor": 2.0**exponent}
    if name in ("e4m3", "e5m2"):
        side = {"codec": "fp8", "format": name, **small}
        steps, numbers = floats.FORMATS[name].largest, floats.from_bits(np.arange(128), name)
        numbers = numbers[np.isfinite(numbers)]
        code = functools.partial(floats.to_bits, dtype=name)
    else:
        side = {"codec": "uniform", "bits": 8, "symmetric": name == "symmetric", **small}
        steps = 127.0 if name == "symmetric" else 255.0
        numbers = np.arange(steps + 1)
        code = lambda quotient: np.floor(quotient + np.float32(0.5)).astype(int)  # noqa: E731
    below = rng.integers(0, len(numbers) - 1, (400, head_dim))
    vectors = ((numbers[below] + numbers[below + 1]) / 2 * scales).astype(np.float32)
    vectors[:, 0], vectors[:, 1] = (steps * scales[:, 0]).astype(np.float32), 0
    scale = vectors[:, :1] / np.float32(steps)
    expected = code(vectors / scale)
    _, _, found = stored(side, vectors)
    assert np.array_equal(found["scale"].view(np.float32), scale)
    assert np.array_equal(found["codes"], expected)


# far apart


FAR_SIDES = {
    "quads": (MSE4, {"codec": "uniform", "bits": 4}, 64),
    "tiles": ({"codec": "uniform", "bits": 4, "center": True}, {"codec": "mse", "bits": 4, "rotation": "matrix"}, 16),
    "matrices": ({**PLAIN4, "rotation": "matrix"}, {"codec": "uniform", "bits": 3, "rotation": "matrix"}, 64),
}


@pytest.mark.parametrize("axis", [0, 1], ids=["tokens", "heads"])
@pytest.mark.parametrize("sides", [*FAR_SIDES, "kept matrices"])
def test_vectors_may_be_far_apart(sides, axis):
    """Inputs, outputs and queries at distances that 32 bits cannot count; only what is touched takes memory."""
    form = sides.removeprefix("kept ")
    key, value, head_dim = FAR_SIDES[form]
    made = kernels(key, value, head_dim=head_dim, tile="small" if sides == form else "large")
    assert (made.plan.quads, made.plan.kept is not None) == (form != "tiles", form == "matrices")
    try:
        buffer = far_buffer()
    except RuntimeError as error:
        pytest.skip(f"no memory for tensors of 4 GiB: {error}")
    assert differs(made.layout, made.module, axis, buffer) == ""


# large blocks


LARGE_SIDES = {
    "folded": (
        MSE4,
        {"codec": "uniform", "bits": 4},
        ("key.codes", "key.norm", "value.codes", "value.scale", "value.zero"),
    ),
    "decoded": (
        {"codec": "raw", "dtype": "fp16"},
        {"codec": "mse", "bits": 5},
        ("key.codes", "value.codes", "value.norm"),
    ),
}


@pytest.mark.parametrize("order", ["aos", "soa", "head_major"])
@pytest.mark.parametrize("sides", LARGE_SIDES)
def test_blocks_may_be_large(sides, order):
    """The last tokens of a block of 4 GiB, of which no more than those takes memory."""
    key, value, fields = LARGE_SIDES[sides]
    region = {"name": "all", "order": ["head", "token", "field"], "fields": list(fields)}
    made = kernels(key, value, head_dim=64, block={"regions": [region]} if order == "head_major" else order)
    try:
        large = large_block(made.layout)
    except RuntimeError as error:
        pytest.skip(f"no memory for a block of 4 GiB: {error}")
    assert differs_in_a_large_block(made.layout, made.module, large) == ""


# views of queries


def test_queries_of_any_view():
    """Of axes of one element, and of tensors of none, a stride says nothing."""
    made, where = kernels(MSE4, {"codec": "uniform", "bits": 4}, head_dim=64), device()
    cache, (key, value) = filled(made, 1, 16, 2), torch.randn(2, 3, 2, 64, device=where)
    made.module.store(key, value, cache, torch.arange(3, device=where))
    table, lengths = (torch.full(shape, n, dtype=torch.int32, device=where) for shape, n in (((2, 1), 0), ((2,), 3)))
    fused = torch.randn(2, 1, 12 * 64, device=where)
    query = fused.as_strided((2, 1, 4, 64), (12 * 64, 64, 64, 1))
    result = made.module.decode_attention(query, cache, table, lengths)
    assert torch.equal(result, made.module.decode_attention(query.contiguous(), cache, table, lengths))
    none = torch.empty(0, 4, 64, device=where).as_strided((0, 4, 64), (0, 0, 0))
    assert made.module.decode_attention(none, cache, table[:0], lengths[:0]).shape == (0, 4, 64)
    none = query.as_strided((2, 0, 4, 64), (0, 0, 0, 0))
    assert made.module.decode_attention(none, cache, table, lengths).shape == (2, 0, 4, 64)

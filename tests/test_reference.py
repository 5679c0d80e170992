"""The reference against results that were computed by hand."""

import numpy as np
import pytest
from support.layouts import layout_of

from tqgen import reference
from tqgen.numerics import floats

FIELDS = ("codes", "norm", "scale", "zero")


def encoded(side_text, vectors, head_dim=None, **arguments):
    """The exact parts of key vectors [.., D] with one head, as bytes per part of the first vector, and all as spans."""
    vectors = np.atleast_2d(np.asarray(vectors, dtype=np.float64))[:, None]
    layout = layout_of(side_text, head_dim=head_dim or vectors.shape[-1])
    return layout, reference.encode(layout, "key", vectors, **arguments)


def hexes(layout, spans, token=0):
    """The bytes of each part of one token as hexadecimal text."""
    return {
        part.name: reference.part_bytes(layout, "key", part, spans[part.name].exact)[token, 0]
        .tobytes()
        .hex(" ")
        .upper()
        for part in layout.key.parts
    }


def strict(spans):
    """Whether no number has any slack."""
    return all(np.array_equal(s.low, s.exact) and np.array_equal(s.high, s.exact) for s in spans.values())


def unpacked(layout, vectors, space="model", dtype="fp32", **run_time):
    """Vectors [N, D] through a cache of one head and back."""
    vectors = np.asarray(vectors, dtype=np.float64)[:, None]
    cache = np.full((1, len(vectors), 1, layout.slot_bytes), 0xEE, dtype=np.uint8)
    slots = np.arange(len(vectors))
    reference.store(layout, cache, vectors, None, slots, **run_time)
    return reference.unpack(layout, cache, slots, space=space, dtype=dtype, **run_time)["key"].exact[:, 0]


# Keys of Lloyd-Max codes


@pytest.mark.parametrize("bits, codes", [(4, "BB " * 64), (3, "6D DB B6 " * 16)])
@pytest.mark.parametrize("correction", ["none", "store", "load"])
def test_a_basis_vector(bits, codes, correction):
    key = f"{{codec: mse, bits: {bits}, rotation: hadamard, norm_correction: {correction}, norm: {{dtype: fp16}}}}"
    vector = 10 * np.eye(128)[0]
    layout, spans = encoded(key, vector)
    parts = hexes(layout, spans)
    assert parts["codes"] == codes.strip()
    if correction != "store":
        assert parts["norm"] == "00 49"
    if correction != "none":
        back = unpacked(layout_of(key.replace("fp16", "fp32"), head_dim=128), [vector])
        assert np.allclose(back, vector, atol=1e-5)


@pytest.mark.parametrize("codebook", ["lloyd_max", "vllm"])
@pytest.mark.parametrize("tie, code", [("up", "88"), ("down", "77")])
def test_a_zero_vector_lies_on_the_middle_edge(codebook, tie, code):
    key = f"{{codec: mse, bits: 4, rotation: hadamard, codebook: {codebook}, tie: {tie}}}"
    layout, spans = encoded(key, np.zeros(64))
    assert strict(spans)
    assert hexes(layout, spans) == {"codes": " ".join([code] * 32), "norm": "00 00"}
    assert not unpacked(layout, np.zeros((1, 64))).any()


def test_a_tiny_vector_is_zero_and_not_nan():
    vectors = 1e-9 * np.random.default_rng(0).normal(size=(20, 128))
    vectors = vectors.astype(np.float32).astype(np.float64)
    for correction in ("none", "store", "load"):
        key = f"{{codec: mse, bits: 3, rotation: hadamard, norm_correction: {correction}}}"
        layout, spans = encoded(key, vectors)
        assert np.all(spans["norm"].exact <= 2.0**-24)
        assert np.all(np.abs(unpacked(layout, vectors)) < 1e-7)
    value = "{codec: uniform, bits: 4}"
    layout, spans = encoded(value, vectors)
    assert np.all(spans["scale"].exact == 0)
    assert np.all(np.abs(unpacked(layout, vectors)) < 1e-7)


def test_norm_correction_by_hand():
    # Two elements of magnitude 1: both fall into the outer cells of the 1-bit table, whose levels are sqrt(2 / pi).
    vector = [3.0, -3.0]
    length, level = np.sqrt(18), np.sqrt(2 / np.pi)
    _, plain = encoded("{codec: mse, bits: 1, norm: {dtype: fp32}}", vector)
    _, corrected = encoded("{codec: mse, bits: 1, norm: {dtype: fp32}, norm_correction: store}", vector)
    assert plain["codes"].exact.tolist() == corrected["codes"].exact.tolist() == [[[1, 0]]]
    assert plain["norm"].exact.item() == np.float32(length)
    assert corrected["norm"].exact.item() == np.float32(length / level)
    for correction, expected in (("none", 3 * level), ("store", 3.0), ("load", 3.0)):
        layout = layout_of(f"{{codec: mse, bits: 1, norm_correction: {correction}, norm: {{dtype: fp32}}}}", head_dim=2)
        assert np.allclose(unpacked(layout, [vector]), [[expected, -expected]], rtol=1e-6)


@pytest.mark.parametrize("bits, spread, peaked", [(3, 0.030, 0.537), (4, 0.0086, 0.379)])
def test_a_mean_offset_is_lost_without_signs(bits, spread, peaked):
    rng = np.random.default_rng(7)
    vectors = 2 + rng.normal(size=(1500, 128))

    def error(rotation, **run_time):
        layout = layout_of(f"{{codec: mse, bits: {bits}, rotation: {rotation}, norm_correction: store}}")
        return ((unpacked(layout, vectors, **run_time) - vectors) ** 2).sum() / (vectors**2).sum()

    # A constant vector is a row of the Hadamard matrix: all of it lands on one element, which the codebook clips.
    assert error("hadamard") == pytest.approx(peaked, rel=0.02)
    assert error("signed_hadamard") == pytest.approx(spread, rel=0.06)
    # Matrices differ in how evenly they spread that one direction.
    draws = [np.linalg.qr(rng.normal(size=(128, 128)))[0] for _ in range(4)]
    errors = [error("matrix", key_rotation=matrix) for matrix in draws]
    assert 0.95 * spread < np.mean(errors) < 1.25 * spread


DISTORTION = {
    64: (0.117, 0.0329, 0.0089, 0.0023),
    128: (0.119, 0.0338, 0.0092, 0.0024),
    256: (0.120, 0.0343, 0.0094, 0.0025),
}


@pytest.mark.parametrize("head_dim", DISTORTION)
def test_distortion_of_normal_vectors(head_dim):
    vectors = np.random.default_rng(1).normal(size=(8000, head_dim))
    for bits, expected in zip((2, 3, 4, 5), DISTORTION[head_dim], strict=True):
        layout = layout_of(
            f"{{codec: mse, bits: {bits}, rotation: hadamard, norm_correction: load}}", head_dim=head_dim
        )
        back = unpacked(layout, vectors)
        error = ((back - vectors) ** 2).sum() / (vectors**2).sum()
        assert error == pytest.approx(expected, rel=0.05), bits


# Uniform values


def test_constants():
    for value, zero, back in ((3.0, "00 42", 3.0), (np.float32(0.1), "66 2E", 0.0999755859375)):
        layout, spans = encoded("{codec: uniform, bits: 4}", np.full(16, value))
        parts = hexes(layout, spans)
        assert parts["codes"] == " ".join(["00"] * 8) and parts["zero"] == zero
        assert np.all(unpacked(layout, np.full((1, 16), value)) == back)


@pytest.mark.parametrize(
    "rounding, codes",
    [("half_up", [0, 1, 2, 3, 7, 15]), ("half_even", [0, 0, 2, 2, 6, 15]), ("half_away", [0, 1, 2, 3, 7, 15])],
)
def test_rounding_of_ties(rounding, codes):
    values = [0, 0.5, 1.5, 2.5, 6.5, 15]
    _, spans = encoded(f"{{codec: uniform, bits: 4, rounding: {rounding}}}", values)
    assert spans["scale"].exact.item() == 1.0
    assert spans["codes"].exact[0, 0].tolist() == codes
    assert strict(spans)


@pytest.mark.parametrize(
    "rounding, codes",
    [("half_up", [0, -1, -2, 3, 7]), ("half_even", [0, -2, -2, 2, 7]), ("half_away", [-1, -2, -3, 3, 7])],
)
def test_rounding_of_symmetric_ties(rounding, codes):
    _, spans = encoded(
        f"{{codec: uniform, bits: 4, symmetric: true, rounding: {rounding}}}", [-0.5, -1.5, -2.5, 2.5, 7]
    )
    assert spans["scale"].exact.item() == 1.0
    assert spans["codes"].exact[0, 0].tolist() == [code % 16 for code in codes]
    assert set(spans) == {"codes", "scale"}


def test_symmetric_codes_are_twos_complement():
    layout = layout_of("{codec: uniform, bits: 3, symmetric: true}", head_dim=7)
    values = np.arange(-3.0, 4.0)[None]
    _, spans = encoded("{codec: uniform, bits: 3, symmetric: true}", values)
    assert spans["codes"].exact[0, 0].tolist() == [5, 6, 7, 0, 1, 2, 3]
    assert np.array_equal(unpacked(layout, values), values)


def test_groups_have_their_own_scales():
    values = np.concatenate([np.arange(8.0), 100 + 2 * np.arange(8.0)])
    layout, spans = encoded("{codec: uniform, bits: 3, group: 8, zero: {dtype: bf16}}", values)
    assert spans["scale"].exact[0, 0].tolist() == [1.0, 2.0]
    assert spans["zero"].exact[0, 0].tolist() == [0.0, 100.0]
    assert hexes(layout, spans) == {"codes": "88 C6 FA 88 C6 FA", "scale": "00 3C 00 40", "zero": "00 00 C8 42"}
    assert np.array_equal(unpacked(layout, values[None])[0], values)


def test_codes_with_the_exact_or_the_stored_scale():
    # (1.0029 - 0) / 15 rounds down in fp16; 0.0332 times 15 lies on the other side of a tie.
    values = np.float64(np.float32([0, 1.0029, 0.0334]))
    scale = np.float32(1.0029) / np.float32(15)
    stored = float(np.float16(scale))
    assert stored < scale
    tie = np.float64(np.float32(stored * 0.5 * (1 + 1e-5)))
    assert tie / scale < 0.5 < tie / stored
    values[2] = tie
    _, exact = encoded("{codec: uniform, bits: 4}", values)
    _, with_stored = encoded("{codec: uniform, bits: 4, quantize_with: stored}", values)
    assert exact["scale"].exact == with_stored["scale"].exact == stored
    assert exact["codes"].exact[0, 0].tolist() == [0, 15, 0]
    assert with_stored["codes"].exact[0, 0].tolist() == [0, 15, 1]


def test_the_stored_scale_of_a_constant_is_not_a_divisor_of_zero():
    layout, spans = encoded("{codec: uniform, bits: 4, quantize_with: stored}", np.full(8, 0.1))
    assert spans["scale"].exact.item() == 0.0  # 1e-8 in fp16
    # The zero point in fp16 is below fp32's 0.1 by 2.4e-5, which is many times the smallest scale.
    assert np.all(spans["codes"].exact == 15)
    assert np.allclose(unpacked(layout, np.full((1, 8), 0.1)), 0.09997559)


def test_the_scale_has_a_floor():
    metadata = "scale: {dtype: fp32}, zero: {dtype: fp32}"
    steps = np.float64(np.float32(1e-9)) * np.arange(16)
    _, spans = encoded(f"{{codec: uniform, bits: 4, {metadata}}}", steps)
    assert spans["scale"].exact.item() == np.float32(1e-8)
    assert spans["codes"].exact[0, 0].tolist() == [int(i / 10 + 0.5) for i in range(16)]
    _, spans = encoded(f"{{codec: uniform, bits: 4, scale_floor: 1, {metadata}}}", [0.0, 3.0, 5.0, 9.0])
    assert spans["scale"].exact.item() == 1.0
    assert spans["codes"].exact[0, 0].tolist() == [0, 3, 5, 9]
    _, spans = encoded(f"{{codec: uniform, bits: 4, {metadata}}}", np.full(8, 0.1))
    assert spans["scale"].exact.item() == np.float32(1e-8) and not spans["codes"].exact.any()


def test_the_floor_also_holds_for_a_stored_scale():
    # Steps of 2e-8 become 0 in fp16.
    values = np.float64(np.float32(2e-8)) * np.arange(16)
    _, spans = encoded("{codec: uniform, bits: 4, quantize_with: stored, zero: {dtype: fp32}}", values)
    assert spans["scale"].exact.item() == 0.0
    assert spans["codes"].exact[0, 0].tolist() == [0, 2, 4, 6, 8, 10, 12, 14] + [15] * 8


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_signed_codes_are_clamped_to_what_their_bits_hold(bits):
    # The scale loses a third as it is rounded to a subnormal fp16 number.
    most = 2 ** (bits - 1) - 1
    values = 1.49 * 2.0**-24 * np.array([most, -most, 0.0, 0.0])
    side = f"{{codec: uniform, bits: {bits}, symmetric: true, quantize_with: stored}}"
    layout, spans = encoded(side, values)
    assert layout.key.codec.ordinals(layout.key, spans["codes"].exact)[0, 0].tolist() == [most, -most - 1, 0, 0]


# Floats


E4M3 = "38 38 40 B0 7E 7E 7E 7E 08 01 01 00 80 7F 7E FE"


def test_e4m3():
    values = [
        1,
        1.0625,
        1.97,
        -0.49268,
        448,
        449,
        464,
        1e4,
        2**-6,
        2**-9,
        1.5 * 2**-10,
        2**-10,
        -0.0,
        np.nan,
        np.inf,
        -np.inf,
    ]
    layout, spans = encoded("{codec: fp8}", np.float32(values))
    assert hexes(layout, spans)["codes"] == E4M3
    assert strict(spans)


def test_fp8_with_a_scale():
    layout, spans = encoded("{codec: fp8, scale: {dtype: fp32}}", [0.0, -896.0, 2.0, 448.0])
    assert hexes(layout, spans) == {"codes": "00 FE 38 76", "scale": "00 00 00 40"}
    assert unpacked(layout, [[0.0, -896.0, 2.0, 448.0]]).tolist() == [[0.0, -896.0, 2.0, 448.0]]
    _, spans = encoded("{codec: fp8, format: e5m2, scale: {dtype: fp32}}", [57344.0, 3.0])
    assert spans["codes"].exact[0, 0].tolist() == [0x7B, 0x42]


@pytest.mark.parametrize("dtype, codes", [("fp16", "00 3C 00 80 00 7E 00 7C"), ("bf16", "80 3F 00 80 C0 7F 80 7F")])
def test_raw(dtype, codes):
    layout, spans = encoded(f"{{codec: raw, dtype: {dtype}}}", [1.0, -0.0, np.nan, np.inf])
    assert hexes(layout, spans)["codes"] == codes
    assert strict(spans)


def test_raw_of_numbers_that_are_too_large():
    vector = [1.0, 70000.0, -70000.0, np.nan, -np.inf]
    _, spans = encoded("{codec: raw, dtype: fp16}", vector)
    assert spans["codes"].exact[0, 0].tolist() == [0x3C00, 0x7C00, 0xFC00, 0x7E00, 0xFC00]
    _, spans = encoded("{codec: raw, dtype: fp16, non_finite: saturate}", vector)
    assert spans["codes"].exact[0, 0].tolist() == [0x3C00, 0x7BFF, 0xFBFF, 0x0000, 0xFBFF]
    _, spans = encoded("{codec: raw, dtype: bf16, non_finite: saturate}", vector)
    assert floats.from_bits(spans["codes"].exact[0, 0], "bf16").tolist() == [1.0, 70144.0, -70144.0, 0.0, -(2.0**56)]


# Numbers that are not finite


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_propagate_marks_that_vector_alone(bad):
    vectors = np.tile(np.arange(1.0, 17.0), (3, 1))
    vectors[1, 5] = bad
    clean = vectors[0]

    layout, spans = encoded("{codec: uniform, bits: 4}", vectors)
    assert hexes(layout, spans, 1) == {"codes": " ".join(["00"] * 8), "scale": "00 7E", "zero": "00 7E"}
    assert hexes(layout, spans, 0) == hexes(layout, spans, 2) == hexes(*encoded("{codec: uniform, bits: 4}", clean))

    key = "{codec: mse, bits: 4, rotation: hadamard, norm_correction: store}"
    layout, spans = encoded(key, vectors)
    norm = "00 7E"  # the length is taken after the rotation, which makes NaN of Inf
    assert hexes(layout, spans, 1) == {"codes": " ".join(["88"] * 8), "norm": norm}
    assert hexes(layout, spans, 0) == hexes(layout, spans, 2) == hexes(*encoded(key, clean))
    assert not np.isfinite(unpacked(layout, vectors)[1]).any()

    scaled = "{codec: fp8, scale: {dtype: fp16}, group: 8}"
    layout, spans = encoded(scaled, vectors)
    expected = hexes(*encoded(scaled, clean))
    marked = hexes(layout, spans, 1)
    assert marked["codes"] == " ".join(["7F"] * 8) + expected["codes"][23:]
    assert marked["scale"] == "00 7E" + expected["scale"][5:]
    assert hexes(layout, spans, 2) == expected


@pytest.mark.parametrize("bad, becomes", [(np.nan, 0.0), (np.inf, 65504.0), (-np.inf, -65504.0), (1e30, 65504.0)])
def test_saturate_replaces_the_number(bad, becomes):
    vector = np.arange(1.0, 17.0)
    for side in (
        "{codec: uniform, bits: 4, non_finite: saturate}",
        "{codec: mse, bits: 4, rotation: hadamard, non_finite: saturate}",
        "{codec: fp8, scale: {dtype: fp16}, non_finite: saturate}",
    ):
        vector[5] = bad
        given = hexes(*encoded(side, vector))
        vector[5] = becomes
        assert given == hexes(*encoded(side, vector))
        if np.isfinite(bad):
            assert given != hexes(
                *encoded(side.replace("saturate", "propagate"), np.where(vector == becomes, bad, vector))
            )


def test_saturate_keeps_what_wider_metadata_can_hold():
    vector = np.arange(1.0, 17.0)
    vector[5] = 1e30
    wide = "{codec: mse, bits: 4, rotation: hadamard, non_finite: saturate, norm: {dtype: fp32}}"
    _, spans = encoded(wide, vector)
    assert spans["norm"].exact.item() == 2.0**56


@pytest.mark.parametrize("policy, scale, zero", [("propagate", "FF 7B", "00 FC"), ("saturate", "44 70", "FF FB")])
def test_metadata_that_is_too_large(policy, scale, zero):
    # The step is within fp16, the smallest element is not.
    top = 15 * 65504.0 - 80000 if policy == "propagate" else 65504.0
    vector = np.full(8, -80000.0)
    vector[3] = top
    layout, spans = encoded(f"{{codec: uniform, bits: 4, non_finite: {policy}}}", vector)
    parts = hexes(layout, spans)
    assert (parts["scale"], parts["zero"]) == (scale, zero)
    assert parts["codes"] == "00 F0 00 00"


def test_a_scale_that_overflows_in_fp32_is_not_finite():
    vector = np.float64(np.float32([3e38, -3e38, 0, 1]))
    _, spans = encoded("{codec: uniform, bits: 4, scale: {dtype: fp32}, zero: {dtype: fp32}}", vector)
    assert np.isnan(spans["scale"].exact).all() and np.isnan(spans["zero"].exact).all()
    assert not spans["codes"].exact.any()


def test_a_rotated_norm_that_overflows_in_fp32_is_nan():
    vector = np.full(16, 1e19)
    layout, spans = encoded("{codec: mse, bits: 4, rotation: hadamard, norm: {dtype: fp32}}", vector)
    assert hexes(layout, spans) == {"codes": " ".join(["88"] * 8), "norm": "00 00 C0 7F"}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("rotation", ["hadamard", "hadamard, rotation_block: 8"])
def test_after_a_rotation_a_whole_vector_is_not_finite(bad, rotation):
    vectors = np.tile(np.arange(1.0, 17.0), (2, 1))
    vectors[1, 5] = bad
    uniform = f"{{codec: uniform, bits: 4, group: 8, rotation: {rotation}}}"
    layout, spans = encoded(uniform, vectors)
    assert hexes(layout, spans, 1) == {"codes": " ".join(["00"] * 8), "scale": "00 7E 00 7E", "zero": "00 7E 00 7E"}
    assert hexes(layout, spans, 0) == hexes(*encoded(uniform, vectors[0]))
    scaled = f"{{codec: fp8, group: 8, scale: {{dtype: fp16}}, rotation: {rotation}}}"
    layout, spans = encoded(scaled, vectors)
    assert hexes(layout, spans, 1) == {"codes": " ".join(["7F"] * 16), "scale": "00 7E 00 7E"}
    # Element by element as well: an interval about NaN would take any number for it.
    for plain in ("fp8", "raw, dtype: fp16"):
        layout, spans = encoded(f"{{codec: {plain}, rotation: {rotation}}}", vectors)
        low, exact, high = (codes[1] for codes in spans["codes"].ends)
        assert np.array_equal(low, exact) and np.array_equal(high, exact)
        assert np.all(np.isnan(layout.key.codec.decode(layout.key, {"codes": exact})))
        assert np.all(np.isfinite(layout.key.codec.decode(layout.key, {"codes": spans["codes"].high[0]})))


@pytest.mark.parametrize("codec, sign", [("fp8", 0x80), ("raw, dtype: bf16", 0x8000)])
def test_a_sum_that_is_zero_may_have_either_sign(codec, sign):
    _, spans = encoded(f"{{codec: {codec}, rotation: hadamard}}", np.zeros(16))
    codes = spans["codes"]
    assert np.all(codes.low == sign) and not codes.exact.any() and not codes.high.any()


# Centre


def test_a_centre_is_subtracted_and_unpack_adds_it():
    layout = layout_of("{codec: uniform, bits: 8, center: true, scale: {dtype: fp32}, zero: {dtype: fp32}}", head_dim=8)
    rng = np.random.default_rng(3)
    center = np.float32(rng.normal(size=(2, 8)) * 100)
    residual = rng.integers(0, 256, size=(5, 2, 8)).astype(np.float64)
    residual[..., 0], residual[..., 1] = 0, 255
    vectors = np.float64(np.float32(residual + center))
    cache = np.zeros((1, 8, 2, layout.slot_bytes), dtype=np.uint8)
    reference.store(layout, cache, vectors, None, np.arange(5), key_center=center)
    parts = reference.read_parts(layout, cache, np.arange(5))["key"]
    assert np.abs(parts["codes"] - residual).max() <= 1
    back = reference.unpack(layout, cache, np.arange(5), dtype="fp32", key_center=center)["key"]
    assert np.allclose(back.exact, vectors, atol=1)
    rotated = reference.unpack(layout, cache, np.arange(5), space="rotated", dtype="fp32", key_center=center)["key"]
    assert np.allclose(rotated.exact, residual, atol=1)


def test_run_time_arrays_are_asked_for():
    vectors = np.zeros((1, 1, 16))
    for text, arguments, message in (
        ("{codec: uniform, bits: 4, center: true}", {}, "key_center is not given"),
        ("{codec: uniform, bits: 4}", {"center": np.zeros((1, 16))}, "key_center is given"),
        ("{codec: uniform, bits: 4, rotation: matrix}", {}, "key_rotation is not given"),
        ("{codec: uniform, bits: 4, rotation: hadamard}", {"rotation": np.eye(16)}, "key_rotation is given"),
    ):
        with pytest.raises(ValueError, match=message):
            reference.encode(layout_of(text, head_dim=16), "key", vectors, **arguments)
    layout = layout_of("{codec: uniform, bits: 4}", head_dim=16)
    with pytest.raises(ValueError, match="expected"):
        reference.encode(layout, "key", np.zeros((1, 1, 8)))
    cache = np.zeros((1, 1, 1, layout.slot_bytes), dtype=np.uint8)
    with pytest.raises(TypeError, match="key_centre"):
        reference.store(layout, cache, vectors, None, np.zeros(1, int), key_centre=np.zeros((1, 16)))
    with pytest.raises(ValueError, match="key is not given"):
        reference.store(layout, cache, None, None, np.zeros(1, int))
    with pytest.raises(ValueError, match="`other`"):
        reference.unpack(layout, cache, np.zeros(1, int), space="other")


# Precision: operations of the specification are rounded to fp32 one by one


def in_steps(x, number, rounding, stored):
    """Codes of groups [N, D] of 4 bits, every operation in the numbers of the type `number`."""
    x = x.astype(number)
    zero = x.min(-1, keepdims=True)
    scale = np.maximum((x.max(-1, keepdims=True) - zero) / number(15), number(np.float32(1e-8)))
    if stored:
        scale, zero = (floats.round_to(one.astype(np.float64), "bf16").astype(number) for one in (scale, zero))
    quotient = (x - zero) / scale
    rounded = np.rint(quotient) if rounding == "half_even" else np.floor(quotient + number(0.5))
    return np.clip(rounded, 0, 15).astype(int)


@pytest.mark.parametrize("quantize_with", ["exact", "stored"])
@pytest.mark.parametrize("rounding", ["half_up", "half_even"])
def test_every_operation_is_rounded_to_fp32(rounding, quantize_with):
    """Of numbers a few units in the last place from where one code ends and the next begins."""
    stored, rng = quantize_with == "stored", np.random.default_rng(5)
    ends = rng.uniform(-3, 3, (4000, 2)).astype(np.float32)
    zero, scale = ends.min(-1, keepdims=True), (ends.max(-1, keepdims=True) - ends.min(-1, keepdims=True)) / 15
    if stored:
        zero, scale = (floats.round_to(one.astype(np.float64), "bf16").astype(np.float32) for one in (zero, scale))
    edges = (zero + (rng.integers(0, 14, (4000, 14)) + np.float32(0.5)) * scale).astype(np.float32)
    x = np.concatenate([ends, edges + rng.integers(-2, 3, edges.shape) * np.spacing(edges)], -1).astype(np.float32)
    dtypes = "scale: {dtype: bf16}, zero: {dtype: bf16}"
    side = f"{{codec: uniform, bits: 4, rounding: {rounding}, quantize_with: {quantize_with}, {dtypes}}}"
    _, spans = encoded(side, x)
    assert np.array_equal(spans["codes"].exact[:, 0], in_steps(x, np.float32, rounding, stored))
    assert np.mean(in_steps(x, np.float64, rounding, stored) != in_steps(x, np.float32, rounding, stored)) > 0.01

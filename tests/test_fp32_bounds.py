"""What fp32 arithmetic gives lies within the spans, in whatever order it adds; and the spans are narrow."""

import numpy as np
import pytest
from support.layouts import layout_of

from tqgen import codebooks, reference
from tqgen.codecs.base import Span
from tqgen.lower import ptx_rows
from tqgen.numerics import floats, rotations
from tqgen.reference import transform

rng = np.random.default_rng(23)
START = rng.bit_generator.state
F = np.float32
TOKENS = 60
CONSTANT = [50, 51]  # tokens whose rotated elements are zero, but for rounding


@pytest.fixture(autouse=True)
def same_numbers():
    """Every test draws the same numbers, whatever ran before it."""
    rng.bit_generator.state = START


def inputs(head_dim):
    """bf16 numbers: normal ones, some channels 100 times as large, an offset, and a vector of equal elements."""
    x = rng.normal(size=(TOKENS, 1, head_dim))
    x[20:40, :, ::17] *= 100
    x[40:50] += 3
    x[CONSTANT] = [[[1.25]], [[0.0]]]
    return floats.round_to(x, "bf16")


def in_order(terms):
    """The fp32 sum over the last axis, one term after the other."""
    total = np.zeros(terms.shape[:-1], F)
    for i in range(terms.shape[-1]):
        total = total + terms[..., i]
    return total


def in_blocks(terms):
    """The fp32 sum over the last axis as a matrix unit makes it: 8 terms at once, exactly, then rounded."""
    total = np.zeros(terms.shape[:-1], F)
    for i in range(0, terms.shape[-1], 8):
        total = (total + terms[..., i : i + 8].astype(np.float64).sum(-1)).astype(F)
    return total


def in_a_tree(terms):
    """The fp32 sum over the last axis by halves."""
    while terms.shape[-1] > 1:
        if terms.shape[-1] % 2:
            terms = np.concatenate([terms, np.zeros_like(terms[..., :1])], -1)
        half = terms.shape[-1] // 2
        terms = terms[..., :half] + terms[..., half:]
    return terms[..., 0]


SUMS = {"in_order": in_order, "in_blocks": in_blocks, "in_a_tree": in_a_tree}


def rotated(x, side, matrix, total):
    """x @ R in fp32; for Hadamard rotations the matrix of +1 and -1, and the scale afterwards."""
    scale = F(side.rotation.scale)
    entries = (rotations.matrix(side.rotation, side.head_dim, matrix) / side.rotation.scale).astype(F)
    return total(x.astype(F)[..., None, :] * entries.T) * scale


def check(layout, spans, got):
    """Every part within its span; the share of codes that have any slack, of vectors that are not constant."""
    side = layout.key
    for name, values in got.items():
        low, exact, high = spans[name].ends
        if name == "codes":
            low, exact, high, values = (side.codec.ordinals(side, codes) for codes in (low, exact, high, values))
        else:
            values = floats.round_to(values, side.part(name).dtype)
        assert np.all((low <= values) & (values <= high)), name
        assert np.all((low <= exact) & (exact <= high)), name
    slack = spans["codes"].low != spans["codes"].high
    return np.mean(np.delete(slack, CONSTANT, axis=0))


ROTATIONS = [("hadamard", 128, None), ("signed_hadamard", 64, None), ("hadamard", 96, 32), ("matrix", 80, None)]


def case(codec, rotation, head_dim, block):
    extra = f", rotation_block: {block}" if block else ""
    layout = layout_of(f"{{{codec}, rotation: {rotation}{extra}}}", head_dim=head_dim)
    matrix = np.linalg.qr(rng.normal(size=(head_dim, head_dim)))[0].astype(F) if rotation == "matrix" else None
    x = inputs(head_dim)
    return layout, x, matrix, reference.encode(layout, "key", x, rotation=matrix)


@pytest.mark.parametrize("total", SUMS)
@pytest.mark.parametrize("rotation, head_dim, block", ROTATIONS)
@pytest.mark.parametrize("correction", ["none", "store"])
def test_mse(rotation, head_dim, block, correction, total):
    codec = f"codec: mse, bits: 4, norm_correction: {correction}"
    layout, x, matrix, spans = case(codec, rotation, head_dim, block)
    add = SUMS[total]
    table = codebooks.load("lloyd_max", 4)
    edges, levels = F(table.edges), F(np.array(table.levels) * head_dim**-0.5)
    norm = np.sqrt(add(x.astype(F) ** 2))
    y = rotated(x, layout.key, matrix, add)
    for z in (
        y / (norm + F(1e-8))[..., None] * F(head_dim**0.5),
        y * (F(head_dim**0.5) / (norm + F(1e-8)))[..., None],
    ):
        codes = (z[..., None] >= edges).sum(-1)
        stored = norm
        if correction == "store":
            stored = norm / np.sqrt(add(levels[codes] ** 2) + F(1e-16))
        slack = check(layout, spans, {"codes": codes, "norm": stored[..., None]})
        assert slack < 0.002


def halves_of(matrix):
    """A matrix in two fp16 parts, as kernels split it: 2**14 * matrix = high + 2**-11 * low, nearly."""
    scaled = matrix.astype(F) * F(2.0**14)
    high = scaled.astype(np.float16)
    return high, ((scaled - high.astype(F)) * F(2.0**11)).astype(np.float16)


def test_two_fp16_parts_hold_23_bits_of_what_is_from_2_to_the_minus_27_to_2():
    """So an element is off by 2 units of 2**-24 at most, a quarter of what `accumulation` has for such errors."""
    mantissas = np.concatenate(
        [rng.uniform(1, 2, 4000), [1.0, 2 - 2.0**-23, 1 + 2.0**-23, 1.5, 1 + 2.0**-11]]
    ).astype(F)
    for exponent in range(-40, 1):
        elements = mantissas * F(2.0**exponent)
        high, low = halves_of(elements)
        assert np.isfinite(high).all() and np.isfinite(low).all()
        there = (high.astype(np.float64) + low.astype(np.float64) * 2.0**-11) * 2.0**-14
        error = np.abs(there - elements.astype(np.float64)) / elements
        assert (error.max() <= 2 * floats.ROUNDING) == (exponent >= -27), exponent
    high, low = halves_of(np.zeros(1))
    assert high == 0 and low == 0
    assert floats.accumulation(0) / 4 >= 2 * floats.ROUNDING


@pytest.mark.parametrize("total", SUMS)
@pytest.mark.parametrize("head_dim", [32, 64, 128])
def test_a_product_with_two_fp16_parts(head_dim, total):
    """Of fp16 vectors, which are multiplied as they are, among them subnormal ones and ones of few elements."""
    layout = layout_of(
        "{codec: uniform, bits: 4, rotation: matrix, scale: {dtype: fp32}, zero: {dtype: fp32}}", head_dim=head_dim
    )
    matrix = np.linalg.qr(rng.normal(size=(head_dim, head_dim)))[0].astype(F)
    matrix[:, 0] = np.where(rng.random(head_dim) < 0.5, 0, 2.0**-28)  # as small as elements may be
    x = rng.normal(size=(TOKENS, 1, head_dim)) * np.where(rng.random((TOKENS, 1, head_dim)) < 0.9, 1, 2.0**-20)
    x[:20] *= rng.random((20, 1, head_dim)) < 2 / head_dim
    x = floats.round_to(x, "fp16")
    spans = reference.encode(layout, "key", x, rotation=matrix)
    high, low = halves_of(matrix)
    add = SUMS[total]
    y = add(x.astype(F)[..., None, :] * low.astype(F).T) * F(2.0**-11)
    y = add(np.concatenate([y[..., None], x.astype(F)[..., None, :] * high.astype(F).T], -1)) * F(2.0**-14)
    smallest = y.min(-1, keepdims=True)
    scale = np.maximum((y.max(-1, keepdims=True) - smallest) / F(15), F(1e-8))
    codes = np.clip(np.floor((y - smallest) / scale + F(0.5)), 0, 15).astype(int)
    check(layout, spans, {"codes": codes, "scale": scale, "zero": smallest})


@pytest.mark.parametrize("book", codebooks.names())
@pytest.mark.parametrize("bits", [3, 4])
def test_two_fp16_parts_hold_a_level_to_2_units_and_one_does_not(bits, book):
    levels = codebooks.load(book, bits).levels
    exponent, high, low = ptx_rows.two_parts(levels)
    assert all(float(np.float16(part)) == part for part in (*high, *low))
    levels, high, low = (np.array(numbers) for numbers in (levels, high, low))
    assert np.abs((high + low) * 2.0**-exponent / levels - 1).max() <= 2 * floats.ROUNDING
    assert np.abs(high * 2.0**-exponent / levels - 1).max() > 100 * floats.ROUNDING


@pytest.mark.parametrize("book", codebooks.names())
@pytest.mark.parametrize("bits", [3, 4])
@pytest.mark.parametrize("head_dim", [32, 64, 128, 256])
def test_squares_in_whole_numbers(head_dim, bits, book):
    """They are off by less than the roundings of their sum in fp32 may be, and that sum has 31 bits."""
    levels = codebooks.load(book, bits).levels
    parts, squares = ptx_rows.whole_squares(levels, head_dim)
    assert head_dim * max(squares) < 2**31 and max(squares) < 2**24
    most = 2 if head_dim <= 128 else 5
    assert np.abs(squares / (np.array(levels) ** 2 * parts) - 1).max() <= most * floats.ROUNDING
    assert most <= head_dim / 8


@pytest.mark.parametrize("total", SUMS)
@pytest.mark.parametrize("correction", ["none", "load"])
@pytest.mark.parametrize("rotation, head_dim, block", [case for case in ROTATIONS if case[0] != "matrix"])
def test_levels_are_rotated_in_two_fp16_parts_and_scaled_afterwards(rotation, head_dim, block, correction, total):
    """As unpack decodes to bf16 and fp32: rows of codes of all kinds, and of few levels; norms of every size."""
    extra = f", rotation_block: {block}" if block else ""
    codec = f"codec: mse, bits: 4, norm: {{dtype: fp32}}, norm_correction: {correction}"
    layout = layout_of(f"{{{codec}, rotation: {rotation}{extra}}}", head_dim=head_dim)
    side, levels = layout.key, codebooks.load("lloyd_max", 4).levels
    codes = rng.integers(0, 16, (TOKENS, 1, head_dim))
    codes[:20] = rng.choice([7, 8, 0, 15], (20, 1, 1))
    codes[20:40] = rng.integers(7, 9, (20, 1, head_dim))
    norm = floats.round_to(np.ldexp(rng.uniform(1, 2, (TOKENS, 1, 1)), rng.integers(-140, 60, (TOKENS, 1, 1))), "fp32")
    norm[:3] = [[[0.0]], [[-0.0]], [[2.0**-149]]]
    exact = side.codec.decode_span(side, {"codes": codes, "norm": norm})
    spans = transform.backward(side, exact, "fp32")

    factor = norm.astype(F)
    if correction == "load":
        parts, squares = ptx_rows.whole_squares(levels, head_dim)
        unit = F(1 / head_dim / parts)
        length = np.sqrt(np.array(squares)[codes].sum(-1, keepdims=True).astype(F) * unit + F(1e-16))
        factor = factor * (F(1) / length)
    exponent, *tables = ptx_rows.two_parts(levels)
    high, low = (np.array(table, F)[codes] for table in tables)
    scale = side.rotation.scale
    entries = (rotations.matrix(side.rotation, head_dim, None) / scale).astype(F)
    add = SUMS[total]
    y = add(low[..., None, :] * entries)
    y = add(np.concatenate([y[..., None], high[..., None, :] * entries], -1))
    y = y * (factor * F(head_dim**-0.5 * scale * 2.0**-exponent))
    assert np.all((spans.low <= y) & (y <= spans.high))
    # one part is not enough
    y = add(high[..., None, :] * entries) * (factor * F(head_dim**-0.5 * scale * 2.0**-exponent))
    assert np.any((spans.low > y) | (y > spans.high))


@pytest.mark.parametrize("total", SUMS)
@pytest.mark.parametrize("rotation, head_dim, block", ROTATIONS)
@pytest.mark.parametrize("group", [None, 16])
def test_uniform(rotation, head_dim, block, group, total):
    codec = f"codec: uniform, bits: 4, zero: {{dtype: bf16}}, group: {group or head_dim}"
    layout, x, matrix, spans = case(codec, rotation, head_dim, block)
    y = rotated(x, layout.key, matrix, SUMS[total]).reshape(TOKENS, 1, -1, group or head_dim)
    smallest = y.min(-1)
    scale = np.maximum((y.max(-1) - smallest) / F(15), F(1e-8))
    codes = np.clip(np.floor((y - smallest[..., None]) / scale[..., None] + F(0.5)), 0, 15).astype(int)
    slack = check(layout, spans, {"codes": codes.reshape(x.shape), "scale": scale, "zero": smallest})
    assert slack < 0.002


@pytest.mark.parametrize("total", SUMS)
@pytest.mark.parametrize("rotation, head_dim, block", ROTATIONS)
def test_symmetric_with_the_stored_scale(rotation, head_dim, block, total):
    codec = "codec: uniform, bits: 6, symmetric: true, quantize_with: stored, rounding: half_even"
    layout, x, matrix, spans = case(codec, rotation, head_dim, block)
    y = rotated(x, layout.key, matrix, SUMS[total])
    scale = np.maximum(np.abs(y).max(-1) / F(31), F(1e-8)).astype(np.float16)[..., None]
    codes = np.clip(np.rint(y / np.maximum(scale.astype(F), F(1e-8))), -32, 31).astype(int) & 63
    assert check(layout, spans, {"codes": codes, "scale": scale}) < 0.005


@pytest.mark.parametrize("total", SUMS)
@pytest.mark.parametrize("rotation, head_dim, block", ROTATIONS)
def test_floats(rotation, head_dim, block, total):
    layout, x, matrix, spans = case("codec: fp8, scale: {dtype: fp32}", rotation, head_dim, block)
    y = rotated(x, layout.key, matrix, SUMS[total])
    scale = np.maximum(np.abs(y).max(-1) / F(448), F(1e-8))[..., None]
    assert check(layout, spans, {"codes": floats.to_bits(y / scale, "e4m3"), "scale": scale}) < 0.05
    layout, x, matrix, spans = case("codec: raw, dtype: bf16", rotation, head_dim, block)
    y = rotated(x, layout.key, matrix, SUMS[total])
    assert check(layout, spans, {"codes": floats.to_bits(y, "bf16")}) < 0.05


@pytest.mark.parametrize("codec", ["uniform, bits: 4", "uniform, bits: 8, symmetric: true", "fp8", "raw, dtype: fp16"])
def test_without_a_rotation_there_is_no_slack(codec):
    for center in (None, floats.round_to(rng.normal(size=(1, 64)), "fp32")):
        layout = layout_of(f"{{codec: {codec}, center: {str(center is not None).lower()}}}", head_dim=64)
        for span in reference.encode(layout, "key", inputs(64), center=center).values():
            assert np.array_equal(span.low, span.exact) and np.array_equal(span.high, span.exact)


@pytest.mark.parametrize("center_first", [True, False])
def test_a_centre_may_be_taken_off_before_or_after_the_rotation(center_first):
    layout = layout_of("{codec: uniform, bits: 4, rotation: hadamard, center: true}", head_dim=64)
    # What is left is small against the centre, and so against the rounding of a sum that still contains it.
    center = floats.round_to(3e4 * rng.normal(size=(1, 64)), "fp32")
    x = floats.round_to(center + inputs(64), "fp32")
    spans = reference.encode(layout, "key", x, center=center)
    if center_first:
        y = rotated(x.astype(F) - center.astype(F), layout.key, None, in_order)
    else:
        y = rotated(x, layout.key, None, in_order) - rotated(center[None], layout.key, None, in_order)
    smallest = y.min(-1, keepdims=True)
    scale = np.maximum((y.max(-1, keepdims=True) - smallest) / F(15), F(1e-8))
    codes = np.clip(np.floor((y - smallest) / scale + F(0.5)), 0, 15).astype(int)
    check(layout, spans, {"codes": codes, "scale": scale, "zero": smallest})


def test_division_ulps_widen_the_spans_and_nothing_else():
    layout = layout_of("{codec: uniform, bits: 4}", head_dim=64)
    x = floats.round_to(rng.normal(size=(500, 1, 64)), "bf16")
    strict = reference.encode(layout, "key", x)
    loose = reference.encode(layout, "key", x, division_ulps=2)
    for name, span in strict.items():
        assert np.array_equal(span.exact, loose[name].exact)
        assert np.all((loose[name].low <= span.exact) & (span.exact <= loose[name].high))
    wide = loose["codes"].low != loose["codes"].high
    assert 0 < wide.sum() < 0.005 * wide.size
    assert np.all(loose["codes"].high - loose["codes"].low <= 1)

    def moved(quotient, ulps):
        return quotient * F(1 + ulps * 2.0**-23)

    # Numbers within a few units in the last place of where one code ends and the next begins.
    steps = rng.uniform(0.5, 1, size=(500, 1, 1)).astype(F)
    edges = (np.arange(14) + F(0.5)) * steps * (1 + rng.integers(-6, 7, size=(500, 1, 14)) * 2.0**-23)
    x = np.concatenate([0 * steps, 15 * steps, edges], -1).astype(F)
    layout = layout_of("{codec: uniform, bits: 4}", head_dim=16)
    loose = reference.encode(layout, "key", x, division_ulps=2)
    smallest = x.min(-1, keepdims=True)
    numerator = x - smallest
    for first in (-2, 0, 2):
        scale = moved(numerator.max(-1, keepdims=True) / F(15), first)
        for second in (-2, 0, 2):
            codes = np.clip(np.floor(moved(numerator / scale, second) + F(0.5)), 0, 15)
            check(layout, loose, {"codes": codes, "scale": scale, "zero": smallest})


@pytest.mark.parametrize("ulps", [0, 1, 2.5])
def test_a_code_of_mse_is_open_within_eight_roundings_and_the_division(ulps):
    """Guard, division, factor and edge, each rounded, some of them twice; a unit in the last place is two roundings."""
    side = layout_of("{codec: mse, bits: 3}", head_dim=64).key
    edges = np.array(codebooks.load(side.parameters.codebook, 3).edges)
    edge = edges[edges != 0][:, None]
    open_to = 8 + 2 * ulps
    roundings = np.array([-open_to - 0.5, -open_to + 0.5, 0, open_to - 0.5, open_to + 0.5])
    elements = edge * (1 + roundings * floats.ROUNDING) * (3 + 1e-8) / 8
    norm = Span(*(np.full(len(edge), 3.0),) * 3)
    codes = side.codec.encode(side, elements, np.zeros(()), norm, division_ulps=ulps)["codes"]
    assert np.array_equal(codes.high - codes.low, [[0, 1, 1, 1, 0]] * len(edge))


SIDES = [
    "codec: uniform, bits: 4",
    "codec: uniform, bits: 5, group: 8, quantize_with: stored, rounding: half_even",
    "codec: uniform, bits: 6, symmetric: true, rounding: half_away",
    "codec: fp8, scale: {dtype: fp16}, group: 16",
    "codec: fp8, format: e5m2",
    "codec: raw, dtype: fp16",
    "codec: mse, bits: 3, norm_correction: store",
]


@pytest.mark.parametrize("codec", SIDES)
def test_intervals_hold_every_vector_within_the_error(codec):
    side = layout_of(f"{{{codec}}}", head_dim=32).key
    y = rng.normal(size=(200, 32))
    error = 0.02 * rng.random(size=y.shape)
    length = np.sqrt((y * y).sum(-1))
    norm = Span(0.99 * length, length, 1.01 * length)
    spans = side.codec.encode(side, y, error, norm)
    moves = [np.sign(y), -np.sign(y), 2.0 * (y > 1) - 1, *(rng.uniform(-1, 1, size=y.shape) for _ in range(20))]
    used = 0
    for move in moves:
        within = (y + 0.9999 * move * error).astype(F).astype(np.float64)
        of = length * rng.uniform(0.99, 1.01, size=length.shape)
        got = side.codec.encode(side, within, np.zeros(()), Span(of, of, of))
        for name, span in spans.items():
            low, exact, high, values = (*span.ends, got[name].exact)
            if name == "codes":
                low, exact, high, values = (side.codec.ordinals(side, codes) for codes in (low, exact, high, values))
            assert np.all((low <= values) & (values <= high)), name
            used += np.count_nonzero(values != exact)
    assert used > 0


@pytest.mark.parametrize("total", SUMS)
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("rotation, head_dim, block", ROTATIONS)
def test_unpack(rotation, head_dim, block, dtype, total):
    layout, x, matrix, _ = case("codec: mse, bits: 3, norm_correction: load", rotation, head_dim, block)
    cache = np.zeros((1, TOKENS, 1, layout.slot_bytes), dtype=np.uint8)
    slots = np.arange(TOKENS)
    run_time = {} if matrix is None else {"key_rotation": matrix}
    reference.store(layout, cache, x, None, slots, **run_time)
    parts = reference.read_parts(layout, cache, slots)["key"]
    levels = F(np.array(codebooks.load("lloyd_max", 3).levels) * head_dim**-0.5)
    add, side = SUMS[total], layout.key
    chosen = levels[parts["codes"]]
    y = chosen / np.sqrt(add(chosen * chosen) + F(1e-16))[..., None] * parts["norm"].astype(F)
    span = reference.unpack(layout, cache, slots, space="rotated", dtype=dtype)["key"]
    got = floats.round_to(y, dtype)
    assert np.all((span.low <= got) & (got <= span.high))
    if dtype != "fp32":
        assert np.mean(span.low != span.high) < 0.03
    if dtype == "fp16":
        y = y.astype(np.float16).astype(F)
    entries = (rotations.matrix(side.rotation, head_dim, matrix) / side.rotation.scale).astype(F)
    model = floats.round_to(add(y[..., None, :] * entries) * F(side.rotation.scale), dtype)
    span = reference.unpack(layout, cache, slots, dtype=dtype, **run_time)["key"]
    assert np.all((span.low <= model) & (model <= span.high))


# Spans are as wide as the roundings that are stated, and no wider: a bound that was loosened hides what is wrong.

R = 2.0**-24
TINY = 2.0**-126
EPSILON = 1 + 1e-6


def sum_roundings(count):
    """Of a sum of `count` products: one for each 8, and those of partial sums, of scaling and of split parts."""
    return count / 8 + 8


def width(span):
    return np.asarray(span.high - span.low, dtype=np.float64)


def assert_reached(widths, most):
    """No width is larger than what is allowed, and one reaches half of it: the allowance is that of these numbers."""
    assert np.all(widths <= most * EPSILON)
    assert np.any(widths > most / 2)


@pytest.mark.parametrize("rotation, head_dim, block", ROTATIONS)
def test_vectors_and_lengths_are_known_to_the_roundings_of_their_sums(rotation, head_dim, block):
    _, x, matrix, _ = case("codec: uniform, bits: 4", rotation, head_dim, block)
    extra = f", rotation_block: {block}" if block else ""
    for center in (None, rng.normal(size=(1, head_dim)).astype(F)):
        codec = f"{{codec: uniform, bits: 4, rotation: {rotation}{extra}, center: {str(center is not None).lower()}}}"
        side = layout_of(codec, head_dim=head_dim).key
        seen = transform.forward(side, x, rotation=matrix, center=center)
        entries = np.abs(rotations.matrix(side.rotation, head_dim, matrix))
        given = np.abs(x) if center is None else np.abs(x) + np.abs(center)
        assert_reached(seen.error, sum_roundings(block or head_dim) * R * (given @ entries) + head_dim * TINY)
        assert np.all(seen.error[(x - (0 if center is None else center) == 0).all(-1) & (center is None)] == 0)
        # half of those of the sum of squares, and the root's own
        assert_reached(width(seen.norm), (sum_roundings(head_dim) + 2) * R * seen.norm.exact + 1e-17 * (x == 0).all(-1))
        assert not width(seen.norm)[~(x if center is None else x - center).any(-1)].any()


@pytest.mark.parametrize("rotation, head_dim, block", ROTATIONS)
@pytest.mark.parametrize("centered", [False, True])
def test_vectors_in_model_space_are_known_to_the_roundings_of_their_sums(centered, rotation, head_dim, block):
    extra = f", rotation_block: {block}" if block else ""
    codec = f"{{codec: uniform, bits: 4, rotation: {rotation}{extra}, center: {str(centered).lower()}}}"
    side = layout_of(codec, head_dim=head_dim).key
    matrix = np.linalg.qr(rng.normal(size=(head_dim, head_dim)))[0].astype(F) if rotation == "matrix" else None
    center = rng.normal(size=(1, head_dim)).astype(F) if centered else None
    y = inputs(head_dim)
    y[7, :, 3], y[9] = np.nan, 0.0
    entries = np.abs(rotations.matrix(side.rotation, head_dim, matrix)).T
    finite = np.isfinite(y).all((1, 2))
    for known_to in (0.0, 1e-3):
        rotated_span = Span(y - known_to, y, y + known_to)
        span = transform.backward(side, rotated_span, "fp32", rotation=matrix, center=center)
        most = sum_roundings(block or head_dim) * R * (np.abs(np.nan_to_num(y)) @ entries) + head_dim * TINY
        most += known_to * entries.sum(0)
        most += R * np.abs(span.exact) * (centered + 1)  # the centre's sum, and that to fp32
        assert_reached(width(span)[finite], 2 * most[finite])
        assert np.all(np.isneginf(span.low[~finite]) & np.isposinf(span.high[~finite]) & np.isnan(span.exact[~finite]))
    if not centered:
        zero = transform.backward(side, Span(0 * y, 0 * y, 0 * y), "fp32", rotation=matrix)
        assert not width(zero)[finite].any()


@pytest.mark.parametrize(("correction", "roundings"), [("none", 3), ("load", 3 + sum_roundings(64) / 2 + 6)])
def test_levels_times_norms_are_known_to_a_few_roundings(correction, roundings):
    """Level and product; with correction at load half of those of the sum of squares, its root and the quotient."""
    side = layout_of(f"{{codec: mse, bits: 3, norm_correction: {correction}}}", head_dim=64).key
    codes = rng.integers(0, 8, (TOKENS, 64))
    norm = np.where(np.arange(TOKENS) == 7, 0.0, rng.uniform(1, 2, TOKENS))[:, None]
    span = side.codec.decode_span(side, {"codes": codes, "norm": norm})
    most = 2 * (roundings * R * np.abs(span.exact) + TINY) * (norm != 0)
    np.testing.assert_allclose(width(span), most, rtol=1e-6)


def near_edges(edges, relative):
    """Numbers that far below and above edges, relative to them."""
    return np.sort(np.concatenate([edges * (1 - relative), edges * (1 + relative)]))


@pytest.mark.parametrize("addition", [0.0, 0.5])
@pytest.mark.parametrize("symmetric", [False, True])
def test_grids_of_exact_numbers_are_known_to_a_few_roundings(symmetric, addition):
    rounding = "half_up" if addition else "half_even"
    codec = f"codec: uniform, bits: 8, symmetric: {str(symmetric).lower()}, rounding: {rounding}"
    codec += ", scale: {dtype: fp32}" + ("" if symmetric else ", zero: {dtype: fp32}")
    side = layout_of(f"{{{codec}}}", head_dim=64).key
    top = 127 if symmetric else 255
    edges = np.arange(30) + 0.5
    # scale, difference and quotient are rounded, and the sum before a number is rounded down
    roundings = 5 + bool(addition)
    for distance, known in (((roundings - 0.5) * R, False), ((roundings + 2) * R, True)):
        y = np.concatenate([[0.0, top, 0.0, 1.0], near_edges(edges, distance)])[None]
        spans = side.codec.encode(side, y, np.zeros_like(y), Span(*[np.ones(1)] * 3))
        codes = [side.codec.ordinals(side, end) for end in spans["codes"].ends]
        assert np.array_equal(codes[0], codes[2]) == known
        assert_reached(width(spans["scale"]), 2 * 2 * R + R)
        if not symmetric:
            assert not width(spans["zero"]).any()


@pytest.mark.parametrize("correction", ["none", "store"])
@pytest.mark.parametrize("tie", ["up", "down"])
def test_codes_of_exact_directions_are_known_to_a_few_roundings(tie, correction):
    codec = f"codec: mse, bits: 4, tie: {tie}, norm_correction: {correction}, norm: {{dtype: fp32}}"
    side = layout_of(f"{{{codec}}}", head_dim=64).key
    edges = np.array(codebooks.load("lloyd_max", 4).edges)
    edges = edges[edges > 0]
    length = np.full(1, 16.0)
    for distance, known in ((6 * R, False), (10 * R, True)):
        y = np.resize(near_edges(edges, distance), 64)[None] * (length + 1e-8) / 8
        spans = side.codec.encode(side, y, np.zeros_like(y), Span(length, length, length))
        assert np.array_equal(spans["codes"].low, spans["codes"].high) == known
    # root, reciprocal and product are rounded; of the sum of squares half of what it and its terms may be off
    most = (sum_roundings(64) + 8) / 2 + 4 if correction == "store" else 0
    norm = spans["norm"]
    assert np.all(width(norm) <= (2 * most * R + 2 * R) * norm.exact) and np.all(width(norm) >= most * R * norm.exact)


@pytest.mark.parametrize("zero", [True, False])
def test_decoded_grids_are_known_to_the_rounding_of_the_product(zero):
    side = layout_of(f"{{codec: uniform, bits: 8, symmetric: {str(not zero).lower()}}}", head_dim=64).key
    parts = {
        "codes": rng.integers(0, 256, size=(500, 1, 64)),
        "scale": floats.round_to(rng.random((500, 1, 1)), "fp32"),
    }
    if zero:
        parts["zero"] = floats.round_to(100 * rng.normal(size=(500, 1, 1)), "fp16")
    span = side.codec.decode_span(side, parts)
    product = np.abs(side.codec.ordinals(side, parts["codes"]) * parts["scale"])
    if zero:
        assert_reached(width(span), R * product + 2 * R * np.abs(span.exact))
    else:
        assert not width(span).any()


@pytest.mark.parametrize("correction", ["none", "load"])
def test_decoded_levels_are_known_to_a_few_roundings(correction):
    side = layout_of(f"{{codec: mse, bits: 3, norm_correction: {correction}}}", head_dim=64).key
    parts = {
        "codes": rng.integers(0, 8, size=(50, 1, 64)),
        "norm": np.where(np.arange(50) % 5, 3.5, 0.0)[:, None, None],
    }
    span = side.codec.decode_span(side, parts)
    most = 3 + (sum_roundings(64) / 2 + 6 if correction == "load" else 0)
    assert_reached(width(span), 2 * (most * R * np.abs(span.exact) + TINY * (span.exact != 0)))

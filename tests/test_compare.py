"""A comparison sees every wrong bit, and says where it is."""

import numpy as np
import pytest
from support.caches import BLOCKS, filled, vectors
from support.layouts import layout_of

from tqgen import reference
from tqgen.codecs.base import Span
from tqgen.numerics import floats
from tqgen.reference import cache_bytes
from tqgen.reference.compare import MAX_MISMATCHES, compare_cache, compare_unpacked

KEY = "{codec: mse, bits: 4, rotation: hadamard}"
VALUE = "{codec: uniform, bits: 4}"
SLOTS = np.array([3, -1, 6])


def stored(layout):
    """A cache before and after a store of three tokens, the buffers around, and what is expected of it."""
    before, buffer_before = filled(layout, 2, 4, 2, padding=5)
    after, buffer_after = filled(layout, 2, 4, 2, padding=5)
    key, value = vectors(3, 2, layout.key.head_dim), vectors(3, 2, layout.value.head_dim, seed=1)
    reference.store(layout, after, key, value, SLOTS)
    expected = {side: reference.encode(layout, side, given) for side, given in (("key", key), ("value", value))}
    return before, after, expected, {"buffer_before": buffer_before, "buffer_after": buffer_after}


@pytest.mark.parametrize("block", BLOCKS)
def test_what_the_reference_stores_is_right(block):
    layout = layout_of(KEY, VALUE, block=BLOCKS[block])
    before, after, expected, buffers = stored(layout)
    result = compare_cache(layout, before, after, expected, SLOTS, **buffers)
    assert result.ok, str(result)
    assert result.bytes == buffers["buffer_after"].size
    assert result.codes == 2 * 2 * 2 * 128 and result.metadata == 2 * 2 * 3
    assert result.allowances == 0
    assert "0 mismatches" in str(result)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_single_bit_matters(block):
    layout = layout_of(KEY.replace("4", "3"), VALUE.replace("4", "5"), block=BLOCKS[block], head_dim=32)
    before, after, expected, buffers = stored(layout)
    buffer = buffers["buffer_after"]
    wide = {name: np.argwhere(s.low != s.high) for side in expected.values() for name, s in side.items()}
    assert not any(len(places) for places in wide.values()), "the vectors of this test lie on edges"
    for byte in range(buffer.size):
        for bit in (1, 128):
            buffer[byte] ^= bit
            result = compare_cache(layout, before, after, expected, SLOTS, **buffers)
            assert result.num_mismatches == 1, (byte, bit)
            buffer[byte] ^= bit
    assert compare_cache(layout, before, after, expected, SLOTS, **buffers).ok


@pytest.mark.parametrize("arrangement", ["linear", "halves"])
def test_a_mismatch_says_where_it_is(arrangement):
    layout = layout_of(KEY, f"{{codec: uniform, bits: 4, packing: {arrangement}}}", block="soa")
    before, after, expected, _ = stored(layout)
    field, head, item = layout.field("value.codes"), 1, 70
    position = {"linear": 70, "halves": 2 * (70 - 64) + 1}[arrangement]
    byte = field.address(2, head, 4, 2) + position // 2
    cache_bytes.block_bytes(layout, after)[1, byte] ^= 1 << (4 * (position % 2))
    (mismatch,) = compare_cache(layout, before, after, expected, SLOTS).mismatches
    exact = expected["value"]["codes"].exact[2, head, item]
    assert (mismatch.what, mismatch.token, mismatch.slot, mismatch.head, mismatch.item) == ("value.codes", 2, 6, 1, 70)
    assert (mismatch.block, mismatch.byte, mismatch.bit) == (1, byte, 4 * (position % 2))
    assert mismatch.expected == str(exact) and mismatch.got == f"{exact ^ 1} ({exact ^ 1:#03x})"
    assert str(mismatch).startswith("value.codes at token 2, slot 6, head 1, item 70, block 1, byte ")


def test_unused_bits_and_untouched_bytes_are_named():
    layout = layout_of("{codec: uniform, bits: 3}", VALUE, head_dim=10)
    before, after, expected, _ = stored(layout)
    flat = cache_bytes.block_bytes(layout, after)
    last = layout.field("key.codes").address(3, 0, 4, 2) + 3
    flat[0, last] |= 0x40
    flat[0, 0] = 0xED
    result = compare_cache(layout, before, after, expected, SLOTS)
    unused, untouched = result.mismatches
    assert (unused.what, unused.token, unused.byte, unused.bit) == ("unused bits of key.codes", 0, last, 6)
    assert (untouched.what, untouched.block, untouched.byte) == ("untouched byte", 0, 0)
    assert (untouched.expected, untouched.got) == ("0xee", "0xed")


def test_a_span_is_the_only_tolerance():
    layout = layout_of(KEY, VALUE)
    before, after, expected, _ = stored(layout)
    codes = expected["key"]["codes"]
    at = (0, 1, 9)

    def with_codes(low, exact, high):
        ends = [end.copy() for end in codes.ends]
        for end, change in zip(ends, (low, exact, high), strict=True):
            end[at] += change
        return {**expected, "key": {**expected["key"], "codes": Span(*ends)}}

    for change in ((0, 1, 1), (-1, -1, 0), (-1, -1, 2)):
        result = compare_cache(layout, before, after, with_codes(*change), SLOTS)
        assert result.ok and result.allowances == 1
    for change in ((1, 1, 1), (1, 2, 3), (-2, -1, -1)):
        result = compare_cache(layout, before, after, with_codes(*change), SLOTS)
        assert result.num_mismatches == 1 and result.allowances == 0


def test_only_the_canonical_nan_is_a_nan():
    layout = layout_of("{codec: uniform, bits: 4}", head_dim=16)
    vector = np.full((1, 1, 16), np.nan)
    before = np.zeros((1, 1, 1, layout.slot_bytes), dtype=np.uint8)
    after = before.copy()
    reference.store(layout, after, vector, None, np.zeros(1, int))
    expected = {"key": reference.encode(layout, "key", vector)}
    assert compare_cache(layout, before, after, expected, np.zeros(1, int)).ok
    after[..., 8] ^= 1
    (mismatch,) = compare_cache(layout, before, after, expected, np.zeros(1, int)).mismatches
    assert mismatch.what == "key.scale" and mismatch.expected == "nan" and mismatch.got == "nan (0x7e01)"
    after[..., 8:10] = 0
    assert compare_cache(layout, before, after, expected, np.zeros(1, int)).num_mismatches == 1


def test_signs_of_zero_codes_matter():
    layout = layout_of("{codec: fp8}", head_dim=16)
    vector = np.full((1, 1, 16), -0.0)
    before = np.zeros((1, 1, 1, layout.slot_bytes), dtype=np.uint8)
    after = before.copy()
    expected = {"key": reference.encode(layout, "key", vector)}
    assert compare_cache(layout, before, after, expected, np.zeros(1, int)).num_mismatches == 16
    after[:] = 0x80
    assert compare_cache(layout, before, after, expected, np.zeros(1, int)).ok


def test_all_mismatches_are_counted_and_some_described():
    layout = layout_of(KEY, VALUE)
    before, _, expected, _ = stored(layout)
    result = compare_cache(layout, before, before, expected, SLOTS)
    assert result.num_mismatches > 100
    assert len(result.mismatches) == MAX_MISMATCHES
    assert f"and {result.num_mismatches - MAX_MISMATCHES:,} more" in str(result)


def test_nothing_compared_is_not_ok():
    assert not compare_unpacked({}, {}).ok
    with pytest.raises(ValueError, match="same slot"):
        layout = layout_of(KEY, VALUE)
        before, after, expected, _ = stored(layout)
        compare_cache(layout, before, after, expected, np.array([3, 3, 6]))


def test_unpacked_vectors():
    one, inf, nan = np.ones((1, 1, 3)), np.full((1, 1, 3), np.inf), np.full((1, 1, 3), np.nan)
    half = np.full((1, 1, 3), 0.5)
    assert compare_unpacked({"key": Span(one, one, one)}, {"key": one}).ok
    assert compare_unpacked({"key": Span(half, half, one)}, {"key": one}).allowances == 3
    wrong = compare_unpacked({"key": Span(one, one, one)}, {"key": half}, np.array([7]))
    assert wrong.num_mismatches == 3
    assert str(wrong.mismatches[1]) == "key vector at token 0, slot 7, head 0, item 1: expected 1, got 0.5"
    assert compare_unpacked({"key": Span(nan, nan, nan)}, {"key": nan}).ok
    for not_nan in (one, inf, -inf):
        assert not compare_unpacked({"key": Span(nan, nan, nan)}, {"key": not_nan}).ok
    assert not compare_unpacked({"key": Span(one, one, one)}, {"key": nan}).ok
    anything = Span(-inf, nan, inf)
    for not_finite in (nan, inf, -inf):
        assert compare_unpacked({"key": anything}, {"key": not_finite}).ok
    for any_number in (one, inf, -inf):
        assert compare_unpacked({"key": Span(-inf, one, inf)}, {"key": any_number}).ok
    assert not compare_unpacked({"key": Span(-inf, one, inf)}, {"key": nan}).ok
    first, *_ = compare_unpacked({"key": anything}, {"key": one}).mismatches
    assert first.expected == "a number that is not finite"
    with pytest.raises(ValueError, match="expected"):
        compare_unpacked({"key": Span(one, one, one)}, {"key": one[0]})


def test_a_large_cache():
    layout = layout_of(KEY, VALUE)
    tokens, heads = 512, 16
    cache, _ = filled(layout, 32, 16, heads)
    before = cache.copy()
    key = floats.round_to(np.random.default_rng(0).normal(size=(tokens, heads, 128)), "bf16")
    expected = {side: reference.encode(layout, side, key) for side in ("key", "value")}
    reference.store(layout, cache, key, key, np.arange(tokens))
    result = compare_cache(layout, before, cache, expected, np.arange(tokens))
    assert result.ok and result.codes == 2 * tokens * heads * 128

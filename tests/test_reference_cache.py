"""Where the reference puts bytes: addresses, slots, padding; how tokens are grouped changes nothing."""

import numpy as np
import pytest
from support.caches import BLOCKS, filled, vectors
from support.layouts import layout_of

from tqgen import reference
from tqgen.reference import cache_bytes

KEY = "{codec: mse, bits: 4, rotation: hadamard}"
VALUE = "{codec: uniform, bits: 4}"


@pytest.mark.parametrize(
    "block, expected",
    [
        ("aos", {"key.codes": 1474, "key.norm": 1538, "value.codes": 1540, "value.scale": 1604, "value.zero": 1606}),
        ("soa", {"key.norm": 4202, "value.scale": 4234, "value.zero": 4266}),
    ],
)
def test_addresses_by_hand(block, expected):
    # 16 tokens, 2 heads; the slot at offset 5 of block 1, head 1.
    layout = layout_of(KEY, VALUE, block=block)
    cache, _ = filled(layout, 2, 16, 2)
    assert cache[0].size == 4288
    for name, byte in expected.items():
        block_index, address = cache_bytes.addresses(cache, layout.field(name), np.array([16 + 5]))
        assert block_index.item() == 1
        assert address[0, 1].tolist() == list(range(byte, byte + layout.field(name).part.num_bytes))


@pytest.mark.parametrize("block", BLOCKS)
def test_only_the_bytes_of_fields_change(block):
    layout = layout_of(KEY, VALUE, block=BLOCKS[block])
    cache, buffer = filled(layout, 2, 16, 2, padding=24)
    slots = np.array([0, -1, 17, -(2**31)], dtype=np.int32)
    reference.store(layout, cache, vectors(4, 2), vectors(4, 2), slots)
    changed = np.argwhere(cache_bytes.block_bytes(layout, cache) != 0xEE)
    assert set(changed[:, 0]) == {0, 1}
    owned = cache_bytes.owned(layout, cache, np.array([0, 17]))
    assert np.count_nonzero(owned) == 2 * 2 * 134
    assert owned[changed[:, 0], changed[:, 1]].all()
    # Nearly all of them: a byte of codes may happen to be 0xEE.
    assert len(changed) > 0.95 * np.count_nonzero(owned)
    outside = np.count_nonzero(buffer != 0xEE)
    assert outside == len(changed)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("sizes", [(40,), (1, 39), (1,) * 40])
def test_grouping_order_and_dtype_of_tokens_do_not_matter(block, sizes):
    layout = layout_of(KEY, VALUE, block=BLOCKS[block])
    key, value = vectors(40, 3), vectors(40, 3, seed=1)
    rng = np.random.default_rng(len(sizes))
    slots = rng.permutation(5 * 16)[:40]
    whole, _ = filled(layout, 5, 16, 3)
    reference.store(layout, whole, key, value, slots)
    parts, _ = filled(layout, 5, 16, 3)
    order = rng.permutation(40)
    for chosen in np.split(order, np.cumsum(sizes)[:-1]):
        reference.store(layout, parts, key[chosen], value[chosen], slots[chosen])
    assert np.array_equal(whole, parts)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("block_size, heads", [(1, 1), (16, 3), (24, 8)])
def test_what_is_stored_is_read_back(block, block_size, heads):
    layout = layout_of(
        "{codec: uniform, bits: 3, group: 32, packing: halves}", "{codec: raw, dtype: bf16}", block=block_of(block)
    )
    cache, _ = filled(layout, 7, block_size, heads, padding=3)
    slots = np.random.default_rng(heads).permutation(7 * block_size)[:5]
    key, value = vectors(5, heads), vectors(5, heads, seed=1)
    reference.store(layout, cache, key, value, slots)
    parts = reference.read_parts(layout, cache, slots)
    for side, given in (("key", key), ("value", value)):
        for name, span in reference.encode(layout, side, given).items():
            assert np.array_equal(parts[side][name], span.exact), (side, name)
    if block_size * 7 > 5:
        other = np.setdiff1d(np.arange(7 * block_size), slots)
        assert np.all(reference.read_bits(layout, cache, other)["value"]["codes"] == 0xEEEE)


def block_of(name):
    """The block of that name for a side of raw codes, which stores no scale and no zero point."""
    return BLOCKS[name].replace("value.scale, value.zero", "key.zero").replace("key.norm", "key.scale")


def test_negative_slots_read_as_zeros():
    layout = layout_of(KEY, VALUE)
    cache, _ = filled(layout, 1, 4, 2)
    slots = np.array([2, -1])
    reference.store(layout, cache, vectors(2, 2), vectors(2, 2), slots)
    for space in ("model", "rotated"):
        for span in reference.unpack(layout, cache, slots, space=space).values():
            for end in span.ends:
                assert not end[1].any() and end[0].any()
    for parts in reference.read_bits(layout, cache, slots).values():
        assert not any(bits[1].any() for bits in parts.values())


def test_a_negative_slot_has_no_centre():
    layout = layout_of("{codec: uniform, bits: 4, center: true}")
    cache, _ = filled(layout, 1, 4, 2)
    slots, center = np.array([2, -1]), np.ones((2, 128))
    reference.store(layout, cache, vectors(2, 2), None, slots, key_center=center)
    span = reference.unpack(layout, cache, slots, key_center=center)["key"]
    assert span.exact[0].any() and not any(end[1].any() for end in span.ends)


def test_reserved_bytes_and_the_rest_of_the_slot_belong_to_somebody_else():
    block = (
        "{regions: [{name: data, order: [token, head, field], fields: [{reserved: 26}, value.codes, value.norm]}], "
        "slot_bytes: 100}"
    )
    layout = layout_of(value=KEY, block=block)
    cache, _ = filled(layout, 2, 4, 2)
    reference.store(layout, cache, None, vectors(8, 2), np.arange(8))
    flat = cache.reshape(2, -1)
    used = flat[:, : 4 * 2 * 92].reshape(2, 8, 92)
    assert np.all(used[..., :26] == 0xEE) and np.all(flat[:, 4 * 2 * 92 :] == 0xEE)
    assert (used[..., 26:] != 0xEE).mean() > 0.95


def test_a_cache_of_another_layout_is_refused():
    layout = layout_of(KEY, VALUE)
    for wrong in (
        np.zeros((2, 16, 2, 133), dtype=np.uint8),
        np.zeros((2, 16, 2, 134), dtype=np.int8),
        np.zeros((2, 16, 134), dtype=np.uint8),
    ):
        with pytest.raises(ValueError, match="expected uint8"):
            reference.read_bits(layout, wrong, np.zeros(1, dtype=int))
    with pytest.raises(ValueError, match="follow one another"):
        reference.read_bits(layout, np.zeros((2, 16, 4, 134), dtype=np.uint8)[:, :, ::2], np.zeros(1, dtype=int))


def test_blocks_that_their_fields_do_not_fit_are_refused():
    regions = "{regions: [{name: all, order: [{axis: token, align: 64}, head, field], fields: [value.codes]}]}"
    layout = layout_of("{codec: none}", "{codec: fp8, head_dim: 24}", block=regions)
    cache = np.zeros((1, 4, 2, layout.slot_bytes), dtype=np.uint8)
    with pytest.raises(ValueError, match=r"a block has 192 bytes, and its fields and their alignment need 256"):
        cache_bytes.block_bytes(layout, cache)
    fitting = np.zeros((1, 4, 8, layout.slot_bytes), dtype=np.uint8)
    assert cache_bytes.block_bytes(layout, fitting).shape == (1, 4 * 8 * 24)


def test_the_cache_may_be_of_any_strides_between_blocks():
    layout = layout_of(KEY, VALUE)
    key, value, slots = vectors(6, 2), vectors(6, 2, seed=1), np.array([0, 5, 9, 2, 11, 7])
    plain, _ = filled(layout, 3, 4, 2)
    padded, _ = filled(layout, 3, 4, 2, padding=1000)
    for cache in (plain, padded):
        reference.store(layout, cache, key, value, slots)
    assert np.array_equal(plain, padded)

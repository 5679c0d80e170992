"""Attention in float64 against a loop over its definition."""

import math

import numpy as np
import pytest
from support.layouts import layout_of

from tqgen import reference
from tqgen.reference.exact_attention import attend

rng = np.random.default_rng(29)
START = rng.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers():
    """Every test draws the same numbers, whatever ran before it."""
    rng.bit_generator.state = START


def by_definition(query, keys, values, scale, sinks=None, window=None, softcap=None):
    num_queries, num_heads, _ = query.shape
    positions, num_kv_heads, _ = keys.shape
    output = np.zeros((num_queries, num_heads, values.shape[-1]))
    logarithm = np.full((num_queries, num_heads), -math.inf)
    for t in range(num_queries):
        for h in range(num_heads):
            kv = h * num_kv_heads // num_heads
            own = positions - num_queries + t
            total, sums = 0.0, np.zeros(values.shape[-1])
            for p in range(positions):
                if p > own or (window is not None and own - p >= window):
                    continue
                score = scale * sum(query[t, h] * keys[p, kv])
                if softcap is not None:
                    score = softcap * math.tanh(score / softcap)
                total += math.exp(score)
                sums += math.exp(score) * values[p, kv]
            if sinks is not None:
                total += math.exp(sinks[h])
            if total:
                output[t, h], logarithm[t, h] = sums / total, math.log(total)
    return output, logarithm


@pytest.mark.parametrize("num_queries, positions", [(1, 9), (4, 9), (9, 9), (1, 0), (3, 1)])
@pytest.mark.parametrize(
    "options", [{}, {"window": 3}, {"softcap": 2.0}, {"sinks": True}, {"sinks": True, "window": 1}]
)
def test_attend(num_queries, positions, options):
    query = 2 * rng.normal(size=(num_queries, 6, 8))
    keys, values = rng.normal(size=(positions, 3, 8)), rng.normal(size=(positions, 3, 5))
    if "sinks" in options:
        options = {**options, "sinks": rng.normal(size=6)}
    expected = by_definition(query, keys, values, 0.3, **options)
    output, logarithm = attend(query, keys, values, 0.3, **options)
    assert np.allclose(output, expected[0], atol=1e-12)
    assert np.allclose(logarithm, expected[1], atol=1e-12)


def test_scores_that_exp_cannot_hold():
    query, keys = np.full((1, 1, 1), 1.0), np.array([[[4000.0]], [[3999.0]]])
    output, logarithm = attend(query, keys, np.array([[[1.0]], [[0.0]]]), 1.0)
    assert output.item() == pytest.approx(1 / (1 + math.exp(-1)))
    assert logarithm.item() == pytest.approx(4000 + math.log(1 + math.exp(-1)))


def test_sinks_that_exp_cannot_hold():
    query, keys = np.full((1, 2, 1), 1.0), np.array([[[1000.0]], [[1.0]]])
    output, logarithm = attend(query, keys, np.ones((2, 1, 1)), 1.0, sinks=np.array([1001.0, 3000.0]))
    assert output[0, 0, 0] == pytest.approx(1 / (1 + math.e)) and output[0, 1, 0] == 0
    assert logarithm[0] == pytest.approx([1000 + math.log(1 + math.e), 3000])


@pytest.mark.parametrize("seen", [0, 2])
def test_sinks_that_are_no_numbers(seen):
    sinks = np.array([-np.inf, np.inf, np.nan, -3e38])
    keys = np.zeros((seen, 1, 1))
    output, logarithm = attend(np.ones((1, 4, 1)), keys, keys + 5.0, 1.0, sinks=sinks)
    alone = 5.0 if seen else 0.0
    assert output[0, :, 0] == pytest.approx([alone, np.nan, np.nan, alone], nan_ok=True)
    least = [math.log(2)] * 2 if seen else [-np.inf, -3e38]
    assert logarithm[0] == pytest.approx([least[0], np.nan, np.nan, least[1]], nan_ok=True)


def test_heads_must_be_grouped_evenly():
    with pytest.raises(ValueError, match="5 query heads"):
        attend(np.zeros((1, 5, 2)), np.zeros((1, 2, 2)), np.zeros((1, 2, 2)), 1.0)


def paged(layout, lengths, block_size, **run_time):
    """Sequences of random vectors in a paged cache that is poisoned elsewhere: cache, block table, keys and values."""
    blocks = [-(-length // block_size) for length in lengths]
    order = rng.permutation(sum(blocks) + 2)
    cache = np.full((len(order), block_size, 2, layout.slot_bytes), 0xFF, dtype=np.uint8)
    table = np.full((len(lengths), max(blocks) + 1), 10**6, dtype=np.int32)
    sequences = []
    for row, (length, count) in enumerate(zip(lengths, blocks, strict=True)):
        table[row, :count], order = order[:count], order[count:]
        positions = np.arange(length)
        slots = table[row, positions // block_size].astype(np.int64) * block_size + positions % block_size
        key = rng.normal(size=(length, 2, layout.key.head_dim)).astype(np.float32).astype(np.float64)
        value = rng.normal(size=(length, 2, layout.value.head_dim)).astype(np.float32).astype(np.float64)
        reference.store(layout, cache, key, value, slots, **run_time)
        sequences.append((key, value))
    return cache, table, sequences


RAW = "codec: raw, dtype: fp32"


@pytest.mark.parametrize("rotation", ["none", "hadamard", "matrix"])
@pytest.mark.parametrize("num_queries", [None, 2])
def test_attention_over_a_paged_cache(rotation, num_queries):
    layout = layout_of(f"{{{RAW}, rotation: {rotation}}}", f"{{{RAW}, rotation: {rotation}, head_dim: 4}}", head_dim=16)
    run_time = {}
    if rotation == "matrix":
        matrices = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in (16, 4))
        run_time = dict(zip(("key_rotation", "value_rotation"), matrices, strict=True))
    lengths = [1 + (num_queries or 0), 4, 5, 13]
    cache, table, sequences = paged(layout, lengths, 4, **run_time)
    shape = (4, 6, 16) if num_queries is None else (4, num_queries, 6, 16)
    query = rng.normal(size=shape)
    output, logarithm = reference.attention(layout, query, cache, table, np.array(lengths), **run_time)
    rotated, _ = reference.attention(layout, query, cache, table, np.array(lengths), value_space="rotated", **run_time)
    assert output.shape == (*shape[:-1], 4) and logarithm.shape == shape[:-1]
    for row, (key, value) in enumerate(sequences):
        rows = query[row] if num_queries else query[row][None]
        expected = by_definition(rows, key, value, 0.25)
        assert np.allclose(output[row], expected[0], atol=1e-6)
        assert np.allclose(logarithm[row], expected[1], atol=1e-5)
    if rotation == "matrix":
        assert np.allclose(rotated @ run_time["value_rotation"].T, output, atol=1e-6)
    if rotation == "none":
        assert np.array_equal(rotated, output)


def test_empty_sequences_give_zeros():
    layout = layout_of(f"{{{RAW}}}", f"{{{RAW}}}", head_dim=8)
    cache, table, _ = paged(layout, [0, 3], 4)
    output, logarithm = reference.attention(layout, rng.normal(size=(2, 2, 8)), cache, table, np.array([0, 3]))
    assert not output[0].any() and np.all(np.isneginf(logarithm[0]))
    assert np.isfinite(output).all() and output[1].any()


def test_centres():
    layout = layout_of(f"{{{RAW}, center: true}}", f"{{{RAW}, center: true}}", head_dim=8)
    centers = {name: rng.normal(size=(2, 8)).astype(np.float32) for name in ("key_center", "value_center")}
    cache, table, ((key, value),) = paged(layout, [7], 4, **centers)
    query, lengths = rng.normal(size=(1, 4, 8)), np.array([7])
    expected = by_definition(query, key, value, 8**-0.5)
    without = reference.attention(layout, query, cache, table, lengths, value_center=centers["value_center"])
    assert np.allclose(without[0], expected[0], atol=1e-6)
    assert not np.allclose(without[1], expected[1], atol=0.1)
    assert np.allclose(reference.attention(layout, query, cache, table, lengths, **centers)[1], expected[1], atol=1e-6)
    with pytest.raises(ValueError, match="value_center is not given"):
        reference.attention(layout, query, cache, table, lengths)


def test_attention_needs_both_sides():
    layout = layout_of(value=f"{{{RAW}}}", head_dim=8)
    cache = np.zeros((1, 4, 2, layout.slot_bytes), dtype=np.uint8)
    with pytest.raises(ValueError, match="does not store both"):
        reference.attention(layout, np.zeros((1, 2, 8)), cache, np.zeros((1, 1), int), np.array([1]))

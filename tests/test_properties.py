"""What holds for every legal spec: where bytes stand changes no number, and the order of tokens changes no byte."""

import json

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.caches import filled
from support.kernels import kernels_of
from support.random_specs import HEAD_DIMS, regions, sides, spec_texts

from tqgen import reference, verify
from tqgen.layout.resolve import resolve
from tqgen.reference import compare
from tqgen.spec import parse_spec
from tqgen.spec.expand import stored_parts
from tqgen.verify.trial import device_arguments, run_time_arguments

TOKENS, HEADS, BLOCK_SIZE, BLOCKS = 7, 2, 8, 3


def arrangements(data, chosen):
    """The texts of one pair of sides in several blocks: structs, strips, planes, and one that is drawn."""
    names = list(stored_parts(parse_spec(json.dumps({**data, "block": "soa"}))))
    orders = (["field", "head", "token"], ["head", "token", "field"])
    drawn = [{"regions": [{"name": "all", "order": order, "fields": names}]} for order in orders]
    for block in ("aos", "soa", *drawn, {"regions": chosen(names)}):
        # room for alignment of any kind, in blocks of this size
        slot = {"regions": block["regions"], "slot_bytes": 4096} if isinstance(block, dict) else block
        yield json.dumps({**data, "block": slot})


@st.composite
def pairs_of_sides(draw):
    """A spec without its block, as data."""
    head_dim = draw(HEAD_DIMS)
    key = draw(sides(head_dim))
    value = draw(sides(head_dim, may_be_none=key["codec"] != "none"))
    return {"tqgen": 1, "name": "drawn", "head_dim": head_dim, "key": key, "value": value}


def numbers(layout, seed):
    """Vectors of every stored side [TOKENS, HEADS, head_dim] that fp16 has."""
    rng = np.random.default_rng(seed)
    return {
        side.name: np.float64(np.float16(rng.normal(size=(TOKENS, HEADS, side.head_dim)) * 4)) for side in layout.sides
    }


def stored(layout, vectors, slots, run_time):
    """A cache that holds the vectors, by the reference, and the buffer around it."""
    cache, buffer = filled(layout, BLOCKS, BLOCK_SIZE, HEADS)
    reference.store(layout, cache, vectors.get("key"), vectors.get("value"), slots, **run_time)
    return cache, buffer


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_arrangements_of_the_same_sides_unpack_to_the_same_numbers(data):
    spec = data.draw(pairs_of_sides())
    found = []
    for text in arrangements(spec, lambda names: data.draw(regions(names))):
        layout = resolve(parse_spec(text))
        run_time = run_time_arguments(layout, HEADS)
        slots = np.random.default_rng(3).permutation(BLOCKS * BLOCK_SIZE)[:TOKENS]
        cache, _ = stored(layout, numbers(layout, 1), slots, run_time)
        spans = reference.unpack(layout, cache, slots, space="model", dtype="fp32", **run_time)
        parts = reference.read_parts(layout, cache, slots)
        found.append((text, {name: span.exact for name, span in spans.items()}, parts))
    text, vectors, parts = found[0]
    assert vectors and all(np.isfinite(array).any() for array in vectors.values())
    for other, others, other_parts in found[1:]:
        for name, array in vectors.items():
            np.testing.assert_array_equal(array, others[name], err_msg=f"{text}\n{other}")
        for side, of_side in parts.items():
            for part, array in of_side.items():
                np.testing.assert_array_equal(array, other_parts[side][part], err_msg=f"{text}\n{other}")


@settings(max_examples=80, deadline=None, derandomize=True)
@given(text=spec_texts(), seed=st.integers(0, 99))
def test_the_reference_stores_in_any_order(text, seed):
    layout = resolve(parse_spec(text))
    if layout.missing_bytes(BLOCK_SIZE, HEADS):
        return
    rng = np.random.default_rng(seed)
    run_time = run_time_arguments(layout, HEADS)
    vectors, slots = numbers(layout, seed), rng.permutation(BLOCKS * BLOCK_SIZE)[:TOKENS]
    slots[rng.integers(TOKENS)] = -1
    order = rng.permutation(TOKENS)
    _, at_once = stored(layout, vectors, slots, run_time)
    shuffled = {name: array[order] for name, array in vectors.items()}
    _, in_order = stored(layout, shuffled, slots[order], run_time)
    cache, one_by_one = filled(layout, BLOCKS, BLOCK_SIZE, HEADS)
    for token in order:
        one = {name: array[token : token + 1] for name, array in vectors.items()}
        reference.store(layout, cache, one.get("key"), one.get("value"), slots[token : token + 1], **run_time)
    np.testing.assert_array_equal(at_once, in_order, err_msg=text)
    np.testing.assert_array_equal(at_once, one_by_one, err_msg=text)


def kernel_cache(kernels, vectors, slots, run_time, pieces):
    """The cache after the module's own store, of tokens in pieces."""
    where = verify.device()
    cache = kernels.module.allocate(BLOCKS, BLOCK_SIZE, HEADS, device=where).fill_(0xEE)
    arguments = device_arguments(run_time, where)
    for piece in pieces:
        given = {name: torch.from_numpy(array[piece]).to(torch.float16).to(where) for name, array in vectors.items()}
        chosen = torch.from_numpy(slots[piece]).to(where)
        kernels.module.store(given.get("key"), given.get("value"), cache, chosen, **arguments)
    return cache


@settings(max_examples=60, deadline=None, derandomize=True)
@given(text=spec_texts(), seed=st.integers(0, 99))
def test_kernels_of_random_specs(text, seed):
    """Bytes are the reference's, in any order of tokens; what is read back is what the reference reads."""
    kernels = kernels_of(text)
    layout = kernels.layout
    if layout.missing_bytes(BLOCK_SIZE, HEADS) or layout.block_bytes(BLOCK_SIZE, HEADS) % layout.alignment:
        return
    rng = np.random.default_rng(seed)
    run_time = run_time_arguments(layout, HEADS)
    vectors, slots = numbers(layout, seed), rng.permutation(BLOCKS * BLOCK_SIZE)[:TOKENS]
    slots[rng.integers(TOKENS)] = -1
    order = rng.permutation(TOKENS)
    with np.errstate(all="ignore"):
        try:
            cache = kernel_cache(kernels, vectors, slots, run_time, [order])
            again = kernel_cache(kernels, vectors, slots, run_time, [order[:1], order[1:4], order[4:]])
        except Exception as error:  # with a place in a temporary file, by which no failure is found again
            raise AssertionError(f"{text}: {error!r}") from None
        assert torch.equal(cache, again), text
        expected = {
            side.name: reference.encode(
                layout,
                side.name,
                vectors[side.name],
                rotation=run_time.get(f"{side.name}_rotation"),
                center=run_time.get(f"{side.name}_center"),
            )
            for side in layout.sides
        }
        after = cache.cpu().numpy()
        result = compare.compare_cache(layout, np.full_like(after, 0xEE), after, expected, slots)
        assert result.ok, f"{text}\n{result}"
        got = kernels.module.unpack(
            cache,
            torch.from_numpy(slots).to(cache.device),
            dtype=torch.float32,
            **device_arguments(run_time, cache.device),
        )
        read = {name: one.double().cpu().numpy() for name, one in zip(("key", "value"), got) if one is not None}
        spans = reference.unpack(layout, after, slots, dtype="fp32", **run_time)
    result = compare.compare_unpacked(spans, read, slots)
    assert result.ok, f"{text}\n{result}"

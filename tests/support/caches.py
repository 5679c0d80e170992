"""Caches and vectors for tests, and the blocks that they are tried in."""

import numpy as np

PLANES = (
    "{regions: [{name: all, order: [field, head, token], "
    "fields: [key.codes, value.codes, key.norm, value.scale, value.zero]}]}"
)
HEAD_MAJOR = PLANES.replace("field, head, token", "head, token, field")
BLOCKS = {"aos": "aos", "soa": "soa", "planes": PLANES, "head_major": HEAD_MAJOR}


def filled(layout, num_blocks, block_size, heads, padding=0):
    """A cache of 0xEE bytes whose blocks are `padding` bytes apart, and the buffer with guards that it is a view of."""
    size = layout.block_bytes(block_size, heads)
    buffer = np.full(16 + num_blocks * (size + padding) + 16, 0xEE, dtype=np.uint8)
    inner = buffer[16 : 16 + num_blocks * (size + padding)].reshape(num_blocks, size + padding)[:, :size]
    shape = (num_blocks, block_size, heads, layout.slot_bytes)
    strides = (size + padding, heads * layout.slot_bytes, layout.slot_bytes, 1)
    return np.lib.stride_tricks.as_strided(inner, shape, strides), buffer


def vectors(tokens, heads, head_dim=128, seed=0):
    """Normal fp16 numbers [tokens, heads, head_dim], the same for the same arguments."""
    rng = np.random.default_rng((tokens, heads, head_dim, seed))
    return np.float64(np.float16(rng.normal(size=(tokens, heads, head_dim))))

"""The bytes of a cache, addressed by a layout's fields, in numpy.

A cache is uint8 [num_blocks, block_size, num_kv_heads, slot_bytes]. Blocks may be further apart than their size
(padded pages); within a block the bytes follow one another. A slot is block * block_size + token.
"""

from __future__ import annotations

import numpy as np

from tqgen.layout import Field, Layout


def block_bytes(layout: Layout, cache: np.ndarray) -> np.ndarray:
    """A view [num_blocks, bytes of a block] of the cache; ValueError where it is not a cache of this layout."""
    if cache.dtype != np.uint8 or cache.ndim != 4 or cache.shape[-1] != layout.slot_bytes:
        raise ValueError(
            f"the cache is {cache.dtype} {list(cache.shape)}, expected uint8 [blocks, block_size, heads, "
            f"{layout.slot_bytes}]"
        )
    num_blocks, block_size, num_kv_heads, slot_bytes = cache.shape
    size = block_size * num_kv_heads * slot_bytes
    if cache[:1].size and not cache[0].flags.c_contiguous:
        raise ValueError("the bytes of a block do not follow one another")
    needed = layout.end.evaluate(block_size, num_kv_heads)
    if needed > size:
        raise ValueError(f"a block has {size} bytes, and its fields and their alignment need {needed}")
    return np.lib.stride_tricks.as_strided(cache, (num_blocks, size), (cache.strides[0], 1))


def addresses(cache: np.ndarray, field: Field, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where a field of some slots [N] is: the block [N, 1, 1], and bytes in it [N, num_kv_heads, num_bytes]."""
    _, block_size, num_kv_heads, _ = cache.shape
    slots = np.asarray(slots, dtype=np.int64)
    base, token, head = (
        form.evaluate(block_size, num_kv_heads) for form in (field.base, field.token_stride, field.head_stride)
    )
    start = base + (slots % block_size)[:, None] * token + np.arange(num_kv_heads) * head
    return (slots // block_size)[:, None, None], start[..., None] + np.arange(field.part.num_bytes)


def gather(layout: Layout, cache: np.ndarray, field: Field, slots: np.ndarray) -> np.ndarray:
    """The bytes [N, num_kv_heads, num_bytes] of a field of some slots [N], none of them negative."""
    return block_bytes(layout, cache)[addresses(cache, field, slots)]


def scatter(layout: Layout, cache: np.ndarray, field: Field, slots: np.ndarray, data: np.ndarray) -> None:
    """Write the bytes [N, num_kv_heads, num_bytes] of a field of some slots [N], none of them negative."""
    block_bytes(layout, cache)[addresses(cache, field, slots)] = data


def owned(layout: Layout, cache: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Whether each byte [num_blocks, bytes of a block] belongs to a field of one of the slots [N]."""
    mask = np.zeros(block_bytes(layout, cache).shape, dtype=bool)
    for field in layout.fields:
        mask[addresses(cache, field, slots)] = True
    return mask

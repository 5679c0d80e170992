"""What 32 bits cannot count: launchers do with it what they do with the same vectors close by.

Vectors far apart, and the last tokens of a large block. Of a buffer of 4 GiB only what is touched takes memory.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection
from types import ModuleType

import torch

from tqgen.layout import Layout
from tqgen.verify import LAUNCHERS, device
from tqgen.verify.trial import attention_arguments, device_arguments, misfit, run_time_arguments

FAR = 2**31  # elements from the first to the last of an axis: more than 32 bits count
AXES = ("tokens", "heads")
TOKENS, HEADS = 3, 3
SEPARATE = 4096  # elements between what lies in one buffer
LARGE = 2**32  # bytes of a block: an offset, and that of a head alone, is beyond 32 bits with a sign
LAST = 8  # tokens of a large block


def far_buffer() -> torch.Tensor:
    """RuntimeError where there is no memory for it."""
    return torch.empty(FAR + 2**17, dtype=torch.float16, device=device())


def spread(near: torch.Tensor, buffer: torch.Tensor, axis: int, place: int = 0) -> torch.Tensor:
    """The same numbers in the buffer, as far apart along an axis as it is long."""
    strides = list(near.stride())
    strides[axis] = -(-FAR // (near.shape[axis] - 1) // 16) * 16
    return buffer.as_strided(near.shape, strides, place * SEPARATE).copy_(near)


def differs(
    layout: Layout, module: ModuleType, axis: int, buffer: torch.Tensor, launchers: Collection[str] = LAUNCHERS
) -> str:
    """The launcher that does something else with inputs, outputs or queries that are far apart, or nothing."""
    where = device()
    block_size = next(size for size in (16, 64, 32, 1056) if not misfit(layout, size, HEADS))
    sides = {side.name: (n, side.head_dim) for n, side in enumerate(layout.sides)}
    near = {name: _random(n, HEADS, head_dim) for name, (n, head_dim) in sides.items()}
    far = {name: spread(one, buffer, axis, n) for n, (name, one) in enumerate(near.items())}
    run_time = device_arguments(run_time_arguments(layout, HEADS), where)
    slots = torch.arange(TOKENS, device=where)
    caches = [module.allocate(1, block_size, HEADS, device=where).fill_(0xEE) for _ in range(2)]
    for vectors, cache in zip((near, far), caches, strict=True):
        module.store(vectors.get("key"), vectors.get("value"), cache, slots, **run_time)
    if not torch.equal(*caches):
        return "store"
    accepted = inspect.signature(module.unpack).parameters
    given = {name: one for name, one in run_time.items() if name in accepted}
    for space in ("model", "rotated") if "unpack" in launchers else ():
        expected = module.unpack(caches[0], slots, space=space, **given)
        out = tuple(far[name].zero_() if name in far else None for name in ("key", "value"))
        module.unpack(caches[0], slots, space=space, out=out, **given)
        for one, other in zip(out, expected, strict=True):
            if one is not None and not torch.equal(one, other):
                return "unpack"
    if "decode_attention" in launchers and hasattr(module, "decode_attention"):
        table, lengths = (
            torch.full(shape, n, dtype=torch.int32, device=where) for shape, n in (((3, 1), 0), ((3,), 3))
        )
        taken = attention_arguments(run_time)
        for group in (4, 24):
            query = _random(3, HEADS * group, layout.key.head_dim)
            one, other = (
                module.decode_attention(given, caches[0], table, lengths, **taken)
                for given in (query, spread(query, buffer, axis, 3))
            )
            if not torch.equal(one, other):
                return "decode_attention"
    return ""


def large_block(layout: Layout, heads: int = HEADS) -> torch.Tensor:
    """A cache of one block of 4 GiB for so many heads; RuntimeError where there is no memory for it."""
    sizes = range(-(-LARGE // (heads * layout.slot_bytes) // 16) * 16, LARGE, 16)
    block_size = next(size for size in sizes if not misfit(layout, size, heads))
    shape = (1, block_size, heads, layout.slot_bytes)
    unit = max(16, layout.alignment)
    buffer = torch.empty(math.prod(shape) + unit, dtype=torch.uint8, device=device())
    start = -buffer.data_ptr() % unit
    return buffer[start : start + math.prod(shape)].view(shape)


def differs_in_a_large_block(
    layout: Layout, module: ModuleType, large: torch.Tensor, launchers: Collection[str] = LAUNCHERS
) -> str:
    """The launcher that does something else with the last tokens of a large block than with those of a small one."""
    where, heads = device(), large.shape[2]
    block_size = next(size for size in (16, 64, 32, 1056) if not misfit(layout, size, heads))
    # as badly aligned as the layout allows: neither block is one for the kernel of few rows
    shape = (1, block_size, heads, layout.slot_bytes)
    buffer = torch.empty(math.prod(shape) + 2 * max(16, layout.alignment), dtype=torch.uint8, device=where)
    start = -buffer.data_ptr() % max(16, layout.alignment) + layout.alignment
    small = buffer[start : start + math.prod(shape)].view(shape).fill_(0xEE)
    vectors = {side.name: _random(n, heads, side.head_dim, LAST) for n, side in enumerate(layout.sides)}
    run_time = device_arguments(run_time_arguments(layout, heads), where)
    slots = torch.arange(LAST, device=where)
    last = slots + large.shape[1] - LAST
    for cache, places in ((small, slots), (large, last)):
        module.store(vectors.get("key"), vectors.get("value"), cache, places, **run_time)
    accepted = inspect.signature(module.unpack).parameters
    given = {name: one for name, one in run_time.items() if name in accepted}
    for one, other in zip(*(module.unpack(*of, **given) for of in ((small, slots), (large, last))), strict=True):
        if one is not None and not torch.equal(one, other):
            return "unpack"
    if "decode_attention" in launchers and hasattr(module, "decode_attention"):
        taken = attention_arguments(run_time)
        table = torch.zeros(1, 1, dtype=torch.int32, device=where)
        for group in (4, 24):
            query = _random(3, heads * group, layout.key.head_dim, 1)
            # the window is one tile of either block
            results = [
                module.decode_attention(
                    query,
                    cache,
                    table,
                    torch.tensor([length], dtype=torch.int32, device=where),
                    window=4,
                    num_splits=1,
                    **taken,
                )
                for cache, length in ((small, LAST), (large, large.shape[1]))
            ]
            if not results[0].isfinite().all() or not torch.equal(*results):
                return "decode_attention"
    return ""


def _random(seed: int, heads: int, head_dim: int, tokens: int = TOKENS) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, heads, head_dim, generator=generator).half().to(device())

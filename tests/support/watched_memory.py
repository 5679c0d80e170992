"""A watch over the memory of interpreted kernels: accesses lie in an argument, and are as aligned as they are wide.

A GPU stops at a wide access to an odd address, and at an access far outside of what was allocated; the interpreter
reads and writes whatever is there. A cache ends with each of its blocks: what lies between two blocks is somebody
else's. What a kernel tells the compiler to be a multiple, for an access that is wider than its elements, must be one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


class OutOfBounds(Exception):
    """A kernel touched what no argument of it holds, or with too wide an access."""


class Ranges:
    """Stretches of memory that the running kernel may touch."""

    def __init__(self, tensors: Iterator[torch.Tensor]) -> None:
        found = sorted({stretch for tensor in tensors for stretch in stretches(tensor)})
        merged: list[list[int]] = []
        for start, end in found:
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(end, merged[-1][1])
            else:
                merged.append([start, end])
        self.starts = np.array([start for start, _ in merged], dtype=np.uint64)
        self.ends = np.array([end for _, end in merged], dtype=np.uint64)

    def check(self, what: str, pointers: np.ndarray, mask: np.ndarray, width: int) -> None:
        """OutOfBounds unless all `pointers` where `mask` holds are aligned to `width` bytes and inside."""
        addresses = np.broadcast_to(pointers, np.broadcast_shapes(pointers.shape, mask.shape))
        addresses = addresses[np.broadcast_to(mask, addresses.shape)].astype(np.uint64)
        if not addresses.size:
            return
        if (addresses % np.uint64(width)).any():
            raise OutOfBounds(f"{what} of {width} bytes at an address that {width} does not divide")
        at = np.searchsorted(self.starts, addresses, side="right").astype(np.int64) - 1
        if not len(self.starts) or (at < 0).any() or (addresses + np.uint64(width) > self.ends[at]).any():
            raise OutOfBounds(f"{what} of {width} bytes outside of every argument")


def stretches(tensor: torch.Tensor) -> Iterator[tuple[int, int]]:
    """First and last-but-one address of what a tensor's elements span; of a cache, of each block."""
    if tensor.numel() == 0:
        return
    sizes, strides, item = tensor.shape, tensor.stride(), tensor.element_size()
    start = tensor.data_ptr()
    if tensor.dtype == torch.uint8 and tensor.ndim == 4:
        length = sizes[1] * sizes[2] * sizes[3]
        yield from ((start + block * strides[0], start + block * strides[0] + length) for block in range(sizes[0]))
    else:
        span = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) + 1
        yield start, start + span * item


def install() -> None:
    """Watch every interpreted kernel from now on; does nothing the second time."""
    from triton.runtime import interpreter

    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    if getattr(builder, "watched", False):
        return
    current: list[Ranges] = []
    load, store, call = builder.create_masked_load, builder.create_masked_store, executor.__call__

    def watched_call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        given = (*arguments, *keywords.values())
        current.append(Ranges(one for one in given if isinstance(one, torch.Tensor)))
        try:
            return call(self, *arguments, **keywords)
        finally:
            current.pop()

    def width_of(pointers: Any) -> int:
        return max(1, pointers.get_element_ty().primitive_bitwidth // 8)

    def watched_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        current[-1].check("a load", pointers.data, mask.data, width_of(pointers))
        return load(self, pointers, mask, *rest)

    def watched_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        current[-1].check("a store", pointers.data, mask.data, width_of(pointers))
        return store(self, pointers, value, mask, *rest)

    def watched_attribute(self: Any, key: str, values: Any) -> None:
        for divisor in np.ravel(values) if key == "tt.divisibility" else ():
            if (self.data.astype(np.uint64) % np.uint64(divisor)).any():
                raise OutOfBounds(f"what is said to be a multiple of {divisor} is none")
        set_attribute(self, key, values)

    set_attribute, interpreter.TensorHandle.set_attr = interpreter.TensorHandle.set_attr, watched_attribute
    builder.create_masked_load, builder.create_masked_store = watched_load, watched_store
    executor.__call__ = watched_call
    builder.watched = True

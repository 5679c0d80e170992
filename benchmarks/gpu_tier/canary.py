"""A kernel that writes past the end of its tensor: compute-sanitizer has to say so, or its silence means nothing."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _overflow_kernel(ptr, COUNT: tl.constexpr):
    tl.store(ptr + tl.arange(0, COUNT), tl.zeros([COUNT], tl.int32))


def overflow() -> None:
    """Write 4 KiB into a tensor of 2 KiB."""
    tensor = torch.empty(512, dtype=torch.int32, device="cuda")
    _overflow_kernel[(1,)](tensor, COUNT=1024)
    torch.cuda.synchronize()

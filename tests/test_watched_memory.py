"""The watch over interpreted kernels sees what a GPU would stop at."""

import pytest
import torch
import triton
import triton.language as tl

from tqgen.verify import interpreter

pytestmark = pytest.mark.skipif(not interpreter.is_chosen(), reason="runs in Triton's interpreter only")


@triton.jit
def copy_kernel(source_ptr, target_ptr, first, count, WIDE: tl.constexpr):
    index = first + tl.arange(0, 16)
    if WIDE:
        source_ptr, target_ptr = source_ptr.to(tl.pointer_type(tl.uint16)), target_ptr.to(tl.pointer_type(tl.uint16))
    tl.store(target_ptr + index, tl.load(source_ptr + index, mask=index < count, other=0), mask=index < count)


def copy(size, count, first=0, offset=0, wide=False):
    source = torch.arange(128, dtype=torch.uint8)[offset : offset + size]
    copy_kernel[(1,)](source, torch.zeros(128, dtype=torch.uint8), first, count, WIDE=wide)


def test_what_is_inside_is_allowed():
    copy(16, 16)
    copy(5, 5)
    copy(32, 16, wide=True)
    copy(8, 4, offset=6, wide=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"size": 15, "count": 16}, "a load of 1 bytes outside"),
        ({"size": 5, "count": 6}, "a load of 1 bytes outside"),
        ({"size": 5, "count": 5, "first": -1}, "a load of 1 bytes outside"),
        ({"size": 31, "count": 16, "wide": True}, "a load of 2 bytes outside"),
        ({"size": 32, "count": 16, "offset": 1, "wide": True}, "a load of 2 bytes at an address"),
    ],
)
def test_what_is_outside_is_seen(arguments, said):
    with pytest.raises(Exception, match=said):
        copy(**arguments)


def test_a_cache_ends_with_each_block():
    buffer = torch.zeros(64, dtype=torch.uint8)
    cache = buffer.as_strided((2, 1, 1, 16), (32, 16, 16, 1))
    copy_kernel[(1,)](cache, torch.zeros(16, dtype=torch.uint8), 0, 16, WIDE=False)
    copy_kernel[(1,)](cache, torch.zeros(48, dtype=torch.uint8), 32, 48, WIDE=False)
    with pytest.raises(Exception, match="outside of every argument"):
        copy_kernel[(1,)](cache, torch.zeros(17, dtype=torch.uint8), 1, 17, WIDE=False)


@triton.jit
def promising_kernel(source_ptr, target_ptr, STEP: tl.constexpr):
    row_ptr = tl.multiple_of(source_ptr + STEP * tl.arange(0, 4), 8)
    tl.store(target_ptr + tl.arange(0, 4), tl.load(row_ptr))


def test_what_is_said_to_be_a_multiple_is_one():
    buffer, target = torch.zeros(64, dtype=torch.uint8), torch.zeros(4, dtype=torch.uint8)
    assert buffer.data_ptr() % 16 == 0
    promising_kernel[(1,)](buffer, target, STEP=8)
    for source, step in ((buffer, 4), (buffer[4:], 8)):
        with pytest.raises(Exception, match="said to be a multiple of 8"):
            promising_kernel[(1,)](source, target, STEP=step)

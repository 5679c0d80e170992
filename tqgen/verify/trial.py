"""One cell of the verification matrix, made concrete for a layout: inputs, slots, and a cache between guard bytes.

Needs torch. All random numbers come from fixed seeds, so that a cell is the same wherever it runs.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from tqgen.layout import Layout, Side
from tqgen.numerics import floats
from tqgen.verify.cells import Cell
from tqgen.verify.patterns import vectors

GUARD = 0xEE
GUARD_BYTES = 4096
SENTINEL = 123.0  # fills output buffers around what is asked for
FEW_TOKENS = 9
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
FAR_STRIDE = 2**30  # of blocks: the third one starts beyond what 32 bits can count


def seed_of(cell: Cell) -> int:
    """The seed of a cell's random numbers."""
    return zlib.crc32(cell.id.encode())


def misfit(layout: Layout, block_size: int, num_kv_heads: int) -> str | None:
    """Why this layout cannot have blocks of this size, or None where it can."""
    available = layout.block_bytes(block_size, num_kv_heads)
    needed = layout.end.evaluate(block_size, num_kv_heads)
    if needed > available:
        return f"a block needs {needed} bytes with its alignment and has {available}"
    if available % layout.alignment:
        return f"a block of {available} bytes is no multiple of the layout's alignment, {layout.alignment}"
    return None


def run_time_arguments(layout: Layout, num_kv_heads: int) -> dict[str, np.ndarray]:
    """The arrays that launchers of this layout take, fp32: `<side>_rotation` [D, D], `<side>_center` [H, D]."""
    arguments = {}
    for side in layout.sides:
        rng = np.random.default_rng([len(side.name), side.head_dim])
        if side.rotation.kind == "matrix":
            orthogonal, _ = np.linalg.qr(rng.standard_normal((side.head_dim, side.head_dim)))
            arguments[f"{side.name}_rotation"] = orthogonal.astype(np.float32)
        if side.parameters.center:
            center = rng.standard_normal((num_kv_heads, side.head_dim))
            arguments[f"{side.name}_center"] = floats.round_to(center, "bf16").astype(np.float32)
    return arguments


T = TypeVar("T")


def attention_arguments(arguments: Mapping[str, T]) -> dict[str, T]:
    """Of the arguments that launchers take those that attention does: scores need no center of keys."""
    return {name: one for name, one in arguments.items() if name != "key_center"}


def side_vectors(
    pattern: str, shape: tuple[int, int, int], side: Side, dtype: str, seed: int, run_time: dict[str, np.ndarray]
) -> np.ndarray:
    """Input vectors of one side; those of the pattern `zeros` are zero after a center is taken from them."""
    center = run_time.get(f"{side.name}_center")
    if pattern == "zeros" and center is not None:
        return np.broadcast_to(floats.round_to(center.astype(np.float64), dtype), shape).copy()
    return vectors(pattern, shape, side, dtype, seed)


def slots_of(cell: Cell, tokens: int, num_blocks: int) -> np.ndarray:
    """The slot of each token, int32 or int64; distinct where not negative."""
    rng = np.random.default_rng(seed_of(cell))
    size, total = cell.block_size, num_blocks * cell.block_size
    dtype = np.int32 if cell.slots == "i32" else np.int64
    if cell.places in {"consecutive", "many"}:
        slots = size // 2 + np.arange(tokens)
    elif cell.places == "edges":
        ends = {block * size + offset for block in range(num_blocks) for offset in (0, size - 1)}
        slots = rng.permutation(sorted(ends)[-tokens:])
    elif cell.places == "far":
        slots = total - 1 - rng.permutation(min(tokens, total))
    else:
        slots = rng.permutation(total)[:tokens]
    slots = slots.astype(dtype)
    if cell.places == "negative":
        slots[1::3] = -1
        slots[2::6] = np.iinfo(dtype).min
    return slots


@dataclass(frozen=True)
class Inputs:
    """What is stored, in float64, and where."""

    vectors: dict[str, np.ndarray]  # side -> [tokens, heads, head_dim], numbers of the cell's dtype
    slots: np.ndarray
    num_blocks: int
    run_time: dict[str, np.ndarray]


def inputs_of(layout: Layout, cell: Cell, large_rows: int) -> Inputs:
    """The inputs of a cell. `large_rows`: token-heads from which on the store is launched another way."""
    heads, size = cell.num_kv_heads, cell.block_size
    tokens = {"none": 0, "single": 4, "many": -(-large_rows // heads) + 1}.get(cell.places, FEW_TOKENS)
    needed = tokens + size // 2
    num_blocks = max(3, tokens if cell.places == "edges" else -(-needed // size) + 1)
    if cell.places == "far":
        tokens, num_blocks = min(tokens, 3 * size), 3
    slots = slots_of(cell, tokens, num_blocks)
    shape = (len(slots), heads)
    run_time = run_time_arguments(layout, heads)
    given = {
        side.name: side_vectors(cell.pattern, (*shape, side.head_dim), side, cell.dtype, seed_of(cell), run_time)
        for side in layout.sides
    }
    return Inputs(given, slots, num_blocks, run_time)


def input_tensor(array: np.ndarray, cell: Cell, device: torch.device) -> torch.Tensor:
    """`array` [tokens, heads, head_dim] in the cell's dtype and strides; what lies between its vectors is NaN."""
    dense = torch.empty(array.shape, dtype=DTYPES[cell.dtype], device=device)
    dense.copy_(torch.from_numpy(array))
    numbers = dense.view(torch.int32 if dense.dtype == torch.float32 else torch.int16)
    infinity = torch.tensor(float("inf"), dtype=dense.dtype, device=device).view(numbers.dtype)
    # NaN with the least bit alone, which is the nearest to Inf that there is
    numbers[dense != dense] = infinity + 1
    return _strided(dense, cell, float("nan"))


def output_buffer(shape: tuple[int, int, int], cell: Cell, device: torch.device) -> torch.Tensor:
    """A tensor of sentinels to unpack into, in the cell's output dtype, with the strides of its inputs."""
    return _strided(torch.full(shape, SENTINEL, dtype=DTYPES[cell.out_dtype], device=device), cell, SENTINEL)


def _strided(dense: torch.Tensor, cell: Cell, around: float) -> torch.Tensor:
    tokens, heads, head_dim = dense.shape
    if cell.inputs == "dense":
        return dense
    if cell.inputs == "transposed":
        return dense.transpose(0, 1).contiguous().transpose(0, 1)
    larger = torch.full((tokens + 2, heads + 2, head_dim + 3), around, dtype=dense.dtype, device=dense.device)
    view = larger[1 : tokens + 1, 1 : heads + 1, 1 : head_dim + 1]
    view.copy_(dense)
    return view


def sentinels_kept(view: torch.Tensor, cell: Cell) -> bool:
    """Whether an output buffer's surroundings still hold the sentinel."""
    if cell.inputs != "sliced":
        return True
    tokens, heads, head_dim = view.shape
    whole = view.as_strided(
        (tokens + 2, heads + 2, head_dim + 3), ((heads + 2) * (head_dim + 3), head_dim + 3, 1), storage_offset=0
    ).clone()
    whole[1 : tokens + 1, 1 : heads + 1, 1 : head_dim + 1] = SENTINEL
    return bool((whole == SENTINEL).all())


class GuardedCache:
    """A cache whose every byte is 0xEE, in a buffer that goes on before and behind it.

    `tensor` is the uint8 [num_blocks, block_size, num_kv_heads, slot_bytes] that launchers get. How far blocks are
    apart and where the first one starts is the cell's choice. Addresses are multiples of the layout's alignment, which
    may be larger than that of the memory that torch gives.
    """

    def __init__(self, layout: Layout, cell: Cell, num_blocks: int, device: torch.device) -> None:
        self.shape = (num_blocks, cell.block_size, cell.num_kv_heads, layout.slot_bytes)
        self.block = layout.block_bytes(cell.block_size, cell.num_kv_heads)
        unit = max(16, layout.alignment)
        coarser = 2 * unit  # multiples of it are better aligned than `unit` asks
        offset = 0
        if cell.cache == "tight":
            self.stride = self.block
        elif cell.cache == "padded":
            self.stride = -(-self.block // unit) * unit + 3 * unit
        else:
            # as badly aligned as the layout allows, or at odd multiples of two bytes
            odd = max(2, layout.alignment) if cell.cache == "even" else layout.alignment
            blocks = -(-self.block // odd)
            self.stride = odd * (blocks + 1 + blocks % 2)
            offset = odd
        if cell.places == "far":
            self.stride = -(-FAR_STRIDE // unit) * unit + self.stride % unit
        size = offset + (num_blocks - 1) * self.stride + self.block + 2 * GUARD_BYTES
        self.buffer = torch.empty(size + coarser, dtype=torch.uint8, device=device)
        self.start = GUARD_BYTES + -(self.buffer.data_ptr() + GUARD_BYTES) % coarser + offset
        self.windows = self._windows(num_blocks)
        for window in self.windows:
            self.buffer[window] = GUARD
        strides = (self.stride, cell.num_kv_heads * layout.slot_bytes, layout.slot_bytes, 1)
        self.tensor = self.buffer.as_strided(self.shape, strides, storage_offset=self.start)

    def _windows(self, num_blocks: int) -> list[slice]:
        """The parts of the buffer that are looked at: all of it, or, where blocks are far apart, around each block."""
        if self.stride < FAR_STRIDE:
            return [slice(0, len(self.buffer))]
        starts = [self.start + block * self.stride for block in range(num_blocks)]
        return [slice(start - GUARD_BYTES, start + self.block + GUARD_BYTES) for start in starts]

    def blocks(self) -> np.ndarray:
        """A copy of the bytes of the blocks alone, uint8 of the cache's shape, in numpy."""
        return np.array(self.tensor.cpu().numpy(), order="C")

    def touched_outside(self) -> list[int]:
        """Offsets in the buffer, counted from the first block, of bytes outside the blocks that are no longer 0xEE."""
        found = []
        for window in self.windows:
            bytes_here = self.buffer[window].cpu().numpy()
            changed = np.flatnonzero(bytes_here != GUARD) + window.start - self.start
            block, offset = np.divmod(changed, self.stride)
            inside = (block >= 0) & (block < self.shape[0]) & (offset < self.block)
            found += changed[~inside].tolist()
        return found


def device_arguments(arrays: dict[str, np.ndarray], device: torch.device) -> dict[str, Any]:
    """Run-time arrays as tensors on the device."""
    return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}

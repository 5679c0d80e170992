"""What a generated module would launch, by its own launchers: nothing here knows a kernel's arguments.

The kernels of the module are replaced by recorders, and its launchers are called with small tensors on the CPU. Their
sizes, strides and addresses decide how Triton specialises a kernel, as on a GPU.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from tqgen.inspect.targets import Target
from tqgen.lower.fragments import FEW_ROWS, TOKENS

# Kernels that work on vectors of every stored side, and the argument that says on how many, or how many times so many,
# at a time.
TILES = {
    "_store_kernel": ("ROWS", 1),
    "_unpack_kernel": ("ROWS", 1),
    "_decode_kernel": ("TOKENS", 1),
    "_decode_few_kernel": ("WARPS", TOKENS),
}


@dataclass(frozen=True)
class Launch:
    """One launch: the kernel, its arguments by name, the grid, and options as `num_warps`.

    `elements` of vectors are what one program works on at a time, a tile of rows or of tokens; 0 where unknown.
    """

    kernel: Any
    name: str
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    options: dict[str, Any]
    elements: int = 0


class _Recorder:
    def __init__(self, name: str, kernel: Any, found: list[Launch], head_dims: int) -> None:
        self.name, self.kernel, self.found, self.head_dims = name, kernel, found, head_dims

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def record(*arguments: Any, **keywords: Any) -> None:
            names = self.kernel.arg_names
            given = dict(zip(names, arguments, strict=False))
            given.update({name: value for name, value in keywords.items() if name in names})
            options = {name: value for name, value in keywords.items() if name not in names}
            tile, times = TILES.get(self.name, ("", 0))
            elements = given.get(tile, 0) * times * self.head_dims
            self.found.append(Launch(self.kernel, self.name, tuple(grid), given, options, elements))

        return record


@contextlib.contextmanager
def recording(module: ModuleType, target: Target) -> Iterator[list[Launch]]:
    """The launches that are made inside the block, on a machine that would have `target`."""
    from triton.runtime.jit import JITFunction

    found: list[Launch] = []
    replaced: dict[str, Any] = {}
    layout = module.LAYOUT
    stored = {field.name.partition(".")[0] for field in layout.fields}
    head_dims = sum({"key": layout.key_head_dim, "value": layout.value_head_dim}[side] for side in stored)
    for name, value in vars(module).items():
        if isinstance(value, JITFunction) and name.endswith("_kernel"):
            replaced[name] = _Recorder(name, value, found, head_dims)
    answers = {
        "_has_hardware_fp8": lambda device: target.hardware_fp8,
        "_has_ptx": lambda device, capability: target.ptx_capability >= max(capability, 80),
        "_is_interpreted": lambda device: False,
        "_num_processors": lambda device: 132,
    }
    replaced.update({name: answer for name, answer in answers.items() if hasattr(module, name)})
    kept = {name: getattr(module, name) for name in replaced}
    vars(module).update(replaced)
    try:
        yield found
    finally:
        vars(module).update(kept)


def launches(
    module: ModuleType,
    target: Target,
    *,
    dtype: torch.dtype = torch.bfloat16,
    block_size: int = 16,
    num_kv_heads: int = 8,
    space: str = "model",
    many: bool = False,
    group: int | None = None,
    aligned: bool = True,
    launchers: tuple[str, ...] = ("store", "unpack", "rotate_attention_output", "decode_attention"),
) -> list[Launch]:
    """Launches of a module's launchers, of those of `launchers` that it has.

    `dtype` is that of vectors, inputs and outputs; `many`: of as many tokens as large tiles need; `group`: query
    heads of a KV head, few by default, and with `many` more than a program of few query rows takes; `aligned`: blocks
    start at multiples of 16 bytes, as those of `allocate` do; otherwise as badly as a layout of no alignment allows.
    """
    tokens = 4 if not many else 16384 // num_kv_heads + 8
    kv_cache = module.allocate(4, block_size, num_kv_heads, device="cpu")
    if not aligned:
        size = kv_cache[0].numel()
        buffer = torch.zeros(4 * (size + 1) + 1, dtype=torch.uint8)
        kv_cache = buffer.as_strided(kv_cache.shape, (size + size % 2 + 1, *kv_cache.stride()[1:]), 1)
    stored = {field.name.partition(".")[0] for field in module.LAYOUT.fields}
    dims = {"key": module.LAYOUT.key_head_dim, "value": module.LAYOUT.value_head_dim}
    vectors: dict[str, Any] = {
        side: torch.zeros(tokens, num_kv_heads, dim, dtype=dtype) if side in stored else None
        for side, dim in dims.items()
    }
    slots = torch.arange(tokens, dtype=torch.int64) % (4 * block_size)
    run_time = {
        name: torch.zeros(dims[side], dims[side]) if what == "rotation" else torch.zeros(num_kv_heads, dims[side])
        for side in dims
        for what in ("rotation", "center")
        for name in (f"{side}_{what}",)
    }

    def taken(launcher: str) -> dict[str, Any]:
        accepted = inspect.signature(getattr(module, launcher)).parameters
        return {name: value for name, value in run_time.items() if name in accepted}

    with recording(module, target) as found:
        if "store" in launchers:
            module.store(vectors["key"], vectors["value"], kv_cache, slots, **taken("store"))
        if "unpack" in launchers:
            module.unpack(kv_cache, slots, space=space, dtype=dtype, **taken("unpack"))
        if "rotate_attention_output" in launchers and hasattr(module, "rotate_attention_output"):
            output = torch.zeros(4, 4 * num_kv_heads, dims["value"], dtype=dtype)
            module.rotate_attention_output(output, **taken("rotate_attention_output"))
        if "decode_attention" in launchers and hasattr(module, "decode_attention"):
            heads = (group or (2 * FEW_ROWS if many else 4)) * num_kv_heads
            query = torch.zeros(2, heads, dims["key"], dtype=dtype)
            table = torch.zeros(2, 64, dtype=torch.int32)
            lengths = torch.full((2,), 64 * block_size, dtype=torch.int32)
            module.decode_attention(query, kv_cache, table, lengths, **taken("decode_attention"))
    return found

"""Compile a launch for a target, and read facts from what came of it."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tqgen.inspect import assembly
from tqgen.inspect.launches import Launch
from tqgen.inspect.targets import Target

POINTERS = {
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.uint8: "*u8",
    torch.int8: "*i8",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
DIVISIBILITY = 16  # that Triton looks for in addresses and integers
INEXACT = ("div.full", "div.approx", "sqrt.approx", "rcp.approx", "rsqrt.approx")


@dataclass(frozen=True)
class Facts:
    """What one launch of one kernel is on one target."""

    kernel: str
    target: str
    registers: int
    spilled_bytes: int  # of stack, for one thread
    shared_bytes: int  # for one program
    instructions: int
    inexact: tuple[str, ...]  # approximate divisions and square roots, in PTX
    loads: dict[str, int]  # widest load of each field, in bytes; by the names of fields, and `*` for what is none
    stores: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def compiled(launch: Launch, target: Target) -> Facts:
    """Compile a launch for a target, as Triton would on such a machine."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, constants, attributes = _specialised(launch)
    source = ASTSource(fn=launch.kernel, signature=signature, constexprs=constants, attrs=attributes)
    place = GPUTarget(target.backend, target.architecture, target.warp_size)
    kernel = triton.compile(source, target=place, options=dict(launch.options))
    lines = Path(launch.kernel.fn.__code__.co_filename).read_text(encoding="utf-8").splitlines()
    places = assembly.Places(lines)
    if target.is_nvidia:
        ptx, cubin = kernel.asm["ptx"], kernel.asm["cubin"]
        registers, spilled = _resources(cubin)
        widths = assembly.ptx_widths(ptx, places)
        inexact = tuple(name for name in INEXACT if name in ptx)
        instructions = len(re.findall(r"^\s+(?:@!?%p\d+\s+)?[a-z][\w.]*\s.*;$", ptx, re.MULTILINE))
    else:
        text = kernel.asm["amdgcn"]
        registers, spilled = _amd_number(text, "vgpr_count"), _amd_number(text, "private_segment_fixed_size")
        widths = assembly.amd_widths(text, places)
        inexact = ()
        instructions = len(re.findall(r"^\t(?:v|s|ds|global|buffer|flat|scratch)_\w+", text, re.MULTILINE))
    return Facts(
        kernel=launch.name,
        target=target.name,
        registers=registers,
        spilled_bytes=spilled,
        shared_bytes=int(kernel.metadata.shared),
        instructions=instructions,
        inexact=inexact,
        loads=widths["load"],
        stores=widths["store"],
    )


def _specialised(launch: Launch) -> tuple[dict[str, str], dict[Any, Any], dict[Any, Any]]:
    """Signature, constants and attributes, by the rules of Triton's just-in-time compiler."""
    signature: dict[str, str] = {}
    constants: dict[Any, Any] = {}
    attributes: dict[Any, Any] = {}
    for index, parameter in enumerate(launch.kernel.params):
        name = parameter.name
        value = launch.arguments.get(name, parameter.default)
        divisible = False
        if parameter.is_constexpr or value is None or (isinstance(value, int) and value == 1):
            signature[name] = "constexpr"
            constants[name] = value
        elif isinstance(value, torch.Tensor):
            signature[name] = POINTERS[value.dtype]
            divisible = value.data_ptr() % DIVISIBILITY == 0
        elif isinstance(value, bool):
            signature[name] = "u1"
        elif isinstance(value, int):
            signature[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            divisible = value % DIVISIBILITY == 0
        else:
            signature[name] = "fp32"
        if divisible:
            attributes[(index,)] = [["tt.divisibility", DIVISIBILITY]]
    return signature, constants, attributes


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of stack of one thread."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin", delete=False) as file:
        file.write(cubin)
    try:
        command = [str(tool), "-res-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        os.unlink(file.name)
    found = re.search(r"REG:(\d+) STACK:(\d+)", said)
    if not found:
        raise RuntimeError(f"cuobjdump said nothing of registers: {said}")
    return int(found[1]), int(found[2])


def _amd_number(text: str, name: str) -> int:
    found = re.search(rf"\.{name}:\s+(\d+)", text)
    if not found:
        raise RuntimeError(f"the assembly says nothing of {name}")
    return int(found[1])

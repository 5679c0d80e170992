"""Compile a launch for a target, and read facts from what came of it."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tqgen.inspect import assembly, sass
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
# Operations that are not correctly rounded, or that take subnormal numbers for zero, and products of fp32 numbers that
# are cut to ten bits. Conversions to whole numbers may do that: a sum with 0.5, of which kernels take those, is zero or
# far larger.
INEXACT_PTX = re.compile(
    r"\b(?:div|sqrt|rcp|rsqrt|ex2|lg2|tanh|sin|cos)\.(?:approx|full)[.\w]*|(?<![\w.])(?!cvt\.r[mpnz]i)\w[\w.]*\.ftz\.[\w.]*f32"
    r"|\b(?:wg)?mma\.[\w.]*\.tf32\b[\w.]*"
)
INEXACT_LLVM = re.compile(r"\bfdiv (?:fast|afn|arcp)\b|@llvm\.amdgcn\.(?:rcp|sqrt|rsq|exp2|log)[\w.]*|!fpmath")
# A product and a sum that the assembler may make one operation of, with one rounding.
FUSIBLE_PTX = re.compile(r"\b(?:mul|add|sub)\.f32\b")
FUSIBLE_LLVM = re.compile(r"\bf(?:mul|add|sub) [\w ]*contract\b")


@dataclass(frozen=True)
class Facts:
    """What one launch of one kernel is on one target."""

    kernel: str
    target: str
    registers: int
    spilled_bytes: int  # of one thread
    shared_bytes: int  # for one program
    instructions: int
    loop: int  # instructions of the largest loop; 0 where there is none, or on a target whose loops are not looked for
    exchanges: int  # of its instructions, barriers and accesses of shared memory
    per_element: float  # instructions of a thread for one element of a vector; 0 where a launch does not say its tile
    inexact: tuple[str, ...]  # operations on fp32 that are not correctly rounded
    crowded: int  # operands of tensor cores that are spread over more places than there are; Triton 3.6 gets them wrong
    fusible: bool  # whether products and sums may become one operation
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
        ptx = kernel.asm["ptx"]
        made = sass.machine_of(kernel.asm["cubin"])
        widths = assembly.ptx_widths(ptx, places)
        inexact, fusible = INEXACT_PTX.findall(ptx), bool(FUSIBLE_PTX.search(ptx))
    else:
        text, code = kernel.asm["amdgcn"], kernel.asm["llir"]
        count = len(re.findall(r"^\t(?:v|s|ds|global|buffer|flat|scratch)_\w+", text, re.MULTILINE))
        made = sass.Machine(
            _amd_number(text, "vgpr_count"), _amd_number(text, "private_segment_fixed_size"), count, loop=0
        )
        widths = assembly.amd_widths(text, places)
        inexact, fusible = INEXACT_LLVM.findall(code), bool(FUSIBLE_LLVM.search(code))
    threads = target.warp_size * launch.options.get("num_warps", 4)
    return Facts(
        kernel=launch.name,
        target=target.name,
        registers=made.registers,
        spilled_bytes=made.stack_bytes,
        shared_bytes=int(kernel.metadata.shared),
        instructions=made.instructions,
        loop=made.loop,
        exchanges=made.exchanges,
        per_element=round((made.loop or made.instructions) * threads / launch.elements, 2) if launch.elements else 0.0,
        inexact=tuple(sorted(set(inexact))),
        crowded=assembly.crowded_operands(kernel.asm["ttgir"]),
        fusible=fusible,
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


def _amd_number(text: str, name: str) -> int:
    found = re.search(rf"\.{name}:\s+(\d+)", text)
    if not found:
        raise RuntimeError(f"the assembly says nothing of {name}")
    return int(found[1])

"""A machine for the PTX that generated kernels contain: one statement at a time, over numpy arrays of registers.

Triton's interpreter has no inline assembly, and without it the form of a kernel that GPUs run would be seen by none of
the tests that need no GPU. `install` gives it this machine. Semantics are those of NVIDIA's "PTX ISA"; a statement
that is not here raises NotImplementedError, and is to be added.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tqgen.numerics import floats
from tqgen.verify.interpreter import fused_multiply_add

Array = np.ndarray
U32, U64 = np.uint32, np.uint64

# What kernels of launches that overlap call, and what they called since the list was cleared.
OVERLAP = ("gdc_wait", "gdc_launch_dependents")
WAITS: list[str] = []


def run(assembly: str, outputs: int, inputs: list[Array]) -> list[Array]:
    """The outputs $0.. of assembly whose further operands are the bits of `inputs`, 32-bit arrays of one shape."""
    registers: dict[str, Array] = {f"${outputs + n}": array.view(U32) for n, array in enumerate(inputs)}
    shape = inputs[0].shape
    for statement in assembly.strip().strip("{}").split(";"):
        statement = statement.strip()
        if statement and not statement.startswith(".reg"):
            _step(statement, registers, shape)
    return [registers[f"${n}"] for n in range(outputs)]


def _step(statement: str, registers: dict[str, Array], shape: tuple[int, ...]) -> None:
    name, rest = statement.split(None, 1)
    operands = re.findall(r"\{[^}]*\}|[^,\s]+", rest)
    if name not in OPERATIONS:
        raise NotImplementedError(f"ptx_machine has no `{name}`, of `{statement}`")
    values = [_value(operand, registers, shape) for operand in operands[1:]]
    result = OPERATIONS[name](*values).astype(U32)
    target = operands[0]
    if target.startswith("{"):
        low, high = (part.strip() for part in target.strip("{}").split(","))
        registers[low], registers[high] = result & U32(0xFFFF), result >> U32(16)
    else:
        registers[target] = result


def _value(operand: str, registers: dict[str, Array], shape: tuple[int, ...]) -> Array:
    if operand.startswith("{"):
        low, high = (registers[part.strip()] for part in operand.strip("{}").split(","))
        return (low & U32(0xFFFF)) | (high << U32(16))
    if operand in registers:
        return registers[operand]
    if re.fullmatch(r"0x[0-9a-fA-F]+|-?\d+", operand):
        return np.full(shape, int(operand, 0) & 0xFFFFFFFF, dtype=U32)
    if re.fullmatch(r"0f[0-9a-fA-F]{8}", operand):
        return np.full(shape, int(operand[2:], 16), dtype=U32)
    raise ValueError(f"`{operand}` is read before it is written")


def _permute(a: Array, b: Array, selector: Array) -> Array:
    """Four bytes of the eight of b and a, b's the upper; with a selector's fourth bit, the byte's sign eight times."""
    both = a.astype(U64) | (b.astype(U64) << U64(32))
    result = np.zeros_like(a)
    for place in range(4):
        nibble = selector >> U32(4 * place) & U32(15)
        byte = (both >> (U64(8) * (nibble & U32(7)).astype(U64)) & U64(0xFF)).astype(U32)
        signs = np.where(byte & U32(0x80), U32(0xFF), U32(0))
        result |= np.where(nibble & U32(8), signs, byte).astype(U32) << U32(8 * place)
    return result


def _logic(a: Array, b: Array, c: Array, table: Array) -> Array:
    result = np.zeros_like(a)
    for index in range(8):
        parts = [given if index >> bit & 1 else ~given for given, bit in ((a, 2), (b, 1), (c, 0))]
        chosen = np.where(table >> U32(index) & U32(1), U32(0xFFFFFFFF), U32(0)).astype(U32)
        result |= parts[0] & parts[1] & parts[2] & chosen
    return result


def _shift(left: bool) -> Callable[[Array, Array], Array]:
    """Shifts by 32 and more give 0."""

    def shifted(a: Array, by: Array) -> Array:
        wide, distance = a.astype(U64), np.minimum(by, U32(32)).astype(U64)
        return (wide << distance if left else wide >> distance) & U64(0xFFFFFFFF)

    return shifted


def _dot_bytes(a: Array, b: Array, c: Array) -> Array:
    total = c.copy()
    for place in range(0, 32, 8):
        total += (a >> U32(place) & U32(0xFF)) * (b >> U32(place) & U32(0xFF))
    return total


def _field(a: Array, start: Array, length: Array) -> Array:
    return _shift(left=False)(a, start).astype(U32) & ((U64(1) << length.astype(U64)) - U64(1)).astype(U32)


def _pairs(work: Callable[..., Array]) -> Callable[..., Array]:
    """An operation on two fp16 numbers a register, rounded once."""

    def both(*given: Array) -> Array:
        halves = []
        for place in (0, 16):
            numbers = [(one >> U32(place)).astype(np.uint16).view(np.float16) for one in given]
            with np.errstate(all="ignore"):
                halves.append(work(*numbers).astype(np.float16).view(np.uint16).astype(U32))
        return halves[0] | halves[1] << U32(16)

    return both


def _from_e4m3(pair: Array) -> Array:
    halves = [floats.from_bits(pair.astype(np.int64) >> place & 0xFF, "e4m3").astype(np.float16) for place in (0, 8)]
    low, high = (half.view(np.uint16).astype(U32) for half in halves)
    return low | high << U32(16)


def _product(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return (a.view(np.float32) * b.view(np.float32)).view(U32)


def _two_rounded(dtype: str) -> Callable[[Array, Array], Array]:
    """Two fp32 numbers in one register, rounded."""

    def both(upper: Array, lower: Array) -> Array:
        bits = [floats.to_bits(one.view(np.float32).astype(np.float64), dtype).astype(U32) for one in (upper, lower)]
        return bits[0] << U32(16) | bits[1]

    return both


OPERATIONS: dict[str, Callable[..., Array]] = {
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "xor.b32": lambda a, b: a ^ b,
    "not.b32": lambda a: ~a,
    "shl.b32": _shift(left=True),
    "prmt.b32": _permute,
    "lop3.b32": _logic,
    "dp4a.u32.u32": _dot_bytes,
    "bfe.u32": _field,
    "add.rn.f16x2": _pairs(lambda a, b: a + b),
    "sub.rn.f16x2": _pairs(lambda a, b: a - b),
    "mul.rn.f16x2": _pairs(lambda a, b: a * b),
    "fma.rn.f16x2": _pairs(fused_multiply_add),
    "cvt.rn.f16x2.e4m3x2": _from_e4m3,
    "cvt.rn.f16x2.f32": _two_rounded("fp16"),
    "cvt.rn.bf16x2.f32": _two_rounded("bf16"),
    "mul.rn.f32": _product,
}
OPERATIONS |= {f"mov.{kind}": lambda a: a for kind in ("b32", "u32", "s32", "b16", "u16")}
OPERATIONS |= {f"shr.{kind}": _shift(left=False) for kind in ("b32", "u32")}
OPERATIONS |= {f"add.{kind}": lambda a, b: a + b for kind in ("u32", "s32")}
OPERATIONS |= {f"sub.{kind}": lambda a, b: a - b for kind in ("u32", "s32")}
OPERATIONS |= {f"mul.lo.{kind}": lambda a, b: a * b for kind in ("u32", "s32")}
OPERATIONS |= {f"mad.lo.{kind}": lambda a, b, c: a * b + c for kind in ("u32", "s32")}
OPERATIONS |= {f"{name}.f16x2": OPERATIONS[f"{name}.rn.f16x2"] for name in ("add", "sub", "mul")}


class _Results:
    def __init__(self, handles: list[Any]) -> None:
        self.handles = handles

    def get_result(self, index: int) -> Any:
        return self.handles[index]


def install() -> None:
    """Give Triton's interpreter inline assembly of 32-bit registers, each an element or two of 16 bits."""
    from triton.language.extra import cuda
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder

    def create_inline_asm(
        self: Any, assembly: str, constraints: str, values: list[Any], types: list[Any], is_pure: bool, pack: int
    ) -> Any:
        kinds = constraints.split(",")
        outputs = sum(kind.startswith("=") for kind in kinds)
        inputs = [value.data for value in values]
        if any(kind not in ("r", "f") for kind in kinds[outputs:]) or any(pack * one.itemsize != 4 for one in inputs):
            raise NotImplementedError(f"ptx_machine takes 32-bit registers, not {constraints}, pack={pack}")
        if (len(types), len(inputs)) != (outputs, len(kinds) - outputs):
            raise ValueError(f"{constraints} are not the registers of {len(types)} results and {len(inputs)} operands")
        shaped = [np.ascontiguousarray(one).view(U32) for one in np.broadcast_arrays(*inputs)]
        results = run(assembly, outputs, shaped)
        handles = []
        for kind, bits, given in zip(kinds, results, types, strict=False):
            dtype = getattr(given, "scalar", given)
            unsigned = bits.astype(np.uint16) if kind == "=h" else bits.view(np.uint16) if pack == 2 else bits
            handles.append(interpreter.TensorHandle(unsigned.view(interpreter._get_np_dtype(dtype)), dtype))
        return _Results(handles)

    builder.create_inline_asm = create_inline_asm
    # Launches are done one after the other: none has anything to wait for, but is to say that it would.
    for name in OVERLAP:
        setattr(cuda, name, functools.partial(WAITS.append, name))

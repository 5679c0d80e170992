"""Repairs of Triton's interpreter, so that kernels can be checked where there is no GPU.

With TRITON_INTERPRET=1 set before `triton` is imported, kernels run in numpy. Triton 3.6 to 3.9 get a few things wrong
there that a GPU gets right, and that bytes of a cache depend on. Generated code never works around them: `verify` and
the tests call `repair` once, and a run on a GPU never sees this file.

| what | in the interpreter | repaired to |
| --- | --- | --- |
| fp32 to bf16 | truncates | round to nearest even, NaN stays NaN |
| to and from fp8 | loses carries, wraps instead of saturating, subnormals are off | round to nearest even, saturating |
| `tl.dot` of bf16 | multiplies the bit patterns as integers | the product of the values, accumulated in fp32 |
| `tl.fma` | rounds the product and the sum, before Triton 3.9 | rounds once |
| arithmetic on bf16 | works on the bit patterns | in fp32, rounded to bf16 after each operation |
| `range(tensor)`, `int(tensor)` | raises in Triton 3.6 with numpy 2.4 | the number |
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

import numpy as np

from tqgen.numerics import floats
from tqgen.verify import quick_interpreter

SWITCH = "TRITON_INTERPRET"


def is_chosen() -> bool:
    """Whether the environment asks Triton for its interpreter."""
    return os.environ.get(SWITCH, "0").lower() in {"1", "true", "on", "y", "yes"}


def choose() -> None:
    """Make Triton interpret kernels from now on, repaired and quick.

    RuntimeError where `triton` was imported without the interpreter: it reads the switch only once.
    """
    if not is_chosen():
        if "triton" in sys.modules:
            raise RuntimeError(f"triton is already imported; set {SWITCH}=1 before importing it")
        os.environ[SWITCH] = "1"
    repair()
    quick_interpreter.install()


def round_to_bf16(values: np.ndarray) -> np.ndarray:
    """The bf16 bit patterns (uint16) of fp32 `values`, rounded to nearest even; NaN is quiet and keeps its sign."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(is_nan, (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)


def widen_bf16(bits: np.ndarray) -> np.ndarray:
    """The fp32 values of bf16 bit patterns."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _fp8_formats() -> dict[str, tuple[int, int, int, int]]:
    # mantissa bits, exponent bias, code of the largest finite number, code of NaN
    return {"fp8e4nv": (3, 7, 0x7E, 0x7F), "fp8e5": (2, 15, 0x7B, 0x7F)}


def round_to_fp8(values: np.ndarray, name: str) -> np.ndarray:
    """The codes (uint8) of fp32 `values` in Triton's fp8 type `name`: to nearest even, saturating, Inf too."""
    mantissa, bias, largest, nan = _fp8_formats()[name]
    values = np.asarray(values, dtype=np.float32)
    magnitude = np.abs(values).astype(np.float64)
    finite = np.where(np.isfinite(magnitude), magnitude, 0.0)
    # subnormals, and zero, have the unit in the last place of the smallest normal number
    exponent = np.where(finite < 2.0 ** (1 - bias), 1 - bias, np.frexp(finite)[1] - 1)
    steps = np.rint(np.ldexp(finite, mantissa - exponent))
    codes = steps.astype(np.int64) + ((exponent + bias - 1) << mantissa)
    codes = np.where(np.isinf(magnitude), largest, np.minimum(codes, largest))
    codes = np.where(np.isnan(values), nan, codes | np.where(np.signbit(values), 0x80, 0))
    return codes.astype(np.uint8)


@functools.cache
def _fp8_values(name: str) -> np.ndarray:
    mantissa, bias, _, _ = _fp8_formats()[name]
    codes = np.arange(256)
    exponent, fraction = (codes & 0x7F) >> mantissa, codes & ((1 << mantissa) - 1)
    value = np.where(
        exponent == 0,
        np.ldexp(fraction.astype(np.float64), 1 - bias - mantissa),
        np.ldexp((fraction + (1 << mantissa)).astype(np.float64), exponent - bias - mantissa),
    )
    if name == "fp8e5":
        value = np.where(exponent == 31, np.where(fraction == 0, np.inf, np.nan), value)
    else:
        value = np.where((codes & 0x7F) == 0x7F, np.nan, value)
    return np.where(codes & 0x80, -value, value).astype(np.float32)


def widen_fp8(codes: np.ndarray, name: str) -> np.ndarray:
    """The fp32 values of fp8 codes of Triton's type `name`."""
    return _fp8_values(name)[codes]


def fused_multiply_add(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """x * y + z of fp16 or fp32 numbers, rounded once to their dtype: the product is exact in float64."""
    with np.errstate(all="ignore"):
        product = x.astype(np.float64) * y.astype(np.float64)
        return floats.sum_to_odd(product, z.astype(np.float64)).astype(z.dtype)


def repair() -> None:
    """Put the repairs in place; does nothing the second time.

    Imports `triton`: the switch must be set before.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    if getattr(builder, "repaired_by_tqgen", False):
        return
    handle = interpreter.TensorHandle
    numpy_dtype = interpreter._get_np_dtype
    fp8 = {tl.float8e4nv: "fp8e4nv", tl.float8e5: "fp8e5"}

    def values_of(source: Any) -> np.ndarray:
        """What a handle holds, as numbers: 16-bit and 8-bit floats without a numpy dtype become fp32."""
        dtype = source.get_element_ty()
        if dtype == tl.bfloat16:
            return widen_bf16(source.data)
        return widen_fp8(source.data, fp8[dtype]) if dtype in fp8 else source.data

    def stored(values: np.ndarray, dtype: Any) -> Any:
        dtype = dtype.scalar
        if dtype == tl.bfloat16:
            return handle(round_to_bf16(values), dtype)
        if dtype in fp8:
            return handle(round_to_fp8(values, fp8[dtype]), dtype)
        return handle(values.astype(numpy_dtype(dtype)), dtype)

    def needs_repair(*dtypes: Any) -> bool:
        return any(dtype.scalar == tl.bfloat16 or dtype.scalar in fp8 for dtype in dtypes)

    original_cast, original_convert = builder.cast_impl, builder.create_fp_to_fp
    original_binary, original_dot, original_fma = builder.binary_op, builder.create_dot, builder.create_fma

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        if not needs_repair(source.dtype, target):
            return original_cast(self, source, target)
        with np.errstate(over="ignore"):
            return stored(values_of(source), target)

    def create_fp_to_fp(self: Any, source: Any, target: Any, rounding_mode: Any) -> Any:
        to_nearest = rounding_mode in (None, interpreter._ir.ROUNDING_MODE.RTNE)
        if not to_nearest or not needs_repair(source.dtype, target):
            return original_convert(self, source, target, rounding_mode)
        with np.errstate(over="ignore"):
            return stored(values_of(source), target)

    def binary_op(self: Any, left: Any, right: Any, operation: Any) -> Any:
        if left.dtype.scalar != tl.bfloat16 or right.dtype.scalar != tl.bfloat16:
            return original_binary(self, left, right, operation)
        result = operation(values_of(left), values_of(right))
        if result.dtype == np.bool_:
            return handle(result, tl.int1)
        return stored(result, tl.bfloat16)

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        if z.data.dtype not in (np.float16, np.float32):
            return original_fma(self, x, y, z)
        return handle(fused_multiply_add(*np.broadcast_arrays(x.data, y.data, z.data)), z.dtype.scalar)

    def create_dot(self: Any, a: Any, b: Any, accumulator: Any, *options: Any) -> Any:
        if not needs_repair(a.dtype, b.dtype):
            return original_dot(self, a, b, accumulator, *options)
        product = np.matmul(values_of(a).astype(np.float32), values_of(b).astype(np.float32))
        return handle(product.astype(accumulator.data.dtype) + accumulator.data, accumulator.dtype.scalar)

    builder.cast_impl, builder.create_fp_to_fp = cast_impl, create_fp_to_fp
    builder.binary_op, builder.create_dot, builder.create_fma = binary_op, create_dot, create_fma

    original_patch = interpreter._patch_lang_tensor

    def patch_lang_tensor(tensor: Any, scope: Any) -> None:
        original_patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(np.asarray(self.handle.data).item()))

    interpreter._patch_lang_tensor = patch_lang_tensor
    builder.repaired_by_tqgen = True

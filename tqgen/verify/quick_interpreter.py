"""Triton's interpreter, more than twice as fast.

It spends its time on what it need not: preparing the language anew for every call of a function within a kernel, where
once for each launch is enough, as nothing undoes it before the launch ends; looking for an overflow in every sum,
difference and product of integers, by calculating it again in 64 bits, to throw away what it finds where no kernel is
being debugged; and building the same few types, shapes and dtypes again for every number.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any


def install() -> None:
    """Leave that out from now on; does nothing the second time."""
    from triton.runtime import interpreter

    if getattr(interpreter, "quick", False):
        return
    _prepare_once_a_launch()
    options = interpreter.interpreter_builder.options
    interpreter.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=False)
    _remember_types()
    interpreter.quick = True


def _prepare_once_a_launch() -> None:
    import triton.language as tl
    from triton.runtime import interpreter

    patch_lang, call = interpreter._patch_lang, interpreter.GridExecutor.__call__
    languages: dict[int, tuple[int, ...]] = {}  # of the globals of a function
    prepared: set[tuple[int, ...]] = set()

    class Nothing:
        def restore(self) -> None:
            pass

    def of_globals(found: dict[str, Any]) -> tuple[int, ...]:
        if id(found) not in languages:
            modules = (value for value in found.values() if inspect.ismodule(value))
            languages[id(found)] = tuple(sorted(id(module) for module in modules if module in (tl, tl.core)))
            kept.append(found)  # so that its id stays its own
        return languages[id(found)]

    def patch_once(fn: Any) -> Any:
        key = of_globals(fn.__globals__)
        if key in prepared:
            return Nothing()
        prepared.add(key)
        return patch_lang(fn)

    def quick_call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        prepared.clear()
        try:
            return call(self, *arguments, **keywords)
        finally:
            prepared.clear()

    kept: list[dict[str, Any]] = []
    interpreter._patch_lang = patch_once
    interpreter.GridExecutor.__call__ = quick_call


def _remember_types() -> None:
    """What a type of a block, a tensor of a type and a dtype of numpy are made of, once for each.

    Equal shapes of types are then one object, by which two tensors that need no broadcast are known.
    """
    import triton.language as tl
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    make_block, make_tensor, numpy_dtype = tl.block_type.__init__, tl.tensor.__init__, interpreter._get_np_dtype
    broadcast = TritonSemantic.broadcast_impl_value
    blocks: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}
    shapes: dict[tuple[int, ...], Any] = {}
    sizes: dict[tuple[int, ...], tuple[Any, Any]] = {}
    dtypes: dict[str, Any] = {}

    def quick_block(self: Any, element_ty: Any, shape: Any) -> None:
        key = element_ty.name, tuple([getattr(one, "value", one) for one in shape])
        if key not in blocks:
            make_block(self, element_ty, shape)
            shape = shapes.setdefault(key[1], self.shape)
            blocks[key] = {"shape": shape, "numel": self.numel, "name": self.name}
        self.element_ty = element_ty
        self.__dict__.update(blocks[key])

    def quick_tensor(self: Any, handle: Any, type: Any) -> None:
        key = tuple(type.shape) if type.is_block() else ()
        if key not in sizes:
            make_tensor(self, handle, type)
            sizes[key] = self.shape, self.numel
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = sizes[key]

    def quick_dtype(dtype: Any) -> Any:
        element = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
        if element.name not in dtypes:
            dtypes[element.name] = numpy_dtype(element)
        return dtypes[element.name]

    def quick_broadcast(self: Any, left: Any, right: Any) -> tuple[Any, Any]:
        one, other = left.type, right.type
        if one.is_block() and other.is_block() and one.shape is other.shape:
            return left, right
        found: tuple[Any, Any] = broadcast(self, left, right)
        return found

    TritonSemantic.broadcast_impl_value = quick_broadcast
    tl.block_type.__init__, tl.tensor.__init__, interpreter._get_np_dtype = quick_block, quick_tensor, quick_dtype

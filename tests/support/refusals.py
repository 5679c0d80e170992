"""What launchers must refuse: every argument that does not fit, by an error that names it."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from support.attention_refusals import AttentionCalls
from support.numberless import without_numbers
from tqgen.layout import Layout
from tqgen.verify import device
from tqgen.verify.trial import device_arguments, run_time_arguments

TOKENS, HEADS, BLOCK_SIZE, BLOCKS = 3, 2, 16, 2
Call = tuple[str, type[Exception], str, Callable[[], Any]]  # what is wrong, the error, what it names, the call


class Calls:
    """Good arguments for a module's launchers, and calls in which one of them is bad."""

    def __init__(self, layout: Layout, module: ModuleType) -> None:
        self.layout, self.module, self.where = layout, module, device()
        self.cache = module.allocate(BLOCKS, BLOCK_SIZE, HEADS, device=self.where)
        self.slots = torch.arange(TOKENS, device=self.where)
        self.run_time = device_arguments(run_time_arguments(layout, HEADS), self.where)
        self.vectors: dict[str, Any] = {"key": None, "value": None}
        for side in layout.sides:
            self.vectors[side.name] = torch.zeros(TOKENS, HEADS, side.head_dim, device=self.where)

    def store(self, **changed: Any) -> Any:
        given = {**self.vectors, "kv_cache": self.cache, "slot_mapping": self.slots, **self.run_time, **changed}
        return self.module.store(**given)

    def unpack(self, **changed: Any) -> Any:
        accepted = inspect.signature(self.module.unpack).parameters
        run_time = {name: value for name, value in self.run_time.items() if name in accepted}
        return self.module.unpack(**{"kv_cache": self.cache, "slot_mapping": self.slots, **run_time, **changed})

    def rotate(self, output: Any = None, **changed: Any) -> Any:
        run_time = {name: value for name, value in self.run_time.items() if name.startswith("value_")}
        output = self.vectors["value"] if output is None else output
        return self.module.rotate_attention_output(output, **{**run_time, **changed})

    def bad(self) -> Iterator[Call]:
        """Every bad call."""
        yield from self._allocations()
        yield from self._caches()
        yield from self._slots()
        yield from self._sequences()
        yield from self._too_many()
        yield from self._without_numbers()
        for side in self.layout.sides:
            yield from self._vectors(side.name)
            yield from self._outputs(side.name)
        for side in ("key", "value"):
            if self.vectors[side] is None:
                given = torch.zeros(TOKENS, HEADS, 8, device=self.where)
                yield f"{side}s that are not stored", TypeError, side, lambda s=side, g=given: self.store(**{s: g})
                for wrong in (given, "junk"):
                    pair = tuple({**self.vectors, side: wrong}.values())
                    yield f"out: a {side} that is not stored", TypeError, side, lambda o=pair: self.unpack(out=o)
        yield from self._run_time()
        yield "a space", ValueError, "space", lambda: self.unpack(space="other")
        yield "a dtype", TypeError, "dtype", lambda: self.unpack(dtype=torch.int32)
        if hasattr(self.module, "rotate_attention_output"):
            yield from self._rotations()

    def _allocations(self) -> Iterator[Call]:
        for number, name in enumerate(("num_blocks", "block_size", "num_kv_heads")):
            for size, error in ((0, ValueError), (-1, ValueError), ("12", TypeError), (12.0, TypeError)):
                sizes: list[Any] = [BLOCKS, BLOCK_SIZE, HEADS]
                sizes[number] = size
                call = lambda sizes=sizes: self.module.allocate(*sizes, device=self.where)  # noqa: E731
                yield f"{name} of {size!r}", error, name, call

    def _caches(self) -> Iterator[Call]:
        cache, slot = self.cache, self.layout.slot_bytes
        block = BLOCK_SIZE * HEADS * slot
        larger = torch.zeros(BLOCKS, BLOCK_SIZE, HEADS, slot + 1, dtype=torch.uint8, device=self.where)
        transposed = cache.new_zeros(BLOCKS, HEADS, BLOCK_SIZE, slot).transpose(1, 2)
        bad: list[tuple[str, type[Exception], Any]] = [
            ("no tensor", TypeError, cache.cpu().numpy()),
            ("a cache of int8", TypeError, cache.view(torch.int8)),
            ("a cache of three dimensions", ValueError, cache[0]),
            ("a slot of one byte more", ValueError, larger),
            ("a slot that is cut off", ValueError, cache[..., : slot - 1]),
            ("slots that do not follow one another", ValueError, larger[..., :slot]),
            ("heads before tokens", ValueError, transposed),
            ("blocks of no token", ValueError, cache[:, :0]),
            ("no head", ValueError, cache[:, :, :0]),
            ("blocks that overlap", ValueError, cache.as_strided(cache.shape, (block - 16, HEADS * slot, slot, 1))),
        ]
        for what, error, given in bad:
            yield f"store: {what}", error, "kv_cache", lambda given=given: self.store(kv_cache=given)
            yield f"unpack: {what}", error, "kv_cache", lambda given=given: self.unpack(kv_cache=given)

    def _slots(self) -> Iterator[Call]:
        slots = self.slots
        bad: list[tuple[str, type[Exception], Any]] = [
            ("no tensor", TypeError, slots.tolist()),
            ("slots of int16", TypeError, slots.to(torch.int16)),
            ("slots of fp32", TypeError, slots.float()),
            ("slots of two dimensions", ValueError, slots[None]),
            ("slots with gaps", ValueError, torch.arange(2 * TOKENS, device=self.where)[::2]),
            ("slots on another device", ValueError, slots.to("meta")),
        ]
        for what, error, given in bad:
            yield f"store: {what}", error, "slot_mapping", lambda given=given: self.store(slot_mapping=given)
            yield f"unpack: {what}", error, "slot_mapping", lambda given=given: self.unpack(slot_mapping=given)

    def _too_many(self) -> Iterator[Call]:
        """More token-heads than a kernel counts; on the device of no memory."""
        cache, tokens = self.cache.to("meta"), 2**31 // HEADS
        slots = torch.empty(tokens, dtype=torch.int32, device="meta")
        vectors: dict[str, Any] = {
            name: None if one is None else one.to("meta")[:1].expand(tokens, *one.shape[1:])
            for name, one in self.vectors.items()
        }
        run_time = {name: one.to("meta") for name, one in self.run_time.items()}
        given = {"kv_cache": cache, "slot_mapping": slots}
        yield "too many tokens to store", ValueError, "slot_mapping", lambda: self.store(**vectors, **given, **run_time)
        accepted = set(inspect.signature(self.module.unpack).parameters)
        taken = {name: one for name, one in run_time.items() if name in accepted}
        yield "too many slots", ValueError, "slot_mapping", lambda: self.unpack(**given, **taken)

    def _without_numbers(self) -> Iterator[Call]:
        table, lengths = torch.zeros(2, 3, dtype=torch.int32), torch.ones(2, dtype=torch.int32)
        paged = {"slot_mapping": None, "block_table": table.to(self.where), "seq_lens": lengths.to(self.where)}
        cache = {"kv_cache": self.cache}
        calls: list[tuple[Callable[..., Any], dict[str, torch.Tensor | None]]] = [
            (self.store, {**self.vectors, **cache, "slot_mapping": self.slots, **self.run_time}),
            (self.unpack, {**cache, "slot_mapping": self.slots}),
            (self.unpack, paged),
        ]
        accepted = set(inspect.signature(self.module.unpack).parameters)
        calls.append((self.unpack, {name: one for name, one in self.run_time.items() if name in accepted}))
        if hasattr(self.module, "rotate_attention_output"):
            run_time = {name: one for name, one in self.run_time.items() if name.startswith("value_")}
            calls.append((self.rotate, {"output": self.vectors["value"], **run_time}))
        for call, good in calls:
            for name, tensor in good.items():
                for what, error, given in [] if tensor is None else without_numbers(tensor):
                    bad = {**good, name: given}
                    yield f"{call.__name__}: {name} is {what}", error, name, lambda c=call, b=bad: c(**b)
        for side in self.layout.sides:
            for what, error, given in without_numbers(self.vectors[side.name]):
                pair = tuple({**self.vectors, side.name: given}.values())
                yield f"out: {side.name} is {what}", error, "out", lambda pair=pair: self.unpack(out=pair)

    def _sequences(self) -> Iterator[Call]:
        table = torch.zeros(2, 3, dtype=torch.int32, device=self.where)
        lengths = torch.ones(2, dtype=torch.int32, device=self.where)
        bad: list[tuple[str, str, type[Exception], Any]] = [
            ("nothing", "seq_lens", TypeError, None),
            ("no tensor", "block_table", TypeError, table.tolist()),
            ("int64", "block_table", TypeError, table.long()),
            ("int64", "seq_lens", TypeError, lengths.long()),
            ("one dimension", "block_table", ValueError, table[0]),
            ("two dimensions", "seq_lens", ValueError, lengths[None]),
            ("rows with gaps", "block_table", ValueError, table.new_zeros(2, 6)[:, ::2]),
            ("one sequence more", "block_table", ValueError, table.new_zeros(3, 3)),
            ("another device", "block_table", ValueError, table.to("meta")),
            ("another device", "seq_lens", ValueError, lengths.to("meta")),
        ]
        both = {"slot_mapping": None, "block_table": table, "seq_lens": lengths}
        for what, name, error, given in bad:
            yield f"unpack: {name} of {what}", error, name, lambda n=name, g=given: self.unpack(**{**both, n: g})
        yield "neither slots nor blocks", TypeError, "block_table", lambda: self.unpack(slot_mapping=None)
        yield "slots and blocks", TypeError, "slot_mapping", lambda: self.unpack(**{**both, "slot_mapping": self.slots})
        yield "lengths of slots", TypeError, "seq_lens", lambda: self.unpack(seq_lens=lengths)
        flat = tuple(None if one is None else torch.zeros_like(one) for one in self.vectors.values())
        yield "an output for slots", ValueError, "out", lambda: self.unpack(**both, out=flat)

    def _vectors(self, side: str) -> Iterator[Call]:
        good = self.vectors[side]
        tokens, heads, head_dim = good.shape
        new = lambda *shape: torch.zeros(shape, device=self.where)  # noqa: E731
        bad: list[tuple[str, type[Exception], Any]] = [
            ("nothing", TypeError, None),
            ("int32", TypeError, good.int()),
            ("fp64", TypeError, good.double()),
            ("one token more", ValueError, new(tokens + 1, heads, head_dim)),
            ("one head more", ValueError, new(tokens, heads + 1, head_dim)),
            ("one element more", ValueError, new(tokens, heads, head_dim + 1)),
            ("two dimensions", ValueError, good[0]),
            ("every other element", ValueError, new(tokens, heads, 2 * head_dim)[..., ::2]),
            ("another device", ValueError, good.to("meta")),
        ]
        for what, error, given in bad:
            yield f"store: {side} of {what}", error, side, lambda given=given: self.store(**{side: given})

    def _outputs(self, side: str) -> Iterator[Call]:
        good = {name: None if one is None else torch.zeros_like(one) for name, one in self.vectors.items()}
        tokens, heads, head_dim = good[side].shape
        bad: list[tuple[str, type[Exception], Any, dict[str, Any]]] = [
            ("nothing", TypeError, None, {}),
            ("int32", TypeError, good[side].int(), {}),
            ("another dtype", TypeError, good[side].bfloat16(), {"dtype": torch.float32}),
            ("one token more", ValueError, good[side].new_zeros(tokens + 1, heads, head_dim), {}),
            ("one element more", ValueError, good[side].new_zeros(tokens, heads, head_dim + 1), {}),
            ("every other element", ValueError, good[side].new_zeros(tokens, heads, 2 * head_dim)[..., ::2], {}),
            ("another device", ValueError, good[side].to("meta"), {}),
        ]
        for what, error, given, more in bad:
            pair = tuple({**good, side: given}.values())
            yield f"out: {side} of {what}", error, "out", lambda pair=pair, more=more: self.unpack(out=pair, **more)

    def _run_time(self) -> Iterator[Call]:
        for name, good in self.run_time.items():
            rows, columns = good.shape
            bad: list[tuple[str, type[Exception], Any]] = [
                ("nothing", TypeError, None),
                ("fp64", TypeError, good.double()),
                ("one row more", ValueError, good.new_zeros(rows + 1, columns)),
                ("one column more", ValueError, good.new_zeros(rows, columns + 1)),
                ("every other column", ValueError, good.new_zeros(rows, 2 * columns)[:, ::2]),
                ("another device", ValueError, good.to("meta")),
            ]
            for what, error, given in bad:
                yield f"store: {name} of {what}", error, name, lambda n=name, g=given: self.store(**{n: g})
                if name in inspect.signature(self.module.unpack).parameters:
                    yield f"unpack: {name} of {what}", error, name, lambda n=name, g=given: self.unpack(**{n: g})
                if name.startswith("value_") and hasattr(self.module, "rotate_attention_output"):
                    yield f"rotate: {name} of {what}", error, name, lambda n=name, g=given: self.rotate(**{n: g})

    def _rotations(self) -> Iterator[Call]:
        good = self.vectors["value"]
        yield "an output of int32", TypeError, "output", lambda: self.rotate(good.int())
        yield (
            "an output of one element more",
            ValueError,
            "output",
            lambda: self.rotate(good.new_zeros(*good.shape[:-1], good.shape[-1] + 1)),
        )
        yield "an output of one dimension", ValueError, "output", lambda: self.rotate(good[0, 0])
        if "value_center" in self.run_time:
            yield (
                "an output of other heads",
                ValueError,
                "output",
                lambda: self.rotate(good.new_zeros(1, HEADS + 1, good.shape[-1])),
            )

    def good(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Calls that look bad and are not."""
        one = self.cache[:1]
        block = BLOCK_SIZE * HEADS * self.layout.slot_bytes
        stride = max(1, self.layout.alignment)
        alone = one.as_strided(one.shape, (block - stride, *one.stride()[1:]))
        yield "a single block of any stride", lambda: self.store(kv_cache=alone)
        none = {name: None if one is None else one[:0] for name, one in self.vectors.items()}
        yield "no token", lambda: self.store(slot_mapping=self.slots[:0], **none)
        yield "no slot", lambda: self.unpack(slot_mapping=self.slots[:0])
        last = {name: None if one is None else one[:1] for name, one in self.vectors.items()}
        lone = torch.arange(4, device=self.where)[::4]
        yield "a single slot of any stride", lambda: self.store(slot_mapping=lone, **last)
        out = tuple(None if one is None else torch.empty_like(one) for one in self.vectors.values())
        yield "an output of the dtype that was asked for", lambda: self.unpack(out=out, dtype=torch.float32)
        table = torch.zeros(2, 3, dtype=torch.int32, device=self.where)
        for chosen in (table, table[:0], table[:, :0]):
            given = {"slot_mapping": None, "block_table": chosen, "seq_lens": chosen.new_ones(chosen.shape[0])}
            yield f"a block table of {list(chosen.shape)}", lambda given=given: self.unpack(**given)
        arguments = set(inspect.signature(self.module.unpack).parameters) & set(self.run_time)
        nothing = dict.fromkeys(arguments)
        yield "no rotation in rotated space", lambda: self.unpack(space="rotated", **nothing)


def unrefused(layout: Layout, module: ModuleType) -> list[str]:
    """Bad calls that went through or gave the wrong error, and good ones that did not go through."""
    every: list[Calls | AttentionCalls] = [Calls(layout, module)]
    if hasattr(module, "decode_attention"):
        every.append(AttentionCalls(layout, module))
    found = []
    for what, error, named, call in itertools.chain.from_iterable(calls.bad() for calls in every):
        try:
            call()
        except error as raised:
            if named not in str(raised):
                found.append(f"{what}: `{raised}` does not name {named}")
        except Exception as raised:  # whatever else comes is a finding
            found.append(f"{what}: {type(raised).__name__} and not {error.__name__}: {raised}")
        else:
            found.append(f"{what}: no error")
    for what, call in itertools.chain.from_iterable(calls.good() for calls in every):
        try:
            call()
        except Exception as raised:
            found.append(f"{what}: {type(raised).__name__}: {raised}")
    return found


def misdescribed(layout: Layout, module: ModuleType) -> list[str]:
    """What the module's `LAYOUT` says that is not so."""
    said, found = module.LAYOUT, []
    facts = {
        "name": layout.name,
        "layout_id": layout.layout_id,
        "key_head_dim": layout.key.head_dim,
        "value_head_dim": layout.value.head_dim,
        "slot_bytes": layout.slot_bytes,
    }
    for name, value in facts.items():
        if getattr(said, name) != value:
            found.append(f"LAYOUT.{name} is {getattr(said, name)!r}, not {value!r}")
    wanted = {(one.name, one.part.count, one.part.bits, one.part.dtype, one.region) for one in layout.fields}
    fields = [(one.name, one.count, one.bits, one.dtype, one.region) for one in said.fields]
    if len(fields) != len(wanted) or set(fields) != wanted:
        found.append(f"LAYOUT.fields are {fields}, not {sorted(wanted)}")
    order = [f"{side.name}.{part.name}" for side in layout.sides for part in side.parts]
    if [one.name for one in said.fields] != order:
        found.append("LAYOUT.fields are in another order than the codecs have them")
    return found

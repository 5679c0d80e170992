"""Calls of a module's launchers that are measured, on inputs of N(0, 1). Needs torch and a GPU.

Calls come in sets that together exceed the L2 cache, so that none finds its inputs there. Small sizes do: an engine's
new keys and values come from the kernel before, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from tqgen.bench.cases import Case, Setting
from tqgen.bench.timing import Call
from tqgen.layout import Layout
from tqgen.verify.trial import DTYPES, device_arguments, run_time_arguments

MOST_SETS = 32
CHUNK = 65536  # tokens that are stored at once to fill a cache


@dataclass(frozen=True)
class Subject:
    """A layout with its module, and what a run needs to call it."""

    layout: Layout
    module: ModuleType
    setting: Setting
    device: torch.device
    run_time: Mapping[str, torch.Tensor]

    @staticmethod
    def of(layout: Layout, module: ModuleType, setting: Setting, device: torch.device) -> Subject:
        arrays: dict[str, np.ndarray] = run_time_arguments(layout, setting.num_kv_heads)
        return Subject(layout, module, setting, device, device_arguments(arrays, device))

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.setting.dtype]

    def taken(self, launcher: str) -> dict[str, torch.Tensor]:
        """The run-time arguments that a launcher takes."""
        accepted = inspect.signature(getattr(self.module, launcher)).parameters
        return {name: one for name, one in self.run_time.items() if name in accepted}

    def vectors(self, tokens: int) -> dict[str, torch.Tensor]:
        """Inputs of each stored side, [tokens, heads, head_dim]."""
        heads = self.setting.num_kv_heads
        return {
            side.name: torch.randn(tokens, heads, side.head_dim, device=self.device).to(self.dtype)
            for side in self.layout.sides
        }

    def cache(self, tokens: int) -> torch.Tensor:
        """A cache with room for so many tokens."""
        size = self.setting.block_size
        cache: torch.Tensor = self.module.allocate(
            -(-tokens // size), size, self.setting.num_kv_heads, device=self.device
        )
        return cache

    def store(self, vectors: Mapping[str, torch.Tensor], cache: torch.Tensor, slots: torch.Tensor) -> None:
        key, value = vectors.get("key"), vectors.get("value")
        self.module.store(key, value, cache, slots, **self.taken("store"))

    def filled(self, tokens: int) -> torch.Tensor:
        """A cache in which every slot holds a vector."""
        cache = self.cache(tokens)
        slots = torch.arange(cache.shape[0] * cache.shape[1], device=self.device)
        vectors = self.vectors(min(CHUNK, len(slots)))
        for part in slots.split(CHUNK):
            self.store({name: one[: len(part)] for name, one in vectors.items()}, cache, part)
        return cache


def sets(one: int, l2_bytes: int) -> tuple[int, bool]:
    """How many sets of inputs there are that move `one` bytes each, and whether they exceed the L2 cache together."""
    wanted = 1 + -(-2 * l2_bytes // one)
    return min(wanted, MOST_SETS), wanted <= MOST_SETS


def calls_of(subject: Subject, case: Case, count: int) -> list[Call]:
    """`count` calls of the case's launcher, on inputs and outputs of their own, given their buffers."""
    return [_MAKERS[case.kernel](subject, case) for _ in range(count)]


def _store(subject: Subject, case: Case) -> Call:
    vectors, cache = subject.vectors(case.tokens), subject.cache(case.tokens)
    slots = torch.randperm(case.tokens, device=subject.device)
    key, value, run_time = vectors.get("key"), vectors.get("value"), subject.taken("store")
    store = subject.module.store
    return lambda: store(key, value, cache, slots, **run_time)


def _unpack(subject: Subject, case: Case) -> Call:
    cache = subject.filled(case.tokens)
    slots = torch.randperm(case.tokens, device=subject.device)
    outputs = {name: torch.empty_like(one) for name, one in subject.vectors(case.tokens).items()}
    out, run_time = (outputs.get("key"), outputs.get("value")), subject.taken("unpack")
    unpack, space = subject.module.unpack, case.space or "model"
    return lambda: unpack(cache, slots, space=space, out=out, **run_time)


def _decode(subject: Subject, case: Case) -> Call:
    setting, module, device = subject.setting, subject.module, subject.device
    pages = -(-case.length // setting.block_size)
    cache = subject.filled(case.batch * pages * setting.block_size)
    table = torch.randperm(case.batch * pages, device=device).to(torch.int32).view(case.batch, pages)
    lengths = torch.full((case.batch,), case.length, dtype=torch.int32, device=device)
    shape = (case.batch, setting.num_query_heads)
    query = torch.randn(*shape, subject.layout.key.head_dim, device=device).to(subject.dtype)
    out = torch.empty(*shape, subject.layout.value.head_dim, dtype=subject.dtype, device=device)
    splits = module.decode_num_splits(*shape, setting.num_kv_heads, pages * setting.block_size, device)
    workspace = torch.empty(module.decode_workspace_size(*shape, splits), device=device)
    options: dict[str, Any] = {**subject.taken("decode_attention"), "out": out, "workspace": workspace}
    return lambda: module.decode_attention(query, cache, table, lengths, **options)


_MAKERS = {"store": _store, "unpack": _unpack, "decode": _decode}

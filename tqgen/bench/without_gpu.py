"""What can be said of a module's speed where there is no GPU: the instructions that its kernels compile to.

Needs torch and triton, in a process in which Triton does not interpret.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tqgen import inspect
from tqgen.bench.cases import Setting
from tqgen.bench.table import Row
from tqgen.inspect import Facts
from tqgen.verify.trial import DTYPES

TARGET = "sm_90"
LAUNCHERS = {"store": "store", "unpack": "unpack", "decode": "decode_attention"}
TITLES: Row = (
    "launch",
    "instructions",
    "per element",
    "registers",
    "spilled",
    "shared",
    "widest accesses of fields, in bytes",
)

WORDS = (0, 6)  # columns


@dataclass(frozen=True)
class Compiled:
    """A launch, in words, and what it compiles to."""

    spec: str
    launch: str
    facts: Facts

    def to_json(self) -> dict[str, Any]:
        return {"spec": self.spec, "launch": self.launch, **self.facts.to_json()}

    @property
    def row(self) -> Row:
        facts = self.facts
        return (
            self.launch,
            f"{facts.loop or facts.instructions:,}",
            f"{facts.per_element:.2f}" if facts.per_element else "-",
            str(facts.registers),
            f"{facts.spilled_bytes} B",
            f"{facts.shared_bytes / 1024:.1f} KiB",
            _widths(facts.loads, facts.stores),
        )


def _widths(loads: dict[str, int], stores: dict[str, int]) -> str:
    """Fields with their widest access, as `key.codes 16`, and what is none of them: inputs, outputs, and tables."""
    widths = {name: max(loads.get(name, 0), stores.get(name, 0)) for name in {**loads, **stores}}
    fields = [f"{name} {width}" for name, width in sorted(widths.items()) if name != "*"]
    return ", ".join(fields + [f"inputs and tables {width}" for name, width in widths.items() if name == "*"]) or "-"


def compiled(name: str, module: ModuleType, kernels: Sequence[str], setting: Setting) -> Iterator[Compiled]:
    """Each launch of the module's kernels for the target, as each is compiled."""
    target = inspect.TARGETS[TARGET]
    for kernel in kernels:
        if not hasattr(module, LAUNCHERS[kernel]):
            continue
        for words, options in _variants(kernel, module):
            launches = inspect.launches(
                module,
                target,
                dtype=DTYPES[setting.dtype],
                block_size=setting.block_size,
                num_kv_heads=setting.num_kv_heads,
                launchers=(LAUNCHERS[kernel],),
                **options,
            )
            for launch in launches:
                part = "merge of splits" if launch.name == "_merge_kernel" else words
                yield Compiled(name, part, inspect.compiled(launch, target))


def _variants(kernel: str, module: ModuleType) -> list[tuple[str, dict[str, Any]]]:
    """The ways in which a kernel is launched, in words, with what `inspect.launches` is to be told."""
    if kernel == "store":
        return [("store, few tokens", {}), ("store, many tokens", {"many": True})]
    if kernel == "unpack":
        return [(f"unpack, {space} space", {"space": space}) for space in ("rotated", "model")]
    return [("decode attention", {})]

"""The whole way from a spec file to a module's text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tqgen.emit import draft, emit
from tqgen.layout import Layout
from tqgen.layout.resolve import load, resolve
from tqgen.lower import lower
from tqgen.plan import ModulePlan
from tqgen.spec import Spec


@dataclass(frozen=True)
class Compiled:
    """Every stage of one spec."""

    spec: Spec
    layout: Layout
    plan: ModulePlan

    @property
    def name(self) -> str:
        return self.layout.name

    @cached_property
    def source(self) -> str:
        """The module's text."""
        return emit(self.plan)

    @cached_property
    def draft(self) -> str:
        """The module's text before formatting: the same program, much sooner."""
        return draft(self.plan)


def compile_spec(path: str | Path, overrides: Mapping[str, str] | None = None) -> Compiled:
    """Compile the spec at `path`; SpecError with every problem of the first stage that found one."""
    spec, layout = load(path, dict(overrides or {}))
    return Compiled(spec, layout, lower(layout, Path(path).name))


def compile_parsed(spec: Spec, file: str) -> Compiled:
    """Compile a spec that was read; `file` is the name that the module's head gives. SpecError as `compile_spec`."""
    layout = resolve(spec)
    return Compiled(spec, layout, lower(layout, file))

"""The whole way from a spec file to a module's text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tqgen.emit import emit
from tqgen.layout import Layout
from tqgen.lower import lower
from tqgen.plan import ModulePlan
from tqgen.layout.resolve import resolve
from tqgen.spec import load_spec

if TYPE_CHECKING:
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


def compile_spec(path: str | Path, overrides: Mapping[str, str] | None = None) -> Compiled:
    """Compile the spec at `path`; SpecError with every problem of the first stage that found one."""
    spec = load_spec(path, dict(overrides or {}))
    layout = resolve(spec)
    return Compiled(spec, layout, lower(layout, Path(path).name))

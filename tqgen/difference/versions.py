"""A layout at one time, or under one name: everything that another version is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from tqgen.compiler import Compiled
from tqgen.difference import Category, Change
from tqgen.difference.interface import Interface, interface_changes, interface_of
from tqgen.difference.layouts import layout_changes
from tqgen.layout import Layout


@dataclass(frozen=True)
class Version:
    """A layout, and the functions of its module."""

    layout: Layout
    interface: Interface


def version_of(compiled: Compiled, module: str | None = None) -> Version:
    """The version that this compiler makes, or the one of a `module` that was generated earlier.

    ValueError where that is not Python.
    """
    return Version(compiled.layout, interface_of(compiled.draft if module is None else module))


def changes(old: Version, new: Version) -> list[Change]:
    """What differs, category by category."""
    found = [*layout_changes(old.layout, new.layout), *interface_changes(old.interface, new.interface)]
    order = list(Category)
    return sorted(found, key=lambda change: order.index(change.category))

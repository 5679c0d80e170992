"""The one list of what is built: `build`, `list`, the tests and the benchmarks read it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tqgen import resources
from tqgen.paths import real

OUTPUT = "generated"


@dataclass(frozen=True)
class Entry:
    """A shipped spec; its module has the same name."""

    name: str
    path: Path


def shipped() -> tuple[Entry, ...]:
    """The shipped specs, by name."""
    return tuple(Entry(path.stem, path) for path in sorted(resources.specs().glob("*.yaml")))


def locate(argument: str) -> Path:
    """The file that a SPEC argument means: a path, or the name of a shipped spec.

    A file of that name wins. The result need not exist: who reads it reports that.
    """
    path = Path(argument)
    if os.path.exists(argument) or path.name != argument or path.suffix:
        return path
    for entry in shipped():
        if entry.name == argument:
            return entry.path
    return path


def is_shipped(path: Path) -> bool:
    """Whether `path` is one of the shipped specs."""
    return any(real(path) == real(entry.path) for entry in shipped())


def default_output(path: Path, *, changed: bool = False) -> Path:
    """Where the module of a spec goes when nobody says: `generated` of the checkout for its own specs, else here.

    With `changed` values it is no longer one of its own.
    """
    root = resources.checkout()
    if root and is_shipped(path) and not changed:
        return root / OUTPUT
    return Path(OUTPUT)

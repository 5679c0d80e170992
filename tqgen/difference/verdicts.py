"""Whether a layout is still what it was: its spec, and its module as it was generated, against what is compiled now."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tqgen import seal
from tqgen.compiler import Compiled, compile_parsed
from tqgen.diagnostics import Diagnostic, Place, SpecError
from tqgen.difference import Change, interface
from tqgen.difference.archive import Archive
from tqgen.difference.versions import Version, changes, version_of
from tqgen.spec import Spec, parse_spec


class Status(Enum):
    """What became of a layout."""

    SAME = "same"
    COMPATIBLE = "compatible"  # only the interface grew
    CHANGED = "changed"
    NEW = "new"
    GONE = "gone"


@dataclass(frozen=True)
class Verdict:
    """What became of one layout, and how it was written before.

    `recorded_id` is set where the module as it was generated carries another `layout_id` than the compiler gives the
    old spec now.
    """

    name: str
    path: Path
    status: Status
    changes: tuple[Change, ...] = ()
    old: Spec | None = None
    new: Compiled | None = None
    recorded_id: str | None = None


def verdict(path: Path, new: Compiled, module: Path, against: Archive) -> Verdict:
    """Compare a spec and the module that belongs to it with their earlier versions.

    SpecError where the old spec is none that this compiler takes: caches may be in use that nothing tells of.
    ArchiveError where the archive cannot be read.
    """
    old_module = against.read(module)
    old_module = old_module if old_module and seal.is_sealed(old_module) else None
    old = _old(path, new, against)
    if old is None and old_module is None:
        return Verdict(new.name, path, Status.NEW, new=new)
    recorded = interface.recorded_id(old_module) if old_module else None
    before = old or new  # without the old spec, what can be seen is the id and the interface
    found = tuple(changes(_version(before, old_module), version_of(new)))
    drifted = recorded if recorded not in (None, before.layout.layout_id) else None
    breaks = drifted is not None or any(change.breaks for change in found)
    status = Status.CHANGED if breaks else Status.COMPATIBLE if found else Status.SAME
    return Verdict(new.name, path, status, found, old.spec if old else None, new, drifted)


def _old(path: Path, new: Compiled, against: Archive) -> Compiled | None:
    """The earlier spec, compiled now. Where its text is the same, so is what becomes of it."""
    text = against.read(path)
    if text is None:
        return None
    if text == path.read_text(encoding="utf-8", errors="replace"):
        return new
    try:
        return compile_parsed(parse_spec(text, against.label(path)), path.name)
    except SpecError as error:
        message = f"`{new.name}` cannot be compared: this compiler refuses the spec that it had"
        help = "give the new layout a name of its own, unless no cache was ever written with the old one"
        found = Diagnostic("TQ5206", message, Place(str(path)), help=help)
        raise SpecError([found, *error.diagnostics]) from None


def _version(compiled: Compiled, module: str | None) -> Version:
    try:
        return version_of(compiled, module)
    except ValueError:  # a module that was edited into something else tells nothing
        return version_of(compiled)

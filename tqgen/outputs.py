"""Generated files: what is on disk against what should be there, and publishing what differs."""

from __future__ import annotations

import contextlib
import enum
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqgen import seal
from tqgen.paths import real

LONGEST = 2**24  # characters of a file that are looked at: tqgen writes none that is as long


class State(enum.Enum):
    """How a file on disk relates to what tqgen would write there."""

    CURRENT = "current"
    MISSING = "missing"
    STALE = "stale"  # tqgen wrote it, from an older spec or with another version
    EDITED = "edited by hand"
    FOREIGN = "not written by tqgen"
    LEFT_OVER = "left over"  # tqgen wrote it, and no spec asks for it any more


@dataclass(frozen=True)
class Output:
    """A text and the file it belongs in."""

    path: Path
    text: str


@dataclass(frozen=True)
class Found:
    """An output's file, or a file that no output asks for."""

    path: Path
    state: State
    output: Output | None = None


def _read(path: Path) -> str:
    # universal newlines: a checkout with other line ends is not an edit
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(LONGEST)


def state_of(output: Output) -> State:
    """What stands at the place of `output`; OSError where it cannot be read."""
    try:
        there = _read(output.path)
    except FileNotFoundError:
        return State.MISSING
    if there == output.text:
        return State.CURRENT
    if not seal.is_sealed(there):
        return State.FOREIGN
    return State.STALE if seal.is_intact(there) else State.EDITED


def left_over(folder: Path, outputs: Iterable[Output]) -> list[Path]:
    """Files in `folder` that tqgen wrote and that are not among `outputs`; files of others are not looked at twice.

    Only files of the kinds that `outputs` have there are looked for.
    """
    here = [output.path for output in outputs if output.path.parent == folder]
    wanted, kinds = {path.name for path in here}, {path.suffix for path in here}
    if not folder.is_dir():
        return []
    others = [path for path in sorted(folder.iterdir()) if path.suffix in kinds and path.name not in wanted]
    others = [path for path in others if path.is_file()]
    return [path for path in others if seal.is_sealed(_read(path))]


def compare(outputs: Sequence[Output], complete: Iterable[Path] = ()) -> list[Found]:
    """The state of every output, in order; `complete`: folders that should hold nothing else of tqgen's."""
    found = [Found(output.path, state_of(output), output) for output in outputs]
    for folder in complete:
        found += [Found(path, State.LEFT_OVER) for path in left_over(folder, outputs)]
    return found


def publish(output: Output) -> None:
    """Put `output` in place at once: a reader sees the old text or the new one. OSError where it fails.

    Where a link stands, the file that it leads to is written.
    """
    target = real(output.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(output.text)
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _mode(path: Path) -> int:
    """The permissions that `path` has, or that a new file gets."""
    try:
        return path.stat().st_mode & 0o7777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask

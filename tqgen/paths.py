"""What a path leads to, where symbolic links may lead round in a circle and names may be impossible."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def real(path: Path) -> Path:
    """`path` with its links followed, as far as they lead anywhere; unlike `Path.resolve` it takes every path."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):  # a name that holds a zero byte
        return path


def what_else(path: Path) -> str | None:
    """What stands at `path`, or where its links lead, that is no file of text; None where nothing or a file does.

    Reading a pipe waits for a writer, and reading some devices never ends.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return None
    kinds = {
        stat.S_IFREG: None,
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")

"""The text of a spec, and how to point into it."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tqgen.diagnostics import Diagnostic, Place, SpecError, did_you_mean

LARGEST_FILE = 256 * 1024  # bytes; a spec has some hundred
_LINE_END = re.compile(r"\r\n|\n|\r")
_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


@dataclass(frozen=True)
class Source:
    """A text, and how to point into it. `prefix` stands before the first line, where that is a part of a longer one."""

    file: str
    text: str
    prefix: str = ""

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(found.end() for found in _LINE_END.finditer(self.text))]

    @cached_property
    def _lines(self) -> list[str]:
        return _LINE_END.split(self.text)

    def place(self, start: int, end: int | None = None) -> Place:
        """The characters [start, end) of the text; what goes on in later lines is cut off."""
        start = max(0, min(start, len(self.text)))
        index = bisect_right(self._starts, start) - 1
        line, column = self._lines[index], start - self._starts[index]
        length = max(1, min((start + 1 if end is None else end) - start, len(line) - column))
        lead = self.prefix if index == 0 else ""
        return Place(self.file, index + 1, len(lead) + column + 1, length, lead + line)

    def line_above(self, line: int) -> Place | None:
        """The nearest line above `line`, counted from 1, that holds more than a comment; None where there is none."""
        for index in range(line - 2, -1, -1):
            text = self._lines[index]
            if text.strip() and not text.lstrip().startswith("#"):
                return self.place(self._starts[index] + len(text) - len(text.lstrip()), self._starts[index] + len(text))
        return None

    def find(self, start_of_line: str) -> Place:
        """The first line that starts so, up to its end; the start of the text where there is none."""
        for index, line in enumerate(self._lines):
            if line.startswith(start_of_line):
                return self.place(self._starts[index], self._starts[index] + len(line.rstrip()))
        return self.place(0)


class MissingFile(SpecError):
    """A file that is not there."""

    def __init__(self, path: Path) -> None:
        super().__init__([not_there(path)])
        self.path = path


def read_file(path: Path) -> str:
    """The text of a spec file; MissingFile where there is none, SpecError where it cannot be read or is not UTF-8."""
    file = str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and not os.path.islink(path):
            raise MissingFile(path) from None
        raise SpecError([_unreadable(path, error)]) from None
    if len(raw) > LARGEST_FILE:
        message = f"the file has more than {LARGEST_FILE} bytes, which is the most that a spec may have"
        raise SpecError([Diagnostic("TQ1011", message, Place(file))])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        text = raw.decode("utf-8", errors="replace")
        before = len(raw[: error.start].decode("utf-8", errors="replace"))
        place = Source(file, text).place(before)
        message = f"byte {raw[error.start]:#04x} is not UTF-8 text"
        raise SpecError([Diagnostic("TQ1002", message, place, help="save the file as UTF-8")]) from None


def _unreadable(path: Path, error: Exception) -> Diagnostic:
    if os.path.isdir(path):  # unlike Path.is_dir, false also where the name itself is impossible
        return Diagnostic("TQ4001", "this is a folder, not a spec", Place(str(path)), help="name a file in it")
    if os.path.islink(path) and not os.path.exists(path) and isinstance(error, FileNotFoundError):
        help = f"it is a link to `{os.readlink(path)}`: name the file itself, or mend the link"
        return Diagnostic("TQ4001", "this link leads to no file", Place(str(path)), help=help)
    reason = getattr(error, "strerror", None) or "its name is not a path"
    help = "see that you may read it, with `ls -l`" if isinstance(error, PermissionError) else ""
    return Diagnostic("TQ4001", f"the file cannot be read: {reason.lower()}", Place(str(path)), help=help)


def not_there(path: Path, given: Collection[Path] = ()) -> Diagnostic:
    """What to say of a file that is not there; those that are `given` beside it are not what was meant by it."""
    folder = path.parent
    others = folder.glob("*.yaml") if os.path.isdir(folder) else ()
    close = did_you_mean(path.name, [entry.name for entry in others if entry not in given])
    help = f"did you mean `{folder / close}`?" if close else "`tqgen list` shows the specs that are shipped"
    return Diagnostic("TQ4001", "there is no such file", Place(str(path)), help=help)


def check_text(source: Source) -> None:
    """SpecError where a text is too long, or holds characters that no YAML text holds."""
    if len(source.text) > LARGEST_FILE:
        message = f"the text has {len(source.text)} characters, but a spec has at most {LARGEST_FILE}"
        raise SpecError([Diagnostic("TQ1011", message, Place(source.file))])
    if stray := _NOT_TEXT.search(source.text):
        message = f"character U+{ord(stray[0]):04X} is not text"
        raise SpecError([Diagnostic("TQ1003", message, source.place(stray.start()), help="remove it")])


def unprintable(text: str) -> str | None:
    """The first character of a value, escapes resolved, that is not text."""
    found = _NOT_TEXT.search(text)
    return found[0] if found else None

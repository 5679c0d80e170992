"""What tqgen says about a mistake: a code, a sentence, a place in the text, and a way out.

Every mistake that a user can make becomes a `Diagnostic`. The problems of one stage are collected and raised together
as one `SpecError`, in the order of their places. The codes and their long explanations are in `tqgen.explanations`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["error", "warning"]
SHOWN_COLUMNS = 160  # of a source line; longer lines are shown in part


@dataclass(frozen=True)
class Place:
    """A stretch of one line of a file. Lines and columns count from 1, in characters; line 0 means the whole file."""

    file: str
    line: int = 0
    column: int = 0
    length: int = 1
    text: str = ""  # the whole line, without its end

    def to_json(self) -> dict[str, Any]:
        """The place as plain data; the whole file has no line, column and length."""
        numbers = {"line": self.line, "column": self.column, "length": self.length}
        return {"file": self.file, **{name: number if self.line else None for name, number in numbers.items()}}


@dataclass(frozen=True)
class Related:
    """A second place that has to do with a problem, and what there is to say about it."""

    place: Place
    label: str


@dataclass(frozen=True)
class Diagnostic:
    """One problem.

    `message` is lower case, has no full stop, and says what was expected and what was found in the words of the spec.
    `label` stands beside the caret, `help` is something that can be done.
    """

    code: str
    message: str
    place: Place | None = None
    label: str = ""
    help: str = ""
    related: tuple[Related, ...] = ()
    severity: Severity = "error"

    @property
    def file(self) -> str:
        return self.place.file if self.place else ""

    @property
    def line(self) -> int:
        return self.place.line if self.place else 0

    @property
    def column(self) -> int:
        return self.place.column if self.place else 0

    @property
    def length(self) -> int:
        return self.place.length if self.place else 0

    @property
    def sort_key(self) -> tuple[str, int, int, str, str]:
        return (self.file, self.line, self.column, self.code, self.message)

    def render(self) -> str:
        """The problem as a person reads it, without a line end after the last line."""
        header = f"{self.severity}[{self.code}]: {self.message}"
        marks = [_Mark(self.place, "^", self.label)] if self.place else []
        marks += [_Mark(related.place, "-", related.label) for related in self.related]
        gutter = max((len(str(mark.place.line)) for mark in marks if mark.place.line), default=1)
        lines = [header]
        for index, (file, here) in enumerate(_by_file(marks)):
            lines += _excerpt(file, here, gutter, "-->" if index == 0 else ":::")
        if self.help:
            if any(mark.place.line for mark in marks):
                lines.append(f"{' ' * gutter} |")
            lines.append(f"{' ' * gutter} = help: {self.help}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The problem as plain data, for tools; what it has not is None."""
        place = self.place.to_json() if self.place else dict.fromkeys(("file", "line", "column", "length"))
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            **place,
            "label": self.label or None,
            "help": self.help or None,
            "related": [{**related.place.to_json(), "label": related.label} for related in self.related],
        }


class SpecError(Exception):
    """A spec that cannot be compiled: every problem that one stage found, sorted by place."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        unique = dict.fromkeys(diagnostics)
        self.diagnostics: tuple[Diagnostic, ...] = tuple(sorted(unique, key=lambda found: found.sort_key))
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        return render(self.diagnostics)


def render(diagnostics: Iterable[Diagnostic]) -> str:
    """Several problems, with an empty line between them."""
    return "\n\n".join(diagnostic.render() for diagnostic in diagnostics)


def did_you_mean(word: str, choices: Iterable[str]) -> str | None:
    """The one choice that `word` is probably a misspelling of."""
    import difflib

    by_lower = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    if not close:  # of a short word, two letters that changed places are much
        close = [choice for choice in by_lower if choice in _swapped(word.lower())]
    return by_lower[close[0]] if close else None


def _swapped(word: str) -> set[str]:
    return {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(len(word) - 1)}


def cut(text: str, longest: int = 40) -> str:
    """The text, or its beginning where it is longer than a message should repeat."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def listed(choices: Sequence[str], joiner: str = "or") -> str:
    """`a`, `b` or `c`."""
    quoted = [f"`{choice}`" for choice in choices]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} {joiner} {quoted[-1]}"


@dataclass(frozen=True)
class _Mark:
    place: Place
    sign: str
    label: str


def _by_file(marks: Sequence[_Mark]) -> list[tuple[str, list[_Mark]]]:
    """The marks of each file, the file of the first mark first."""
    files: dict[str, list[_Mark]] = {}
    for mark in marks:
        files.setdefault(mark.place.file, []).append(mark)
    return list(files.items())


def _excerpt(file: str, marks: Sequence[_Mark], gutter: int, arrow: str) -> list[str]:
    """The lines of one file that hold marks, with a row of signs under each."""
    empty = f"{' ' * gutter} |"
    first = marks[0].place
    if not first.line:
        return [f"{' ' * gutter}{arrow} {_printable(file)}"]
    lines = [f"{' ' * gutter}{arrow} {_printable(file)}:{first.line}:{first.column}", empty]
    shown = 0
    for mark in sorted(marks, key=lambda mark: (mark.place.line, -mark.place.column)):
        place = mark.place
        text, start = _window(place)
        if place.line != shown:
            if shown and place.line > shown + 1:
                lines.append("...")
            lines.append(f"{place.line:>{gutter}} | {text}".rstrip())
            shown = place.line
        before, under = text[:start], text[start : start + place.length]
        signs = mark.sign * max(1, _width(under), place.length if not under else 0)
        lines.append(f"{empty} {' ' * _width(before)}{signs} {mark.label}".rstrip())
    return lines


def _window(place: Place) -> tuple[str, int]:
    """The part of a line that is shown, and where in it (from 0) the place starts."""
    text, start = _printable(place.text), max(0, place.column - 1)
    if len(text) <= SHOWN_COLUMNS:
        return text, start
    left = max(0, min(start - SHOWN_COLUMNS // 2, len(text) - SHOWN_COLUMNS))
    part = text[left : left + SHOWN_COLUMNS]
    lead = "..." if left else ""
    tail = "..." if left + SHOWN_COLUMNS < len(text) else ""
    return f"{lead}{part}{tail}", start - left + len(lead)


def _printable(text: str) -> str:
    """The text with one visible character for each character, so that columns stay and no terminal is commanded."""
    return "".join(" " if char == "\t" else char if char.isprintable() else "\ufffd" for char in text)


def _width(text: str) -> int:
    """Columns that a terminal uses for the text."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )

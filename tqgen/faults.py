"""What is wrong with a template, or with what the templates write: told with the template's file and line."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tqgen.diagnostics import Diagnostic, Place, SpecError, cut, did_you_mean

if TYPE_CHECKING:
    from jinja2 import Environment

    from tqgen.reached import Unknown

FOLDER = "templates/"
TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}")
FUNCTION = re.compile(r"def (\w+)\(")
NO_MACRO = re.compile(r"TemplateModule object' has no attribute '(\w+)'")
NO_ATTRIBUTE = re.compile(r"has no attribute '(\w+)'|'(\w+)' is undefined")
SHOWN = 100  # characters of a line in a message


class TemplateFault(SpecError):
    """A template that is missing or cannot be written out, or that writes no working Python."""


@dataclass(frozen=True)
class Written:
    """A module's text as templates write it: who wrote what. `macros` has the codec's template of each side."""

    environment: Environment
    macros: Mapping[str, str]

    def not_rendered(self, error: Exception) -> TemplateFault | None:
        """What to say where templates were not written out; None where no template is to blame."""
        from jinja2 import TemplateNotFound, TemplateSyntaxError

        if isinstance(error, TemplateNotFound):
            help = (
                "write it: docs/add-a-codec.md says what stands in it" if str(error.name).startswith("codecs/") else ""
            )
            return TemplateFault([Diagnostic("TQ6002", f"{FOLDER}{error.name} is missing", help=help)])
        if isinstance(error, TemplateSyntaxError):
            return TemplateFault(
                [Diagnostic("TQ6002", _phrase(str(error.message)), self._at(error.name, error.lineno))]
            )
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(".j2")]
        if not frames:
            return None
        name = frames[-1].filename.replace("\\", "/").rpartition(FOLDER)[2]
        line = frames[-1].lineno or 1
        missing = NO_MACRO.search(str(error))
        if missing and f"codec.{missing[1]}(" in self._line(name, line):
            return self._no_macro(missing[1])
        attribute = NO_ATTRIBUTE.search(str(error))
        word = (attribute[1] or attribute[2]) if attribute else ""
        message = f"the template cannot be written out: {_phrase(str(error))}"
        return TemplateFault([Diagnostic("TQ6002", message, self._at(name, line, word))])

    def no_python(self, text: str, why: str, line: int) -> TemplateFault:
        """What to say where the text is no Python; lines count from 1."""
        function, shown = _around(text, line)
        message = f"what the templates write{_of(function)} is no Python: {_phrase(why)} in `{cut(shown, SHOWN)}`"
        return TemplateFault([Diagnostic("TQ6003", message, self._writer(text, line, function))])

    def unknown_names(self, text: str, found: Sequence[Unknown]) -> TemplateFault:
        """What to say of names that nothing in the text defines."""
        return TemplateFault(self._unknown(text, one) for one in found)

    def _unknown(self, text: str, one: Unknown) -> Diagnostic:
        _, shown = _around(text, one.line)
        reader = f"`{one.reader}`" if one.reader else "the module"
        message = f"{reader} reads `{one.name}`, which nothing defines, in `{cut(shown, SHOWN)}`"
        close = did_you_mean(one.name, one.known)
        help = f"did you mean `{close}`?" if close else ""
        if not close and one.name.startswith("_"):
            help = "functions that macros may call are in templates/parts/"
        return Diagnostic("TQ6004", message, self._writer(text, one.line, one.reader, one.name), help=help)

    def _no_macro(self, macro: str) -> TemplateFault:
        """The codecs' templates that lack a macro."""
        from jinja2 import nodes

        found = []
        for name in dict.fromkeys(self.macros.values()):
            there = {node.name for node in self.environment.parse(self._source(name)).find_all(nodes.Macro)}
            if macro not in there:
                close = did_you_mean(macro, there)
                help = f"did you mean it by `{close}`?" if close else f"add `{{% macro {macro}(side) %}}`;"
                help += " docs/add-a-codec.md says what it writes"
                message = f"{FOLDER}{name} has no macro `{macro}`"
                found.append(Diagnostic("TQ6002", message, Place(f"{FOLDER}{name}"), help=help))
        return TemplateFault(found)

    def _source(self, name: str) -> str:
        assert self.environment.loader is not None
        return self.environment.loader.get_source(self.environment, name)[0]

    def _line(self, name: str, number: int) -> str:
        return dict(enumerate(self._source(name).splitlines(), 1)).get(number, "")

    def _at(self, name: str | None, number: int, word: str = "") -> Place:
        """A line of a template, and a word in it."""
        if name is None:
            return Place(FOLDER)
        line = self._line(name, number)
        found = re.search(rf"\b{re.escape(word)}\b", line) if word else None
        start, end = found.span() if found else (len(line) - len(line.lstrip()), len(line.rstrip()))
        return Place(f"{FOLDER}{name}", number, start + 1, max(1, end - start), line)

    def _writer(self, text: str, number: int, function: str, word: str = "") -> Place | None:
        """The line of a template that most likely wrote a line of the text: the one that has most of it."""
        lines = text.splitlines()
        head = next((line for line in lines if line.startswith(f"def {function}(")), "")
        names = self._templates(function)
        best = _most_alike(lines[number - 1], [one for name in names for one in self._lines(name)])
        if head and (start := _most_alike(head, [one for name in names for one in self._lines(name)])):
            # the same line may stand in several functions
            after = [one for one in self._lines(start[0]) if one[1] >= start[1]]
            best = _most_alike(lines[number - 1], after) or best
        return self._at(*best, word) if best else None

    def _templates(self, function: str) -> list[str]:
        """The templates that this module is of, the one of the side that a function is named after first."""
        own = [name for side, name in self.macros.items() if side in function.split("_")]
        rest = [name for name in self.environment.list_templates() if not name.startswith(("codecs/", "documents/"))]
        return list(dict.fromkeys([*own, *self.macros.values(), *rest]))

    def _lines(self, name: str) -> Iterator[tuple[str, int, str]]:
        for number, line in enumerate(self._source(name).splitlines(), 1):
            yield name, number, line.strip()


def _most_alike(line: str, candidates: Sequence[tuple[str, int, str]]) -> tuple[str, int] | None:
    """Where the first of those lines of templates stands that give this line, and have most of it as it is."""
    best, most = None, 0
    for name, number, text in candidates:
        pieces = TAG.split(text)
        size = sum(map(len, pieces))
        if size > most and re.fullmatch(".*".join(map(re.escape, pieces)), line.strip()):
            best, most = (name, number), size
    return best


def _around(text: str, number: int) -> tuple[str, str]:
    """The function that holds a line of the text, or nothing, and the line."""
    lines = text.splitlines()
    shown = lines[number - 1].strip() if number <= len(lines) else ""
    for line in reversed(lines[:number]):
        if found := FUNCTION.match(line):
            return found[1], shown
    return "", shown


def _of(function: str) -> str:
    return f" of `{function}`" if function else ""


def _phrase(message: str) -> str:
    """Somebody else's message as a part of one of ours."""
    message = " ".join(message.split()).rstrip(".").replace("'", "`")
    return message[:1].lower() + message[1:]

"""The events of the YAML parser, and its complaints in the words of a spec's author."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import Event

from tqgen.diagnostics import Diagnostic, Place, Related, SpecError
from tqgen.spec.hints import code_point
from tqgen.spec.source import Source


def events(source: Source) -> Iterator[Event]:
    """The parser's events; SpecError where it gives up."""
    try:
        yield from YAML(typ="safe", pure=True).parse(source.text)
    except MarkedYAMLError as error:
        raise SpecError([_trouble(source, error)]) from None
    except Exception as error:  # faults of the parser itself, as an OverflowError on the escape "\UFFFFFFFF"
        reason = str(error).splitlines()[0].lower() if str(error) else "the parser gave up"
        raise SpecError([Diagnostic("TQ1001", f"this is not YAML: {reason}", source.place(0))]) from None


_QUOTE = ("a quote is never closed", "close the quote")
_TAG = ("tags (`!...`) are not part of the spec language", "remove the tag")
_TROUBLE = {  # what the parser says: what tqgen says, and what helps
    "mapping values are not allowed": (
        "a `:` where no key can stand",
        "put quotes around text that holds `: `, or check the indentation",
    ),
    "expected <block end>": ("this line is indented like nothing above it", "indent it like the lines beside it"),
    "found unexpected end of stream": _QUOTE,
    "found unexpected document separator": _QUOTE,
    "could not find expected ':'": ("a key has no `:`", "write `key: value`"),
    "expected ',' or ']'": ("a list in brackets goes wrong here", "separate items by `,` and close it with `]`"),
    "expected ',' or '}'": ("a mapping in braces goes wrong here", "separate items by `,` and close it with `}`"),
    "expected the node content": ("a value is missing here", "close what was opened"),
    "expected '<document start>'": ("text after the end of the spec", "remove it, or indent it like a key"),
    "found unknown escape character": ("there is no such escape in double quotes", r"write a backslash as `\\`"),
    "found undefined tag handle": _TAG,
    "found undefined alias": ("aliases are not part of the spec language", "write the value out where it is used"),
}
_AT_ITS_START = ("found unexpected end of stream", "found unexpected document separator", "could not find expected ':'")
_KEY_WITHOUT_SPACE = re.compile(r"\s*(?:- )?[A-Za-z_][\w.-]*(:)[^\s:]")


def _trouble(source: Source, error: MarkedYAMLError) -> Diagnostic:
    """The parser's complaint in the words of the spec."""
    mark, opened = error.problem_mark or error.context_mark, error.context_mark
    index = mark.index if mark else 0
    problem = str(error.problem or "the parser gave up")
    place = source.place(index)
    char = source.text[index : index + 1]
    if "cannot start any token" in problem and char == "\t":
        if place.text[: place.column - 1].strip():
            return Diagnostic("TQ1004", "a tab cannot stand before a value", place, help="put a space there")
        return Diagnostic("TQ1004", "a tab cannot indent a line", place, help="indent with spaces")
    if "cannot start any token" in problem:
        shown = "a backquote" if char == "`" else f"`{char}`"
        return Diagnostic("TQ1001", f"a value cannot start with {shown}", place, help="put quotes around the value")
    if "incompatible YAML document" in problem:
        return Diagnostic("TQ1013", "specs are YAML 1.2", source.find("%YAML"), help="remove the `%YAML` line")
    if "mapping values are not allowed" in problem and (better := _misplaced_key(source, place)):
        return better
    if "expected <block end>" in problem and place.text[: place.column - 1].strip():
        help = "remove it, or put quotes around the whole value; in single quotes a quote is written twice"
        return Diagnostic("TQ1001", "a value ends before this", place, help=help)
    if odd := _odd_space(source, place, opened.index if opened else index):
        return odd
    said = next((said for said in _TROUBLE if said in problem), "")
    message, help = _TROUBLE.get(said, (f"this is not YAML: {problem.splitlines()[0]}".replace("'", "`"), ""))
    if "tag" in str(error.context):
        message, help = _TAG
    related: tuple[Related, ...] = ()
    if opened and opened.index != index:
        start = source.place(opened.index)
        if said == "could not find expected ':'" and (glued := _glued_key(start)):
            return glued
        if said in _AT_ITS_START:
            place = start
        elif message.endswith("goes wrong here") and start.line < place.line:
            message = message.replace("goes wrong here", "is never closed")
            place, related = start, (Related(place, "this is still read as a part of it"),)
        elif message.endswith("goes wrong here"):
            related = (Related(start, "opened here"),)
    return Diagnostic("TQ1001", message, place, help=help, related=related)


def _odd_space(source: Source, *at: Place | int) -> Diagnostic | None:
    """A character that looks like a space, or like nothing, in the lines where the parser stopped."""
    for place in (one if isinstance(one, Place) else source.place(one) for one in at):
        for column, char in enumerate(place.text, start=1):
            if char != " " and unicodedata.category(char) in ("Zs", "Cf"):
                here = Place(place.file, place.line, column, 1, place.text)
                message = f"character {code_point(char)} looks like a space or like nothing, and is neither"
                return Diagnostic("TQ1001", message, here, help="put a plain space there, or remove it")
    return None


def _glued_key(line: Place) -> Diagnostic | None:
    found = _KEY_WITHOUT_SPACE.match(line.text)
    if not found:
        return None
    colon = Place(line.file, line.line, found.start(1) + 1, 1, line.text)
    return Diagnostic("TQ1001", "there is no space between a key and its value", colon, help="write `key: value`")


def _misplaced_key(source: Source, place: Place) -> Diagnostic | None:
    """What is wrong with a `:`, where the lines above tell: a key is glued to its value, or has a value already."""
    above = source.line_above(place.line)
    if above and (glued := _glued_key(above)):
        return glued
    before = place.text[: place.column - 1]
    if not above or not re.fullmatch(r" *(?:- )?[\w.-]+", before):
        return None
    indent, indent_above = (len(text) - len(text.lstrip(" ")) for text in (before, above.text))
    if indent <= indent_above or ": " not in above.text:
        return None
    start = Place(place.file, place.line, indent + 1, place.column - indent - 1, place.text)
    related = (Related(above, "this has a value already"),)
    help = "indent it like the lines beside it, or remove the value above it"
    return Diagnostic("TQ1001", "this is indented like a part of the line above it", start, help=help, related=related)

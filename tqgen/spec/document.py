"""From the text of a spec to plain data, with the place of every key and every value.

YAML 1.2 in a strict dialect: one document, a mapping at the top, each key once; no anchors, aliases or tags. Whatever
the input is, the outcome is a `Document` or a `SpecError`. The parser's events are read one by one and without
recursion, so that deep nesting is a diagnostic and not an exhausted stack.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ruamel.yaml import events as yaml

from tqgen.diagnostics import Diagnostic, Place, Related, SpecError
from tqgen.spec import scalars
from tqgen.spec.events import events
from tqgen.spec.source import Source, check_text, unprintable

NodePath = tuple[str | int, ...]  # ("block", "regions", 0, "name")

DEEPEST = 16  # levels of nesting; a spec has six


@dataclass
class Document:
    """What a text says: plain data, and places by the path of keys and indices that leads to them."""

    file: str
    data: Any
    values: dict[NodePath, Place]
    keys: dict[NodePath, Place]
    written: dict[NodePath, str]  # scalars without quotes, as they are written

    def place(self, path: NodePath, on: Literal["key", "value"] = "value") -> Place:
        """Where `path` is written; the nearest key or item above it where it is not written at all."""
        if on == "value" and path in self.values:
            return self.values[path]
        for end in range(len(path), -1, -1):
            if path[:end] in self.keys:
                return self.keys[path[:end]]
            if path[:end] in self.values:
                return self.values[path[:end]]
        return Place(self.file)

    def replaced(self, path: NodePath, other: Document, key_place: Place) -> Document:
        """A document in which `other` stands at `path`, of which every step but the last must be in the data."""

        def merged(mine: Mapping[NodePath, Any], theirs: Mapping[NodePath, Any]) -> dict[NodePath, Any]:
            kept = {at: value for at, value in mine.items() if at[: len(path)] != path}
            return {**kept, **{(*path, *at): value for at, value in theirs.items()}}

        return Document(
            self.file,
            _with(self.data, path, other.data),
            merged(self.values, other.values),
            {**merged(self.keys, other.keys), path: key_place},
            merged(self.written, other.written),
        )


def dotted(path: NodePath) -> str:
    """A path as a person writes it: `block.regions[0].name`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _with(data: Any, path: NodePath, value: Any) -> Any:
    """A copy of nested data with the value at the path replaced or added."""
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    step: Any = path[0]
    inner = copy.get(step) if isinstance(copy, dict) else copy[step]
    copy[step] = _with(inner, path[1:], value)
    return copy


def parse(source: Source) -> Document:
    """The one YAML value in a text, of any kind; SpecError with all problems of the text."""
    check_text(source)
    builder = _Builder(source)
    try:
        for event in events(source):
            builder.take(event)
    except SpecError as error:
        raise SpecError([*builder.problems, *error.diagnostics]) from None
    if builder.problems:
        raise SpecError(builder.problems)
    return builder.document


def parse_mapping(source: Source) -> Document:
    """As `parse`, for a text that must be a mapping of keys: a whole spec."""
    document = parse(source)
    if document.data is None:
        help = "`tqgen new NAME` writes a spec to start from"
        raise SpecError([Diagnostic("TQ1005", "the spec is empty", source.place(0), help=help)])
    if not isinstance(document.data, dict):
        found = "a list" if isinstance(document.data, list) else "a single value"
        message = f"a spec is a mapping of keys, but this is {found}"
        raise SpecError([Diagnostic("TQ1006", message, document.place(()), help="start with `tqgen: 1`")])
    return document


@dataclass
class _Open:
    """A collection whose end has not been seen."""

    path: NodePath
    data: dict[str, Any] | list[Any]
    start: int
    is_flow: bool
    key: str | None = None  # of a mapping: the key whose value comes next
    is_key: bool = False  # it stands where a key should
    places: list[Place] = field(default_factory=list)  # of what it holds

    @property
    def wants_key(self) -> bool:
        return isinstance(self.data, dict) and self.key is None


class _Builder:
    """Takes the events of one text and grows its document."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.document = Document(source.file, None, {}, {}, {})
        self.problems: list[Diagnostic] = []
        self.stack: list[_Open] = []
        self.documents = 0

    def report(self, code: str, message: str, place: Place, help: str = "", related: tuple[Related, ...] = ()) -> None:
        self.problems.append(Diagnostic(code, message, place, help=help, related=related))

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._start_document(event)
        elif isinstance(event, yaml.AliasEvent):
            place = self.source.place(event.start_mark.index, event.end_mark.index)
            help = "write the value out where it is used"
            self.report("TQ1009", f"alias `*{event.anchor}` is not part of the spec language", place, help)
            self._put("", place) if self._wants_key() else self._add(None, place, None)
        elif isinstance(event, yaml.ScalarEvent):
            self._refuse_properties(event)
            self._scalar(event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._refuse_properties(event)
            self._open({} if isinstance(event, yaml.MappingStartEvent) else [], event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._close(event)

    def _start_document(self, event: yaml.DocumentStartEvent) -> None:
        self.documents += 1
        if self.documents > 1:
            place = self.source.place(event.start_mark.index, event.end_mark.index)
            help = "put each spec in a file of its own"
            raise SpecError([Diagnostic("TQ1008", "a second document starts here", place, help=help)])
        if event.version and tuple(event.version) != (1, 2):
            version = ".".join(map(str, event.version))
            message = f"specs are YAML 1.2, but this asks for {version}"
            self.report("TQ1013", message, self.source.find("%YAML"), "remove the `%YAML` line")

    def _refuse_properties(self, event: Any) -> None:
        """Anchors and tags, which stand before a value."""
        place = self.source.place(event.start_mark.index)
        if event.anchor is not None:
            self.report("TQ1009", f"anchor `&{event.anchor}` is not part of the spec language", place, "remove it")
        if event.tag is not None:
            self.report("TQ1009", "tags (`!...`) are not part of the spec language", place, "remove the tag")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        text: str = event.value
        place = self.source.place(event.start_mark.index, event.end_mark.index)
        if stray := unprintable(text):
            self.report("TQ1003", f"character U+{ord(stray):04X} is not text", place, "remove it")
        is_plain = not event.style
        if self._wants_key():
            if is_plain and text == "<<":
                help = "write what it brings out where it is used"
                self.report("TQ1009", "the merge key `<<` is not part of the spec language", place, help)
            self._put(text, place)
            return
        if is_plain and scalars.has_leading_zero(text):
            self._refuse_leading_zero(text, place)
        self._add(scalars.resolve(text) if is_plain else text, place, text if is_plain else None)

    def _refuse_leading_zero(self, text: str, place: Place) -> None:
        digits = text.lstrip("+-").replace("_", "").lstrip("0") or "0"
        octal = f", or 0o{digits} if octal is meant" if re.fullmatch("[0-7]+", digits) else ""
        message = f"a leading zero gives `{text}` another meaning in YAML 1.1"
        self.report("TQ1012", message, place, f"write {digits}{octal}")

    def _wants_key(self) -> bool:
        return bool(self.stack) and self.stack[-1].wants_key

    def _put(self, key: str, place: Place) -> None:
        """Note the key whose value comes next."""
        top = self.stack[-1]
        first = self.document.keys.setdefault((*top.path, key), place)
        if first is not place and not top.is_key:
            related = (Related(first, "first written here"),)
            self.report("TQ1007", f"key `{key}` is written twice", place, "remove one of the two", related)
        top.places.append(place)
        top.key = key

    def _next_path(self) -> NodePath:
        if not self.stack:
            return ()
        top = self.stack[-1]
        return (*top.path, len(top.data) if isinstance(top.data, list) else top.key or "")

    def _add(self, value: Any, place: Place, written: str | None) -> None:
        """Put a finished value into the collection that is open."""
        path = self._next_path()
        self.document.values[path] = place
        if written is not None:
            self.document.written[path] = written
        if not self.stack:
            self.document.data = value
            return
        top = self.stack[-1]
        top.places.append(place)
        if isinstance(top.data, list):
            top.data.append(value)
        elif top.key is not None:
            top.data[top.key], top.key = value, None

    def _open(self, data: dict[str, Any] | list[Any], event: Any) -> None:
        start = event.start_mark.index
        if len(self.stack) >= DEEPEST:
            message = f"a spec has at most {DEEPEST} levels of nesting"
            raise SpecError([Diagnostic("TQ1011", message, self.source.place(start))])
        is_key = self._wants_key()
        if is_key:
            help = "write one word before the `:`"
            self.report("TQ1010", "a key must be a word, not a collection", self.source.place(start), help)
        self.stack.append(_Open(self._next_path(), data, start, bool(event.flow_style), is_key=is_key))

    def _close(self, event: Any) -> None:
        done = self.stack.pop()
        if done.is_key:
            self.stack[-1].key = ""
        elif done.is_flow:
            self._add(done.data, self.source.place(done.start, event.end_mark.index), None)
        else:
            self._add(done.data, self._first_line(done), None)

    def _first_line(self, done: _Open) -> Place:
        """The place of a collection in block style: what it holds on its first line."""
        start = self.source.place(done.start)
        ends = [held.column + held.length for held in done.places if held.line == start.line]
        length = max(ends, default=start.column + 1) - start.column
        return Place(start.file, start.line, start.column, max(1, length), start.text)

"""What pydantic finds wrong with a spec, in the words of the spec and at its place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

from annotated_types import Ge, Le
from pydantic import ValidationError

from tqgen.codecs import CODECS
from tqgen.codecs.base import Stored
from tqgen.diagnostics import Diagnostic, cut, did_you_mean, listed
from tqgen.numerics.literals import plain
from tqgen.spec import hints, scalars
from tqgen.spec.document import Document, NodePath, dotted
from tqgen.spec.expand import SIDES
from tqgen.spec.locations import choices_of, is_tag, model_and_field, model_in
from tqgen.spec.models import MAX_HEAD_DIM, MAX_NAME, Entry, Reserve
from tqgen.spec.overrides import OPTION
from tqgen.spec.taken import free_name

SHORTHANDS = ("aos", "soa")
_WANTED = {  # pydantic's type of problem: what should stand there
    "int": "a whole number",
    "float": "a number",
    "bool": "`true` or `false`",
    "string": "text",
    "tuple": "a list",
    "model": "a mapping of keys",
}


def empty_values(document: Document) -> list[Diagnostic]:
    """Keys and items without a value, and numbers that are not finite: no place of a spec has either."""
    found = []

    def visit(data: Any, path: NodePath) -> None:
        if data is None:
            message = f"`{dotted(path)}` has no value"
            found.append(Diagnostic("TQ2006", message, document.place(path, "key"), help="give it one, or remove it"))
        elif _has_no_value(data):
            message = f"`{dotted(path)}` must be a finite number"
            found.append(Diagnostic("TQ2005", message, document.place(path), help="write a number, or remove it"))
        elif isinstance(data, dict):
            for key, value in data.items():
                visit(value, (*path, key))
        elif isinstance(data, list):
            for index, value in enumerate(data):
                visit(value, (*path, index))

    visit(document.data, ())
    return found


def translate(error: ValidationError, document: Document) -> Iterator[Diagnostic]:
    """The problems of a validation as diagnostics.

    Those that `empty_values` reports are left out, and missing keys that are there with a misspelling.
    """
    problems = [(problem, problem.diagnostic()) for problem in _problems(error, document)]
    misspelt = {(problem.path[:-1], problem.suggested) for problem, _ in problems if problem.suggested}
    for problem, diagnostic in problems:
        parent = problem.path[:-1]
        if problem.type == "missing" and {(parent, problem.path[-1]), (parent, "reserved")} & misspelt:
            continue
        yield diagnostic


def _problems(error: ValidationError, document: Document) -> Iterator[_Problem]:
    for problem in error.errors(include_url=False):
        location = problem["loc"]
        path = tuple(step for step in location[:-1] if not is_tag(step))
        if location and (problem["type"] == "extra_forbidden" or not is_tag(location[-1])):
            path = (*path, location[-1])
        found = _at(document.data, path)
        if problem["type"] != "missing" and _has_no_value(found):
            continue
        if problem["type"] == "too_short" and found:  # its items are wrong, and are reported one by one
            continue
        if (
            problem["type"] == "union_tag_not_found"
            and isinstance(found, dict)
            and _has_no_value(found.get("codec", 0))
        ):
            continue
        yield _Problem(problem, location, path, document)


def _has_no_value(found: Any) -> bool:
    return found is None or (isinstance(found, float) and not math.isfinite(found))


def _at(data: Any, path: NodePath) -> Any:
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


class _Problem:
    """One problem of a validation, and what the models say about its place."""

    def __init__(self, problem: Any, location: NodePath, path: NodePath, document: Document) -> None:
        self.type: str = problem["type"]
        self.context: dict[str, Any] = problem.get("ctx", {})
        self.fallback: str = problem["msg"]
        self.path, self.document = path, document
        self.name = dotted(path)
        self.found = _at(document.data, path)
        self.suggested: str | None = None  # the key that an unknown one was probably meant to be
        self.model, self.info = model_and_field(location)

    def diagnostic(self) -> Diagnostic:
        special: Callable[[], Diagnostic] | None = getattr(self, f"_{self.type}", None)
        if special:
            return special()
        kind = self.type.split("_")[0]
        if self.type.endswith(("_type", "_from_float")) and kind in _WANTED:
            return self._wrong_type(_WANTED[kind])
        if self.type in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
            return self._out_of_range()
        return self._make("TQ2003", f"`{self.name}` is not right: {self.fallback.lower()}")

    def _make(
        self, code: str, message: str, help: str = "", label: str = "", on: Literal["key", "value"] = "value"
    ) -> Diagnostic:
        odd = hints.strange(self.path[-1] if on == "key" and self.path else self.found)
        if odd and not label and self.path != ("doc",):
            label = f"it holds {odd}"
        return Diagnostic(code, message, self.document.place(self.path, on), label, help)

    # One method for each of pydantic's types of problem, by its name.

    def _missing(self) -> Diagnostic:
        parent, key = self.path[:-1], self.path[-1]
        where = f"`{dotted(parent)}`" if parent else "the spec"
        about = f": {self.info.description}" if self.info and self.info.description else ""
        place = self.document.place(parent, "key")
        key = key if self.path != ("tqgen",) else "tqgen: 1"
        return Diagnostic("TQ2001", f"`{self.path[-1]}` is missing in {where}", place, help=f"add `{key}`{about}")

    def _extra_forbidden(self) -> Diagnostic:
        parent, key = self.path[:-1], str(self.path[-1])
        where = f"`{dotted(parent)}`" if parent else "the spec"
        known = list(self.model.model_fields) if self.model else []
        present = _at(self.document.data, parent)
        if self.model is Entry and "field" not in present:  # told apart by the one key that is wrong here
            known = list(dict.fromkeys((*Entry.model_fields, *Reserve.model_fields)))
        label = ""
        sides = [] if parent else self._sides_with(key)
        close = None if sides else hints.meant(key, known)
        if close and close in present:
            # a key of the command line stands for what the file has, one of the file stands beside it
            places = [self.document.place((*parent, one), "key") for one in (key, close)]
            other = places[0].file != places[1].file
            path = dotted((*parent, close))
            help = f"did you mean `{path}`?" if other else f"`{close}` is there already: remove one of the two"
        elif self.model is Entry and key == "axis":
            help, self.suggested = (
                "`axis` is for `order`; a field is written as `{field: key.codes, align: 16}`",
                "field",
            )
        elif sides:
            is_option = self.document.place(self.path, "key").file == OPTION
            paths = listed([f"{side}.{key}" for side in sides])
            help = f"did you mean {paths}?" if is_option else f"write it under {listed(sides)}"
        elif close:
            help, self.suggested = f"did you mean `{close}`?", close
        elif parent == ("block",) and key in SHORTHANDS:
            help, self.suggested = f"write `block: {key}`", "regions"
        else:
            help = f"the keys here are {listed(known, 'and')}"
        if len(parent) == 1 and parent[0] in ("key", "value"):
            owners = [name for name, other in CODECS.items() if key in other.Parameters.model_fields]
            if owners:
                label = f"a key of codec{'s' * (len(owners) > 1)} {listed(owners, 'and')}"
                help, self.suggested = f"remove it, or choose codec {listed(owners)}", None
        return self._make("TQ2002", f"unknown key `{key}` in {where}", help, label, on="key")

    def _sides_with(self, key: str) -> list[str]:
        """The sides whose codecs have this key, which stands outside of them."""
        codecs = {side: _at(self.document.data, (side, "codec")) for side in SIDES}
        known = {side: CODECS.get(codec) for side, codec in codecs.items() if isinstance(codec, str)}
        return [side for side, codec in known.items() if codec and key in codec.Parameters.model_fields]

    def _literal_error(self) -> Diagnostic:
        choices = [str(choice) for choice in choices_of(self.info)] or ["token", "head", "field"]
        if self.path != ("block",):
            return self._choose(choices)
        choices = list(SHORTHANDS)
        return self._choose(
            choices,
            f"{', '.join(f'`{one}`' for one in choices)} or a mapping with `regions`",
            hints.for_arrangement(self.found),
        )

    def _choose(self, choices: list[str], wanted: str = "", help: str = "") -> Diagnostic:
        wanted = wanted or listed(choices)
        if not isinstance(self.found, str):
            return self._wrong_type(wanted)
        message = f"`{self.name}` is `{cut(self.found)}`, but must be {wanted}"
        close = hints.meant(self.found, choices)
        help = f"did you mean `{close}`?" if close else help or hints.for_words(self.found, choices)
        if "token" in choices and self.found in hints.NO_AXES:
            help = "an axis is one of a block's own; blocks, layers and sequences are apart"
        if "hadamard" in choices and scalars.meant_as_bool(self.found) is not None:
            word = "none" if not scalars.meant_as_bool(self.found) else "hadamard"
            help = f"say which, as `rotation: {word}`"
        return self._make("TQ2004", message, help)

    def _version(self) -> Diagnostic:
        if type(self.found) is not int:
            return self._wrong_type("a whole number, the version of the spec language")
        message = f"version {self._written()} of the spec language is not known"
        return self._make("TQ2010", message, "this compiler reads `tqgen: 1`")

    def _union_tag_not_found(self) -> Diagnostic:
        if len(self.path) == 1 and isinstance(self.found, dict):
            if "codec" not in self.found:
                return self._codec_missing(self.found)
            self.path, self.found = (*self.path, "codec"), self.found["codec"]
            self.name = dotted(self.path)
            return self._choose(list(CODECS))
        return self._wrong_type(self._wanted_of_union())

    _union_tag_invalid = _union_tag_not_found

    def _codec_missing(self, found: dict[str, Any]) -> Diagnostic:
        message = f"`codec` is missing in `{self.name}`"
        help = f"add `codec`: {listed(list(CODECS))}"
        for key in found:
            if key.split()[:1] == ["codec"] and len(key.split()) == 2:
                help = f"write `codec: {key.split()[1]}`"
            elif did_you_mean(key, ["codec"]):
                odd = hints.strange(key)
                help = f"did you mean `codec` by `{cut(key)}`{f', which holds {odd}' if odd else ''}?"
        return self._make("TQ2001", message, help, on="key")

    def _wanted_of_union(self) -> str:
        if self.path == ("block",):
            return "`aos`, `soa` or a mapping with `regions`"
        if "order" in self.path:
            return "`token`, `head`, `field` or `{axis: head, align: 16}`"
        if "fields" in self.path:
            return "the name of a part, `{field: key.codes, align: 16}` or `{reserved: 16}`"
        return hints.CODEC

    def _too_short(self) -> Diagnostic:
        return self._make("TQ2005", f"`{self.name}` is an empty list", "give it at least one item")

    def _power_of_two(self) -> Diagnostic:
        number = self.found
        help = f"use {1 << (number.bit_length() - 1)} or {1 << number.bit_length()}"
        return self._make("TQ2009", f"`{self.name}` is {number}, but must be a power of two", help)

    def _identifier(self) -> Diagnostic:
        message = f"`{self.name}` is `{cut(self.found)}`, which is not a Python identifier"
        return self._make("TQ2007", message, "use letters, digits and `_`, no digit first, and no keyword of Python")

    def _module_name(self) -> Diagnostic:
        message = f"a module called `{self.found}` would hide another"
        return self._make("TQ2007", message, f"choose another name, as `{free_name(self.found)}`")

    def _long_name(self) -> Diagnostic:
        message = f"`{self.name}` has {len(self.found)} characters, and may have {MAX_NAME}"
        return self._make("TQ2007", message, "choose a shorter name")

    def _side_head_dim(self) -> Diagnostic:
        self.path = (*self.path, "head_dim")
        self.name, self.found = dotted(self.path), _at(self.document.data, self.path)
        return self._range_message(f"1..{MAX_HEAD_DIM}", 1, MAX_HEAD_DIM)

    def _out_of_range(self) -> Diagnostic:
        metadata = self.info.metadata if self.info else []
        low = next((item.ge for item in metadata if isinstance(item, Ge)), None)
        high = next((item.le for item in metadata if isinstance(item, Le)), None)
        low = self.context.get("ge", low)
        high = self.context.get("le", high)
        if low is not None and high is not None:
            return self._range_message(f"{plain(low)}..{plain(high)}", low, high)
        return self._range_message(f"at least {low}" if high is None else f"at most {high}", low, high)

    def _range_message(self, wanted: str, low: float | None, high: float | None) -> Diagnostic:
        if low is not None and self.found < low:
            help = f"use {plain(low)} or more"
        else:
            help = "" if high is None else f"use {plain(high)} or less"
        return self._make("TQ2005", f"`{self.name}` is {self._written()}, but must be {wanted}", help)

    def _written(self) -> str:
        return cut(self.document.written.get(self.path, str(self.found)))

    def _wrong_type(self, wanted: str) -> Diagnostic:
        """A value of another kind than `wanted`, with a hint where another YAML would have read it differently."""
        if wanted == _WANTED["model"] and self.info and model_in(self.info.annotation) is Stored:
            wanted = "a mapping as `{dtype: fp16}`"
        word = self.document.written.get(self.path)
        if isinstance(self.found, str) and word is not None:
            meant: Any = scalars.meant_as_bool(word) if "true" in wanted else None
            if "number" in wanted:
                meant = scalars.meant_as_number(word)
            if meant is not None:
                shown = str(meant).lower()
                message = f"`{self.name}` is the text `{cut(word)}`, but must be {wanted}"
                return self._make("TQ2011", message, f"YAML 1.1 reads {shown} here, YAML 1.2 does not: write `{shown}`")
        return self._make("TQ2003", f"`{self.name}` is {self._described()}, but must be {wanted}", self._hint(wanted))

    def _described(self) -> str:
        if isinstance(self.found, bool):
            return f"`{str(self.found).lower()}`"
        if isinstance(self.found, (int, float)):
            return f"the number {self._written()}"
        if isinstance(self.found, str):
            return f"the text `{cut(self.found)}`"
        return "a list" if isinstance(self.found, list) else "a mapping"

    def _hint(self, wanted: str) -> str:
        if wanted == "text" and self.path == ("doc",):
            return "put it in quotes"
        hint = hints.for_value(self.found, wanted, is_plain=self.path in self.document.written)
        if not hint and wanted == _WANTED["int"] and self.info and self.info.description:
            hint = f"write a number: {self.info.description}"
        return hint

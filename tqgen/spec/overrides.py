"""Values from the command line in place of what a spec file says: `--set head_dim=64`, `--set key.bits=3`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tqgen.diagnostics import Diagnostic, Place, SpecError
from tqgen.spec.document import Document, NodePath, dotted, parse
from tqgen.spec.source import Source

OPTION = "--set"  # stands for the file in diagnostics; each option is a text of its own


def apply_overrides(document: Document, overrides: Mapping[str, str]) -> tuple[Document, list[Diagnostic]]:
    """The document with the values of the options in it, and what is wrong with the options.

    `overrides` maps paths of keys with dots between them to YAML text. `head_dim` adds `_d<head_dim>` to the name,
    unless an option gives the name. Anything else describes another layout, which must get a name of its own. What the
    spec says of its layout may be true of it no more: `doc` says instead what was changed, unless an option gives it.
    """
    problems: list[Diagnostic] = []
    name = document.data.get("name")
    for option, text in overrides.items():
        try:
            document = _set(document, option, text)
        except SpecError as error:
            problems += error.diagnostics
    changes = [f"{option}={text}" for option, text in overrides.items() if option != "name"]
    if changes and "doc" not in overrides and not problems:
        document.data = {**document.data, "doc": f"{name} with {', '.join(changes)}."}
    if "name" in overrides:
        return document, problems
    problems += [_unnamed(option, text, name) for option, text in overrides.items() if option != "head_dim"]
    head_dim = document.data.get("head_dim")
    if "head_dim" in overrides and isinstance(name, str) and type(head_dim) is int and head_dim > 0:
        document.data = {**document.data, "name": f"{name}_d{head_dim}"}
    return document, problems


def without_doubles(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Without the wish for a name of those that an option which is wrong itself would make."""
    wrong = {found.place.text for found in problems if found.code != "TQ4004" and found.place and found.file == OPTION}
    return [found for found in problems if not (found.code == "TQ4004" and found.place and found.place.text in wrong)]


def _place(option: str, text: str) -> Place:
    """Where an option names its path."""
    return Source(OPTION, f"{option}={text}").place(0, len(option))


def _set(document: Document, option: str, text: str) -> Document:
    value = parse(Source(OPTION, text, prefix=f"{option}="))
    place = _place(option, text)
    steps = option.split(".")
    if not all(steps):
        help = "write a path of keys with dots between them, as `key.bits=3`"
        raise SpecError([Diagnostic("TQ4002", f"`{option}` is not a path of keys", place, help=help)])
    path: NodePath = ()
    data: Any = document.data
    for index, step in enumerate(steps):
        if isinstance(data, list) and step in map(str, range(len(data))):
            path = (*path, int(step))
            data = data[int(step)]
        elif isinstance(data, dict):
            path = (*path, step)
            if step not in data and index < len(steps) - 1:
                document = document.replaced(path, Document(OPTION, {}, {(): place}, {}, {}), place)
            data = data.get(step, {})
        else:
            raise SpecError([_no_way(path, data, step, place)])
    return document.replaced(path, value, place)


def _no_way(path: NodePath, data: Any, step: str, place: Place) -> Diagnostic:
    if isinstance(data, list):
        message = f"`{step}` is not an item of `{dotted(path)}`, which has {len(data)}"
        return Diagnostic("TQ4003", message, place, help="items count from 0")
    message = f"`{dotted(path)}` is not a mapping, and has no `{step}`"
    return Diagnostic("TQ4003", message, place, help=f"set the whole of `{dotted(path)}`")


def _unnamed(option: str, text: str, name: Any) -> Diagnostic:
    message = f"`{option}` makes another layout, which needs a name of its own"
    example = f"{name}_mine" if isinstance(name, str) else "mine"
    return Diagnostic("TQ4004", message, _place(option, text), help=f"add `--set name={example}`")

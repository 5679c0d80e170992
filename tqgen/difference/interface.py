"""What generated modules say by their text, and what differs between their functions: nothing is imported or run."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tqgen.difference import Category, Change

_LAYOUT = re.compile(r"^# layout: ([0-9a-f]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Signature:
    """The parameters of a function: names, and defaults as source where there are some."""

    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    defaults: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        defaults = dict(self.defaults)
        written = [name if name not in defaults else f"{name}={defaults[name]}" for name in self.positional]
        if self.keyword_only:
            written.append("*")
        written += [name if name not in defaults else f"{name}={defaults[name]}" for name in self.keyword_only]
        return f"({', '.join(written)})"

    def serves(self, old: Signature) -> bool:
        """Whether every call that `old` takes means the same here."""
        defaults, old_defaults = dict(self.defaults), dict(old.defaults)
        names = (*self.positional, *self.keyword_only)
        return (
            self.positional[: len(old.positional)] == old.positional
            and all(name in names for name in old.keyword_only)
            and all(defaults.get(name) == default for name, default in old_defaults.items())
            and all(name in defaults for name in names if name not in (*old.positional, *old.keyword_only))
        )


Interface = Mapping[str, Signature]


def recorded_id(source: str) -> str | None:
    """The `layout_id` in the head of a module; None where there is none."""
    found = _LAYOUT.search(source)
    return found.group(1) if found else None


def interface_of(source: str) -> Interface:
    """The public functions of a module; ValueError where its text is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("not a Python module") from error
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return {node.name: _signature(node.args) for node in functions if not node.name.startswith("_")}


def _signature(arguments: ast.arguments) -> Signature:
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    keyword_only = [argument.arg for argument in arguments.kwonlyargs]
    with_default = positional[len(positional) - len(arguments.defaults) :]
    defaults = list(zip(with_default, arguments.defaults, strict=True))
    defaults += [
        (name, default)
        for name, default in zip(keyword_only, arguments.kw_defaults, strict=True)
        if default is not None
    ]
    written = tuple((name, ast.unparse(default)) for name, default in defaults)
    return Signature(tuple(positional), tuple(keyword_only), written)


def interface_changes(old: Interface, new: Interface) -> list[Change]:
    """Functions that came, went, or take other arguments."""
    changes = []
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        if before != after:
            breaks = before is not None and (after is None or not after.serves(before))
            texts = (str(before) if before else None, str(after) if after else None)
            changes.append(Change(Category.API, name, *texts, breaks=breaks))
    return changes

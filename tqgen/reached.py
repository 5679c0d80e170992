"""What is reached of a module: templates write every shared function, and those that nothing calls are left out."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

# Where a function or class begins with its decorators. A line of a text may look like one.
BEGINNING = re.compile(r"^(?:@.*\n)*(?:def|class) ", re.MULTILINE)


class UnknownName(Exception):
    """A private name that is read and that nothing defines."""


@dataclass(frozen=True)
class Statement:
    """A statement of a module: its lines from 0 on with decorators, and names."""

    first: int
    end: int
    is_private: bool  # a function that is there only for others to call
    defines: frozenset[str]
    reads: frozenset[str]
    asks: frozenset[str]  # private names that it reads and does not bind itself


def without_unreached(text: str) -> str:
    """The module without private functions that nothing else calls, and what these alone call.

    Comments right above a function go with it. SyntaxError where the text is no Python.
    """
    statements = _statements(text)
    owners = {name: one for one in statements for name in one.defines}
    waiting = [one for one in statements if not one.is_private]
    kept = set(waiting)
    while waiting:
        one = waiting.pop()
        if unknown := sorted(one.asks - owners.keys()):
            where = ", ".join(sorted(one.defines)) or "the module"
            raise UnknownName(f"`{unknown[0]}` of `{where}` is defined nowhere")
        found = {owners[name] for name in one.reads & owners.keys()} - kept
        kept |= found
        waiting += found
    lines = text.split("\n")
    for one in reversed(statements):
        if one not in kept:
            first, end = one.first, one.end
            while first and lines[first - 1].startswith("#"):
                first -= 1
            while end < len(lines) and not lines[end].strip():
                end += 1
            del lines[first:end]
    return "\n".join(lines).rstrip() + "\n"


def _statements(text: str) -> list[Statement]:
    """All statements in order. A module is read in pieces, since most of them are those of other modules, too."""
    starts = [0, *(found.start() for found in BEGINNING.finditer(text)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(starts)]
    try:
        return _placed(pieces)
    except SyntaxError:  # one of them ends inside of a text
        return _placed([text])


def _placed(pieces: list[str]) -> list[Statement]:
    found, line = [], 0
    for piece in pieces:
        for one in _statements_of(piece):
            found.append(Statement(line + one.first, line + one.end, one.is_private, one.defines, one.reads, one.asks))
        line += piece.count("\n")
    return found


@lru_cache(maxsize=4096)
def _statements_of(piece: str) -> tuple[Statement, ...]:
    """The statements of a piece of a module, as if it were all."""
    found = []
    for node in ast.parse(piece).body:
        names = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name)]
        reads = {name.id for name in names if isinstance(name.ctx, ast.Load)}
        bound = {name.id for name in names if not isinstance(name.ctx, ast.Load)}
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        defines = {node.name} if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else bound
        own = bound | {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
        asks = {name for name in reads - own if name.startswith("_") and not name.startswith("__")}
        is_private = isinstance(node, ast.FunctionDef) and node.name.startswith("_")
        found.append(
            Statement(first - 1, node.end_lineno or first, is_private, *map(frozenset, (defines, reads, asks)))
        )
    return tuple(found)

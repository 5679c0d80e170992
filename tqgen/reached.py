"""What is reached of a module: templates write every shared function, and those that nothing calls are left out."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

# Where a function or class begins with its decorators. A line of a text may look like one.
BEGINNING = re.compile(r"^(?:@.*\n)*(?:def|class) ", re.MULTILINE)
KNOWN = {*dir(builtins), "__file__", "__name__"}  # names that every module has


@dataclass(frozen=True, order=True)
class Unknown:
    """A name that is read and that nothing defines."""

    line: int  # of the text, from 1 on
    name: str
    reader: str  # the function that reads it; nothing where the module itself does
    known: tuple[str, ...]  # what it may have been meant to be


class UnknownNames(Exception):
    """Names that are read and that nothing defines."""

    def __init__(self, found: Sequence[Unknown]) -> None:
        self.found = tuple(found)
        super().__init__(", ".join(f"`{one.name}` of `{one.reader or 'the module'}`" for one in found))


@dataclass(frozen=True)
class Statement:
    """A statement of a module: its lines from 0 on with decorators, and names."""

    first: int
    end: int
    is_private: bool  # a function that is there only for others to call
    defines: frozenset[str]
    reads: frozenset[str]
    binds: frozenset[str]  # anywhere in it


def without_unreached(text: str) -> str:
    """The module without private functions that nothing else calls, and what these alone call.

    Comments right above a function go with it. SyntaxError where the text is no Python, and UnknownNames where what is
    left reads names that nothing defines: Python itself would say so when a kernel runs.
    """
    every = statements(text)
    reads = reads_by_name(every)
    names = reached_from({name for one in every if not one.is_private for name in (*one.defines, *one.reads)}, reads)
    lines = text.split("\n")
    kept = [one for one in every if not one.is_private or one.defines & names]
    if unknown := [name for one in kept for name in _unknown(one, reads.keys(), lines)]:
        raise UnknownNames(sorted(unknown))
    for one in reversed(every):
        if one not in kept:
            first, end = one.first, one.end
            while first and lines[first - 1].startswith("#"):
                first -= 1
            while end < len(lines) and not lines[end].strip():
                end += 1
            del lines[first:end]
    return "\n".join(lines).rstrip() + "\n"


def reads_by_name(every: Iterable[Statement]) -> dict[str, frozenset[str]]:
    """What is read by the statement that defines each name of a module; the last one, as where it is run."""
    return {name: one.reads for one in every for name in one.defines}


def reached_from(names: Iterable[str], reads: Mapping[str, Set[str]]) -> set[str]:
    """Those of the names that a module defines, and what they read of the module, and so on."""
    found: set[str] = set()
    waiting = set(names) & reads.keys()
    while waiting:
        found |= waiting
        waiting = {name for one in waiting for name in reads[one]} & reads.keys() - found
    return found


def statements(text: str) -> list[Statement]:
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
            found.append(dataclasses.replace(one, first=line + one.first, end=line + one.end))
        line += piece.count("\n")
    return found


@lru_cache(maxsize=4096)
def _statements_of(piece: str) -> tuple[Statement, ...]:
    """The statements of a piece of a module, as if it were all."""
    found = []
    for node in ast.parse(piece).body:
        binds = frozenset(bound(node))
        names = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name)]
        reads = frozenset(name.id for name in names if isinstance(name.ctx, ast.Load))
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        defines = frozenset({node.name}) if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else binds
        is_private = isinstance(node, ast.FunctionDef) and node.name.startswith("_")
        found.append(Statement(first - 1, node.end_lineno or first, is_private, defines, reads, binds))
    return tuple(found)


def bound(node: ast.AST) -> Iterator[str]:
    """The names that are bound anywhere in a statement."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
            yield one.id
        elif isinstance(one, ast.arg):
            yield one.arg
        elif isinstance(one, (ast.FunctionDef, ast.ClassDef)):
            yield one.name
        elif isinstance(one, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in one.names)
        elif isinstance(one, ast.ExceptHandler) and one.name:
            yield one.name


def _unknown(one: Statement, defined: Set[str], lines: Sequence[str]) -> Iterator[Unknown]:
    """The names that a statement of the module of these lines reads and that neither it nor the module defines."""
    wanted = one.reads - one.binds - defined - KNOWN
    if not wanted:
        return
    (node,) = ast.parse("\n".join(lines[one.first : one.end])).body
    reader = node.name if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else ""
    for name in sorted(wanted):
        line = min(inner.lineno for inner in ast.walk(node) if isinstance(inner, ast.Name) and inner.id == name)
        yield Unknown(one.first + line, name, reader, tuple(sorted(one.binds | defined)))

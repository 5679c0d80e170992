"""What a module has and does not use, and what it uses and does not have, by the names in its text."""

from __future__ import annotations

import ast
import collections
import functools
from dataclasses import dataclass

from tqgen.reached import KNOWN, bound

FOR_OTHERS = {"LAYOUT"}  # beside public functions and classes


@dataclass(frozen=True)
class Names:
    """The names of one statement of a module."""

    defines: frozenset[str]
    is_public: bool  # a function or class for whoever imports the module
    reads: frozenset[str]
    asks: frozenset[str]  # names that it reads and does not bind
    unread: tuple[str, ...]  # locals of its functions, with the function


def leftovers(text: str) -> list[str]:
    """Functions, tables and imports that nothing else in a module reads, locals that nothing reads, undefined names.

    Parameters may be unread: what is called has those of its kind.
    """
    try:
        statements = [one for piece in text.split("\n\n\n") for one in _statements(piece)]
    except SyntaxError:  # a piece is no statement
        statements = list(_statements(text))
    readers = collections.Counter(name for one in statements for name in one.reads - one.defines)
    defined = {name for one in statements for name in one.defines}
    found = [what for one in statements for what in one.unread]
    for one in statements:
        if not one.is_public:
            found += [f"{name} is never read" for name in sorted(one.defines - FOR_OTHERS) if not readers[name]]
        where = ", ".join(sorted(one.defines)) or "the module"
        found += [f"{where} reads {name}, which is not defined" for name in sorted(one.asks - defined - KNOWN)]
    return found


@functools.lru_cache(maxsize=4096)
def _statements(piece: str) -> tuple[Names, ...]:
    return tuple(_names(node) for node in ast.parse(piece).body)


def _names(node: ast.stmt) -> Names:
    is_named = isinstance(node, (ast.FunctionDef, ast.ClassDef))
    binds = frozenset(bound(node))
    reads = _of(node, ast.Load)
    functions = [inner for inner in ast.walk(node) if isinstance(inner, ast.FunctionDef)]
    return Names(
        defines=frozenset({node.name}) if is_named else binds,
        is_public=is_named and not node.name.startswith("_"),
        reads=reads,
        asks=reads - binds,
        unread=tuple(
            f"{function.name} assigns {name}, which it never reads"
            for function in functions
            for name in sorted(_of(function, ast.Store) - _of(function, ast.Load) - {"_"})
        ),
    )


def _of(node: ast.AST, context: type[ast.expr_context]) -> frozenset[str]:
    return frozenset(one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, context))

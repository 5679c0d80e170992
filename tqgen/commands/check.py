"""`tqgen check`: compile specs up to the text of their modules; nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tqgen.commands import usage


def check(arguments: Sequence[str], overrides: Mapping[str, str]) -> int:
    """Say of every spec that it can be built; SpecError with the problems of all where one cannot."""
    from tqgen.compiler import compile_spec

    def one(path: Path) -> str:
        compiled = compile_spec(path, dict(overrides))
        _ = compiled.draft  # what a codec's template writes may be wrong, too; only its formatting takes long
        return f"{path}: {compiled.layout.slot_bytes} bytes for one token and head"

    for line in usage.each(usage.spec_paths(arguments), one):
        print(line)
    return usage.CLEAN

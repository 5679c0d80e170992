"""Which mutants the tests run, and which cannot be seen because they are no faults: `mutants.json`.

    python tests/mutant_data.py draw FAMILY NUMBER

draws mutants of a family, runs them, and writes those that are seen to the file, of which a run takes a sample. It
prints the others: faults that no test sees, or those that change nothing. These are explained: in `equivalent`, by a
pattern of names, and in `kinds`, by the fault and its statement without its numbers, where such a fault never changes
anything, or in `explained`, by its name in a family. The draw is the same each time, but for mutants of what has
changed.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import time
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from support.mutant_families import FAMILIES, Family
from support.mutants import Change, Mutant, kind, launchers_of, plan_mutants, text_mutants

FILE = Path(__file__).with_name("mutants.json")


@functools.cache
def load() -> dict[str, Any]:
    """`equivalent`: reasons by pattern; `kinds`: kinds by reason; `explained`: names by reason and family; `drawn`."""
    return json.loads(FILE.read_text(encoding="utf-8"))


@functools.cache
def _explained_names() -> dict[tuple[str, str], str]:
    """The reason of each name of a family."""
    by_reason = load()["explained"].items()
    return {(family, name): why for why, of in by_reason for family, names in of.items() for name in names}


@functools.cache
def _explained_kinds() -> dict[str, str]:
    return {one: why for why, kinds in load()["kinds"].items() for one in kinds}


def explained(family: str, name: str) -> str:
    """Why a mutant of this name is no fault; nothing where nobody says so."""
    matching = (why for pattern, why in load()["equivalent"].items() if re.search(pattern, name))
    return _explained_names().get((family, name)) or _explained_kinds().get(kind(name)) or next(matching, "")


def mutants_of(family: Family, names: Collection[str] | None = None) -> Iterator[Mutant]:
    """The mutants of a family, of its plan and of its text; with `names` those alone, which is much quicker."""
    yield from plan_mutants(family.plan, names)
    yield from text_mutants(family.right, names)


@functools.cache
def faults() -> tuple[tuple[tuple[str, Mutant], ...], ...]:
    """Every fault that is not explained, once: its mutants in the families that have it."""
    found: dict[Change, list[tuple[str, Mutant]]] = {}
    for name, family in FAMILIES.items():
        for mutant in mutants_of(family):
            if not explained(name, mutant.name):
                found.setdefault(mutant.change, []).append((name, mutant))
    return tuple(tuple(mutants) for mutants in found.values())


def draw(name: str, number: int) -> None:
    """Draw, run, and write."""
    from support.mutant_trial import load_mutant, ordered, who_sees

    family = FAMILIES[name]
    every = sorted(mutants_of(family), key=lambda one: zlib.crc32(one.name.encode()))
    cells, seen, known = ordered(family.layout), [], 0
    for mutant in every:
        if len(seen) + known >= number:
            break
        if explained(name, mutant.name):
            known += 1
            continue
        module = load_mutant(mutant)
        if module is None:
            continue
        start = time.perf_counter()
        if who := who_sees(family.layout, module, cells, launchers_of(family.right, mutant)):
            seen.append(mutant.name)
            print(f"{time.perf_counter() - start:5.1f} s {mutant.name}: {who}", flush=True)
        else:
            print(f"NOT SEEN {mutant.name}", flush=True)
    data = load()
    data["drawn"][name] = {"of": len(every), "seen": sorted(seen)}
    FILE.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(f"{name}: {len(every)} mutants, drawn {number}: {len(seen)} seen, {known} explained")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] != "draw":
        sys.exit((__doc__ or "").strip())
    import conftest  # noqa: F401, the interpreter is chosen there

    draw(sys.argv[2], int(sys.argv[3]))

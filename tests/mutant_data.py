"""Which mutants the tests run, and which cannot be seen because they are no faults: `mutants.json`.

    python tests/mutant_data.py draw FAMILY NUMBER

draws mutants of a family, runs them, and writes those that are seen to the file, of which a run takes a sample. It
prints the others: faults that no test sees, or those that change nothing. These are explained: in the family's
`explained`, by its name, or in `equivalent`, by a pattern of names, where such a fault never changes anything. The draw
is the same each time, but for mutants of what has changed.
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

from mutant_families import FAMILIES, Family
from mutants import Mutant, code_of, plan_mutants, text_mutants

from tqgen import emit

FILE = Path(__file__).with_name("mutants.json")


@functools.cache
def load() -> dict[str, Any]:
    """`equivalent`: reasons by pattern; `drawn`: of each family what is `seen`, and `explained` by name."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def explained(family: str, name: str) -> str:
    """Why a mutant of this name is no fault; nothing where nobody says so."""
    named = load()["drawn"].get(family, {}).get("explained", {})
    matching = (why for pattern, why in load()["equivalent"].items() if re.search(pattern, name))
    return named.get(name) or next(matching, "")


def mutants_of(family: Family, names: Collection[str] | None = None) -> Iterator[Mutant]:
    """The mutants of a family, of its plan and of its text; with `names` those alone."""
    right = emit.draft(family.plan)
    if names is None or any(name.startswith("plan.") for name in names):
        yield from (one for one in plan_mutants(family.plan) if names is None or one.name in names)
    yield from text_mutants(right, names)


def is_other_code(family: Family, mutant: Mutant) -> bool:
    """Whether a mutant is another program, and one that can be read."""
    try:
        return code_of(mutant.text) != _code(family)
    except SyntaxError:
        return False


@functools.cache
def _code(family: Family) -> str:
    return code_of(emit.draft(family.plan))


def draw(name: str, number: int) -> None:
    """Draw, run, and write."""
    from mutant_trial import load_mutant, ordered, who_sees

    family = FAMILIES[name]
    every = sorted(mutants_of(family), key=lambda one: zlib.crc32(one.name.encode()))
    cells, seen, known = ordered(family.layout), [], {}
    for mutant in every:
        if len(seen) + len(known) >= number:
            break
        if why := explained(name, mutant.name):
            known[mutant.name] = why
            continue
        module = load_mutant(mutant) if is_other_code(family, mutant) else None
        if module is None:
            continue
        start = time.perf_counter()
        if who := who_sees(family.layout, module, cells, mutant.where):
            seen.append(mutant.name)
            print(f"{time.perf_counter() - start:5.1f} s {mutant.name}: {who}", flush=True)
        else:
            print(f"NOT SEEN {mutant.name}", flush=True)
    data = load()
    data["drawn"][name] = {"of": len(every), "seen": sorted(seen), "explained": known}
    FILE.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(f"{name}: {len(every)} mutants, drawn {number}: {len(seen)} seen, {len(known)} explained")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] != "draw":
        sys.exit((__doc__ or "").strip())
    import conftest  # noqa: F401, the interpreter is chosen there

    draw(sys.argv[2], int(sys.argv[3]))

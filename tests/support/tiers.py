"""The tiers of the tests: what each looks at, how many cells it had, and what was thinned for which reason.

A test that runs cells of a tier says so through the fixture `tally`; the end of a run prints the counts. A value of an
axis that had no cell in a whole run fails it, whatever took its cells away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tier:
    """What a tier is, and what it leaves out."""

    about: str
    thinned: str


TIERS = {
    "specs": Tier(
        "sides of a spec, legal and refused, with the code of every refusal",
        "full product of the axes that a rule reads; keys and values take turns, as both are checked by the same rules",
    ),
    "layout": Tier(
        "addresses of every byte against a walk of the block",
        "sides that store parts of the same sizes count once; of the six arrangements each meets two at a head "
        "dimension, and all of them over the head dimensions: how a block is walked does not depend on what its parts "
        "mean",
    ),
    "reference": Tier(
        "every code value in every lane, read and decoded",
        "full product of codec, width, packing, group and head dimension; parameters that change no decoding count "
        "once",
    ),
    "interpreter": Tier(
        "kernels against the reference, byte for byte",
        "every pair of values of two axes, of the spec and of the launch: a launch takes a tenth of a second, and all "
        "combinations are more than 10^15; the shipped specs run the launches of `tqgen verify`, of which the pairs "
        "that meet in no code are left to -m exhaustive",
    ),
    "compile": Tier(
        "kernels for sm_80, sm_90, sm_100 and gfx942: spills, shared memory, widths, exact arithmetic",
        "every shipped module on every target, where the input dtypes, tiles and spaces take turns; of the specs that "
        "have every pair of what concerns one side every fourth: a kernel takes one to five seconds; the rest is left "
        "to -m exhaustive",
    ),
    "mutants": Tier(
        "plans and sources with one fault: each must be seen",
        "a sample of those that were drawn at random and are seen: a mutant takes half a second, and there are some "
        "thousands of each family of layouts; all are left to -m exhaustive",
    ),
    "gpu": Tier("the same cells on a GPU", "not run where there is none"),
}


@dataclass
class Count:
    """What a tier ran."""

    cells: int = 0
    refused: int = 0
    seen: dict[str, set[str]] = field(default_factory=dict)  # axis -> values that had a cell
    wanted: dict[str, set[str]] = field(default_factory=dict)
    of_these: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, record: Mapping) -> None:
        self.cells += record.get("cells", 0)
        self.refused += record.get("refused", 0)
        for axis, value in record.get("values", {}).items():
            self.seen.setdefault(axis, set()).update([value] if isinstance(value, str) else value)
        for axis, values in record.get("wanted", {}).items():
            self.wanted.setdefault(axis, set()).update(values)
        for what, number in record.get("of_these", {}).items():
            self.of_these[what] = self.of_these.get(what, 0) + number
        self.notes += record.get("notes", [])

    def empty(self) -> list[str]:
        """Values that should have had a cell and had none."""
        return [
            f"{axis}={value}"
            for axis, values in self.wanted.items()
            for value in sorted(values - self.seen.get(axis, set()))
        ]


def summed(records: Iterable[Mapping]) -> dict[str, Count]:
    """Counts of all tiers, from what tests reported."""
    counts = {name: Count() for name in TIERS}
    for record in records:
        counts[record["tier"]].add(record)
    return counts


def lines(counts: Mapping[str, Count], complete: bool) -> list[str]:
    """The summary as text."""
    written = []
    for name, tier in TIERS.items():
        count = counts[name]
        if not count.cells and not count.refused:
            written.append(f"{name:<12} not run: {tier.about}")
            continue
        refused = f", {count.refused:,} refused as they should be" if count.refused else ""
        written.append(f"{name:<12} {count.cells:,} cells{refused}: {tier.about}")
        written.append(f"{'':<12} {tier.thinned}")
        written += [f"{'':<12} {number:,} {what}" for what, number in count.of_these.items()]
        written += [f"{'':<12} {note}" for note in dict.fromkeys(count.notes)]
        if complete and count.empty():
            written.append(f"{'':<12} EMPTY: no cell has {', '.join(count.empty())}")
    return written

"""Faults that are put into plans and kernels, one at a time: a test of the matrix sees each.

This is what shows that the matrix can see. The sample of `mutants.json` is run by default, every fault there is with
-m exhaustive.
"""

import pytest
from mutant_data import explained, load, mutants_of
from support.mutant_families import FAMILIES
from support.mutant_trial import CALLS, CELL, FEW, QUICK, load_mutant, ordered, who_sees
from support.mutants import launchers_of

from tqgen import verify
from tqgen.verify import attention

SAMPLE = 12  # of a family, at most
SLICES = 3  # of a sample: a test each
EXHAUSTIVE_SLICES = 60
LEAST = 0.4  # of what was drawn that must still be there after kernels have changed: enough for a sample
SEEN, EXPLAINED, GONE = (
    "are seen",
    "change nothing, as mutants.json explains",
    "of the sample are no more, as code changed",
)


def unseen(name, mutants):
    """Names of the mutants of a family that no cell sees, and how many are seen and explained."""
    family = FAMILIES[name]
    layout, cells = family.layout, ordered(family.layout)
    missed, seen, known = [], 0, 0
    for mutant in mutants:
        if explained(name, mutant.name):
            known += 1
            continue
        module = load_mutant(mutant)
        if module is None:
            continue
        if who_sees(layout, module, cells, launchers_of(family.right, mutant)):
            seen += 1
        else:
            missed.append(mutant.name)
    return missed, seen, known


@pytest.mark.parametrize("turn", range(SLICES))
@pytest.mark.parametrize("name", FAMILIES)
def test_the_sample_is_seen(name, turn, tally):
    drawn = load()["drawn"][name]
    wanted = drawn["seen"][turn :: -(-len(drawn["seen"]) // SAMPLE) * SLICES]
    found = list(mutants_of(FAMILIES[name], set(wanted)))
    missed, seen, _ = unseen(name, found)
    assert not missed, f"no cell of {FAMILIES[name]} sees\n" + "\n".join(missed)
    of_these = {SEEN: seen, GONE: len(wanted) - len(found)}
    notes = [f"drawn of {name}: {len(drawn['seen'])} that are seen, of {drawn['of']:,} mutants"]
    values = {"family": name, "kind": {"plan" if one.startswith("plan.") else "text" for one in wanted}}
    wanted_values = {"family": list(FAMILIES), "kind": ("plan", "text")}
    tally("mutants", cells=seen, values=values, wanted=wanted_values, of_these=of_these, notes=notes)


def test_the_sample_is_still_there():
    for name, drawn in load()["drawn"].items():
        there = {mutant.name for mutant in mutants_of(FAMILIES[name], set(drawn["seen"]))}
        least = LEAST * len(drawn["seen"])
        assert len(there) >= least, f"draw mutants again: python tests/mutant_data.py draw {name} {len(drawn['seen'])}"
    assert set(load()["drawn"]) == set(FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_right_module_passes(name):
    """What is seen in a mutant is its fault."""
    family = FAMILIES[name]
    module = verify.load_module("right", family.right)
    assert who_sees(family.layout, module, ordered(family.layout)[:QUICK]) == ""


def test_a_right_module_passes_where_attention_is_run_first():
    """In the family whose attention has all forms there are."""
    family, launchers = FAMILIES["soa"], ("decode_attention",)
    module = verify.load_module("right", family.right)
    assert hasattr(module, "_decode_few_kernel")
    cells = [cell for cell in ordered(family.layout) if attention.is_for(cell)]
    cells = [cell for cell in cells if cell.block_size % 4 == 0][:2]  # which the kernel of few rows takes
    assert who_sees(family.layout, module, cells, launchers) == ""


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_calls_take_the_kernel_that_they_are_for(number, monkeypatch):
    call = CALLS[number][1]
    kernel = "_decode_few_kernel" if call.group * call.queries <= FEW else "_decode_kernel"
    family = FAMILIES["soa"]
    module = verify.load_module("called", family.right)
    monkeypatch.setattr(module, kernel, None)
    with pytest.raises(TypeError, match="NoneType"):
        attention.attend(family.layout, module, CELL, verify.device(), call)


@pytest.mark.exhaustive
@pytest.mark.parametrize("turn", range(EXHAUSTIVE_SLICES))
@pytest.mark.parametrize("name", FAMILIES)
def test_every_fault_is_seen(name, turn, tally):
    mutants = list(mutants_of(FAMILIES[name]))[turn::EXHAUSTIVE_SLICES]
    missed, seen, known = unseen(name, mutants)
    assert not missed, f"{len(missed)} of {seen + len(missed)}: no cell of {FAMILIES[name]} sees\n" + "\n".join(missed)
    tally("mutants", cells=seen + known, values={"family": name}, of_these={SEEN: seen, EXPLAINED: known})

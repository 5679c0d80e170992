"""Faults that are put into plans and kernels, one at a time: a test of the matrix sees each.

This is what shows that the matrix can see. The sample of `mutants.json` is run by default, every fault there is with
-m exhaustive.
"""

import re

import pytest
from mutant_data import explained, faults, load, mutants_of
from support.mutant_families import FAMILIES
from support.mutant_trial import CALLS, CELL, FEW, QUICK, load_mutant, ordered, who_sees
from support.mutants import kind, launchers_of

from tqgen import verify
from tqgen.verify import attention

SAMPLE = 12  # of a family, at most
SLICES = 3  # of a sample: a test each
EXHAUSTIVE_SLICES = 400
LEAST = 0.4  # of what was drawn that must still be there after kernels have changed: enough for a sample
SEEN, GONE = "are seen", "of the sample are no more, as code changed"


def is_seen(name, mutant):
    """Whether a cell of its family sees a mutant; one that is no module is seen by everybody."""
    family, module = FAMILIES[name], load_mutant(mutant)
    if module is None:
        return True
    return bool(who_sees(family.layout, module, ordered(family.layout), launchers_of(family.right, mutant)))


@pytest.mark.parametrize("turn", range(SLICES))
@pytest.mark.parametrize("name", FAMILIES)
def test_the_sample_is_seen(name, turn, tally):
    drawn = load()["drawn"][name]
    wanted = drawn["seen"][turn :: -(-len(drawn["seen"]) // SAMPLE) * SLICES]
    found = [one for one in mutants_of(FAMILIES[name], set(wanted)) if not explained(name, one.name)]
    missed = [mutant.name for mutant in found if not is_seen(name, mutant)]
    assert not missed, f"no cell of {FAMILIES[name]} sees\n" + "\n".join(missed)
    of_these = {SEEN: len(found), GONE: len(wanted) - len(found)}
    notes = [f"drawn of {name}: {len(drawn['seen'])} that are seen, of {drawn['of']:,} mutants"]
    values = {"family": name, "kind": {"plan" if one.startswith("plan.") else "text" for one in wanted}}
    wanted_values = {"family": list(FAMILIES), "kind": ("plan", "text")}
    tally("mutants", cells=len(found), values=values, wanted=wanted_values, of_these=of_these, notes=notes)


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
    call = CALLS[number][-1]
    kernel = "_decode_few_kernel" if call.group * call.queries <= FEW else "_decode_kernel"
    family = FAMILIES["soa"]
    module = verify.load_module("called", family.right)
    monkeypatch.setattr(module, kernel, None)
    with pytest.raises(TypeError, match="NoneType"):
        attention.attend(family.layout, module, CELL, verify.device(), call)


@pytest.mark.exhaustive
@pytest.mark.parametrize("turn", range(EXHAUSTIVE_SLICES))
def test_every_fault_is_seen(turn, tally):
    """What several families have is one fault, and one of them has to see it."""
    missed, seen = [], 0
    for mutants in faults()[turn::EXHAUSTIVE_SLICES]:
        if any(is_seen(name, mutant) for name, mutant in mutants):
            seen += 1
        else:
            missed += [f"{name} {mutant.name}" for name, mutant in mutants]
    assert not missed, "no cell sees\n" + "\n".join(missed)
    tally("mutants", cells=seen, of_these={SEEN: seen})


@pytest.mark.exhaustive
def test_what_is_explained_is_there():
    """Code changes, and with it the names of its faults."""
    there = {(name, mutant.name) for name, family in FAMILIES.items() for mutant in mutants_of(family)}
    kinds, names = {kind(name) for _, name in there}, {name for _, name in there}
    data = load()
    gone = [one for of in data["kinds"].values() for one in of if one not in kinds]
    of_families = [(family, name) for of in data["explained"].values() for family in of for name in of[family]]
    gone += [f"{family} {name}" for family, name in of_families if (family, name) not in there]
    gone += [pattern for pattern in data["equivalent"] if not any(re.search(pattern, name) for name in names)]
    assert not gone, "no mutant has these names\n" + "\n".join(gone)

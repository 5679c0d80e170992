"""The modules of the shipped specs, as they are checked in, in the launches of `tqgen verify`."""

import importlib

import pytest

from tqgen import manifest, verify
from tqgen.compiler import compile_spec
from tqgen.verify.cells import AXES, SPECIAL_PLACES
from tqgen.verify.trial import misfit

SHIPPED = manifest.shipped()
TURNS = 5  # a launch is run on every fifth module; -m exhaustive runs all of them
# The launch of as many tokens as large tiles need takes as long as all others together. What differs from one module to
# the next, the large tile itself, is in the matrix of test_matrix_kernels.py.
WITH_MANY_TOKENS = {"fp8_v4", "mse4_v4_aos", "none_vmse3"}


def cells(number, entry, turn):
    """The launches of a turn: a fifth of them, in turn 0 also the special ones and those that are refused."""
    layout = compile_spec(entry.path).layout
    for index, cell in enumerate(verify.cells_of(layout)):
        if cell.places == "many":
            wanted = (entry.name in WITH_MANY_TOKENS) == (turn == 0) and turn < 2
        elif cell.places in SPECIAL_PLACES or misfit(layout, cell.block_size, cell.num_kv_heads):
            wanted = turn == 0
        else:
            wanted = (index + number) % TURNS == turn
        if wanted:
            yield cell


def run(entry, chosen, tally):
    compiled = compile_spec(entry.path)
    module = importlib.import_module(f"generated.{entry.name}")
    large_rows = compiled.plan.store_large_rows
    refused = 0
    for ran in verify.verify_module(compiled.layout, module, chosen, verify.device(), large_rows):
        for one in ran:
            command = f"tqgen verify {entry.name} --cell {one.cell.id}"
            assert one.ok, f"`{one.launcher}`: {one.error or one.comparison}\nrun this one again with `{command}`"
        refused += bool(ran[0].refused)
    seen = {f"cell.{axis}": {getattr(cell, axis) for cell in chosen} for axis in AXES}
    seen["shipped"] = [entry.name]
    wanted = {"shipped": [one.name for one in SHIPPED], "cell.places": (*AXES["places"], *SPECIAL_PLACES)}
    tally("interpreter", cells=len(chosen) - refused, refused=refused, values=seen, wanted=wanted)


@pytest.mark.parametrize(("number", "entry"), list(enumerate(SHIPPED)), ids=[entry.name for entry in SHIPPED])
def test_shipped_module(number, entry, tally):
    run(entry, list(cells(number, entry, turn=0)), tally)


@pytest.mark.exhaustive
@pytest.mark.parametrize("turn", range(1, TURNS))
@pytest.mark.parametrize(("number", "entry"), list(enumerate(SHIPPED)), ids=[entry.name for entry in SHIPPED])
def test_shipped_module_in_every_launch(number, entry, turn, tally):
    run(entry, list(cells(number, entry, turn=turn)), tally)


@pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: entry.name)
def test_formatting_changes_no_code(entry):
    """Other tests run modules that were not formatted: they are the same code, and their docstrings the same words."""
    import ast

    from tqgen import emit

    def code(text):
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value.value = node.value.value.split()
        return ast.dump(tree)

    compiled = compile_spec(entry.path)
    assert code(emit.draft(compiled.plan)) == code(compiled.source)

"""What is said of a cell that fails: all that is needed to find the fault, and the command that runs it again."""

import contextlib
import dataclasses
import re
import shlex

import pytest
from support.kernels import described, kernels_of
from test_verify import BASE, DIFFERENCES

from tqgen.cli import run
from tqgen.verify.cells import Cell

CELL = Cell(dtype="fp16", heads="h3")


def failing(difference, cell=CELL):
    """The kernels of a spec with the module of another one, and what they fail at."""
    old, new = DIFFERENCES[difference]
    right, other = kernels_of(BASE), kernels_of(BASE.replace(old, new))
    wrong = dataclasses.replace(right, module=other.module)
    return wrong, wrong.failures(cell)


@pytest.mark.parametrize(
    ("difference", "field"),
    [
        ("rounding", "value.codes"),
        ("axis_order", "key.codes"),
        ("packing", "value.codes"),
        ("meta_order", "value.scale"),
    ],
)
def test_a_failure_says_where_and_what(difference, field):
    cell = dataclasses.replace(CELL, pattern="ties") if difference == "rounding" else CELL
    kernels, failures = failing(difference, cell)
    text = described(kernels, failures, "tests/x.py::test_cell[1]", cell)
    assert text.strip().startswith("kernel `store` in cell ") and cell.id in text
    pattern = (
        r"  (\S+) at token \d+, slot \d+, head \d+, item \d+, block \d+, byte \d+, bit \d+: expected \S.*, got \S.*"
    )
    found = re.findall(pattern, text)
    assert field in found, text
    assert kernels.text in text and "python -m pytest 'tests/x.py::test_cell[1]'" in text


@contextlib.contextmanager
def replaced(module, launcher, other):
    """A launcher of a module that does something else: `other` gets it and its arguments."""
    original = getattr(module, launcher)
    setattr(module, launcher, lambda *arguments, **options: other(original, *arguments, **options))
    try:
        yield
    finally:
        setattr(module, launcher, original)


def test_bytes_that_are_no_field_are_named_too():
    def spilling(store, key, value, kv_cache, slots):
        store(key, value, kv_cache, slots)
        kv_cache[0, 0, 0, 0] ^= 1  # of the first slot, which is not written in this cell

    kernels = kernels_of(BASE)
    with replaced(kernels.module, "store", spilling):
        failures = kernels.failures(dataclasses.replace(CELL, block="b64", places="consecutive"))
    assert re.search(r"untouched byte at block 0, byte 0.*: expected 0xee, got 0xef", "\n".join(failures)), failures


def test_an_attention_output_says_which_element():
    def off(decode_attention, *arguments, **options):
        result = decode_attention(*arguments, **options)
        (result[0] if isinstance(result, tuple) else result).view(-1)[5] += 3.0
        return result

    kernels = kernels_of(BASE)
    with replaced(kernels.module, "decode_attention", off):
        failures = kernels.failures(dataclasses.replace(CELL, places="edges"))
    said = r"attention output at sequence, query, head, element \[\d+, \d+, \d+, 5\]: expected \S+ \+- \S+, got \S+"
    assert re.search(said, "\n".join(failures)), failures


def test_the_command_runs_that_cell(capsys):
    kernels, failures = failing("axis_order")
    text = described(kernels, failures, "tests/x.py::test_cell[1]", CELL)
    command = shlex.split(text.splitlines()[-1])
    assert command[:2] == ["tqgen", "verify"] and command[-2:] == ["--cell", CELL.id]
    assert run(command[1:]) == 0  # what tqgen compiles is right; only the module above was not
    out, _ = capsys.readouterr()
    assert CELL.id in out and "1 cell passed, 0 failed" in out

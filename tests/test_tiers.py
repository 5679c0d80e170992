"""The counts at the end of a run: what was run, what was thinned, and a run that fails where a cell is empty."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import tiers

TESTS = Path(__file__).parent
SETTINGS = """
[tool.pytest.ini_options]
testpaths = ["tests"]
addopts = "-m 'not exhaustive'"
markers = ["exhaustive: slow"]
"""
TEST = """
import pytest

@pytest.mark.parametrize("value", {values})
def test_value(value, tally):
    tally("layout", cells=2, refused=1, values={{"axis": value}}, wanted={{"axis": ["one", "two"]}},
          of_these={{"of them are odd": 1}}, notes=["a note"])
"""


def record(**given):
    return {"tier": "layout", "cells": 1, **given}


def test_counts_are_summed_and_what_has_no_cell_is_named():
    counts = tiers.summed(
        [
            record(values={"axis": ["a"]}, wanted={"axis": ["a", "b"], "other": ["c"]}, of_these={"are odd": 2}),
            record(cells=4, refused=3, values={"other": ["d"]}, of_these={"are odd": 1}),
        ]
    )
    assert counts["layout"].cells == 5 and counts["layout"].refused == 3
    assert counts["layout"].empty() == ["axis=b", "other=c"]
    text = "\n".join(tiers.lines(counts, complete=True))
    assert "5 cells, 3 refused as they should be" in text and "3 are odd" in text
    assert "EMPTY: no cell has axis=b, other=c" in text and tiers.TIERS["layout"].thinned in text
    assert "gpu          not run" in text
    assert "EMPTY" not in "\n".join(tiers.lines(counts, complete=False))


def ran(folder, values, *arguments):
    """A run of its own over tests that have a cell for each of `values`."""
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text(SETTINGS)
    (folder / "tests" / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (folder / "tests" / "test_it.py").write_text(TEST.format(values=values))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("processes", [("-n", "2")], ids=["two processes"])
def test_a_run_in_which_a_value_has_no_cell_fails(tmp_path, processes):
    done = ran(tmp_path, ["one"], *processes)
    assert done.returncode == 1 and "EMPTY: no cell has axis=two" in done.stdout, done.stdout
    assert "1 passed" in done.stdout


def test_a_run_of_everything_counts_and_passes(tmp_path):
    done = ran(tmp_path, ["one", "two"])
    assert done.returncode == 0 and "4 cells, 2 refused as they should be" in done.stdout, done.stdout
    assert "2 of them are odd" in done.stdout and done.stdout.count("a note") == 1
    assert ran(tmp_path, ["one", "two"], "-k", "one").returncode == 0  # somebody asked for less

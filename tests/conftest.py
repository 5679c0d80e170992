"""Without a GPU, kernels run in Triton's interpreter: that has to be said before anything imports `triton`.

The end of a run says how many cells each tier had; see `support/tiers.py`.
"""

import importlib.util
import os

# One thread for each process: pytest-xdist has as many processes as there are cores, and matrices are small here.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import hypothesis
import pytest
from support import tiers

if importlib.util.find_spec("torch") and importlib.util.find_spec("triton"):
    import torch
    from support import watched_memory

    from tqgen.verify import interpreter

    if interpreter.is_chosen() or not torch.cuda.is_available():
        interpreter.choose()
        watched_memory.install()

# A machine that is busy with something else is no fault.
unhurried = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=unhurried)
hypothesis.settings.load_profile("tests")

RECORDS = pytest.StashKey[list]()
DEFAULT_MARKS = "not exhaustive"


@pytest.fixture
def tally(request):
    """Count cells of a tier: `tally("layout", cells=3, values={axis: value}, wanted={axis: values})`.

    `of_these` counts cells of a kind, under words that follow the number.
    """

    def count(tier, *, cells=0, refused=0, values=None, wanted=None, notes=(), of_these=None):
        assert tier in tiers.TIERS
        record = {"tier": tier, "cells": cells, "refused": refused, "notes": list(notes), "of_these": of_these or {}}
        record["values"] = {
            axis: value if isinstance(value, str) else list(value) for axis, value in (values or {}).items()
        }
        record["wanted"] = {axis: list(choices) for axis, choices in (wanted or {}).items()}
        request.node.user_properties.append(("tally", record))

    return count


def pytest_configure(config):
    config.stash[RECORDS] = []
    config.pluginmanager.register(_Collector(config), "tally")


class _Collector:
    """Reports of tests arrive here, from other processes too."""

    def __init__(self, config):
        self.records = config.stash[RECORDS]

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.records += [value for name, value in report.user_properties if name == "tally"]


def _is_complete(config):
    """Whether this run was asked for all tests: only then an empty cell is a fault."""
    options = config.option
    chosen = options.keyword or options.markexpr != DEFAULT_MARKS or getattr(options, "lf", False)
    return not chosen and config.args_source is not pytest.Config.ArgsSource.ARGS


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    config = session.config
    if hasattr(config, "workerinput") or not _is_complete(config) or exitstatus != 0:
        return
    if any(count.empty() for count in tiers.summed(config.stash[RECORDS]).values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    records = config.stash[RECORDS]
    if records:
        terminalreporter.section("cells of each tier")
        for line in tiers.lines(tiers.summed(records), _is_complete(config)):
            terminalreporter.write_line(line)

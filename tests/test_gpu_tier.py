"""The GPU tier runs: a small job of every kind, here in Triton's interpreter, gives records, and all are well.

On a GPU it would be the first to notice that it asks for what tests have no more.
"""

import importlib.util

import pytest

from tqgen import resources

FOLDER = resources.PACKAGE.parent / "benchmarks" / "gpu_tier"


def module(name):
    spec = importlib.util.spec_from_file_location(f"gpu_tier_{name}", FOLDER / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def jobs():
    return module("jobs")


@pytest.mark.parametrize("part", ["golden", "shipped", "matrix", "large"])
def test_a_job_of_every_part(part, jobs):
    job = jobs.jobs(part)[-1]  # those that take long are first
    for several in {"cells", "rows"} & job.keys():
        job[several] = job[several][-1:]
    records = list(module("work").done(job))
    assert records and all(one["ok"] for one in records), records


def test_the_sanitizer_has_the_same_kinds(jobs):
    assert {job["kind"] for job in jobs.jobs("sanitizer")} == {"canary", "shipped", "matrix"}

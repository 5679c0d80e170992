"""Going through the cases of a layout on the GPU here. Needs torch and a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType

import torch

from tqgen.bench import timing
from tqgen.bench.against import competitors
from tqgen.bench.cases import Case, Setting, moved_bytes
from tqgen.bench.kernels import Subject, calls_of, sets
from tqgen.bench.results import Machine, Measurement
from tqgen.layout import Layout

LAUNCH_COUNTS = 100.0  # microseconds of a kernel below which the time that a launch takes is measured, too


def machine() -> Machine:
    """The GPU here, with its copy bandwidth as it is now."""
    import triton

    return Machine(
        device=torch.cuda.get_device_name(),
        versions={"torch": torch.__version__, "triton": triton.__version__},
        copy_bandwidth=timing.copy_bandwidth(),
        l2_bytes=timing.l2_bytes(),
    )


def measure(
    layout: Layout, module: ModuleType, cases: Sequence[Case], setting: Setting, where: torch.device, here: Machine
) -> Iterator[tuple[Case, Measurement | str]]:
    """Every case with its measurement, or with the reason why there is none, as each is done on the device `where`."""
    from triton.runtime.errors import OutOfResources

    subject = Subject.of(layout, module, setting, where)
    for case in cases:
        try:
            yield case, _one(subject, case, here)
        except torch.OutOfMemoryError:
            yield case, "not enough memory"
        except OutOfResources as error:
            yield case, f"this GPU has not what the kernel needs: {error}"
        torch.cuda.empty_cache()


def _one(subject: Subject, case: Case, here: Machine) -> Measurement:
    torch.manual_seed(0)
    moved = moved_bytes(subject.layout, case, subject.setting)
    count, cold = sets(moved, here.l2_bytes)
    calls = calls_of(subject, case, count)
    microseconds = timing.in_graph(calls)
    with_launch = timing.from_python(calls) if microseconds < LAUNCH_COUNTS else None
    del calls
    return Measurement(
        spec=subject.layout.name,
        case=case,
        microseconds=microseconds,
        moved_bytes=moved,
        copy_bandwidth=here.copy_bandwidth,
        cold=cold,
        with_launch=with_launch,
        against=competitors(subject, case, count, here.l2_bytes),
    )

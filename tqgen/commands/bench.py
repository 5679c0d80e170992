"""`tqgen bench`: how fast kernels are on the GPU here, or what they compile to where there is none."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tqgen.bench import table
from tqgen.bench.cases import KERNELS, Case, Setting, cases_of
from tqgen.bench.results import Machine, Measurement
from tqgen.commands import files, usage
from tqgen.commands.usage import UsageError
from tqgen.outputs import Output

if TYPE_CHECKING:
    from tqgen.compiler import Compiled


@dataclass(frozen=True)
class Request:
    """What is to be measured; empty means the usual kernels and sizes."""

    kernels: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    batches: tuple[tuple[int, int], ...] = ()
    setting: Setting = field(default_factory=Setting)
    as_json: bool = False
    chart: Path | None = None


T = TypeVar("T")


def sizes(option: str, text: str | None, parse: Callable[[str], tuple[T, ...]]) -> tuple[T, ...]:
    """The sizes that an option's value means, none without one; UsageError where it means none."""
    try:
        return () if text is None else parse(text)
    except ValueError as error:
        example = "1,1024,65536" if option == "--tokens" else "1x32768,32x8192"
        raise UsageError("TQ4112", f"`{option}`: {error}", help=f"write it as in `{option} {example}`") from None


def bench(arguments: Sequence[str], overrides: Mapping[str, str], request: Request) -> int:
    """Measure every spec, or count instructions where there is no GPU."""
    has_gpu = _prepare()
    if request.chart is not None and request.as_json:
        raise UsageError("TQ4101", "`--chart` says on stdout what it wrote, and does not go with `--json`")
    if request.chart is not None and not has_gpu:
        message = "there is no GPU here, and without measurements there is nothing to draw"
        raise UsageError("TQ4113", message, help="leave out `--chart`")
    from tqgen.compiler import compile_spec

    paths = usage.spec_paths(arguments)
    compiled = usage.each(paths, lambda path: compile_spec(path, dict(overrides)))
    for one in compiled:
        _check(one, request)
    if not has_gpu:
        return _count(compiled, request)
    return _measure(compiled, request)


def _prepare() -> bool:
    """Whether there is a GPU; UsageError where kernels cannot even be compiled."""
    usage.require_kernels("benchmarks compile and run the kernels, and need")
    if os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y"):
        message = "TRITON_INTERPRET is set, and interpreted kernels say nothing about speed"
        raise UsageError("TQ4114", message, help="unset it for `tqgen bench`")
    import torch

    return torch.cuda.is_available()


def _check(one: Compiled, request: Request) -> None:
    """UsageError where a layout cannot be measured as it was asked for."""
    from tqgen.verify.trial import misfit

    setting = request.setting
    reason = misfit(one.layout, setting.block_size, setting.num_kv_heads)
    if reason:
        block = f"blocks of {setting.block_size} tokens and {setting.num_kv_heads} heads"
        message = f"`{one.name}` does not fit {block}: {reason}"
        raise UsageError("TQ4112", message, help="choose others with `--block-size` and `--heads`")
    if request.kernels == ("decode",) and len(one.layout.sides) == 1:
        message = f"`{one.name}` stores {one.layout.sides[0].name}s alone, and has no attention to measure"
        raise UsageError("TQ4112", message, help="measure `store` and `unpack`")


def _measure(compiled: Sequence[Compiled], request: Request) -> int:
    from tqgen import verify
    from tqgen.bench import run

    progress = _Progress(sum(len(_cases(one, request)) for one in compiled))
    progress.show("copy bandwidth")
    machine = run.machine()
    measured: list[Measurement] = []
    missed: list[dict[str, Any]] = []
    if not request.as_json:
        progress.print(machine.describe(), _describe(request.setting), "")
    for one in compiled:
        module = verify.load_module(one.name, one.draft)
        here: list[Measurement] = []
        cases = _cases(one, request)
        progress.show(f"{one.name} {cases[0].title}")
        for case, result in run.measure(one.layout, module, cases, request.setting, verify.device(), machine):
            progress.step(f"{one.name} {case.title} {case.size}")
            if isinstance(result, Measurement):
                here.append(result)
            else:
                missed.append({"spec": one.name, **case.to_json(), "why": result})
        measured += here
        if not request.as_json:
            progress.print(f"{one.name}, layout {one.layout.layout_id}", "", *table.text_of(here))
    progress.clear()
    _report(machine, request, measured, missed)
    return usage.CLEAN if measured else usage.FINDINGS


def _cases(one: Compiled, request: Request) -> tuple[Case, ...]:
    return cases_of(one.layout, request.kernels or KERNELS, request.tokens, request.batches)


def _report(
    machine: Machine, request: Request, measured: Sequence[Measurement], missed: Sequence[Mapping[str, Any]]
) -> None:
    if request.as_json:
        report = {
            "machine": machine.to_json(),
            "setting": vars(request.setting),
            "measurements": [one.to_json() for one in measured],
            "not_measured": list(missed),
        }
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        for one in missed:
            print(f"not measured: {one['spec']} {one['kernel']}: {one['why']}")
    if request.chart is not None:
        from tqgen.bench.chart import svg_of

        files.write(Output(request.chart, svg_of(measured, machine)))


def _describe(setting: Setting) -> str:
    return (
        f"{setting.num_kv_heads} KV heads, {setting.num_query_heads} query heads, block size {setting.block_size}, "
        f"{setting.dtype}; medians in CUDA graphs, `with launch` from Python"
    )


def _count(compiled: Sequence[Compiled], request: Request) -> int:
    """What the kernels compile to, for a GPU that is not here."""
    from tqgen import verify
    from tqgen.bench import without_gpu

    kernels = request.kernels or KERNELS
    progress = _Progress(len(compiled))
    everything = []
    if not request.as_json:
        progress.print(
            f"there is no GPU here, so nothing is timed; this is what kernels compile to for {without_gpu.TARGET}",
            "instructions of one thread: of the largest loop, or of a kernel without one",
            "",
        )
    for one in compiled:
        module = verify.load_module(one.name, one.draft)
        progress.step(one.name)
        here = []
        for found in without_gpu.compiled(one.name, module, kernels, request.setting):
            here.append(found)
            progress.show(f"{one.name} {found.launch}")
        everything += here
        if not request.as_json:
            rows = table.aligned([without_gpu.TITLES, *(found.row for found in here)], without_gpu.WORDS)
            progress.print(f"{one.name}, layout {one.layout.layout_id}", "", *rows, "")
    progress.clear()
    if request.as_json:
        report = {"machine": None, "target": without_gpu.TARGET, "compiled": [found.to_json() for found in everything]}
        print(json.dumps(report, indent=2, ensure_ascii=False))
    return usage.CLEAN


class _Progress:
    """A line on the terminal that says what is being measured; nothing where stderr is no terminal."""

    def __init__(self, steps: int) -> None:
        self.steps, self.done = steps, 0
        self.shown = sys.stderr.isatty()

    def step(self, what: str) -> None:
        """One more is done; `what` was it."""
        self.done += 1
        self.show(what)

    def show(self, what: str) -> None:
        if self.shown:
            print(f"\r\033[K[{self.done}/{self.steps}] {what}"[:110], end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def print(self, *lines: str) -> None:
        """Lines of the result."""
        self.clear()
        print(*lines, sep="\n", flush=True)

"""Modules of one layout against each other in one run: what a change to a template gains or loses.

    python benchmarks/side_by_side.py OUTPUT_FOLDER [NAME=]MODULE.py ... [--kernel K] [--batches BxN,...]
        [--dtype fp16] [--query-heads 64]

The first module is the baseline, as `generated/mse4_v4.py` is before a change. Modules take turns, each in its own CUDA
graph, so that what the machine does meanwhile hits all of them; times are medians over the rounds. Before that each
module stores, unpacks and attends to the same inputs as the first one, and the table says what differs. A module that
cannot be compiled or launched is a line of the table, too. Writes `side_by_side.json` and `side_by_side.md`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from tqgen import manifest, verify  # noqa: E402
from tqgen.bench import cases, kernels, run, table, timing  # noqa: E402
from tqgen.bench.cases import Case  # noqa: E402
from tqgen.compiler import compile_spec  # noqa: E402
from tqgen.diagnostics import SpecError  # noqa: E402
from tqgen.layout import Layout  # noqa: E402

TOKENS = {"store": (1, 1024, 65536), "unpack": (65536,)}
BATCHES = ((1, 32768), (32, 8192))
ROUNDS = 3
SECONDS = 0.05  # of replays of one graph
COMPARED = 4096  # tokens


@dataclass(frozen=True)
class Candidate:
    """A generated module and what the table calls it."""

    name: str
    path: Path

    @staticmethod
    def parse(text: str) -> Candidate:
        name, _, path = text.rpartition("=")
        return Candidate(name or Path(path).stem, Path(path))

    def load(self) -> ModuleType:
        return verify.load_module(self.path.stem, self.path.read_text(encoding="utf-8"))

    def subject(self, layout: Layout, setting: cases.Setting, device: torch.device) -> kernels.Subject:
        module = self.load()
        if module.LAYOUT.layout_id != layout.layout_id:
            raise ValueError(f"{self.path} stores layout {module.LAYOUT.layout_id}, not {layout.layout_id}")
        return kernels.Subject.of(layout, module, setting, device)


def layout_of(candidate: Candidate, spec: str | None) -> Layout:
    """The layout that is measured: of a spec, or of the shipped one whose name the module's layout has."""
    return compile_spec(manifest.locate(spec or candidate.load().LAYOUT.name)).layout


def compile_kernels(candidate: Candidate, layout: Layout, setting: cases.Setting, wanted: Sequence[Case]) -> str:
    """Launch every case once, so that its kernels are in Triton's cache; what went wrong, or nothing."""
    try:
        subject = candidate.subject(layout, setting, verify.device())
        for case in wanted:
            kernels.calls_of(subject, case, 1)[0]()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
    except Exception as error:  # it is said, and the others are measured
        return f"{type(error).__name__}: {error}"
    return ""


def differences(first: kernels.Subject, other: kernels.Subject) -> str:
    """How the results of two modules differ on the same inputs."""
    said = []
    device = first.device
    torch.manual_seed(0)
    vectors, slots = first.vectors(COMPARED), torch.randperm(COMPARED, device=device)
    caches = [one.cache(COMPARED) for one in (first, other)]
    for one, cache in zip((first, other), caches, strict=True):
        one.store(vectors, cache, slots)
    if changed := int((caches[0] != caches[1]).sum()):
        said.append(f"{changed} of {caches[0].numel()} stored bytes")
    for name, left, right in zip(
        ("keys", "values"), *(_unpacked(one, caches[0], slots) for one in (first, other)), strict=True
    ):
        if left is not None and not torch.equal(left, right):
            said.append(f"unpacked {name} by up to {(left.float() - right.float()).abs().max():.2g}")
    if len(first.layout.sides) == 2:
        left, right = (_attended(one, caches[0]) for one in (first, other))
        if not torch.equal(left, right):
            said.append(f"attention by up to {(left.float() - right.float()).abs().max():.2g}")
    return ", ".join(said) or "nothing"


def _unpacked(subject: kernels.Subject, cache: torch.Tensor, slots: torch.Tensor) -> tuple[Any, Any]:
    result = subject.module.unpack(cache, slots, dtype=subject.dtype, **subject.taken("unpack"))
    return result if isinstance(result, tuple) else (result, None)


def _attended(subject: kernels.Subject, cache: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(1)
    shape = (1, subject.setting.num_query_heads, subject.layout.key.head_dim)
    query = torch.randn(shape, device=subject.device).to(subject.dtype)
    table_of_all = torch.arange(cache.shape[0], device=subject.device, dtype=torch.int32)[None]
    lengths = torch.tensor([COMPARED], device=subject.device, dtype=torch.int32)
    output: torch.Tensor = subject.module.decode_attention(
        query, cache, table_of_all, lengths, **subject.taken("decode_attention")
    )
    return output


def measured(subjects: dict[str, kernels.Subject], wanted: Sequence[Case], l2_bytes: int) -> Iterator[dict[str, Any]]:
    """Microseconds of each module for each case, in turns."""
    first = next(iter(subjects.values()))
    for case in wanted:
        count, _ = kernels.sets(cases.moved_bytes(first.layout, case, first.setting), l2_bytes)
        times: dict[str, list[float]] = {name: [] for name in subjects}
        for _ in range(ROUNDS):
            for name, subject in subjects.items():
                torch.manual_seed(0)
                calls = kernels.calls_of(subject, case, count)
                times[name].append(timing.in_graph(calls))
                del calls
                torch.cuda.empty_cache()
        medians = {name: round(statistics.median(ones), 3) for name, ones in times.items()}
        yield {"kernel": case.title, "size": case.size, "microseconds": medians, "rounds": times}


def text_of(about: str, differ: dict[str, str], rows: Sequence[dict[str, Any]]) -> list[str]:
    """The tables, in Markdown."""
    names = list(differ)
    against = [(name, differ[name]) for name in names[1:]]
    lines = [f"# {about}", "", *table.markdown([("module", f"differs from {names[0]} by"), *against]), ""]
    body = []
    for row in rows:
        times = row["microseconds"]
        base = times[names[0]]
        others = [
            f"{table.microseconds(times[name])}, {base / times[name]:.2f}x" if name in times else "-"
            for name in names[1:]
        ]
        body.append((row["kernel"], row["size"], table.microseconds(base), *others))
    return [*lines, *table.markdown([("kernel", "size", *names), *body])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="OUTPUT_FOLDER")
    parser.add_argument("modules", nargs="+", type=Candidate.parse, metavar="[NAME=]MODULE.py")
    parser.add_argument("--spec", help="the spec or its name, where the modules are of none that is shipped")
    parser.add_argument("--kernel", action="append", choices=cases.KERNELS)
    parser.add_argument("--tokens", type=cases.parse_tokens, default=())
    parser.add_argument("--batches", type=cases.parse_batches, default=BATCHES)
    parser.add_argument("--dtype", choices=("fp16", "bf16", "fp32"), default="bf16", help="of inputs and outputs")
    parser.add_argument("--query-heads", type=int, default=cases.Setting.num_query_heads, metavar="N")
    parser.add_argument("--processes", type=int, default=12)
    options = parser.parse_args()
    for one in options.modules:
        if not one.path.is_file():
            parser.error(f"{one.path} is no module: there is no such file")
    try:
        layout = layout_of(options.modules[0], options.spec)
    except SpecError as error:
        parser.error(f"--spec must name what {options.modules[0].path} was built from: {error.diagnostics[0].message}")
    wanted = [
        case
        for kernel in options.kernel or cases.KERNELS
        for case in cases.cases_of(layout, (kernel,), options.tokens or TOKENS.get(kernel, ()), options.batches)
    ]
    setting = cases.Setting(num_query_heads=options.query_heads, dtype=options.dtype)
    jobs = [(candidate, layout, setting, wanted) for candidate in options.modules]
    with multiprocessing.get_context("spawn").Pool(min(options.processes, len(jobs))) as pool:
        failures = pool.starmap(compile_kernels, jobs, chunksize=1)
    failed = {one.name: said for one, said in zip(options.modules, failures, strict=True) if said}
    if options.modules[0].name in failed:
        sys.exit(f"the baseline {options.modules[0].path} does not run: {failed[options.modules[0].name]}")
    device, here = verify.device(), run.machine()
    subjects = {one.name: one.subject(layout, setting, device) for one in options.modules if one.name not in failed}
    first, *others = subjects.items()
    differ = {first[0]: "", **{name: differences(first[1], subject) for name, subject in others}, **failed}
    timing.SECONDS = SECONDS
    rows, about = [], f"{layout.name}, {setting.dtype}, on {here.describe()}"
    options.folder.mkdir(parents=True, exist_ok=True)
    for row in measured(subjects, wanted, here.l2_bytes):  # written after each, in case that time runs out
        rows.append(row)
        data = {"machine": here.to_json(), "spec": layout.name, "differ": differ, "rows": rows}
        (options.folder / "side_by_side.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        text = text_of(about, differ, rows)
        (options.folder / "side_by_side.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    print("\n".join(text))


if __name__ == "__main__":
    main()

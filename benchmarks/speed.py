"""All shipped layouts on the GPU here: `tqgen bench` for the committed results.

    python benchmarks/speed.py OUTPUT_FOLDER [--part 1/3] [--processes 12] [SPEC...]
    python benchmarks/speed.py OUTPUT_FOLDER --render

measures and adds to `speed.json`, one entry for each layout and case, whichever part it was measured in, and writes
`speed.md` and `speed.svg` from it. Kernels are compiled first, by as many processes as are asked for, since that
takes longer than measuring; a part takes some of the layouts, for machines that give a command little time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from tqgen import manifest, verify  # noqa: E402
from tqgen.bench import cases, chart, run, table, timing  # noqa: E402
from tqgen.bench.kernels import Subject, calls_of  # noqa: E402
from tqgen.bench.results import Machine, Measurement  # noqa: E402
from tqgen.compiler import compile_spec  # noqa: E402
from tqgen.layout import Layout  # noqa: E402

SETTING = cases.Setting()
TOKENS = {"store": (1, 16, 256, 1024, 65536), "unpack": (65536,)}
BATCHES = ((1, 8192), (1, 32768), (1, 131072), (8, 8192), (32, 8192), (128, 1024))
SECONDS = 0.06  # of replays of one graph
SHOWN = {
    "store": ("1", "1,024", "65,536"),
    "unpack": ("65,536",),
    "decode": ("1 x 8,192", "1 x 32,768", "1 x 131,072", "8 x 8,192", "32 x 8,192", "128 x 1,024"),
}


def cases_of(layout: Layout) -> list[cases.Case]:
    """The cases that are measured."""
    found = []
    for kernel in cases.KERNELS:
        found += cases.cases_of(layout, (kernel,), TOKENS.get(kernel, ()), BATCHES)
    return found


def small(case: cases.Case) -> cases.Case:
    """A case that is launched with the same kernels, and little to do."""
    if case.kernel != "decode":
        return case
    return cases.Case("decode", batch=case.batch, length=min(case.length, 1024))


def compile_kernels(name: str) -> str:
    """Launch every case of a layout once, so that its kernels are in Triton's cache; what went wrong, or nothing."""
    try:
        layout, module = loaded(name)
        subject = Subject.of(layout, module, SETTING, verify.device())
        for case in cases_of(layout):
            calls_of(subject, small(case), 1)[0]()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
    except Exception as error:  # measuring the layout, later, will say it again
        return f"{name}: {type(error).__name__}: {error}"
    return ""


def loaded(name: str) -> tuple[Layout, ModuleType]:
    """The layout and the module of a shipped spec."""
    one = compile_spec(manifest.locate(name))
    return one.layout, verify.load_module(one.name, one.source)


def measured(names: list[str], machine: Machine) -> Iterator[list[dict[str, Any]]]:
    """The entries of one layout after the other."""
    for name in names:
        begin = time.monotonic()
        found = []
        layout, module = loaded(name)
        wanted = cases_of(layout)
        for case, one in run.measure(layout, module, wanted, SETTING, verify.device(), machine):
            if isinstance(one, Measurement):
                found.append({**one.to_json(), "copy_bandwidth": round(machine.copy_bandwidth)})
            else:
                print(f"not measured: {name} {case.title} {case.size}: {one}")
        print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
        yield found


def key_of(entry: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(entry.get(name) for name in ("spec", "kernel", "space", "tokens", "batch", "length"))


def merged(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entries of both, the new one where both have one, by layout."""
    both = {key_of(entry): entry for entry in (*old, *new)}
    return sorted(both.values(), key=lambda entry: entry["spec"])


def render(folder: Path, report: dict[str, Any]) -> None:
    """The tables and the chart of a report."""
    machine = Machine(**report["machine"])
    ones = [Measurement.from_json(entry, entry["copy_bandwidth"]) for entry in report["measurements"]]
    setting = cases.Setting(**report["setting"])
    lines = [
        "# Speed of the shipped layouts",
        "",
        f"{machine.describe()}; {setting.num_kv_heads} KV heads, {setting.num_query_heads} query heads, block size "
        f"{setting.block_size}, {setting.dtype}. Written by `benchmarks/speed.py` from `speed.json`; the commit is in "
        "[h200.md](h200.md).",
        "",
        "Times are medians in CUDA graphs; `with launch` is a call from Python among many. `moved` are the bytes that "
        "must move, `of copy` is the share of the copy bandwidth, and `faster` how many times faster than what is to "
        "its left: `unfused torch` is the same store in plain PyTorch, `bf16 cache write` scatters the vectors as "
        "they are, and `bf16 attention` is PyTorch's best on contiguous keys and values. `-` under `of copy` and "
        "`over floor` stands where inputs stay in the L2 cache, and under `with launch` where the kernel takes longer "
        "than launches.",
    ]
    for title, group in table.grouped(ones):
        kernel = group[0].case.kernel
        against = table.names_against(group)
        for size in SHOWN[kernel]:
            rows = [(one.spec, *table.row(one, against)[1:]) for one in group if one.case.size == size]
            if rows:
                words = "sequences x tokens" if kernel == "decode" else "token" if size == "1" else "tokens"
                titles = ("layout", *table.header(kernel, against)[1:])
                lines += ["", f"## {title}, {size} {words}", "", *table.markdown([titles, *rows])]
    (folder / "speed.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "speed.svg").write_text(chart.svg_of(ones, machine), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="OUTPUT_FOLDER")
    parser.add_argument("specs", nargs="*", metavar="SPEC")
    parser.add_argument("--part", default="1/1", metavar="N/M")
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    file = options.folder / "speed.json"
    report = json.loads(file.read_text()) if file.exists() else {}
    if not options.render:
        part, parts = map(int, options.part.split("/"))
        names = options.specs or [entry.name for entry in manifest.shipped()]
        names = names[part - 1 :: parts]
        begin = time.monotonic()
        with multiprocessing.get_context("spawn").Pool(min(options.processes, len(names))) as pool:
            problems = [said for said in pool.map(compile_kernels, names, chunksize=1) if said]
        print(f"{len(names)} layouts compiled in {time.monotonic() - begin:.0f} s", *problems, sep="\n", flush=True)
        timing.SECONDS = SECONDS
        machine = run.machine()
        report = {"setting": vars(SETTING), "measurements": [], **report, "machine": machine.to_json()}
        options.folder.mkdir(parents=True, exist_ok=True)
        for new in measured(names, machine):  # written after each, in case that time runs out
            report["measurements"] = merged(report["measurements"], new)
            file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    render(options.folder, report)


if __name__ == "__main__":
    main()

"""Generated kernels on a GPU: the golden vectors, and a few cells of the matrix for every shipped spec and others.

    python benchmarks/gpu_check.py OUT [SPEC...] [--processes 14]

Writes OUT/gpu_check.json: hardware, versions, and for each task what was compared. Compiling is most of the time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

SPECIAL = ("many", "far")


def chosen(cells):
    """A few cells that meet what differs between machines: both tiles, far blocks, misaligned blocks, attention."""
    kept = [next(cell for cell in cells if cell.places == place) for place in SPECIAL]
    kept += [cell for cell in cells if cell.places == "edges"][:2]
    kept += [cell for cell in cells if cell.cache == "odd" and cell.dtype == "fp32"][:1]
    kept += [cell for cell in cells if cell.pattern in ("nan", "ties") and cell.places not in SPECIAL][:1]
    return list(dict.fromkeys(kept))


def run(task):
    kind, name = task
    begin = time.time()
    try:
        import torch

        where = torch.device("cuda")
        if kind == "golden":
            import test_golden_kernels as golden

            file, case = name.split("/")
            check = golden.check_value_mse if file == "value_mse" else golden.check_turboquant
            differing = check(case, where) if file == "value_mse" else check(file, case, where)
            return task, True, f"{differing} unpacked elements differ by one unit", time.time() - begin
        from tqgen import verify
        from tqgen.compiler import compile_spec

        compiled = compile_spec(name)
        module = verify.load_module(compiled.name, compiled.source)
        cells = chosen(verify.cells_of(compiled.layout))
        numbers, wrong = 0, []
        for outcomes in verify.verify_module(compiled.layout, module, cells, where, compiled.plan.store_large_rows):
            for outcome in outcomes:
                if not outcome.ok:
                    wrong.append(f"{outcome.launcher} {outcome.cell.id}: {outcome.error or outcome.comparison}")
                elif outcome.comparison is not None:
                    result = outcome.comparison
                    numbers += result.bytes + result.codes + result.metadata + result.elements
        return (
            task,
            not wrong,
            f"{len(cells)} cells, {numbers:,} compared" if not wrong else "; ".join(wrong)[:600],
            time.time() - begin,
        )
    except BaseException as error:
        return task, False, f"{type(error).__name__}: {str(error)[:500]}", time.time() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("specs", nargs="*")
    parser.add_argument("--processes", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=150)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import golden_cases

    tasks = [("spec", str(path)) for path in sorted((ROOT / "specs").glob("*.yaml"))]
    tasks += [("spec", spec) for spec in options.specs]
    files = (*golden_cases.TURBOQUANT, "value_mse")
    tasks += [("golden", f"{file}/{case}") for file in files for case in golden_cases.names(file)]
    results, begin = [], time.time()
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        waiting = pool.imap_unordered(run, tasks)
        while len(results) < len(tasks) and time.time() - begin < options.seconds:
            try:
                results.append(waiting.next(timeout=max(1, options.seconds - (time.time() - begin))))
            except multiprocessing.TimeoutError:
                break
        pool.terminate()
    import numpy
    import torch
    import triton

    done = {tuple(task) for task, *_ in results}
    report = {
        "device": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "triton": triton.__version__, "numpy": numpy.__version__},
        "passed": sum(ok for _, ok, *_ in results),
        "failed": sum(not ok for _, ok, *_ in results),
        "not_run": [f"{kind} {Path(name).name}" for kind, name in tasks if (kind, name) not in done],
        "tasks": [
            {
                "kind": kind,
                "name": Path(name).name if kind == "spec" else name,
                "ok": ok,
                "what": what,
                "seconds": round(s, 1),
            }
            for (kind, name), ok, what, s in sorted(results)
        ],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu_check.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    counts = f"{report['passed']} passed, {report['failed']} failed, {len(report['not_run'])} not run"
    print(f"{counts}, {time.time() - begin:.0f} s")
    for entry in report["tasks"]:
        if not entry["ok"]:
            print(entry["kind"], entry["name"], entry["what"][:400])


if __name__ == "__main__":
    main()

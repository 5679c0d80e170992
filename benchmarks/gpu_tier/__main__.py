"""The GPU tier of the tests: the bodies of the interpreter tier on a GPU, large caches, compute-sanitizer.

    python benchmarks/gpu_tier OUTPUT_FOLDER [--part PART ...] [--share K/N] [--seconds 200]

runs the parts, or every N-th job of them, and writes `gpu_tier_<parts>.json`: the machine, the versions, the counts and
every failure. Kernels are compiled for each cell, which is what takes the time, in as many processes as there are
cores. `--interpret` runs the same in Triton's interpreter, to try this where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import lanes
import report
import torch
import work
from jobs import PARTS, jobs


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path, help="folder for the result")
    parser.add_argument("--part", action="append", choices=PARTS, help="; ".join(map(": ".join, PARTS.items())))
    parser.add_argument("--share", default="1/1", help="K/N: every N-th job, from the K-th on")
    parser.add_argument("--seconds", type=float, default=200, help="no job starts later than this")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--interpret", action="store_true", help="in Triton's interpreter, without a GPU")
    parser.add_argument("--sanitizer", help="path of compute-sanitizer; found by itself in the usual places")
    options = parser.parse_args()
    start, started = time.monotonic(), time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    os.environ["TRITON_INTERPRET"] = "1" if options.interpret else "0"
    work.prepare()
    turn, turns = map(int, options.share.split("/"))
    tool = options.sanitizer or lanes.sanitizer()
    if not options.interpret and not torch.cuda.is_available():
        parser.error("there is no GPU here; --interpret runs the same in Triton's interpreter")
    chosen = options.part or list(PARTS)
    results: dict[str, list[report.Result]] = {part: [] for part in chosen}
    every = {part: jobs(part)[turn - 1 :: turns] for part in chosen}
    if "sanitizer" in chosen and (options.interpret or tool is None):
        why = "there is no GPU" if options.interpret else "there is no compute-sanitizer"
        results["sanitizer"] = [{"job": job, "records": [], "not_run": why} for job in every.pop("sanitizer")]
    flat = [(part, job) for part, of_part in every.items() for job in of_part]
    print(f"{len(flat)} jobs of {', '.join(chosen)}", flush=True)
    done = lanes.run([job for _, job in flat], options.processes, start + options.seconds, options.interpret, tool)
    for (part, _), result in zip(flat, done, strict=True):
        results[part].append(result)
    about = {
        "command": "gpu_tier " + " ".join(f"--part {part}" for part in chosen) + f" --share {options.share}",
        "machine": report.machine(),
        "started": started,
        "seconds": round(time.monotonic() - start),
        "processes": options.processes,
    }
    data = report.report(results, about)
    options.output.mkdir(parents=True, exist_ok=True)
    name = f"gpu_tier_{'_'.join(chosen)}" + (f"_{turn}_of_{turns}" if turns > 1 else "")
    (options.output / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(report.as_text(data), end="")
    return 0 if data["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())

"""The GPU tier of the tests: the cells of the interpreter tier on a GPU, and a covering set under compute-sanitizer.

    python benchmarks/gpu_tier.py OUTPUT_FOLDER

runs every shipped module in the launches of `tqgen verify`, every spec of the covering matrix of `tests/` in its
launch, caches past 2**31 bytes, and a few of all of these under compute-sanitizer's memcheck and racecheck. It writes
`gpu_tier.json` and `gpu_tier.txt`: the machine, the versions, the counts and every failure. Kernels are compiled for
each cell, which is what takes the time, so that cells run in as many processes as there are cores.

`--interpret` runs the same in Triton's interpreter, to try this script where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TURNS = 3  # of the launches of `tqgen verify`, each module has every third, and the special ones
ROWS_A_JOB = 12  # specs of the matrix for one process
SANITIZED = ("mse4_v4", "mse3_v3_aos", "fp8_v4")
SANITIZED_ROWS = 6
LARGE = ("mse4_v4", "mse3_v4_aos", "mse4_v4_hm")
PAST = 2**31  # bytes, twice of which a large cache is
DESCRIBED = 20  # failures that the text shows

Job = dict[str, Any]


# in a process of its own


def work(job: Job) -> Iterator[dict[str, Any]]:
    """Run a job's cells; yields what came of each launcher."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    if os.environ.get("TRITON_INTERPRET") == "1":
        from tqgen.verify import interpreter

        interpreter.choose()
    if job["kind"] == "shipped":
        yield from _shipped(job)
    elif job["kind"] == "matrix":
        yield from _rows(job)
    else:
        yield from _large(job["name"])


def _shipped(job: Job) -> Iterator[dict[str, Any]]:
    import importlib

    from tqgen import manifest
    from tqgen.compiler import compile_spec
    from tqgen.verify.cells import Cell

    compiled = compile_spec(manifest.locate(job["name"]))
    module = importlib.import_module(f"generated.{job['name']}")
    cells = [Cell.parse(one) for one in job["cells"]]
    yield from _cells(job["name"], compiled.layout, module, cells, compiled.plan.store_large_rows)


def _rows(job: Job) -> Iterator[dict[str, Any]]:
    from kernels import kernels_of
    from matrix import row_name, spec_text
    from test_matrix_kernels import cell_of, combinations

    for number in job["rows"]:
        row = combinations().rows[number]
        made = kernels_of(spec_text(row), row["tile"])
        name = f"{number:03d}-{row_name(row)}-{row['tile']}"
        yield from _cells(name, made.layout, made.module, [cell_of(row)], made.plan.store_large_rows)


def _cells(name: str, layout: Any, module: Any, cells: list[Any], large_rows: int) -> Iterator[dict[str, Any]]:
    from tqgen import verify

    for cell in cells:
        start = time.perf_counter()
        for outcomes in verify.verify_module(layout, module, [cell], verify.device(), large_rows):
            for one in outcomes:
                yield _record(name, cell.id, one, time.perf_counter() - start)


def _record(name: str, cell: str, one: Any, seconds: float) -> dict[str, Any]:
    record = {"spec": name, "cell": cell, "launcher": one.launcher, "ok": one.ok, "seconds": round(seconds, 3)}
    for reason in ("refused", "error", "not_run"):
        if getattr(one, reason):
            record[reason] = getattr(one, reason)
    if one.comparison:
        for count in ("bytes", "codes", "metadata", "elements", "allowances", "num_mismatches"):
            record[count] = getattr(one.comparison, count)
        record["mismatches"] = [str(mismatch) for mismatch in one.comparison.mismatches[:4]]
    return record


def _large(name: str) -> Iterator[dict[str, Any]]:
    """A cache of more than 2**32 bytes: tokens in its last blocks are stored, read and attended to as anywhere else."""
    import importlib

    import numpy as np
    import torch

    from tqgen import manifest, reference, verify
    from tqgen.compiler import compile_spec
    from tqgen.reference import compare
    from tqgen.verify import Outcome
    from tqgen.verify.cells import Cell

    layout = compile_spec(manifest.locate(name)).layout
    module, where = importlib.import_module(f"generated.{name}"), verify.device()
    heads, size, last = 8, 16, 4
    interpreted = where.type == "cpu"
    num_blocks = 8 if interpreted else 2 * PAST // layout.block_bytes(size, heads) + 8
    cache = module.allocate(num_blocks, size, heads, device=where)
    rng = np.random.default_rng(0)
    tokens = last * size - 5
    slots = rng.permutation(last * size)[:tokens]
    shift = (num_blocks - last) * size
    vectors = {side.name: reference_numbers(rng, (tokens, heads, side.head_dim)) for side in (layout.key, layout.value)}
    given = {side: torch.from_numpy(array).to(torch.bfloat16).to(where) for side, array in vectors.items()}
    start = time.perf_counter()
    module.store(given["key"], given["value"], cache, torch.from_numpy(slots + shift).to(where))
    end = cache[-last:].cpu().numpy()
    expected = {side: reference.encode(layout, side, array) for side, array in vectors.items()}
    stored = compare.compare_cache(layout, np.zeros_like(end), end, expected, slots)
    touched = int(cache[:-last].count_nonzero())
    if touched:
        stored.add(touched, [compare.Mismatch("a byte of another block", "0", f"{touched} that are not")])
    cell = Cell(heads=f"h{heads}", slots="i64", places="far")
    label = f"{name}, a cache of {cache.numel():,} bytes"
    yield _record(label, cell.id, Outcome(cell, "store", stored), time.perf_counter() - start)

    read = module.unpack(cache, torch.from_numpy(slots + shift).to(where), dtype=torch.float32)
    numbers = {side: tensor.double().cpu().numpy() for side, tensor in zip(("key", "value"), read, strict=True)}
    unpacked = compare.compare_unpacked(reference.unpack(layout, end, slots, dtype="fp32"), numbers, slots)
    yield _record(label, cell.id, Outcome(cell, "unpack", unpacked), time.perf_counter() - start)

    if hasattr(module, "decode_attention"):
        query = torch.from_numpy(rng.standard_normal((1, 4 * heads, layout.key.head_dim))).to(torch.bfloat16).to(where)
        lengths = torch.tensor([last * size], dtype=torch.int32, device=where)
        table = torch.arange(last, dtype=torch.int32, device=where)[None]
        small = cache[-last:].clone()
        here = module.decode_attention(query, small, table, lengths, num_splits=2)
        there = module.decode_attention(query, cache, table + num_blocks - last, lengths, num_splits=2)
        same = compare.Comparison(elements=here.numel())
        if not torch.equal(here, there) or not bool(here.isfinite().all()):
            same.add(1, [compare.Mismatch("attention in the last blocks", "as in a small cache", "another result")])
        yield _record(label, cell.id, Outcome(cell, "decode_attention", same), time.perf_counter() - start)


def reference_numbers(rng: Any, shape: tuple[int, ...]) -> Any:
    """Normal numbers that bf16 has."""
    from tqgen.numerics import floats

    return floats.round_to(rng.standard_normal(shape), "bf16")


# what is run


def jobs(interpret: bool) -> list[Job]:
    """Every job, the longest first."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    if interpret:
        os.environ["TRITON_INTERPRET"] = "1"
        from tqgen.verify import interpreter

        interpreter.choose()
    from test_matrix_kernels import combinations

    from tqgen import manifest, verify
    from tqgen.compiler import compile_spec
    from tqgen.verify.cells import SPECIAL_PLACES

    found: list[Job] = [{"kind": "large", "name": name} for name in LARGE]
    for number, entry in enumerate(manifest.shipped()):
        cells = verify.cells_of(compile_spec(entry.path).layout)
        chosen = [
            cell.id
            for index, cell in enumerate(cells)
            if cell.places in SPECIAL_PLACES or (index + number) % TURNS == 0
        ]
        half = -(-len(chosen) // 2)
        found += [{"kind": "shipped", "name": entry.name, "cells": part} for part in (chosen[:half], chosen[half:])]
    rows = list(range(len(combinations().rows)))
    found += [{"kind": "matrix", "rows": rows[at : at + ROWS_A_JOB]} for at in range(0, len(rows), ROWS_A_JOB)]
    return found


def sanitized_jobs(interpret: bool) -> list[tuple[str, Job]]:
    """A few cells for each tool of compute-sanitizer."""
    from test_matrix_kernels import combinations

    from tqgen.verify.cells import Cell

    cells = [
        Cell(heads="h2"),
        Cell(dtype="fp32", heads="h1", places="edges", cache="odd", inputs="sliced", out="obf16"),
    ]
    rows = range(0, len(combinations().rows), -(-len(combinations().rows) // SANITIZED_ROWS))
    few: list[Job] = [{"kind": "shipped", "name": name, "cells": [one.id for one in cells]} for name in SANITIZED]
    few += [{"kind": "matrix", "rows": [row]} for row in rows]
    return [(tool, job) for tool in ("memcheck", "racecheck") for job in few]


def sanitizer(given: str | None) -> str | None:
    """The path of compute-sanitizer, or None where there is none."""
    if given:
        return given
    toolkits = [str(path / "bin") for path in sorted(Path("/usr/local").glob("cuda*"))]
    packages = [str(path.parent) for path in Path(sys.prefix).glob("lib/python*/site-packages/**/compute-sanitizer")]
    return shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), *toolkits, *packages]))


def run(job: Job, interpret: bool, deadline: float, prefix: list[str], seconds: int) -> dict[str, Any]:
    """A job in a process of its own: its records, and what went wrong with the process."""
    if time.monotonic() > deadline:
        return {"job": job, "records": [], "not_run": "the time was up"}
    environment = {**os.environ, **{name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}}
    environment["TRITON_INTERPRET"] = "1" if interpret else "0"
    if prefix:
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # every tensor has its own bounds
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "records"
        command = [*prefix, sys.executable, __file__, "--job", json.dumps(job), str(output)]
        limit = max(10.0, min(seconds, deadline + 120 - time.monotonic()))
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, check=False)
            said, status = done.stdout + done.stderr, done.returncode
        except subprocess.TimeoutExpired as expired:
            said, status = f"not done after {limit:.0f} s; {expired.stdout or ''}"[-2000:], -1
        lines = output.read_text().splitlines() if output.exists() else []
    result: dict[str, Any] = {"job": job, "records": [json.loads(line) for line in lines]}
    if prefix:
        result["tool"] = prefix[prefix.index("--tool") + 1]
        result["errors"] = status if status else 0
        result["said"] = [line for line in said.splitlines() if line.startswith("=========")][-40:]
    if status:
        result["failed"] = f"exit status {status}: {said[-2000:]}"
    return result


def machine() -> dict[str, str]:
    """Hardware and versions."""
    import numpy
    import torch
    import triton

    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "numpy": numpy.__version__,
        "cuda": str(torch.version.cuda),
        "cores": str(os.cpu_count()),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name(0)
        found["capability"] = ".".join(map(str, torch.cuda.get_device_capability(0)))
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        if shutil.which(query[0]):
            found["driver"] = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    else:
        found["gpu"] = "none: Triton's interpreter"
    return found


# what came of it


def report(results: list[dict[str, Any]], sanitized: list[dict[str, Any]], about: dict[str, Any]) -> dict[str, Any]:
    """Everything as plain data."""
    kinds = {}
    for kind in ("shipped", "matrix", "large"):
        records = [record for result in results if result["job"]["kind"] == kind for record in result["records"]]
        kinds[kind] = totals(records)
    failures = [record for result in [*results, *sanitized] for record in result["records"] if not record["ok"]]
    broken = [result for result in [*results, *sanitized] if "failed" in result or "not_run" in result]
    tools = {}
    for tool in sorted({result["tool"] for result in sanitized if "tool" in result}):
        of_tool = [result for result in sanitized if result.get("tool") == tool]
        counted = totals([record for result in of_tool for record in result["records"]])
        tools[tool] = {
            "runs": len(of_tool),
            "with errors": sum(bool(result["errors"]) for result in of_tool),
            **counted,
        }
    return {
        **about,
        "tiers": kinds,
        "sanitizer": tools or about.get("sanitizer", "not run"),
        "failures": failures,
        "broken": [{key: value for key, value in result.items() if key != "records"} for result in broken],
        "ok": not failures and not broken,
        "slowest": sorted(
            ((record["seconds"], record["spec"], record["cell"]) for result in results for record in result["records"]),
            reverse=True,
        )[:10],
    }


def totals(records: list[dict[str, Any]]) -> dict[str, int]:
    """Cells, launches of each launcher, and numbers that were compared."""
    launchers = Counter(record["launcher"] for record in records)
    found: dict[str, int] = {
        "specs": len({record["spec"] for record in records}),
        "cells": len({(record["spec"], record["cell"]) for record in records}),
        "refused": sum("refused" in record for record in records),
        "not run": sum("not_run" in record for record in records),
        "failed": sum(not record["ok"] for record in records),
        **{f"launches of {name}": count for name, count in sorted(launchers.items())},
    }
    for count in ("bytes", "codes", "metadata", "elements", "allowances"):
        found[count] = sum(record.get(count, 0) for record in records)
    return found


def as_text(data: dict[str, Any]) -> str:
    lines = [f"{name}: {value}" for name, value in data["machine"].items()]
    lines += [f"started: {data['started']}, {data['seconds']} s in {data['processes']} processes", ""]
    for kind, counts in data["tiers"].items():
        lines.append(f"{kind}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items() if count))
    if isinstance(data["sanitizer"], dict):
        for tool, counts in data["sanitizer"].items():
            lines.append(
                f"compute-sanitizer {tool}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items())
            )
    else:
        lines.append(f"compute-sanitizer: {data['sanitizer']}")
    lines += [
        "",
        "all is well" if data["ok"] else f"{len(data['failures'])} failures, {len(data['broken'])} broken jobs",
    ]
    for record in data["failures"][:DESCRIBED]:
        lines.append(
            f"FAILED {record['spec']}: `{record['launcher']}` in cell {record['cell']}: {record.get('error', '')}"
        )
        lines += [f"  {mismatch}" for mismatch in record.get("mismatches", [])]
    for broken in data["broken"][:DESCRIBED]:
        lines.append(f"BROKEN {json.dumps(broken['job'])}: {broken.get('failed', broken.get('not_run'))}")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path, help="folder for gpu_tier.json and gpu_tier.txt")
    parser.add_argument("--interpret", action="store_true", help="in Triton's interpreter, without a GPU")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=int, default=480, help="no job starts later than this")
    parser.add_argument("--every", type=int, default=1, help="run one of so many jobs, to try this script")
    parser.add_argument("--sanitizer", help="path of compute-sanitizer; found by itself in the usual places")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        with options.output.open("w") as lines:
            for record in work(json.loads(options.job)):
                lines.write(json.dumps(record) + "\n")
                lines.flush()
        return 0

    start, started = time.monotonic(), time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    deadline = start + options.seconds
    tool = None if options.interpret else sanitizer(options.sanitizer)
    planned = [(job, []) for job in jobs(options.interpret)[:: options.every]]
    if tool:
        flags = ["--error-exitcode", "86", "--target-processes", "application-only"]
        planned += [(job, [tool, "--tool", name, *flags]) for name, job in sanitized_jobs(options.interpret)]
    with ThreadPoolExecutor(options.processes) as pool:
        waiting = [pool.submit(run, job, options.interpret, deadline, prefix, 420) for job, prefix in planned]
        done = [one.result() for one in waiting]
    about = {
        "machine": machine(),
        "started": started,
        "seconds": round(time.monotonic() - start),
        "processes": options.processes,
        "sanitizer": "not run: there is no GPU" if options.interpret else "not run: not found",
    }
    plain = [result for result, (_, prefix) in zip(done, planned, strict=True) if not prefix]
    data = report(plain, [result for result, (_, prefix) in zip(done, planned, strict=True) if prefix], about)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "gpu_tier.json").write_text(json.dumps(data, indent=1) + "\n")
    (options.output / "gpu_tier.txt").write_text(as_text(data))
    print(as_text(data), end="")
    return 0 if data["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())

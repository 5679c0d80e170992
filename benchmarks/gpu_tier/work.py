"""A job done, in a process of its own: the bodies of the tests, on the device that is here."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PAST = 2**31  # bytes, twice of which a large cache is

Record = dict[str, Any]


def prepare() -> None:
    """Make the tests importable, and choose the interpreter where the environment asks for it."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    if os.environ.get("TRITON_INTERPRET") == "1":
        from tqgen.verify import interpreter

        interpreter.choose()


def serve() -> None:
    """Do jobs, lines of JSON on standard input; answer each with a line: its records, or what went wrong.

    After an error of the device the process ends: nothing works in it any more.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    prepare()
    for line in sys.stdin:
        answer: dict[str, Any] = {"records": []}
        try:
            for record in done(json.loads(line)):
                answer["records"].append(record)
        except Exception as error:  # whatever it is, the report says so
            answer["failed"] = f"{type(error).__name__}: {error}"[:2000]
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if "CUDA" in answer.get("failed", "") or any("CUDA" in one.get("error", "") for one in answer["records"]):
            break


def done(job: dict[str, Any]) -> Iterator[Record]:
    """What came of each launcher in each cell of a job."""
    if job["kind"] == "golden":
        yield golden(job["file"], job["case"])
    elif job["kind"] == "shipped":
        yield from shipped(job["name"], job["cells"])
    elif job["kind"] == "canary":
        import canary

        canary.overflow()
    elif job["kind"] == "matrix":
        for row in job["rows"]:
            yield from of_the_matrix(row)
    else:
        yield from large(job["name"])


def golden(file: str, case: str) -> Record:
    import test_golden_kernels as tests

    from tqgen import verify

    start, where = time.perf_counter(), verify.device()
    record: Record = {"spec": f"{file}/{case}", "cell": "golden", "launcher": "all", "ok": True}
    try:
        check = tests.check_value_mse if file == "value_mse" else tests.check_turboquant
        record["differing"] = int(check(case, where) if file == "value_mse" else check(file, case, where))
    except AssertionError as error:
        record |= {"ok": False, "error": str(error)[:1000]}
    return {**record, "seconds": round(time.perf_counter() - start, 3)}


def shipped(name: str, cells: list[str]) -> Iterator[Record]:
    from tqgen import manifest
    from tqgen.compiler import compile_spec
    from tqgen.verify.cells import Cell

    compiled = compile_spec(manifest.locate(name))
    module = importlib.import_module(f"generated.{name}")
    for cell in cells:
        yield from outcomes(name, compiled.layout, module, Cell.parse(cell), compiled.plan.store_large_rows)


def of_the_matrix(number: int) -> Iterator[Record]:
    from support.any_bytes import unpacked_any_bytes
    from support.kernels import kernels_of
    from support.matrix import row_name, spec_text
    from test_matrix_kernels import cell_of, combinations

    from tqgen.verify import Outcome

    row = combinations().rows[number]
    made = kernels_of(spec_text(row), row["tile"])
    name, cell = f"{number:03d}-{row_name(row)}-{row['tile']}", cell_of(row)
    yield from outcomes(name, made.layout, made.module, cell, made.plan.store_large_rows)
    start = time.perf_counter()
    result = unpacked_any_bytes(made.layout, made.module, cell, len(row_name(row)))
    yield recorded(f"{name}, any bytes", cell.id, Outcome(cell, "unpack", result), time.perf_counter() - start)


def outcomes(name: str, layout: Any, module: Any, cell: Any, large_rows: int) -> Iterator[Record]:
    from tqgen import verify

    start = time.perf_counter()
    for ran in verify.verify_module(layout, module, [cell], verify.device(), large_rows):
        for one in ran:
            yield recorded(name, cell.id, one, time.perf_counter() - start)


def recorded(name: str, cell: str, one: Any, seconds: float) -> Record:
    record = {"spec": name, "cell": cell, "launcher": one.launcher, "ok": one.ok, "seconds": round(seconds, 3)}
    for reason in ("refused", "error", "not_run"):
        if getattr(one, reason):
            record[reason] = getattr(one, reason)
    if one.comparison:
        for count in ("bytes", "codes", "metadata", "elements", "allowances", "num_mismatches"):
            record[count] = getattr(one.comparison, count)
        record["mismatches"] = [str(mismatch) for mismatch in one.comparison.mismatches[:4]]
    return record


def large(name: str) -> Iterator[Record]:
    """Tokens in the last blocks of a large cache are stored, read and attended to as anywhere else."""
    import numpy as np
    import torch

    from tqgen import manifest, reference, verify
    from tqgen.compiler import compile_spec
    from tqgen.numerics import floats
    from tqgen.reference import compare
    from tqgen.verify import Outcome
    from tqgen.verify.cells import Cell

    layout = compile_spec(manifest.locate(name)).layout
    module, where = importlib.import_module(f"generated.{name}"), verify.device()
    heads, size, last = 8, 16, 4
    num_blocks = 8 if where.type == "cpu" else 2 * PAST // layout.block_bytes(size, heads) + 8
    cache = module.allocate(num_blocks, size, heads, device=where)
    rng = np.random.default_rng(0)
    slots = rng.permutation(last * size)
    shift = (num_blocks - last) * size
    shapes = {side.name: (len(slots), heads, side.head_dim) for side in (layout.key, layout.value)}
    vectors = {side: floats.round_to(rng.standard_normal(shape), "bf16") for side, shape in shapes.items()}
    given = {side: torch.from_numpy(array).to(torch.bfloat16).to(where) for side, array in vectors.items()}
    label, cell = f"{name}, a cache of {cache.numel():,} bytes", Cell(heads=f"h{heads}", slots="i64", places="far")
    start = time.perf_counter()

    module.store(given["key"], given["value"], cache, torch.from_numpy(slots + shift).to(where))
    end = cache[-last:].cpu().numpy()
    expected = {side: reference.encode(layout, side, array) for side, array in vectors.items()}
    stored = compare.compare_cache(layout, np.zeros_like(end), end, expected, slots)
    touched = sum(int(piece.count_nonzero()) for piece in cache[:-last].split(2**14))
    stored.bytes += cache.numel() - end.size
    if touched:
        stored.add(touched, [compare.Mismatch("a byte of another block", "0", f"{touched} that are not")])
    yield recorded(label, cell.id, Outcome(cell, "store", stored), time.perf_counter() - start)

    read = module.unpack(cache, torch.from_numpy(slots + shift).to(where), dtype=torch.float32)
    numbers = {side: tensor.double().cpu().numpy() for side, tensor in zip(("key", "value"), read, strict=True)}
    unpacked = compare.compare_unpacked(reference.unpack(layout, end, slots, dtype="fp32"), numbers, slots)
    yield recorded(label, cell.id, Outcome(cell, "unpack", unpacked), time.perf_counter() - start)

    query = torch.from_numpy(rng.standard_normal((1, 4 * heads, layout.key.head_dim))).to(torch.bfloat16).to(where)
    lengths = torch.tensor([last * size], dtype=torch.int32, device=where)
    table = torch.arange(last, dtype=torch.int32, device=where)[None]
    here = module.decode_attention(query, cache[-last:].clone(), table, lengths, num_splits=2)
    there = module.decode_attention(query, cache, table + num_blocks - last, lengths, num_splits=2)
    same = compare.Comparison(elements=here.numel())
    if not torch.equal(here, there) or not bool(here.isfinite().all()):
        same.add(1, [compare.Mismatch("attention in the last blocks", "as in a small cache", "another result")])
    yield recorded(label, cell.id, Outcome(cell, "decode_attention", same), time.perf_counter() - start)


if __name__ == "__main__":
    serve()

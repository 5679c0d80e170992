"""What came of a run: the machine, counts, every failure, as data and as text."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections import Counter
from typing import Any

DESCRIBED = 12  # failures that the text shows

Result = dict[str, Any]


def machine() -> dict[str, str]:
    """Hardware and versions."""
    import numpy
    import torch
    import triton

    found = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "triton": triton.__version__,
        "numpy": numpy.__version__,
        "cuda": str(torch.version.cuda),
        "cores": str(os.cpu_count()),
        "gpu": "none: Triton's interpreter",
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name(0)
        found["capability"] = ".".join(map(str, torch.cuda.get_device_capability(0)))
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        if shutil.which(query[0]):
            found["driver"] = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return found


def report(results: dict[str, list[Result]], about: dict[str, Any]) -> dict[str, Any]:
    """Counts of each part, failures, and jobs that did not end; `results` by part."""
    parts = {}
    for part, done in results.items():
        parts[part] = {"jobs": len(done), **totals([record for result in done for record in result["records"]])}
        for tool in dict.fromkeys(result["job"].get("tool") for result in done):
            if tool:
                of_tool = [result for result in done if result["job"]["tool"] == tool and "not_run" not in result]
                clean = sum("failed" not in result for result in of_tool)
                parts[part][tool] = f"{clean} of {len(of_tool)} runs without an error"
    every = [result for done in results.values() for result in done]
    failures = [record for result in every for record in result["records"] if not record["ok"]]
    broken = [{**result, "records": len(result["records"])} for result in every if "failed" in result]
    not_run = Counter(
        (part, result["not_run"]) for part, done in results.items() for result in done if "not_run" in result
    )
    return {
        **about,
        "parts": parts,
        "failures": failures,
        "broken": broken,
        "not_run": [f"{count} jobs of {part}: {why}" for (part, why), count in not_run.items()],
        "ok": not failures and not broken,
    }


def totals(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Specs, cells, launches, and numbers that were compared."""
    launchers = Counter(record["launcher"] for record in records if "refused" not in record)
    found: dict[str, Any] = {
        "specs": len({record["spec"] for record in records}),
        "cells": len({(record["spec"], record["cell"]) for record in records}),
        "refused as they should be": sum("refused" in record for record in records),
        "cells not run": sum("not_run" in record for record in records),
        "failed": sum(not record["ok"] for record in records),
        "launches": dict(sorted(launchers.items())),
    }
    for count in ("bytes", "codes", "metadata", "elements", "allowances"):
        found[count] = sum(record.get(count, 0) for record in records)
    return found


def as_text(data: dict[str, Any]) -> str:
    """The report for people."""
    lines = [", ".join(f"{name} {value}" for name, value in data["machine"].items())]
    lines.append(f"{data['command']}: {data['started']}, {data['seconds']} s in {data['processes']} processes")
    for part, counts in data["parts"].items():
        shown = [f"{value:,} {name}" for name, value in counts.items() if isinstance(value, int) and value]
        shown += [f"{name}: {value}" for name, value in counts.items() if isinstance(value, str)]
        lines.append(f"{part}: {', '.join(shown)}; launches {counts['launches']}")
    lines += [f"NOT RUN {text}" for text in data["not_run"]]
    lines.append(
        "all is well" if data["ok"] else f"{len(data['failures'])} failures, {len(data['broken'])} broken jobs"
    )
    for record in data["failures"][:DESCRIBED]:
        lines.append(
            f"FAILED {record['spec']}: {record['launcher']} in cell {record['cell']} {record.get('error', '')}"
        )
        lines += [f"  {mismatch}" for mismatch in record.get("mismatches", [])[:2]]
    lines += [f"BROKEN {broken['job']}: {broken['failed'][:400]}" for broken in data["broken"][:DESCRIBED]]
    return "\n".join(lines) + "\n"

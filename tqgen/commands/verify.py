"""`tqgen verify`: generated kernels against numpy, on the GPU here or in Triton's interpreter."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqgen.commands import usage
from tqgen.commands.console import Console
from tqgen.commands.usage import UsageError
from tqgen.diagnostics import Diagnostic

if TYPE_CHECKING:
    from tqgen.compiler import Compiled
    from tqgen.reference.compare import Comparison
    from tqgen.verify import Outcome
    from tqgen.verify.cells import Cell

DESCRIBED = 10  # failed cells that are described; all are counted


def verify(
    console: Console, arguments: Sequence[str], overrides: Mapping[str, str], cell_ids: Sequence[str], as_json: bool
) -> int:
    """Verify every spec; the exit status says whether all cells passed."""
    why_not_gpu = _prepare()
    cells = _cells(cell_ids)
    from tqgen.compiler import compile_spec

    paths = usage.spec_paths(arguments)
    compiled = usage.each(paths, lambda path: compile_spec(path, dict(overrides)))
    usage.each(compiled, lambda one: one.source)  # before the first kernel runs
    reports: list[dict[str, Any]] = []
    for path, one in zip(paths, compiled, strict=True):
        if reports and not as_json:
            print()
        reports.append(_Run(console, path, overrides, as_json, why_not_gpu).run(one, cells))
    if as_json:
        print(json.dumps(reports, indent=2, ensure_ascii=False))
    return usage.FINDINGS if not all(report["ok"] for report in reports) else usage.CLEAN


def _cells(ids: Sequence[str]) -> tuple[Cell, ...]:
    """The cells that were asked for by id."""
    from tqgen.verify.cells import Cell

    cells = []
    for text in ids:
        try:
            cells.append(Cell.parse(text))
        except ValueError as error:
            message = str(error)
            raise UsageError("TQ4106", message, help=f"`tqgen verify SPEC` prints the ids, as `{Cell().id}`") from None
    return tuple(cells)


def _prepare() -> str:
    """See that kernels can run, and decide where, before triton is imported. `tqgen.verify` imports torch.

    Returns why they do not run on a GPU; nothing where they do.
    """
    usage.require_kernels("verifying runs the kernels, and needs")
    import torch

    from tqgen.verify import interpreter

    if not torch.cuda.is_available():
        interpreter.choose()
        return "there is none here"
    if interpreter.is_chosen():
        interpreter.choose()
        return f"{interpreter.SWITCH} asks for the interpreter"
    return ""


class _Run:
    """The verification of one spec: prints its table, keeps its report."""

    def __init__(
        self, console: Console, path: Path, overrides: Mapping[str, str], as_json: bool, why_not_gpu: str
    ) -> None:
        self.console = console
        self.path = path
        self.overrides = overrides
        self.as_json = as_json
        self.why_not_gpu = why_not_gpu
        self.failures: list[Diagnostic] = []

    def run(self, compiled: Compiled, cells: Sequence[Cell]) -> dict[str, Any]:
        """Run the cells, or the whole matrix where there are none, and return the report as plain data."""
        from tqgen import verify

        whole = not cells
        cells = cells or verify.cells_of(compiled.layout)
        where = verify.device()
        module = verify.load_module(compiled.name, compiled.source)
        self._print(f"{compiled.name}, layout {compiled.layout.layout_id}: {verify.describe_device(where)}")
        width = max(len(cell.id) for cell in cells)
        self._print(_line(width, "cell", "bytes", "numbers", "rounding", "result"))
        results = []
        outcomes = verify.verify_module(compiled.layout, module, cells, where, compiled.plan.store_large_rows)
        for ran in outcomes:
            results.append(self._cell(compiled.name, ran, width))
        not_run = [f"{name}: no cell runs it" for name in verify.not_verified(module)]
        if where.type == "cpu":
            not_run.append(f"on a GPU: {self.why_not_gpu}")
        report = {
            "spec": str(self.path),
            "name": compiled.name,
            "layout_id": compiled.layout.layout_id,
            "device": verify.describe_device(where),
            "cells": results,
            **_totals(results),
            "launchers": _cells_of_launchers(results),
            "not_run": not_run,
        }
        if whole and not report["passed"] and not report["failed"]:
            message = f"`{compiled.name}`: nothing was verified, because no block of the matrix fits this layout"
            help = "give `slot_bytes` room for the alignment, or name a cell with a block that fits, with `--cell`"
            self.failures.append(Diagnostic("TQ5102", message, help=help))
        report["ok"] = not self.failures
        self._summary(report)
        return report

    def _print(self, line: str) -> None:
        if not self.as_json:
            print(line, flush=True)

    def _cell(self, name: str, outcomes: Sequence[Outcome], width: int) -> dict[str, Any]:
        cell = outcomes[0].cell
        comparisons = [outcome.comparison for outcome in outcomes if outcome.comparison]
        result = _result(outcomes)
        numbers = {
            "bytes": sum(one.bytes for one in comparisons),
            "numbers": sum(_numbers(one) for one in comparisons),
            "rounding": sum(one.allowances for one in comparisons),
        }
        shown = (f"{numbers[name]:,}" for name in ("bytes", "numbers", "rounding"))
        self._print(_line(width, cell.id, *shown, result))
        failed = [outcome for outcome in outcomes if not outcome.ok]
        self.failures += [self._failure(name, outcome) for outcome in failed]
        return {
            "cell": cell.id,
            "result": "failed" if failed else "refused" if outcomes[0].refused else _ran(outcomes),
            **numbers,
            "launchers": [_outcome(outcome) for outcome in outcomes],
        }

    def _failure(self, name: str, outcome: Outcome) -> Diagnostic:
        spec = [str(self.path)]
        for key, value in self.overrides.items():
            spec += ["--set", f"{key}={value}"]
        command = ["tqgen", "verify", *spec, "--cell", outcome.cell.id]
        help = f"run this cell again with `{shlex.join(command)}`"
        what = outcome.error
        if outcome.comparison:
            count = outcome.comparison.num_mismatches
            first = outcome.comparison.mismatches[0] if outcome.comparison.mismatches else "nothing was compared"
            what = f"{count:,} {'mismatch' if count == 1 else 'mismatches'}, the first: {first}"
        message = f"`{name}`: kernel `{outcome.launcher}` in cell {outcome.cell.id}: {what}"
        if outcome.error:  # the file that was run is gone
            help += f"; `{shlex.join(['tqgen', 'show', *spec, '--stage', 'source'])}` prints the module"
        return Diagnostic("TQ5101", message, help=help)

    def _summary(self, report: Mapping[str, Any]) -> None:
        passed = report["passed"]
        counts = [f"{passed:,} {'cell' if passed == 1 else 'cells'} passed", f"{report['failed']:,} failed"]
        if report["refused"]:
            counts.append(f"{report['refused']:,} refused as they should be")
        if report["skipped"]:
            counts.append(f"{report['skipped']:,} not run")
        self._print(
            f"{', '.join(counts)}; {report['bytes']:,} bytes and {report['numbers']:,} numbers compared, "
            f"{report['rounding']:,} of them not the nearest but within fp32 rounding"
        )
        if report["launchers"]:
            ran = (f"{name} in {count:,}" for name, count in report["launchers"].items())
            self._print(f"cells of each launcher: {', '.join(ran)}")
        for line in report["not_run"]:
            self._print(f"not run: {line}")
        self.console.report(self.failures[:DESCRIBED])
        if len(self.failures) > DESCRIBED and not self.as_json:
            self._print(f"{len(self.failures) - DESCRIBED} more failures are not described")


def _line(width: int, cell: str, *rest: str) -> str:
    """One row: a cell, and what was compared, as wide as the widest cell needs."""
    compared, numbers, rounding, result = rest
    return f"{cell:<{width}}  {compared:>10}  {numbers:>9}  {rounding:>8}  {result}"


def _result(outcomes: Sequence[Outcome]) -> str:
    failed = [outcome.launcher for outcome in outcomes if not outcome.ok]
    if failed:
        return f"FAILED in {' and '.join(failed)}"
    if outcomes[0].refused:
        return f"refused, as it should be: {outcomes[0].refused}"
    return f"not run: {outcomes[0].not_run}" if outcomes[0].not_run else "ok"


def _ran(outcomes: Sequence[Outcome]) -> str:
    return "not run" if outcomes[0].not_run else "ok"


def _numbers(comparison: Comparison) -> int:
    return comparison.codes + comparison.metadata + comparison.elements


def _outcome(outcome: Outcome) -> dict[str, Any]:
    data: dict[str, Any] = {"launcher": outcome.launcher, "ok": outcome.ok}
    for name in ("refused", "error", "not_run"):
        if getattr(outcome, name):
            data[name] = getattr(outcome, name)
    if outcome.comparison:
        data["mismatches"] = outcome.comparison.num_mismatches
        data["described"] = [str(mismatch) for mismatch in outcome.comparison.mismatches]
    return data


def _cells_of_launchers(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """In how many cells each launcher ran and was compared with the reference, in the order of their first."""
    ran = [dict.fromkeys(one["launcher"] for one in cell["launchers"] if "mismatches" in one) for cell in results]
    names = dict.fromkeys(name for cell in ran for name in cell)
    return {name: sum(name in cell for cell in ran) for name in names}


def _totals(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    def count(result: str) -> int:
        return sum(one["result"] == result for one in results)

    return {
        "passed": count("ok"),
        "failed": count("failed"),
        "refused": count("refused"),
        "skipped": count("not run"),
        **{name: sum(one[name] for one in results) for name in ("bytes", "numbers", "rounding")},
    }

"""`tqgen build`: write modules, or say which files are not what a build would write.

A build of everything in a source tree also writes the documents that are generated for it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tqgen import manifest, resources
from tqgen.commands import files, usage
from tqgen.commands.console import Console
from tqgen.commands.usage import UsageError
from tqgen.diagnostics import Diagnostic, Place
from tqgen.outputs import Found, Output, State
from tqgen.paths import real

if TYPE_CHECKING:
    from tqgen.compiler import Compiled


def build(
    console: Console, arguments: Sequence[str], folder: Path | None, overrides: Mapping[str, str], check: bool
) -> int:
    """Compile every spec, then write what differs; with `check`, only report it. Returns the exit status."""
    everything = not arguments and not overrides
    paths = usage.spec_paths(arguments or [entry.name for entry in manifest.shipped()])
    compiled = usage.each(paths, lambda path: _compile(path, overrides))
    usage.each(compiled, lambda one: one.source)  # so that what is wrong with any is told
    wanted = _place(paths, compiled, folder, changed=bool(overrides))
    complete: list[Path] = []
    root = resources.checkout()
    if everything and root and folder is None:
        from tqgen.documents import complete_folders, documents

        here = usage.relative(root)
        wanted += documents(here, [one.layout for one in compiled])
        # Other folders may hold whatever their owners built.
        complete = [here / manifest.OUTPUT, *complete_folders(here)]
    found = files.compare(wanted, complete)
    command = _command(arguments, folder, overrides)
    if check:
        return _report_drift(console, found, command)
    files.publish(found)
    return usage.CLEAN


def _compile(path: Path, overrides: Mapping[str, str]) -> Compiled:
    from tqgen.compiler import compile_spec

    return compile_spec(path, dict(overrides))


def _place(paths: Sequence[Path], compiled: Sequence[Compiled], folder: Path | None, *, changed: bool) -> list[Output]:
    """The file of each module; UsageError where two specs want the same one, or some file systems would take it so."""
    wanted: dict[Path, tuple[Path, Output]] = {}
    folded: dict[tuple[Path, str], Path] = {}
    for path, result in zip(paths, compiled, strict=True):
        into = folder if folder is not None else usage.relative(manifest.default_output(path, changed=changed))
        output = Output(into / f"{result.name}.py", result.source)
        there = wanted.get(output.path)
        if there and real(there[0]) != real(path):
            message = f"this spec and `{there[0]}` both give a module `{result.name}`"
            raise UsageError("TQ4103", message, file=str(path), help="build them into two folders, with `-o`")
        wanted[output.path] = (path, output)
        alike = folded.setdefault((into, output.path.name.casefold()), output.path)
        for other in (alike, *_of_other_case(output.path)):
            if other.name != output.path.name:
                message = f"modules `{result.name}` and `{other.stem}` differ in case alone"
                place = path if other is alike else other
                raise UsageError("TQ4103", message, file=str(place), help="rename one, or build it elsewhere with `-o`")
    return [output for _, output in wanted.values()]


def _of_other_case(path: Path) -> list[Path]:
    """The files beside this one whose names differ from its in case alone."""
    if not path.parent.is_dir():
        return []
    return [
        one for one in path.parent.iterdir() if one.name != path.name and one.name.casefold() == path.name.casefold()
    ]


def _command(arguments: Sequence[str], folder: Path | None, overrides: Mapping[str, str]) -> str:
    words = ["tqgen", "build", *arguments]
    words += ["-o", str(folder)] if folder is not None else []
    for key, value in overrides.items():
        words += ["--set", f"{key}={value}"]
    return shlex.join(words)


def _drift(found: Found, command: str) -> Diagnostic:
    code, message, help = {
        State.MISSING: ("TQ5001", "the file is missing", f"run `{command}`"),
        State.STALE: ("TQ5002", "the file is stale: its spec or the compiler has changed since", f"run `{command}`"),
        State.EDITED: (
            "TQ5003",
            "the file was edited by hand since it was generated",
            f"change what it is made from instead, and run `{command}`, which undoes the edit",
        ),
        State.FOREIGN: (
            "TQ5004",
            "tqgen did not write the file that stands here",
            f"move it away, and run `{command}`",
        ),
        State.LEFT_OVER: (
            "TQ5005",
            "the file is left over: no shipped spec asks for it",
            f"run `rm {shlex.quote(str(found.path))}`, or keep what you built of other specs elsewhere, with `-o`",
        ),
    }[found.state]
    return Diagnostic(code, message, Place(str(found.path)), help=help)


def _report_drift(console: Console, found: Sequence[Found], command: str) -> int:
    problems = [_drift(one, command) for one in found if one.state is not State.CURRENT]
    console.report(problems)
    if problems:
        return usage.FINDINGS
    print(f"{len(found)} {'file is' if len(found) == 1 else 'files are'} current")
    return usage.CLEAN

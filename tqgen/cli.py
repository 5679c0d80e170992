"""The command line: reads arguments, calls a command, and turns every mistake of a user into diagnostics."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from tqgen.commands.console import ERROR_FORMATS, Console
from tqgen.commands.usage import USAGE, UsageError, parse_overrides, status_of
from tqgen.diagnostics import Diagnostic, SpecError, did_you_mean
from tqgen.version import __version__

app = typer.Typer(
    name="tqgen",
    help="A compiler for the memory layout of quantised KV caches.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
console = Console()
# Commands return what is to be done, so that it is done outside of typer, which answers some exceptions in its own way.
Work = Callable[[], int]

Specs = Annotated[list[str], typer.Argument(metavar="SPEC...", help="Spec files, or names of shipped specs.")]
Overrides = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the spec, as in head_dim=64.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print data for tools instead of text.")]


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    error_format: Annotated[
        str, typer.Option(metavar="text|json", help="How diagnostics are written to stderr; json: one object a line.")
    ] = "text",
) -> None:
    """A compiler for the memory layout of quantised KV caches."""
    if version:
        print(f"tqgen {__version__}")
        raise typer.Exit(0)
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(USAGE)


@app.command()
def build(
    specs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SPEC]...", help="Spec files, or names of shipped specs; default all."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder for the modules; default generated/.")
    ] = None,
    set_: Overrides = [],  # noqa: B006
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail where a build would.")] = False,
) -> Work:
    """Write one Triton module for each spec.

    Modules go into generated/ of the source tree for its own specs, otherwise into ./generated.
    """
    from tqgen.commands.build import build as command

    return partial(command, console, specs or [], output, parse_overrides(set_), check)


@app.command()
def check(specs: Specs, set_: Overrides = []) -> Work:  # noqa: B006
    """Say whether specs can be built; nothing is written."""
    from tqgen.commands.check import check as command

    return partial(command, specs, parse_overrides(set_))


@app.command()
def show(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="A spec file, or the name of a shipped spec.")],
    stage: Annotated[
        str, typer.Option(metavar="spec|layout|plan|source", help="What to print; layout is the byte map.")
    ] = "layout",
    as_json: AsJson = False,
    set_: Overrides = [],  # noqa: B006
    block_size: Annotated[int, typer.Option(min=1, help="Tokens in a block, for the addresses of the byte map.")] = 16,
    heads: Annotated[int, typer.Option(min=1, help="KV heads, for the addresses of the byte map.")] = 8,
    token: Annotated[int | None, typer.Option(min=0, help="Offset in the block of the addressed token.")] = None,
    head: Annotated[int | None, typer.Option(min=0, help="The addressed head.")] = None,
) -> Work:
    """Print the byte map of a spec, or another stage."""
    from tqgen.commands.show import STAGES
    from tqgen.commands.show import show as command
    from tqgen.layout.byte_map import Launch

    _choose("--stage", stage, STAGES)
    default = Launch()
    token = _below("--token", token, default.token, block_size, "tokens in a block")
    head = _below("--head", head, default.head, heads, "heads")
    return partial(command, spec, stage, as_json, parse_overrides(set_), Launch(block_size, heads, token, head))


@app.command()
def verify(
    specs: Specs,
    set_: Overrides = [],  # noqa: B006
    cell: Annotated[
        list[str], typer.Option("--cell", metavar="ID", help="Run this cell of the matrix alone; can be repeated.")
    ] = [],  # noqa: B006
    as_json: AsJson = False,
) -> Work:
    """Run generated kernels and compare them with numpy.

    On the GPU where there is one, otherwise in Triton's interpreter.
    """
    from tqgen.commands.verify import verify as command

    return partial(command, console, specs, parse_overrides(set_), cell, as_json)


@app.command(name="list")
def list_(as_json: AsJson = False) -> Work:
    """Print the specs that are shipped."""
    from tqgen.commands.listing import listing

    return partial(listing, as_json)


@app.command()
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A spec file, or the name of a shipped spec.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="What to compare it with.")],
    as_json: AsJson = False,
    set_: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of NEW, as in key.bits=4.")
    ] = [],  # noqa: B006
) -> Work:
    """Print what differs between two layouts: moved fields, numerics, launchers.

    The exit status is 0 where nothing does, names and comments apart, and 1 otherwise.
    """
    from tqgen.commands.diff import diff as command

    return partial(command, [old, new], parse_overrides(set_), as_json)


@app.command()
def breaking(
    against: Annotated[
        str, typer.Option(metavar="REF|FOLDER", help="A git revision, or a folder of specs or generated modules.")
    ],
    specs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SPEC]...", help="Spec files, folders, or names of shipped specs; default all."),
    ] = None,
    as_json: AsJson = False,
) -> Work:
    """Say whether layouts are what they were under their names.

    Compares with a git revision or a folder, by category: LAYOUT (where bytes stand), NUMERICS (what they mean) and API
    (what callers rely on).
    """
    from tqgen.commands.breaking import breaking as command

    return partial(command, console, specs or [], against, as_json)


@app.command()
def explain(
    code: Annotated[str | None, typer.Argument(metavar="[CODE]", help="As in error[TQ3107]; default all.")] = None,
) -> Work:
    """Print what a diagnostic means, and what to do."""
    from tqgen.commands.explain import explain as command

    return partial(command, code)


def _choose(option: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        close = did_you_mean(value, choices)
        help = f"did you mean `{close}`?" if close else f"choose one of {', '.join(choices)}"
        raise UsageError("TQ4101", f"`{value}` is no value of `{option}`", help=help)


def _below(option: str, value: int | None, default: int, limit: int, what: str) -> int:
    if value is None:
        return min(default, limit - 1)
    if value >= limit:
        raise UsageError("TQ4101", f"`{option} {value}` is out of range: there are {limit} {what}, counted from 0")
    return value


def _take_error_format(arguments: Sequence[str]) -> list[str]:
    """Apply `--error-format`, which may stand anywhere, before anything can fail; the other arguments."""
    rest = list(arguments)
    end = rest.index("--") if "--" in rest else len(rest)
    for index in reversed(range(end)):
        name, equals, value = rest[index].partition("=")
        if name != "--error-format":
            continue
        if not equals:
            value = rest.pop(index + 1) if index + 1 < len(rest) else ""
        del rest[index]
        _choose("--error-format", value, ERROR_FORMATS)
        console.error_format = value
    return rest


def _call(arguments: Sequence[str]) -> int:
    """Run the command; SpecError for every mistake of the user, also those that the argument parser finds."""
    rest = _take_error_format(arguments)
    try:
        work: Any = app(rest, prog_name="tqgen", standalone_mode=False)
    except SpecError:
        raise
    except Exception as error:
        # typer carries its own copy of click, or uses the one that is installed: told by what they have in common
        format_message: Any = getattr(error, "format_message", None)
        if format_message is None:
            raise
        raise UsageError("TQ4101", _sentence(format_message()), help=_help_for(error)) from None
    return work() if callable(work) else int(work or 0)


def _sentence(message: str) -> str:
    message = " ".join(message.split()).rstrip(".").replace("'", "`").replace(": Input should", ": it should")
    return message[:1].lower() + message[1:]


def _help_for(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return f"run `{context.command_path if context else 'tqgen'} --help`"


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line; the exit status: 0 clean, 1 findings, 2 usage."""
    console.reset()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _call(arguments)
        sys.stdout.flush()
        return status
    except SpecError as error:
        _flush_quietly()
        console.report(error.diagnostics)
        return status_of(error.diagnostics)
    except BrokenPipeError:
        # the reader has gone, as `head` does: stop as other tools do, and keep the interpreter from complaining
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE if hasattr(signal, "SIGPIPE") else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:
        if sys.stdout.closed or not error.errno:
            raise
        console.report([Diagnostic("TQ4105", f"the output cannot be written: {(error.strerror or '').lower()}")])
        return USAGE


def _flush_quietly() -> None:
    with contextlib.suppress(OSError):
        sys.stdout.flush()

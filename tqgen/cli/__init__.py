"""The command line: reads arguments, calls a command, and turns every mistake of a user into diagnostics."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from tqgen.cli.app import app, console
from tqgen.commands.console import ERROR_FORMATS
from tqgen.commands.usage import USAGE, UsageError, choose, status_of
from tqgen.diagnostics import Diagnostic, SpecError


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
        choose("--error-format", value, ERROR_FORMATS)
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
    _open_streams()
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
        _report(error.diagnostics)
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
        _report([Diagnostic("TQ4105", f"the output cannot be written: {(error.strerror or '').lower()}")])
        return USAGE


def _open_streams() -> None:
    """Streams that were closed before the start lead nowhere, instead of to the next file that is opened."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for as long as Python runs


def _report(diagnostics: Sequence[Diagnostic]) -> None:
    """Report what is wrong; where that cannot be written either, the exit status alone says it."""
    try:
        console.report(diagnostics)
        sys.stderr.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _flush_quietly() -> None:
    with contextlib.suppress(OSError):
        sys.stdout.flush()

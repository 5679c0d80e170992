"""Writing generated files: never over a file that tqgen did not write, and only where the text differs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tqgen import outputs
from tqgen.commands.usage import UsageError
from tqgen.diagnostics import Diagnostic, Place, SpecError
from tqgen.outputs import Found, Output, State
from tqgen.paths import what_else

STANDARD_OUTPUT = Path("-")


def compare(wanted: Sequence[Output], complete: Sequence[Path] = ()) -> list[Found]:
    """The states of the files; UsageError where one cannot be read, or something stands where it cannot be written."""
    for folder in {output.path.parent for output in wanted}:
        for place in (folder, *folder.parents):
            if os.path.exists(place) and not os.path.isdir(place):
                message = "the output should go into a folder, but this is a file"
                raise UsageError("TQ4104", message, file=str(place), help="name a folder with `-o`")
    for output in wanted:
        if there := what_else(output.path):
            message = f"the output is a file, but {there} stands here"
            raise UsageError("TQ4104", message, file=str(output.path), help="name another file or folder with `-o`")
    try:
        return outputs.compare(wanted, complete)
    except OSError as error:
        raise _unusable(Path(error.filename or "."), "read", error) from None


def publish(found: Sequence[Found]) -> None:
    """Write what differs and say so; SpecError, and nothing is written, where a file of somebody else is in the way."""
    foreign = [
        Diagnostic(
            "TQ5004",
            "tqgen did not write the file that stands here, and leaves it as it is",
            Place(str(one.path)),
            help="move the file away, or choose another place; nothing was written",
        )
        for one in found
        if one.state is State.FOREIGN
    ]
    if foreign:
        raise SpecError(foreign)
    for one in found:
        if one.output is None:
            print(f"{one.path}: left over, no spec asks for it")
        elif one.state is State.CURRENT:
            print(f"{one.path}: unchanged")
        else:
            try:
                outputs.publish(one.output)
            except OSError as error:
                raise _unusable(one.path, "written", error) from None
            print(f"{one.path}: {'written, undoing an edit by hand' if one.state is State.EDITED else 'written'}")


def write(output: Output) -> None:
    """Put one file in place, or print it where its path is `-`; errors as `compare` and `publish`."""
    if output.path == STANDARD_OUTPUT:
        sys.stdout.write(output.text)
    else:
        publish(compare([output]))


def _unusable(path: Path, verb: str, error: OSError) -> UsageError:
    reason = (error.strerror or str(error)).lower()
    help = "name a folder that you may write to, with `-o`" if isinstance(error, PermissionError) else ""
    return UsageError("TQ4104", f"the file cannot be {verb}: {reason}", file=str(path), help=help)

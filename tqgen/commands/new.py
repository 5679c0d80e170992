"""`tqgen new`: a commented spec to start from."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from tqgen.commands import usage
from tqgen.commands.usage import UsageError
from tqgen.diagnostics import SpecError
from tqgen.documents.schema_file import MODELINE, NAME
from tqgen.layout.resolve import resolve
from tqgen.outputs import Output, publish
from tqgen.spec import parse_spec
from tqgen.spec.starter import Choice, only_legal, starter


def new(name: str, key: Choice, value: Choice, arrangement: str, head_dim: int, folder: Path) -> int:
    """Write `<name>.yaml` into the folder; what stands there already is never touched."""
    has_schema = (folder / NAME).is_file()
    try:
        text = starter(name, key, value, arrangement, head_dim, MODELINE if has_schema else "")
        layout = resolve(parse_spec(text, f"{name}.yaml"))
    except SpecError as error:
        first = error.diagnostics[0]
        raise UsageError("TQ4111", f"these choices make no layout: {first.message}", help=first.help) from None
    except ValueError as error:
        raise UsageError("TQ4111", str(error), help="leave the width out") from None
    text = only_legal(text, head_dim, _is_legal)
    path = folder / f"{name}.yaml"
    if os.path.lexists(path):  # a link that leads nowhere, too
        raise UsageError("TQ4110", "there is a file of this name already", file=str(path), help="choose another name")
    try:
        publish(Output(path, text))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError("TQ4104", f"the file cannot be written: {reason}", file=str(path)) from None
    print(f"{path}: written, {layout.slot_bytes} bytes for one token and head")
    if not has_schema:
        command = shlex.join(["tqgen", "schema", "-o", str(folder / NAME)])
        print(f"for completion in editors, run `{command}` and begin the spec with `{MODELINE}`")
    return usage.CLEAN


def _is_legal(text: str) -> bool:
    try:
        resolve(parse_spec(text))
    except SpecError:
        return False
    return True

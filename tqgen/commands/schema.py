"""`tqgen schema`: the JSON Schema of specs, for editors that complete and check YAML."""

from __future__ import annotations

import sys
from pathlib import Path

from tqgen.commands import files, usage
from tqgen.documents import schema_file
from tqgen.outputs import Output


def schema(output: Path | None) -> int:
    """Print the schema, or write it into a file."""
    if output is None:
        sys.stdout.write(schema_file.text())
    else:
        files.write(Output(output, schema_file.text()))
    return usage.CLEAN

"""The JSON Schema of specs as a file that editors read."""

from __future__ import annotations

import json

from tqgen import seal
from tqgen.spec import json_schema

NAME = "tqgen.schema.json"
MODELINE = f"# yaml-language-server: $schema={NAME}"  # at the top of a spec, it names the schema to editors


def text() -> str:
    """The schema, with a digest of itself."""
    dialect, *rest = json_schema().items()
    schema = dict([dialect, ("$comment", f"text: {seal.UNSEALED}"), *rest])
    return seal.seal(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")

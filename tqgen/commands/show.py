"""`tqgen show`: a spec at any stage of its compilation, as text, data or a picture."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tqgen.commands import files, usage
from tqgen.commands.console import width_of
from tqgen.layout.byte_map import Launch
from tqgen.outputs import Output

STAGES = ("spec", "layout", "plan", "source")


def show(argument: str, stage: str, as_json: bool, overrides: Mapping[str, str], launch: Launch) -> int:
    """Print one stage of one spec to stdout, as text or as JSON."""
    (path,) = usage.spec_paths([argument])
    text, data = _stage(path, stage, dict(overrides), launch)
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n" if as_json else text)
    return usage.CLEAN


def picture(argument: str, file: Path, overrides: Mapping[str, str], launch: Launch) -> int:
    """Draw the byte map of one spec into an SVG file."""
    from tqgen.layout.resolve import load
    from tqgen.picture import draw

    (path,) = usage.spec_paths([argument])
    files.write(Output(file, draw(load(path, overrides)[1], launch)))
    return usage.CLEAN


def _stage(path: Any, stage: str, overrides: dict[str, str], launch: Launch) -> tuple[str, Any]:
    """The stage as text and as plain data; only what the stage needs is imported and computed."""
    if stage in {"plan", "source"}:
        from tqgen.compiler import compile_spec

        compiled = compile_spec(path, overrides)
        if stage == "plan":
            return compiled.plan.describe().rstrip("\n") + "\n", compiled.plan.to_json()
        return compiled.source, {"name": compiled.name, "source": compiled.source}
    from tqgen.layout.resolve import load

    spec, layout = load(path, overrides)
    if stage == "spec":
        from tqgen.spec import dump_spec
        from tqgen.spec.expand import expand

        return dump_spec(spec), expand(spec).model_dump(mode="json", exclude_unset=True, exclude_none=True)
    from tqgen.layout.byte_map import byte_map
    from tqgen.layout.byte_map_text import render

    shown = byte_map(layout, launch)
    return render(shown, width_of(sys.stdout)), shown.to_json()

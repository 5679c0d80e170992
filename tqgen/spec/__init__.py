"""Specs as they come and go: from files and text, back to text, and as a schema for editors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from tqgen.diagnostics import Diagnostic, SpecError
from tqgen.spec.document import Document, parse_mapping
from tqgen.spec.dump import to_yaml
from tqgen.spec.expand import expand
from tqgen.spec.json_schema import json_schema
from tqgen.spec.models import Origin, Spec, is_module_name
from tqgen.spec.overrides import apply_overrides, without_doubles
from tqgen.spec.schema_errors import empty_values, translate
from tqgen.spec.source import Source, read_file

__all__ = ["MisnamedSpec", "Spec", "dump_spec", "json_schema", "load_spec", "parse_spec"]


class MisnamedSpec(SpecError):
    """A spec of which nothing is wrong but that its file is called otherwise; what it describes can be looked at."""

    def __init__(self, problems: Sequence[Diagnostic], spec: Spec) -> None:
        super().__init__(problems)
        self.spec = spec


def load_spec(path: str | Path, overrides: Mapping[str, str] | None = None) -> Spec:
    """Read a spec file.

    `overrides` maps dotted paths to YAML values that replace what the file says, as `--set key.bits=3` does. SpecError
    where the file cannot be read or is no valid spec, MisnamedSpec where it is just not called `<name>.yaml`.
    """
    path = Path(path)
    return _spec(Source(str(path), read_file(path)), overrides or {}, path.stem)


def parse_spec(text: str, file: str = "<text>", overrides: Mapping[str, str] | None = None) -> Spec:
    """A spec from its text; `file` is what diagnostics call it. SpecError as `load_spec`, whatever the file's name."""
    return _spec(Source(file, text), overrides or {}, None)


def _spec(source: Source, overrides: Mapping[str, str], stem: str | None) -> Spec:
    document = parse_mapping(source)
    misnamed = [] if stem is None else _stem_problems(document, stem)
    document, refused = apply_overrides(document, overrides)
    problems = [*misnamed, *refused, *empty_values(document)]
    try:
        spec = Spec.model_validate(document.data)
    except ValidationError as error:
        raise SpecError(without_doubles([*problems, *translate(error, document)])) from None
    spec._origin = Origin(document)
    if problems and problems == misnamed:
        raise MisnamedSpec(problems, spec)
    if problems:
        raise SpecError(without_doubles(problems))
    return spec


def _stem_problems(document: Document, stem: str) -> list[Diagnostic]:
    """The name that the file itself gives, before options change it, is the file's."""
    name = document.data.get("name")
    if not isinstance(name, str) or name == stem:
        return []
    message = f"the name is `{name}`, but the file is `{stem}.yaml`"
    help = f"rename the file to `{name}.yaml`"
    if is_module_name(stem):
        help = f"write `name: {stem}`, or {help}"
    return [Diagnostic("TQ2008", message, document.place(("name",)), help=help)]


def dump_spec(spec: Spec, *, expanded: bool = True) -> str:
    """The canonical print of a spec, which is read back to an equal spec.

    With `expanded`, the shorthands `block: aos` and `block: soa` are written out as regions: another spec, of the same
    layout.
    """
    return to_yaml(expand(spec) if expanded else spec)

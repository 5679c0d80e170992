"""docs/spec.md: the spec language. Tables come from the models, the prose from `templates/documents/spec.md.j2`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tqgen import codebooks, manifest
from tqgen.codecs import CODECS
from tqgen.codecs.base import SideParameters
from tqgen.documents.markdown import page, table
from tqgen.emit import environment
from tqgen.numerics.literals import plain
from tqgen.spec import json_schema, load_spec
from tqgen.spec.dump import to_yaml
from tqgen.spec.expand import expand
from tqgen.spec.models import MAX_HEAD_DIM, VERSION

EXAMPLE = "mse3_v4"


@dataclass(frozen=True)
class CodecPage:
    """What the reference says about one codec."""

    name: str
    about: str
    stores: str
    keys: str


@dataclass(frozen=True)
class Reference:
    """Everything that the page shows and that is not prose."""

    version: int
    max_head_dim: int
    example: str
    expanded: str
    top: str
    side: str
    codecs: tuple[CodecPage, ...]
    codebooks: str
    block: str
    shorthands: str
    region: str
    axis: str
    entry: str
    reserve: str


def text() -> str:
    """The page, with a digest of itself."""
    body = environment().get_template("documents/spec.md.j2").render(reference=_reference())
    return page("the models in tqgen/spec and tqgen/codecs, and templates/documents/spec.md.j2", body)


def _reference() -> Reference:
    schema = json_schema()
    definitions = schema["$defs"]
    example = manifest.locate(EXAMPLE)
    shorthands = schema["properties"]["block"]["oneOf"][0]
    shared = definitions[CODECS["none"].Parameters.__name__]
    return Reference(
        version=VERSION,
        max_head_dim=MAX_HEAD_DIM,
        example=_without_modeline(example.read_text(encoding="utf-8")),
        expanded=to_yaml(expand(load_spec(example))).partition("\nblock:")[2],
        top=_keys(schema),
        side=_keys(shared, only=tuple(key for key in SideParameters.model_fields if key != "codec")),
        codecs=tuple(_codec(name, definitions) for name in CODECS),
        codebooks=table(
            ("codebook", "widths", "what it is"),
            [(f"`{name}`", _widths(name), codebooks.description(name)) for name in codebooks.names()],
        ),
        block=_keys(definitions["Block"]),
        shorthands=table(
            ("shorthand", "what it is"),
            list(zip((f"`{one}`" for one in shorthands["enum"]), shorthands["enumDescriptions"], strict=True)),
        ),
        region=_keys(definitions["Region"]),
        axis=_keys(definitions["AlignedAxis"]),
        entry=_keys(definitions["Entry"]),
        reserve=_keys(definitions["Reserve"]),
    )


def _without_modeline(spec: str) -> str:
    return "\n".join(line for line in spec.splitlines() if not line.startswith("#"))


def _widths(name: str) -> str:
    widths = codebooks.widths(name)
    return f"{widths[0]} to {widths[-1]} bits" if len(widths) > 2 else " and ".join(f"{bits} bits" for bits in widths)


def _codec(name: str, definitions: Mapping[str, Any]) -> CodecPage:
    codec = CODECS[name]
    own = tuple(key for key in codec.Parameters.model_fields if key not in SideParameters.model_fields)
    return CodecPage(
        name=name,
        about=inspect.getdoc(codec.Parameters) or "",
        stores=(inspect.getdoc(type(codec)) or "").splitlines()[0],
        keys=_keys(definitions[codec.Parameters.__name__], only=own) if own else "",
    )


def _keys(model: Mapping[str, Any], only: tuple[str, ...] | None = None) -> str:
    """The table of a model's keys, from its JSON Schema."""
    required = model.get("required", ())
    rows = []
    for key, about in model["properties"].items():
        if only is None or key in only:
            default = "required" if key in required else _default(about)
            rows.append((f"`{key}`", _values(about), default, _meaning(about)))
    return table(("key", "values", "default", "meaning"), rows)


def _default(about: Mapping[str, Any]) -> str:
    if "default" not in about:
        return ""
    return f"`{_yaml(about['default'])}`" if about["default"] != "" else "empty"


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(inner)}" for key, inner in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(about: Mapping[str, Any]) -> str:
    """What may stand after the key, in words."""
    if "oneOf" in about:
        return ", ".join(_values(one) for one in about["oneOf"])
    if about.get("type") == "integer" and "enum" in about:
        return f"a power of two up to {about['enum'][-1]}"
    if "enum" in about:
        return ", ".join(f"`{_yaml(choice)}`" for choice in about["enum"])
    if "const" in about:
        return f"`{_yaml(about['const'])}`"
    if "allOf" in about or "$ref" in about:
        return _referred((about.get("$ref") or about["allOf"][0]["$ref"]).rpartition("/")[2])
    if about["type"] == "array":
        return "a list of: " + _values(about["items"])
    if about["type"] in ("integer", "number"):
        return _range(about)
    return {"boolean": "`true`, `false`", "string": "text"}[about["type"]]


def _referred(model: str) -> str:
    return {
        "Side": "[a side](#keys-and-values)",
        "Stored": "`{dtype: fp16}`, `bf16` or `fp32`",
        "Block": "[regions](#regions)",
        "Region": "[regions](#regions)",
        "AlignedAxis": "`{axis: head, align: 16}`",
        "Entry": "`{field: key.codes, align: 16}`",
        "Reserve": "`{reserved: 16}`",
    }[model]


def _range(about: Mapping[str, Any]) -> str:
    low, high = about["minimum"], about.get("maximum")
    kind = "a whole number" if about["type"] == "integer" else "a number"
    if high is None:
        return f"{kind}, at least {plain(low)}"
    return f"{plain(low)} to {plain(high)}"


def _meaning(about: Mapping[str, Any]) -> str:
    """The description; for choices, what each of them does."""
    choices = zip(about.get("enum", ()), about.get("enumDescriptions", ()), strict=False)
    return "<br>".join([about.get("description", ""), *(f"`{choice}`: {meaning}" for choice, meaning in choices)])

"""The JSON Schema of a spec, for editors that check and complete YAML, and show what a key means.

Draft 7, which editors know. It is what pydantic makes of the models, with three changes: what a side may hold is
decided by its codec (`if`, `then`), so that a mistake in one codec is not reported against all of them; null is no
value of anything; and every choice has its meaning beside it.
"""

from __future__ import annotations

from typing import Any

from tqgen.codecs import CODECS
from tqgen.spec.expand import SIDES
from tqgen.spec.models import Spec

DIALECT = "http://json-schema.org/draft-07/schema#"


def json_schema() -> dict[str, Any]:
    """The schema as plain data."""
    schema: dict[str, Any] = _plain(Spec.model_json_schema())
    schema["$defs"] = {"Side": _side(schema["$defs"]), **schema["$defs"]}
    for side in SIDES:
        about = schema["properties"][side]["description"]
        schema["properties"][side] = {"allOf": [{"$ref": "#/$defs/Side"}], "description": about}
    return {"$schema": DIALECT, "title": "tqgen spec", **schema}


def _side(definitions: dict[str, Any]) -> dict[str, Any]:
    """Keys or values: the codec first, then what it asks for."""
    models = {name: codec.Parameters.__name__ for name, codec in CODECS.items()}
    abouts = [definitions[model]["properties"]["codec"]["description"] for model in models.values()]
    codec = {"description": "how vectors become codes", "enum": list(models), "enumDescriptions": abouts}
    return {
        "type": "object",
        "properties": {"codec": codec},
        "required": ["codec"],
        "allOf": [
            {
                "if": {"properties": {"codec": {"const": name}}, "required": ["codec"]},
                "then": {"$ref": f"#/$defs/{model}"},
            }
            for name, model in models.items()
        ],
    }


def _plain(node: Any) -> Any:
    """The node without titles, without null, and with nothing beside a reference, which draft 7 would not look at."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _plain(value) for key, value in node.items() if not (key == "title" and isinstance(value, str))}
    if "anyOf" in node:
        kept = [item for item in node["anyOf"] if item != {"type": "null"}]
        if len(kept) == 1:
            node = {**{key: value for key, value in node.items() if key != "anyOf"}, **kept[0]}
    if node.get("default", 0) is None:
        del node["default"]
    if "$ref" in node and len(node) > 1:
        node["allOf"] = [{"$ref": node.pop("$ref")}]
    meanings = node.pop("meanings", None)
    if isinstance(meanings, dict):
        node["enumDescriptions"] = [meanings[choice] for choice in node["enum"]]
    return node

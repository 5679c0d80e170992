"""The JSON Schema takes what the compiler takes, and says what every key means."""

import json
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from tqgen import codebooks, resources
from tqgen.cli import run
from tqgen.codecs import CODECS
from tqgen.codecs.base import Stored
from tqgen.documents.schema_file import MODELINE
from tqgen.spec import json_schema
from tqgen.spec.document import parse_mapping
from tqgen.spec.models import AlignedAxis, Block, Entry, Region, Reserve, Spec
from tqgen.spec.source import Source

SCHEMA = json_schema()
MODELS = [Spec, Block, Region, AlignedAxis, Entry, Reserve, Stored, *(codec.Parameters for codec in CODECS.values())]
SPECS = sorted(resources.specs().glob("*.yaml"))
BAD = Path(__file__).parent / "specs_bad"


def problems(node, schema=SCHEMA):
    """Whether a value breaks a schema, for the words that this one uses: a validator of thirty lines."""
    if "$ref" in schema:
        return problems(node, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]])
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool}
    kind = schema.get("type")
    if kind in kinds and not isinstance(node, kinds[kind]):
        return True
    if kind == "integer" and type(node) is not int:
        return True
    if kind == "number" and type(node) not in (int, float):
        return True
    if ("enum" in schema and node not in schema["enum"]) or ("const" in schema and node != schema["const"]):
        return True
    if type(node) in (int, float) and not schema.get("minimum", node) <= node <= schema.get("maximum", node):
        return True
    if "oneOf" in schema and sum(not problems(node, one) for one in schema["oneOf"]) != 1:
        return True
    for one in schema.get("allOf", ()):
        then = one.get("then", {}) if "if" in one else one
        if ("if" not in one or not problems(node, one["if"])) and problems(node, then):
            return True
    if isinstance(node, list):
        few, many = schema.get("minItems", 0), schema.get("maxItems", len(node))
        if not few <= len(node) <= many or any(problems(item, schema.get("items", {})) for item in node):
            return True
    if isinstance(node, dict):
        known = schema.get("properties", {})
        if any(key not in node for key in schema.get("required", ())):
            return True
        if schema.get("additionalProperties") is False and set(node) - set(known):
            return True
        return any(problems(node[key], about) for key, about in known.items() if key in node)
    return False


def data_of(path):
    return parse_mapping(Source(str(path), path.read_text(encoding="utf-8"))).data


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_shipped_specs_fit_and_name_their_schema(path):
    assert not problems(data_of(path))
    assert path.read_text(encoding="utf-8").startswith(MODELINE + "\n")


@pytest.mark.parametrize(
    "name",
    [
        *("out_of_range", "keys_unknown", "keys_missing", "illegal_words", "wrong_kinds", "version_two", "align_three"),
        *("wrong_kinds_in_regions", "codebook_unknown", "block_is_a_number", "illegal_shorthand", "words_of_yaml_1_1"),
    ],
)
def test_bad_specs_do_not_fit(name):
    assert problems(data_of(BAD / f"{name}.yaml"))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_key_and_every_choice_has_a_meaning(model):
    for name, info in model.model_fields.items():
        assert info.description, name
        annotation = info.annotation
        choices = get_args(annotation) if get_origin(annotation) is Literal else ()
        if len(choices) > 1 and model is not AlignedAxis:
            assert set(info.json_schema_extra["meanings"]) == set(choices), name


def test_no_trace_of_how_it_is_made():
    text = json.dumps(SCHEMA)
    assert '"title": "tqgen spec"' in text and text.count('"title"') == 1
    assert "null" not in text and "meanings" not in text and "anyOf" not in text
    mse = SCHEMA["$defs"]["MseParameters"]["properties"]
    assert mse["codebook"]["enum"] == list(codebooks.names())
    assert len(mse["tie"]["enum"]) == len(mse["tie"]["enumDescriptions"]) == 2


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["schema"]) == 0
    out = capsys.readouterr().out
    assert {key: value for key, value in json.loads(out).items() if key != "$comment"} == SCHEMA
    assert run(["schema", "-o", "a/tqgen.schema.json"]) == 0
    assert (tmp_path / "a" / "tqgen.schema.json").read_text() == out
    (tmp_path / "mine.json").write_text("{}")
    assert run(["schema", "-o", "mine.json"]) == 1 and "TQ5004" in capsys.readouterr().err
    assert (tmp_path / "mine.json").read_text() == "{}"

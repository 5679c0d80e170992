"""From text to a spec and back."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.random_specs import spec_texts

from tqgen.codecs import CODECS
from tqgen.diagnostics import SpecError
from tqgen.layout.resolve import resolve
from tqgen.spec import Spec, dump_spec, json_schema, load_spec, parse_spec, scalars
from tqgen.spec.expand import expand
from tqgen.spec.models import is_module_name
from tqgen.spec.taken import OF_OTHER_PYTHONS, TAKEN, free_name

ROOT = Path(__file__).parent.parent
SHIPPED = sorted((ROOT / "specs").glob("*.yaml"))
NAMES = {
    *(f"{key}_{value}{tag}" for key in ("fp8", "mse3", "mse4") for value in ("v3", "v4") for tag in ("", "_aos")),
    *("none_vmse2", "none_vmse3", "none_vmse4", "mse3_vmse3", "mse4_vmse4", "mse4_v4_hm", "mse4_v4_aligned"),
}
SIMPLE = """\
tqgen: 1
name: simple
head_dim: 128
key: {codec: mse, bits: 3}
value: {codec: uniform, bits: 4}
"""


def test_the_shipped_specs():
    assert {path.stem for path in SHIPPED} == NAMES


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_specs_say_what_they_are(path):
    spec = load_spec(path)
    assert spec.name == path.stem and spec.head_dim == 128 and len(spec.doc) > 40 and spec.doc.endswith(".")
    key, value = re.fullmatch(r"([a-z0-9]+)_([a-z0-9]+)(?:_(?:aos|hm|aligned))?", spec.name).groups()
    for side, word in ((spec.key, key), (spec.value, value)):
        codec, bits = re.fullmatch(r"(fp8|none|mse|vmse|v)(\d?)", word).groups()
        assert side.codec == {"vmse": "mse", "v": "uniform"}.get(codec, codec)
        assert getattr(side, "bits", None) == (int(bits) if bits else None)
    sides = [side for side in (spec.key, spec.value) if side.codec == "mse"]
    wanted = "load" if "_aos" in spec.name or "none" in spec.name else "store"
    assert {side.norm_correction for side in sides} <= {wanted}
    stated = int(re.search(r"^# (\d+) bytes", path.read_text(encoding="utf-8"), re.MULTILINE)[1])
    assert resolve(spec).slot_bytes == stated


def test_what_a_short_spec_means():
    spec = parse_spec(SIMPLE)
    assert (spec.tqgen, spec.name, spec.doc, spec.head_dim, spec.block) == (1, "simple", "", 128, "soa")
    assert (spec.key.codec, spec.key.bits, spec.key.codebook, spec.key.norm.dtype) == ("mse", 3, "lloyd_max", "fp16")
    assert (spec.value.group, spec.value.symmetric, spec.value.rounding) == (None, False, "half_up")
    assert type(spec.key) is CODECS["mse"].Parameters


def test_specs_are_frozen_and_equal_by_value():
    one, other = parse_spec(SIMPLE, "a.yaml"), parse_spec("# comment\n\n" + SIMPLE, "b.yaml")
    assert one == other and one.place(("key", "bits")).line == 4 and other.place(("key", "bits")).line == 6
    assert one != parse_spec(SIMPLE.replace("3", "4"))
    with pytest.raises(ValueError, match="frozen"):
        one.head_dim = 64


def test_places():
    spec = parse_spec(SIMPLE, "simple.yaml")
    at = lambda *path, on="value": (lambda p: (p.line, p.column, p.length))(spec.place(path, on))  # noqa: E731
    assert at("key", "bits") == (4, 25, 1) and at("key", "bits", on="key") == (4, 19, 4)
    assert at("value") == (5, 8, 25)
    assert at("value", "group") == (5, 1, 5)  # not written: the key above it
    assert at("block", "regions", 0) == (1, 1, 8)
    assert Spec(tqgen=1, name="x", head_dim=8, key={"codec": "none"}, value={"codec": "none"}).place(()).line == 0


def test_comments_block_scalars_and_quotes():
    text = SIMPLE.replace("name: simple", "name: 'simple' # comment\ndoc: >\n  two\n  lines\n")
    spec = parse_spec(text)
    assert (spec.name, spec.doc) == ("simple", "two lines\n")


# options


def test_head_dim_changes_the_name_and_nothing_else_does():
    assert parse_spec(SIMPLE, overrides={"head_dim": "64"}).name == "simple_d64"
    spec = parse_spec(SIMPLE, overrides={"head_dim": "64", "name": "mine"})
    assert (spec.name, spec.head_dim) == ("mine", 64)
    assert parse_spec(SIMPLE, overrides={"name": "mine"}) == parse_spec(SIMPLE.replace("simple", "mine"))


def test_a_spec_that_was_changed_does_not_say_what_it_was():
    text = SIMPLE + "doc: 4 bits, as others have them\n"
    assert parse_spec(text, overrides={"head_dim": "64"}).doc == "simple with head_dim=64."
    overrides = {"key.bits": "3", "name": "mine", "block": "aos"}
    assert parse_spec(text, overrides=overrides).doc == "simple with key.bits=3, block=aos."
    assert parse_spec(text, overrides={**overrides, "doc": "mine"}).doc == "mine"
    assert parse_spec(text, overrides={"name": "mine"}).doc == "4 bits, as others have them"


def test_options_replace_and_create_keys():
    overrides = {"name": "mine", "key.bits": "0x5", "value.scale.dtype": "fp32", "key.norm": "{dtype: bf16}"}
    spec = parse_spec(SIMPLE, overrides={**overrides, "block": "aos", "doc": "some text", "value.group": "32"})
    assert (spec.key.bits, spec.key.norm.dtype, spec.value.scale.dtype) == (5, "bf16", "fp32")
    assert (spec.block, spec.doc, spec.value.group) == ("aos", "some text", 32)


def test_options_reach_into_lists():
    text = SIMPLE + "block: {regions: [{name: a, order: [token, head, field], fields: [key.codes]}]}\n"
    overrides = {"name": "mine", "block.regions.0.order.0": "head", "block.regions.0.order.1": "token"}
    assert parse_spec(text, overrides=overrides).block.regions[0].order == ("head", "token", "field")


def test_the_name_in_the_file_is_checked_and_not_that_of_an_option(tmp_path):
    path = tmp_path / "simple.yaml"
    path.write_text(SIMPLE)
    assert load_spec(path, {"head_dim": "64"}).name == "simple_d64"
    assert load_spec(str(path), {"name": "mine", "key.bits": "2"}).name == "mine"


# the canonical print


def test_canonical_print():
    text = dump_spec(parse_spec(SIMPLE.replace("bits: 3", "norm: {dtype: bf16}, bits: 3, rotation: hadamard")))
    assert text == (
        "tqgen: 1\n"
        "name: simple\n"
        "head_dim: 128\n"
        "\n"
        "key:\n"
        "  codec: mse\n"
        "  bits: 3\n"
        "  norm: {dtype: bf16}\n"
        "  rotation: hadamard\n"
        "\n"
        "value:\n"
        "  codec: uniform\n"
        "  bits: 4\n"
        "\n"
        "block:\n"
        "  regions:\n"
        "    - {name: data, order: [token, head, field], fields: [key.codes, value.codes]}\n"
        "    - name: meta\n"
        "      order: [head, field, token]\n"
        "      fields: [key.norm, value.scale, value.zero]\n"
        "      align: 2\n"
    )


def test_soa_says_its_slot_where_that_is_not_the_default():
    odd = {"name": "x", "value": "{codec: fp8}", "head_dim": "9"}
    assert dump_spec(parse_spec(SIMPLE, overrides=odd)).endswith("  slot_bytes: 16\n")


def test_aos_in_full():
    text = dump_spec(parse_spec(SIMPLE, overrides={"name": "x", "block": "aos"}))
    assert "order: [token, {axis: head, align: 2}, field]\n" in text
    assert "fields: [key.codes, key.norm, value.codes, value.scale, value.zero]\n" in text


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_specs_survive_printing(path):
    check_print(load_spec(path))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(spec_texts())
def test_specs_survive_printing(text):
    check_print(parse_spec(text))


def check_print(spec):
    text = dump_spec(spec)
    assert parse_spec(text) == expand(spec) and dump_spec(parse_spec(text)) == text
    assert resolve(parse_spec(text)) == resolve(spec)
    assert parse_spec(dump_spec(spec, expanded=False)) == spec
    assert max(map(len, text.splitlines())) <= 120


TEXT = st.text(
    st.one_of(
        st.sampled_from(" #:'\"-[]{},&*!|>%@`?a0~.\n\t\\"),
        st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\u2028\u2029\ufeff\ufffe\uffff"),
    )
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(TEXT)
@example("word " * 40 + "end")
@example(("# - : 'x' " * 40).strip())
@example("---\n" * 40 + "\xa0" * 200)
@example("a" * 300 + " b")
def test_any_text_survives_printing(doc):
    spec = Spec.model_validate({**parse_spec(SIMPLE).model_dump(exclude_unset=True), "doc": doc})
    assert parse_spec(dump_spec(spec, expanded=False)) == spec


# scalars


@pytest.mark.parametrize(
    "text, value",
    [
        *[("", None), ("~", None), ("null", None), ("nULL", "nULL"), ("true", True), ("False", False), ("yes", "yes")],
        *[
            ("12", 12),
            ("-3", -3),
            ("+4", 4),
            ("0o17", 15),
            ("0x1F", 31),
            ("0b1", "0b1"),
            ("1_000", "1_000"),
            ("1:30", "1:30"),
        ],
        *[("1.5", 1.5), (".5", 0.5), ("1e-8", 1e-8), ("2.", 2.0), ("1e", "1e"), (".", "."), (".inf", float("inf"))],
        *[("9" * 5000, scalars.HUGE), ("-" + "9" * 5000, -scalars.HUGE), ("0x" + "f" * 5000, scalars.HUGE)],
    ],
)
def test_plain_scalars_of_yaml_1_2(text, value):
    found = scalars.resolve(text)
    assert found == value and type(found) is type(value)


def test_not_a_number():
    assert scalars.resolve(".nan") != scalars.resolve(".nan")


@pytest.mark.parametrize(
    "text, value",
    [
        ("1:30", 90),
        ("-1:00:01", -3601),
        ("1_000", 1000),
        ("-1_0", -10),
        ("0b101", 5),
        ("12", None),
        ("x", None),
        ("0b", None),
    ],
)
def test_numbers_of_yaml_1_1(text, value):
    assert scalars.meant_as_number(text) == value


# the schema for editors


def test_json_schema_knows_every_key():
    schema = json_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert set(schema["properties"]) == set(Spec.model_fields)
    assert set(schema["required"]) == {"tqgen", "name", "head_dim", "key", "value"}
    for codec in CODECS.values():
        side = schema["$defs"][codec.Parameters.__name__]
        assert set(side["properties"]) == set(codec.Parameters.model_fields)
        assert side["additionalProperties"] is False
        assert all(key.get("description") or "$ref" in key for key in side["properties"].values())


# weight


def test_the_front_end_imports_nothing_heavy():
    command = "import sys, tqgen.spec, tqgen.layout.resolve; print(sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = set(ast.literal_eval(found.stdout))
    assert "tqgen.layout.resolve" in modules
    assert not modules & {"torch", "triton", "numpy", "black", "jinja2", "typer"}


def test_names_of_modules_that_others_import_are_refused():
    """What generated modules import, and what torch, triton and tqgen do: a module beside a script would hide it."""
    found = {"tqgen", "json", "os", "asyncio", *OF_OTHER_PYTHONS}
    for path in sorted((ROOT / "generated").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(str(node.module).partition(".")[0])
    command = "import sys, torch, triton; print({name.partition('.')[0] for name in sys.modules})"
    ran = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    # names of `__main__`, and of files by which an environment says where it is
    found |= {name for name in ast.literal_eval(ran.stdout) if not name.startswith("_")}
    for line in (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        if needed := re.match(r'    "([a-z0-9]+)[\w.-]*>=[^;]*",', line):
            found.add(needed[1])
    assert {"torch", "typing_extensions", "black", "ruamel"} <= found <= TAKEN
    for name in sorted(found):
        with pytest.raises(SpecError, match=f"TQ2007.* a module called `{name}` would hide another"):
            parse_spec(SIMPLE.replace("simple", name), "one.yaml")


@pytest.mark.parametrize("name", ["json", "tqgen", "__init__", "__", "_thread"])
def test_names_that_are_taken_get_another_that_is_free(name):
    assert not is_module_name(name) and is_module_name(free_name(name))


@pytest.mark.parametrize("name", ["mse3_v4", "jsons", "Json", "match", "type", "_mine"])
def test_other_names_are_free(name):
    assert parse_spec(SIMPLE.replace("simple", name), "one.yaml").name == name


def test_the_smallest_floor_can_be_typed_back():
    with pytest.raises(SpecError) as refused:
        parse_spec(SIMPLE.replace("bits: 4}", "bits: 4, scale_floor: 0}"), "one.yaml")
    said = re.search(r"must be (\S+)\.\.1", str(refused.value))
    assert said and parse_spec(SIMPLE.replace("bits: 4}", f"bits: 4, scale_floor: {said[1]}}}"), "one.yaml")


@pytest.mark.parametrize(
    ("stem", "help"), [("a-b", "rename the file"), ("torch", "rename the file"), ("b", "write `name: b`")]
)
def test_only_names_that_can_be_given_are_suggested(tmp_path, stem, help):
    path = tmp_path / f"{stem}.yaml"
    path.write_text(SIMPLE)
    with pytest.raises(SpecError, match=f"help: {help}"):
        load_spec(path)

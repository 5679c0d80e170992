"""What whoever adds a codec is told: keys without a description, helpers and templates that are not there, folding."""

import dataclasses
import sys
import types
from typing import Literal

import pytest
from jinja2 import FileSystemLoader

from tqgen import codecs, emit, resources
from tqgen.codecs.base import Codec, SideParameters
from tqgen.layout.resolve import resolve
from tqgen.lower import lower
from tqgen.spec import parse_spec

SPEC = """
tqgen: 1
name: mine
head_dim: 64
key: {codec: uniform, bits: 4}
value: {codec: raw, dtype: fp16}
"""


@pytest.fixture(scope="module")
def plan():
    return lower(resolve(parse_spec(SPEC)), "mine.yaml")


def test_an_unknown_helper_is_named(plan):
    with pytest.raises(emit.TemplateFault, match="templates/parts/ has the helpers quotent"):
        emit.draft(dataclasses.replace(plan, helpers=plan.helpers | {"quotent"}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "templates/codecs/raw.py.j2 is missing"),
        ("{# one #}\n{% macro encode(side) %}\n{% if %}\n", r"templates/codecs/raw\.py\.j2:3: "),
        ("{% macro tables(side) %}\n{{ side.constants.steeps }}\n{% endmacro %}\n", r"codecs/raw\.py\.j2:2: .*steeps"),
        ("{% macro table(side) %}{% endmacro %}\n", r"templates/module\.py\.j2:\d+: .*tables"),
    ],
)
def test_a_template_at_fault_is_named_with_its_line(plan, monkeypatch, tmp_path, text, said):
    own = emit.environment()
    without = tmp_path / "templates"
    without.mkdir()
    for path in resources.templates().rglob("*.j2"):
        name = path.relative_to(resources.templates())
        (without / name).parent.mkdir(exist_ok=True)
        if str(name) != "codecs/raw.py.j2":
            (without / name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        elif text is not None:
            (without / name).write_text(text, encoding="utf-8")
    made = own.overlay(loader=FileSystemLoader(without))
    monkeypatch.setattr(emit, "environment", lambda: made)
    with pytest.raises(emit.TemplateFault, match=said):
        emit.draft(plan)


def test_a_key_without_a_description_is_refused(monkeypatch):
    class Parameters(SideParameters):
        codec: Literal["mute"]
        bits: int

    class Mute(Codec):
        name = "mute"

    Mute.Parameters = Parameters
    module = types.ModuleType("tqgen.codecs.mute")
    module.CODEC = Mute()
    monkeypatch.setitem(sys.modules, "tqgen.codecs.mute", module)
    monkeypatch.setattr(codecs.pkgutil, "iter_modules", lambda path: [types.SimpleNamespace(name="mute")])
    with pytest.raises(TypeError, match="codec mute: the key `codec` has no description"):
        codecs._discover()


@pytest.mark.parametrize(
    ("side", "head_dim", "said"),
    [
        ("{codec: uniform, bits: 5}", 64, "no assembly for 5 bits"),
        ("{codec: uniform, bits: 4, group: 32}", 64, "more than one scale a token"),
        ("{codec: uniform, bits: 4}", 100, "100 elements are few, or not whole words"),
        ("{codec: uniform, bits: 4}", 32, "32 elements are few, or not whole words"),
        ("{codec: raw, dtype: bf16}", 64, "multiplied as they are stored"),
        ("{codec: raw, dtype: fp32}", 64, "rounded to fp16"),
    ],
)
def test_the_plan_says_why_a_side_is_decoded(side, head_dim, said):
    text = f"tqgen: 1\nname: mine\nhead_dim: {head_dim}\nkey: {side}\nvalue: {side}\n"
    attention = lower(resolve(parse_spec(text)), "mine.yaml").attention
    assert not attention.key.folded and said in attention.key.why

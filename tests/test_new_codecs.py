"""What whoever adds a codec is told: keys without a description, names and templates that are not there, leftovers."""

import sys
import types
from typing import Literal

import pytest
from jinja2 import FileSystemLoader
from support.leftovers import leftovers

from tqgen import codecs, emit, reached, resources
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


def templates_with(folder, name, text):
    """The environment of the templates of which one has another text; None: it is missing."""
    for path in resources.templates().rglob("*.j2"):
        own = path.relative_to(resources.templates())
        (folder / own).parent.mkdir(parents=True, exist_ok=True)
        if str(own) != name:
            (folder / own).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        elif text is not None:
            (folder / own).write_text(text, encoding="utf-8")
    return emit.environment().overlay(loader=FileSystemLoader(folder))


RAW = (resources.templates() / "codecs/raw.py.j2").read_text(encoding="utf-8")


def in_decode(statement):
    """The template of `raw` with one more statement where codes are decoded."""
    found = RAW.index('"""', RAW.index("def _decode_"))
    end = RAW.index("\n", found) + 1
    return f"{RAW[:end]}    {statement}\n{RAW[end:]}"


def test_a_function_that_no_template_has_is_named(plan, monkeypatch, tmp_path):
    made = templates_with(tmp_path / "templates", "codecs/raw.py.j2", in_decode("codes = _quotent(codes)"))
    monkeypatch.setattr(emit, "environment", lambda: made)
    with pytest.raises(emit.TemplateFault, match="`_quotent` of `_decode_value` is defined nowhere: no template"):
        emit.draft(plan)


def test_a_template_that_writes_no_python_is_named(plan, monkeypatch, tmp_path):
    made = templates_with(tmp_path / "templates", "codecs/raw.py.j2", in_decode("codes = (codes"))
    monkeypatch.setattr(emit, "environment", lambda: made)
    with pytest.raises(emit.TemplateFault, match="no Python"):
        emit.draft(plan)


def test_a_local_that_a_template_does_not_read_is_seen(plan, monkeypatch, tmp_path):
    assert leftovers(emit.draft(plan)) == []
    made = templates_with(tmp_path / "templates", "codecs/raw.py.j2", in_decode("others = codes"))
    monkeypatch.setattr(emit, "environment", lambda: made)
    assert leftovers(emit.draft(plan)) == ["_decode_value assigns others, which it never reads"]


def test_a_function_that_nothing_calls_is_seen_and_left_out(plan, monkeypatch, tmp_path):
    macro = "{% macro tables(side) %}\n"
    added = "# On it.\ndef _first(x):\n    return _second(x)\n\n\ndef _second(x):\n    return _first(x)\n\n\n"
    text = RAW.replace("{% macro tables(side) %}", macro + added, 1)
    made = templates_with(tmp_path / "templates", "codecs/raw.py.j2", text)
    right = emit.draft(plan)
    monkeypatch.setattr(emit, "environment", lambda: made)
    assert emit.draft(plan).split() == right.split()
    monkeypatch.setattr(reached, "without_unreached", lambda text: text)
    assert "_quotient is never read" not in leftovers(right)
    assert "_round_half_even is never read" in leftovers(emit.draft(plan))


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
    made = templates_with(tmp_path / "templates", "codecs/raw.py.j2", text)
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

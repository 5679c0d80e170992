"""What whoever adds a codec is told: keys without a description, names and templates that are not there, leftovers."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import types

import pytest
from jinja2 import FileSystemLoader
from support.leftovers import leftovers

from tqgen import codecs, emit, reached, resources
from tqgen.cli import run
from tqgen.faults import TemplateFault
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


def fault_of(plan, monkeypatch, folder, text, name="codecs/raw.py.j2"):
    """The one diagnostic about a template with this text."""
    made = templates_with(folder / "templates", name, text)
    monkeypatch.setattr(emit, "environment", lambda: made)
    with pytest.raises(TemplateFault) as raised:
        emit.draft(plan)
    (found,) = raised.value.diagnostics
    return found


@pytest.mark.parametrize(
    ("statement", "name", "help"),
    [
        ("codes = _quotent(codes)", "_quotent", "did you mean `_quotient`?"),
        (
            "codes = _nothing_like_it(codes)",
            "_nothing_like_it",
            "functions that macros may call are in templates/parts/",
        ),
        ("codes = coeds + 1", "coeds", "did you mean `codes`?"),
    ],
)
def test_a_name_that_nothing_defines_is_told_with_its_line(plan, monkeypatch, tmp_path, statement, name, help):
    text = in_decode(statement)
    found = fault_of(plan, monkeypatch, tmp_path, text)
    assert found.code == "TQ6004" and found.help == help
    assert found.message == f"`_decode_value` reads `{name}`, which nothing defines, in `{statement}`"
    line = 1 + text.splitlines().index(f"    {statement}")
    assert (found.file, found.line, found.column) == ("templates/codecs/raw.py.j2", line, 5 + statement.index(name))


def test_what_functions_bind_themselves_is_defined():
    """Of all kinds that a name can be bound in; what is left out is not looked at."""
    text = """
import a.b as c, d.e
from f import g

def public(x, *y, z=1, **w):
    import h
    def inner(i): return i + __name__
    class Own: pass
    with x as j: pass
    try: k = [l for l in y]
    except ValueError as m: print(m, l)
    return (lambda n: n + (o := c.b))(d.e), g, h, inner, Own, j, k, o, z, w

def _never_called(): return nothing
"""
    reached.without_unreached(text)
    for name in ("h", "m", "o", "g"):
        with pytest.raises(reached.UnknownNames) as raised:
            reached.without_unreached(text + f"\ndef other():\n    return 1 + {name * 3}\n")
        (found,) = raised.value.found
        assert (found.name, found.reader, found.line) == (name * 3, "other", text.count("\n") + 3)


@pytest.mark.parametrize(
    ("statement", "why"), [("codes = (codes", "was never closed"), ("codes = = 1", "invalid syntax")]
)
def test_a_template_that_writes_no_python_is_named(plan, monkeypatch, tmp_path, statement, why):
    text = in_decode(statement)
    found = fault_of(plan, monkeypatch, tmp_path, text)
    assert found.code == "TQ6003" and why in found.message
    assert "of `_decode_value` is no Python" in found.message and f"`{statement}`" in found.message
    assert (found.file, found.line) == ("templates/codecs/raw.py.j2", 1 + text.splitlines().index(f"    {statement}"))


def test_text_that_cannot_be_formatted_is_told_as_text_that_is_no_python(plan, monkeypatch):
    text = "def _one():\n    return 1\n\n\ndef _two():\n    return )\n"
    monkeypatch.setattr(emit, "draft", lambda plan: text)
    with pytest.raises(TemplateFault, match="of `_two` is no Python: it cannot be read in `return "):
        emit.emit(plan)


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
        ("{# one #}\n{% macro encode(side) %}\n{% if %}\n", r"templates/codecs/raw\.py\.j2:3:"),
        ("{% macro tables(side) %}\n{{ side.constants.steeps }}\n{% endmacro %}\n", r"codecs/raw\.py\.j2:2:19\n"),
        ("{% macro tables(side) %}\n{{ steeps }}\n{% endmacro %}\n", r"codecs/raw\.py\.j2:2:4\n"),
        ("{% macro tables(side) %}\n{{ 1 // 0 }}\n{% endmacro %}\n", r"written out: .*zero\n --> .*raw\.py\.j2:2:1\n"),
        ("{% macro table(side) %}{% endmacro %}\n", r"raw\.py\.j2 has no macro `tables`\n(.*\n)*.*mean it by `table`"),
        (
            "{% macro tables(side) %}{% endmacro %}\n",
            r"raw\.py\.j2 has no macro `encode`\n(.*\n)*.*add `{% macro encode",
        ),
    ],
)
def test_a_template_at_fault_is_named_with_its_line(plan, monkeypatch, tmp_path, text, said):
    found = fault_of(plan, monkeypatch, tmp_path, text)
    assert found.code == "TQ6002" and re.search(said, found.render()), found.render()


def test_a_fault_of_tqgen_itself_is_none_of_a_template(monkeypatch, plan):
    monkeypatch.setattr(emit, "environment", lambda: types.SimpleNamespace(get_template=lambda name: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        emit.draft(plan)


@pytest.mark.parametrize(
    "command", [["check"], ["build", "-o", "out"], ["show", "--stage", "source"], ["diff", "mine.yaml"]]
)
def test_commands_tell_of_a_template_at_fault(monkeypatch, tmp_path, capsys, command):
    made = templates_with(tmp_path / "templates", "codecs/raw.py.j2", "{% macro tables(side) %}{% endmacro %}\n")
    monkeypatch.setattr(emit, "environment", lambda: made)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(SPEC)
    assert run([*command, "mine.yaml"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and not (tmp_path / "out").exists()
    assert err.startswith("error[TQ6002]: templates/codecs/raw.py.j2 has no macro `encode`\n")


CODEC = """
from typing import Literal

from pydantic import Field

from tqgen.codecs.base import Codec, SideParameters


class MuteParameters(SideParameters):
    codec: Literal["mute"] = Field(description="none")
    bits: int = Field(description="width")


class Mute(Codec):
    name = "mute"
    Parameters = MuteParameters


CODEC = Mute()
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('bits: int = Field(description="width")', "bits: int", "the key `bits` of codec `mute` has no description"),
        ("CODEC = ", "CODECS = ", "the file defines no `CODEC`"),
        ("CODEC = Mute()", "CODEC = Mute", "`CODEC` is no codec"),
        ("    Parameters = MuteParameters\n", "", "the codec has no `Parameters`"),
        ('name = "mute"', 'name = "dumb"', "the codec is called `dumb`, and its file `mute.py`"),
        ("class Mute(Codec):", "class Mute(Codec:", "the codec's file is no Python"),
        ("class Mute(Codec):", "class Mute(Codek):", "cannot be imported: NameError: name 'Codek' is not defined"),
    ],
)
def test_a_file_that_gives_no_codec_is_refused(monkeypatch, tmp_path, old, new, said):
    assert old in CODEC
    for text in (CODEC, CODEC.replace(old, new)):
        (tmp_path / "mute.py").write_text(text)
        monkeypatch.delitem(sys.modules, "tqgen.codecs.mute", raising=False)
        monkeypatch.setattr(codecs, "__path__", [str(tmp_path)])
        importlib.invalidate_caches()
        if text == CODEC:
            assert list(codecs._discover()) == ["mute"]
            continue
        with pytest.raises(codecs.CodecFault) as raised:
            codecs._discover()
        (found,) = raised.value.diagnostics
        assert found.code == "TQ6001" and said in found.message and found.file == "tqgen/codecs/mute.py"
        if "class" in old:
            assert found.line == 1 + text.splitlines().index(new) and found.place.text == new
    sys.modules.pop("tqgen.codecs.mute", None)


def test_the_command_line_tells_of_a_codec_at_fault(tmp_path):
    """In a process of its own, as codecs are found when they are first imported."""
    copy = tmp_path / "tqgen"
    shutil.copytree(resources.PACKAGE, copy / "tqgen", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tqgen" / "codecs" / "mute.py").write_text(CODEC.replace("CODEC =", "CODECS ="))
    (tmp_path / "mine.yaml").write_text(SPEC)
    command = [sys.executable, "-m", "tqgen", "check", "mine.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith(
        "error[TQ6001]: the file defines no `CODEC`\n --> tqgen/codecs/mute.py\n"
    ), done.stderr


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

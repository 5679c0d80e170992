"""`tqgen new`: whatever is chosen, what it writes can be built, and nothing is overwritten."""

import itertools
import json

import pytest

from tqgen.cli import run
from tqgen.codecs import CODECS
from tqgen.layout.resolve import resolve
from tqgen.spec import load_spec, parse_spec
from tqgen.spec.starter import ARRANGEMENTS, Choice, starter


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys, *arguments):
    assert run(["--error-format", "json", "new", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return json.loads(line)


def test_the_command_for_a_schema_can_be_copied(folder, capsys):
    (folder / "my specs").mkdir()
    assert run(["new", "mine", "-o", "my specs"]) == 0
    assert "`tqgen schema -o 'my specs/tqgen.schema.json'`" in capsys.readouterr().out


def test_a_spec_to_start_from(folder, capsys):
    assert run(["new", "mine"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("mine.yaml: written, 134 bytes for one token and head\n") and "tqgen schema" in out
    assert run(["check", "mine.yaml"]) == 0
    spec = load_spec("mine.yaml")
    assert (spec.key.codec, spec.key.bits, spec.value.codec, spec.block) == ("mse", 4, "uniform", "soa")
    assert spec.key.rotation == "hadamard"


def test_choices(folder):
    choices = ["--key", "uniform", "--key-bits", "3", "--value", "mse", "--value-bits", "2", "--head-dim", "96"]
    assert run(["new", "mine", *choices, "--arrangement", "head-major", "-o", "some/where"]) == 0
    spec = load_spec("some/where/mine.yaml")
    assert (spec.key.bits, spec.value.bits, spec.head_dim) == (3, 2, 96)
    assert (spec.value.rotation, spec.value.rotation_block) == ("hadamard", 32)
    (region,) = resolve(spec).regions
    assert region.order == ("head", "token", "field") and len(region.entries) == 5


PAIRS = [pair for pair in itertools.product(CODECS, repeat=2) if set(pair) != {"none"}]


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_every_choice_gives_a_layout(pair, arrangement):
    for head_dim in (1, 7, 100, 128):
        text = starter("x", Choice(pair[0]), Choice(pair[1]), arrangement, head_dim)
        layout = resolve(parse_spec(text, "x.yaml"))
        assert (layout.key.codec.name, layout.value.codec.name) == pair
        assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "none"])
def test_every_key_is_there_to_be_found(codec):
    text = starter("x", Choice(codec), Choice("none"), "soa", 128)
    keys = {line.strip().removeprefix("# ").partition(":")[0] for line in text.splitlines()}
    wanted = set(CODECS[codec].Parameters.model_fields)
    if "rotation: hadamard" not in text:
        wanted.discard("rotation_block")
    assert wanted <= keys


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "none"])
def test_what_is_commented_out_are_the_defaults(codec):
    text = starter("x", Choice(codec), Choice("none"), "soa", 128)
    model = CODECS[codec].Parameters
    commented = [line for line in text.splitlines() if line.startswith("  # ") and ": ..." not in line]
    lines = [line for line in commented if line[4:].partition(":")[0] in model.model_fields]
    full = text
    for line in lines:
        full = full.replace(line, line.replace("# ", "", 1))
    assert len(lines) >= 4
    if codec == "fp8":  # a scale is not the default, and other keys have no meaning without one
        assert parse_spec(full).key.scale is not None
    else:
        assert parse_spec(full).key == parse_spec(text).key


def test_a_schema_beside_it_is_named(folder, capsys):
    assert run(["schema", "-o", "tqgen.schema.json"]) == 0
    capsys.readouterr()
    assert run(["new", "mine"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert (folder / "mine.yaml").read_text().startswith("# yaml-language-server: $schema=tqgen.schema.json\n")


def test_nothing_is_overwritten(folder, capsys):
    (folder / "mine.yaml").write_text("precious")
    assert refused(capsys, "mine")["code"] == "TQ4110"
    assert (folder / "mine.yaml").read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["class"], "TQ4111", "identifier"),
        (["../x"], "TQ4111", "identifier"),
        (["torch"], "TQ4111", "hide"),
        (["x", "--key", "none", "--value", "none"], "TQ4111", "neither"),
        (["x", "--key", "none", "--value", "none", "--arrangement", "planes"], "TQ4111", "neither"),
        (["x", "--key", "fp8", "--key-bits", "4"], "TQ4111", "fp8"),
        (["x", "--head-dim", "5000", "--arrangement", "planes"], "TQ4111", "5000"),
        (["x", "--head-dim", "0"], "TQ4101", "head"),
        (["x", "--key-bits", "9"], "TQ4101", "bits"),
        (["x", "--key", "msee"], "TQ4101", "msee"),
        (["x", "--arrangement", "rows"], "TQ4101", "rows"),
        ([], "TQ4101", "NAME"),
        (["x", "-o", "file"], "TQ4104", "written"),
    ],
)
def test_refusals(folder, capsys, arguments, code, said):
    (folder / "file").write_text("")
    found = refused(capsys, *arguments)
    assert found["code"] == code and said in found["message"] + (found["help"] or "")
    assert [path.name for path in folder.iterdir()] == ["file"]


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "none"])
def test_what_is_commented_out_is_legal(folder, codec):
    assert run(["new", "mine", "--key", codec, "--value", codec]) == 0
    lines = (folder / "mine.yaml").read_text().splitlines()
    keys = CODECS[codec].Parameters.model_fields
    commented = [n for n, line in enumerate(lines) if line.startswith("  # ") and line[4:].partition(":")[0] in keys]
    assert len(commented) >= 8 and "..." not in "".join(lines)
    for n in commented:
        more = [line.replace("# ", "", 1) if number == n else line for number, line in enumerate(lines)]
        resolve(parse_spec("\n".join(more)))

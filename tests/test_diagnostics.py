"""Every mistake gives the diagnostic that it should, at its place."""

import json
import re
from pathlib import Path

import pytest

from tqgen import codebooks, explanations
from tqgen.compiler import compile_spec
from tqgen.diagnostics import Diagnostic, Place, Related, SpecError, did_you_mean, listed, render
from tqgen.layout.resolve import load, resolve
from tqgen.spec import load_spec, parse_spec

ROOT = Path(__file__).parent.parent
BAD = sorted((ROOT / "tests" / "specs_bad").glob("*.yaml"))
EXPECTED = re.compile(r"# (TQ\d{4}) (\d+):(\d+) (.+)")
NOT_IN_A_FILE = {
    "TQ3204": "every codebook that comes with the compiler has all widths",
}
GOOD = """\
tqgen: 1
name: good
head_dim: 128
key: {codec: mse, bits: 3}
value: {codec: uniform, bits: 4}
"""


def diagnostics_of(text, overrides=None, file="good.yaml"):
    with pytest.raises(SpecError) as raised:
        resolve(parse_spec(text, file, overrides))
    return raised.value.diagnostics


# bad specs


def expectation(path):
    """The comment at the top of a bad spec: per problem a line, then `help:` and `see` lines that belong to it."""
    lines = []
    for line in path.read_bytes().decode("utf-8", errors="replace").splitlines():
        if not line.startswith("# TQ") and not line.startswith("#   "):
            break
        lines.append(line)
    return lines


def as_comment(diagnostics):
    lines = []
    for found in diagnostics:
        lines.append(f"# {found.code} {found.line}:{found.column} {found.message}")
        lines += [f"#   help: {found.help}"] if found.help else []
        lines += [f"#   see {also.place.line}:{also.place.column} {also.label}" for also in found.related]
    return lines


@pytest.mark.parametrize(("option", "meant"), [("key.bit", "key.bits"), ("keyy", "key"), ("head_dims", "head_dim")])
def test_an_option_with_a_misspelt_key_is_told_the_whole_path(option, meant):
    """What the file has under the right key is to be replaced, not removed."""
    [found] = diagnostics_of(GOOD, {option: "2", "name": "mine"})
    assert (found.code, found.place.file, found.help) == ("TQ2002", "--set", f"did you mean `{meant}`?")


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_spec_gives_exactly_the_problems_in_its_comment(path):
    expected = expectation(path)
    assert expected and EXPECTED.fullmatch(expected[0])
    with pytest.raises(SpecError) as raised:
        resolve(load_spec(path))
    assert as_comment(raised.value.diagnostics) == expected
    assert {found.file for found in raised.value.diagnostics} == {str(path)}


@pytest.mark.parametrize(("head_dim", "codes"), [(8, ["TQ3402"]), (16, [])])
def test_groups_straddle_parts_of_vectors_that_do_not_fill_a_tile(head_dim, codes):
    """A power of two alone does not make a vector fill one."""
    side = "{codec: uniform, bits: 1, group: 4, packing: halves}"
    text = f"tqgen: 1\nname: small\nhead_dim: {head_dim}\nkey: {side}\nvalue: {{codec: none}}\n"
    if codes:
        assert [found.code for found in diagnostics_of(text)] == codes
    else:
        resolve(parse_spec(text))


def test_every_code_of_a_spec_has_a_bad_spec():
    stated = {found[1] for path in BAD for line in expectation(path) if (found := EXPECTED.fullmatch(line))}
    wanted = {code for code in explanations.codes() if code[:3] in ("TQ1", "TQ2", "TQ3")}
    assert stated == wanted - set(NOT_IN_A_FILE)


def test_codebook_without_this_width(monkeypatch):
    monkeypatch.setattr(codebooks, "widths", lambda name: (2, 4))
    (found,) = diagnostics_of(GOOD)
    assert (found.code, found.line, found.column) == ("TQ3204", 4, 25)
    assert found.message == "codebook `lloyd_max` has no table for 3 bits"


def test_every_code_is_explained_and_every_explanation_is_used():
    sources = [path for path in (ROOT / "tqgen").rglob("*.py") if "explanations" not in path.parts]
    used = {code for path in sources for code in re.findall(r"\"(TQ\d{4})\"", path.read_text(encoding="utf-8"))}
    assert used == set(explanations.codes())


@pytest.mark.parametrize("code", explanations.codes())
def test_explanations_have_a_title_and_a_text(code):
    lines = explanations.explanation(code).splitlines()
    assert lines[0] == f"# {explanations.title(code)}" and not lines[0].endswith(".")
    assert lines[1] == "" and len(lines) > 2
    assert max(map(len, lines)) <= 120


def test_unknown_code_is_not_explained():
    with pytest.raises(KeyError):
        explanations.explanation("TQ9999")
    with pytest.raises(KeyError):
        explanations.explanation("../models")


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_messages_are_in_the_words_of_the_spec(path):
    with pytest.raises(SpecError) as raised:
        resolve(load_spec(path))
    for found in raised.value.diagnostics:
        for text in (found.message, found.label, found.help):
            assert not text.endswith((".", "\n")) or text.endswith("...")
            assert not text[:1].isupper() or text.startswith("YAML")
            for foreign in (
                "pydantic",
                "Input",
                "NoneType",
                "<class",
                "model",
                "dict",
                "tuple",
                "ruamel",
                "Parameters",
            ):
                assert foreign not in text


# one place for each of several stages


def test_problems_of_one_stage_come_together_and_sorted():
    text = GOOD.replace("bits: 3", "bits: 9, bit: 1").replace("head_dim: 128", "head_dim: 0")
    assert [(found.code, found.line) for found in diagnostics_of(text)] == [("TQ2005", 3), ("TQ2005", 4), ("TQ2002", 4)]


def test_a_text_that_is_not_yaml_reports_what_was_found_before():
    codes = [found.code for found in diagnostics_of("a: 1\na: 2\nb: @\n")]
    assert codes == ["TQ1007", "TQ1001"]


# rendering


def test_rendering_with_a_second_place():
    text = (
        GOOD
        + "block:\n  regions:\n    - name: slot\n      order: [token, head, token, field]\n      fields: [key.codes]\n"
    )
    found = next(found for found in diagnostics_of(text) if found.code == "TQ3105")
    assert found.render() == (
        "error[TQ3105]: `token` stands twice in the order of region `slot`\n"
        " --> good.yaml:9:28\n"
        "  |\n"
        "9 |       order: [token, head, token, field]\n"
        "  |                            ^^^^^\n"
        "  |               ----- first here\n"
        "  |\n"
        "  = help: remove one of the two"
    )


def test_rendering_of_places_on_other_lines():
    text = "tqgen: 1\n" * 2 + "# comment\n" * 8 + "tqgen: 1\n"
    assert render(diagnostics_of(text)) == (
        "error[TQ1007]: key `tqgen` is written twice\n"
        " --> good.yaml:2:1\n"
        "  |\n"
        "1 | tqgen: 1\n"
        "  | ----- first written here\n"
        "2 | tqgen: 1\n"
        "  | ^^^^^\n"
        "  |\n"
        "  = help: remove one of the two\n"
        "\n"
        "error[TQ1007]: key `tqgen` is written twice\n"
        "  --> good.yaml:11:1\n"
        "   |\n"
        " 1 | tqgen: 1\n"
        "   | ----- first written here\n"
        "...\n"
        "11 | tqgen: 1\n"
        "   | ^^^^^\n"
        "   |\n"
        "   = help: remove one of the two"
    )


def test_rendering_without_a_line():
    plain = Diagnostic("TQ4001", "there is no such file", Place("specs/mine.yaml"), help="write one")
    assert plain.render() == "error[TQ4001]: there is no such file\n --> specs/mine.yaml\n  = help: write one"
    assert Diagnostic("TQ4101", "an option is missing").render() == "error[TQ4101]: an option is missing"


def test_rendering_in_two_files():
    place = Place("a.yaml", 3, 1, 2, "ab: c")
    other = Related(Place("--set", 1, 1, 3, "b=1"), "set here")
    lines = Diagnostic("TQ3002", "no effect", place, related=(other,)).render().splitlines()
    assert lines == [
        "error[TQ3002]: no effect",
        " --> a.yaml:3:1",
        "  |",
        "3 | ab: c",
        "  | ^^",
        " ::: --set:1:1",
        "  |",
        "1 | b=1",
        "  | --- set here",
    ]


def test_carets_stand_under_wide_and_combining_characters():
    (found,) = [one for one in diagnostics_of(GOOD + "日本: 3\n") if one.code == "TQ2002"]
    assert found.render().splitlines()[3:5] == ["6 | 日本: 3", "  | ^^^^"]
    lines = Diagnostic("TQ1001", "m", Place("f", 1, 4, 1, "\te\u0301x")).render().splitlines()
    assert lines[3:5] == ["1 |  e\u0301x", "  |   ^"]


def test_rendering_shows_a_part_of_a_long_line_and_no_control_characters():
    line = "\x1b[31m" + "a" * 5000 + "HERE" + "b" * 5000
    lines = Diagnostic("TQ1001", "m", Place("f", 1, 5006, 4, line)).render().splitlines()
    assert len(lines[3]) < 200 and "\x1b" not in lines[3]
    assert lines[3][lines[4].index("^") :].startswith("HERE") and lines[4].count("^") == 4


def test_diagnostics_as_json():
    (found,) = diagnostics_of("tqgen: 1\ntqgen: 1\n")
    assert json.loads(json.dumps(found.to_json())) == {
        "code": "TQ1007",
        "severity": "error",
        "message": "key `tqgen` is written twice",
        "file": "good.yaml",
        "line": 2,
        "column": 1,
        "length": 5,
        "label": None,
        "help": "remove one of the two",
        "related": [{"file": "good.yaml", "line": 1, "column": 1, "length": 5, "label": "first written here"}],
    }


def test_near_words():
    assert did_you_mean("hadamrd", ["none", "hadamard", "matrix"]) == "hadamard"
    assert did_you_mean("HADAMARD", ["none", "hadamard"]) == "hadamard"
    assert did_you_mean("on", ["none", "hadamard"]) is None or did_you_mean("xyz", ["none"]) is None
    assert listed(["a"]) == "`a`" and listed(["a", "b", "c"]) == "`a`, `b` or `c`" and listed([]) == ""


# files


def test_a_file_that_is_not_there(tmp_path):
    (tmp_path / "mse3_v4.yaml").write_text(GOOD)
    with pytest.raises(SpecError) as raised:
        load_spec(tmp_path / "mse3_v5.yaml")
    (found,) = raised.value.diagnostics
    assert (found.code, found.help) == ("TQ4001", f"did you mean `{tmp_path / 'mse3_v4.yaml'}`?")


@pytest.mark.parametrize("name", ["", "no/such/folder/x.yaml", "x\0y", "a" * 300])
def test_paths_that_are_no_files(tmp_path, name):
    with pytest.raises(SpecError) as raised:
        load_spec(f"{tmp_path}/{name}")
    assert [found.code for found in raised.value.diagnostics] == ["TQ4001"]


def test_a_file_that_is_too_large(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_bytes(b"# comment\n" * 30_000)
    with pytest.raises(SpecError) as raised:
        load_spec(path)
    assert [found.code for found in raised.value.diagnostics] == ["TQ1011"]
    assert [found.code for found in diagnostics_of("# comment\n" * 30_000)] == ["TQ1011"]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_places_do_not_depend_on_line_ends_or_a_byte_order_mark(tmp_path, ends):
    path = tmp_path / "good.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("bits: 4", "bits: 44").replace("\n", ends).encode())
    with pytest.raises(SpecError) as raised:
        load_spec(path)
    (found,) = raised.value.diagnostics
    assert (found.code, found.line, found.column, found.length) == ("TQ2005", 5, 31, 2)


# options


@pytest.mark.parametrize(
    "overrides, expected",
    [
        ({"head_dim": "abc"}, [("TQ2003", "--set", 1, 10)]),
        ({"head_dim": "0"}, [("TQ2005", "--set", 1, 10)]),
        ({"head_dim": ""}, [("TQ2006", "--set", 1, 1)]),
        ({"head_dim": "[64"}, [("TQ1001", "--set", 1, 13)]),
        ({"head_dim": "064"}, [("TQ1012", "--set", 1, 10)]),
        ({"key.bits": "4"}, [("TQ4004", "--set", 1, 1)]),
        ({"key.bits": "44", "name": "x"}, [("TQ2005", "--set", 1, 10)]),
        ({"key.bitz": "4", "name": "x"}, [("TQ2002", "--set", 1, 1)]),
        ({"key.norm.dtype": "fp8", "name": "x"}, [("TQ2004", "--set", 1, 16)]),
        ({"key": "{codec: mse, bits: 3, norm: {dtype: fp8}}", "name": "x"}, [("TQ2004", "--set", 1, 41)]),
        ({"key..bits": "4", "name": "x"}, [("TQ4002", "--set", 1, 1)]),
        ({"head_dim.x": "4", "name": "x"}, [("TQ4003", "--set", 1, 1)]),
        ({"block.regions.0.name": "4", "name": "x"}, [("TQ2003", "--set", 1, 1)]),
        ({"name": "a b"}, [("TQ2007", "--set", 1, 6)]),
        ({"key.rotation": "hadamard", "head_dim": "96", "name": "x"}, [("TQ3301", "--set", 1, 14)]),
        ({"value.codec": "fp8", "name": "x"}, [("TQ2002", "good.yaml", 5, 25)]),
    ],
)
def test_a_mistake_in_an_option_points_at_the_option(overrides, expected):
    found = diagnostics_of(GOOD, overrides)
    assert [(one.code, one.file, one.line, one.column) for one in found] == expected


def test_a_file_and_an_option_that_do_not_fit_are_both_shown():
    (found,) = diagnostics_of(GOOD.replace("bits: 3", "bits: 3, rotation: hadamard"), {"head_dim": "96"})
    assert (found.file, found.line, found.related[0].place.file) == ("good.yaml", 4, "--set")
    assert "96" in found.related[0].place.text


@pytest.mark.parametrize(
    ("option", "help"),
    [
        ({"bits": "2"}, "did you mean `key.bits` or `value.bits`?"),
        ({"rotation": "none"}, "did you mean `key.rotation` or `value.rotation`?"),
        ({"symmetric": "true"}, "did you mean `value.symmetric`?"),
        ({"nothing_known": "2"}, "the keys here are "),
    ],
)
def test_an_option_without_its_side_is_told_the_sides_that_have_it(option, help):
    found = diagnostics_of(GOOD, option)
    assert [one.code for one in found] == ["TQ2002"] and found[0].help.startswith(help)


def test_a_key_outside_of_its_side_is_told_where_it_belongs():
    (found,) = diagnostics_of(GOOD + "rotation: none\n")
    assert (found.code, found.help) == ("TQ2002", "write it under `key` or `value`")


def test_a_file_with_another_name_hides_nothing_of_its_layout(tmp_path):
    path = tmp_path / "other.yaml"
    path.write_text(GOOD.replace("head_dim: 128", "head_dim: 96").replace("bits: 3", "bits: 3, rotation: hadamard"))
    for loaded in (lambda: load(path), lambda: compile_spec(path)):
        with pytest.raises(SpecError) as raised:
            loaded()
        assert [found.code for found in raised.value.diagnostics] == ["TQ2008", "TQ3301"]
    path.write_text(GOOD)
    with pytest.raises(SpecError) as raised:
        load(path)
    assert [found.code for found in raised.value.diagnostics] == ["TQ2008"]
    path.rename(tmp_path / "good.yaml")
    assert load(tmp_path / "good.yaml")[1].name == "good"


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("head_dim: 4096", "use 1024 or less"),
        ("head_dim: 0", "use 1 or more"),
        ("key: {codec: uniform, bits: 9}", "use 8 or less"),
        ("key: {codec: uniform, bits: 4, group: -1}", "use 1 or more"),
        ("key: {codec: uniform, bits: 4, head_dim: 4096}", "use 1024 or less"),
        ("key: {codec: uniform, bits: 4, scale_floor: .nan}", "write a number, or remove it"),
        (
            "key: {codec: uniform, bits: 4, group: yes}",
            "write a number: neighbouring elements that share one scale; default the whole vector",
        ),
        ("block: sao", "did you mean `soa`?"),
        ("block: oas", "did you mean `aos`?"),
    ],
)
def test_values_that_cannot_be_say_what_can(text, help):
    lines = {line.partition(":")[0]: line for line in (*GOOD.splitlines(), text)}
    (found,) = diagnostics_of("\n".join(lines.values()) + "\n")
    assert found.help == help


def test_list_items_that_options_name():
    text = GOOD + "block: {regions: [{name: a, order: [token, head, field], fields: [key.codes]}]}\n"
    found = diagnostics_of(text, {"block.regions.1.name": "b", "name": "x"})
    assert [one.code for one in found if one.file == "--set"] == ["TQ4003"]
    found = diagnostics_of(text, {"block.regions.0.name": "2b", "name": "x"})
    assert [(one.code, one.column) for one in found] == [("TQ2007", 22)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("look_alikes", "it holds U+043E (cyrillic small letter o)"),
        ("look_alikes", "it holds U+200B (zero width space)"),
    ],
)
def test_characters_that_look_like_others_are_named(name, said):
    with pytest.raises(SpecError) as raised:
        load_spec(ROOT / "tests" / "specs_bad" / f"{name}.yaml")
    assert said in str(raised.value)


def test_a_wrong_option_is_told_once():
    """Of an option that is right the name is asked for."""
    for option in ("head_dim.x", "nothing.bits"):
        assert len(diagnostics_of(GOOD, {option: "3"})) == 1
    assert [found.code for found in diagnostics_of(GOOD, {"key.bits": "4"})] == ["TQ4004"]


def test_what_a_diagnostic_has_not_is_null():
    nowhere = Diagnostic("TQ4001", "no").to_json()
    assert {nowhere[name] for name in ("file", "line", "column", "length", "label", "help")} == {None}
    whole = Diagnostic("TQ4001", "no", Place("a.yaml")).to_json()
    assert (whole["file"], whole["line"], whole["column"], whole["length"]) == ("a.yaml", None, None, None)
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8").partition("## ")[0]
    assert all(f"`{name}`" in page for name in nowhere)


def test_links_that_lead_nowhere(tmp_path):
    (tmp_path / "mine.yaml").symlink_to("nowhere.yaml")
    with pytest.raises(SpecError) as raised:
        load_spec(tmp_path / "mine.yaml")
    (found,) = raised.value.diagnostics
    assert found.message == "this link leads to no file" and "`nowhere.yaml`" in found.help

"""Whatever a spec or an option holds, the outcome is a layout or diagnostics, never a traceback."""

import copy
import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tqgen.cli import run
from tqgen.diagnostics import SpecError
from tqgen.layout.resolve import resolve
from tqgen.spec import load_spec, parse_spec

SHIPPED = sorted((Path(__file__).parent.parent / "specs").glob("*.yaml"))


def compile_quietly(text, overrides=None):
    """Compile a text of which nothing is known: a spec or a SpecError is right, anything else is raised."""
    try:
        return resolve(parse_spec(text, "fuzz.yaml", overrides))
    except SpecError as error:
        assert error.diagnostics and str(error)
        return None


@pytest.fixture
def odd_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "there.yaml").symlink_to("back.yaml")
    (tmp_path / "back.yaml").symlink_to("there.yaml")
    (tmp_path / "dangling.yaml").symlink_to("nowhere.yaml")
    (tmp_path / "folder").mkdir()
    return tmp_path


PATHS = ["loop.yaml", "there.yaml", "dangling.yaml", "folder", "loop.yaml/x.yaml", "a\0b", "x" * 300, "", "/dev/zero"]
COMMANDS = [["check"], ["show"], ["build"], ["diff", "mse3_v4"], ["breaking", "--against", "folder"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("path", PATHS, ids=[path[:20] or "empty" for path in PATHS])
def test_no_path_gives_a_traceback(odd_paths, capsys, command, path):
    if path == "/dev/zero" and not os.path.exists(path):
        pytest.skip("no /dev/zero here")
    assert run([*command, path]) in (1, 2)
    assert capsys.readouterr().err.startswith("error[TQ")


@pytest.mark.parametrize("path", PATHS, ids=[path[:20] or "empty" for path in PATHS])
def test_no_output_gives_a_traceback(odd_paths, capsys, path):
    assert run(["schema", "-o", path]) == (0 if path == "dangling.yaml" else 2)
    assert run(["show", "fp8_v4", "--svg", f"{path or 'loop.yaml'}/x.svg"]) == (0 if path == "folder" else 2)
    assert (odd_paths / "loop.yaml").is_symlink() and not (odd_paths / "folder" / "x.svg").is_symlink()


def test_paths_are_resolved_by_one_function():
    """Which takes every path: `Path.resolve` raises where links go round, and differently from version to version."""
    package = Path(__file__).parent.parent / "tqgen"
    found = [path.name for path in package.rglob("*.py") if ".resolve()" in path.read_text(encoding="utf-8")]
    assert found == ["resources.py"], "of the place of the package itself"


FRAGMENTS = [
    "tqgen: 1\n",
    "name: x\n",
    "head_dim: ",
    "key:\n",
    "  codec: ",
    "mse",
    "uniform",
    "  bits: ",
    "3",
    "\n",
    " ",
]
FRAGMENTS += [
    "- ",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "&a",
    "*a",
    "!!int ",
    "|\n",
    ">\n",
    '"',
    "'",
    "#",
    "? ",
    "---\n",
    "...\n",
]
FRAGMENTS += [
    "\t",
    "%YAML 1.1\n",
    "~",
    "null",
    "\\",
    "\r",
    "\x85",
    "\ufeff",
    "é",
    "0x",
    "1e999",
    ".nan",
    "<<: ",
    "@",
    "`",
]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.one_of(st.text(), st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join)))
@example("[" * 3000)
@example("a: " * 3000)
@example("? " * 3000)
@example('"\\UFFFFFFFF"')
@example("a: &x [*x, *x]")
@example("head_dim: " + "9" * 6000)
@example("tqgen: !!python/object/apply:os.getcwd []")
def test_no_text_gives_a_traceback(text):
    compile_quietly(text)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(content=st.binary(max_size=200))
def test_no_bytes_give_a_traceback(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "bytes.yaml"
    path.write_bytes(content)
    with pytest.raises(SpecError):
        resolve(load_spec(path))


def mutated(text, seed):
    """A few edits of the kind that people and broken tools make."""
    choose = random.Random(seed)
    for _ in range(choose.randint(1, 4)):
        at, end = choose.randrange(len(text)), 0
        end = min(len(text), at + choose.choice([0, 1, 1, 2, 8, 40]))
        insert = choose.choice([*FRAGMENTS, text[at:end] * 2, ""])
        text = text[:at] + insert + text[end:] or " "
        if choose.random() < 0.2:
            lines = text.splitlines(keepends=True)
            choose.shuffle(lines)
            text = "".join(lines)
    return text


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_no_mutated_spec_gives_a_traceback(path):
    text = path.read_text(encoding="utf-8")
    outcomes = [compile_quietly(mutated(text, f"{path.stem} {seed}")) for seed in range(100)]
    assert sum(layout is None for layout in outcomes) > 20


ODD = st.sampled_from(
    [
        *[None, True, -1, 0, 1, 3, 7, 96, 10**30, 1.5, "", "mse", "none", "hadamard", "key.codes", "x", [], {}, [[]]],
        {"codec": "none"},
        {"reserved": 7},
        {"field": "value.codes", "align": 64},
        {"axis": "head"},
        "aos",
        {"dtype": "fp32"},
    ]
).map(copy.deepcopy)
KEYS = ["codec", "bits", "group", "head_dim", "rotation", "rotation_block", "packing", "scale", "zero", "norm", "dtype"]
KEYS += [
    "symmetric",
    "center",
    "scale_floor",
    "block",
    "regions",
    "order",
    "fields",
    "align",
    "slot_bytes",
    "name",
    "x",
]
FULL = {
    "tqgen": 1,
    "name": "full",
    "head_dim": 128,
    "key": {"codec": "mse", "bits": 3},
    "value": {"codec": "uniform", "bits": 4, "scale": {"dtype": "fp32"}},
    "block": {
        "regions": [
            {
                "name": "a",
                "order": ["token", {"axis": "head", "align": 4}, "field"],
                "fields": ["key.codes", "key.norm"],
            },
            {"name": "b", "order": ["field", "head", "token"], "fields": [{"field": "value.codes"}, "value.scale"]},
            {"name": "c", "order": ["head", "field", "token"], "fields": [{"reserved": 3}, "value.zero"], "align": 8},
        ],
    },
}


def paths_in(data, path=()):
    yield path
    steps = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, inner in steps:
        yield from paths_in(inner, (*path, step))


@st.composite
def odd_specs(draw):
    data = json.loads(json.dumps(FULL))
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from([path for path in paths_in(data) if path]))
        holder = data
        for step in path[:-1]:
            holder = holder[step]
        what = draw(st.sampled_from(["replace", "remove", "add"]))
        if what == "replace":
            holder[path[-1]] = draw(ODD)
        elif what == "remove":
            del holder[path[-1]]
        elif isinstance(holder, dict):
            holder[draw(st.sampled_from(KEYS))] = draw(ODD)
        else:
            holder.append(draw(ODD))
        if not data:
            break
    return data


@settings(max_examples=500, deadline=None, derandomize=True)
@given(odd_specs())
def test_no_odd_value_gives_a_traceback(data):
    compile_quietly(json.dumps(data))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.dictionaries(
        st.one_of(
            st.text(max_size=8), st.lists(st.sampled_from([*KEYS, "key", "value", "0", "2"]), max_size=4).map(".".join)
        ),
        st.one_of(st.text(max_size=8), st.sampled_from(FRAGMENTS), ODD.map(json.dumps)),
        max_size=3,
    )
)
def test_no_option_gives_a_traceback(overrides):
    compile_quietly(json.dumps(FULL), overrides)

"""The command line as a user meets it."""

import json
import os
import re
import subprocess
import sys
import tempfile

import pytest

from tqgen import __version__, documents, manifest, resources
from tqgen.cli import run
from tqgen.cli.app import app

SPEC = """
tqgen: 1
name: mine
doc: Four bits each.
head_dim: 100
key: {codec: uniform, bits: 4, group: 4}
value: {codec: uniform, bits: 4, head_dim: 64}
block: aos
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder that holds one good spec and one bad one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(SPEC)
    (tmp_path / "bad.yaml").write_text(SPEC.replace("bits: 4,", "bits: 40,"))
    return tmp_path


def tqgen(*arguments, **options):
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "tqgen", *arguments]
    environment = {**os.environ, **options.pop("env", {}), "PYTHONPATH": str(resources.PACKAGE.parent)}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, **options)


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"tqgen {__version__}\n"


def test_without_a_command_it_helps(capsys):
    assert run([]) == 2
    out = capsys.readouterr().out
    for command in ("build", "check", "show", "verify", "list", "explain"):
        assert re.search(rf"^  {command}  ", out, re.MULTILINE), command
    assert run(["--help"]) == 0


ARGUMENTS = {
    "build": ["[SPEC...]"],
    "check": ["SPEC..."],
    "show": ["SPEC"],
    "verify": ["SPEC..."],
    "bench": ["SPEC..."],
    "list": [],
    "new": ["NAME"],
    "diff": ["OLD", "NEW"],
    "breaking": ["[SPEC...]"],
    "schema": [],
    "explain": ["[CODE]"],
}


@pytest.mark.parametrize("command", ARGUMENTS)
def test_help_names_arguments_plainly(command, capsys):
    """No types and braces of the parser's own; the same words in the first line, in the list and in README.md."""
    assert run([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(" ".join(["Usage: tqgen", command, "[OPTIONS]", *ARGUMENTS[command]]) + "\n")
    listed = re.findall(r"^  (\S+)(?=  )", text.partition("Arguments:\n")[2].partition("\nOptions:")[0], re.MULTILINE)
    assert listed == ARGUMENTS[command]
    assert not re.search(r"<\w|\{|\}", text), text
    readme = (resources.PACKAGE.parent / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(rf"^\| `tqgen {command}( [^`]*)?` \|", readme, re.MULTILINE)
    assert sorted(set(shown.split()) & {"SPEC", "SPEC...", "[SPEC...]", "NAME", "OLD", "NEW", "[CODE]"}) == sorted(
        listed
    )


def test_help_is_tested_of_every_command():
    assert {one.name or one.callback.__name__ for one in app.registered_commands} == set(ARGUMENTS)


USAGE = {
    "unknown command": (["bild"], "TQ4101", "`bild`"),
    "unknown option": (["show", "--stge", "plan", "mine"], "TQ4101", "--stge"),
    "missing argument": (["check"], "TQ4101", "SPEC"),
    "unknown stage": (["show", "mine.yaml", "--stage", "layuot"], "TQ4101", "did you mean `layout`?"),
    "not a number": (["show", "mine.yaml", "--heads", "many"], "TQ4101", "--heads"),
    "number too small": (["show", "mine.yaml", "--block-size", "0"], "TQ4101", "--block-size"),
    "token out of range": (["show", "mine.yaml", "--token", "16"], "TQ4101", "there are 16 tokens in a block"),
    "error format": (["--error-format", "xml", "list"], "TQ4101", "xml"),
    "no such file": (["check", "mien.yaml"], "TQ4001", "did you mean `mine.yaml`?"),
    "no such name": (["show", "mse3_v5"], "TQ4001", "did you mean `mse3_v4`?"),
    "an empty name": (["check", ""], "TQ4001", "an empty text names no spec"),
    "a folder": (["check", "."], "TQ4001", "folder"),
    "no value": (["show", "mine.yaml", "--set", "head_dim"], "TQ4102", "key=value"),
    "set twice": (["show", "mine.yaml", "--set", "head_dim=8", "--set", "head_dim=16"], "TQ4102", "twice"),
    "a path of dots": (["show", "mine.yaml", "--set", "key..bits=3", "--set", "name=x"], "TQ4002", "key..bits"),
    "a value of the wrong kind": (["show", "mine.yaml", "--set", "head_dim=big"], "TQ2003", "--set:1:10"),
    "an unknown code": (["explain", "TQ9999"], "TQ4108", "TQ9999"),
    "an unknown cell": (["verify", "mine.yaml", "--cell", "x"], "TQ4106", "a cell has"),
    "output is a file": (["build", "mine.yaml", "-o", "bad.yaml"], "TQ4104", "this is a file"),
    "output below a file": (["build", "mine.yaml", "-o", "bad.yaml/out"], "TQ4104", "this is a file"),
}


@pytest.mark.parametrize("case", USAGE)
@pytest.mark.parametrize("error_format", ["text", "json"])
def test_usage_mistakes_are_diagnostics(folder, capsys, case, error_format):
    arguments, code, said = USAGE[case]
    if arguments[0] == "verify":
        pytest.importorskip("triton")
    before = sorted(os.listdir(folder))
    assert run([*arguments, "--error-format", error_format] if error_format == "json" else arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sorted(os.listdir(folder)) == before
    if error_format == "text":
        assert err.startswith(f"error[{code}]: ") and said in err
    else:
        found = [json.loads(line) for line in err.splitlines()]
        assert found[0]["code"] == code and found[0]["severity"] == "error"
        assert found[0]["message"] == found[0]["message"].strip() and not found[0]["message"].endswith(".")


@pytest.mark.parametrize("command", [["build"], ["check"], ["show"]])
def test_a_bad_spec_is_a_finding(folder, capsys, command):
    assert run([*command, "bad.yaml"]) == 1
    err = capsys.readouterr().err
    assert "bad.yaml:6:" in err and "40" in err and "^^" in err


def test_an_unreadable_spec(folder, capsys):
    (folder / "odd.yaml").write_bytes(b"tqgen: 1\nname: \xff\n")
    assert run(["check", "odd.yaml"]) == 1
    assert "UTF-8" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_not_the_other_argument(folder, capsys):
    """It is compared with that one."""
    for command in ("diff", "check"):
        assert run([command, "mine.yaml", "mien.yaml"]) == 2
        assert "`mine.yaml`" not in capsys.readouterr().err
    (folder / "mine2.yaml").write_text(SPEC)
    assert run(["diff", "mine.yaml", "mien.yaml"]) == 2 and "did you mean `mine2.yaml`?" in capsys.readouterr().err
    assert run(["diff", "mse3_v4", "mse3_v5"]) == 2 and "`mse3_v4`" not in capsys.readouterr().err


def test_a_generated_module_is_no_spec(folder, capsys):
    assert run(["build", "mine.yaml", "-o", "out"]) == 0
    (folder / "other.py").write_text("Generated by tqgen 1 from mine.yaml; but it is not\n")
    capsys.readouterr()
    assert run(["check", "out/mine.py"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error[TQ4001]: this is a module that tqgen generated, and no spec\n --> out/mine.py\n")
    assert "name its spec, `mine.yaml`" in err
    assert run(["check", "other.py"]) == 1 and "generated" not in capsys.readouterr().err


def test_problems_of_all_specs_are_reported_together(folder, capsys):
    (folder / "worse.yaml").write_text(SPEC.replace("codec: uniform", "codec: unifrom", 1).replace("mine", "worse"))
    assert run(["check", "bad.yaml", "mine.yaml", "worse.yaml", "nowhere.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and all(f"{name}.yaml" in err for name in ("bad", "worse", "nowhere"))


def test_build_writes_what_differs_and_nothing_else(folder, capsys):
    assert run(["build", "mine.yaml"]) == 0
    module = folder / "generated" / "mine.py"
    assert capsys.readouterr().out == "generated/mine.py: written\n"
    os.utime(module, (1, 1))
    assert run(["build", "mine.yaml"]) == 0
    assert capsys.readouterr().out == "generated/mine.py: unchanged\n"
    assert module.stat().st_mtime == 1
    assert os.listdir(folder / "generated") == ["mine.py"]


def test_build_takes_overrides_and_a_folder(folder, capsys):
    assert run(["build", "mine.yaml", "--set", "head_dim=40", "-o", "some/where"]) == 0
    assert os.listdir(folder / "some" / "where") == ["mine_d40.py"]


def test_nothing_is_written_where_one_spec_is_bad(folder, capsys):
    assert run(["build", "mine.yaml", "bad.yaml", "-o", "out"]) == 1
    assert not (folder / "out").exists()


def test_two_specs_of_one_name(folder, capsys):
    (folder / "other").mkdir()
    (folder / "other" / "mine.yaml").write_text(SPEC)
    assert run(["build", "mine.yaml", "other/mine.yaml", "-o", "out"]) == 2
    assert "error[TQ4103]" in capsys.readouterr().err and not (folder / "out").exists()
    assert run(["build", "mine.yaml", "./mine.yaml", "-o", "out"]) == 0


def test_two_names_that_differ_in_case_alone(folder, capsys):
    """Many file systems would take their modules for one file."""
    (folder / "Mine.yaml").write_text(SPEC.replace("name: mine", "name: Mine"))
    assert run(["build", "mine.yaml", "Mine.yaml", "-o", "out"]) == 2
    said = capsys.readouterr().err
    assert "error[TQ4103]: modules `Mine` and `mine` differ in case alone" in said and "Mine.yaml" in said
    assert not (folder / "out").exists()
    assert run(["build", "mine.yaml", "-o", "out"]) == 0 and run(["build", "Mine.yaml", "-o", "other"]) == 0
    capsys.readouterr()
    for check in ([], ["--check"]):
        assert run(["build", "Mine.yaml", "-o", "out", *check]) == 2
        said = capsys.readouterr().err
        assert "error[TQ4103]: modules `Mine` and `mine` differ in case alone" in said and "out/mine.py" in said
    assert os.listdir(folder / "out") == ["mine.py"]


def test_check_names_every_kind_of_drift(folder, capsys):
    command = ["build", "mine.yaml", "-o", "out"]
    module = folder / "out" / "mine.py"
    assert run([*command, "--check"]) == 1
    assert "error[TQ5001]: the file is missing" in capsys.readouterr().err and not module.exists()
    assert run(command) == 0
    capsys.readouterr()
    assert run([*command, "--check"]) == 0
    assert capsys.readouterr() == ("1 file is current\n", "")

    text = module.read_text()
    module.write_text(text + "# a remark\n")
    assert run([*command, "--check"]) == 1
    err = capsys.readouterr().err
    assert "error[TQ5003]: the file was edited by hand" in err and "`tqgen build mine.yaml -o out`" in err
    assert module.read_text() == text + "# a remark\n"
    assert run(command) == 0 and "undoing an edit by hand" in capsys.readouterr().out
    assert module.read_text() == text

    (folder / "mine.yaml").write_text(SPEC.replace("Four bits", "4 bits"))
    assert run([*command, "--check"]) == 1
    assert "error[TQ5002]: the file is stale" in capsys.readouterr().err

    module.write_text("precious = 1\n")
    for arguments in ([*command, "--check"], command):
        assert run(arguments) == 1
        assert "error[TQ5004]: tqgen did not write the file" in capsys.readouterr().err
        assert module.read_text() == "precious = 1\n"


def test_building_everything_names_what_is_left_over(folder, capsys, monkeypatch):
    (folder / "specs").mkdir()
    (folder / "mine.yaml").rename(folder / "specs" / "mine.yaml")
    monkeypatch.setattr(resources, "specs", lambda: folder / "specs")
    monkeypatch.setattr(resources, "checkout", lambda: folder)
    monkeypatch.setattr(documents, "documents", lambda root, layouts: [])
    assert run(["build"]) == 0
    (folder / "generated" / "__init__.py").write_text("# not ours\n")
    assert run(["build", "--check"]) == 0
    (folder / "generated" / "mine.py").rename(folder / "generated" / "old.py")
    capsys.readouterr()
    assert run(["build", "--check"]) == 1
    err = capsys.readouterr().err
    assert "mine.py" in err and "error[TQ5001]" in err
    assert "error[TQ5005]: the file is left over" in err and "`rm generated/old.py`" in err
    assert run(["build"]) == 0
    assert "generated/old.py: left over" in capsys.readouterr().out
    assert (folder / "generated" / "old.py").exists()


def test_only_the_repository_has_left_overs(folder, capsys, monkeypatch):
    """A module of one's own is none, wherever tqgen is installed."""
    (folder / "specs").mkdir()
    (folder / "specs" / "shipped.yaml").write_text(SPEC.replace("mine", "shipped"))
    monkeypatch.setattr(resources, "specs", lambda: folder / "specs")
    assert run(["build", "mine.yaml"]) == 0
    for root, more in ((folder / "elsewhere", ["-o", "generated"]), (None, [])):
        monkeypatch.setattr(resources, "checkout", lambda root=root: root)
        assert run(["build", *more]) == 0
        assert run(["build", *more, "--check"]) == 0
    assert sorted(os.listdir(folder / "generated")) == ["mine.py", "shipped.py"] and capsys.readouterr().err == ""


def test_a_shipped_spec_with_other_values_is_none_of_the_repository(folder, capsys):
    assert run(["build", "mse3_v4", "--set", "head_dim=64"]) == 0
    assert capsys.readouterr().out == "generated/mse3_v4_d64.py: written\n"
    assert os.listdir(folder / "generated") == ["mse3_v4_d64.py"]


def test_a_folder_that_cannot_be_written(folder, capsys, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    assert run(["build", "mine.yaml", "-o", "out"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error[TQ4104]: the file cannot be written: permission denied") and "out/mine.py" in err


def test_shipped_specs_go_by_name(folder, capsys):
    assert run(["build", "mse3_v4", "-o", "out"]) == 0
    assert os.listdir(folder / "out") == ["mse3_v4.py"]
    assert manifest.default_output(manifest.locate("mse3_v4")) == resources.checkout() / "generated"
    (folder / "mse3_v4").write_text("not a spec")
    assert run(["check", "mse3_v4"]) != 0, "a file wins over the name of a shipped spec"


# ---- show ----


def show(capsys, *arguments):
    assert run(["show", *arguments]) == 0
    return capsys.readouterr().out


def addresses(capsys, name):
    arguments = [name, "--json", "--block-size", "16", "--heads", "2", "--token", "5", "--head", "1"]
    data = json.loads(show(capsys, *arguments))
    return {row["name"]: row["example"] for region in data["regions"] for row in region["rows"]}, data


def test_known_addresses(capsys):
    assert addresses(capsys, "mse4_v4_aos")[0] == {
        "key.codes": 1474,
        "key.norm": 1538,
        "value.codes": 1540,
        "value.scale": 1604,
        "value.zero": 1606,
    }
    found, data = addresses(capsys, "mse4_v4")
    assert found == {
        "key.codes": 1408,
        "value.codes": 1472,
        "key.norm": 4202,
        "value.scale": 4234,
        "value.zero": 4266,
    }
    assert data["sizes"]["block"] == 4288 and data["sizes"]["slot"] == 134
    assert data["sizes"]["bf16"] == 512 and data["sizes"]["compression"] == pytest.approx(512 / 134, abs=1e-6)


def test_the_byte_map_holds_the_same_numbers(capsys):
    text = show(capsys, "mse4_v4", "--heads", "2")
    (line,) = [line for line in text.splitlines() if "value.zero" in line]
    assert " ".join(line.split()) == "value.zero 2 fp16 2 bs*H*128 + head*bs*6 + bs*4 + token*2 4266"
    assert "slot   134 bytes" in text and "block  4288 bytes" in text and "26.2%" in text and "3.82x" in text


def test_groups_two_head_dims_and_a_side_that_is_not_stored(folder, capsys):
    text = show(capsys, "mine.yaml")
    assert re.search(r"key\.scale +50  fp16 x 25 ", text)
    assert re.search(r"key\.codes +50  4 bits x 100 ", text)
    assert re.search(r"value\.codes +32  4 bits x 64 ", text)
    assert "bf16   328 bytes" in text
    text = show(capsys, "none_vmse3")
    assert "key    not stored" in text and re.search(r"reserved +50 ", text) and "bf16   256 bytes" in text
    # what is reserved is somebody else's
    assert "the 50 bytes that are not reserved are 19.5%, compression 5.12x" in text
    assert "at block size 16 and 1 head\n" in show(capsys, "none_vmse3", "--heads", "1")


def test_padding_and_blocks_that_do_not_fit(capsys):
    text = show(capsys, "mse4_v4_aligned", "--block-size", "12")
    assert re.search(r"padding +192  in the whole block", text)
    assert "192 more than the block has" in text and "up16(x) = x rounded up" in text
    assert "padding" not in show(capsys, "mse4_v4_aligned", "--block-size", "16")


@pytest.mark.parametrize("width", [200, 100, 70, 40])
@pytest.mark.parametrize("name", ["mse3_v4", "mse4_v4_aligned", "none_vmse3"])
def test_a_terminal_is_never_too_narrow(capsys, name, width):
    from tqgen.layout.byte_map import byte_map
    from tqgen.layout.byte_map_text import render
    from tqgen.layout.resolve import resolve
    from tqgen.spec import load_spec

    shown = byte_map(resolve(load_spec(manifest.locate(name))))
    text = render(shown, width)
    assert max(map(len, text.splitlines())) <= width
    squeezed = "".join(text.split())
    for region in shown.regions:
        for row in region.rows:
            assert (
                row.name in text
                and "".join(row.where.split()).replace("block_size", "bs").replace("num_kv_heads", "H") in squeezed
            )


def test_stages(folder, capsys):
    from tqgen.spec import parse_spec

    expanded = show(capsys, "mine.yaml", "--stage", "spec")
    assert "regions:" in expanded and parse_spec(expanded).name == "mine"
    assert show(capsys, "mine.yaml", "--stage", "source").startswith('"""mine: Four bits each.')
    assert "mine" in show(capsys, "mine.yaml", "--stage", "plan")
    for stage in ("spec", "layout", "plan", "source"):
        assert json.loads(show(capsys, "mine.yaml", "--stage", stage, "--json"))["name"] == "mine"


def test_list(capsys):
    assert run(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(manifest.shipped()) + 1
    assert re.match(r"mse3_v4 +128 +118 +4\.34x  3-bit", next(line for line in lines if line.startswith("mse3_v4 ")))
    assert run(["list", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    slots = {one["name"]: one["slot_bytes"] for one in data}
    assert (slots["fp8_v4"], slots["mse4_v4"], slots["mse3_v4"], slots["mse3_v3"]) == (196, 134, 118, 102)


def test_explain(capsys):
    for code in ("TQ3107", "tq3107", "3107", "error[TQ3107]", "error[TQ3107]: a slot of 5 bytes is too small"):
        assert run(["explain", code]) == 0
        assert capsys.readouterr().out.startswith("TQ3107: the slot is too small\n")
    assert run(["explain"]) == 0
    assert "TQ5003  " in capsys.readouterr().out


# ---- completion ----


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("sh", ["show"]),
        ("show mse3_v", ["mse3_v3", "mse3_v3_aos", "mse3_v4", "mse3_v4_aos", "mse3_vmse3"]),
        ("check m", ["mine.yaml"]),
        ("check sub/", ["sub/inner.yaml"]),
        ("show mine.yaml --stage l", ["layout"]),
        ("explain TQ520", ["TQ5201", "TQ5202", "TQ5203", "TQ5204", "TQ5205", "TQ5206"]),
        ("check /no/such/folder/", []),
    ],
)
def test_completion(folder, words, offered):
    (folder / "sub").mkdir()
    (folder / "sub" / "inner.yaml").write_text("")
    (folder / "sub" / "other.txt").write_text("")
    typed = f"tqgen {words}"
    environment = {
        "_TQGEN_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split(" ")) - 1),
    }
    done = tqgen(env=environment, cwd=folder)
    found = done.stdout.split()
    assert [one for one in found if one in offered] == offered and set(found) - set(offered) <= set(SHIPPED)


SHIPPED = [entry.name for entry in manifest.shipped()]


# ---- processes ----


def test_a_reader_that_has_gone(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "tqgen", "show", "mse3_v4", "--stage", "source"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writing)
    assert done.returncode == 141 and done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "tqgen", "list"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "error[TQ4105]: the output cannot be written: no space left on device\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize(
    ("redirection", "argument", "status"),
    [
        (">&-", "mse3_v4", 0),
        (">&-", "none_of_them", 2),
        ("2>&-", "none_of_them", 2),
        ("2>/dev/full", "none_of_them", 2),
        (">/dev/full 2>/dev/full", "mse3_v4", 2),
    ],
)
def test_streams_that_take_nothing(redirection, argument, status):
    command = f"{sys.executable} -m tqgen check {argument} {redirection}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == status and "Traceback" not in done.stderr


def test_text_that_the_terminal_cannot_show(folder):
    (folder / "mine.yaml").write_text(SPEC.replace("Four bits", "Quatre bits \u00e0 la fois"), encoding="utf-8")
    done = tqgen("show", "mine.yaml", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and "Quatre bits \\xe0 la fois" in done.stdout


def test_colour_is_for_terminals():
    pty = pytest.importorskip("pty")

    def on_terminal(**more):
        chunks = []
        master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", **more}
        command = [sys.executable, "-m", "tqgen", "show", "mse3_v5"]
        subprocess.run(command, stderr=slave, stdout=subprocess.DEVNULL, env=environment, timeout=60)
        os.close(slave)
        while True:
            try:
                chunks.append(os.read(master, 4096))
            except OSError:
                break
            if not chunks[-1]:
                break
        os.close(master)
        return b"".join(chunks).decode()

    os.environ.pop("NO_COLOR", None)
    assert "\033[1;31merror[TQ4001]\033[0m" in on_terminal()
    assert "\033" not in on_terminal(NO_COLOR="1")
    assert "\033" not in tqgen("show", "mse3_v5").stderr


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        (["build", "mse3_v4", "-o"], {"torch", "triton", "numpy", "rich"}),
        (["show", "mse3_v4"], {"torch", "triton", "numpy", "rich", "black", "jinja2"}),
        (["--version"], {"torch", "triton", "numpy", "rich", "black", "jinja2", "ruamel.yaml"}),
    ],
)
def test_commands_import_what_they_need(tmp_path, arguments, unused):
    arguments = [*arguments, str(tmp_path)] if arguments[-1] == "-o" else arguments
    program = (
        "import sys; from tqgen.cli import run; status = run(sys.argv[1:]); "
        "print('\\n'.join(sys.modules), file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not set(done.stderr.split()) & unused

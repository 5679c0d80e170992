"""Generated files on disk: which state they are in, and that publishing them is safe."""

import os
import stat
from pathlib import Path

import black
import pytest
from hypothesis import given, settings
from support.random_specs import spec_texts

from tqgen import manifest, outputs, seal
from tqgen.cli import run
from tqgen.compiler import compile_parsed
from tqgen.outputs import Output, State
from tqgen.spec import parse_spec

TEXT = "# layout: 1\n# text: unsealed\nvalue = 1\n"


@pytest.fixture
def sealed():
    return seal.seal(TEXT)


def test_a_seal_covers_every_other_line(sealed):
    assert seal.is_sealed(sealed) and seal.is_intact(sealed)
    assert seal.seal(sealed) == sealed
    for edited in (sealed.replace("value = 1", "value = 2"), sealed + "\n", sealed.replace("layout: 1", "layout: 2")):
        assert seal.is_sealed(edited) and not seal.is_intact(edited)


def test_an_unsealed_text_is_not_intact():
    assert seal.is_sealed(TEXT) and not seal.is_intact(TEXT)
    assert not seal.is_sealed("value = 1\n")
    with pytest.raises(ValueError, match="no line"):
        seal.seal("value = 1\n")


def test_states(tmp_path, sealed):
    output = Output(tmp_path / "a.py", seal.seal(TEXT.replace("1", "3")))
    assert outputs.state_of(output) is State.MISSING
    for there, state in (
        (output.text, State.CURRENT),
        (output.text.replace("\n", "\r\n"), State.CURRENT),
        (sealed, State.STALE),
        (sealed.replace("value = 1", "value = 2"), State.EDITED),
        (output.text + "# a remark\n", State.EDITED),
        ("value = 1\n", State.FOREIGN),
        ("", State.FOREIGN),
    ):
        output.path.write_bytes(there.encode())
        assert outputs.state_of(output) is state, there


def test_only_sealed_files_are_left_over(tmp_path, sealed):
    (tmp_path / "old.py").write_text(sealed)
    (tmp_path / "edited.py").write_text(sealed + "# more\n")
    (tmp_path / "__init__.py").write_text("# somebody's\n")
    (tmp_path / "wanted.py").write_text(sealed)
    (tmp_path / "notes.txt").write_text(sealed)
    (tmp_path / "folder.py").mkdir()
    wanted = [Output(tmp_path / "wanted.py", sealed)]
    assert [path.name for path in outputs.left_over(tmp_path, wanted)] == ["edited.py", "old.py"]
    assert [found.state for found in outputs.compare(wanted, [tmp_path])] == [
        State.CURRENT,
        State.LEFT_OVER,
        State.LEFT_OVER,
    ]
    assert outputs.left_over(tmp_path / "nowhere", wanted) == []


def test_publishing_makes_folders_and_leaves_nothing_else(tmp_path):
    output = Output(tmp_path / "a" / "b" / "x.py", "text with \u00e9\n")
    outputs.publish(output)
    assert output.path.read_bytes() == "text with \u00e9\n".encode()
    assert os.listdir(output.path.parent) == ["x.py"]


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "other").mkdir()
    for name in ("there", "nowhere"):
        (tmp_path / "own" / f"{name}.py").symlink_to(Path("..") / "other" / f"{name}.py")
    (tmp_path / "other" / "there.py").write_text("old")
    for name in ("there", "nowhere"):
        outputs.publish(Output(tmp_path / "own" / f"{name}.py", "new"))
        assert (tmp_path / "own" / f"{name}.py").is_symlink()
        assert (tmp_path / "other" / f"{name}.py").read_text() == "new"
    assert sorted(os.listdir(tmp_path / "own")) == sorted(os.listdir(tmp_path / "other")) == ["nowhere.py", "there.py"]


SPECIAL = [
    ["build", "mse3_v4", "-o", "."],
    ["schema", "-o", "mse3_v4.py"],
    ["show", "mse3_v4", "--svg", "mse3_v4.py"],
]


@pytest.mark.parametrize("arguments", SPECIAL, ids=" ".join)
@pytest.mark.parametrize("what", ["pipe", "device", "folder"])
def test_what_is_no_file_is_not_read_and_not_replaced(tmp_path, monkeypatch, capsys, arguments, what):
    """A pipe would wait for ever, and /dev/full is read for ever."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mse3_v4.py"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/full" if os.path.exists("/dev/full") else "/dev/null")
    else:
        path.mkdir()
    before = (path.lstat().st_ino, path.lstat().st_mode)
    assert run(arguments) == 2
    assert f"error[TQ4104]: the output is a file, but a {what} stands here" in capsys.readouterr().err
    assert (path.lstat().st_ino, path.lstat().st_mode) == before and os.listdir(tmp_path) == ["mse3_v4.py"]


def test_a_dash_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["schema"]) == 0
    printed = capsys.readouterr().out
    assert run(["schema", "-o", "-"]) == 0
    assert capsys.readouterr().out == printed
    assert run(["show", "mse3_v4", "--svg", "-"]) == 0
    assert capsys.readouterr().out.startswith("<svg") and not os.listdir(tmp_path)


def test_a_failed_write_leaves_the_old_text(tmp_path, monkeypatch):
    output = Output(tmp_path / "x.py", "new")
    output.path.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        outputs.publish(output)
    assert output.path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.py"]


def test_permissions(tmp_path):
    output = Output(tmp_path / "x.py", "new")
    mask = os.umask(0o027)
    try:
        outputs.publish(output)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(output.path.stat().st_mode) == 0o640
    output.path.chmod(0o600)
    outputs.publish(Output(output.path, "newer"))
    assert stat.S_IMODE(output.path.stat().st_mode) == 0o600


def test_the_checked_in_files_are_current(capsys):
    assert run(["build", "--check"]) == 0, capsys.readouterr().err
    assert int(capsys.readouterr().out.split()[0]) > 2 * len(manifest.shipped())


@settings(max_examples=25, deadline=None, derandomize=True)
@given(spec_texts())
def test_modules_are_as_black_would_leave_them(text):
    source = compile_parsed(parse_spec(text), "random.yaml").source
    assert black.format_str(source, mode=black.Mode(line_length=120)) == source

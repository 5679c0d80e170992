"""Generated files on disk: which state they are in, and that publishing them is safe."""

import os
import stat

import black
import pytest
from hypothesis import given, settings
from random_specs import spec_texts

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

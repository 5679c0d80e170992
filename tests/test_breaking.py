"""Layouts in use: `tqgen diff` and `tqgen breaking` on folders and on revisions of git."""

import json
import re
import shutil
import subprocess

import pytest

from tqgen import resources
from tqgen.cli import run

SPEC = """\
tqgen: 1
name: mine
head_dim: 64
key: {codec: uniform, bits: 4, group: 32}
value: {codec: uniform, bits: 4}
block: soa
"""
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git here")


def git(*arguments):
    names = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *names, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the specs `mine` and `other`, and their modules."""
    root = tmp_path_factory.mktemp("built")
    (root / "specs").mkdir()
    for name in ("mine", "other"):
        (root / "specs" / f"{name}.yaml").write_text(SPEC.replace("mine", name))
        assert run(["build", str(root / "specs" / f"{name}.yaml"), "-o", str(root / "generated")]) == 0
    return root


@pytest.fixture
def folder(built, tmp_path, monkeypatch, capsys):
    """A copy of it to work in."""
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    return tmp_path


@pytest.fixture
def repository(folder):
    """The same as a repository of git with one commit."""
    git("init", "-q", ".")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    return folder


def edit(folder, old, new, name="mine"):
    path = folder / "specs" / f"{name}.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def breaking(capsys, *arguments, expect):
    """Run the command; what it printed, and the diagnostics by their codes."""
    assert run(["--error-format", "json", "breaking", *arguments]) == expect
    out, err = capsys.readouterr()
    return out, {found["code"]: found for found in map(json.loads, err.splitlines())}


# diff


def test_diff_says_what_differs(folder, capsys):
    edit(folder, "block: soa", "block: aos", "other")
    edit(folder, "group: 32", "group: 32, rounding: half_even", "other")
    assert run(["diff", "specs/mine.yaml", "specs/other.yaml"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("mine   layout ") and "LAYOUT\n  key.codes offset" in out
    assert "NUMERICS\n  key.rounding  half_up -> half_even\n" in out and "API" not in out
    assert "caches of the two are not interchangeable" in out
    assert max(map(len, out.splitlines())) <= 120


def test_diff_of_two_names_for_one_layout(folder, capsys):
    assert run(["diff", "specs/mine.yaml", "specs/other.yaml"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "caches of the two are interchangeable"


def test_diff_as_json_with_options(folder, capsys):
    options = ["--set", "name=x", "--set", "key.bits=3"]
    assert run(["diff", "specs/mine.yaml", "specs/mine.yaml", "--json", *options]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["old"]["name"], data["new"]["name"], data["interchangeable"]) == ("mine", "x", False)
    assert {"category": "NUMERICS", "subject": "key.bits", "old": "4", "new": "3", "breaks": True} in data["changes"]


def test_diff_needs_two_good_specs(folder, capsys):
    edit(folder, "bits: 4", "bits: 40", "other")
    assert run(["diff", "specs/mine.yaml", "specs/other.yaml"]) == 1
    assert "other.yaml:4:" in capsys.readouterr().err
    assert run(["diff", "specs/mine.yaml"]) == 2 and run(["diff", "nothing", "nowhere"]) == 2


# breaking, against a revision


@needs_git
def test_nothing_has_changed(repository, capsys):
    out, found = breaking(capsys, "specs", "--against", "HEAD", expect=0)
    assert out == "2 layouts: 2 as in HEAD\n" and not found


@needs_git
def test_words_and_wider_interfaces_break_nothing(repository, capsys):
    edit(repository, "head_dim: 64", "head_dim: 64\ndoc: What it is.")
    out, found = breaking(capsys, "specs", "--against", "HEAD", expect=0)
    assert out == "2 layouts: 2 as in HEAD\n" and not found
    module = repository / "generated" / "mine.py"
    module.write_text(module.read_text().replace('space="model", ', ""))
    git("commit", "-qam", "a narrower interface")
    edit(repository, "What it is.", "What it was.")
    out, found = breaking(capsys, "specs", "--against", "HEAD", expect=0)
    assert "API\n    unpack" in out and "(compatible)" in out and "1 with a wider interface" in out and not found


@needs_git
def test_moved_bytes(repository, capsys):
    edit(repository, "block: soa", "block: aos")
    out, found = breaking(capsys, "specs", "--against", "HEAD", expect=1)
    assert "mine\n  LAYOUT\n    key.codes offset" in out and out.endswith("2 layouts: 1 as in HEAD, 1 changed\n")
    assert set(found) == {"TQ5201"}
    assert "`mine` differs from HEAD in its LAYOUT: `key.codes offset`" in found["TQ5201"]["message"]
    assert (found["TQ5201"]["file"], found["TQ5201"]["line"]) == ("specs/mine.yaml", 6)
    (related,) = found["TQ5201"]["related"]
    assert (related["file"], related["line"]) == ("HEAD:specs/mine.yaml", 6)
    assert "`git checkout HEAD -- specs/mine.yaml`" in found["TQ5201"]["help"]


@needs_git
def test_the_way_out_works(repository, capsys):
    edit(repository, "block: soa", "block: aos")
    (repository / "specs" / "mine_2.yaml").write_text(
        (repository / "specs" / "mine.yaml").read_text().replace("name: mine", "name: mine_2")
    )
    git("checkout", "HEAD", "--", "specs/mine.yaml")
    out, found = breaking(capsys, "specs", "--against", "HEAD", expect=0)
    assert out == "3 layouts: 2 as in HEAD, 1 new\n" and not found


@needs_git
def test_other_numbers_and_other_launchers(repository, capsys):
    edit(repository, "group: 32", "group: 32, center: true")
    out, found = breaking(capsys, "specs/mine.yaml", "--against", "HEAD", expect=1)
    assert "key.center  false -> true" in out and "(key, value, kv_cache, slot_mapping, *, key_center)" in out
    assert set(found) == {"TQ5202", "TQ5203"}
    assert (found["TQ5202"]["line"], found["TQ5202"]["column"]) == (4, 51)


@needs_git
def test_a_layout_that_is_gone(repository, capsys):
    (repository / "specs" / "mine.yaml").unlink()
    out, found = breaking(capsys, "specs", "--against", "HEAD", expect=1)
    assert out == "2 layouts: 1 as in HEAD, 1 gone\n" and set(found) == {"TQ5204"}
    out, found = breaking(capsys, "specs/other.yaml", "--against", "HEAD", expect=0)
    assert not found, "nobody asked for the whole folder"


@needs_git
def test_a_compiler_that_reads_an_old_spec_differently(repository, capsys):
    module = repository / "generated" / "mine.py"
    text = module.read_text()
    recorded = text.split("# layout: ")[1][:16]
    module.write_text(text.replace(recorded, "0123456789abcdef"))
    git("commit", "-qam", "as another compiler made it")
    _, found = breaking(capsys, "specs", "--against", "HEAD", expect=1)
    assert set(found) == {"TQ5205"} and "0123456789abcdef" in found["TQ5205"]["message"]
    assert "of the compiler" in found["TQ5205"]["help"]


@needs_git
def test_launchers_that_the_compiler_changed(repository, capsys):
    module = repository / "generated" / "mine.py"
    module.write_text(module.read_text().replace("def allocate(", "def allocate(stream, "))
    git("commit", "-qam", "another interface")
    _, found = breaking(capsys, "specs", "--against", "HEAD", expect=1)
    assert set(found) == {"TQ5203"} and "`allocate`" in found["TQ5203"]["message"]


@needs_git
def test_an_old_spec_that_was_never_right(repository, capsys):
    edit(repository, "bits: 4, group", "bits: 44, group")
    git("commit", "-qam", "wrong, with a module")
    edit(repository, "bits: 44, group", "bits: 4, group")
    _, found = breaking(capsys, "specs", "--against", "HEAD", expect=1)
    assert found["TQ2005"]["file"] == "HEAD:specs/mine.yaml"
    git("rm", "-q", "--cached", "generated/mine.py")
    git("commit", "-qm", "wrong, without a module")
    _, found = breaking(capsys, "specs", "--against", "HEAD", expect=1)
    assert set(found) == {"TQ2005", "TQ5206"} and found["TQ5206"]["file"] == "specs/mine.yaml"


@needs_git
def test_a_spec_that_is_a_link(repository, capsys):
    (repository / "specs" / "mine.yaml").rename(repository / "real.yaml")
    (repository / "specs" / "mine.yaml").symlink_to("../real.yaml")
    git("add", ".")
    git("commit", "-qm", "a link")
    out, _ = breaking(capsys, "specs", "--against", "HEAD", expect=0)
    assert out == "2 layouts: 2 as in HEAD\n"
    (repository / "real.yaml").write_text((repository / "real.yaml").read_text().replace("soa", "aos"))
    _, found = breaking(capsys, "specs", "--against", "HEAD", expect=1)
    assert set(found) == {"TQ5201"}


@needs_git
def test_from_a_folder_below(repository, capsys, monkeypatch):
    edit(repository, "block: soa", "block: aos")
    monkeypatch.chdir(repository / "specs")
    _, found = breaking(capsys, "mine.yaml", "--against", "HEAD", expect=1)
    assert found["TQ5201"]["related"][0]["file"] == "HEAD:mine.yaml"


@needs_git
@pytest.mark.parametrize("name", ["nope", "-n", "--help", "", "HEAD:specs", "a b"])
def test_no_such_revision(repository, capsys, name):
    _, found = breaking(capsys, "specs", f"--against={name}", expect=2)
    assert set(found) == {"TQ4109"}


def test_no_repository(folder, capsys):
    _, found = breaking(capsys, "specs", "--against", "HEAD", expect=2)
    assert set(found) == {"TQ4109"}


def test_no_git(folder, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    _, found = breaking(capsys, "specs", "--against", "HEAD", expect=2)
    assert "git cannot be run" in found["TQ4109"]["message"]


# breaking, against a folder


def test_commands_can_be_copied(folder, capsys):
    shutil.copytree(folder / "specs", folder / "as it was")
    edit(folder, "bits: 4, group", "bits: 5, group")
    _, found = breaking(capsys, "specs", "--against", "as it was", expect=1)
    assert "`cp 'as it was/mine.yaml' specs/mine.yaml`" in found["TQ5201"]["help"]


def test_a_folder_that_cannot_be_read(folder, capsys, monkeypatch):
    (folder / "kept").mkdir()

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.iterdir", refuse)
    _, found = breaking(capsys, "specs/mine.yaml", "--against", "kept", expect=2)
    assert found["TQ4109"]["message"] == "`kept` cannot be read: permission denied"


def test_a_folder_of_specs(folder, capsys):
    shutil.copytree(folder / "specs", folder / "kept")
    edit(folder, "bits: 4, group", "bits: 5, group")
    (folder / "kept" / "third.yaml").write_text(SPEC.replace("mine", "third"))
    _, found = breaking(capsys, "specs", "--against", "kept", expect=1)
    assert set(found) == {"TQ5201", "TQ5202", "TQ5204"}
    assert "`cp kept/mine.yaml specs/mine.yaml`" in found["TQ5201"]["help"]


def test_a_folder_of_modules(folder, capsys):
    shutil.copytree(folder / "generated", folder / "engine")
    out, found = breaking(capsys, "specs", "--against", "engine", expect=0)
    assert out == "2 layouts: 2 as in engine\n"
    edit(folder, "bits: 4, group", "bits: 5, group")
    out, found = breaking(capsys, "specs", "--against", "engine", expect=1)
    assert set(found) == {"TQ5205"} and "is not there to tell" in found["TQ5205"]["help"]


def test_as_json(folder, capsys):
    shutil.copytree(folder / "specs", folder / "kept")
    edit(folder, "block: soa", "block: aos")
    assert run(["breaking", "specs", "--against", "kept", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["status"]) for one in data["layouts"]] == [("mine", "changed"), ("other", "same")]
    assert data["layouts"][0]["changes"][0]["category"] == "LAYOUT"


@needs_git
def test_the_shipped_specs_by_default(capsys):
    if not (resources.checkout() / ".git").exists():
        pytest.skip("this source tree is no repository")
    assert run(["breaking", "--against", "HEAD"]) in (0, 1)  # somebody may be changing a layout right now
    assert re.match(r"\d+ layouts: \d+ as in HEAD", capsys.readouterr().out.splitlines()[-1])

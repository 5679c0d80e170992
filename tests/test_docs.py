"""The documents are true: their commands print what they show, and what they add to a source tree can be added."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tqgen import resources
from tqgen.cli import run
from tqgen.layout.resolve import resolve
from tqgen.spec import parse_spec

ROOT = resources.PACKAGE.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WHOLE_FILE = re.compile(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EDIT = re.compile(r"^```diff\n--- ([\w./-]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path, language):
    return [text for found, text in BLOCK.findall(path.read_text(encoding="utf-8")) if found == language]


def identity(path):
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", PAGES, ids=identity)
def test_links_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        file, _, heading = target.partition("#")
        if "://" in target:
            continue
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}
            assert heading in slugs, target


@pytest.mark.parametrize("path", PAGES, ids=identity)
def test_whole_specs_are_specs(path):
    from tqgen.codecs import CODECS

    for text in blocks(path, "yaml"):
        if re.search(r"^tqgen: 1$", text, re.MULTILINE) and all(
            codec in CODECS for codec in re.findall(r"codec: (\w+)", text)
        ):
            resolve(parse_spec(text))


def commands(path):
    """The commands of a page's consoles, and what they print."""
    for text in blocks(path, "console"):
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed


@pytest.mark.parametrize("path", [page for page in PAGES if list(commands(page))], ids=identity)
def test_consoles_show_what_is_printed(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for command, printed in commands(path):
        words = shlex.split(command)
        if words[0] == "tqgen":
            run(words[1:])
            out, err = capsys.readouterr()
            found = out + err
        else:
            found = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
        if printed.endswith("...\n"):
            assert found.startswith(printed.removesuffix("...\n")), command
        else:
            assert found.rstrip() == printed.rstrip(), command


def tree(tmp_path):
    """A copy of what a contributor changes."""
    for folder in ("tqgen", "templates", "specs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    return tmp_path


def add_what_it_says(page, root):
    text = page.read_text(encoding="utf-8")
    files = WHOLE_FILE.findall(text)
    for name, content in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    edits = EDIT.findall(text)
    for name, edit in edits:
        lines = edit.splitlines()
        before = "".join(line[1:] + "\n" for line in lines if line[:1] in (" ", "-"))
        after = "".join(line[1:] + "\n" for line in lines if line[:1] in (" ", "+"))
        there = (root / name).read_text()
        assert there.count(before) == 1, f"{name} is not as {page.name} expects: {before}"
        (root / name).write_text(there.replace(before, after))
    return [name for name, _ in files], edits


def tqgen(root, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600, env=environment)


INTERPRETED = """\
import torch
from tqgen.verify import interpreter

if interpreter.is_chosen() or not torch.cuda.is_available():
    interpreter.choose()
"""
CELLS = [
    "fp16-normal-b16-h3-shuffled-i64-padded-dense-model-ofp16",
    "bf16-inf-b8-h1-consecutive-i32-tight-dense-rotated-ofp32",
]


def test_the_codec_of_the_page_can_be_added(tmp_path):
    pytest.importorskip("triton")
    root = tree(tmp_path)
    files, _ = add_what_it_says(ROOT / "docs" / "add-a-codec.md", root)
    assert files == ["tqgen/codecs/midrise.py", "templates/codecs/midrise.py.j2", "midrise4.yaml"]
    shown = re.findall(r"--cell (\S+)", (ROOT / "docs" / "add-a-codec.md").read_text())
    assert len(shown) == 1
    for more in ([], ["--set", "head_dim=100", "--set", "key.rotation=none", "--set", "name=midrise4_100"]):
        cells = [word for cell in (*CELLS, *shown) for word in ("--cell", cell)]
        done = tqgen(root, "tqgen", "verify", "midrise4.yaml", *more, *cells)
        assert done.returncode == 0 and "3 cells passed, 0 failed" in done.stdout, done.stdout + done.stderr
    done = tqgen(root, "tqgen", "new", "mine", "--key", "midrise")
    assert done.returncode == 0 and "steps" in (root / "mine.yaml").read_text()


def test_the_kernel_of_the_page_can_be_added(tmp_path):
    pytest.importorskip("triton")
    root = tree(tmp_path)
    files, edits = add_what_it_says(ROOT / "docs" / "add-a-kernel.md", root)
    assert len(files) == 4 and len(edits) == 5
    (root / "tests" / "conftest.py").write_text(INTERPRETED)
    done = tqgen(root, "pytest", "-q", "-p", "no:cacheprovider", "tests/test_move.py", "-k", "mse3_v4 or none_vmse2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "def move(" not in Path(ROOT / "generated" / "mse3_v4.py").read_text()


def test_the_readme_lists_every_command(capsys):
    assert run(["--help"]) == 0
    commands = re.findall(r"^  (\w+)  ", capsys.readouterr().out.partition("Commands:")[2], re.MULTILINE)
    listed = re.findall(r"^\| `tqgen (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(commands) >= 10 and sorted(commands) == sorted(listed)
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert all(f"`{command}`" in changelog for command in commands)


def test_the_example_of_the_readme_runs_as_it_stands():
    """Pasted, on a machine with a GPU or without one."""
    pytest.importorskip("triton")
    (code,) = [text for text in blocks(ROOT / "README.md", "python") if "allocate" in text]
    code += (
        "assert key.dtype == torch.bfloat16 and output.shape == query.shape and output.isfinite().all()\n"
        "assert (keys[0, :num_tokens].float() - key.float()).abs().max() < 0.1 and not keys[0, num_tokens:].any()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-W", "error::RuntimeWarning:generated", "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "orders of magnitude" not in done.stderr, done.stderr


@pytest.mark.parametrize("page", ["docs/vendoring.md"])
def test_modules_are_used_as_shown(page, monkeypatch):
    """The code of the page, with small tensors for the names that it leaves to the reader."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from tqgen import verify

    (code,) = [text for text in blocks(ROOT / page, "python") if "allocate" in text]
    code = re.sub(r"^from [\w.]+ import mse3_v4$", "", code, flags=re.MULTILINE)
    where = str(verify.device())
    tokens, heads, size = 5, 2, 4
    vectors = torch.randn(2, tokens, heads, 128, device=where)
    names = {
        "mse3_v4": verify.load_module("mse3_v4", (ROOT / "generated" / "mse3_v4.py").read_text()),
        **{"num_blocks": 3, "block_size": size, "num_kv_heads": heads},
        **{"key": vectors[0], "value": vectors[1], "slot_mapping": torch.arange(tokens, device=where)},
        "query": torch.randn(1, 2 * heads, 128, device=where),
        "block_table": torch.tensor([[0, 1]], dtype=torch.int32, device=where),
        "seq_lens": torch.tensor([tokens], dtype=torch.int32, device=where),
    }
    exec(code.replace('"cuda"', repr(where)), names)
    assert names["key"].dtype == torch.bfloat16 and names["key"].shape == vectors[0].shape
    found = [names["key"]]
    if "keys" in names:
        assert not names["keys"][0, tokens:].any()
        found.append(names["keys"][0, :tokens])
    assert all((one.float() - vectors[0]).norm() / vectors[0].norm() < 0.3 for one in found)
    assert names["output"].shape == names["query"].shape and names["output"].isfinite().all()

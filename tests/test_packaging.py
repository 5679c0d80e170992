"""What is shipped: the wheel works without the source tree, the source distribution holds all of it."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tqgen import __version__, manifest, resources

ROOT = resources.PACKAGE.parent


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """The folder of a wheel and a source distribution of this tree."""
    folder = tmp_path_factory.mktemp("distributions")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_wheel_holds_templates_specs_and_data(distributions):
    (wheel,) = distributions.glob("*.whl")
    assert wheel.name == f"tqgen-{__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, inside in (("templates", "_templates"), ("specs", "_specs"), ("tqgen", ".")):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                assert os.path.normpath(f"tqgen/{inside}/{path.relative_to(ROOT / folder)}") in names
    assert not [name for name in names if name.startswith(("tests", "generated"))]
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_source_distribution_holds_everything_that_is_tracked(distributions):
    (archive,) = distributions.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.split("/", 1)[1] for name in opened.getnames() if "/" in name}
    for name in ("pyproject.toml", "README.md", "LICENSE", "constraints.txt", "tests/test_packaging.py"):
        assert name in names
    for folder in ("tqgen", "templates", "specs", "generated", "tests"):
        missing = {
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        } - names
        assert not missing


@pytest.fixture(scope="module")
def installed(distributions, tmp_path_factory):
    """The command of the wheel, installed in an environment of its own that borrows this one's dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    (wheel,) = distributions.glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(packages)]
    subprocess.run([*install, str(wheel)], check=True, timeout=120)
    import pydantic

    dependencies = Path(pydantic.__file__).parents[1]
    # behind the environment's own packages, and without this tree, which may be installed there as editable
    (packages / "borrowed.pth").write_text(f"{dependencies}\n")

    def call(*arguments, cwd):
        command = [folder / "bin" / "python", "-P" if sys.version_info >= (3, 11) else "-I", "-m", "tqgen", *arguments]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, env=environment)

    return call


def test_an_installation_builds_the_shipped_specs(installed, tmp_path):
    done = installed("build", "mse3_v4", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("generated/mse3_v4.py: written\n", "")
    assert (tmp_path / "generated" / "mse3_v4.py").read_bytes() == (ROOT / "generated" / "mse3_v4.py").read_bytes()
    done = installed("list", cwd=tmp_path)
    assert len(done.stdout.splitlines()) == 1 + len(manifest.shipped())
    assert installed("explain", "TQ3107", cwd=tmp_path).returncode == 0
    done = installed("build", "mse3_v4", "--check", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1 file is current\n")


def test_an_installation_builds_the_specs_of_its_user(installed, tmp_path):
    (tmp_path / "mine.yaml").write_text(manifest.locate("mse3_v4").read_text().replace("name: mse3_v4", "name: mine"))
    done = installed("build", "mine.yaml", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("generated/mine.py: written\n", "")
    diagnostic = installed("check", "mnie.yaml", cwd=tmp_path)
    assert diagnostic.returncode == 2 and "did you mean `mine.yaml`?" in diagnostic.stderr


def test_python_versions_and_the_pins_agree():
    text = (ROOT / "pyproject.toml").read_text()
    assert re.search(r'requires-python = ">=3\.10"', text)
    pins = (ROOT / "constraints.txt").read_text()
    black = re.search(r'"black>=(\d+),<(\d+)"', text)
    assert int(black[2]) == int(black[1]) + 1, "one calendar year of black's style"
    assert re.search(rf"^black=={black[1]}\.", pins, re.MULTILINE)


COMMANDS = [
    "build mse3_v4",
    "check mse3_v4",
    "show mse3_v4",
    "show mse3_v4 --svg map.svg",
    "list",
    "new mine",
    "diff mse3_v4 mse3_v4",
    f"breaking mse3_v4 --against {ROOT / 'generated'}",
    "schema",
    "explain TQ4107",
]


def without_torch(command, folder):
    """Run a command where torch and triton cannot be imported."""
    program = (
        "import sys; sys.modules['torch'] = sys.modules['triton'] = None; "
        "from tqgen.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", program, *command.split()]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=folder, env=environment)


@pytest.mark.parametrize("command", COMMANDS)
def test_everything_but_verifying_works_without_torch(command, tmp_path):
    if command.startswith("build"):
        command = f"{command} -o {tmp_path}"
    done = without_torch(command, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_verifying_asks_for_the_extra_by_name(tmp_path):
    done = without_torch("verify mse3_v4 --cell anything", tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error[TQ4107]: verifying runs the kernels, and needs torch and triton\n")
    assert "pip install '.[kernels]'" in done.stderr

"""Dependencies point one way: what each module may import, from its text."""

import ast
from pathlib import Path

import pytest
from support.leftovers import leftovers

from tqgen import manifest, resources

PACKAGE = resources.PACKAGE
ROOT = PACKAGE.parent


def modules():
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(PACKAGE.rglob("*.py"))
    }


MODULES = modules()


def imports(path, runtime_only=False):
    """Names that a file imports, wherever in it; with `runtime_only` those for type checkers alone are left out."""
    found = set()

    def visit(node):
        if runtime_only and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(names)
            if not names <= MODULES.keys():  # something of the module itself, not only modules of a package
                found.add(node.module)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(Path(path).read_text(encoding="utf-8")))
    return found


def own_imports(name, **options):
    return {found for found in imports(MODULES[name], **options) if found in MODULES}


def reachable(*starts, **options):
    """Every module of the package that one of `starts` imports, directly or not."""
    seen, waiting = set(), list(starts)
    while waiting:
        for found in own_imports(waiting.pop(), **options):
            if found not in seen:
                seen.add(found)
                waiting.append(found)
    return seen


def below(*prefixes):
    return {name for name in MODULES if any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)}


COMPILER = below(
    "tqgen.lower", "tqgen.plan", "tqgen.emit", "tqgen.reached", "tqgen.compiler", "tqgen.numerics.literals"
)


def test_the_walk_sees_imports():
    assert "tqgen.layout" in reachable("tqgen.reference")
    assert len(MODULES) > 30


def test_the_reference_never_reaches_the_compiler():
    for name in (
        "tqgen.reference",
        "tqgen.reference.compare",
        "tqgen.numerics.floats",
        "tqgen.numerics.packing",
        "tqgen.reference.transform",
    ):
        # codecs hold both their arithmetic and the constants of their kernels: literals are text, not arithmetic
        assert not reachable(name) & (COMPILER - {"tqgen.numerics.literals"}), name


def test_codecs_never_reach_the_compiler():
    for name in below("tqgen.codecs"):
        assert not reachable(name) & (COMPILER - {"tqgen.numerics.literals"}), name


def test_emit_never_sees_a_spec_or_a_layout():
    seen = reachable("tqgen.emit", runtime_only=True)
    assert not seen & below(
        "tqgen.spec", "tqgen.spec.models", "tqgen.layout", "tqgen.layout.resolve", "tqgen.codecs", "tqgen.lower"
    )


def test_nothing_imports_the_command_line():
    for name in MODULES:
        if name not in {"tqgen.__main__", *below("tqgen.cli")}:
            assert not own_imports(name) & {*below("tqgen.cli"), "tqgen.__main__"}, name
        if not name.startswith(("tqgen.cli", "tqgen.__main__", "tqgen.commands")):
            assert not reachable(name) & below("tqgen.commands", "tqgen.commands.console"), name
        if name not in {"tqgen.cli.app", "tqgen.cli.command"}:
            assert not imports(MODULES[name]) & {"typer", "click", "rich"}, name


def test_only_verification_imports_torch():
    users = {name for name in MODULES if imports(MODULES[name]) & {"torch", "triton"}}
    assert users <= {
        "tqgen.verify.interpreter",
        "tqgen.verify.attention",
        "tqgen.verify.sequences",
        "tqgen.verify.trial",
        "tqgen.verify",
        "tqgen.commands.verify",
        *below("tqgen.bench", "tqgen.commands.bench", "tqgen.inspect"),
    }


def test_no_cycles():
    for name in MODULES:
        cyclic = {
            found for found in own_imports(name, runtime_only=True) if name in reachable(found, runtime_only=True)
        }
        assert not cyclic - {name}, f"{name} and {sorted(cyclic)} import each other"


@pytest.mark.parametrize("path", sorted((ROOT / manifest.OUTPUT).glob("*.py")), ids=lambda path: path.stem)
def test_generated_modules_stand_alone(path):
    allowed = {"torch", "triton", "contextlib", "dataclasses", "functools", "math", "numbers", "warnings"}
    assert {name.partition(".")[0] for name in imports(path)} <= allowed


@pytest.mark.parametrize("path", sorted((ROOT / manifest.OUTPUT).glob("[!_]*.py")), ids=lambda path: path.stem)
def test_generated_modules_use_what_they_define(path):
    """No function, table, import or local is left over."""
    assert leftovers(path.read_text(encoding="utf-8")) == []


def test_what_tests_share_is_apart():
    """Beside tests there are commands, which people call by their file, and what pytest looks for."""
    for path in sorted((ROOT / "tests").glob("*.py")):
        is_command = '__name__ == "__main__"' in path.read_text(encoding="utf-8")
        assert path.name.startswith("test_") or path.name == "conftest.py" or is_command, path.name
    for path in sorted((ROOT / "tests" / "support").glob("*.py")):
        assert not {name for name in {path.stem, *imports(path)} if name.startswith("test_")}, path.name

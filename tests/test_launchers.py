"""Launchers refuse what does not fit, and the tables that they keep are right on every device."""

import ast
import importlib
import os
import re
import subprocess
import sys

import pytest
import torch
from support.kernels import kernels_of
from support.refusals import misdescribed, unrefused

from tqgen import manifest, resources
from tqgen.compiler import compile_spec

ROOT = resources.PACKAGE.parent
SHIPPED = [entry.name for entry in manifest.shipped()]
SIDES = {
    "matrix and center": '{"codec": "mse", "bits": 4, "rotation": "matrix", "center": true}',
    "center": '{"codec": "uniform", "bits": 4, "center": true}',
    "signs": '{"codec": "uniform", "bits": 3, "rotation": "signed_hadamard"}',
    "none": '{"codec": "none"}',
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_modules_refuse_what_does_not_fit(name):
    layout, module = compile_spec(manifest.locate(name)).layout, importlib.import_module(f"generated.{name}")
    assert not unrefused(layout, module) and not misdescribed(layout, module)


@pytest.mark.parametrize("value", SIDES)
@pytest.mark.parametrize("key", SIDES)
def test_modules_refuse_what_does_not_fit(key, value):
    if key == value == "none":
        return
    sides = f'"key": {SIDES[key]}, "value": {SIDES[value]}'
    made = kernels_of(f'{{"tqgen": 1, "name": "refusing", "head_dim": 16, {sides}}}')
    assert not unrefused(made.layout, made.module) and not misdescribed(made.layout, made.module)


def test_on_the_cpu_kernels_need_the_interpreter():
    """Triton's own error would speak of drivers."""
    script = (
        "import torch\nfrom generated import fp8_v4 as module\n"
        "cache = module.allocate(1, 16, 1, device='cpu')\nmodule.unpack(cache, torch.zeros(1, dtype=torch.int64))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 1 and "before triton is imported" in ran.stderr
    assert ran.stderr.splitlines()[-1].startswith("RuntimeError: kv_cache is on the CPU")
    assert "TRITON_INTERPRET=1" in ran.stderr.splitlines()[-1]


@pytest.mark.parametrize("repaired", [False, True])
def test_an_interpreter_that_was_not_repaired_is_warned_of_once(repaired):
    """Its numbers are wrong, and nothing else would say so."""
    script = (
        ("from tqgen.verify import interpreter\ninterpreter.choose()\n" if repaired else "")
        + "import torch\nfrom generated import fp8_v4 as module\n"
        "cache = module.allocate(1, 16, 1, device='cpu')\n"
        "for _ in range(2):\n    module.unpack(cache, torch.zeros(1, dtype=torch.int64))"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stderr.count("wrong by orders of magnitude") == (not repaired), ran.stderr


def test_messages_say_what_was_given():
    sides = f'"key": {SIDES["none"]}, "value": {SIDES["center"]}'
    made = kernels_of(f'{{"tqgen": 1, "name": "saying", "head_dim": 16, {sides}}}')
    module, cache = made.module, made.module.allocate(1, 16, 1, device="cpu")
    slots = torch.zeros(1, dtype=torch.int64)
    for call, said in (
        (lambda: module.unpack(cache.view(torch.int8), slots, space="rotated"), "not a tensor of torch.int8"),
        (lambda: module.unpack(cache, [0], space="rotated"), "slot_mapping must be an int32 or int64 tensor, not list"),
        (lambda: module.unpack(cache, slots, space="rotated", out=(None, 3)), "for the values, not int"),
        (
            lambda: module.unpack(cache, slots, space="rotated", out=("x", None)),
            "out must hold None for the keys.* not str",
        ),
        (lambda: module.unpack(cache, slots, value_center=slots), "fp32 tensor, not a tensor of torch.int64"),
    ):
        with pytest.raises(TypeError, match=said):
            call()


def test_vectors_and_slots_of_other_counts_are_both_named():
    """Either may be what is wrong."""
    made = kernels_of(
        f'{{"tqgen": 1, "name": "counting", "head_dim": 16, "key": {SIDES["none"]}, "value": {SIDES["center"]}}}'
    )
    cache, center = made.module.allocate(1, 16, 2, device="cpu"), torch.zeros(2, 16)
    said = r"value must be \[3, 2, 16\] for the 3 slots of slot_mapping and the 2 heads of kv_cache, got \[20, 2, 16\]"
    with pytest.raises(ValueError, match=said):
        made.module.store(None, torch.zeros(20, 2, 16), cache, torch.arange(3), value_center=center)


@pytest.mark.parametrize("name", SHIPPED)
def test_docstrings_are_those_of_the_module(name):
    """Nothing of sides that are not stored, or of a model space that is not left; no terms that do nothing."""
    path = ROOT / "generated" / f"{name}.py"
    plan, text = compile_spec(manifest.locate(name)).plan, path.read_text(encoding="utf-8")
    functions = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    stored = [side.name for side in (plan.key, plan.value) if side]
    said = ast.get_docstring(functions["store"]).split("\n")[0]
    assert said.startswith(f"Encode {' and '.join(f'{side}s' for side in stored)} and write them")
    if "_merge_kernel" in functions:
        rotated = plan.value.rotation.kind != "none" or plan.value.center
        assert ("model space" in " ".join(ast.get_docstring(functions["_merge_kernel"]).split())) == rotated
    assert "manieth" not in text and "the field's" not in text
    assert not re.search(r"[*%] 1\b(?!\.)", text)

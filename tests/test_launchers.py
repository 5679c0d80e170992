"""Launchers refuse what does not fit, and the tables that they keep are right on every device."""

import importlib

import pytest
from kernels import kernels_of
from refusals import misdescribed, unrefused

from tqgen import manifest
from tqgen.compiler import compile_spec

SHIPPED = [entry.name for entry in manifest.shipped()]
SIDES = {
    "matrix and center": '{"codec": "mse", "bits": 4, "rotation": "matrix", "center": true}',
    "center": '{"codec": "uniform", "bits": 4, "center": true}',
    "signs": '{"codec": "uniform", "bits": 3, "rotation": "signed_hadamard", "center": true}',
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

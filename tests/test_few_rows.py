"""Attention of few query rows where a run of codes, or metadata, does not come as whole aligned words."""

import importlib
import itertools
import json

import numpy as np
import pytest
import test_matrix_attention
import torch
from support import ptx_machine
from support.kernels import kernels_of
from test_ptx import few_rows

from tqgen import manifest, verify
from tqgen.compiler import compile_spec
from tqgen.layout.resolve import resolve
from tqgen.lower import lower
from tqgen.spec import parse_spec
from tqgen.verify import attention
from tqgen.verify.cells import Cell

FP32_NORM = {"codec": "mse", "bits": 4, "rotation": "hadamard", "norm": {"dtype": "fp32"}}
SPECS = {
    # 0xFF is NaN in fp8, also where no token is
    "fp8 values between odd fields": {
        "head_dim": 64,
        "key": {"codec": "mse", "bits": 4},
        "value": {"codec": "fp8", "scale": {}},
        "block": "aos",
    },
    "norms of 4 bytes that are not neighbours": {
        "head_dim": 128,
        "key": FP32_NORM,
        "value": {"codec": "uniform", "bits": 4},
        "block": "aos",
    },
    "more units than a thread takes": {
        "head_dim": 256,
        "key": {"codec": "mse", "bits": 2},
        "value": {"codec": "uniform", "bits": 4},
        "block": "soa",
    },
    "scales of any size": {
        "head_dim": 64,
        "key": {"codec": "mse", "bits": 4},
        "value": {"codec": "uniform", "bits": 4, "scale": {"dtype": "fp32"}},
        "block": "soa",
    },
}
HAS_FRAGMENTS = {"fp8 values between odd fields": True, "norms of 4 bytes that are not neighbours": True}


@pytest.mark.parametrize("name", SPECS)
def test_attention(name, tally):
    kernels = kernels_of(json.dumps({"tqgen": 1, "name": "few", **SPECS[name]}))
    plan = kernels.plan.attention
    assert bool(plan.fragments) == HAS_FRAGMENTS.get(name, False)
    cell = few_rows(kernels.layout)
    with np.errstate(all="ignore"):
        result = attention.attend(kernels.layout, kernels.module, cell, verify.device())
    assert result.ok, str(result)
    tally("interpreter", cells=1)


@pytest.mark.parametrize("assembled", [True, False], ids=["with PTX", "without"])
@pytest.mark.parametrize("heads", ["h1", "h3", "h8"])
@pytest.mark.parametrize("name", ["mse4_v4_aos", "mse3_v3_aos", "mse3_v3"])
def test_runs_that_start_in_the_middle_of_a_word(name, heads, assembled, monkeypatch, tally):
    """With an odd number of heads every other token does, otherwise those of some heads, or of some threads."""
    layout = compile_spec(manifest.locate(name)).layout
    module = importlib.import_module(f"generated.{name}")
    ptx_machine.install()
    monkeypatch.setattr(module, "_has_ptx", lambda *_: assembled)
    monkeypatch.delattr(module, "_attention_tile")  # another kernel's
    cell = few_rows(layout, [heads])
    with np.errstate(all="ignore"):
        result = attention.attend(layout, module, cell, verify.device())
    assert result.ok, f"decode_attention in cell {cell.id}: {result}"
    tally("interpreter", cells=1)


# What runs of four tokens in one block, loads of 16 bytes and a block to read where no token is cannot have.
UNFIT = {
    "blocks that end within a run": Cell(block="b6", heads="h2", places="edges", cache="padded"),
    "blocks at any address": Cell(block="b16", heads="h2", places="edges", cache="odd"),
}


@pytest.mark.parametrize("unfit", UNFIT)
@pytest.mark.parametrize("name", ["mse4_v4", "mse3_v3_aos", "fp8_v4"])
def test_caches_that_runs_do_not_fit(name, unfit, tally):
    layout, module = compile_spec(manifest.locate(name)).layout, importlib.import_module(f"generated.{name}")
    call = attention.Call(group=2, queries=1, lengths=(17, 5, 31), options={})
    with np.errstate(all="ignore"):
        result = attention.attend(layout, module, UNFIT[unfit], verify.device(), call)
    assert result.ok, str(result)
    tally("interpreter", cells=1)


def test_blocks_that_are_less_aligned_than_loads_of_numbers(tally):
    """Within a block the numbers of four tokens are at multiples of 8 bytes, but the cache is at one of 4."""
    regions = [
        {"name": "codes", "order": ["token", "head", "field"], "fields": ["key.codes", "value.codes"], "align": 4},
        {"name": "rest", "order": ["head", "field", "token"], "fields": ["key.norm", "value.scale", "value.zero"]},
    ]
    regions[0]["fields"][0] = {"field": "key.codes", "align": 4}
    sides = {"key": {"codec": "mse", "bits": 4}, "value": {"codec": "uniform", "bits": 4}}
    spec = {"tqgen": 1, "name": "few", "head_dim": 128, **sides, "block": {"regions": regions}}
    kernels = kernels_of(json.dumps(spec))
    assert kernels.layout.alignment == 4 and all(field.words for field in kernels.plan.attention.fragments.key.fields)
    call = attention.Call(group=2, queries=1, lengths=(17, 5, 31), options={})
    cell = Cell(block="b16", heads="h2", places="edges", cache="odd")
    with np.errstate(all="ignore"):
        result = attention.attend(kernels.layout, kernels.module, cell, verify.device(), call)
    assert result.ok, str(result)
    tally("interpreter", cells=1)


def test_every_address_is_a_multiple_of_what_is_loaded_from_it():
    """In all blocks that this form takes, and not only in those of launches: GPUs stop at any other address."""
    specs = [test_matrix_attention.spec_of(row) for row in test_matrix_attention.rows()]
    specs += [{"tqgen": 1, "name": "few", **spec} for spec in SPECS.values()]
    widths = set()
    for spec in specs:
        layout = resolve(parse_spec(json.dumps(spec), "few.yaml"))
        plan = lower(layout, "few.yaml").attention.fragments
        for name, run in (("key", plan.key), ("value", plan.value)) if plan else ():
            codes = 4 * run.piece_words or (2 if run.shifted else 4)
            assert run.num_bytes % codes == 0
            loaded = {f"{name}.codes": codes}
            loaded |= {one.title: one.words * 4 or one.item_bytes for one in run.fields if not one.grouped}
            for (title, width), block_size, heads in itertools.product(loaded.items(), (4, 12, 16), (1, 2, 3)):
                field = layout.field(title)
                for token, head in itertools.product(range(0, block_size, 4), range(heads)):
                    assert field.address(token, head, block_size, heads) % width == 0, (spec, title, block_size, heads)
            widths |= set(loaded.values())
    assert widths == {2, 4, 8, 16}


def test_a_cache_without_blocks():
    module = importlib.import_module("generated.mse4_v4")
    where = verify.device()
    cache = module.allocate(1, 16, 2, device=where)[:0]
    table, lengths = (torch.zeros(shape, dtype=torch.int32, device=where) for shape in ((2, 0), (2,)))
    output = module.decode_attention(torch.ones(2, 4, 128, device=where), cache, table, lengths)
    assert output.shape == (2, 4, 128) and not output.any()

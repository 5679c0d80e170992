"""The store in PyTorch that kernels are compared with in speed does the same work: its bytes are right."""

import numpy as np
import pytest
import torch

from tqgen import manifest, reference
from tqgen.bench.torch_store import DTYPES, TorchStore
from tqgen.layout.resolve import resolve
from tqgen.reference import compare
from tqgen.spec import load_spec, parse_spec
from tqgen.verify.trial import run_time_arguments

TOKENS, HEADS, BLOCK_SIZE = 40, 3, 16
OTHERS = {
    "symmetric": '{"codec": "uniform", "bits": 3, "symmetric": true, "group": 16, "rounding": "half_even"}',
    "stored": '{"codec": "uniform", "bits": 5, "rounding": "half_away", "quantize_with": "stored"}',
    "scaled": '{"codec": "fp8", "format": "e5m2", "scale": {"dtype": "fp32"}, "group": 16}',
    "raw": '{"codec": "raw", "dtype": "bf16", "rotation": "signed_hadamard"}',
    "matrix": '{"codec": "mse", "bits": 2, "rotation": "matrix", "center": true, "tie": "down"}',
    "halves": '{"codec": "mse", "bits": 4, "packing": "halves", "rotation": "hadamard", "norm_correction": "store"}',
    "wide": '{"codec": "mse", "bits": 6, "rotation": "hadamard", "norm": {"dtype": "fp32"}}',
}


def layouts():
    for entry in manifest.shipped():
        if entry.name.endswith("_aos"):
            yield pytest.param(lambda entry=entry: resolve(load_spec(entry.path, {})), id=entry.name)
    for name, side in OTHERS.items():
        sides = f'"key": {side}, "value": {{"codec": "raw", "dtype": "fp16"}}'
        text = f'{{"tqgen": 1, "name": "one", "head_dim": 32, {sides}, "block": "aos"}}'
        yield pytest.param(lambda text=text: resolve(parse_spec(text, "one.yaml")), id=name)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("made", list(layouts()))
def test_bytes(made, dtype):
    layout = made()
    rng = np.random.default_rng(1)
    shape = (4, BLOCK_SIZE, HEADS, layout.slot_bytes)
    run_time = run_time_arguments(layout, HEADS)
    given = {
        side.name: torch.from_numpy(rng.standard_normal((TOKENS, HEADS, side.head_dim))).to(DTYPES[dtype])
        for side in layout.sides
    }
    slots = torch.from_numpy(rng.permutation(4 * BLOCK_SIZE)[:TOKENS])
    store = TorchStore(layout, torch.device("cpu"), {name: torch.from_numpy(one) for name, one in run_time.items()})
    cache = torch.full(shape, 0xEE, dtype=torch.uint8)
    store(given, cache.view(-1, HEADS, layout.slot_bytes), slots)
    expected = {
        side.name: reference.encode(
            layout,
            side.name,
            given[side.name].double().numpy(),
            rotation=run_time.get(f"{side.name}_rotation"),
            center=run_time.get(f"{side.name}_center"),
        )
        for side in layout.sides
    }
    empty = np.full(shape, 0xEE, dtype=np.uint8)
    result = compare.compare_cache(layout, empty, cache.numpy(), expected, slots.numpy())
    assert result.ok, str(result)
    assert result.bytes and not (cache == 0xEE).all()

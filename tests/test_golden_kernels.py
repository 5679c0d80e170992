"""Generated kernels against caches and outputs that other implementations wrote; `golden/README.md` describes them.

The same checks run on a GPU: `python benchmarks/gpu_tier OUTPUT_FOLDER --part golden`.
"""

import numpy as np
import pytest
import torch
from support.golden_cases import TURBOQUANT, case, names
from support.kernels import load

from tqgen import reference, verify
from tqgen.lower import lower
from tqgen.numerics import floats
from tqgen.reference.compare import compare_cache

VALUE_CASES = names("value_mse")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
GUARD = 0xEE
ATTENTION_ROUNDINGS = 4  # of the largest |value|: what other kernels' attention was found to round on its way


def modules_of(golden):
    layout = golden.layout()
    return layout, load(layout.name, lower(layout, "golden.yaml"))


def tensor(bits, dtype, where):
    return torch.from_numpy(bits.astype(np.int32).astype(np.int16)).view(DTYPES[dtype]).to(where)


def bits_of(values):
    return values.cpu().contiguous().view(torch.int16).numpy().view(np.uint16)


def check_turboquant(file, name, where):
    """store and unpack by the golden vectors' rule, attention to a few roundings; the number of differing elements."""
    golden = case(file, name)
    layout, module = modules_of(golden)
    slots = torch.from_numpy(golden["slot_mapping"]).to(where)
    cache = torch.full(golden["cache"].shape, GUARD, dtype=torch.uint8, device=where)
    module.store(*(tensor(golden[side], golden.dtype, where) for side in ("key", "value")), cache, slots)
    expected = {side: reference.encode(layout, side, golden.numbers(side)) for side in ("key", "value")}
    after = cache.cpu().numpy()
    result = compare_cache(layout, np.full_like(after, GUARD), after, expected, golden["slot_mapping"])
    assert result.ok, str(result)
    assert result.bytes == golden["cache"].size

    given = torch.from_numpy(golden["cache"]).to(where)
    unpacked = module.unpack(given, slots[:-1], space="rotated")
    differing = 0
    for side, got in zip(("key", "value"), unpacked, strict=True):
        theirs = golden[f"{side}_unpacked"]
        differing += int((bits_of(got) != theirs).sum())
        # one unit in the last place, where the product lies between two fp16 numbers to within fp32 rounding
        steps = np.abs(floats.ordinals(bits_of(got), "fp16") - floats.ordinals(theirs, "fp16"))
        assert steps.max() <= 1, (side, int(steps.max()))

    output = module.decode_attention(
        tensor(golden["query"], golden.dtype, where),
        given,
        torch.from_numpy(golden["block_table"]).to(where),
        torch.from_numpy(golden["seq_lens"]).to(where),
        float(golden.meta["softmax_scale"]),
    )
    off = np.abs(output.cpu().to(torch.float64).numpy() - golden.numbers("attention_out"))
    largest = np.abs(golden.numbers("value_unpacked", "fp16")).max()
    rounding = {"bf16": 2.0**-8, "fp16": 2.0**-11}[golden.dtype]
    assert off.max() <= ATTENTION_ROUNDINGS * rounding * largest, off.max()
    return differing


def check_value_mse(name, where):
    """store, unpack in both spaces and the output's rotation; differing elements."""
    golden = case("value_mse", name)
    layout, module = modules_of(golden)
    rotation = torch.from_numpy(golden["rotation"]).to(where)
    slots = torch.from_numpy(golden["slot_mapping"]).to(where)
    cache = torch.full(golden["cache"].shape, GUARD, dtype=torch.uint8, device=where)
    module.store(None, tensor(golden["value"], golden.dtype, where), cache, slots, value_rotation=rotation)
    expected = {"value": reference.encode(layout, "value", golden.numbers("value"), rotation=golden["rotation"])}
    after = cache.cpu().numpy()
    result = compare_cache(layout, np.full_like(after, GUARD), after, expected, golden["slot_mapping"])
    assert result.ok, str(result)

    given = torch.from_numpy(golden["cache"]).to(where)
    live = golden["slot_mapping"] >= 0  # theirs leaves a negative slot's row unwritten
    differing = 0
    for space in ("rotated", "model"):
        _, got = module.unpack(given, slots, space=space, value_rotation=rotation)
        ours, theirs = bits_of(got)[live], golden[f"unpacked_{space}"][live]
        differing += int((ours != theirs).sum())
        distance = np.abs(floats.from_bits(ours, "fp16") - floats.from_bits(theirs, "fp16"))
        # a unit in the last place of an element, after a product whose fp32 sum has another order
        ulp = 2.0**-10 * np.abs(floats.from_bits(theirs, "fp16")) + 2.0**-20
        assert (distance <= ulp).all(), (space, float((distance / ulp).max()))
    rotated = module.rotate_attention_output(tensor(golden["attention_in"], "fp16", where), value_rotation=rotation)
    distance = np.abs(rotated.cpu().to(torch.float64).numpy() - golden.numbers("attention_out", "fp16"))
    assert (distance <= 2.0**-10 * np.abs(golden.numbers("attention_out", "fp16")) + 2.0**-20).all()
    return differing


@pytest.mark.parametrize("file, name", [(file, name) for file in TURBOQUANT for name in names(file)])
def test_turboquant(file, name):
    assert check_turboquant(file, name, verify.device()) == 0


@pytest.mark.parametrize("name", VALUE_CASES)
def test_value_mse(name):
    check_value_mse(name, verify.device())

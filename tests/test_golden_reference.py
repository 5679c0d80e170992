"""The reference against caches and outputs that other implementations wrote; `golden/README.md` describes them."""

import numpy as np
import pytest
from support.golden_cases import TURBOQUANT, case, names

from tqgen import reference
from tqgen.codecs.base import Span
from tqgen.numerics import floats
from tqgen.reference.compare import compare_cache, compare_unpacked

TURBOQUANT_CASES = [(file, name) for file in TURBOQUANT for name in names(file)]
VALUE_CASES = names("value_mse")
EPSILON = {"bf16": 2.0**-8, "fp16": 2.0**-11}  # of one rounding

# The kernels divide with `div.full.f32`, whose error is at most 2 units in the last place (PTX ISA, `div`).
DIVISION_ULPS = 2


def test_all_cases_are_here():
    assert len(TURBOQUANT_CASES) == 60
    assert len(VALUE_CASES) == 9


@pytest.mark.parametrize("file, name", TURBOQUANT_CASES)
def test_turboquant_store(file, name):
    golden = case(file, name)
    layout = golden.layout()
    expected = {
        side: reference.encode(layout, side, golden.numbers(side), division_ulps=DIVISION_ULPS)
        for side in ("key", "value")
    }
    before = np.full_like(golden["cache"], 0xEE)
    result = compare_cache(layout, before, golden["cache"], expected, golden["slot_mapping"])
    assert result.ok, str(result)
    assert result.bytes == golden["cache"].size
    # bf16 inputs lie on edges between codes often enough to be seen, and still hardly ever.
    assert result.allowances <= 14


@pytest.mark.parametrize("file, name", TURBOQUANT_CASES)
def test_turboquant_keys_need_no_allowance(file, name):
    golden = case(file, name)
    layout = golden.layout()
    stored = golden["slot_mapping"] >= 0
    parts = reference.read_parts(layout, golden["cache"], golden["slot_mapping"][stored])["key"]
    for part, span in reference.encode(layout, "key", golden.numbers("key")).items():
        assert np.array_equal(parts[part], span.exact[stored]), part


@pytest.mark.parametrize("file, name", TURBOQUANT_CASES)
def test_turboquant_unpack(file, name):
    golden = case(file, name)
    slots = golden["slot_mapping"][golden["slot_mapping"] >= 0]
    expected = reference.unpack(golden.layout(), golden["cache"], slots, space="rotated")
    got = {side: golden.numbers(f"{side}_unpacked", "fp16") for side in ("key", "value")}
    result = compare_unpacked(expected, got, slots)
    assert result.ok, str(result)
    assert result.allowances == 0
    # Uniform values are not allowed anything: their products and sums are exact before the last rounding.
    assert np.array_equal(expected["value"].low, expected["value"].high)


@pytest.mark.parametrize("file, name", TURBOQUANT_CASES)
def test_turboquant_attention(file, name):
    golden = case(file, name)
    layout = golden.layout()
    output, _ = reference.attention(
        layout,
        golden.numbers("query"),
        golden["cache"],
        golden["block_table"],
        golden["seq_lens"],
        float(golden.meta["softmax_scale"]),
    )
    error = np.abs(output - golden.numbers("attention_out"))
    # The AoS kernel computes in fp32 and rounds its output. The SoA kernel also rounds queries, keys, probabilities and
    # values to the dtype, so that its error is that of its largest value.
    values = reference.decoded_vectors(layout, golden["cache"], golden["slot_mapping"][:-1], "value")
    roundings = {"aos": np.abs(output) + 2.0**-8, "soa": 4 * np.abs(values).max()}[golden.meta["arrangement"]]
    assert np.all(error <= EPSILON[golden.dtype] * roundings), float(error.max())


@pytest.mark.parametrize("name", VALUE_CASES)
def test_value_mse_store(name):
    golden = case("value_mse", name)
    layout = golden.layout()
    vectors = golden.numbers("value")
    span = reference.encode(layout, "value", vectors, rotation=golden["rotation"])
    # A zero vector lies on the middle edge, which is some 1e-17 in the table of this encoder and 0 in ours.
    middle = 2 ** int(golden.meta["value"][-1]) // 2
    zero = ~vectors.any(-1)[..., None]
    codes = span["codes"]
    assert np.all(codes.exact[np.broadcast_to(zero, codes.exact.shape)] == middle)
    span["codes"] = Span(np.where(zero, middle - 1, codes.low), codes.exact, codes.high)

    result = compare_cache(layout, golden["cache"], golden["cache"], {"value": span}, golden["slot_mapping"])
    assert result.ok, str(result)
    assert result.codes == vectors.size and result.metadata == zero.size
    assert result.allowances <= zero.sum() * layout.value.head_dim


@pytest.mark.parametrize("space", ["rotated", "model"])
@pytest.mark.parametrize("name", VALUE_CASES)
def test_value_mse_unpack(name, space):
    golden = case("value_mse", name)
    expected = reference.unpack(
        golden.layout(), golden["cache"], golden["slot_mapping"], space=space, value_rotation=golden["rotation"]
    )
    result = compare_unpacked(expected, {"value": golden.numbers(f"unpacked_{space}", "fp16")})
    assert result.ok, str(result)
    # The matrix product is in fp32: with either matrix in fp16 or tf32 a third of the elements would differ.
    assert result.allowances <= result.elements * 0.003


@pytest.mark.parametrize("name", VALUE_CASES)
def test_value_mse_output_rotation(name):
    golden = case("value_mse", name)
    vectors = golden.numbers("attention_in", "fp16")
    matrix = golden["rotation"].astype(np.float64).T
    error = floats.accumulation(len(matrix)) * (np.abs(vectors) @ np.abs(matrix))
    expected = floats.span(vectors @ matrix, error, "fp16")
    result = compare_unpacked({"output": expected}, {"output": golden.numbers("attention_out", "fp16")})
    assert result.ok, str(result)
    assert result.allowances <= result.elements * 0.01

"""The forms of kernels that NVIDIA's GPUs run, with their inline assembly, on a machine for it in numpy."""

import functools
import importlib
import itertools
import json

import numpy as np
import pytest
from support import ptx_machine
from support.any_bytes import unpacked_any_bytes
from support.kernels import kernels_of
from support.matrix import row_name, spec_text
from test_matrix_kernels import combinations

from tqgen import manifest, verify
from tqgen.compiler import compile_spec
from tqgen.layout.resolve import resolve
from tqgen.lower import lower, ptx
from tqgen.lower.fragments import MOST_ROWS
from tqgen.lower.ptx_pairs import paired_expansion
from tqgen.spec import parse_spec
from tqgen.verify import attention
from tqgen.verify.cells import Cell
from tqgen.verify.trial import misfit

pytestmark = pytest.mark.skipif(verify.device().type == "cuda", reason="a GPU runs the assembly itself")


def u32(*numbers):
    return np.array(numbers, dtype=np.uint32)


# By hand, from the descriptions of the instructions in NVIDIA's PTX ISA.
ANSWERS = [
    ("prmt.b32 $0, $1, $2, 0x5140;", 0x33221100, 0x77665544, 0x55114400),
    ("prmt.b32 $0, $1, $2, 0x7362;", 0x33221100, 0x77665544, 0x77336622),
    ("prmt.b32 $0, $1, $2, 0x000f;", 0x33221180, 0xFF665544, 0x808080FF),
    ("prmt.b32 $0, $1, $2, 0xc8c8;", 0x33221180, 0x77665544, 0x00FF00FF),
    ("lop3.b32 $0, $1, $2, 0x0000ff00, 0xea;", 0xF0F01234, 0x0F0F5678, 0x0000FF30),
    ("dp4a.u32.u32 $0, $1, $2, 7;", 0x01020304, 0x05060708, 77),
    ("shl.b32 $0, $1, $2;", 0xFFFFFFFF, 32, 0),
    ("shr.u32 $0, $1, $2;", 0x80000000, 31, 1),
    ("bfe.u32 $0, $1, 4, $2;", 0xABCD, 8, 0xBC),
    ("sub.u32 $0, $1, $2;", 1, 2, 0xFFFFFFFF),
    ("not.b32 $0, $1;", 0x0F0F0F0F, 0, 0xF0F0F0F0),
    ("add.rn.f16x2 $0, $1, $2;", 0x3C006408, 0xBC00E408, 0x00000000),
    ("fma.rn.f16x2 $0, $1, 0x2c002c00, $2;", 0x64F06400, 0xD480D480, 0x4700C800),
    ("mul.rn.f32 $0, $1, 0fC0000000;", 0x3FC00000, 0, 0xC0400000),
    ("cvt.rn.f16x2.f32 $0, $1, $2;", 0x3F800000, 0xC77FF000, 0x3C00FC00),
    ("cvt.rn.bf16x2.f32 $0, $1, $2;", 0x3F800000, 0x40498000, 0x3F80404A),
    ("{ .reg .b16 a, b; mov.b32 {a, b}, $1; mov.b32 $0, {b, a}; }", 0x12345678, 0, 0x56781234),
    ("{ .reg .b16 a, b; mov.b32 {a, b}, $1; cvt.rn.f16x2.e4m3x2 $0, a; }", 0xFFFF38B8, 0, 0x3C00BC00),
]


@pytest.mark.parametrize(("assembly", "a", "b", "answer"), ANSWERS)
def test_the_machine_does_what_the_instructions_do(assembly, a, b, answer):
    (got,) = ptx_machine.run(assembly, 1, [u32(a), u32(b)])
    assert f"{int(got[0]):08x}" == f"{answer:08x}"


def test_the_machine_refuses_what_it_does_not_know():
    with pytest.raises(NotImplementedError, match="vote"):
        ptx_machine.run("vote.sync.all.pred $0, $1;", 1, [u32(0)])
    with pytest.raises(ValueError, match="`x` is read before"):
        ptx_machine.run("add.u32 $0, x, $1;", 1, [u32(0)])


@pytest.mark.parametrize(("name", "bits"), [("mse3_v3_aos", 3), ("mse4_v4_aos", 4), ("none_vmse2", 2)])
def test_sums_of_squares(name, bits):
    """Of every code eight times and of mixed ones: each square is off by 7e-5 at most."""
    layout = compile_spec(manifest.locate(name)).layout
    side = layout.key if layout.key.is_stored else layout.value
    levels = side.codec.folding(side).numbers
    expansion = ptx.expansion(bits, levels, squares=True)
    rng = np.random.default_rng(bits)
    codes = np.concatenate([np.repeat(np.arange(2**bits), 8).reshape(-1, 8), rng.integers(0, 2**bits, (64, 8))])
    units = (codes << (bits * np.arange(8))).sum(1).astype(np.uint32)
    constants = [np.full_like(units, constant) for constant in expansion.constants]
    *halves, squares = ptx_machine.run(expansion.assembly, 9, [units, *constants])
    numbers = np.stack(halves, 1).astype(np.uint16).view(np.float16)
    assert np.array_equal(numbers, np.array(levels, np.float16)[codes[:, expansion.order]])
    exact = (np.array(levels)[codes] ** 2).sum(1)
    assert np.abs(squares / expansion.squares_per_one - exact).max() <= 8 * 7e-5


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("counted", ["from 0", "from the middle", "two's complement"])
def test_codes_that_are_whole_numbers(bits, counted):
    """Of one token and of two side by side: every code in every place of a unit, and whatever stands above a unit."""
    middle = 2 ** (bits - 1)
    levels = {
        "from 0": range(2 * middle),
        "from the middle": range(-middle, middle),
        "two's complement": [*range(middle), *range(-middle, 0)],
    }[counted]
    levels = tuple(map(float, levels))
    one, two = ptx.expansion(bits, levels), paired_expansion(bits, levels)
    places = len(one.order)
    rng = np.random.default_rng(bits)
    codes = np.concatenate([np.arange(2**bits)[:, None].repeat(places, 1), rng.integers(0, 2**bits, (64, places))])
    codes = np.stack([codes, rng.permuted(codes)])
    above = rng.integers(0, 2**32, codes.shape[:2], dtype=np.uint64) << (bits * places)
    units = ((codes.astype(np.uint64) << (bits * np.arange(places, dtype=np.uint64))).sum(2) | above).astype(np.uint32)
    expected = np.array(levels, np.float16)[codes]

    def numbers(expansion, inputs):
        constants = [np.full_like(units[0], constant) for constant in expansion.constants]
        halves = ptx_machine.run(expansion.assembly, len(expansion.order) * len(inputs), [*inputs, *constants])
        return np.stack(halves, 1).astype(np.uint16).view(np.float16)

    assert np.array_equal(numbers(one, units[:1]), expected[0][:, one.order])
    paired = numbers(two, units)
    assert np.array_equal(paired[:, 0::2], expected[0][:, two.order])
    assert np.array_equal(paired[:, 1::2], expected[1][:, two.order])


@pytest.fixture
def runs(monkeypatch):
    """Assembly that the machine ran, of modules that are told that there is PTX."""
    found = []
    work = ptx_machine.run
    monkeypatch.setattr(ptx_machine, "run", lambda *given: found.append(given[0]) or work(*given))
    ptx_machine.install()
    return found


def attend(layout, module, plan, monkeypatch, tally):
    """The cell of the smallest blocks, since assembly has nothing to do with their size, and one of few query rows."""
    fitting = [cell for cell in verify.cells_of(layout) if cell.places in attention.PLACES]
    fitting = [cell for cell in fitting if not misfit(layout, cell.block_size, cell.num_kv_heads)]
    cells = [
        min(fitting, key=lambda cell: (cell.pattern not in attention.PATTERNS, cell.block_size * cell.num_kv_heads))
    ]
    if plan.fragments:
        cells.append(few_rows(layout))
    monkeypatch.setattr(module, "_has_ptx", lambda *_: True)
    for cell in cells:
        with np.errstate(all="ignore"):
            result = attention.attend(layout, module, cell, verify.device())
        assert result.ok, f"decode_attention with PTX in cell {cell.id}: {result}"
        tally("interpreter", cells=1)


def few_rows(layout, head_counts=("h8", "h3")):
    """A cell whose blocks are aligned and whose query rows are few."""
    formats = itertools.product(head_counts, ("bf16", "fp16", "fp32"), ("normal", "constant", "real"))
    for heads, dtype, pattern in formats:
        cell = Cell(block="b16", heads=heads, dtype=dtype, pattern=pattern, places="edges", cache="padded")
        call = attention.call_of(layout, cell)
        if call.group * call.queries <= MOST_ROWS and "window" not in call.options:
            return cell
    raise AssertionError("no cell has few query rows")


BOTH_SIDES = [entry for entry in manifest.shipped() if not entry.name.startswith("none")]


@pytest.mark.parametrize("entry", BOTH_SIDES, ids=lambda entry: entry.name)
def test_shipped_module(entry, runs, monkeypatch, tally):
    module = importlib.import_module(f"generated.{entry.name}")
    compiled = compile_spec(entry.path)
    attend(compiled.layout, module, compiled.plan.attention, monkeypatch, tally)
    assert runs, "no assembly was run"


# With which few query rows multiply expanded codes by the scales of their groups.
OF_GROUPS = "fma.rn.f16x2 $0, $1, $2, $3;"


def assemblies(plan):
    parts = (plan.key.decoded or plan.key, plan.value.decoded or plan.value) if plan else ()
    if plan and plan.fragments:
        parts += (plan.fragments.key_codes, plan.fragments.pairs)
    return {part.assembly for part in parts if part.assembly}


@functools.cache
def specs_with_assembly():
    """Of the specs of the matrix one for each text of assembly that only others have."""
    seen, found = set(), []
    for row in combinations().rows:
        text = spec_text(row)
        plan = lower(resolve(parse_spec(text)), "matrix.yaml").attention
        if not assemblies(plan) <= seen:
            seen |= assemblies(plan)
            found.append(pytest.param(text, id=row_name(row)))
    return found


@pytest.mark.parametrize("text", specs_with_assembly())
def test_other_spec(text, runs, monkeypatch, tally):
    kernels = kernels_of(text)
    attend(kernels.layout, kernels.module, kernels.plan.attention, monkeypatch, tally)
    assert set(runs) - {OF_GROUPS} == assemblies(kernels.plan.attention)


@pytest.mark.parametrize("space", ["model", "rotated"])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("packing", ["linear", "halves"])
@pytest.mark.parametrize("bits", [3, 4])
@pytest.mark.parametrize("out", ["fp16", "bf16", "fp32"])
def test_any_bytes_are_unpacked_with_assembly(out, bits, packing, head_dim, space, runs, monkeypatch, tally):
    key = {"codec": "mse", "bits": bits, "packing": packing, "rotation": "hadamard", "norm_correction": "load"}
    value = {"codec": "mse", "bits": 7 - bits, "codebook": "vllm", "rotation": "signed_hadamard"}
    spec = {"tqgen": 1, "name": "unpacked", "head_dim": head_dim, "key": key, "value": value}
    kernels = kernels_of(json.dumps({**spec, "block": "soa" if bits == 3 else "aos"}))
    monkeypatch.setattr(kernels.module, "_has_ptx", lambda *_: True)
    result = unpacked_any_bytes(kernels.layout, kernels.module, Cell(space=space, out=f"o{out}"), seed=bits)
    assert result.ok, f"unpack with PTX: {result}"
    expected = set()
    for numbers in (side.quads.row_numbers for side in kernels.plan.sides):
        if out == "fp16" or (out == "bf16" and space == "rotated"):
            expected |= {numbers.table if out == "fp16" else numbers.table_bf16, numbers.numbers, numbers.squares}
        elif space == "model":
            expected |= {numbers.parts, numbers.squares}
    assert expected - {""} == set(runs)
    tally("interpreter", cells=1)


@pytest.mark.parametrize("assembled", [True, False], ids=["with PTX", "without"])
@pytest.mark.parametrize("bits", [2, 3, 4])
def test_codes_that_end_a_block(bits, assembled, runs, monkeypatch, tally):
    """Words that are read around a field must not reach beyond the last byte of a block."""
    fields = ["key.codes", "key.norm", "value.scale", "value.zero", "value.codes"]
    spec = {
        "tqgen": 1,
        "name": "ending",
        "head_dim": 64,
        "key": {"codec": "mse", "bits": 4},
        "value": {"codec": "uniform", "bits": bits},
        "block": {"regions": [{"name": "all", "order": ["token", "head", "field"], "fields": fields}]},
    }
    kernels = kernels_of(json.dumps(spec))
    for cell in (Cell(places="edges", cache="padded", block="b1", heads="h1"), Cell(places="edges", cache="odd")):
        monkeypatch.setattr(kernels.module, "_has_ptx", lambda *_: assembled)
        with np.errstate(all="ignore"):
            result = attention.attend(kernels.layout, kernels.module, cell, verify.device())
        assert result.ok, f"decode_attention in cell {cell.id}: {result}"
        tally("interpreter", cells=1)

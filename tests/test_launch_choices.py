"""What launchers choose by the machine that they are on: which machines there are is told to them here."""

import contextlib
import importlib
import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton
from support.kernels import kernels_of

from tqgen import emit, verify
from tqgen.compiler import compile_spec
from tqgen.manifest import locate

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
PROCESSORS = 132
# imported here, so that they are what other tests run: interpreted
SHIPPED = {name: importlib.import_module(f"generated.{name}") for name in ("fp8_v4", "mse4_v4", "mse4_v4_aos")}


@pytest.fixture
def machine(monkeypatch):
    """Sets the GPU that torch finds: its compute capability, or AMD's."""

    def become(capability=None, hip=None):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
        properties = SimpleNamespace(multi_processor_count=PROCESSORS)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        monkeypatch.setattr(torch.version, "hip", hip)
        monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
        for module in SHIPPED.values():
            for name in ("_has_ptx", "_has_hardware_fp8", "_num_processors"):
                if hasattr(module, name):
                    getattr(module, name).cache_clear()

    yield become
    for module in SHIPPED.values():
        for name in ("_has_ptx", "_has_hardware_fp8", "_num_processors"):
            if hasattr(module, name):
                getattr(module, name).cache_clear()


def shipped(name):
    return SHIPPED[name]


@pytest.mark.parametrize(
    ("capability", "plain", "with_fp8", "converts"),
    [
        ((7, 5), False, False, False),
        ((8, 0), True, False, False),
        ((8, 6), True, False, False),
        ((8, 9), True, True, False),  # its conversion to fp8 rounds twice
        ((9, 0), True, True, True),
        ((10, 0), True, True, True),
        ((12, 0), True, True, True),
    ],
)
def test_what_a_gpu_of_nvidia_has(machine, capability, plain, with_fp8, converts):
    machine(capability)
    module = shipped("fp8_v4")
    assert module._has_ptx(CUDA, 0) is plain
    assert module._has_ptx(CUDA, 89) is with_fp8
    assert module._has_hardware_fp8(CUDA) is converts


def test_what_other_machines_have(machine):
    module = shipped("fp8_v4")
    machine((9, 4), hip="7.0")
    assert not module._has_ptx(CUDA, 0) and not module._has_hardware_fp8(CUDA)
    machine((9, 0))
    assert not module._has_ptx(CPU, 0) and not module._has_hardware_fp8(CPU)
    machine((9, 0))
    triton.knobs.runtime.interpret = True
    assert not module._has_ptx(CUDA, 0) and not module._has_hardware_fp8(CUDA)
    assert module._is_interpreted(CPU) and not module._is_interpreted(CUDA)


SIDES = {
    "e4m3": {"codec": "fp8"},
    "e5m2": {"codec": "fp8", "format": "e5m2"},
    "uniform": {"codec": "uniform", "bits": 4},
}


@pytest.mark.parametrize(("key", "value"), list(itertools.product(SIDES, SIDES)))
def test_assembly_is_asked_for_by_what_it_holds(key, value, monkeypatch):
    """The conversion from e4m3 is newer than the rest."""
    text = json.dumps({"tqgen": 1, "name": "asking", "head_dim": 64, "key": SIDES[key], "value": SIDES[value]})
    module = kernels_of(text).module
    asked = []
    monkeypatch.setattr(module, "_has_ptx", lambda device, capability: asked.append(capability))
    where = verify.device()
    cache = module.allocate(1, 16, 1, device=where)
    table, lengths = torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    module.decode_attention(torch.zeros(1, 1, 64, device=where), cache, table.to(where), lengths.to(where))
    assert asked[-1] == (89 if "e4m3" in (key, value) else 0)


@pytest.mark.parametrize(
    ("sequences", "heads", "length", "queries", "splits"),
    [
        # Of 132 processors each holds 4 programs of 8 query rows of a KV head, or 2 of 16, with steps of 128 tokens.
        # What was soonest on an H200, of 8, 16, 24, 32, 48, 64, 96, 128 and 256 splits:
        (1, 32, 32768, 1, 64),
        (1, 32, 8192, 1, 32),
        (1, 32, 4096, 1, 32),
        (1, 64, 32768, 1, 64),
        (1, 64, 8192, 1, 32),
        (1, 64, 4096, 1, 16),
        # each processor has a program or two, and there are whole steps
        (1, 32, 2048, 1, 16),
        (1, 32, 2049, 1, 17),
        (1, 32, 1, 1, 1),
        (32, 32, 8192, 1, 2),
        (128, 32, 8192, 1, 1),
        (1, 128, 32768, 1, 32),
        # 20 and 32 rows are two programs, more are of up to 32 rows each, and steps of 64 tokens
        (1, 32, 32768, 5, 16),
        (1, 32, 100, 5, 1),
        (1, 32, 32768, 17, 11),
        (0, 32, 32768, 1, 128),
    ],
)
def test_splits_of_a_gpu(machine, sequences, heads, length, queries, splits):
    machine((9, 0))
    found = shipped("mse4_v4").decode_num_splits(sequences, heads, 8, length, CUDA, queries_per_sequence=queries)
    assert found == splits


@pytest.mark.parametrize("sequences", [1, 2, 3, 7, 20, 32, 50, 64, 100, 256])
@pytest.mark.parametrize("length", [128, 1000, 8192, 32768, 131072])
@pytest.mark.parametrize("name", ["mse4_v4", "fp8_v4", "mse4_v4_aos"])
def test_no_other_number_of_splits_is_done_sooner(machine, name, sequences, length):
    machine((9, 0))
    module = shipped(name)
    _, tokens, _, held = module._few_tile(4)
    steps = -(-length // tokens)

    def time(splits):
        """Microseconds, by what was measured: a step of one program 1.5, and half of that more for each beside it."""
        programs = 8 * sequences * splits
        waves, beside = -(-programs // (132 * held)), min(held, -(-programs // 132))
        return (
            waves * -(-steps // splits) * (1 + beside) * 0.75
            + splits * (0.01 + 32 * sequences * 0.0007)
            + 1.25 * (-(-splits // 128))
        )

    found = module.decode_num_splits(sequences, 32, 8, length, CUDA)
    few_waves = [splits for splits in range(1, steps + 1) if splits == 1 or 8 * sequences * splits <= 4 * 132 * held]
    # not all numbers are looked at, but those near which one is the best
    assert time(found) <= 1.02 * min(map(time, few_waves))


@pytest.mark.parametrize(
    ("heads", "length", "splits"), [(1, 32768, 128), (1, 8192, 64), (2, 32768, 128), (4, 32768, 64)]
)
def test_splits_of_few_heads(machine, heads, length, splits):
    """As measured, too: what the merge takes counts."""
    machine((9, 0))
    module = shipped("mse4_v4")
    assert module.decode_num_splits(1, 8 * heads, heads, length, CUDA) == splits


def test_splits_without_a_gpu():
    assert shipped("mse4_v4").decode_num_splits(1, 32, 8, 32768, "cpu") == 1


def test_a_workspace_is_counted_in_whole_numbers_of_any_size():
    size = shipped("mse4_v4").decode_workspace_size
    assert size(*map(np.int32, (65536, 64, 100))) == size(65536, 64, 100) == 65536 * 64 * 100 * 129


def test_query_rows_of_a_program():
    module = shipped("mse4_v4")
    rows = (1, 8, 9, 16, 17, 32, 33, 64, 65, 1000)
    assert [module._attention_tile(n)[0] for n in rows] == [8, 8, 16, 16, 32, 32, 32, 32, 32, 32]
    assert [module._few_tile(n)[0] for n in (1, 8, 9, 16, 17, 32)] == [8, 8, 16, 16, 16, 16]


@pytest.mark.parametrize(
    ("version", "widths"), [("3.6.0", (4, 4)), ("3.7.1", (4, 4)), ("3.8.0", (2, 4)), ("3.10", (2, 4))]
)
def test_operands_are_as_this_triton_brings_them(version, widths, monkeypatch):
    monkeypatch.setattr(triton, "__version__", version)
    module = verify.load_module("versioned", emit.draft(compile_spec(locate("mse4_v4")).plan))
    assert widths == module.OPERAND_WIDTHS


def test_kernels_are_launched_on_the_device_of_their_tensors(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device", lambda device: ("on", device))
    on = shipped("mse4_v4")._on
    assert on(CUDA) == ("on", CUDA)
    for device in (torch.device("cuda", 1), CPU):
        assert isinstance(on(device), contextlib.nullcontext)


def made_for(module, monkeypatch, capability, group):
    """Kernels and options of the launches of attention, merge first, on a GPU of this capability; 0: without PTX."""
    made = []

    def launch(kernel, grid, device, **options):
        made.append((kernel, options))
        return SimpleNamespace(grid=grid)

    monkeypatch.setattr(module, "_has_ptx", lambda device, least: least <= capability)
    monkeypatch.setattr(module, "_Launch", launch)
    heads, where = 8, CPU
    cache = module.allocate(2, 16, heads, device=where)
    query = torch.zeros(1, group * heads, module.LAYOUT.key_head_dim)
    table, lengths = torch.zeros(1, 2, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    module._attention_launch(query, cache, table, lengths, *[None] * 9, False, False)
    return made


@pytest.mark.parametrize(("capability", "early"), [(0, False), (80, False), (90, True), (100, True)])
@pytest.mark.parametrize("group", [4, 64])
def test_the_merge_is_launched_early_where_a_kernel_can_wait_for_another(capability, early, group, monkeypatch):
    (_, merging), (_, attending) = made_for(shipped("mse4_v4"), monkeypatch, capability, group)
    assert merging.get("launch_pdl", False) == early
    assert attending["constexprs"]["EARLY"] == merging["constexprs"]["EARLY"] == early


@pytest.mark.parametrize(
    ("capability", "group", "registers"), [(90, 4, 168), (80, 4, 168), (90, 12, None), (0, 4, None)]
)
def test_three_programs_of_large_codes_find_room(capability, group, registers, monkeypatch):
    """Of 65,536 registers for 128 threads of each: codes of 8 bits and groups would take a few more than 168."""
    spec = {"tqgen": 1, "name": "large", "head_dim": 128, "key": {"codec": "uniform", "bits": 4, "group": 32}}
    module = kernels_of(json.dumps({**spec, "value": {"codec": "uniform", "bits": 8}})).module
    kernel, options = made_for(module, monkeypatch, capability, group)[1]
    assert kernel is module._decode_few_kernel and options.get("maxnreg") == registers
    assert 3 * 128 * 168 <= 65536 < 4 * 128 * 168 and module._few_tile(8)[3] == 3

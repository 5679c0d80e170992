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
from kernels import kernels_of

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
    assert asked == [89 if "e4m3" in (key, value) else 0]


@pytest.mark.parametrize(
    ("sequences", "heads", "length", "queries", "splits"),
    [
        # 132 processors hold 528 programs of 8 query rows of a KV head, of 8, or 264 of 16, with steps of 128 tokens
        (1, 32, 32768, 1, 64),
        (1, 32, 2048, 1, 16),
        (1, 32, 2049, 1, 17),
        (1, 32, 1, 1, 1),
        (32, 32, 8192, 1, 2),
        (128, 32, 8192, 1, 1),
        (1, 128, 32768, 1, 32),
        # more rows: 264 programs, up to 64 rows of each, and steps of 32 tokens
        (1, 32, 32768, 5, 32),
        (1, 32, 100, 5, 4),
        (1, 32, 32768, 17, 16),
        (0, 32, 32768, 1, 256),
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
    steps, at_once = -(-length // tokens), 132 * held

    def time(splits):
        """Waves of programs, times the steps of each and two more."""
        return -(-8 * sequences * splits // at_once) * (-(-steps // splits) + 2)

    found = module.decode_num_splits(sequences, 32, 8, length, CUDA)
    few_waves = [splits for splits in range(1, steps + 1) if splits == 1 or 8 * sequences * splits <= 4 * at_once]
    assert (time(found), found) == min((time(splits), splits) for splits in few_waves)


def test_splits_without_a_gpu():
    assert shipped("mse4_v4").decode_num_splits(1, 32, 8, 32768, "cpu") == 1


def test_a_workspace_is_counted_in_whole_numbers_of_any_size():
    size = shipped("mse4_v4").decode_workspace_size
    assert size(*map(np.int32, (65536, 64, 100))) == size(65536, 64, 100) == 65536 * 64 * 100 * 129


def test_query_rows_of_a_program():
    module = shipped("mse4_v4")
    rows = (1, 8, 9, 16, 17, 32, 33, 64, 65, 1000)
    assert [module._attention_tile(n)[0] for n in rows] == [8, 8, 16, 16, 32, 32, 64, 64, 64, 64]
    assert [module._few_tile(n)[0] for n in (1, 8, 9, 16)] == [8, 8, 16, 16]


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

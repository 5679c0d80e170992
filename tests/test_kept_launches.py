"""Launches that are kept are those that Triton would make: equal calls get the same kernel, grid and arguments.

Kernels are replaced by a stand-in for Triton that compiles, so that this runs without a GPU.
"""

import contextlib
import inspect
import re
from types import SimpleNamespace

import pytest
import torch
import triton
from support.kernels import kernels_of

BLOCKS, BLOCK_SIZE, HEADS, TOKENS, D = 6, 8, 2, 5, 16
SPECS = {
    "plain": '"key": {"codec": "uniform", "bits": 4}, "value": {"codec": "fp8"}',
    "hadamard": '"key": {"codec": "mse", "bits": 4, "rotation": "hadamard", "norm_correction": "store"}, '
    '"value": {"codec": "mse", "bits": 3, "rotation": "hadamard", "center": true}',
    "run-time": '"key": {"codec": "mse", "bits": 2, "rotation": "matrix", "center": true}, '
    '"value": {"codec": "uniform", "bits": 4, "rotation": "matrix", "center": true}',
    "values alone": '"key": {"codec": "none"}, "value": {"codec": "uniform", "bits": 4}',
}


class Compiling:
    """Stands for a kernel of Triton: a launch returns what was compiled, which is launched by position."""

    def __init__(self, kernel):
        self.names = list(inspect.signature(kernel.fn).parameters)
        self.searched, self.started = [], []

    def __getitem__(self, grid):
        def search(*arguments, **keywords):
            options = {name: value for name, value in keywords.items() if name not in self.names}
            given = {**dict(zip(self.names, arguments)), **{n: v for n, v in keywords.items() if n in self.names}}
            self.searched.append((grid, [given[name] for name in self.names], options))
            return Compiled(self)

        return search


class Compiled:
    """Stands for `triton.compiler.CompiledKernel`: launched by its grid with tensors, or run with addresses."""

    function, packed_metadata = "function", "metadata"

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return lambda *arguments: self.kernel.started.append((grid, list(arguments), "by its grid"))

    def run(self, x, y, z, stream, function, metadata, launch_metadata, enter, leave, *arguments):
        assert (stream, function, metadata) == (("stream", None), self.function, self.packed_metadata)
        assert launch_metadata is enter is leave is None
        self.kernel.started.append(((x, y, z), list(arguments), "run"))


@pytest.fixture(params=SPECS)
def made(request, monkeypatch):
    """A module whose kernels compile, and good calls of its launchers."""
    module = kernels_of(f'{{"tqgen": 1, "name": "kept", "head_dim": {D}, {SPECS[request.param]}}}').module
    kernels = {name: Compiling(kernel) for name, kernel in vars(module).items() if name.endswith("_kernel")}
    for name, kernel in kernels.items():
        monkeypatch.setattr(module, name, kernel)
    monkeypatch.setattr(module, "_LAUNCHES", {})
    # the CPU stands for a GPU that is the current one
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    driver = SimpleNamespace(get_current_stream=lambda index: ("stream", index))
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=driver))
    stored = {field.name.partition(".")[0] for field in module.LAYOUT.fields}
    run_time = {}
    for side in stored:
        run_time[f"{side}_rotation"], run_time[f"{side}_center"] = torch.eye(D), torch.zeros(HEADS, D)
    vectors = {side: torch.zeros(TOKENS, HEADS, D) if side in stored else None for side in ("key", "value")}
    table, lengths = torch.zeros(3, 2, dtype=torch.int32), torch.ones(3, dtype=torch.int32)
    cache = module.allocate(BLOCKS, BLOCK_SIZE, HEADS, device="cpu")
    calls = {
        "store": dict(**vectors, kv_cache=cache, slot_mapping=torch.arange(TOKENS)),
        "unpack": dict(kv_cache=cache, slot_mapping=torch.arange(TOKENS), out=tuple(vectors.values())),
        "unpack sequences": dict(kv_cache=cache, block_table=table, seq_lens=lengths),
        "decode_attention": dict(
            query=torch.zeros(3, 2 * HEADS, D),
            kv_cache=cache,
            block_table=table,
            seq_lens=lengths,
            out=torch.zeros(3, 2 * HEADS, D),
            workspace=torch.zeros(1000),
            num_splits=2,
        ),
        "rotate_attention_output": dict(output=torch.zeros(3, 2 * HEADS, D)),
    }
    if "center" not in SPECS[request.param]:
        calls["decode_attention, all it has"] = dict(
            query=torch.zeros(5, 2 * HEADS, D),
            kv_cache=cache,
            block_table=table,
            seq_lens=lengths,
            query_start_loc=torch.tensor([0, 1, 3, 5], dtype=torch.int32),
            max_query_len=2,
            sinks=torch.zeros(2 * HEADS),
            num_splits=2,
            return_lse=True,
        )
    found = {}
    for name, arguments in calls.items():
        launcher = getattr(module, re.match(r"\w+", name)[0], None)
        if launcher:
            taken = set(inspect.signature(launcher).parameters)
            extra = {argument: value for argument, value in run_time.items() if argument in taken}
            found[name] = launcher, {**arguments, **extra}
    return SimpleNamespace(module=module, kernels=kernels, calls=found, about=SPECS[request.param])


def same(left, right):
    """Whether a kept launch gets the same argument as Triton did: the tensor's address, or an equal constant."""
    if isinstance(left, torch.Tensor):
        return left.data_ptr() == (right.data_ptr() if isinstance(right, torch.Tensor) else right)
    return type(left) is type(right) and left == right


# What each call makes anew, and what of that it returns.
FRESH = {
    ("unpack sequences", "_unpack_kernel"): {"key_ptr", "value_ptr"},
    ("rotate_attention_output", "_rotate_output_kernel"): {"result_ptr"},
    ("decode_attention, all it has", "_decode_kernel"): {"partial_ptr", "lse_ptr"},
    ("decode_attention, all it has", "_merge_kernel"): {"partial_ptr", "lse_ptr", "output_ptr", "output_lse_ptr"},
}
RETURNED = {"key_ptr", "value_ptr", "output_ptr", "output_lse_ptr", "result_ptr"}


def test_a_second_call_starts_what_the_first_one_searched(made):
    for name, (launcher, arguments) in made.calls.items():
        for kernel in made.kernels.values():
            kernel.searched.clear(), kernel.started.clear()
        launcher(**arguments)
        first = {name: list(kernel.searched) for name, kernel in made.kernels.items() if kernel.searched}
        assert first, name
        returned = launcher(**arguments)
        returned = (returned,) if isinstance(returned, torch.Tensor) else returned or ()
        new = {one.data_ptr() for one in returned if one is not None}
        for kernel_name, launches in first.items():
            kernel = made.kernels[kernel_name]
            assert kernel.searched == launches, f"{name}: {kernel_name} is searched again"
            assert len(kernel.started) == len(launches) == 1
            (grid, searched, _), (started_grid, started, how) = launches[0], kernel.started[0]
            assert how == "run"
            assert grid == started_grid and len(searched) == len(started) == len(kernel.names)
            for parameter, left, right in zip(kernel.names, searched, started):
                if isinstance(left, torch.Tensor) and parameter in FRESH.get((name, kernel_name), ()):
                    assert right in new or parameter not in RETURNED, f"{name}: {parameter} is not what is returned"
                else:
                    assert same(left, right), f"{name}: {kernel_name} gets another {parameter}"


def at(tensor, offset):
    """The same numbers, `offset` elements past an address that 64 divides."""
    room = torch.zeros(tensor.numel() + 64, dtype=tensor.dtype)
    start = -room.data_ptr() // room.element_size() % (64 // room.element_size()) + offset
    return room[start : start + tensor.numel()].view(tensor.shape).copy_(tensor)


def variants(argument, tensor):
    """Tensors that a launch for `tensor` does not serve, and that the launchers take."""
    step = 1 if argument == "kv_cache" else 16 // tensor.element_size() // 2
    yield "alignment", at(tensor, step)
    if tensor.dtype == torch.int64:
        yield "dtype", tensor.int()
    if argument in {"key", "value", "output"}:
        yield "dtype", tensor.bfloat16()
        yield "strides", torch.zeros(tensor.shape[0], tensor.shape[1] + 1, tensor.shape[2])[:, 1:]
    if argument == "kv_cache":
        size = tensor[0].numel()
        room = torch.zeros(tensor.shape[0] * 2 * size, dtype=torch.uint8)
        yield "block stride", room.as_strided(tensor.shape, (2 * size, *tensor.stride()[1:]))
        yield "blocks", tensor[:-1].clone()


def test_a_call_that_differs_is_searched_anew(made):
    for name, (launcher, arguments) in made.calls.items():
        arguments = {
            key: at(value, 0) if isinstance(value, torch.Tensor) and value.is_contiguous() else value
            for key, value in arguments.items()
        }
        launcher(**arguments)
        for argument, tensor in arguments.items():
            if not isinstance(tensor, torch.Tensor):
                continue
            for what, variant in variants(argument, tensor):
                before = sum(len(kernel.searched) for kernel in made.kernels.values())
                launcher(**{**arguments, argument: variant})
                after = sum(len(kernel.searched) for kernel in made.kernels.values())
                assert after > before, f"{name}: {argument} of another {what} is not searched"


# Other values of the options that launchers take; a launch that was made with one of them serves no other.
OPTIONS = {
    "space": ("rotated",),
    "dtype": (torch.bfloat16, torch.float32),
    "softmax_scale": (0.5,),
    "max_query_len": (3,),
    "window": (7, 8),
    "softcap": (2.0, 3.0),
    "num_splits": (3,),
    "return_lse": (False, True),
    "sinks": (None,),
    "workspace": (None,),
}


def searched(made):
    return sum(len(kernel.searched) for kernel in made.kernels.values())


def test_another_option_is_searched_anew(made):
    for name, (launcher, arguments) in made.calls.items():
        taken = inspect.signature(launcher).parameters
        # An output says which dtype is asked for, and decides nothing else.
        arguments = {key: value for key, value in arguments.items() if key != "out"}
        launcher(**arguments)
        for option, values in OPTIONS.items():
            centered = option in ("softcap", "return_lse", "sinks") and "center" in made.about
            without_starts = option == "max_query_len" and option not in arguments
            if option not in taken or centered or without_starts:
                continue
            for value in values:
                before = searched(made)
                launcher(**{**arguments, option: value})
                differs = value is not arguments.get(option, taken[option].default)
                assert (searched(made) > before) == differs, f"{name}: another {option}, {value}, is not searched"
        if "batch_invariant" in taken:
            arguments.pop("num_splits")
            launcher(**arguments)
            before = searched(made)
            launcher(**arguments, batch_invariant=True)
            assert searched(made) > before, f"{name}: splits at fixed positions are not searched"


def test_what_does_not_fit_is_refused_after_what_does(made):
    for launcher, arguments in made.calls.values():
        launcher(**arguments), launcher(**arguments)
        for argument, tensor in arguments.items():
            if isinstance(tensor, torch.Tensor) and argument != "workspace":
                shorter = tensor[:-1] if argument == "block_table" else tensor[..., :-1]
                double = shorter if argument == "sinks" else tensor.to(torch.float64)  # sinks are of any dtype
                for bad in (double, shorter, tensor.tolist(), tensor.to("meta")):
                    with pytest.raises((TypeError, ValueError)):
                        launcher(**{**arguments, argument: bad})
            if isinstance(tensor, torch.Tensor):  # all that a launch was kept for, but for the sign of what is read
                with pytest.raises(ValueError, match=rf"{argument}.* resolve_neg\(\)"):
                    launcher(**{**arguments, argument: torch._neg_view(tensor)})
        for out in [arguments["out"]] if isinstance(arguments.get("out"), tuple) else []:
            for at, tensor in enumerate(out):
                if tensor is not None:
                    negated = (*out[:at], torch._neg_view(tensor), *out[at + 1 :])
                    with pytest.raises(ValueError, match=r"out .*resolve_neg\(\)"):
                        launcher(**{**arguments, "out": negated})
        for option in set(inspect.signature(launcher).parameters) & {"space", "dtype", "num_splits"}:
            with pytest.raises((TypeError, ValueError)):
                launcher(**{**arguments, option: [0]})


def test_the_number_of_kept_launches_is_bounded(made, monkeypatch):
    monkeypatch.setattr(made.module, "_MAX_LAUNCHES", 3)
    launcher, arguments = made.calls["unpack"]
    for tokens in range(1, 6):
        for _ in range(2):
            launcher(**{**arguments, "out": None, "slot_mapping": torch.arange(tokens)})
        assert 1 <= len(made.module._LAUNCHES) <= 3
    assert len(made.kernels["_unpack_kernel"].searched) == 5


@pytest.mark.parametrize("hook", ["launch_enter_hook", "launch_exit_hook"])
@pytest.mark.parametrize("chained", [True, False])
def test_hooks_are_told(made, monkeypatch, hook, chained):
    """Triton's own way of starting a compiled kernel calls them."""
    chain = SimpleNamespace(calls=[print]) if chained else print
    launcher, arguments = made.calls["store"]
    launcher(**arguments)
    monkeypatch.setattr(triton.knobs.runtime, hook, chain)
    launcher(**arguments)
    ((_, searched, _),), ((_, started, how),) = (
        made.kernels["_store_kernel"].searched,
        made.kernels["_store_kernel"].started,
    )
    assert how == "by its grid" and all(map(same, searched, started))


@pytest.mark.parametrize("reason", ["interpreter", "AMD"])
def test_nothing_is_kept(made, monkeypatch, reason):
    """Where nothing is compiled, and where kernels depend on more."""
    if reason == "AMD":
        monkeypatch.setattr(torch.version, "hip", "7.0")
    else:
        monkeypatch.setattr(Compiling, "__getitem__", lambda self, grid: lambda *given, **named: None)
    for launcher, arguments in made.calls.values():
        launcher(**arguments), launcher(**arguments)
    assert not made.module._LAUNCHES and not any(kernel.started for kernel in made.kernels.values())


def test_a_launch_elsewhere_is_on_its_device(made, monkeypatch):
    """Where the tensors' device is not the current one, it is while the kernel is started."""
    launcher, arguments = made.calls["store"]
    launcher(**arguments)
    entered = []

    class Guard:
        def __init__(self, device):
            self.device = device

        def __enter__(self):
            entered.append((self.device, len(made.kernels["_store_kernel"].started)))

        def __exit__(self, *error):
            entered.append((self.device, len(made.kernels["_store_kernel"].started)))

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 7)
    monkeypatch.setattr(torch.cuda, "device", Guard)
    launcher(**arguments)
    assert entered == [(torch.device("cpu"), 0), (torch.device("cpu"), 1)]

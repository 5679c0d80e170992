"""What kernels are compared with: the store in plain PyTorch, a bf16 cache, and attention over bf16 keys and values.

Needs torch and a GPU.
"""

from __future__ import annotations

import contextlib
import functools
import json
import warnings
from collections.abc import Callable

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tqgen.bench import timing
from tqgen.bench.cases import Case, Setting, moved_bytes
from tqgen.bench.kernels import Subject, calls_of, sets
from tqgen.bench.results import BF16_ATTENTION, BF16_WRITE, UNFUSED
from tqgen.bench.timing import Call
from tqgen.bench.torch_store import TorchStore
from tqgen.compiler import compile_parsed
from tqgen.spec import parse_spec
from tqgen.verify import load_module

BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION)


def competitors(subject: Subject, case: Case, count: int, l2_bytes: int) -> dict[str, float]:
    """Microseconds of every other way to do what the case does; `count` sets of its inputs exceed the L2 cache."""
    head_dims = tuple(side.head_dim for side in subject.layout.sides)
    if case.kernel == "store":
        written = bf16_write(case, subject.setting, head_dims, l2_bytes, subject.device)
        return {UNFUSED: _unfused(subject, case, count), BF16_WRITE: written}
    if case.kernel == "decode":
        best = bf16_attention(case, subject.setting, head_dims, l2_bytes, subject.device)
        return {} if best is None else {BF16_ATTENTION: best}
    return {}


def _unfused(subject: Subject, case: Case, count: int) -> float:
    store = TorchStore(subject.layout, subject.device, subject.run_time)

    def one() -> Call:
        vectors = subject.vectors(case.tokens)
        heads = subject.setting.num_kv_heads
        slots = torch.empty(case.tokens, heads, store.row_bytes, dtype=torch.uint8, device=subject.device)
        places = torch.randperm(case.tokens, device=subject.device)
        return lambda: store(vectors, slots, places)

    return timing.in_graph([one() for _ in range(count)])


@functools.lru_cache(maxsize=64)
def bf16_write(case: Case, setting: Setting, head_dims: tuple[int, ...], l2_bytes: int, device: torch.device) -> float:
    """Scattering vectors to their slots as bf16: by PyTorch, or by the store of a layout that stores them raw."""
    names = ("key", "value")[: len(head_dims)]
    sides = {name: {"codec": "raw", "dtype": "bf16", "head_dim": dim} for name, dim in zip(names, head_dims)}
    spec = {"tqgen": 1, "name": "bf16_cache", "head_dim": head_dims[0], "value": {"codec": "none"}, **sides}
    one = compile_parsed(parse_spec(json.dumps(spec), "bf16_cache.yaml"), "bf16_cache.yaml")
    count, _ = sets(moved_bytes(one.layout, case, setting), l2_bytes)
    raw = Subject.of(one.layout, load_module(one.name, one.draft), setting, device)

    def scatter() -> Call:
        given = [vectors.to(torch.bfloat16) for vectors in raw.vectors(case.tokens).values()]
        slots = [torch.empty_like(vectors) for vectors in given]
        places = torch.randperm(case.tokens, device=device)

        def write() -> None:
            for cache, vectors in zip(slots, given):
                cache.index_copy_(0, places, vectors)

        return write

    return min(timing.in_graph(calls_of(raw, case, count)), timing.in_graph([scatter() for _ in range(count)]))


@functools.lru_cache(maxsize=64)
def bf16_attention(
    case: Case, setting: Setting, head_dims: tuple[int, ...], l2_bytes: int, device: torch.device
) -> float | None:
    """The best of PyTorch's flash and cuDNN back-ends on contiguous bf16 keys and values; None where neither can.

    Query heads of one KV head are the rows of one product, as grouped queries by hand are, or left to `enable_gqa`.
    """
    heads, group = setting.num_kv_heads, setting.num_query_heads // setting.num_kv_heads

    def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        key, value = (
            torch.randn(case.batch, heads, case.length, dim, dtype=torch.bfloat16, device=device) for dim in head_dims
        )
        query = torch.randn(case.batch, setting.num_query_heads, 1, head_dims[0], dtype=torch.bfloat16, device=device)
        return query, key, value

    count, _ = sets(2 * case.batch * case.length * heads * sum(head_dims), l2_bytes)
    given = [inputs() for _ in range(count)]
    times = []
    for backend in BACKENDS:
        for grouped in (True, False):
            calls = [_attend(*one, group, grouped) for one in given]
            # A back-end that has no kernel for this warns and raises.
            with warnings.catch_warnings(), contextlib.suppress(RuntimeError), sdpa_kernel([backend]):
                warnings.simplefilter("ignore", UserWarning)
                times.append(timing.in_graph(calls))
    return min(times, default=None)


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, group: int, grouped: bool
) -> Callable[[], torch.Tensor]:
    if grouped:
        rows = query.view(key.shape[0], key.shape[1], group, -1)
        return lambda: scaled_dot_product_attention(rows, key, value)
    return lambda: scaled_dot_product_attention(query, key, value, enable_gqa=True)

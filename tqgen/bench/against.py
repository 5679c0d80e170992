"""What kernels are compared with: the store in plain PyTorch, a bf16 cache, and attention over bf16 keys and values.

Needs torch and a GPU.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tqgen.bench import timing
from tqgen.bench.cases import Case, Setting
from tqgen.bench.kernels import Subject
from tqgen.bench.results import BF16_ATTENTION, BF16_WRITE, UNFUSED
from tqgen.bench.timing import Call
from tqgen.bench.torch_store import TorchStore

BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION)


def competitors(subject: Subject, case: Case, count: int) -> dict[str, float]:
    """Microseconds of every other way to do what the case does, with `count` sets of inputs."""
    if case.kernel == "store":
        return {UNFUSED: _unfused(subject, case, count), BF16_WRITE: _bf16_write(subject, case, count)}
    if case.kernel == "decode":
        key, value = subject.layout.key.head_dim, subject.layout.value.head_dim
        best = bf16_attention(case, subject.setting, (key, value), count, subject.device)
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


def _bf16_write(subject: Subject, case: Case, count: int) -> float:
    """Scattering the vectors to their slots as bf16, as `index_put_` does it."""

    def one() -> Call:
        vectors = list(subject.vectors(case.tokens).values())
        slots = [torch.empty(one.shape, dtype=torch.bfloat16, device=subject.device) for one in vectors]
        places = (torch.randperm(case.tokens, device=subject.device),)
        vectors = [one.to(torch.bfloat16) for one in vectors]

        def write() -> None:
            for cache, given in zip(slots, vectors):
                cache.index_put_(places, given)

        return write

    return timing.in_graph([one() for _ in range(count)])


@functools.lru_cache(maxsize=64)
def bf16_attention(
    case: Case, setting: Setting, head_dims: tuple[int, int], count: int, device: torch.device
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

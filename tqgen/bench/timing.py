"""The time of one launch on a GPU: in CUDA graphs, so that Python is not in it, and called from Python, so that it is.

Needs torch and a GPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

Call = Callable[[], object]

LAUNCHES = 20  # in a graph, at least: less than a launch is lost at its ends
SECONDS = 0.15  # of replays that are measured
REPLAYS = (7, 60)  # at least and at most
CALLS = 300  # from Python
COPIED = 2**30  # bytes of the buffer whose copy is the measure of bandwidth


def in_graph(calls: Sequence[Call]) -> float:
    """Median microseconds of one of `calls`, which are launched in turn so that each finds the others' data cached."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    rounds = -(-LAUNCHES // len(calls))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()
    try:
        first = _replayed(graph)
        count = min(max(int(SECONDS * 1e6 / max(first, 1.0)), REPLAYS[0]), REPLAYS[1])
        return statistics.median(_replayed(graph) for _ in range(count)) / (rounds * len(calls))
    finally:
        graph.reset()


def _replayed(graph: torch.cuda.CUDAGraph) -> float:
    """Microseconds of one replay."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3


def from_python(calls: Sequence[Call]) -> float:
    """Median microseconds of one of many calls in a row, until the GPU has done them all."""
    samples = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for number in range(CALLS):
            calls[number % len(calls)]()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - begin) / CALLS * 1e6)
    return statistics.median(samples)


def copy_bandwidth() -> float:
    """Bytes that the GPU reads and writes in a second when it copies: of a copy by the driver or by a kernel, the best.

    Not in a graph, where a copy by the driver is slower.
    """
    free, _ = torch.cuda.mem_get_info()
    count = min(COPIED, free // 4) // 4
    source, target = (torch.zeros(count, dtype=torch.float32, device="cuda") for _ in range(2))
    ways: tuple[Call, ...] = (lambda: target.copy_(source), lambda: torch.neg(source, out=target))
    return max(2 * 4 * count / statistics.median(_called(way) for _ in range(10)) * 1e6 for way in ways)


def _called(call: Call, times: int = 4) -> float:
    """Microseconds of a call that takes long enough for its launch not to matter, after a first one."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    begin.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / times


def l2_bytes() -> int:
    """The size of the L2 cache."""
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)

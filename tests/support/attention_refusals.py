"""What `decode_attention` must refuse, and what looks bad and is not; `refusals.py` has it of the other launchers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from support.numberless import without_numbers
from tqgen.layout import Layout
from tqgen.verify import device
from tqgen.verify.trial import attention_arguments, device_arguments, run_time_arguments

SEQUENCES, GROUP, HEADS, BLOCK_SIZE, BLOCKS = 3, 2, 2, 16, 2
SMALLEST_SOFTCAP, LARGEST = 2.0**-100, math.nextafter(2.0**127, 0)
Call = tuple[str, type[Exception], str, Callable[[], Any]]  # as in `refusals`
Given = list[tuple[str, type[Exception], Any]]  # what is wrong with an argument, the error, the argument


class AttentionCalls:
    """Good arguments for a module's `decode_attention`, and calls in which one of them is bad."""

    def __init__(self, layout: Layout, module: ModuleType) -> None:
        self.layout, self.module, self.where = layout, module, device()
        run_time = device_arguments(run_time_arguments(layout, HEADS), self.where)
        self.run_time = attention_arguments(run_time)
        self.heads, self.dims = GROUP * HEADS, (layout.key.head_dim, layout.value.head_dim)
        self.query = self.new(SEQUENCES, self.heads, self.dims[0])
        self.good_arguments: dict[str, Any] = {
            "query": self.query,
            "kv_cache": module.allocate(BLOCKS, BLOCK_SIZE, HEADS, device=self.where),
            "block_table": torch.zeros(SEQUENCES, 4, dtype=torch.int32, device=self.where),
            "seq_lens": torch.full((SEQUENCES,), 2, dtype=torch.int32, device=self.where),
            **self.run_time,
        }

    def new(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, device=self.where)

    def call(self, **changed: Any) -> Any:
        return self.module.decode_attention(**{**self.good_arguments, **changed})

    def bad(self) -> Iterator[Call]:
        """Every bad call."""
        arguments: dict[str, Given] = {
            "query": self._queries(),
            "kv_cache": self._caches(),
            "block_table": self._integers("block_table"),
            "seq_lens": self._integers("seq_lens"),
            "out": self._outputs(),
            "workspace": self._workspaces(),
            "sinks": self._sinks(),
        }
        arguments |= {name: self._run_time(one) for name, one in self.run_time.items()}
        for name, bad in arguments.items():
            for what, error, given in bad:
                yield f"{name}: {what}", error, name, lambda n=name, g=given: self.call(**{n: g})
        yield from self._without_numbers()
        yield from self._numbers()
        yield from self._counts()
        yield from self._starts()
        yield from self._centers()

    def _queries(self) -> Given:
        sequences, heads, head_dim = self.query.shape
        several = self.new(sequences, 2, heads, head_dim)
        return [
            ("no tensor", TypeError, self.query.tolist()),
            ("int32", TypeError, self.query.int()),
            ("fp64", TypeError, self.query.double()),
            ("two dimensions", ValueError, self.query[0]),
            ("five dimensions", ValueError, several[None]),
            ("one element more", ValueError, self.new(sequences, heads, head_dim + 1)),
            ("every other element", ValueError, self.new(sequences, heads, 2 * head_dim)[..., ::2]),
            ("heads that cannot be shared", ValueError, self.new(sequences, heads + 1, head_dim)),
            ("no heads", ValueError, self.new(sequences, 0, head_dim)),
            ("one sequence more", ValueError, self.new(sequences + 1, heads, head_dim)),
            ("one sequence more of several", ValueError, self.new(sequences + 1, 2, heads, head_dim)),
            ("sequences of another stride", ValueError, self.new(sequences, 3, heads, head_dim)[:, :2]),
            ("another device", ValueError, self.query.to("meta")),
        ]

    def _caches(self) -> Given:
        cache = self.good_arguments["kv_cache"]
        return [
            ("no tensor", TypeError, cache.tolist()),
            ("int8", TypeError, cache.view(torch.int8)),
            ("blocks of no token", ValueError, cache[:, :0]),
            ("no head", ValueError, cache[:, :, :0]),
        ]

    def _integers(self, name: str) -> Given:
        good = self.good_arguments[name]
        gaps = good.new_zeros(*good.shape[:-1], 2 * good.shape[-1])[..., ::2]
        return [
            ("no tensor", TypeError, good.tolist()),
            ("int64", TypeError, good.long()),
            ("one dimension less", ValueError, good[0]),
            ("one dimension more", ValueError, good[None]),
            ("gaps", ValueError, gaps),
            ("one sequence more", ValueError, good.new_zeros(good.shape[0] + 1, *good.shape[1:])),
            ("another device", ValueError, good.to("meta")),
        ]

    def _outputs(self) -> Given:
        shape = (SEQUENCES, self.heads, self.dims[1])
        good = self.new(*shape)
        return [
            ("no tensor", TypeError, good.tolist()),
            ("another dtype", ValueError, good.bfloat16()),
            ("one sequence more", ValueError, self.new(SEQUENCES + 1, *shape[1:])),
            ("one element more", ValueError, self.new(*shape[:2], shape[2] + 1)),
            ("several queries", ValueError, good[:, None]),
            ("gaps", ValueError, self.new(SEQUENCES, self.heads + 1, shape[2])[:, 1:]),
            ("another device", ValueError, good.to("meta")),
        ]

    def _workspaces(self) -> Given:
        splits = self.module.decode_num_splits(
            SEQUENCES, self.heads, HEADS, 4 * BLOCK_SIZE, self.where, queries_per_sequence=1
        )
        size = self.module.decode_workspace_size(SEQUENCES, self.heads, splits)
        good = self.new(size)
        return [
            ("no tensor", TypeError, good.tolist()),
            ("one number too few", ValueError, good[:-1]),
            ("bf16", ValueError, good.bfloat16()),
            ("int32", ValueError, good.int()),
            ("gaps", ValueError, self.new(2 * size)[::2]),
            ("another device", ValueError, good.to("meta")),
        ]

    def _sinks(self) -> Given:
        good = self.new(self.heads)
        return [
            ("no tensor", TypeError, good.tolist()),
            ("int32", TypeError, good.int()),
            ("complex", TypeError, good.to(torch.complex64)),
            ("one head more", ValueError, self.new(self.heads + 1)),
            ("two dimensions", ValueError, good[None]),
            ("gaps", ValueError, self.new(2 * self.heads)[::2]),
            ("another device", ValueError, good.to("meta")),
        ]

    def _run_time(self, good: torch.Tensor) -> Given:
        rows, columns = good.shape
        return [
            ("nothing", TypeError, None),
            ("fp64", TypeError, good.double()),
            ("one row more", ValueError, self.new(rows + 1, columns)),
            ("every other column", ValueError, self.new(rows, 2 * columns)[:, ::2]),
            ("another device", ValueError, good.to("meta")),
        ]

    def _without_numbers(self) -> Iterator[Call]:
        tensors = {name: one for name, one in self.good_arguments.items() if isinstance(one, torch.Tensor)}
        tensors |= {"out": self.new(SEQUENCES, self.heads, self.dims[1]), "workspace": self.new(100_000)}
        if not (self.layout.key.parameters.center or self.layout.value.parameters.center):
            tensors["sinks"] = self.new(self.heads)
        for name, tensor in tensors.items():
            for what, error, given in without_numbers(tensor):
                yield f"{name} is {what}", error, name, lambda n=name, g=given: self.call(**{n: g})
        starts = torch.arange(SEQUENCES + 1, dtype=torch.int32, device=self.where)
        for what, error, given in without_numbers(starts):
            yield (
                f"query_start_loc is {what}",
                error,
                "query_start_loc",
                lambda g=given: self.call(query_start_loc=g, max_query_len=1),
            )

    def _numbers(self) -> Iterator[Call]:
        for window in (0, -1):
            yield f"a window of {window}", ValueError, "window", lambda w=window: self.call(window=w)
        for softcap in (0.0, -2.0, float("nan")):
            yield f"a softcap of {softcap}", ValueError, "softcap", lambda s=softcap: self.call(softcap=s)
        for splits in (0, -1, 2**16):
            yield f"{splits} splits", ValueError, "num_splits", lambda n=splits: self.call(num_splits=n)
        for name in ("window", "num_splits", "softcap", "softmax_scale"):
            for value in ("1", torch.ones(1), *((1.5,) if name in ("window", "num_splits") else ())):
                given = {name: value}
                yield f"{name} of {type(value).__name__}", TypeError, name, lambda g=given: self.call(**g)
        for name in ("softcap", "softmax_scale"):
            for value in (float("nan"), float("inf"), 2.0**127):
                yield f"{name} of {value}", ValueError, name, lambda g={name: value}: self.call(**g)
        for value in (1e-300, math.nextafter(SMALLEST_SOFTCAP, 0)):
            yield f"a softcap of {value}", ValueError, "softcap", lambda s=value: self.call(softcap=s)
        for name in ("batch_invariant", "return_lse"):
            yield f"{name} of text", TypeError, name, lambda g={name: "no"}: self.call(**g)
        many = 2**16
        given = {name: self.good_arguments[name][:1] for name in ("query", "block_table", "seq_lens")}
        given = {name: one.expand(many, *one.shape[1:]) for name, one in given.items()}
        given["seq_lens"] = given["seq_lens"].contiguous()
        yield f"{many} sequences", ValueError, "seq_lens", lambda g=given: self.call(**g)
        yield "queries of no starts", ValueError, "max_query_len", lambda: self.call(max_query_len=1)
        both = {"num_splits": 2, "batch_invariant": True}
        yield "splits at fixed positions", ValueError, "num_splits", lambda: self.call(**both)

    def _counts(self) -> Iterator[Call]:
        """Of the functions that say sizes before there are tensors; those with a least of 0 may be of nothing."""
        functions: list[tuple[Callable[..., Any], dict[str, tuple[int, int]], dict[str, Any]]] = [
            (
                self.module.decode_num_splits,
                {
                    "num_sequences": (SEQUENCES, 0),
                    "num_query_heads": (self.heads, 1),
                    "num_kv_heads": (HEADS, 1),
                    "max_seq_len": (64, 0),
                    "queries_per_sequence": (1, 0),
                },
                {"device": self.where},
            ),
            (
                self.module.decode_workspace_size,
                {"num_query_tokens": (SEQUENCES, 0), "num_query_heads": (self.heads, 1), "num_splits": (2, 1)},
                {},
            ),
        ]
        for function, counts, others in functions:
            good = {name: count for name, (count, _) in counts.items()} | others
            for name, (_, least) in counts.items():
                for wrong, error in ((least - 1, ValueError), (-8, ValueError), (1.5, TypeError), ("2", TypeError)):
                    call = lambda f=function, g={**good, name: wrong}: f(**g)  # noqa: E731
                    yield f"{function.__name__}: {name} of {wrong!r}", error, f"{name} must be", call
        uneven = lambda: self.module.decode_num_splits(1, self.heads + 1, HEADS, 64, self.where)  # noqa: E731
        yield "decode_num_splits: heads that cannot be shared", ValueError, "num_query_heads", uneven

    def _starts(self) -> Iterator[Call]:
        good = torch.arange(SEQUENCES + 1, dtype=torch.int32, device=self.where)
        bad: Given = [
            ("no tensor", TypeError, good.tolist()),
            ("int64", ValueError, good.long()),
            ("no end", ValueError, good[:-1]),
            ("two dimensions", ValueError, good[None]),
            ("gaps", ValueError, good.new_zeros(2 * SEQUENCES + 2)[::2]),
            ("another device", ValueError, good.to("meta")),
        ]
        name = "query_start_loc"
        for what, error, given in bad:
            yield f"{name}: {what}", error, name, lambda g=given: self.call(query_start_loc=g, max_query_len=1)
        several = self.new(SEQUENCES, 2, *self.query.shape[1:])
        yield (
            "starts of no flat query",
            ValueError,
            name,
            lambda: self.call(query=several, query_start_loc=good, max_query_len=2),
        )
        for most, error in ((None, ValueError), (0, ValueError), (1.5, TypeError)):
            yield (
                f"at most {most} queries",
                error,
                "max_query_len",
                lambda m=most: self.call(query_start_loc=good, max_query_len=m),
            )

    def _centers(self) -> Iterator[Call]:
        """Options into which a centre would have to go."""
        options = {"sinks": self.new(self.heads), "softcap": 2.0, "return_lse": True}
        refused = [*options] if self.layout.key.parameters.center else []
        if self.layout.value.parameters.center and "sinks" not in refused:
            refused.append("sinks")
        for name in refused:
            yield f"a centre and {name}", ValueError, name, lambda n=name: self.call(**{n: options[n]})

    def good(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Calls that look bad and are not."""
        alone = {name: self.good_arguments[name][:1] for name in ("query", "block_table", "seq_lens")}
        alone["seq_lens"] = alone["seq_lens"].as_strided((1,), (7,))
        yield "a single length of any stride", lambda: self.call(**alone)
        nothing = {name: self.good_arguments[name][:0] for name in ("query", "block_table", "seq_lens")}
        yield "no sequence", lambda: self.call(**nothing)
        empty = {"block_table": self.good_arguments["block_table"][:, :0]}
        empty["seq_lens"] = torch.zeros_like(self.good_arguments["seq_lens"])
        yield "no block", lambda: self.call(**empty)
        for none in ({"num_sequences": 0}, {"max_seq_len": 0}, {"queries_per_sequence": 0}):
            counts = {"num_sequences": SEQUENCES, "max_seq_len": 64, **none}
            yield (
                f"splits of {none}",
                lambda counts=counts: self.module.decode_num_splits(
                    num_query_heads=self.heads, num_kv_heads=HEADS, device=self.where, **counts
                ),
            )
        yield "a workspace of no query", lambda: self.module.decode_workspace_size(0, self.heads, 1)
        yield "no query of any sequence", lambda: self.call(query=self.new(SEQUENCES, 0, self.heads, self.dims[0]))
        options: dict[str, Any] = {"window": 1, "num_splits": 1, "softmax_scale": 1}
        if not (self.layout.key.parameters.center or self.layout.value.parameters.center):
            options["sinks"] = self.new(self.heads).half()
        if not self.layout.key.parameters.center:
            options |= {"softcap": SMALLEST_SOFTCAP, "return_lse": False}
        yield "the smallest of every option", lambda: self.call(**options)
        largest = dict.fromkeys(("softmax_scale", "softcap") if "softcap" in options else ("softmax_scale",), LARGEST)
        yield "the largest of every option", lambda: self.call(window=2**70, **largest)

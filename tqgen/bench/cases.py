"""What is measured: a kernel on a size, and the bytes that it cannot avoid to move."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from tqgen.layout import ITEM_BYTES, Layout

KERNELS = ("store", "unpack", "decode")
TOKENS = {"store": (1, 16, 256, 1024, 8192, 65536), "unpack": (1024, 65536)}
BATCHES = ((1, 2048), (1, 32768), (8, 8192), (32, 8192), (128, 1024))
SLOT_BYTES = 8  # slots are int64
LARGEST = 2**24  # tokens; more would not fit into a GPU next to their bf16 competitor


@dataclass(frozen=True)
class Setting:
    """What all cases of a run share."""

    num_kv_heads: int = 8
    num_query_heads: int = 32
    block_size: int = 16
    dtype: str = "bf16"  # of inputs and outputs


@dataclass(frozen=True)
class Case:
    """One kernel on one size: `tokens` for store and unpack, `batch` sequences of `length` tokens for decode."""

    kernel: str
    tokens: int = 0
    batch: int = 0
    length: int = 0
    space: str = ""  # of unpack: model | rotated

    @property
    def size(self) -> str:
        return f"{self.batch} x {self.length:,}" if self.kernel == "decode" else f"{self.tokens:,}"

    @property
    def title(self) -> str:
        """The kernel, and the space where there are two."""
        return f"{self.kernel}, {self.space} space" if self.space else self.kernel

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in dataclasses.asdict(self).items() if value}


def cases_of(
    layout: Layout, kernels: tuple[str, ...], tokens: tuple[int, ...] = (), batches: tuple[tuple[int, int], ...] = ()
) -> tuple[Case, ...]:
    """The cases of a layout: of `tokens` and `batches` where there are some, otherwise of the usual sizes.

    Vectors that are not rotated are unpacked in one space only; a layout of one side has no attention.
    """
    found: list[Case] = []
    turns = any(side.rotation.kind != "none" or side.parameters.center for side in layout.sides)
    for kernel in kernels:
        if kernel == "decode":
            if len(layout.sides) == 2:
                found += [Case(kernel, batch=batch, length=length) for batch, length in batches or BATCHES]
            continue
        spaces = ("rotated", "model") if turns and kernel == "unpack" else ("",)
        found += [Case(kernel, tokens=n, space=space) for space in spaces for n in tokens or TOKENS[kernel]]
    return tuple(found)


def stored_bytes(layout: Layout) -> int:
    """Bytes of the fields of one token and head."""
    return sum(field.part.num_bytes for field in layout.fields)


def vector_bytes(layout: Layout, dtype: str) -> int:
    """Bytes of the vectors of one token and head, unpacked."""
    return sum(side.head_dim for side in layout.sides) * ITEM_BYTES[dtype]


def moved_bytes(layout: Layout, case: Case, setting: Setting) -> int:
    """The bytes that must move: every input read once, every output written once.

    Of decode attention these are the packed keys and values; queries, outputs and block tables are small beside them.
    """
    heads = setting.num_kv_heads
    if case.kernel == "decode":
        return case.batch * case.length * heads * stored_bytes(layout)
    packed_and_not = heads * (stored_bytes(layout) + vector_bytes(layout, setting.dtype))
    return case.tokens * (packed_and_not + SLOT_BYTES)


def parse_tokens(text: str) -> tuple[int, ...]:
    """Numbers of tokens as `1,1024,65536`; ValueError that says what is wrong."""
    return tuple(_number(word) for word in text.split(","))


def parse_batches(text: str) -> tuple[tuple[int, int], ...]:
    """Batches as `1x32768,32x8192`; ValueError that says what is wrong."""
    found = []
    for word in text.split(","):
        sizes = re.fullmatch(r"\s*(\d+)\s*x\s*(\d+)\s*", word)
        if not sizes:
            raise ValueError(f"`{word.strip()}` is no batch; write sequences and tokens as in `32x8192`")
        batch, length = _number(sizes[1]), _number(sizes[2])
        if batch * length > LARGEST:
            raise ValueError(
                f"`{word.strip()}` is {batch * length:,} tokens, more than the {LARGEST:,} that are measured"
            )
        found.append((batch, length))
    return tuple(found)


def _number(word: str) -> int:
    if not re.fullmatch(r"\s*\d{1,12}\s*", word) or not 0 < int(word) <= LARGEST:
        raise ValueError(f"`{word.strip()}` is no number of tokens from 1 to {LARGEST:,}")
    return int(word)

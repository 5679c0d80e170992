"""What the compile tier compiles: every shipped module on every target, and pairs of what other specs and launches are.

A case is a request to `compile_server.Compiler`, under a name that says what it is.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

from support.covering import Covering, Row, covering
from support.matrix import ABSENT, allowed, row_name, side_axes, spec_axes, spec_text
from tqgen import manifest
from tqgen.inspect import TARGETS
from tqgen.lower.fragments import MOST_ROWS

DTYPES = ("bf16", "fp16", "fp32")
TILES = ("few", "many")  # tokens: small tiles and large ones
SPACES = ("model", "rotated")
STORE, UNPACK, ROTATE, DECODE = LAUNCHERS = ("store", "unpack", "rotate_attention_output", "decode_attention")


@dataclass(frozen=True)
class Case:
    """One compilation: `spec` is the name of a shipped module, or `text` is that of another spec."""

    spec: str
    target: str
    dtype: str
    tile: str
    space: str
    launchers: tuple[str, ...]
    text: str = ""
    block_size: int = 16
    heads: int = 8
    aligned: bool = True
    group: int | None = None  # query heads of a KV head

    @property
    def id(self) -> str:
        parts = [self.spec, self.target, self.dtype, self.tile, self.space]
        parts += [] if self.aligned else ["misaligned"]
        return "-".join([*parts, f"group_{self.group}"] if self.group else parts)

    @property
    def request(self) -> dict[str, Any]:
        source = {"text": self.text} if self.text else {"module": self.spec}
        launch = {"dtype": self.dtype, "many": self.tile == "many", "space": self.space, "aligned": self.aligned}
        sizes = {"block_size": self.block_size, "num_kv_heads": self.heads, "group": self.group}
        return {**source, "target": self.target, "launchers": self.launchers, **launch, **sizes}


def shipped() -> list[Case]:
    """Every shipped module on every target; dtypes, tiles and spaces take turns, decode attention has two targets."""
    cases = []
    for number, entry in enumerate(manifest.shipped()):
        for turn, target in enumerate(TARGETS):
            attends = target == "sm_90" or ("sm_80", "sm_100", "gfx942")[number % 3] == target
            cases.append(
                Case(
                    spec=entry.name,
                    target=target,
                    dtype=DTYPES[(number + turn) % 3],
                    tile=TILES[(number + turn) % 2],
                    space=SPACES[(number + turn // 2) % 2],
                    launchers=LAUNCHERS if attends else (STORE, UNPACK, ROTATE),
                )
            )
    return cases


def shipped_in_every_launch() -> list[Case]:
    """What `shipped` leaves out."""
    done = {(case.spec, case.target, case.dtype, case.tile, case.space, case.launchers) for case in shipped()}
    every = (
        Case(entry.name, target, dtype, tile, space, LAUNCHERS)
        for entry, target, dtype, (tile, space) in itertools.product(
            manifest.shipped(), TARGETS, DTYPES, zip(TILES, SPACES, strict=True)
        )
    )
    return [
        case
        for case in every
        if (case.spec, case.target, case.dtype, case.tile, case.space, case.launchers) not in done
    ]


# Axes that change what a kernel does with a tile. The rest are constants in it, or other dtypes of two bytes.
OF_A_SIDE = ("codec", "bits", "packing", "group", "rotation", "correction", "rounding", "dtype")
LAUNCH = {"target": tuple(TARGETS), "input": DTYPES, "tile": TILES}
FIRST = {"value_dim": "same"}


@functools.cache
def others() -> Covering:
    """Specs and launches in which every pair of these axes meets that concerns one side, the block or the launch.

    Keys and values are encoded and decoded one after the other by the same templates, so that what they are at the same
    time is left to the interpreter tier.
    """
    axes = {f"{side}.{axis}": side_axes(side)[f"{side}.{axis}"] for side in ("key", "value") for axis in OF_A_SIDE}
    unrelated = [frozenset((f"key.{key}", f"value.{value}")) for key, value in itertools.product(OF_A_SIDE, OF_A_SIDE)]
    whole = {"head_dim": spec_axes()["head_dim"], "block": spec_axes()["block"], **LAUNCH}
    return covering({**whole, **axes}, lambda row: allowed({**row, **FIRST}), unrelated)


def completed(row: Row) -> Row:
    """A row with the first value that it can have on each axis that it lacks."""
    full = {**row, **FIRST}
    for axis, values in spec_axes().items():
        if axis not in full:
            full[axis] = next(value for value in (*values, ABSENT) if allowed({**full, axis: value}))
    return full


THIN = 4  # one in so many of the other specs is compiled by default, -m exhaustive compiles all of them


def other_cases() -> list[Case]:
    """The rows of `others`; one in eight compiles decode attention, too."""
    cases = []
    for number, row in enumerate(others().rows):
        spec = completed(row)
        cases.append(
            Case(
                spec=f"{number:03d}-{row_name(spec)}",
                target=row["target"],
                dtype=row["input"],
                tile=row["tile"],
                space=SPACES[number % 2],
                launchers=LAUNCHERS if number // THIN % 8 == 0 else (STORE, UNPACK),
                text=spec_text(spec),
                block_size=64 if spec["block"] == "mixed" else 16,
            )
        )
    return cases


MISALIGNED = ("mse3_v4_aos", "mse4_v4", "fp8_v4")


def misaligned() -> list[Case]:
    """Blocks that start at odd addresses, as those of a cache may that is a part of another tensor."""
    return [Case(name, "sm_90", "bf16", "few", "model", LAUNCHERS, aligned=False) for name in MISALIGNED]


@functools.cache
def thinned() -> frozenset[int]:
    """The rows of `others` that are compiled by default: one in THIN, and the first of each value that these lack."""
    rows = others().rows
    chosen = set(range(0, len(rows), THIN))
    for axis in rows[0]:
        there = {rows[number][axis] for number in chosen}
        for number, row in enumerate(rows):
            if row[axis] not in there:
                there.add(row[axis])
                chosen.add(number)
    return frozenset(chosen)


WIDE = ("mse4_v4", "mse3_v3", "fp8_v4", "mse4_v4_aos", "mse4_vmse4")


def attention() -> list[Case]:
    """Decode attention of the most query rows that a program of few rows takes, and of the largest heads."""
    cases = [Case(name, "sm_90", "bf16", "few", "rotated", (DECODE,), group=MOST_ROWS) for name in WIDE]
    for name, group in itertools.product(("mse4_v4", "fp8_v4"), (4, MOST_ROWS)):
        text = manifest.locate(name).read_text(encoding="utf-8").replace("head_dim: 128", "head_dim: 256")
        cases.append(Case(f"{name}_d256", "sm_90", "bf16", "few", "rotated", (DECODE,), text=text, group=group))
    return cases


def default_cases() -> list[Case]:
    """What is compiled where nobody asks for more."""
    return [
        *shipped(),
        *misaligned(),
        *attention(),
        *(case for number, case in enumerate(other_cases()) if number in thinned()),
    ]


def exhaustive_cases() -> list[Case]:
    """What `default_cases` leaves out."""
    return [case for number, case in enumerate(other_cases()) if number not in thinned()] + shipped_in_every_launch()

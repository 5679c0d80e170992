"""The verification matrix as data: which inputs, block shapes, places and strides a layout's kernels are run with.

`verify` and the tests run the same cells. A cell is written as its id, and an id is read back as the cell, so that any
one can be run again by name.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from tqgen.verify.patterns import PATTERNS

AXES: dict[str, tuple[str, ...]] = {
    "dtype": ("bf16", "fp16", "fp32"),
    "pattern": tuple(PATTERNS),
    "block": ("b16", "b1", "b24", "b64", "b1056"),  # tokens in a block
    "heads": ("h3", "h1", "h8"),
    # consecutive slots; shuffled; only first and last slots of blocks; some slots negative; a launch for each token
    "places": ("shuffled", "consecutive", "edges", "negative", "single"),
    "slots": ("i32", "i64"),
    # the block stride: as large as a block; larger; larger, with blocks as badly aligned as the layout allows
    "cache": ("tight", "padded", "odd"),
    # dense; a slice of a larger tensor at an odd offset, with odd strides; heads outermost
    "inputs": ("dense", "sliced", "transposed"),
    "space": ("model", "rotated"),
    "out": ("ofp16", "obf16", "ofp32"),
}
# Places that no combination of axes gives: no token at all; blocks so far apart that their offsets exceed 32 bits; so
# many tokens that the store is launched with its large tiles.
SPECIAL_PLACES = ("none", "far", "many")
# Blocks at odd multiples of two bytes, or as badly aligned as the layout allows where that is more: those of most
# layouts are at multiples of four and of sixteen, or at odd addresses, and what takes a way between has its own.
SPECIAL_CACHES = ("even",)
# Of a cell that somebody names: some blocks of so many, and what is compared with them, fit in memory.
MOST_IN_BLOCK = 2**17
MOST_DIGITS = 6
# Pairs that need not be covered: the bytes in the cache are all that unpacking sees of the inputs, so its two axes meet
# the axes of the cache in full, and the patterns of the inputs only as it happens.
UNRELATED = frozenset({("pattern", "space"), ("pattern", "out"), ("inputs", "space"), ("inputs", "out")})


@dataclass(frozen=True)
class Cell:
    """One run of a layout's kernels; the values are those of `AXES`."""

    dtype: str = "bf16"
    pattern: str = "normal"
    block: str = "b16"
    heads: str = "h3"
    places: str = "shuffled"
    slots: str = "i32"
    cache: str = "tight"
    inputs: str = "dense"
    space: str = "model"
    out: str = "ofp16"

    @property
    def block_size(self) -> int:
        return int(self.block[1:])

    @property
    def num_kv_heads(self) -> int:
        return int(self.heads[1:])

    @property
    def out_dtype(self) -> str:
        return self.out[1:]

    @property
    def id(self) -> str:
        return "-".join(dataclasses.astuple(self))

    @staticmethod
    def parse(text: str) -> Cell:
        """The cell of an id; ValueError that says which part is not understood."""
        values = text.split("-")
        if len(values) != len(AXES):
            raise ValueError(f"a cell has {len(AXES)} parts, as `{Cell().id}`; this has {len(values)}")
        for (axis, choices), value in zip(AXES.items(), values, strict=True):
            special = {"places": SPECIAL_PLACES, "cache": SPECIAL_CACHES}.get(axis, ())
            is_size = axis in {"block", "heads"} and re.fullmatch(f"{choices[0][0]}[0-9]{{1,{MOST_DIGITS}}}", value)
            if value not in (*choices, *special) and not (is_size and int(value[1:]) > 0):
                raise ValueError(f"`{value}` is no {axis} of a cell; expected one of {', '.join((*choices, *special))}")
        cell = Cell(*values)
        if cell.block_size * cell.num_kv_heads > MOST_IN_BLOCK:
            raise ValueError(f"a block of a cell has at most {MOST_IN_BLOCK:,} tokens times heads")
        return cell


Value = tuple[str, str]  # an axis and one of its values


def covering(
    axes: dict[str, tuple[str, ...]],
    unrelated: Iterable[tuple[str, str]] = (),
    impossible: Collection[frozenset[Value]] = (),
) -> list[dict[str, str]]:
    """Few combinations of `axes` in which every pair of values of two axes occurs.

    Left out are pairs of `unrelated` axes, and pairs that are `impossible`, which may concern two axes. Greedy and
    deterministic: each combination starts with a pair that is still missing and is completed, axis by axis, with the
    value that covers the most missing pairs.
    """
    skipped = {frozenset(pair) for pair in unrelated}
    missing: dict[frozenset[Value], None] = {}
    for a, b in itertools.combinations(axes, 2):
        if frozenset((a, b)) not in skipped:
            pairs = (frozenset(((a, left), (b, right))) for left in axes[a] for right in axes[b])
            missing.update((pair, None) for pair in pairs if pair not in impossible)
    uses = {(axis, value): 0 for axis in axes for value in axes[axis]}
    rows = []
    while missing:
        chosen = dict(next(iter(missing)))
        for axis in axes:
            if axis in chosen:
                continue
            best, most = "", (-1, 0)
            for value in axes[axis]:
                pairs_here = [frozenset(((axis, value), other)) for other in chosen.items()]
                gain = sum(pair in missing for pair in pairs_here), -uses[axis, value]
                if gain > most and not any(pair in impossible for pair in pairs_here):
                    best, most = value, gain
            chosen[axis] = best
        for pair in itertools.combinations(chosen.items(), 2):
            missing.pop(frozenset(pair), None)
        for item in chosen.items():
            uses[item] += 1
        rows.append(chosen)
    return rows


def matrix(fits: Callable[[int, int], bool] = lambda block_size, num_kv_heads: True) -> tuple[Cell, ...]:
    """Every cell that `verify` runs: pairwise over `AXES`, since all combinations are 388,800, and the special ones.

    `fits` says whether a layout can have blocks of a size, for a number of heads. Blocks that it cannot have get a cell
    each, which is to be refused, instead of taking the pairs of other axes with them.
    """
    sizes = list(itertools.product(AXES["block"], AXES["heads"]))
    fitting = [(block, heads) for block, heads in sizes if fits(int(block[1:]), int(heads[1:]))]
    refused = [Cell(block=block, heads=heads) for block, heads in sizes if (block, heads) not in fitting]
    if not fitting:
        return tuple(refused)
    blocks = tuple(block for block in AXES["block"] if block in dict(fitting))
    head_counts = tuple(heads for heads in AXES["heads"] if any(heads == there for _, there in fitting))
    impossible = {frozenset((("block", cell.block), ("heads", cell.heads))) for cell in refused}
    rows = covering({**AXES, "block": blocks, "heads": head_counts}, UNRELATED, impossible)
    smallest = min(fitting, key=lambda size: (int(size[0][1:]), size[1]))
    special = []
    for block, heads in dict.fromkeys((fitting[0], smallest)):
        special.append(Cell(block=block, heads=heads, places="far", slots="i64", cache="padded"))
        special.append(Cell(block=block, heads=heads, places="far", cache="padded", space="rotated"))
    block, heads = fitting[0]
    for dtype, space, out in (("bf16", "model", "ofp16"), ("fp16", "rotated", "obf16"), ("fp32", "model", "ofp32")):
        cell = Cell(dtype=dtype, block=block, heads=heads, places="negative", cache="even", space=space, out=out)
        special.append(cell)
    most_heads = max((there for size, there in fitting if size == block), key=lambda there: int(there[1:]))
    special.append(Cell(block=block, heads=heads, places="none"))
    special.append(Cell(block=block, heads=most_heads, places="many", pattern="real", inputs="sliced", slots="i64"))
    return (*(Cell(**row) for row in rows), *refused, *special)

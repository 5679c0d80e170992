"""Covering arrays under constraints: few combinations in which every possible pair of values occurs.

Greedy and deterministic. An axis is a name with its values; `allowed` says whether values that are chosen so far can
stand together, and is asked again with every further one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

Axes = Mapping[str, tuple[str, ...]]
Row = dict[str, str]
Value = tuple[str, str]
Allowed = Callable[[Row], bool]


@dataclass(frozen=True)
class Covering:
    """The combinations, the number of pairs that they cover, and the pairs that `allowed` rules out."""

    rows: tuple[Row, ...]
    covered: int
    impossible: tuple[tuple[Value, Value], ...]


def covering(axes: Axes, allowed: Allowed = lambda row: True, unrelated: Collection[frozenset[str]] = ()) -> Covering:
    """Combinations of `axes` that cover every pair of values of two axes, but for pairs of `unrelated` axes.

    Each combination starts from a pair that is still missing; every further axis gets the allowed value that covers
    most missing pairs, and of equals the one that was used least.
    """
    names = list(axes)
    missing: dict[tuple[Value, Value], None] = {}
    for a, b in itertools.combinations(names, 2):
        if frozenset((a, b)) not in unrelated:
            missing.update((((a, left), (b, right)), None) for left in axes[a] for right in axes[b])
    partners: dict[Value, set[Value]] = {(axis, value): set() for axis in names for value in axes[axis]}
    for left, right in missing:
        partners[left].add(right)
        partners[right].add(left)
    uses = dict.fromkeys(partners, 0)
    rows, impossible, total = [], [], len(missing)
    for pair in list(missing):
        if pair[1] not in partners[pair[0]]:
            continue
        row = _complete(axes, names, dict(pair), allowed, partners, uses)
        if row is None:
            impossible.append(pair)
            partners[pair[0]].discard(pair[1])
            partners[pair[1]].discard(pair[0])
            continue
        items = set(row.items())
        for item in items:
            partners[item] -= items
            uses[item] += 1
        rows.append({name: row[name] for name in names})
    return Covering(tuple(rows), total - len(impossible), tuple(impossible))


def _complete(
    axes: Axes, names: list[str], row: Row, allowed: Allowed, partners: dict[Value, set[Value]], uses: dict[Value, int]
) -> Row | None:
    """`row` with a value for every axis, or None where none is allowed."""
    if not allowed(row):
        return None
    axis = next((name for name in names if name not in row), None)
    if axis is None:
        return row
    here = set(row.items())
    ranked = sorted(axes[axis], key=lambda value: (-len(partners[axis, value] & here), uses[axis, value]))
    for value in ranked:
        done = _complete(axes, names, {**row, axis: value}, allowed, partners, uses)
        if done is not None:
            return done
    return None

"""Groups: elements of one vector that share a scale."""

from __future__ import annotations

from collections.abc import Iterator

from tqgen.codecs.base import Problem


def group_size(group: int | None, head_dim: int) -> int:
    """Elements that share one scale; the whole vector where the spec names no group."""
    return head_dim if group is None else group


def group_problems(group: int | None, head_dim: int) -> Iterator[Problem]:
    """Groups that do not tile the vector, or that a kernel could not hold in whole packed bytes."""
    if group is None or group == head_dim:
        return
    if head_dim % group:
        fitting = [n for n in range(2, head_dim) if head_dim % n == 0 and (n % 8 == 0 or n & (n - 1) == 0)]
        choice = f"choose one of {', '.join(map(str, fitting))}, or leave it out" if fitting else "leave it out"
        yield Problem(
            code="TQ3201",
            message=f"group {group} does not divide head_dim {head_dim}",
            path=("group",),
            label=f"{head_dim} is not a multiple of {group}",
            help=f"{choice} for one group of the whole vector",
        )
    elif group % 8 and group & (group - 1):
        yield Problem(
            code="TQ3202",
            message=f"group {group} is neither a multiple of 8 nor a power of two",
            path=("group",),
            label="a group must be a multiple of 8, a power of two or the whole vector",
            help="make it a multiple of 8 that divides head_dim, or leave it out for one group of the whole vector",
        )

"""Measurements as text: aligned columns for a terminal, or a table in Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tqgen.bench.results import Measurement

Row = tuple[str, ...]
LEAST_FLOOR = 0.5  # microseconds; a launch takes longer whatever it does
SIZE = {"store": "tokens", "unpack": "tokens", "decode": "batch x tokens"}


def microseconds(time: float | None) -> str:
    """A time in microseconds, three digits of it."""
    if time is None:
        return "-"
    return f"{time:,.2f} us" if time < 10 else f"{time:,.1f} us" if time < 100 else f"{time:,.0f} us"


def header(kernel: str, against: Sequence[str]) -> Row:
    """The titles of the columns of a kernel's measurements."""
    competitors = [title for name in against for title in (name, "faster")]
    return (SIZE[kernel], "time", "with launch", "moved", "of copy", "over floor", *competitors)


def row(one: Measurement, against: Sequence[str]) -> Row:
    """A measurement; `moved` are bytes, `of copy` is the share of the copy bandwidth, where there is much to copy."""
    much = one.floor >= LEAST_FLOOR
    competitors = []
    for name in against:
        ratio = one.ratio(name)
        competitors += [microseconds(one.against.get(name)), "-" if ratio is None else f"{ratio:.2f}x"]
    return (
        one.case.size,
        microseconds(one.microseconds),
        microseconds(one.with_launch),
        _bytes(one.moved_bytes),
        f"{one.share:.0%}" if much else "-",
        f"{1 / one.share:.2f}x" if much else "-",
        *competitors,
    )


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def aligned(rows: Iterable[Row], words: Collection[int] = ()) -> list[str]:
    """Rows, the first of which are titles; columns of `words` start at the same place, all others end there."""
    kept = list(rows)
    widths = [max(len(one[column]) for one in kept) for column in range(len(kept[0]))]

    def cell(column: int, text: str) -> str:
        return text.ljust(widths[column]) if column in words else text.rjust(widths[column])

    return ["  ".join(cell(column, text) for column, text in enumerate(one)).rstrip() for one in kept]


def markdown(rows: Iterable[Row]) -> list[str]:
    """Rows, the first of which are titles, as a Markdown table."""
    kept = list(rows)
    rule = "| " + " | ".join("---" for _ in kept[0]) + " |"
    lines = ["| " + " | ".join(one) + " |" for one in kept]
    return [lines[0], rule, *lines[1:]]


def names_against(measurements: Iterable[Measurement]) -> list[str]:
    """Every competitor, in the order of appearance."""
    return list(dict.fromkeys(name for one in measurements for name in one.against))


def grouped(measurements: Sequence[Measurement]) -> list[tuple[str, list[Measurement]]]:
    """Measurements by the title of their kernel, in the order of appearance."""
    groups: dict[str, list[Measurement]] = {}
    for one in measurements:
        groups.setdefault(one.case.title, []).append(one)
    return list(groups.items())


def text_of(measurements: Sequence[Measurement]) -> list[str]:
    """The measurements of one layout, a table for each kernel."""
    lines = []
    for title, ones in grouped(measurements):
        against = names_against(ones)
        lines += [title, *aligned([header(ones[0].case.kernel, against), *(row(one, against) for one in ones)]), ""]
    return lines

"""Measurements as a picture: a panel for each kernel, a group of bars for each size, a bar for each layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tqgen import seal
from tqgen.bench.results import BF16_ATTENTION, Machine, Measurement
from tqgen.bench.table import grouped, microseconds
from tqgen.picture.colours import FAINT, INK, LINE, PAPER
from tqgen.picture.svg import MONO, element, path, rect, text, width_of
from tqgen.version import __version__

COLOURS = ("#2f6f9f", "#b5651d", "#4d8b57", "#8a5a9e", "#b04a5a", "#5fa3c7", "#dd9350", "#86a83f", "#6b7280", "#c9a227")
LEFT, WIDTH, TOP = 64, 900, 64
PANEL, GAP = 150, 58  # height of the bars, and of what is between two panels
LEGEND = 16

Metric = Callable[[Measurement], float | None]


def metric_of(kernel: str) -> tuple[str, Metric]:
    """What the bars of a kernel show: how far it is from the best that can be, or from what it replaces."""
    if kernel == "decode":
        return f"times faster than {BF16_ATTENTION}", lambda one: one.ratio(BF16_ATTENTION)
    return "share of the copy bandwidth", lambda one: one.share


def svg_of(measurements: Sequence[Measurement], machine: Machine) -> str:
    """The picture as the text of an SVG file."""
    panels = grouped(measurements)
    specs = list(dict.fromkeys(one.spec for one in measurements))
    colours = {spec: COLOURS[number % len(COLOURS)] for number, spec in enumerate(specs)}
    inside, y = [], float(TOP + LEGEND * -(-len(specs) // 5))
    for title, ones in panels:
        inside.append(_panel(title, ones, colours, y))
        y += PANEL + GAP
    where = text(LEFT, 24, machine.describe(), fill=FAINT)
    total = LEFT + WIDTH + 24
    frame = rect(0, 0, total, y, fill=PAPER)
    drawn = element(
        "svg",
        frame,
        where,
        *_legend(colours),
        *inside,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {total} {y:g}",
        width=total,
        height=y,
        font_family=MONO,
        fill=INK,
    )
    head = f"<!-- What was measured by tqgen {__version__}; draw it again instead of editing it. -->"
    return seal.seal(f"{head}\n<!-- text: {seal.UNSEALED} -->\n{drawn}\n")


def _legend(colours: dict[str, str]) -> list[str]:
    drawn = []
    for number, (spec, colour) in enumerate(colours.items()):
        x, y = LEFT + number % 5 * WIDTH / 5, 36 + number // 5 * LEGEND
        drawn += [rect(x, y, 10, 10, fill=colour), text(x + 15, y + 9, spec)]
    return drawn


def _panel(title: str, ones: Sequence[Measurement], colours: dict[str, str], top: float) -> str:
    name, metric = metric_of(ones[0].case.kernel)
    values = [metric(one) or 0.0 for one in ones]
    ceiling = max(1.0, *values) * 1.08
    bottom = top + PANEL

    def height(value: float) -> float:
        return value / ceiling * PANEL

    drawn = [text(LEFT, top - 10, f"{title}: {name}", size=12, font_weight="bold")]
    for mark in (0.0, 0.5, 1.0):
        y = bottom - height(mark)
        drawn += [path([(LEFT, y), (LEFT + WIDTH, y)], stroke=INK if mark == 1.0 else LINE, stroke_width=1)]
        drawn += [text(LEFT - 6, y + 4, f"{mark:g}", size=10, text_anchor="end", fill=FAINT)]
    sizes = list(dict.fromkeys(one.case.size for one in ones))
    group = WIDTH / len(sizes)
    bar = min(40.0, (group - 16) / len(colours))
    places = {spec: number for number, spec in enumerate(colours)}
    for one, value in zip(ones, values):
        x = LEFT + sizes.index(one.case.size) * group + 8 + places[one.spec] * bar
        label = element("title", f"{one.spec}, {one.case.size}: {microseconds(one.microseconds)}, {value:.2f}")
        shape = {"x": x, "y": bottom - height(value), "width": bar - 1, "height": height(value)}
        drawn.append(element("rect", label, fill=colours[one.spec], **shape))
        if bar >= width_of("0.00", 9):
            middle = x + (bar - 1) / 2
            drawn.append(text(middle, bottom - height(value) - 3, f"{value:.2f}", size=9, text_anchor="middle"))
    for number, size in enumerate(sizes):
        drawn.append(text(LEFT + number * group + 8, bottom + 15, size, size=10, fill=FAINT))
    return "".join(drawn)

"""Codes that are read by words at multiples of 4 around them, where they start two bytes after one."""

from __future__ import annotations

from tqgen.layout import Field, Layout, Reserved

ALIGNED_ENOUGH = 4  # bytes


def has_bytes_after(layout: Layout, codes: Field) -> bool:
    """Whether words may be read around a field's bytes: no bytes of somebody else, and none after the block."""
    if any(isinstance(entry, Reserved) for region in layout.regions for entry in region.entries):
        return False
    last = layout.regions[-1].entries[-1]
    return last is not codes


def run_around(layout: Layout, codes: Field, units: int, run: int) -> int:
    """Words of each run of codes that are read so, the `run` of four units; 0 where they are not."""
    half_aligned = codes.alignment % ALIGNED_ENOUGH == ALIGNED_ENOUGH // 2
    return run if half_aligned and units % 16 == 0 and has_bytes_after(layout, codes) else 0

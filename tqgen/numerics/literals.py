"""Numbers as they are written into generated source: exact, and no longer than needed."""

from __future__ import annotations

import struct


def as_fp32(value: float) -> float:
    """The fp32 number nearest to `value`: what a constant of a kernel is in the reference."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def plain(value: float) -> str:
    """A number as people write it, which reads back as the same one."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def fp32(value: float) -> str:
    """The shortest decimal that reads back as the fp32 number nearest to `value`; as fp64 it reads as another one."""
    rounded = as_fp32(value)
    for digits in range(1, 10):
        text = f"{rounded:.{digits}g}"
        if as_fp32(float(text)) == rounded:
            break
    return text if any(mark in text for mark in ".en") else f"{text}.0"

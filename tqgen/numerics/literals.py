"""Numbers as they are written into generated source: exact, and no longer than needed."""

from __future__ import annotations

import struct


def fp32(value: float) -> str:
    """The shortest decimal that reads back as the fp32 number nearest to `value`."""
    rounded = struct.unpack("f", struct.pack("f", value))[0]
    for digits in range(1, 10):
        text = f"{rounded:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == rounded:
            break
    return text if any(mark in text for mark in ".en") else f"{text}.0"

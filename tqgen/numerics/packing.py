"""How codes of a few bits lie in bytes, in numpy.

`linear`: element e occupies bits [e*b, (e+1)*b) of the row, where bit i is bit i % 8 of byte i // 8. `halves`: the
codes are permuted first, so that one unit of whole bytes holds elements that are a fixed distance apart; with 4 bits a
byte holds elements j and j + D/2.
"""

from __future__ import annotations

import math

import numpy as np

CODE_DTYPES: dict[int, np.dtype] = {8: np.dtype("<u1"), 16: np.dtype("<u2"), 32: np.dtype("<u4")}


def unit(bits: int) -> int:
    """The smallest number of codes of `bits` bits that fill whole bytes."""
    return 8 // math.gcd(8, bits)


def order(count: int, bits: int, packing: str) -> np.ndarray:
    """The element [count] that each packed position holds; ValueError where `halves` does not divide the vector."""
    if packing == "linear":
        return np.arange(count)
    if packing != "halves":
        raise ValueError(f"no packing is called `{packing}`")
    width = unit(bits)
    if count % width:
        raise ValueError(f"{count} codes of {bits} bits have no {width} equal parts, which packing `halves` needs")
    return np.arange(count).reshape(width, count // width).T.reshape(-1)


def pack(codes: np.ndarray, bits: int, packing: str = "linear") -> np.ndarray:
    """Pack codes [..., D], integers in [0, 2**bits), into uint8 [..., ceil(D * bits / 8)]; unused bits are zero."""
    codes = np.asarray(codes)
    count = codes.shape[-1]
    codes = codes[..., order(count, bits, packing)]
    if bits in CODE_DTYPES:
        return np.ascontiguousarray(codes.astype(CODE_DTYPES[bits])).view(np.uint8)
    if not 1 <= bits <= 8:
        raise ValueError(f"codes of {bits} bits are not packed; 1 to 8, 16 and 32 are")
    planes = (codes[..., None].astype(np.uint8) >> np.arange(bits, dtype=np.uint8)) & 1
    return np.packbits(planes.reshape(*codes.shape[:-1], count * bits), axis=-1, bitorder="little")


def unpack(packed: np.ndarray, count: int, bits: int, packing: str = "linear") -> np.ndarray:
    """The codes [..., count], int64, of bytes uint8 [..., ceil(count * bits / 8)]: the inverse of `pack`."""
    packed = np.ascontiguousarray(packed, dtype=np.uint8)
    if bits in CODE_DTYPES:
        in_order = packed.view(CODE_DTYPES[bits]).astype(np.int64)
    else:
        planes = np.unpackbits(packed, axis=-1, count=count * bits, bitorder="little")
        planes = planes.reshape(*packed.shape[:-1], count, bits)
        in_order = (planes << np.arange(bits, dtype=np.uint8)).sum(-1, dtype=np.int64)
    codes = np.empty_like(in_order)
    codes[..., order(count, bits, packing)] = in_order
    return codes


def unused_bits(packed: np.ndarray, count: int, bits: int) -> np.ndarray:
    """The bits [...] of the last byte that no code occupies, as an integer; zero in a row that was packed right."""
    used = count * bits % 8
    return packed[..., -1] >> used if used else np.zeros(packed.shape[:-1], dtype=np.uint8)

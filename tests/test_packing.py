"""Codes in bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tqgen.numerics import packing

WIDTHS = range(1, 9)


def row(text):
    return np.frombuffer(bytes.fromhex(text), dtype=np.uint8)


@pytest.mark.parametrize(
    "bits, expected",
    [
        (1, "AA"),
        (2, "E4 E4"),
        (3, "88 C6 FA"),
        (4, "10 32 54 76"),
        (5, "20 88 41 8A 39"),
        (6, "40 20 0C 44 61 1C"),
        (7, "80 80 60 40 28 18 0E"),
        (8, "00 01 02 03 04 05 06 07"),
    ],
)
def test_eight_codes_by_hand(bits, expected):
    assert packing.pack(np.arange(8) % 2**bits, bits).tolist() == row(expected).tolist()


@pytest.mark.parametrize(
    "codes, bits, expected",
    [
        (np.arange(12) % 8, 3, "88 C6 FA 88 06"),
        (np.arange(10) % 8, 3, "88 C6 FA 08"),
        (np.arange(9), 4, "10 32 54 76 08"),
    ],
)
def test_tails_by_hand(codes, bits, expected):
    assert packing.pack(codes, bits).tolist() == row(expected).tolist()


def test_a_tail_of_100_codes_is_38_bytes():
    packed = packing.pack(np.full(100, 7), 3)
    assert packed.tolist() == [0xFF] * 37 + [0x0F]


@pytest.mark.parametrize(
    "bits, element, code, expected",
    [(3, 2, 7, "C0 01 00"), (3, 5, 7, "00 80 03"), (5, 3, 31, "00 80 0F 00 00")],
)
def test_codes_across_bytes_by_hand(bits, element, code, expected):
    codes = np.zeros(8, dtype=int)
    codes[element] = code
    assert packing.pack(codes, bits).tolist() == row(expected).tolist()


def test_halves_by_hand():
    # A byte holds elements j and j + D/2 of 4 bits, or j, j + D/4, j + D/2 and j + 3D/4 of 2 bits.
    assert packing.pack(np.arange(8), 4, "halves").tolist() == row("40 51 62 73").tolist()
    assert packing.pack(np.array([0, 1, 1, 2, 2, 3, 3, 0]), 2, "halves").tolist() == row("E4 39").tolist()
    # Three bytes hold elements j, j + D/8, and so on of 3 bits.
    codes = np.repeat(np.arange(8), 2)
    assert packing.pack(codes, 3, "halves").tolist() == row("88 C6 FA 88 C6 FA").tolist()


@pytest.mark.parametrize("arrangement", ["linear", "halves"])
@pytest.mark.parametrize("bits", WIDTHS)
def test_every_code_in_every_lane(bits, arrangement):
    lanes = 2 * packing.unit(bits)
    codes = np.zeros((lanes, 2**bits, lanes), dtype=int)
    for lane in range(lanes):
        codes[lane, :, lane] = np.arange(2**bits)
    packed = packing.pack(codes, bits, arrangement)
    assert packed.shape == (lanes, 2**bits, 2 * packing.unit(bits) * bits // 8)
    assert np.array_equal(packing.unpack(packed, lanes, bits, arrangement), codes)
    # As one little-endian integer, a code stands at its position's bits and nowhere else.
    position = np.argsort(packing.order(lanes, bits, arrangement))
    for lane in range(lanes):
        for code in range(2**bits):
            whole = int.from_bytes(packed[lane, code].tobytes(), "little")
            assert whole == code << (int(position[lane]) * bits)


@given(st.data(), st.integers(1, 8), st.integers(1, 70))
def test_round_trip_and_zero_tail(data, bits, count):
    codes = np.array(data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=count, max_size=count)))
    packed = packing.pack(codes, bits)
    assert packed.shape == (-(-count * bits // 8),)
    assert np.array_equal(packing.unpack(packed, count, bits), codes)
    assert packing.unused_bits(packed, count, bits) == 0


def test_unused_bits_are_seen():
    packed = packing.pack(np.zeros(10, dtype=int), 3)
    packed[-1] = 0b0100_0000
    assert packing.unused_bits(packed, 10, 3) == 1
    assert np.array_equal(packing.unpack(packed, 10, 3), np.zeros(10))


@pytest.mark.parametrize("bits", [16, 32])
def test_whole_items_are_little_endian(bits):
    codes = np.array([1, 2 ** (bits - 1), 2**bits - 2])
    packed = packing.pack(codes, bits)
    assert packed.tobytes() == b"".join(int(code).to_bytes(bits // 8, "little") for code in codes)
    assert packing.unpack(packed, 3, bits).tolist() == codes.tolist()


def test_what_cannot_be_packed_is_refused():
    with pytest.raises(ValueError, match="no 8 equal parts"):
        packing.pack(np.zeros(12, dtype=int), 3, "halves")
    with pytest.raises(ValueError, match="no packing is called `thirds`"):
        packing.pack(np.zeros(12, dtype=int), 3, "thirds")
    with pytest.raises(ValueError, match="9 bits"):
        packing.pack(np.zeros(8, dtype=int), 9)

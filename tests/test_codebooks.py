"""The pinned tables are what they claim to be."""

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tqgen import codebooks
from tqgen.codebooks import pin
from tqgen.codecs import mse
from tqgen.codecs._guess import guess

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = range(1, 9)
ALL = [(name, bits) for name in codebooks.names() for bits in WIDTHS]

# Mean squared error of the optimal quantiser of N(0, 1), to the digits of the published tables.
DISTORTION = {1: 0.36338, 2: 0.11748, 3: 0.03455, 4: 0.009501, 5: 0.002505}


def density(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def moments(book):
    """Probability and mean of N(0, 1) in each cell, computed from the upper tail, where its digits are."""
    edges = [-math.inf, *book.edges, math.inf]
    result = []
    for low, high in pairwise(edges):
        if low < 0 and high <= 0:
            low, high, sign = -high, -low, -1
        else:
            sign = 1
        tail = [0.5 * math.erfc(edge / math.sqrt(2)) for edge in (low, high)]
        mass = tail[0] - tail[1]
        first = (0.0 if math.isinf(low) else density(low)) - (0.0 if math.isinf(high) else density(high))
        result.append((mass, sign * first / mass))
    return result


def distortion(book):
    """E (x - level)^2 = 1 - sum mass * (2 * mean * level - level^2)."""
    return 1 - sum(m * (2 * mean * c - c * c) for (m, mean), c in zip(moments(book), book.levels, strict=True))


def test_the_tables_that_exist():
    assert codebooks.names() == ("lloyd_max", "vllm")
    for name in codebooks.names():
        assert codebooks.widths(name) == tuple(WIDTHS)
        assert codebooks.description(name) == pin.DESCRIPTIONS[name]


@pytest.mark.parametrize("name, bits", ALL)
def test_levels_ascend_and_are_symmetric(name, bits):
    book = codebooks.load(name, bits)
    assert len(book.levels) == 2**bits
    assert all(low < high for low, high in pairwise(book.levels))
    assert book.levels == tuple(-level for level in reversed(book.levels))
    assert book.edges[len(book.edges) // 2] == 0.0
    assert book.edges == tuple(-edge for edge in reversed(book.edges))


@pytest.mark.parametrize("bits", WIDTHS)
def test_lloyd_max_levels_are_the_means_of_their_cells(bits):
    book = codebooks.load("lloyd_max", bits)
    error = max(abs(mean - level) for (_, mean), level in zip(moments(book), book.levels, strict=True))
    assert error < 1e-12


@pytest.mark.parametrize("bits", sorted(DISTORTION))
def test_lloyd_max_distortion(bits):
    assert distortion(codebooks.load("lloyd_max", bits)) == pytest.approx(DISTORTION[bits], rel=2e-4)


@pytest.mark.parametrize("bits", WIDTHS)
def test_no_table_beats_lloyd_max(bits):
    best = distortion(codebooks.load("lloyd_max", bits))
    for name in codebooks.names():
        assert distortion(codebooks.load(name, bits)) >= best - 1e-13


@pytest.mark.parametrize("name, bits", ALL)
def test_pinned_numbers_are_what_the_solver_gives(name, bits):
    solved = pin.SOLVERS[name](bits)
    # Another linear algebra library moves the last digits, at 8 bits by some 1e-12; fp32 ends at 1e-8.
    assert np.max(np.abs(solved - np.array(codebooks.load(name, bits).levels))) < 1e-11


def test_a_table_is_written_in_the_form_that_is_pinned(tmp_path):
    written = json.loads(pin.write("lloyd_max", tmp_path).read_text())
    pinned = json.loads(Path(codebooks.__file__).with_name("lloyd_max.json").read_text())
    assert written.keys() == pinned.keys() and written["description"] == pinned["description"]
    assert written["levels"].keys() == pinned["levels"].keys()
    for bits, levels in pinned["levels"].items():
        assert written["levels"][bits] == pytest.approx(levels, abs=1e-11)


@pytest.mark.parametrize("file", sorted(path.name for path in GOLDEN.glob("*[0-9e].npz") if "kv" not in path.name))
def test_vllm_levels_equal_the_tables_that_vllm_used(file):
    arrays = np.load(GOLDEN / file)
    tables = [name for name in arrays.files if name.endswith("/centroids")]
    assert tables
    for name in tables:
        case = name.split("/")[0]
        fields = dict(pair.split("=") for pair in str(arrays[f"{case}/meta"]).split())
        scale = float(fields["head_dim"]) ** -0.5
        book = codebooks.load("vllm", int(math.log2(len(arrays[name]))))
        assert np.array_equal(np.float32(np.array(book.levels) * scale), arrays[name]), name
        # Their middle edge is some 1e-17 instead of 0.
        edges = np.float32(np.array(book.edges) * scale)
        assert np.allclose(edges, arrays[f"{case}/midpoints"], rtol=2**-23, atol=1e-15), name


def test_unknown_tables_are_key_errors():
    for call in (lambda: codebooks.load("no_such", 4), lambda: codebooks.load("lloyd_max", 9)):
        with pytest.raises(KeyError):
            call()
    with pytest.raises(KeyError):
        codebooks.widths("no_such")
    with pytest.raises(KeyError):
        codebooks.description("no_such")


@pytest.mark.parametrize(("book", "bits"), ALL)
def test_a_cell_holds_one_edge_at_most_and_every_element_has_a_cell(book, bits):
    edges = np.array(codebooks.load(book, bits).edges)
    for head_dim in (1, 4, 80, 128, 512):
        per_sigma, zero, count = mse.cells(tuple(edges), head_dim)
        place = edges * per_sigma + zero
        # farther from the next cell than the roundings of an element and of its place may bring it
        assert np.all(np.abs(place - np.rint(place)) > 10 * place.max() * 2.0**-24)
        assert len(set(np.floor(place))) == len(edges)
        ends = np.array([-1, 1]) * max(head_dim**0.5, *np.abs(edges)) * per_sigma + zero
        assert ends[0] >= 0 and ends[1] < count


@pytest.mark.parametrize(("book", "bits"), [(book, bits) for book, bits in ALL if 2 <= bits <= mse.WIDEST_SEARCHED])
def test_a_guess_is_a_code_or_the_one_below(book, bits):
    edges = np.array(codebooks.load(book, bits).edges)
    found = guess(tuple(edges))
    z = np.sort(np.concatenate([np.linspace(-9, 9, 4001), edges, np.nextafter(edges, -9)])).astype(np.float32)
    position = np.clip(z * np.float32(found.scale) + np.float32(0.5), 0, 1).astype(np.float64)
    number = np.zeros_like(position)
    for term in (*found.terms, "0.0"):
        number = position * number + float(term)
    assert np.all(np.diff(number) >= -1e-6)
    # an eighth is left for what fp32 rounds
    code = np.searchsorted(edges, z, side="right")
    assert np.all(np.rint(number - 0.05) <= code) and np.all(code <= np.rint(number + 0.05) + 1)

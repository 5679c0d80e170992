"""Verification itself: its matrix covers what it says, and a module that is wrong in any one way does not pass."""

import ast
import dataclasses
import functools
import itertools
import json
import math
import types
import zlib

import numpy as np
import pytest
import torch
from support.kernels import kernels_of
from support.layouts import layout_of

from tqgen import manifest, verify
from tqgen.cli import run
from tqgen.compiler import compile_spec
from tqgen.numerics import floats
from tqgen.reference.compare import Comparison
from tqgen.verify import attention, cells, raised
from tqgen.verify.cells import AXES, UNRELATED, Cell
from tqgen.verify.patterns import PATTERNS, vectors
from tqgen.verify.trial import GUARD, GuardedCache, input_tensor, inputs_of, misfit

BASE = """
tqgen: 1
name: base
head_dim: 32
key: {codec: mse, bits: 3, codebook: vllm, rotation: hadamard, norm_correction: store}
value: {codec: uniform, bits: 4, group: 16}
block:
  regions:
    - {name: data, order: [token, head, field], fields: [key.codes, value.codes]}
    - {name: meta, order: [head, field, token], fields: [key.norm, value.scale, value.zero]}
"""
FEW_LARGE_ROWS = 2000  # stands in for the launch with large tiles, which other tests cover


def compiled(tmp_path, text=BASE, **changes):
    """A compiled spec; `changes` are replacements in its text."""
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "base.yaml"
    path.write_text(text)
    return compile_spec(path)


@pytest.fixture
def base(tmp_path):
    return compiled(tmp_path)


def failures(layout, module, chosen):
    """Outcomes that are not ok."""
    outcomes = verify.verify_module(layout, module, chosen, verify.device(), FEW_LARGE_ROWS)
    return (one for ran in outcomes for one in ran if not one.ok)


def module_of(one):
    return verify.load_module(one.name, one.draft)


def test_the_matrix_covers_every_pair():
    chosen = cells.matrix()
    names = list(AXES)
    skipped = {frozenset(pair) for pair in UNRELATED}
    for a, b in itertools.combinations(names, 2):
        if frozenset((a, b)) in skipped:
            continue
        covered = {(getattr(cell, a), getattr(cell, b)) for cell in chosen}
        assert set(itertools.product(AXES[a], AXES[b])) <= covered, (a, b)
    assert len(set(chosen)) == len(chosen) < 100


def test_blocks_that_do_not_fit_keep_the_other_pairs():
    chosen = cells.matrix(lambda block_size, num_kv_heads: block_size > 1)
    refused = [cell for cell in chosen if cell.block_size == 1]
    assert {cell.num_kv_heads for cell in refused} == {1, 3, 8} and len(refused) == 3
    assert not [cell for cell in refused if cell.places in {"none", "far", "many"}]
    rest = [cell for cell in chosen if cell.block_size > 1]
    assert set(itertools.product(AXES["pattern"], AXES["places"])) <= {(cell.pattern, cell.places) for cell in rest}


def test_blocks_that_fit_some_head_counts_only_keep_those():
    chosen = cells.matrix(lambda block_size, num_kv_heads: num_kv_heads == 8 or block_size == 64)
    fitting = [cell for cell in chosen if cell.num_kv_heads == 8 or cell.block_size == 64]
    assert len(chosen) - len(fitting) == 4 * 2
    for axis in ("pattern", "places", "cache", "inputs"):
        assert set(itertools.product(AXES["block"], AXES[axis])) <= {
            (cell.block, getattr(cell, axis)) for cell in fitting
        }
    assert {cell.places for cell in fitting} == {*AXES["places"], *cells.SPECIAL_PLACES}
    assert {cell.cache for cell in fitting} == {*AXES["cache"], *cells.SPECIAL_CACHES}
    nothing = cells.matrix(lambda *_: False)
    assert len(nothing) == len(AXES["block"]) * len(AXES["heads"])


def test_an_id_is_read_back_as_its_cell():
    for cell in cells.matrix():
        assert Cell.parse(cell.id) == cell
    assert Cell.parse(Cell().id.replace("b16", "b7")).block_size == 7
    odd = [Cell().id.replace("b16", size) for size in ("b²", "b٣", "b999999999999", "b100000", "b1_0")]
    for wrong in (
        "",
        "x",
        Cell().id.replace("b16", "b0"),
        Cell().id.replace("bf16-", "fp8-"),
        Cell().id + "-more",
        *odd,
    ):
        with pytest.raises(ValueError, match="cell"):
            Cell.parse(wrong)


@pytest.mark.parametrize("dtype", AXES["dtype"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_are_numbers_of_the_dtype(base, pattern, dtype):
    for side in base.layout.sides:
        array = vectors(pattern, (7, 3, 32), side, dtype, seed=1)
        assert array.shape == (7, 3, 32)
        finite = array[np.isfinite(array)]
        np.testing.assert_array_equal(floats.round_to(finite, dtype), finite)
        assert np.isnan(array).any() == (pattern == "nan")
        assert np.isinf(array).any() == (pattern == "inf")
        np.testing.assert_array_equal(vectors(pattern, (7, 3, 32), side, dtype, seed=1), array)


def test_ties_lie_between_codes(base):
    array = vectors("ties", (40, 3, 32), base.layout.value, "bf16", seed=3)
    groups = array.reshape(40, 3, 2, 16)
    steps = (groups - groups.min(-1, keepdims=True)) / (
        (groups.max(-1, keepdims=True) - groups.min(-1, keepdims=True)) / 15
    )
    assert (steps % 1 == 0.5).any(-1).mean() > 0.9


ALIGNMENTS = (64, 128, 256, 4096)  # torch starts memory of the CPU at multiples of 64, that of GPUs at those of 512


def aligned(alignment):
    """Kernels of a layout whose heads start at multiples of `alignment`, with room for that in blocks of 64 tokens."""
    part = "{name: %s, order: [{axis: head, align: %d}, token, field], fields: [%s]}"
    regions = [part % ("keys", alignment, "key.codes, key.norm"), part % ("values", alignment, "value.codes")]
    sides = "key: {codec: mse, bits: 4}\nvalue: {codec: fp8, format: e4m3}"
    block = f"block: {{regions: [{', '.join(regions)}], slot_bytes: 256}}"
    return kernels_of(f"tqgen: 1\nname: aligned\nhead_dim: 64\n{sides}\n{block}\n")


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_allocated_caches_start_where_the_layout_asks(alignment):
    made = aligned(alignment)
    assert made.layout.alignment == alignment
    # kept, so that each has another address
    caches = [made.module.allocate(blocks, 64, heads, device="cpu") for blocks in (1, 2, 5) for heads in (1, 3, 8)]
    for cache in caches:
        assert cache.data_ptr() % alignment == 0 and cache.is_contiguous() and not cache.any()
        assert cache.dtype == torch.uint8 and cache.shape[1:] in {(64, heads, 256) for heads in (1, 3, 8)}


@pytest.mark.parametrize("alignment", [256, 4096])
def test_caches_of_large_alignments_are_verified(alignment):
    where = Cell(block="b64", heads="h1", places="edges", pattern="normal")
    chosen = (where, *(dataclasses.replace(where, places="shuffled", cache=cache) for cache in ("padded", "odd")))
    assert not aligned(alignment).failures(*chosen)


@pytest.mark.parametrize("name", ["base", "mse4_v4_aligned", *ALIGNMENTS])
@pytest.mark.parametrize("cache", (*AXES["cache"], *cells.SPECIAL_CACHES))
def test_guards_notice_every_byte(base, name, cache):
    if name in ALIGNMENTS:
        layout = aligned(name).layout
    else:
        layout = base.layout if name == "base" else compile_spec(manifest.locate(name)).layout
    guarded = GuardedCache(layout, Cell(cache=cache), 3, torch.device("cpu"))
    assert guarded.touched_outside() == []
    assert (guarded.blocks() == GUARD).all()
    guarded.tensor[1, 2, 1, 3] = 0
    assert guarded.touched_outside() == [] and (guarded.blocks() != GUARD).sum() == 1
    guarded.buffer[guarded.start - 1] = 0
    guarded.buffer[-1] = 0
    touched = [-1, len(guarded.buffer) - 1 - guarded.start]
    if guarded.stride > guarded.block:
        guarded.buffer[guarded.start + guarded.block] = 0
        touched.append(guarded.block)
    assert sorted(guarded.touched_outside()) == sorted(touched)
    address = guarded.tensor.data_ptr() | guarded.stride
    assert address % layout.alignment == 0
    if cache == "odd":
        assert address % (2 * layout.alignment), "as badly aligned as the layout allows"
    if cache == "even":
        assert address % 2 == 0 and address % (2 * max(2, layout.alignment)), "as badly as that and two bytes allow"


def test_sliced_inputs_are_surrounded_by_nan(base):
    cell = Cell(inputs="sliced")
    array = inputs_of(base.layout, cell, FEW_LARGE_ROWS).vectors["key"]
    tensor = input_tensor(array, cell, torch.device("cpu"))
    assert not tensor.is_contiguous() and tensor.stride(2) == 1
    np.testing.assert_array_equal(tensor.double().numpy(), array)
    assert tensor.as_strided((1,), (1,), tensor.storage_offset() - 1).isnan()


# Digests of what launchers are given. What asks for less than before fails nowhere else: print them anew after a change
# that is meant to ask for something else.
ASKED = {
    False: {
        "cells": 0xCC3F1EC7,
        "store": 0xBEF95FC6,
        "unpack": 0xFF0140EE,
        "rotate_attention_output": 0x64126755,
        "decode_attention": 0x1D88272A,
    },
    True: {
        "cells": 0xCC3F1EC7,
        "store": 0x42505733,
        "unpack": 0xD656E8CF,
        "rotate_attention_output": 0x24BBBD85,
        "decode_attention": 0xFADA1EF0,
    },
}


def digest_of(given, digest):
    """A digest of arguments: of tensors all numbers, bit by bit, and how they lie in memory."""
    if isinstance(given, torch.Tensor):
        numbers = given.contiguous().view(torch.uint8).numpy().tobytes()
        lies = given.dtype, given.shape, given.stride(), given.storage_offset(), given.data_ptr() % 16
        return zlib.crc32(numbers, zlib.crc32(repr(lies).encode(), digest))
    if isinstance(given, (tuple, list)):
        return functools.reduce(lambda found, one: digest_of(one, found), given, digest)
    if isinstance(given, dict):
        return digest_of(sorted(given.items()), digest)
    return zlib.crc32(repr(given).encode(), digest)


def asked_by_cells(layout, chosen):
    """Of each launcher a digest of all that it is given in cells, by a module that writes and returns nothing."""
    asked = dict.fromkeys(verify.LAUNCHERS, 0)

    def launcher(name):
        def noted(*given, **options):
            asked[name] = digest_of((given, options), asked[name])
            if name != "store":
                raise NotImplementedError

        return noted

    noted = launcher("unpack")

    def unpack(
        kv_cache, slot_mapping=None, *, block_table=None, seq_lens=None, space, dtype, out=None, value_center=None
    ):
        noted(kv_cache, slot_mapping, block_table, seq_lens, space, dtype, out, value_center)

    others = {name: launcher(name) for name in asked if name != "unpack"}
    module = types.SimpleNamespace(**others, unpack=unpack, __file__=__file__)
    module.decode_num_splits, module.decode_workspace_size = (
        lambda *_, **__: 2,
        lambda rows, heads, splits: rows * heads,
    )
    with np.errstate(all="ignore"):
        for _ in verify.verify_module(layout, module, chosen, torch.device("cpu"), FEW_LARGE_ROWS):
            pass
    return asked


@pytest.mark.parametrize("centered", [False, True], ids=["plain", "centered"])
def test_cells_ask_what_they_asked(centered, tmp_path):
    group = "group: 16"
    layout = compiled(tmp_path, change=(group, f"{group}, center: {str(centered).lower()}")).layout
    chosen = verify.cells_of(layout)
    found = {"cells": zlib.crc32("".join(cell.id for cell in chosen).encode())}
    found |= asked_by_cells(layout, [cell for cell in chosen if cell.places != "many"])
    assert found == ASKED[centered]


# Of keys and values that have each way to make ties, in bf16: the libraries of other machines round it as these do.
PATTERNS_ASKED = {
    "normal": 0xCF4A324F,
    "real": 0x91FCA8A6,
    "mean_offset": 0x55729663,
    "outlier_channel": 0xB3E8A06E,
    "constant": 0x81447D9E,
    "one_different": 0xE8CDC635,
    "zeros": 0x8E96B403,
    "negative_zero": 0x5C31DAD9,
    "tiny": 0x6CA733F9,
    "subnormal": 0x5CAEEF9A,
    "large": 0x81D2EBB9,
    "huge": 0xC2A438D3,
    "nan": 0x9FD50F1F,
    "inf": 0x7C2F425C,
    "ties": 0xD3486713,
    "long": 0x37E6119A,
}
SIDES_OF_PATTERNS = [
    "mse, bits: 3",
    "uniform, bits: 4, group: 8",
    "uniform, bits: 3, symmetric: true",
    "fp8, scale: {}, group: 16",
    "raw, dtype: fp16",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_are_what_they_were(pattern):
    digest = 0
    for codec in SIDES_OF_PATTERNS:
        layout = layout_of(f"{{codec: {codec}}}", f"{{codec: {codec}}}", head_dim=32)
        for side in layout.sides:
            array = vectors(pattern, (11, 3, 32), side, "bf16", seed=5)
            digest = zlib.crc32(np.where(np.isnan(array), np.copysign(7.7, array), array).tobytes(), digest)
    assert digest == PATTERNS_ASKED[pattern]


def test_negative_slots_are_there_and_the_others_distinct(base):
    for cell in cells.matrix():
        if misfit(base.layout, cell.block_size, cell.num_kv_heads):
            continue
        slots = inputs_of(base.layout, cell, FEW_LARGE_ROWS).slots
        assert slots.dtype == (np.int32 if cell.slots == "i32" else np.int64)
        assert (slots < 0).any() == (cell.places == "negative"), cell.id
        kept = slots[slots >= 0]
        assert len(np.unique(kept)) == len(kept)


def test_every_cell_passes(base):
    """Every third: the shipped modules run all of them between them."""
    chosen = verify.cells_of(base.layout)[::3]
    wrong = [(one.cell.id, one.error or str(one.comparison)) for one in failures(base.layout, module_of(base), chosen)]
    assert not wrong


# A module of a layout that differs in one rule, with the same bytes in a slot. Some cell has to notice.
DIFFERENCES = {
    "tie": ("bits: 3,", "bits: 3, tie: down,"),
    "norm_correction": ("norm_correction: store", "norm_correction: none"),
    "codebook": ("codebook: vllm", "codebook: lloyd_max"),
    "signs": ("rotation: hadamard", "rotation: signed_hadamard"),
    "rotation_block": ("rotation: hadamard", "rotation: hadamard, rotation_block: 16"),
    "norm_dtype": ("bits: 3,", "bits: 3, norm: {dtype: bf16},"),
    "key_policy": ("bits: 3,", "bits: 3, non_finite: saturate,"),
    "rounding": ("group: 16}", "group: 16, rounding: half_even}"),
    "quantize_with": ("group: 16}", "group: 16, quantize_with: stored}"),
    "scale_floor": ("group: 16}", "group: 16, scale_floor: 1e-6}"),
    "value_policy": ("group: 16}", "group: 16, non_finite: saturate}"),
    "packing": ("group: 16}", "group: 16, packing: halves}"),
    "zero_dtype": ("group: 16}", "group: 16, zero: {dtype: bf16}}"),
    "field_order": ("[key.codes, value.codes]", "[value.codes, key.codes]"),
    "meta_order": ("[key.norm, value.scale, value.zero]", "[key.norm, value.zero, value.scale]"),
    "axis_order": ("order: [token, head, field]", "order: [head, token, field]"),
    "region_order": ("order: [head, field, token]", "order: [field, head, token]"),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_another_layouts_module_does_not_pass(base, tmp_path, difference):
    other = compiled(tmp_path, change=DIFFERENCES[difference])
    assert other.layout.slot_bytes == base.layout.slot_bytes
    assert other.layout.layout_id != base.layout.layout_id
    chosen = verify.cells_of(base.layout)
    first = next(failures(base.layout, module_of(other), chosen), None)
    assert first is not None, "no cell noticed"
    assert first.launcher in {"store", "unpack"}


def test_a_module_that_raises_is_a_finding(base):
    source = base.draft.replace("def store(", "def store(*_, **__):\n    raise KeyError('lost')\n\n\ndef _store(", 1)
    first, *_ = failures(base.layout, verify.load_module("broken", source), [Cell()])
    assert first.launcher == "store"
    number = 1 + source.splitlines().index("    raise KeyError('lost')")
    assert first.error == f"KeyError: 'lost' (line {number} of the module, in `store`: `raise KeyError('lost')`)"


def test_what_a_kernel_raises_is_told_by_its_cause_and_its_line(base):
    """Triton wraps it, and the last line that ran is one of Triton."""
    head = next(line for line in base.source.splitlines() if line.startswith("def _encode_value("))
    source = base.source.replace(head, f"{head}\n    totl = totle + 1")
    first, *_ = failures(base.layout, verify.load_module("misspelt", source), [Cell()])
    number = source.splitlines().index(head) + 2
    assert first.error == (
        f"NameError: name 'totle' is not defined (line {number} of the module, in `_encode_value`: `totl = totle + 1`)"
    )


def test_what_triton_does_not_compile_is_told_by_its_line():
    from triton.compiler.errors import CompilationError

    text = "@triton.jit\ndef _encode_key(x):\n    y = totle + 1\n    return y\n"
    node = ast.parse(text).body[0].body[0]
    try:
        try:
            raise CompilationError(text, node, "totle is not defined")
        except CompilationError as inner:
            raise CompilationError("def _kernel():\n    _encode_key(0)\n", ast.parse("f()").body[0]) from inner
    except CompilationError as error:
        said = raised.described(error, types.ModuleType("module"))
    assert said == "CompilationError: totle is not defined (`_encode_key`: `y = totle + 1`)"


def test_a_module_that_stores_nothing_is_a_finding(base):
    source = base.draft.replace("def store(", "def store(*_, **__):\n    pass\n\n\ndef _store(", 1)
    first, *_ = failures(base.layout, verify.load_module("lazy", source), [Cell()])
    assert first.comparison.num_mismatches > 100


def test_where_nothing_is_stored_a_comparison_of_nothing_is_right_and_a_mismatch_is_not():
    nothing, cell = Comparison(), Cell(places="none")
    assert verify.Outcome(cell, "store", nothing).ok and not verify.Outcome(Cell(), "store", nothing).ok
    nothing.add(1, [])
    assert not verify.Outcome(cell, "store", nothing).ok


@pytest.mark.parametrize("cache", ["tight", "padded"])
def test_a_store_that_writes_around_the_blocks_is_a_finding(base, cache):
    module = module_of(base)
    store, at = module.store, -1 if cache == "tight" else 3 * 16 * base.layout.slot_bytes

    def spilling(key, value, kv_cache, *given, **options):
        store(key, value, kv_cache, *given, **options)
        kv_cache.as_strided((1,), (1,), kv_cache.storage_offset() + at).zero_()

    module.store = spilling
    first, *_ = failures(base.layout, module, [Cell(cache=cache)])
    assert first.launcher == "store" and "a byte outside of every block" in str(first.comparison)


def test_single_tokens_have_a_launch_each(base):
    module, tokens = module_of(base), []
    store = module.store
    module.store = lambda key, *given, **options: (tokens.append(len(key)), store(key, *given, **options))
    assert not list(failures(base.layout, module, [Cell(places="single")]))
    assert tokens == [1] * 4


@pytest.mark.parametrize("error", [MemoryError, RuntimeError])
def test_only_far_blocks_may_lack_memory(base, monkeypatch, error):
    def full(*_):
        raise error("no memory")

    monkeypatch.setattr(verify, "GuardedCache", full)
    ((outcome,),) = verify.verify_module(base.layout, module_of(base), [Cell(places="far")], verify.device(), 1)
    assert "no memory" in outcome.not_run
    with pytest.raises(error, match="no memory"):
        list(verify.verify_module(base.layout, module_of(base), [Cell()], verify.device(), 1))


def test_blocks_that_32_bits_do_not_reach_are_far(base):
    far = Cell(block="b1", places="far", cache="padded")
    assert not list(failures(base.layout, module_of(base), [far]))
    wide = "(slot // BLOCK_SIZE).to(tl.int64) * block_stride"
    assert wide in base.draft
    narrow = verify.load_module(base.name, base.draft.replace(wide, wide.replace("int64", "int32")))
    assert "store" in {one.launcher for one in failures(base.layout, narrow, [far])}


WRONG_ROTATIONS = {
    "nothing": (lambda output: output, ""),
    "the last row": (lambda output: torch.cat([output[:-1], 1.02 * output[-1:]]), "attention output vector"),
    "the first head": (lambda output: torch.cat([0 * output[:, :1], output[:, 1:]], 1), "attention output vector"),
    "another dtype": (lambda output: output.double(), "the result is torch.float64"),
}


def test_outputs_that_are_rotated_back_wrongly_are_a_finding(tmp_path):
    rotated = compiled(tmp_path, change=("bits: 4, group: 16", "bits: 4, rotation: hadamard"))
    module = module_of(rotated)
    rotate = module.rotate_attention_output
    for name, (wrong, said) in WRONG_ROTATIONS.items():
        module.rotate_attention_output = lambda *given, wrong=wrong, **options: wrong(rotate(*given, **options))
        found = [str(one.error or one.comparison) for one in failures(rotated.layout, module, [Cell()])]
        assert len(found) == bool(said) and all(said in text for text in found), (name, found)


UNPACK = """def unpack(kv_cache, slot_mapping=None, **options):
    key, value = _unpack(kv_cache, slot_mapping, **options)
    {fault}
    return key, value


def _unpack("""


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("kv_cache[0, 0, 0, 0] ^= 1", "a byte of the cache"),
        ("if slot_mapping is not None: key.as_strided((1,), (1,), 0).zero_()", "output around the key vectors"),
        (
            "if slot_mapping is not None: key.as_strided((1,), (1,), key.untyped_storage().nbytes() // 2 - 1).zero_()",
            "output around the key vectors",
        ),
        ("value[1, 0, 3] += 0.125", "value vector"),
        ("key, value = value, key", "key vector"),
        ("if 'block_table' in options: key.as_strided((1,), (1,), 0).zero_()", "output around the key vectors"),
        (
            "if 'block_table' in options: key.as_strided((1,), (1,), key.storage_offset() - key.stride(1)).zero_()",
            "output around the key vectors",
        ),
        ("if 'block_table' in options: value[1, 0, 0, 3] += 0.125", "value vector"),
        ("if 'block_table' in options: key[3, -1, 2, 31] += 1", "key vector"),
    ],
)
def test_an_unpack_that_touches_or_returns_what_it_should_not_is_a_finding(base, fault, said):
    source = base.draft.replace("def unpack(", UNPACK.format(fault=fault), 1)
    first, *_ = failures(base.layout, verify.load_module("unclean", source), [Cell(inputs="sliced")])
    assert first.launcher == "unpack" and first.comparison.mismatches[0].what.startswith(said)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(token < tl.load(seq_lens_ptr + sequence, mask=in_range, other=0))", "in_range"),
        ("token < tl.load(seq_lens_ptr", "token <= tl.load(seq_lens_ptr"),
        ("seq_lens_ptr + sequence,", "seq_lens_ptr + 0 * sequence,"),
        ("sequence * block_table_stride", "sequence * tokens_per_sequence"),
        ("+ token // BLOCK_SIZE\n", "+ token % BLOCK_SIZE\n"),
        ("live = block >= 0", "live = live"),
        (
            "row_ptr += sequence * value_sequence_stride",
            "row_ptr += sequence * tokens_per_sequence * value_token_stride",
        ),
        ("token_in_block = token % BLOCK_SIZE", "token_in_block = token % tokens_per_sequence % 4"),
    ],
)
def test_an_unpack_that_walks_sequences_wrongly_is_a_finding(base, right, wrong):
    assert right in base.source
    module = verify.load_module("astray", base.source.replace(right, wrong))
    chosen = [Cell(block="b1"), Cell(block="b24", inputs="sliced")]
    assert {one.launcher for one in failures(base.layout, module, chosen)} == {"unpack"}


def _times(factor, of):
    def attention(attend, *given, **options):
        found = list(attend(*given, **options))
        found[of].mul_(factor)
        return tuple(found)

    return attention


WRONG_ATTENTION = {
    "nothing": (lambda attend, *given, **options: attend(*given, **options), ""),
    "an output that is 2% off": (_times(1.02, 0), "attention output"),
    "a logarithm that is 1% off": (_times(1.01, 1), "logarithm of the sum"),
    "an output of its own": (
        lambda attend, *given, **options: tuple(one.clone() for one in attend(*given, **options)),
        "not the one that was given",
    ),
    "another dtype": (
        lambda attend, *given, **options: (attend(*given, **options)[0].double(), attend(*given, **options)[1]),
        "the output is torch.float64",
    ),
    "another block table": (
        lambda attend, query, cache, table, *given, **options: attend(
            query, cache, table.roll(1, 0).contiguous(), *given, **options
        ),
        "attention output",
    ),
    "all scales": (
        lambda attend, *given, **options: attend(*given, **{**options, "softmax_scale": None}),
        "attention output",
    ),
    "no sinks": (lambda attend, *given, **options: attend(*given, **{**options, "sinks": None}), "attention output"),
    "no window": (lambda attend, *given, **options: attend(*given, **{**options, "window": None}), "attention output"),
    "no softcap": (lambda attend, *given, **options: attend(*given, **{**options, "softcap": None}), "logarithm"),
}


@pytest.mark.parametrize("fault", WRONG_ATTENTION)
def test_attention_that_is_wrong_is_a_finding(base, fault):
    wrong, said = WRONG_ATTENTION[fault]
    module = module_of(base)
    attend, where = module.decode_attention, verify.device()
    module.decode_attention = lambda *given, **options: wrong(attend, *given, **options)
    options = {"window": 9, "softcap": 1.5, "sinks": True, "softmax_scale": 0.3, "num_splits": 1}
    call = attention.Call(group=2, queries=1, lengths=(16, 13), options=options, sliced=True, buffers=True)
    try:
        found = str(attention.attend(base.layout, module, Cell(places="edges", dtype="fp32"), where, call))
    except ValueError as error:
        found = str(error)
    assert (said in found and ": 0 mismatches" not in found) if said else ": 0 mismatches" in found, found


def attending(base, call, change):
    """What is found of attention whose results `change` alters in place; what is right is computed once."""
    module, kept = module_of(base), {}
    store, attend = module.store, module.decode_attention

    def store_once(key, value, cache, slots, **options):
        if len(slots) not in kept:
            store(key, value, cache, slots, **options)
            kept[len(slots)] = cache.clone()
        cache.copy_(kept[len(slots)])

    def attend_once(query, cache, table, lengths, **options):
        if 0 in call.lengths:  # nothing but poison where no token is, and no block that there is
            assert (cache.flatten(1) == 0xFF).all(1).sum() == 1 and (table == 2**31 - 1).sum() == 1
        if "right" not in kept:
            kept["right"] = [one.clone() for one in attend(query, cache, table, lengths, **options)]
        output, lse = (one.clone() for one in kept["right"])
        output = options["out"].copy_(output) if "out" in options else output
        change(output, lse, options.get("workspace"))
        return output, lse

    module.store, module.decode_attention = store_once, attend_once
    cell = Cell(places="edges", dtype="fp32")
    return lambda: attention.attend(base.layout, module, cell, verify.device(), call)


def test_any_wrong_number_of_attention_is_a_finding(base):
    """One number of an output or a logarithm, of every sequence, at both ends."""
    place, of, wrong, right = None, 0, 0.0, []

    def change(*results):
        if place is not None:
            right.append(results[of][place].item())
            results[of][place] = wrong if wrong is not None else right[-1]

    call = attention.Call(group=2, queries=2, lengths=(3, 16, 0), options={"num_splits": 1})
    found = attending(base, call, change)
    assert found().ok
    tried = 0
    for of, element in ((0, (0, 31)), (1, ())):
        for head, sequence, query in ((0, 0, 1), (5, 1, 0), (5, 2, 1)):
            place, wrong = (sequence, query, head, *element[head > 0 : 1 + (head > 0)]), None
            assert found().ok
            number = right[-1]
            for wrong in (math.nan, math.inf, -math.inf, 0.0, 1.5 * number, number + 1.0):
                if wrong != number and not abs(wrong - number) < 0.05:
                    tried += 1
                    assert found().num_mismatches == 1, (of, place, number, wrong)
    assert tried > 25


def test_any_number_around_a_buffer_of_attention_is_a_finding(base):
    name, behind = "", False

    def change(output, lse, workspace):
        buffer = {"output": output, "workspace": workspace}.get(name)
        if buffer is not None:
            at = buffer.storage_offset() + (buffer.numel() if behind else -1)
            buffer.as_strided((1,), (1,), at).fill_(0)

    found = attending(base, attention.Call(2, 1, (3,), {"num_splits": 1}, sliced=True, buffers=True), change)
    assert found().ok
    for name, behind in itertools.product(("output", "workspace"), (False, True)):
        assert "a number around a buffer" in str(found()), (name, behind)


def test_a_module_that_accepts_what_does_not_fit_is_a_finding():
    one = compile_spec(manifest.locate("mse4_v4_aligned"))
    source = one.source.replace("def allocate(", "def allocate(*_, **__):\n    pass\n\n\ndef _allocate(", 1)
    (first,) = failures(one.layout, verify.load_module("lenient", source), [Cell(block="b1")])
    assert first.launcher == "allocate" and "was not refused" in first.error


def test_launchers_that_no_cell_runs_are_named(base):
    assert verify.not_verified(module_of(base)) == []
    source = base.draft + "\n\ndef prefetch(kv_cache):\n    return kv_cache\n"
    assert verify.not_verified(verify.load_module("more", source)) == ["prefetch"]


ONE = "bf16-normal-b16-h3-shuffled-i32-tight-dense-model-ofp16"


def test_the_command_prints_its_cells(tmp_path, capsys):
    path = tmp_path / "base.yaml"
    path.write_text(BASE)
    assert run(["verify", str(path), "--cell", ONE]) == 0
    out, err = capsys.readouterr()
    assert ONE in out and "1 cell passed, 0 failed" in out and not err
    assert "cells of each launcher: store in 1, unpack in 1\n" in out and not out.endswith("\n\n")
    if not torch.cuda.is_available():
        assert out.endswith("not run: on a GPU: there is none here\n")
    assert ("no GPU" in out) == (not torch.cuda.is_available() or verify.device().type == "cpu")
    assert run(["verify", str(path), "--cell", ONE, "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["launchers"] == {"store": 1, "unpack": 1}
    assert report["passed"] == 1 and report["failed"] == 0 and report["numbers"] > 1000
    assert report["cells"][0]["cell"] == ONE and report["cells"][0]["result"] == "ok"


def test_the_command_describes_a_failure(tmp_path, capsys, monkeypatch):
    path = tmp_path / "base.yaml"
    path.write_text(BASE)
    original = verify.load_module
    other = compiled(tmp_path, change=DIFFERENCES["axis_order"])
    path.write_text(BASE)
    monkeypatch.setattr(verify, "load_module", lambda name, source: original(name, other.source))
    assert run(["verify", str(path), "--cell", ONE]) == 1
    out, err = capsys.readouterr()
    assert "FAILED in store" in out and "0 cells passed, 1 failed" in out
    assert "error[TQ5101]: `base`: kernel `store` in cell" in err
    for word in ("key.codes", "token", "head", "byte", "bit", "expected", "got"):
        assert word in err
    assert f"--cell {ONE}" in err.split("help:")[1]


def test_the_command_says_where_to_read_a_module_that_raises(tmp_path, capsys, monkeypatch):
    path = tmp_path / "base.yaml"
    path.write_text(BASE)
    original = verify.load_module
    broken = compiled(tmp_path).source.replace(
        "def store(", "def store(*_, **__):\n    return 1 / 0\n\n\ndef _store(", 1
    )
    monkeypatch.setattr(verify, "load_module", lambda name, source: original(name, broken))
    assert run(["verify", str(path), "--cell", ONE, "--set", "head_dim=32"]) == 1
    err = capsys.readouterr().err
    assert "ZeroDivisionError" in err and "in `store`: `return 1 / 0`" in err
    assert f"`tqgen show {path} --set head_dim=32 --stage source` prints the module" in err


def test_a_matrix_that_verifies_nothing_is_a_finding(tmp_path, capsys):
    path = tmp_path / "base.yaml"
    path.write_text(BASE.replace("order: [token, head, field]", "order: [{axis: token, align: 4096}, head, field]"))
    assert run(["verify", str(path)]) == 1
    out, err = capsys.readouterr()
    assert "0 cells passed, 0 failed, 15 refused" in out and err.startswith("error[TQ5102]: ")


def test_without_torch_the_command_says_what_it_needs(capsys, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run(["verify", "mse3_v4"]) == 2
    assert "error[TQ4107]: verifying runs the kernels, and needs torch and triton" in capsys.readouterr().err

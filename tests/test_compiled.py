"""What kernels become on GPUs that are not here: facts that must hold of each, and figures that must not get worse."""

import functools
import math
import re

import compiled_figures
import pytest
import triton
from support.compile_cases import DECODE, LAUNCH, STORE, UNPACK, Case, default_cases, exhaustive_cases, others, thinned
from support.compile_server import Compiler

from tqgen import emit, manifest
from tqgen.compiler import compile_spec
from tqgen.inspect import TARGETS
from tqgen.layout.resolve import resolve
from tqgen.lower import lower
from tqgen.spec import parse_spec

DECODING = {"_decode_kernel", "_decode_few_kernel"}  # of which a launch takes one
ATTENTION = {*DECODING, "_merge_kernel"}
WANTED = {**LAUNCH, "shipped": [entry.name for entry in manifest.shipped()]}


@pytest.fixture(scope="module")
def compiler():
    client = Compiler()
    yield client
    client.close()


@functools.cache
def layout_of(spec: str, text: str):
    return resolve(parse_spec(text)) if text else compile_spec(manifest.locate(spec)).layout


@functools.cache
def pieces_of(spec: str, text: str) -> dict[str, int]:
    """The bytes of each field that the plan of the store writes at a time."""
    pieces = {}
    for side in lower(layout_of(spec, text), "compiled.yaml").sides:
        words = side.encoded.words or side.encoded.whole_words
        pieces[side.codes.title] = 4 if words else side.packing.unit_bytes if side.packing.wide else 1
        pieces |= {field.title: field.item_bytes for field in side.metadata}
    return pieces


REGISTERS = 65536  # of a multiprocessor of every NVIDIA GPU here; a thread gets them in steps of 8


def crowd_of(case: Case, registers: int) -> list[str]:
    """Whether about as many programs of few query rows fit as splits are made for: one more runs after the others."""
    fragments = lower(layout_of(case.spec, case.text), "compiled.yaml").attention.fragments
    fits = REGISTERS // (-(-registers // 8) * 8 * 32 * fragments.warps)
    more_rows = case.group is not None and case.group > 8
    planned = fragments.programs_of_more_rows if more_rows else fragments.programs_per_processor
    return (
        [] if abs(fits - planned) <= 1 else [f"_decode_few_kernel: {fits} programs fit, splits are made for {planned}"]
    )


SHARED = 228 * 1024  # of a multiprocessor from sm_90 on, of which each program takes 1 KiB more than it asks for


def sharing_of(case: Case, facts: dict) -> list[str]:
    """Whether as many programs that keep a matrix fit a multiprocessor as are launched for it."""
    kept = lower(layout_of(case.spec, case.text), "compiled.yaml").kept
    multiplies = facts["kernel"] == "_store_kernel" or (facts["kernel"] == "_unpack_kernel" and case.space == "model")
    if kept is None or case.tile != "many" or case.target not in ("sm_90", "sm_100") or not multiplies:
        return []
    by_registers = REGISTERS // (-(-facts["registers"] // 8) * 8 * 32 * kept.tile.warps)
    fits = min(by_registers, SHARED // (facts["shared_bytes"] + 1024))
    wanted = kept.programs
    return [] if fits >= wanted else [f"{facts['kernel']}: {fits} programs fit, {wanted} are launched"]


def capability_of(case: Case) -> int:
    """From which on GPUs have the assembly that expands codes; others take a form that moves numbers among threads."""
    attention = lower(layout_of(case.spec, case.text), "compiled.yaml").attention
    return max(side.needs_capability for _, side in attention.sides)


@functools.cache
def alignments(spec: str, text: str, block_size: int, heads: int) -> dict[str, int]:
    """What is known of the addresses of each field, in bytes, in blocks that start at multiples of 16."""
    layout = layout_of(spec, text)
    block = math.gcd(16, layout.block_bytes(block_size, heads))
    return {
        field.name: functools.reduce(
            math.gcd,
            (field.address(token, head, block_size, heads) for token in range(block_size) for head in range(heads)),
            block,
        )
        for field in layout.fields
    }


def wrong(case: Case, facts: list[dict], figures: dict) -> list[str]:
    """Which of the facts that every kernel must have do not hold; known spills are in `figures`."""
    found = []
    target = TARGETS[case.target]
    layout = layout_of(case.spec, case.text)
    attends = DECODE in case.launchers and layout.key.is_stored and layout.value.is_stored
    launched = {one["kernel"] for one in facts}
    wanted = {launcher: f"_{launcher}_kernel" for launcher in (STORE, UNPACK)}
    missing = {wanted[one] for one in case.launchers if one in wanted} | ({"_merge_kernel"} if attends else set())
    missing -= launched
    if attends and not DECODING & launched:
        missing |= DECODING
    if missing:
        found.append(f"not launched: {', '.join(sorted(missing))}")
    for one in facts:
        name = one["kernel"]
        if target.is_nvidia and one["spilled_bytes"] and f"{case.id} {name}" not in figures:
            found.append(f"{name}: {one['spilled_bytes']} bytes of registers are spilled, {one['registers']} in use")
        if one["shared_bytes"] > target.shared_bytes:
            found.append(f"{name}: {one['shared_bytes']} bytes of shared memory, {target.shared_bytes} are there")
        if one["crowded"]:
            found.append(f"{name}: {one['crowded']} operands of products are spread over more places than there are")
        if name == "_decode_few_kernel" and one["exchanges"] and target.ptx_capability >= capability_of(case):
            found.append(f"{name}: {one['exchanges']} barriers and accesses of shared memory in its loop")
        if name not in ATTENTION and one["inexact"]:
            found.append(f"{name}: not correctly rounded: {', '.join(one['inexact'])}")
        if name not in ATTENTION and one["fusible"]:
            found.append(f"{name}: a product and a sum may become one operation")
        if name == "_decode_few_kernel" and target.is_nvidia and not one["spilled_bytes"]:
            found += crowd_of(case, one["registers"])
        found += sharing_of(case, one)
        if name == "_store_kernel" and target.is_nvidia:  # AMD's GPUs take any address
            found += wrong_widths(case, one["stores"])
    return found


def wrong_widths(case: Case, stores: dict[str, int]) -> list[str]:
    """Fields that a store writes in pieces larger than addresses allow, or smaller than the plan says.

    By the plan codes are written as words of 32 bits, as units of 2 or 4 bytes or byte by byte, and numbers as what
    they are; compilers join neighbours where a thread has some.
    """
    found = []
    pieces = pieces_of(case.spec, case.text)
    for field in layout_of(case.spec, case.text).fields:
        known = alignments(case.spec, case.text, case.block_size, case.heads)[field.name] if case.aligned else 1
        width = stores.get(field.name, 0)
        # The plan knows of an address what holds for every block size and head count.
        least = min(pieces[field.name], known, field.alignment)
        if width > known:
            found.append(f"stores {width} bytes of {field.name} at multiples of {known}")
        if width < least:
            found.append(f"stores {width} bytes of {field.name} at a time, {least} are possible")
    return found


def check(case: Case, facts: list[dict], held: bool, tally) -> None:
    version, figures = compiled_figures.load()
    held &= version == triton.__version__
    found = wrong(case, facts, figures)
    notes = [] if held else [f"figures are held of Triton {version}, here is {triton.__version__}: not compared"]
    spilling = sum(one["spilled_bytes"] > 0 for one in facts if TARGETS[case.target].is_nvidia)
    for one in facts if held else ():
        name = f"{case.id} {one['kernel']}"
        assert name in figures or case.text, f"no figures are held of {name}: {RENEW} {case.id}"
        if name in figures:
            found += [f"{one['kernel']}: {text}" for text in compiled_figures.worse(figures[name], one)]
            notes += [f"better than held: {RENEW} {case.id}"] * compiled_figures.better(figures[name], one)
    said = "\n".join([case.id, *found, "", case.text, f"where this is what it should be: {RENEW} {case.id}"])
    assert not found, said
    values = {"target": case.target, "input": case.dtype, "tile": case.tile}
    values |= {} if case.text else {"shipped": case.spec}
    tally("compile", cells=len(facts), values=values, wanted=WANTED, notes=notes, of_these={SPILLING: spilling})


SPILLING = "of them spill registers, as compiled_figures.json says"
RENEW = "python tests/compiled_figures.py renew"


@pytest.mark.parametrize("case", default_cases(), ids=lambda case: case.id)
def test_kernels(compiler, case, tally):
    check(case, compiler.facts(**case.request), True, tally)


# Faults that Triton's interpreter rounds away, or that only a GPU has: what is replaced in a module, and what is said.
FAULTS = {
    "a division": (r"tl\.div_rn\(([\d.]+), ", r"(\1 / ", "_store_kernel: not correctly rounded: div.full.f32"),
    "a root": (r"tl\.sqrt_rn\(", "tl.sqrt(", "not correctly rounded: sqrt.approx"),
    "a product of ten bits": (
        r"if x\.dtype == tl\.float32:\n        signs",
        "if x.dtype != tl.float32:\n        signs",
        ".tf32.",
    ),
    "fusion": ("enable_fp_fusion=False", "enable_fp_fusion=True", "may become one operation"),
    "a narrow access": (r"ALIGNMENT % [24] == 0", "ALIGNMENT % 64 == 0", "stores 1 bytes of key.codes at a time"),
    "an access that is too wide": (r"\bALIGNMENT % 4 == 0", "ALIGNMENT % 2 == 0", "stores 4 bytes of key.codes"),
    "spills": (r"rows, warps = .*", "rows, warps = 64, 1", "are spilled"),
    "shared memory": (r"rows, warps = .*", "rows, warps = 512, 8", "bytes of shared memory"),
    "a barrier": (
        r"( +)(accumulator \*= )",
        r"\1tl.debug_barrier()\n\1\2",
        "barriers and accesses of shared memory in its loop",
    ),
}
# The spec whose module is made faulty, where it is another: this one has tiles of a matrix in shared memory.
FAULTY = {
    "shared memory": "{tqgen: 1, name: beside, head_dim: 128, block: aos, key: {codec: fp8}, "
    "value: {codec: mse, bits: 4, rotation: matrix}}"
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_seen(compiler, fault, tally):
    old, new, said = FAULTS[fault]
    text = FAULTY.get(fault, manifest.locate("mse4_v4_aos").read_text(encoding="utf-8"))
    right = emit.draft(lower(resolve(parse_spec(text)), "faulty.yaml"))
    source = re.sub(old, new, right)
    assert source != right
    launched = DECODE if fault == "a barrier" else STORE
    case = Case("faulty", "sm_90", "fp32", "few", "rotated", (launched,), text=text)
    request = {name: value for name, value in case.request.items() if name != "text"}
    found = wrong(case, compiler.facts(source=source, **request), {})
    assert any(said in text for text in found), found
    tally("mutants", cells=1, of_these={"faults of the compile tier are seen, too": 1})


def test_programs_that_keep_a_matrix_and_do_not_fit_are_seen():
    case = Case("none_vmse3", "sm_90", "bf16", "many", "model", (STORE,))
    fits = {"kernel": "_store_kernel", "registers": 255, "shared_bytes": 113 * 1024}
    assert sharing_of(case, fits) == []
    assert sharing_of(case, {**fits, "registers": 257}) == ["_store_kernel: 1 programs fit, 2 are launched"]
    assert sharing_of(case, {**fits, "shared_bytes": 114 * 1024}) == ["_store_kernel: 1 programs fit, 2 are launched"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", exhaustive_cases(), ids=lambda case: case.id)
def test_the_rest(compiler, case, tally):
    check(case, compiler.facts(**case.request), False, tally)


def test_thinned_specs_still_have_every_value():
    """Counted from the rows: of the values of each axis, none is left out by compiling a fourth of them."""
    rows = others().rows
    for axis in rows[0]:
        assert {rows[number][axis] for number in thinned()} == {row[axis] for row in rows}, axis

"""A generated module against the numpy reference, cell by cell.

The module is run as it would be in an engine, from a file of its own. Bytes are compared with what `tqgen.reference`
says they may be; what is unpacked is compared with what the reference reads from the very bytes that the kernels
stored, so that one mistake is reported once. Needs torch and triton, and none of the command line.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from tqgen import reference
from tqgen.codecs.base import Span
from tqgen.layout import Layout
from tqgen.reference import compare, transform
from tqgen.reference.compare import Comparison, Mismatch
from tqgen.verify import attention, raised, sequences
from tqgen.verify.cells import Cell, matrix
from tqgen.verify.patterns import vectors
from tqgen.verify.trial import (
    DTYPES,
    FEW_TOKENS,
    GUARD,
    GuardedCache,
    Inputs,
    device_arguments,
    input_tensor,
    inputs_of,
    misfit,
    output_buffer,
    seed_of,
    sentinels_kept,
)

LAUNCHERS = ("store", "unpack", "rotate_attention_output", "decode_attention")
# Helpers of a launcher, which its cells run along.
ALONG = ("allocate", "decode_num_splits", "decode_workspace_size")
GROUP = 2  # query heads for each KV head of the attention outputs that are rotated back
MORE_ROTATED = 8  # outputs than tokens: a last tile that holds a few rows


@dataclass(frozen=True)
class Outcome:
    """What came of one launcher in one cell: a comparison, or why there is none."""

    cell: Cell
    launcher: str
    comparison: Comparison | None = None
    refused: str = ""  # the launcher refused what does not fit, as it should
    error: str = ""  # it raised, or did not refuse
    not_run: str = ""

    @property
    def ok(self) -> bool:
        if self.error or self.comparison is None:
            return not self.error
        nothing_to_compare = self.cell.places == "none" and not self.comparison.num_mismatches
        return self.comparison.ok or nothing_to_compare


def device() -> torch.device:
    """Where kernels run: the GPU, or the CPU where Triton interprets them."""
    from tqgen.verify import interpreter

    return torch.device("cpu" if interpreter.is_chosen() else "cuda")


def describe_device(where: torch.device) -> str:
    """The machine, in words that claim no GPU where there is none."""
    import triton

    versions = f"triton {triton.__version__}, torch {torch.__version__}, numpy {np.__version__}"
    if where.type == "cpu":
        return f"Triton's interpreter on the CPU, no GPU ({versions})"
    return f"{torch.cuda.get_device_name(where)} ({versions})"


def load_module(name: str, source: str) -> ModuleType:
    """The module of a generated text, imported from a file of its own in a temporary folder."""
    folder = tempfile.TemporaryDirectory(prefix="tqgen-")
    path = Path(folder.name) / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"tqgen_verified_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # triton finds the source of a kernel through its module
    spec.loader.exec_module(module)
    module.__dict__["_folder"] = folder  # lives as long as the module
    return module


def not_verified(module: ModuleType) -> list[str]:
    """Public launchers of a module that no cell runs."""
    functions = [name for name, value in vars(module).items() if inspect.isfunction(value) and name[0] != "_"]
    here = [name for name in functions if getattr(module, name).__module__ == module.__name__]
    return [name for name in here if name not in {*LAUNCHERS, *ALONG}]


def cells_of(layout: Layout) -> tuple[Cell, ...]:
    """The matrix for this layout."""
    return matrix(lambda block_size, num_kv_heads: misfit(layout, block_size, num_kv_heads) is None)


def verify_module(
    layout: Layout,
    module: ModuleType,
    cells: Iterable[Cell],
    where: torch.device,
    large_rows: int,
    launchers: Collection[str] = LAUNCHERS,
) -> Iterator[list[Outcome]]:
    """Run every cell; yields the outcomes of each. `large_rows` as `ModulePlan.store_large_rows`.

    With `launchers` those alone, and the store that fills the cache for them.
    """
    for cell in cells:
        yield _cell(layout, module, cell, where, large_rows, launchers)


def _cell(
    layout: Layout, module: ModuleType, cell: Cell, where: torch.device, large_rows: int, launchers: Collection[str]
) -> list[Outcome]:
    reason = misfit(layout, cell.block_size, cell.num_kv_heads)
    if reason:
        return [_refusal(module, cell, where, reason)]
    try:
        inputs = inputs_of(layout, cell, large_rows)
        cache = GuardedCache(layout, cell, inputs.num_blocks, where)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if cell.places != "far":
            raise
        return [Outcome(cell, "store", not_run=f"no memory for blocks this far apart ({raised.first_line(error)})")]
    outcomes = []
    if "store" in launchers or "unpack" in launchers:
        outcomes.append(_guarded(module, cell, "store", lambda: _store(layout, module, cell, inputs, cache)))
    if "unpack" in launchers and not outcomes[0].error:
        outcomes.append(_guarded(module, cell, "unpack", lambda: _unpack(layout, module, cell, inputs, cache)))
        if cell.places in sequences.PLACES:
            read = lambda: sequences.unpack(layout, module, cell, cache, inputs.run_time)  # noqa: E731
            outcomes.append(_guarded(module, cell, "unpack", read))
    if "rotate_attention_output" in launchers and hasattr(module, "rotate_attention_output") and cell.places != "many":
        work = lambda: _rotate(layout, module, cell, inputs, where)  # noqa: E731
        outcomes.append(_guarded(module, cell, "rotate_attention_output", work))
    if "decode_attention" in launchers and hasattr(module, "decode_attention") and attention.is_for(cell):
        outcomes.append(
            _guarded(module, cell, "decode_attention", lambda: attention.attend(layout, module, cell, where))
        )
    return outcomes


def _guarded(module: ModuleType, cell: Cell, launcher: str, work: Callable[[], Comparison]) -> Outcome:
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the interpreter computes with NaN and Inf in numpy
            return Outcome(cell, launcher, work())
    except Exception as error:  # whatever a wrong kernel raises is a finding about it
        return Outcome(cell, launcher, error=raised.described(error, module))


def _refusal(module: ModuleType, cell: Cell, where: torch.device, reason: str) -> Outcome:
    try:
        module.allocate(3, cell.block_size, cell.num_kv_heads, device=where)
    except ValueError:
        return Outcome(cell, "allocate", refused=reason)
    return Outcome(cell, "allocate", error=f"a block that does not fit was not refused: {reason}")


def _store(layout: Layout, module: ModuleType, cell: Cell, inputs: Inputs, cache: GuardedCache) -> Comparison:
    where = cache.tensor.device
    tensors = {side: input_tensor(array, cell, where) for side, array in inputs.vectors.items()}
    key, value = tensors.get("key"), tensors.get("value")
    slots = torch.from_numpy(inputs.slots).to(where)
    arguments = device_arguments(inputs.run_time, where)
    if cell.places == "single":
        for n in range(len(slots)):
            one = slice(n, n + 1)
            module.store(_rows(key, one), _rows(value, one), cache.tensor, slots[one], **arguments)
    else:
        module.store(key, value, cache.tensor, slots, **arguments)
    after = cache.blocks()
    result = compare.compare_cache(layout, np.full_like(after, GUARD), after, _parts(layout, inputs), inputs.slots)
    outside = cache.touched_outside()
    result.add(
        len(outside), [Mismatch("a byte outside of every block", f"{GUARD:#04x}", "another", byte=at) for at in outside]
    )
    return result


def _parts(layout: Layout, inputs: Inputs) -> dict[str, Mapping[str, Span]]:
    """What the reference stores for the inputs, per side and part."""
    expected: dict[str, Mapping[str, Span]] = {}
    for side in layout.sides:
        array = inputs.vectors[side.name]
        if array.size:
            rotation, center = (inputs.run_time.get(f"{side.name}_{name}") for name in ("rotation", "center"))
            expected[side.name] = reference.encode(layout, side.name, array, rotation=rotation, center=center)
        else:
            expected[side.name] = {part.name: _nothing((*array.shape[:2], part.count)) for part in side.parts}
    return expected


def _nothing(shape: tuple[int, ...]) -> Span:
    return Span(*(np.zeros(shape) for _ in range(3)))


def _rows(tensor: torch.Tensor | None, rows: slice) -> torch.Tensor | None:
    return None if tensor is None else tensor[rows]


def _unpack(layout: Layout, module: ModuleType, cell: Cell, inputs: Inputs, cache: GuardedCache) -> Comparison:
    where = cache.tensor.device
    # of many tokens those at both ends: the rest says nothing new about unpacking
    wanted = np.unique(np.concatenate([inputs.slots[:FEW_TOKENS], inputs.slots[-FEW_TOKENS:]]))
    wanted = wanted if cell.places == "many" else inputs.slots
    slots = torch.from_numpy(wanted).to(where)
    arguments = device_arguments(inputs.run_time, where)
    accepted = inspect.signature(module.unpack).parameters
    arguments = {name: value for name, value in arguments.items() if name in accepted}
    options: dict[str, Any] = {"space": cell.space, **arguments}
    if cell.inputs != "dense":
        shapes = {side.name: (len(slots), cell.num_kv_heads, side.head_dim) for side in layout.sides}
        buffers = {side: output_buffer(shape, cell, where) for side, shape in shapes.items()}
        options["out"] = (buffers.get("key"), buffers.get("value"))
    before = cache.blocks()
    returned = module.unpack(cache.tensor, slots, dtype=DTYPES[cell.out_dtype], **options)
    got = {name: tensor for name, tensor in zip(("key", "value"), returned, strict=True) if tensor is not None}
    if set(got) != set(inputs.vectors):
        raise ValueError(f"unpack returned {sorted(got)}, and the layout stores {sorted(inputs.vectors)}")
    expected: dict[str, Span] = {side: _nothing(array.shape) for side, array in inputs.vectors.items()}
    if len(wanted):
        expected = reference.unpack(layout, before, wanted, space=cell.space, dtype=cell.out_dtype, **inputs.run_time)
    result = compare.compare_unpacked(expected, {side: _numbers(tensor) for side, tensor in got.items()}, wanted)
    signed = [side for side, tensor in got.items() if torch.signbit(tensor[slots < 0]).any()]
    result.add(len(signed), [Mismatch(f"a zero of the {side} of a negative slot", "0", "-0") for side in signed])
    if cell.inputs != "dense":
        spilt = [side for side, buffer in buffers.items() if not sentinels_kept(buffer, cell)]
        result.add(len(spilt), [Mismatch(f"output around the {side} vectors", f"{123}", "another") for side in spilt])
    changed = np.flatnonzero((before != cache.blocks()).reshape(-1))
    result.add(len(changed), [Mismatch("a byte of the cache", "unchanged", "changed", byte=int(at)) for at in changed])
    result.bytes += before.size
    return result


def _rotate(layout: Layout, module: ModuleType, cell: Cell, inputs: Inputs, where: torch.device) -> Comparison:
    """The inverse rotation of attention outputs: the reference's way back to model space, of numbers known exactly."""
    side = layout.value
    shape = (len(inputs.slots) + MORE_ROTATED, GROUP * cell.num_kv_heads, side.head_dim)
    output = vectors("normal", shape, side, cell.out_dtype, seed_of(cell))
    arguments = {name: array for name, array in inputs.run_time.items() if name.startswith("value_")}
    given = torch.from_numpy(output).to(DTYPES[cell.out_dtype]).to(where)
    if cell.inputs == "sliced":  # rows that are further apart than they are long
        given = torch.nn.functional.pad(given, (1, 2), value=float("nan"))[..., 1:-2]
    elif cell.inputs == "transposed":  # elements that are no neighbours
        given = given.transpose(0, 2).contiguous().transpose(0, 2)
    got = module.rotate_attention_output(given, **device_arguments(arguments, where))
    if got.dtype != given.dtype or got.shape != given.shape:
        raise ValueError(f"the result is {got.dtype} {list(got.shape)}, the argument {given.dtype} {list(given.shape)}")
    center = arguments.get("value_center")
    expected = transform.backward(
        side,
        Span(output, output, output),
        cell.out_dtype,
        rotation=arguments.get("value_rotation"),
        center=None if center is None else np.repeat(center, GROUP, axis=0),
    )
    return compare.compare_unpacked({"attention output": expected}, {"attention output": _numbers(got)})


def _numbers(tensor: torch.Tensor) -> np.ndarray:
    return tensor.cpu().to(torch.float64).numpy()

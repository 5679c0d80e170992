"""From a spec to its layout: all parameters filled in, all rules checked, every offset computed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tqgen.codecs import CODECS
from tqgen.codecs.base import Problem, SideParameters
from tqgen.diagnostics import Diagnostic, Related, SpecError
from tqgen.layout import Field, Layout, Region, Rotation, Side
from tqgen.layout.checks import HADAMARD, block_problems, nothing_stored, side_problems
from tqgen.layout.identity import layout_id
from tqgen.layout.walk import asked_alignment, walk
from tqgen.numerics.rotations import pinned_signs
from tqgen.spec import MisnamedSpec, Spec, load_spec
from tqgen.spec.expand import SIDES, expand, stored_parts
from tqgen.spec.models import Block


def load(path: str | Path, overrides: Mapping[str, str] | None = None) -> tuple[Spec, Layout]:
    """The spec at `path` and its layout; errors as `load_spec` and `resolve`.

    That a file is not called as its spec hides nothing that is wrong with the layout.
    """
    try:
        spec = load_spec(path, overrides)
    except MisnamedSpec as misnamed:
        try:
            resolve(misnamed.spec)
        except SpecError as error:
            raise SpecError([*misnamed.diagnostics, *error.diagnostics]) from None
        raise
    return spec, resolve(spec)


def resolve(spec: Spec) -> Layout:
    """The layout that a spec describes; SpecError with everything that is wrong with it."""
    problems = [problem for side in SIDES for problem in side_problems(spec, side)]
    parts = stored_parts(spec)
    if not parts:
        raise _error(spec, [*problems, nothing_stored(spec)])
    block = expand(spec).block
    assert isinstance(block, Block)  # what `expand` is for
    problems += block_problems(block, parts, {side: getattr(spec, side).codec for side in SIDES})
    if problems:
        raise _error(spec, problems)

    regions = walk(block, parts)
    needed = needed_slot_bytes(regions)
    if block.slot_bytes is not None and block.slot_bytes < needed:
        raise _error(spec, [_slot_too_small(block.slot_bytes, needed)])
    slot_bytes = needed if block.slot_bytes is None else block.slot_bytes
    key, value = (_side(spec, side) for side in SIDES)
    fields = [entry for region in regions for entry in region.entries if isinstance(entry, Field)]
    return Layout(
        name=spec.name,
        doc=spec.doc,
        key=key,
        value=value,
        regions=regions,
        slot_bytes=slot_bytes,
        alignment=asked_alignment(block),
        layout_id=layout_id((key, value), fields, slot_bytes),
    )


def needed_slot_bytes(regions: tuple[Region, ...]) -> int:
    """Bytes for each token and head of fields, reserved bytes and the padding between them that every launch has.

    Every region holds all tokens and heads, so without the rounding that depends on a launch the end of the last one
    is a multiple of both numbers.
    """
    end = regions[-1].base + regions[-1].size
    return end.without_rounding().evaluate(block_size=1, num_kv_heads=1)


def _side(spec: Spec, name: str) -> Side:
    parameters: SideParameters = getattr(spec, name)
    head_dim = parameters.head_dim or spec.head_dim
    codec = CODECS[parameters.codec]
    return Side(name, codec, parameters, head_dim, _rotation(parameters, head_dim), codec.parts(parameters, head_dim))


def _rotation(parameters: SideParameters, head_dim: int) -> Rotation:
    kind = parameters.rotation
    size = (parameters.rotation_block or head_dim) if kind in HADAMARD else head_dim
    return Rotation(kind, size, pinned_signs(head_dim) if kind == "signed_hadamard" else ())


def _slot_too_small(slot_bytes: int, needed: int) -> Problem:
    return Problem(
        code="TQ3107",
        message=f"a slot of {slot_bytes} bytes is too small: the fields and their alignment need {needed}",
        path=("block", "slot_bytes"),
        help=f"write {needed} or more, or remove the line",
    )


def _error(spec: Spec, problems: Iterable[Problem]) -> SpecError:
    return SpecError(_diagnostic(spec, problem) for problem in problems)


def _diagnostic(spec: Spec, problem: Problem) -> Diagnostic:
    related: tuple[Related, ...] = ()
    if problem.related:
        path, label = problem.related
        related = (Related(spec.place(path), label),)
    place = spec.place(problem.path, problem.on)
    return Diagnostic(problem.code, problem.message, place, problem.label, problem.help, related)

"""Rules that a spec must meet and that its models cannot express, checked before any offset is computed.

Each rule yields `Problem`s with paths from the top of the spec.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tqgen.codecs import CODECS
from tqgen.codecs.base import Problem, SideParameters
from tqgen.diagnostics import did_you_mean, listed
from tqgen.layout import Part
from tqgen.spec.document import NodePath
from tqgen.spec.expand import SIDES
from tqgen.spec.models import AlignedAxis, Block, Entry, Region, Reserve, Spec

HADAMARD = ("hadamard", "signed_hadamard")
AXES = ("token", "head", "field")
FULL_TILE = 16  # vectors of this many elements, and of larger powers of two, fill a tile
PLURAL = {"key": "keys", "value": "values"}


def side_problems(spec: Spec, side: str) -> Iterator[Problem]:
    """What is wrong with the keys or the values by themselves."""
    parameters: SideParameters = getattr(spec, side)
    codec = CODECS[parameters.codec]
    head_dim = parameters.head_dim or spec.head_dim
    for problem in codec.problems(parameters, head_dim):
        related = ((side, *problem.related[0]), problem.related[1]) if problem.related else None
        yield replace(problem, path=(side, *problem.path), related=related)
    parts = codec.parts(parameters, head_dim)
    if parts:
        yield from _rotation_problems(parameters, side, head_dim, _head_dim_path(parameters, side))
        yield from _packing_problems(parameters, side, head_dim, parts)
    else:
        yield from _unused_keys(parameters, side)


def _head_dim_path(parameters: SideParameters, side: str) -> NodePath:
    return ("head_dim",) if parameters.head_dim is None else (side, "head_dim")


def _unused_keys(parameters: SideParameters, side: str) -> Iterator[Problem]:
    for key in sorted(parameters.model_fields_set - {"codec", "head_dim"}):
        yield Problem(
            code="TQ3002",
            message=f"`{side}.{key}` has no effect, because {PLURAL[side]} are not stored",
            path=(side, key),
            on="key",
            help="remove it",
            related=((side, "codec"), "nothing is stored"),
        )


def _rotation_problems(parameters: SideParameters, side: str, head_dim: int, given: NodePath) -> Iterator[Problem]:
    """A Sylvester Hadamard matrix has a power of two of rows; other vectors are rotated in blocks of one."""
    block = parameters.rotation_block
    if parameters.rotation not in HADAMARD:
        if block is not None:
            yield Problem(
                code="TQ3002",
                message=f"`{side}.rotation_block` has no effect with `rotation: {parameters.rotation}`",
                path=(side, "rotation_block"),
                on="key",
                help="remove it, or choose `rotation: hadamard`",
            )
        return
    largest = head_dim & -head_dim
    in_blocks = ""
    if largest == head_dim:
        in_blocks = "leave it out to rotate the whole vector; "
    elif largest > 1:
        in_blocks = f"`rotation_block: {largest}` rotates {head_dim // largest} blocks of {largest}, and "
    way_out = f"{in_blocks}`rotation: matrix` takes any matrix at run time"
    here = (given, f"head_dim is {head_dim}")
    if block is None and largest != head_dim:
        yield Problem(
            code="TQ3301",
            message=f"there is no Hadamard matrix for head_dim {head_dim}, which is not a power of two",
            path=(side, "rotation"),
            help=way_out,
            related=here,
        )
    elif block is not None and block & (block - 1):
        yield Problem(
            code="TQ3302",
            message=f"a Hadamard matrix has a power of two of rows, not {block}",
            path=(side, "rotation_block"),
            help=way_out,
            related=here,
        )
    elif block is not None and head_dim % block:
        yield Problem(
            code="TQ3303",
            message=f"blocks of {block} do not divide head_dim {head_dim}",
            path=(side, "rotation_block"),
            help=way_out,
            related=here,
        )


def _packing_problems(
    parameters: SideParameters, side: str, head_dim: int, parts: tuple[Part, ...]
) -> Iterator[Problem]:
    if parameters.packing != "halves":
        return
    bits = next(part.bits for part in parts if part.name == "codes")
    unit = 8 // math.gcd(8, bits)  # codes that fill whole bytes
    if unit == 1:
        yield Problem(
            code="TQ3002",
            message=f"`packing: halves` has no effect on codes of {bits} bits, which fill whole bytes one by one",
            path=(side, "packing"),
            help="remove it",
        )
    elif head_dim % unit:
        yield Problem(
            code="TQ3401",
            message=f"`packing: halves` of {bits}-bit codes needs a head_dim that {unit} divides, but it is {head_dim}",
            path=(side, "packing"),
            help="use `packing: linear`",
        )
    else:
        yield from _straddling_groups(parameters, side, head_dim, unit)


def _straddling_groups(parameters: SideParameters, side: str, head_dim: int, parts: int) -> Iterator[Problem]:
    """A group that lies in several of the parts that are packed together, of vectors that do not fill a tile.

    A vector that fills its tile is seen as groups and as parts by turns. Any other is padded part by part, and a group
    that straddles parts would not be one piece.
    """
    group, part = getattr(parameters, "group", None), head_dim // parts
    if head_dim >= FULL_TILE and head_dim & (head_dim - 1) == 0:
        return
    if group is None or group == head_dim or head_dim % group or part % group == 0:
        return
    fitting = [n for n in range(2, part + 1) if part % n == 0 and (n % 8 == 0 or n & (n - 1) == 0)]
    choice = f", or a group of {listed(list(map(str, fitting)), 'or')}" if fitting else ""
    yield Problem(
        code="TQ3402",
        message=f"groups of {group} straddle the {parts} parts of {part} elements that `packing: halves` interleaves",
        path=(side, "packing"),
        help=f"use `packing: linear`{choice}",
        related=((side, "group"), f"{part} is not a multiple of {group}"),
    )


def nothing_stored(spec: Spec) -> Problem:
    """The problem of a spec in which neither side stores anything."""
    codec = spec.value.codec
    return Problem(
        code="TQ3001",
        message="neither keys nor values are stored",
        path=("value", "codec"),
        help="choose another codec for one of them",
        related=(
            (("key", "codec"), f"`codec: {spec.key.codec}` stores nothing either")
            if codec != spec.key.codec
            else (("key", "codec"), "nor here")
        ),
    )


def block_problems(block: Block, parts: dict[str, Part], codecs: dict[str, str]) -> Iterator[Problem]:
    """What is wrong with the regions of a block, given the parts that must stand in them and the codec of each side."""
    names: dict[str, int] = {}
    for index, region in enumerate(block.regions):
        path: NodePath = ("block", "regions", index)
        first = names.setdefault(region.name.lower(), index)
        if first != index:
            yield Problem(
                code="TQ3106",
                message=f"a second region is called `{region.name}`",
                path=(*path, "name"),
                help="names of regions differ, and not in case alone",
                related=(("block", "regions", first, "name"), "the first one"),
            )
        yield from _order_problems(region, (*path, "order"))
    yield from _placement_problems(block, parts, codecs)


def _order_problems(region: Region, path: NodePath) -> Iterator[Problem]:
    axes: list[str] = [item.axis if isinstance(item, AlignedAxis) else item for item in region.order]
    for index, axis in enumerate(axes):
        if axis in axes[:index]:
            yield Problem(
                code="TQ3105",
                message=f"`{axis}` stands twice in the order of region `{region.name}`",
                path=(*path, index),
                help="remove one of the two",
                related=((*path, axes.index(axis)), "first here"),
            )
    for axis in AXES:
        if axis not in axes:
            yield Problem(
                code="TQ3104",
                message=f"`{axis}` is missing in the order of region `{region.name}`",
                path=path,
                help=f"an order holds {listed(AXES, 'and')}, the outermost first",
            )


def _placement_problems(block: Block, parts: dict[str, Part], codecs: dict[str, str]) -> Iterator[Problem]:
    """Every stored part stands in exactly one place, and nothing else does."""
    placed: dict[str, NodePath] = {}
    misspelt: set[str] = set()
    for index, region in enumerate(block.regions):
        for position, item in enumerate(region.fields):
            if isinstance(item, Reserve):
                continue
            path: NodePath = ("block", "regions", index, "fields", position)
            name, path = (item.field, (*path, "field")) if isinstance(item, Entry) else (item, path)
            if name not in parts:
                close = did_you_mean(name, parts)
                misspelt.update([close] if close else [part for part in name.split() if part in parts])
                yield _unknown_part(name, path, parts, codecs)
            elif name in placed:
                yield Problem(
                    code="TQ3102",
                    message=f"`{name}` is placed twice",
                    path=path,
                    help="remove one of the two",
                    related=(placed[name], "first placed here"),
                )
            else:
                placed[name] = path
    for name in parts:
        if name not in placed and name not in misspelt:
            side = name.partition(".")[0]
            yield Problem(
                code="TQ3101",
                message=f"`{name}` is not placed in any region",
                path=("block", "regions"),
                on="key",
                help=f"add `{name}` to the `fields` of a region",
                related=((side, "codec"), f"codec `{codecs[side]}` stores it"),
            )


def _unknown_part(name: str, path: NodePath, parts: dict[str, Part], codecs: dict[str, str]) -> Problem:
    side = name.partition(".")[0]
    own = [part for part in parts if part.startswith(f"{side}.")]
    key = name.partition(".")[2]
    parameters = CODECS[codecs[side]].Parameters.model_fields if side in codecs else {}
    if key in parameters and parameters[key].default is None:
        help = f"codec `{codecs[side]}` stores it where `{side}` says so, as in `{key}: {{dtype: fp16}}`"
    elif close := did_you_mean(name, parts):
        help = f"did you mean `{close}`?"
    elif len(name.split()) > 1:
        help = "separate items by `,`"
    elif own:
        help = f"codec `{codecs[side]}` stores {listed(own, 'and')}"
    elif side in SIDES:
        help = f"{PLURAL[side]} are not stored"
    else:
        help = f"the parts of this spec are {listed(list(parts), 'and')}"
    return Problem(code="TQ3103", message=f"there is no part `{name}` to place", path=path, help=help)

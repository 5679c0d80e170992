"""The shorthands `block: aos` and `block: soa`, written out as regions."""

from __future__ import annotations

from tqgen.codecs import CODECS
from tqgen.layout import Part
from tqgen.spec.models import AlignedAxis, Block, Region, Spec

SIDES = ("key", "value")


def stored_parts(spec: Spec) -> dict[str, Part]:
    """What both sides store for one token and head, by name: keys first, then values, in the order of their codecs."""
    parts = {}
    for side in SIDES:
        parameters = getattr(spec, side)
        head_dim = parameters.head_dim or spec.head_dim
        for part in CODECS[parameters.codec].parts(parameters, head_dim):
            parts[f"{side}.{part.name}"] = part
    return parts


def expand(spec: Spec) -> Spec:
    """The spec with its block as regions. One that has regions, or stores nothing, is returned as it is."""
    parts = stored_parts(spec)
    if isinstance(spec.block, Block) or not parts:
        return spec
    block = _array_of_structs(parts) if spec.block == "aos" else _struct_of_arrays(parts)
    return spec.model_copy(update={"block": block})


def _array_of_structs(parts: dict[str, Part]) -> Block:
    """One slot per token and head that holds everything; slots start at even offsets."""
    head = AlignedAxis(axis="head", align=2)
    return Block(regions=(Region(name="slot", order=("token", head, "field"), fields=tuple(parts)),))


def _struct_of_arrays(parts: dict[str, Part]) -> Block:
    """Codes in slots at the block's start, the numbers that belong to them in strips along the tokens at its end.

    A slot has an even number of bytes, so that the strips of every block can be even.
    """
    codes = tuple(name for name, part in parts.items() if part.dtype is None)
    others = tuple(name for name, part in parts.items() if part.dtype is not None)
    regions = [Region(name="data", order=("token", "head", "field"), fields=codes)]
    if others:
        regions.append(Region(name="meta", align=2, order=("head", "field", "token"), fields=others))
    used = sum(part.num_bytes for part in parts.values())
    return Block(regions=tuple(regions), slot_bytes=used + 1 if used % 2 else None)

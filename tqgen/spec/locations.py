"""Which model and which of its fields a location of pydantic leads to."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tqgen.codecs import CODECS
from tqgen.spec.document import NodePath
from tqgen.spec.models import TAG, AlignedAxis, Block, Entry, Reserve, Spec

_TAGGED: dict[str, type[BaseModel]] = {
    **{TAG + name: codec.Parameters for name, codec in CODECS.items()},
    TAG + "aligned": AlignedAxis,
    TAG + "entry": Entry,
    TAG + "reserve": Reserve,
    TAG + "block": Block,
}


def is_tag(step: str | int) -> bool:
    """Whether a step is the tag of a union, which is no key of a spec."""
    return isinstance(step, str) and step.startswith(TAG)


def model_and_field(location: NodePath) -> tuple[type[BaseModel] | None, FieldInfo | None]:
    """The model that a location leads into, and the field of it that the location ends in."""
    model: type[BaseModel] | None = Spec
    owner: type[BaseModel] | None = model
    info: FieldInfo | None = None
    for step in location:
        if isinstance(step, int):
            continue
        if is_tag(step) and step in _TAGGED:
            model, owner, info = _TAGGED[step], _TAGGED[step], None
        elif model is not None:
            owner, info = model, model.model_fields.get(step)
            model = model_in(info.annotation) if info else None
    return owner, info


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model in `Stored | None` or `tuple[Region, ...]`; None where there are several, told apart by tags."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, BaseModel) else None
    found = [model for part in get_args(annotation) if (model := model_in(part))]
    return found[0] if len(found) == 1 else None


def choices_of(info: FieldInfo | None) -> tuple[Any, ...]:
    """The literals that a field takes; none where it takes others, too."""
    annotation = info.annotation if info else None
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    inner = [part for part in get_args(annotation) if get_origin(part) is Literal]
    return get_args(inner[0]) if inner else ()

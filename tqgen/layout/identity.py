"""The identity of a layout: a digest of all that decides a cache's bytes and the numbers that they stand for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from tqgen import codebooks
from tqgen.layout import Field, Side

DIGITS = 16  # hexadecimal; 64 bits


def layout_id(sides: Iterable[Side], fields: Iterable[Field], slot_bytes: int) -> str:
    """16 hexadecimal digits. Equal ids mean interchangeable caches.

    The name and the text of a spec do not count, nor do names of regions, reserved bytes and alignment: of those,
    only the addresses that follow from them.
    """
    text = json.dumps(_exactly(facts(sides, fields, slot_bytes)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def facts(sides: Iterable[Side], fields: Iterable[Field], slot_bytes: int) -> dict[str, Any]:
    """All that the id is a digest of, as plain data."""
    return {
        "slot_bytes": slot_bytes,
        "sides": [side_facts(side) for side in sides],
        "fields": [_field(field) for field in sorted(fields, key=lambda field: field.name)],
    }


def _field(field: Field) -> dict[str, Any]:
    part = field.part
    return {
        "name": field.name,
        "count": part.count,
        "bits": part.bits,
        "dtype": part.dtype,
        "base": str(field.base),
        "token_stride": str(field.token_stride),
        "head_stride": str(field.head_stride),
    }


def side_facts(side: Side) -> dict[str, Any]:
    """What an id holds of one side; only its codec where it is not stored."""
    if not side.is_stored:
        return {"side": side.name, "codec": side.parameters.codec}
    parameters = _plain(side.parameters)
    for key in ("head_dim", "rotation", "rotation_block"):  # as resolved, below
        parameters.pop(key, None)
    if parameters.get("group", 0) is None:
        parameters["group"] = side.head_dim
    facts = {
        "side": side.name,
        "head_dim": side.head_dim,
        "rotation": [side.rotation.kind, side.rotation.size, list(side.rotation.signs)],
        "parameters": parameters,
    }
    name, bits = parameters.get("codebook"), parameters.get("bits")
    if name is not None and bits is not None:
        facts["levels"] = list(codebooks.load(name, bits).levels)
        del parameters["codebook"]
    return facts


def _plain(value: Any) -> Any:
    """Parameters as JSON data."""
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    return value


def _exactly(data: Any) -> Any:
    """The data with floats in hexadecimal, which no printing rounds."""
    if isinstance(data, dict):
        return {key: _exactly(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_exactly(value) for value in data]
    return data.hex() if isinstance(data, float) else data

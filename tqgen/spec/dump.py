"""The canonical print of a spec: YAML that is read back to an equal spec."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

from tqgen.codecs.base import SideParameters
from tqgen.spec import scalars
from tqgen.spec.models import Spec

WIDTH = 100  # columns; a collection that is longer on one line is written in block style
_PLAIN = re.compile(r"[A-Za-z0-9_.(/][A-Za-z0-9_ .(/)+=;*-]*")  # safe without quotes, also between brackets
_PLAIN_LINE = re.compile(r"[A-Za-z0-9_.(/](?:[^\s:#]|:(?=\S)|(?<! )#| (?! |$))*")  # safe as a value in block style


def to_yaml(spec: Spec) -> str:
    """The spec as YAML: what is given in it, without comments, in the order of the spec language."""
    data = spec.model_dump(exclude_unset=True, exclude_none=True)
    lines: list[str] = []
    for key in Spec.model_fields:
        if key not in data:
            continue
        value = data[key]
        if isinstance(value, dict):
            lines += ["", f"{key}:"]
            for inner in sorted(value, key=_rank):
                lines += _entry(inner, value[inner], "  ")
        else:
            lines += ([""] if key == "block" else []) + _entry(key, value, "")
    return "\n".join(lines) + "\n"


def _rank(key: str) -> int:
    """The codec comes first, then its own parameters, then those that every codec takes."""
    common = list(SideParameters.model_fields)
    return -1 if key == "codec" else common.index(key) + 1 if key in common else 0


def _entry(key: str, value: Any, indent: str) -> list[str]:
    """`key: value`, on one line where it fits."""
    if isinstance(value, str) and len(value) > WIDTH and " ".join(value.split()) == value:
        return [f"{indent}{key}: >-", *_folded(value, f"{indent}  ")]
    if isinstance(value, str) and _PLAIN_LINE.fullmatch(value) and scalars.is_plain_text(value):
        return [f"{indent}{key}: {value}"]
    line = f"{indent}{key}: {_flow(value)}"
    if not isinstance(value, (list, tuple)) or (len(line) <= WIDTH and not _holds_regions(value)):
        return [line]
    return [f"{indent}{key}:", *(line for item in value for line in _item(item, f"{indent}  "))]


def _folded(text: str, indent: str) -> list[str]:
    """Words with single spaces between them, as the lines of a folded block."""
    wrap = textwrap.TextWrapper(
        WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return wrap.wrap(text)


def _item(value: Any, indent: str) -> list[str]:
    """`- value`, on one line where it fits."""
    line = f"{indent}- {_flow(value)}"
    if not isinstance(value, dict) or len(line) <= WIDTH:
        return [line]
    inner = [line for key, content in value.items() for line in _entry(key, content, f"{indent}  ")]
    return [f"{indent}- {inner[0].lstrip()}", *inner[1:]]


def _holds_regions(values: Any) -> bool:
    """Whether a list is one of regions: those stand one below the other."""
    return any(isinstance(value, dict) and "order" in value for value in values)


def _flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and not value.endswith(" ") and scalars.is_plain_text(value):
            return value
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(content)}" for key, content in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return repr(value)

"""A commented spec to start from: what was asked for, and every other key at its default, commented out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge
from pydantic.fields import FieldInfo

from tqgen.codecs import CODECS
from tqgen.codecs.base import SideParameters, Stored
from tqgen.spec import parse_spec
from tqgen.spec.dump import to_yaml
from tqgen.spec.expand import stored_parts
from tqgen.spec.models import VERSION, AlignedAxis, Block, Region

WIDTH = 120
COMMENTS = 24  # the column where they start
# what a side needs to be worth its bits, beyond the defaults, which choose nothing for anybody
RECOMMENDED: Mapping[str, Mapping[str, str]] = {"mse": {"rotation": "hadamard", "norm_correction": "store"}}
USUAL_BITS = 4
SHORTHANDS = ("soa", "aos")
SAMPLES = (64, 32, 16, 8, 4, 2, 1)  # of keys without a default, beside head_dim
_COMMENTED = re.compile(r"  # ([a-z_]+): (\S.*?)(?:\s+(# .*))?")
ARRANGEMENTS = {
    "soa": "codes in slots at the block's start, other numbers in strips along the tokens at its end",
    "aos": "one slot for each token and head, with everything in it",
    "head-major": "the same slots, all tokens of one head after the other",
    "planes": "each field by itself, for all heads and tokens",
}


@dataclass(frozen=True)
class Choice:
    """A codec and, where it has widths, the width; None: a usual one."""

    codec: str
    bits: int | None = None


def starter(name: str, key: Choice, value: Choice, arrangement: str, head_dim: int, modeline: str = "") -> str:
    """The text of the spec, which may still be one that cannot be built.

    `modeline` is a first line for editors. SpecError where no part can be placed, ValueError where a codec has no
    widths to choose from.
    """
    sides = {"key": _side(key, head_dim), "value": _side(value, head_dim)}
    about = " and ".join(
        f"{_words(side)} {plural}" for side, plural in zip(sides.values(), ("keys", "values"), strict=True)
    )
    lines = [modeline] if modeline else []
    lines += [
        f"# tqgen check {name}.yaml   says whether this can be built",
        f"# tqgen show {name}.yaml    prints where every byte stands",
        f"# tqgen build {name}.yaml   writes the kernels, and `tqgen verify {name}.yaml` runs them against numpy",
        f"tqgen: {VERSION}",
        f"name: {name}",
        f"doc: {about[:1].upper()}{about[1:]}.",
        f"head_dim: {head_dim}",
    ]
    for side, given in sides.items():
        lines += ["", f"{side}:", *_keys(given)]
    return "\n".join([*lines, "", *_block(name, "\n".join(lines), arrangement)]) + "\n"


def only_legal(text: str, head_dim: int, is_legal: Callable[[str], bool]) -> str:
    """The text of a spec without the commented keys that would make another one wrong; `...` become values that fit."""
    kept: list[str] = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found = _COMMENTED.fullmatch(line)
        if not found:
            kept.append(line)
            continue
        key, value, comment = found.groups()
        for choice in (head_dim, *SAMPLES) if value == "..." else (value,):
            written = f"{key}: {choice}"
            if is_legal("\n".join([*lines[:number], f"  {written}", *lines[number + 1 :]])):
                kept.append(f"{f'  # {written}':<{COMMENTS}}  {comment}" if comment else f"  # {written}")
                break
        else:
            if not comment and kept[-1].startswith("  # "):  # what the key means stood in a line of its own
                kept.pop()
    return "\n".join(kept) + "\n"


def _side(choice: Choice, head_dim: int) -> dict[str, Any]:
    """The keys of a side that are written out."""
    fields = CODECS[choice.codec].Parameters.model_fields
    given: dict[str, Any] = {"codec": choice.codec}
    for name, info in fields.items():
        if name != "codec" and info.is_required():
            given[name] = _some_value(name, info)
    if choice.bits is not None:
        if "bits" not in fields:
            raise ValueError(f"codec `{choice.codec}` has no widths to choose from")
        given["bits"] = choice.bits
    given.update(RECOMMENDED.get(choice.codec, {}))
    if given.get("rotation") == "hadamard" and head_dim & (head_dim - 1):
        block = head_dim & -head_dim
        given.update({"rotation_block": block} if block > 1 else {"rotation": "none"})
    return given


def _some_value(name: str, info: FieldInfo) -> Any:
    """A value for a key that has no default."""
    if name == "bits":
        return USUAL_BITS
    if get_origin(info.annotation) is Literal:
        return get_args(info.annotation)[0]
    if info.annotation is bool:
        return False
    return next((bound.ge for bound in info.metadata if isinstance(bound, Ge)), 1)


def _words(side: Mapping[str, Any]) -> str:
    if side["codec"] == "none":
        return "no"
    return f"{side['bits']}-bit {side['codec']}" if "bits" in side else str(side.get("dtype", side["codec"]))


def _keys(given: Mapping[str, Any]) -> list[str]:
    fields = CODECS[given["codec"]].Parameters.model_fields
    if given["codec"] == "none":
        return [_line("  codec: none", fields["codec"])]
    written = [_line(f"  {name}: {value}", fields[name]) for name, value in given.items()]
    left = [name for name in fields if name not in given and (name != "rotation_block" or given.get("rotation"))]
    left.sort(key=lambda name: name in SideParameters.model_fields)  # the codec's own come first
    return [*written, *(_line(f"  # {name}: {_default(fields[name])}", fields[name]) for name in left)]


def _default(info: FieldInfo) -> str:
    """The default as YAML; for keys without one, an example or three dots."""
    value = info.default
    if isinstance(value, Stored) or Stored in get_args(info.annotation):
        return f"{{dtype: {(value or Stored()).dtype}}}"
    if isinstance(value, bool):
        return str(value).lower()
    return "..." if value is None else str(value)


def _line(text: str, info: FieldInfo) -> str:
    """A key with what it means behind it, or above it where the line would be long."""
    choices = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
    about = info.description or ""
    if len(choices) > 1:
        about += f": {' | '.join(map(str, choices))}"
    line = f"{text:<{COMMENTS}}  # {about}"
    return line if len(line) <= WIDTH else f"  # {about}\n{text}"


def _block(name: str, sides: str, arrangement: str) -> list[str]:
    """The arrangement of what `sides`, the spec so far, stores, and how to write another one."""
    about = f"# {ARRANGEMENTS[arrangement]}"
    if arrangement in SHORTHANDS:
        (other,) = (word for word in SHORTHANDS if word != arrangement)
        print_it = f"`tqgen show {name}.yaml --stage spec` prints those that `{arrangement}` stands for"
        return [about, f"# or `{other}`, or regions of your own; {print_it}", f"block: {arrangement}"]
    spec = parse_spec(sides, f"{name}.yaml")
    parts = list(stored_parts(spec))
    if not parts:
        return [about]
    spec = spec.model_copy(update={"block": _regions(arrangement, parts)})
    order = "# the outermost axis comes first; where `field` stands decides between structs and strips"
    return [about, order, to_yaml(spec)[to_yaml(spec).index("\nblock:") :].strip()]


def _regions(arrangement: str, parts: Sequence[str]) -> Block:
    """Everything in one region; slots have an even number of bytes, so that 16-bit numbers can be at even offsets."""
    if arrangement == "planes":
        codes = [name for name in parts if name.endswith(".codes")]
        names = (*codes, *(name for name in parts if name not in codes))
        return Block(regions=(Region(name="planes", order=("field", "head", "token"), fields=names, align=2),))
    token = AlignedAxis(axis="token", align=2)
    return Block(regions=(Region(name="slots", order=("head", token, "field"), fields=tuple(parts)),))

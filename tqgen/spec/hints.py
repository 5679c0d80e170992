"""What somebody probably meant by a value that cannot stand where it does: the ways out that help lines offer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from tqgen.codecs import CODECS
from tqgen.diagnostics import did_you_mean
from tqgen.spec import scalars

# words of other tools and papers for what the spec language calls differently
SYNONYMS = {
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float": "fp32",
    "turboquant": "mse",
    "lloyd_max": "mse",
    "lloyd": "mse",
    "nf4": "mse",
    "int8": "uniform",
    "int4": "uniform",
    "affine": "uniform",
    "asymmetric": "uniform",
    "fp16": "raw",
    "bf16": "raw",
    "fp32": "raw",
    "float8": "fp8",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "rht": "signed_hadamard",
    "random_hadamard": "signed_hadamard",
    "orthogonal": "matrix",
    "k": "key",
    "v": "value",
    "version": "tqgen",
    "layout": "block",
    "clamp": "saturate",
    "nearest_even": "half_even",
    "group_size": "group",
    "wbits": "bits",
    "reserve": "reserved",
    "zero_point": "zero",
    "zeropoint": "zero",
    "offset": "zero",
    "interleaved": "aos",
    "seq": "token",
    "sequence": "token",
    "position": "token",
    "kv_head": "head",
    "name": "field",
    "part": "field",
}
NO_AXES = ("layer", "batch", "block", "page", "side")  # of a cache, which are none of a block


def strange(word: Any) -> str:
    """The first character of a word that none of the spec language has, by its code point: it may look like another."""
    if not isinstance(word, str) or not re.search("[A-Za-z0-9]", word):  # of another script as a whole: easily seen
        return ""
    odd = next((char for char in word if not char.isascii()), "")
    return code_point(odd) if odd else ""


def code_point(char: str) -> str:
    """A character that may not be seen, or not be told from others."""
    return f"U+{ord(char):04X} ({unicodedata.name(char, 'unnamed').lower()})"


CODEC = "a mapping with a `codec`"  # what a side must be
WRITTEN_OUT = ("head-major", "planes")  # arrangements of `tqgen new` that have no shorthand


def for_arrangement(found: Any) -> str:
    """For an arrangement that a spec spells out."""
    word = str(found).lower().replace("_", "-")
    return f"`tqgen new NAME --arrangement {word}` writes its regions" if word in WRITTEN_OUT else ""


def meant(word: str, choices: Iterable[str]) -> str | None:
    """The one choice that a word is a misspelling of, or another name for."""
    known = list(choices)
    synonym = SYNONYMS.get(word.lower())
    return synonym if synonym in known else did_you_mean(word, known)


def for_words(text: str, choices: Iterable[str]) -> str:
    """For several words in the place of one."""
    words = text.split()
    known = list(choices)
    return "separate items by `,`" if len(words) > 1 and all(word in known for word in words) else ""


def for_value(found: Any, wanted: str, *, is_plain: bool) -> str:
    """For a value of another kind than `wanted`, a phrase of the message; `is_plain`: it is written without quotes."""
    if (
        wanted == "a list"
        and isinstance(found, dict)
        and found
        and all(isinstance(one, dict) for one in found.values())
    ):
        return f"a list has items with a name, as `- {{name: {next(iter(found))}, ...}}`"
    if wanted == "a list":
        return "a list is written as `[first, second]`"
    if wanted == CODEC and isinstance(found, str):
        return f"write `{{codec: {found}}}`, with its other keys" if found in CODECS else ""
    if wanted.startswith("a whole number, the version"):
        return "write `tqgen: 1`"
    if "`{dtype: fp16}`" in wanted and isinstance(found, str) and meant(found, ("fp16", "bf16", "fp32")):
        return f"write `{{dtype: {meant(found, ('fp16', 'bf16', 'fp32'))}}}`"
    if wanted == "`true` or `false`" and type(found) is int and found in (0, 1):
        return f"write `{str(bool(found)).lower()}`"
    if isinstance(found, float) and found.is_integer() and wanted.startswith("a whole number"):
        return f"write `{int(found)}`"
    if not isinstance(found, str):
        return ""
    if not is_plain:
        value = scalars.resolve(found)
        fits = (bool,) if "true" in wanted else (int, float) if "number" in wanted else ()
        return "remove the quotes" if isinstance(value, fits) else ""
    number = re.match(r"([0-9]+)(?![0-9.])", found)
    return f"write `{number[1]}`" if number and wanted.startswith("a whole number") else ""

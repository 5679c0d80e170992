"""What a plain scalar of YAML 1.2 means, and the words that people write for something else.

The core schema of YAML 1.2 (section 10.3.2): null, booleans, integers (also 0o17 and 0x1f) and floats; all else is
text. YAML 1.1, which many tools still read, gives other meanings to some of the same words.
"""

from __future__ import annotations

import re

_NULL = re.compile(r"|~|null|Null|NULL")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"([-+]?)\.(inf|Inf|INF)")
_NAN = re.compile(r"\.(nan|NaN|NAN)")

_YES_NO = re.compile(r"(?i:(?P<true>y|yes|on)|(?P<false>n|no|off))")
_BASE_60 = re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?")
_UNDERSCORED = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?")
_BINARY = re.compile(r"[-+]?0b[01_]+")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")

LONGEST_INTEGER = 30  # digits; what is longer is outside every range that a spec has
HUGE: int = 10**LONGEST_INTEGER

Scalar = bool | int | float | str | None


def resolve(text: str) -> Scalar:
    """The value of a plain scalar. Integers of more than 30 digits become plus or minus 10**30."""
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    for pattern, base in ((_INTEGER, 10), (_OCTAL, 8), (_HEXADECIMAL, 16)):
        if pattern.fullmatch(text):
            if len(text) > LONGEST_INTEGER:
                return -HUGE if text.startswith("-") else HUGE
            return int(text[2:] if base != 10 else text, base)
    if _FLOAT.fullmatch(text):
        return float(text)
    if infinite := _INFINITE.fullmatch(text):
        return float(f"{infinite[1]}inf")
    if _NAN.fullmatch(text):
        return float("nan")
    return text


def has_leading_zero(text: str) -> bool:
    """Whether a plain scalar is a number that YAML 1.1 reads as octal and YAML 1.2 as decimal."""
    return _LEADING_ZERO.fullmatch(text) is not None


def meant_as_bool(text: str) -> bool | None:
    """The boolean that YAML 1.1 reads in a word which is text in YAML 1.2."""
    found = _YES_NO.fullmatch(text)
    return None if found is None else found["true"] is not None


def meant_as_number(text: str) -> int | None:
    """The integer that YAML 1.1 reads in a word which is text in YAML 1.2; None for anything else."""
    if len(text) > LONGEST_INTEGER:
        return None
    if _BASE_60.fullmatch(text) and "." not in text:
        value = 0
        for digits in text.lstrip("+-").split(":"):
            value = value * 60 + int(digits)
        return -value if text.startswith("-") else value
    if _UNDERSCORED.fullmatch(text) and "_" in text and "." not in text:
        return int(text.replace("_", ""))
    if _BINARY.fullmatch(text) and text.replace("_", "")[-1] != "b":
        return int(text.replace("_", "").replace("0b", "", 1), 2)
    return None


def is_plain_text(text: str) -> bool:
    """Whether the text, written without quotes, is read back as the same text."""
    return isinstance(resolve(text), str) and not has_leading_zero(text)

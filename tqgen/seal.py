"""The digest that a generated file carries of itself: tells a file that was edited from one that is merely old.

A generated file holds one line with `text: <digest>`, written as a comment of its format; the digest is the SHA-256 of
all other lines. Who writes the file puts `UNSEALED` where the digest goes, and `seal` fills it in at the end.
"""

from __future__ import annotations

import hashlib
import re

UNSEALED = "unsealed"
_DIGEST = f"({UNSEALED}|[0-9a-f]{{32}})"
_LINE = re.compile(rf'^# text: {_DIGEST}$|^<!-- text: {_DIGEST} -->$|^  "\$comment": "text: {_DIGEST}",$', re.MULTILINE)


def _digest(text: str) -> str:
    rest = _LINE.sub("", text, count=1)
    return hashlib.sha256(rest.encode()).hexdigest()[:32]


def seal(text: str) -> str:
    """`text` with its digest filled in; ValueError where it has no line for one."""
    found = _LINE.search(text)
    if not found:
        raise ValueError("no line `text: unsealed` in a generated text")
    start, end = found.span(found.lastindex or 0)
    return f"{text[:start]}{_digest(text)}{text[end:]}"


def is_sealed(text: str) -> bool:
    """Whether `text` was written by tqgen, edited since or not."""
    return _LINE.search(text) is not None


def is_intact(text: str) -> bool:
    """Whether `text` is, byte for byte, what tqgen once wrote."""
    found = _LINE.search(text)
    return found is not None and found[found.lastindex or 0] == _digest(text)

"""The digest that a generated file carries of itself: tells a file that was edited from one that is merely old.

A generated file holds one line `# text: <digest>`, the SHA-256 of all its other lines. The template writes the line
with `UNSEALED` as the digest, and `seal` fills it in after formatting.
"""

from __future__ import annotations

import hashlib
import re

UNSEALED = "unsealed"
_LINE = re.compile(r"^# text: (unsealed|[0-9a-f]{32})$", re.MULTILINE)


def _digest(text: str) -> str:
    rest = _LINE.sub("", text, count=1)
    return hashlib.sha256(rest.encode()).hexdigest()[:32]


def seal(text: str) -> str:
    """`text` with its digest filled in; ValueError where it has no line for one."""
    if not _LINE.search(text):
        raise ValueError("no line `# text: unsealed` in a generated text")
    return _LINE.sub(f"# text: {_digest(text)}", text, count=1)


def is_sealed(text: str) -> bool:
    """Whether `text` was written by tqgen, edited since or not."""
    return _LINE.search(text) is not None


def is_intact(text: str) -> bool:
    """Whether `text` is, byte for byte, what tqgen once wrote."""
    found = _LINE.search(text)
    return found is not None and found.group(1) == _digest(text)

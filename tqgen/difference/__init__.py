"""What differs between two versions of a layout, in three categories.

LAYOUT: where bytes stand. NUMERICS: what they mean. API: what code around the kernels relies on. Caches of two versions
are interchangeable where neither LAYOUT nor NUMERICS differs, which is where their `layout_id` is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from tqgen.spec.document import NodePath


class Category(Enum):
    """What kind of agreement a change breaks."""

    LAYOUT = "LAYOUT"
    NUMERICS = "NUMERICS"
    API = "API"


@dataclass(frozen=True)
class Change:
    """One difference. `old` or `new` is None where the older or the newer version has nothing of the kind."""

    category: Category
    subject: str  # `key.norm`, `slot_bytes`, `store`
    old: str | None
    new: str | None
    path: NodePath = ()  # the keys of a spec that decide it
    located: bool = False  # whether `old` and `new` hold offsets, in the names of `tqgen.layout.byte_map.where`
    breaks: bool = True  # whether caches, or callers, of the old version are of no use to the new one

    def to_json(self) -> dict[str, Any]:
        """The change as plain data."""
        return {
            "category": self.category.value,
            "subject": self.subject,
            "old": self.old,
            "new": self.new,
            "breaks": self.breaks,
        }

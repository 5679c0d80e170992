"""Layouts whose modules are made faulty: between them every codec, arrangement and form of a kernel."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

from support.kernels import with_tile
from support.layouts import layout_of
from tqgen import emit
from tqgen.layout import Layout
from tqgen.lower import lower
from tqgen.plan import ModulePlan, TilePlan

PLANES = "{regions: [{name: all, order: [field, head, token], fields: [%s]}]}"
HEAD_MAJOR = PLANES.replace("field, head, token", "head, token, field")
MIXED = (
    "{regions: [{name: head, order: [{axis: head, align: 32}, token, field], "
    "fields: [{reserved: 5}, {field: value.codes, align: 8}, value.zero]}, "
    "{name: tail, order: [token, field, head], fields: [key.codes, value.scale], align: 4}], slot_bytes: 320}"
)

KEPT_ROWS = 9  # from which a matrix is kept: a launch of a single token has eight
MANY_ROWS = 64  # from which a launch is one of many: cells of eight heads have 72


@dataclass(frozen=True)
class Family:
    """A layout by its parts, as `layout_of` takes them."""

    key: str
    value: str
    block: str
    head_dim: int
    tile: str = "small"

    @functools.cached_property
    def layout(self) -> Layout:
        return layout_of(self.key, self.value, block=self.block, head_dim=self.head_dim)

    @functools.cached_property
    def plan(self) -> ModulePlan:
        """With sizes at which launches choose that cells reach."""
        plan = with_tile(lower(self.layout, "mutant.yaml"), self.tile)
        if plan.kept:
            kept = dataclasses.replace(plan.kept, other=TilePlan(16, 1))
            return dataclasses.replace(plan, kept=kept, store_large_rows=KEPT_ROWS)
        return dataclasses.replace(plan, store_large_rows=MANY_ROWS)

    @functools.cached_property
    def right(self) -> str:
        """The text of the module that is right."""
        return emit.draft(self.plan)


FAMILIES = {
    "soa": Family(
        "{codec: mse, bits: 3, rotation: hadamard, norm_correction: store}", "{codec: uniform, bits: 4}", "soa", 64
    ),
    "aos": Family(
        "{codec: mse, bits: 4, rotation: signed_hadamard, norm_correction: load, tie: down, norm: {dtype: bf16}}",
        "{codec: uniform, bits: 3, rounding: half_even, quantize_with: stored}",
        "aos",
        64,
    ),
    "head_major": Family(
        "{codec: fp8, format: e4m3, scale: {dtype: fp32}, group: 16}",
        "{codec: uniform, bits: 4, symmetric: true, packing: halves, rounding: half_away}",
        HEAD_MAJOR % "key.codes, key.scale, value.scale, value.codes",
        64,
    ),
    "planes": Family(
        "{codec: mse, bits: 2, packing: halves, center: true, rotation: hadamard, rotation_block: 16}",
        "{codec: fp8, format: e5m2, non_finite: saturate}",
        PLANES % "value.codes, key.norm, key.codes",
        80,
    ),
    "mixed": Family(
        "{codec: raw, dtype: bf16, rotation: matrix}",
        "{codec: uniform, bits: 5, group: 8, center: true, zero: {dtype: fp32}}",
        MIXED,
        40,
    ),
    "kept": Family(
        "{codec: mse, bits: 2, packing: halves, rotation: matrix, tie: down}",
        "{codec: uniform, bits: 3, symmetric: true, rotation: matrix, rounding: half_even}",
        "aos",
        64,
        "large",
    ),
    "scaled": Family(
        "{codec: mse, bits: 3, norm: {dtype: fp32}, rotation: signed_hadamard}",
        "{codec: fp8, scale: {}, rotation: signed_hadamard, center: true}",
        PLANES % "key.codes, key.norm, value.codes, value.scale",
        128,
    ),
    "values": Family("{codec: none}", "{codec: mse, bits: 6, non_finite: saturate, rotation: matrix}", "aos", 100),
}

"""Kernel plans: every decision and number that the templates write, small and printable.

`lower` makes them from a layout; `emit` hands them to the templates, which decide nothing. Expressions are source text
over the names that the generated functions use: `token`, `head`, `BLOCK_SIZE`, `NUM_KV_HEADS`.
"""

from __future__ import annotations

from tqgen.plan.attention import AttentionPlan, AttentionSidePlan, TileChoice
from tqgen.plan.decoded import DecodedPlan, ItemsPlan, PlacedCode
from tqgen.plan.fragments import FragmentPlan, GroupsPlan, PairsPlan, QueryPlan, RunFieldPlan, RunPlan
from tqgen.plan.module import Argument, Constant, KeptPlan, ModulePlan, TilePlan
from tqgen.plan.quads import QuadsPlan, RowNumbersPlan
from tqgen.plan.sides import EncodedPlan, FieldPlan, LanesPlan, PackingPlan, RotationPlan, SidePlan

__all__ = [
    "Argument",
    "AttentionPlan",
    "AttentionSidePlan",
    "Constant",
    "DecodedPlan",
    "EncodedPlan",
    "FieldPlan",
    "FragmentPlan",
    "GroupsPlan",
    "ItemsPlan",
    "KeptPlan",
    "LanesPlan",
    "ModulePlan",
    "PackingPlan",
    "PairsPlan",
    "PlacedCode",
    "QuadsPlan",
    "QueryPlan",
    "RotationPlan",
    "RowNumbersPlan",
    "RunFieldPlan",
    "RunPlan",
    "SidePlan",
    "TileChoice",
    "TilePlan",
]

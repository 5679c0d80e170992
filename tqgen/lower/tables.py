"""Tables that a module makes on a device: rotations, codebooks, operands of assembly."""

from __future__ import annotations

from tqgen.layout import Layout, Side
from tqgen.plan import AttentionPlan, Constant, SidePlan


def side_constants(layout: Layout, plans: tuple[SidePlan, ...]) -> tuple[Constant, ...]:
    """The rotations of each side, as store and unpack take them, and the tables of its codec."""
    found = []
    for side, plan in zip(layout.sides, plans):
        if side.rotation.is_hadamard:
            source = hadamard_source(side)
            found.append(Constant(f"{side.name}_rotation", source))
            if plan.quads:
                found += quad_rotation(side, plan.quads.parts)
                back = f"_quad_factor({unsigned_source(side)}, spread={plan.quads.spread})"
                back += ".to(torch.float16)" if plan.quads.row_numbers else ""  # what its operand is where there is PTX
                found.append(Constant(f"{side.name}_quad_rotation_back", back))
            if plan.rotation.dealt:
                found.append(Constant(f"{side.name}_dealt_rotation", f"_dealt({source}, _{side.name}_lanes)"))
        if plan.quads and plan.quads.row_numbers:
            found.append(Constant(f"{side.name}_bytes", f"_operands(device, {side.name.upper()}_BYTES)"))
        for table in sorted({*plan.encode_tables, *plan.correct_tables, *plan.unpack_tables}):
            found.append(Constant(f"{side.name}_{table}", plan.constants.table_source(table, side.name)))
    return tuple(found)


def quad_rotation(side: Side, parts: int) -> list[Constant]:
    """The rotation of rows that quads hold, in whose packing so many parts take turns: a factor, and signs."""
    found = [Constant(f"{side.name}_quad_rotation", f"_quad_factor({unsigned_source(side)})")]
    if side.rotation.kind == "signed_hadamard":
        order = f".view({parts}, -1).T.reshape(-1)" if parts > 1 else ""
        signs_source = f"torch.tensor({side.name.upper()}_SIGNS, dtype=torch.bfloat16, device=device)"
        found.append(Constant(f"{side.name}_signs", signs_source + order))
    return found


def unsigned_source(side: Side) -> str:
    """Source of the Hadamard matrix of a side, on `device`."""
    return f"_hadamard({side.head_dim}, {side.rotation.size}, device)"


def hadamard_source(side: Side) -> str:
    """Source of the matrix by which vectors of the side are rotated, on `device`."""
    signs = f", {side.name.upper()}_SIGNS" if side.rotation.kind == "signed_hadamard" else ""
    return f"_hadamard({side.head_dim}, {side.rotation.size}, device{signs})"


def attention_constants(layout: Layout, attention: AttentionPlan | None, known: tuple[Constant, ...]) -> list[Constant]:
    """Tables of the expansions of folded sides, and of the rotation of few query rows, beside those that are known."""
    if attention is None:
        return []
    found: list[Constant] = []
    fragments = attention.fragments
    # Codes of values in pairs have operands of their own.
    key = fragments.key_codes if fragments else attention.key
    for name, side in (("key", key), ("value", attention.value)):
        if side.has_operands and not side.decoded:
            numbers = f", {name.upper()}_NUMBERS" if side.looks_up else ""
            found.append(Constant(f"{name}_operands", f"_operands(device, {name.upper()}_OPERANDS{numbers})"))
    for name, side in attention.sides:
        if side.has_operands and side.decoded:
            numbers = f", {name.upper()}_DECODED_NUMBERS" if side.looks_up else ""
            found.append(Constant(f"{name}_decoding", f"_operands(device, {name.upper()}_DECODING{numbers})"))
    if fragments and fragments.query and layout.key.rotation.is_hadamard:
        found += [table for table in quad_rotation(layout.key, fragments.query.parts) if table not in known]
    if fragments and fragments.pairs.has_operands:
        numbers = ", VALUE_PAIR_NUMBERS" if fragments.pairs.looks_up else ""
        found.append(Constant("value_pair_operands", f"_operands(device, VALUE_PAIR_OPERANDS{numbers})"))
    return found

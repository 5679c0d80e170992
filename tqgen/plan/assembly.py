"""What is said of the numbers in assembly."""

from __future__ import annotations

ABOUT_ASSEMBLY = {
    "prmt": "A selector of `prmt` has a digit for each byte of its result, which is one of eight.",
    "lop3": "With 0xea `lop3` is a & b | c.",
    "dp4a": "Products of bytes are summed by `dp4a`.",
    "and.b32": "Masks are of the same bits of some of a word's codes.",
}


def assembly_text(*assembly: str) -> str:
    """Sentences on the numbers in assembly, each after a space."""
    return "".join(f" {said}" for sign, said in ABOUT_ASSEMBLY.items() if any(sign in one for one in assembly))

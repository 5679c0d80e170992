"""Which fields of a cache an assembly's loads and stores belong to, and how wide they are.

Instructions carry the line that they come from and the line that it was inlined at. A generated module accesses a field
in a function that is named after it, or right after it computed the field's offset.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

ELSEWHERE = "*"  # not a field: inputs, outputs, tables, slots
OTHER_FUNCTIONS = ("_encode_", "_decode_", "_correct_", "_expand_", "_read_")  # access tables and inputs alone


class Places:
    """The fields that lines of a generated module access."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.functions: dict[int, ast.FunctionDef] = {}
        for node in ast.parse("\n".join(lines)).body:
            if isinstance(node, ast.FunctionDef):
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    self.functions[line] = node

    def field(self, chain: Iterable[int]) -> str:
        """The field, as `key.codes`, of an instruction at these lines, the innermost first."""
        for line in chain:
            function = self.functions.get(line)
            if function is None:
                continue
            named = re.fullmatch(r"_(?:store|load)_(key|value)_(?:codes|units)", function.name)
            if named:
                return f"{named[1]}.codes"
            if function.name.startswith(OTHER_FUNCTIONS):
                return ELSEWHERE
            found = self._offset_before(line, function)
            if found:
                return found
        return ELSEWHERE

    def _offset_before(self, line: int, function: ast.FunctionDef) -> str:
        """The field whose offset was computed last before a line of a function."""
        for before in range(line, function.lineno, -1):
            found = re.search(r"_(key|value)_(\w+?)_offset\(", self.lines[before - 1])
            if found:
                return f"{found[1]}.{found[2]}"
        return ""


PTX_PLACE = re.compile(r"\.loc\s+\d+\s+(\d+)\s+\d+(?:.*?inlined_at\s+\d+\s+(\d+))?")
PTX_ACCESS = re.compile(r"\b(ld|st)\.global\S*?(?:\.v(\d))?\.[a-z](\d+)\b")
AMD_PLACE = re.compile(r"^\t\.loc\t(.*)$")
AMD_LINE = re.compile(r"\.py:(\d+):\d+")
AMD_ACCESS = re.compile(r"\b(?:global|buffer|flat)_(load|store)_(\w+)")
AMD_BYTES = {"dwordx4": 16, "dwordx3": 12, "dwordx2": 8, "dword": 4, "short": 2, "ushort": 2, "sshort": 2}
AMD_BYTES |= {"byte": 1, "ubyte": 1, "sbyte": 1}

Widths = dict[str, dict[str, int]]


def ptx_widths(text: str, places: Places) -> Widths:
    """The widest load and store of each field, in bytes, of PTX."""
    widths: Widths = {"load": {}, "store": {}}
    chain: tuple[int, ...] = ()
    for line in text.splitlines():
        here = PTX_PLACE.search(line)
        if here:
            chain = tuple(int(number) for number in here.groups() if number)
            continue
        access = PTX_ACCESS.search(line)
        if access:
            kind = "load" if access[1] == "ld" else "store"
            _widen(widths[kind], places.field(chain), int(access[2] or 1) * int(access[3]) // 8)
    return widths


def amd_widths(text: str, places: Places) -> Widths:
    """The widest load and store of each field, in bytes, of AMD assembly."""
    widths: Widths = {"load": {}, "store": {}}
    chain: tuple[int, ...] = ()
    for line in text.splitlines():
        here = AMD_PLACE.search(line)
        if here:
            chain = tuple(map(int, AMD_LINE.findall(here[1])))
            continue
        access = AMD_ACCESS.search(line)
        if access:
            size = access[2].removesuffix("_d16").removesuffix("_d16_hi")
            _widen(widths[access[1]], places.field(chain), AMD_BYTES.get(size, 0))
    return widths


def _widen(widths: dict[str, int], field: str, width: int) -> None:
    widths[field] = max(width, widths.get(field, 0))


OPERAND = re.compile(r"tensor<([0-9x]+)x\w+, #ttg\.dot_op<\{opIdx = ([01]), parent = #\w+, kWidth = (\d+)\}>>")
THREADS_OF_SUM = 4  # that bring an operand of a product, `kWidth` neighbouring places each


def crowded_operands(ttgir: str) -> int:
    """How many operands of products have fewer places in the sum than their four threads are to bring."""
    found = 0
    products = "\n".join(line for line in ttgir.splitlines() if " tt.dot " in line)
    for sizes, operand, width in OPERAND.findall(products):
        shape = [int(size) for size in sizes.split("x")]
        places = shape[-1] if operand == "0" else shape[-2]
        found += THREADS_OF_SUM * int(width) > places
    return found

"""Instructions of a cubin: how many there are, and how many its largest loop has."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", re.MULTILINE)
# Threads of a program wait for each other, or give each other what they have through shared memory.
EXCHANGE = re.compile(r"^(?:@!?U?P\w+ +)?(?:BAR|STS|STSM|LDS|LDSM|ATOMS)\b")
JUMP = re.compile(r"\bBRA\b.*\b0x([0-9a-f]+)")


@dataclass(frozen=True)
class Machine:
    """What the assembler made of one kernel."""

    registers: int  # of one thread
    stack_bytes: int  # of one thread; more than 0 where registers were spilled
    instructions: int
    loop: int  # instructions of the largest loop, those of loops inside it included; 0 where there is none
    exchanges: int = 0  # of these, barriers and accesses of shared memory


def machine_of(cubin: bytes) -> Machine:
    """Facts of the one kernel of a cubin, by the `cuobjdump` that Triton brings. RuntimeError where it says nothing."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory(prefix="tqgen-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [str(tool), "-res-usage", "-sass", str(path)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", said)
    if not found:
        raise RuntimeError(f"cuobjdump said nothing of registers: {said[:500]}")
    return Machine(int(found[1]), int(found[2]), *counts(said))


def counts(text: str) -> tuple[int, int, int]:
    """Instructions of disassembled text, those of the largest loop, and its barriers and accesses of shared memory.

    What fills up the end is not counted.
    """
    found = [(int(place, 16), what) for place, what in INSTRUCTION.findall(text)]
    real = [(place, what) for place, what in found if what.split()[0] != "NOP"]
    jumps = [(int(jump[1], 16), place) for place, what in real if (jump := JUMP.search(what))]
    loops = [[what for place, what in real if first <= place <= last] for first, last in jumps if first < last]
    largest = max(loops, key=len, default=[])
    return len(real), len(largest), sum(EXCHANGE.match(what) is not None for what in largest)

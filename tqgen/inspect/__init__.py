"""What kernels become on a GPU that is not here: registers, spills, shared memory, widths of loads and stores.

Triton compiles for a target without having one. `launches` asks a generated module's own launchers what they would
launch, `compiled` compiles that for a target, and the `Facts` are read from the assembly. Needs torch and triton, in a
process in which Triton does not interpret.
"""

from __future__ import annotations

from tqgen.inspect.compiling import Facts, compiled
from tqgen.inspect.launches import Launch, launches
from tqgen.inspect.targets import TARGETS, Target

__all__ = ["TARGETS", "Facts", "Launch", "Target", "compiled", "launches"]

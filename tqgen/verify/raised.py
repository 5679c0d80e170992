"""What a kernel raised, told by its cause and by the line of the generated module that it came from."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

COMPILED_AT = re.compile(r"at (\d+):\d+:")  # how Triton begins what it says of a line of a function
FUNCTION = re.compile(r"^def (\w+)\(", re.MULTILINE)


def described(error: BaseException, module: ModuleType) -> str:
    """The innermost cause, and where in the module: Triton wraps what a kernel raises, and its own lines say nothing.

    The module's file is gone when somebody reads this, so its line is quoted.
    """
    causes = list(_causes(error))
    return f"{first_line(causes[-1])} ({_place(causes, module)})"


def first_line(error: BaseException) -> str:
    """The exception's type and the line of its text that says what is wrong."""
    lines = str(error).strip().splitlines() or [""]
    # Triton's compiler quotes the function first
    return f"{type(error).__name__}: {lines[-1 if COMPILED_AT.match(lines[0]) else 0].strip()}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _place(causes: list[BaseException], module: ModuleType) -> str:
    """The last frame in the module's file, or the line that was compiled; the last frame of all where neither is."""
    frames = [list(traceback.extract_tb(cause.__traceback__)) for cause in reversed(causes)]
    for cause, here in zip(reversed(causes), frames, strict=True):
        source, number = getattr(cause, "src", None), getattr(getattr(cause, "node", None), "lineno", 0)
        if isinstance(source, str) and 0 < number <= len(source.splitlines()):  # Triton's compiler, of one function
            name = FUNCTION.search(source)
            return f"`{name[1] if name else 'a kernel'}`: `{source.splitlines()[number - 1].strip()}`"
        for frame in reversed(here):
            if frame.filename == module.__file__:
                line = f": `{frame.line.strip()}`" if frame.line else ""
                return f"line {frame.lineno} of the module, in `{frame.name}`{line}"
    last = next(here[-1] for here in frames if here)
    return f"{Path(last.filename).name}:{last.lineno}"

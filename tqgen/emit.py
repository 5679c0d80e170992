"""Write a plan as source: jinja templates, then black. Knows nothing of specs or layouts."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tqgen import prose, resources, seal

if TYPE_CHECKING:
    from jinja2 import Environment

    from tqgen.plan import ModulePlan

LINE_LENGTH = 120
ASSEMBLY_WIDTH = 100


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The one environment: an undefined name is an error, nothing is escaped, blocks leave no blank lines."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(resources.templates()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["statements"] = statements
    return made


def statements(assembly: str) -> list[str]:
    """Assembly in lines of readable length, which are its text when they are joined as they are."""
    lines = [""]
    for statement in assembly.split("; "):
        ended = statement if statement.endswith("}") else statement + "; "
        if len(lines[-1]) + len(ended) > ASSEMBLY_WIDTH:
            lines.append("")
        lines[-1] += ended
    return lines


def draft(plan: ModulePlan) -> str:
    """The module's text before formatting."""
    return environment().get_template("module.py.j2").render(module=plan)


def emit(plan: ModulePlan) -> str:
    """The module's text: formatted, with the digest of itself, the same bytes for the same plan."""
    import black

    # black formats twice, in case the first time was not enough. For what the templates write it is, as the tests say,
    # and half of a build's time is saved.
    once = getattr(black, "_format_str_once", black.format_str)
    text = once(draft(plan), mode=black.Mode(line_length=LINE_LENGTH))
    return seal.seal(prose.filled(text, LINE_LENGTH))

"""Write a plan as source: jinja templates, then black. Knows nothing of specs or layouts."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from tqgen import faults, prose, reached, resources, seal

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
    """The module's text before formatting, with what is reached of it; TemplateFault where a template is at fault."""
    written = _written(plan)
    try:
        text = written.environment.get_template("module.py.j2").render(module=plan)
    except Exception as error:
        if found := written.not_rendered(error):
            raise found from error
        raise
    try:
        return reached.without_unreached(text)
    except SyntaxError as error:
        raise written.no_python(text, error.msg, error.lineno or 1) from error
    except reached.UnknownNames as error:
        raise written.unknown_names(text, error.found) from error


def _written(plan: ModulePlan) -> faults.Written:
    return faults.Written(environment(), {side.name: side.macros for side in plan.sides})


def emit(plan: ModulePlan) -> str:
    """The module's text: formatted, with the digest of itself, the same bytes for the same plan; errors as `draft`."""
    import black
    from black.parsing import InvalidInput

    # black formats twice, in case the first time was not enough. For what the templates write it is, as the tests say,
    # and half of a build's time is saved.
    once = getattr(black, "_format_str_once", black.format_str)
    module = draft(plan)
    try:
        text = once(module, mode=black.Mode(line_length=LINE_LENGTH))
    except InvalidInput as error:
        place = re.search(r"(\d+):\d+", str(error))
        raise _written(plan).no_python(module, "it cannot be read", int(place[1]) if place else 1) from error
    return seal.seal(prose.filled(text, LINE_LENGTH))

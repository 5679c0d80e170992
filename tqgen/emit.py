"""Write a plan as source: jinja templates, then black. Knows nothing of specs or layouts."""

from __future__ import annotations

import traceback
from functools import lru_cache
from typing import TYPE_CHECKING

from tqgen import prose, reached, resources, seal

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


class TemplateFault(Exception):
    """A template that is missing or cannot be written out, with its file and line: a mistake in it or in the plan."""


def draft(plan: ModulePlan) -> str:
    """The module's text before formatting, with what is reached of it; TemplateFault where a template is at fault."""
    from jinja2 import TemplateError, TemplateNotFound, TemplateSyntaxError

    try:
        return reached.without_unreached(environment().get_template("module.py.j2").render(module=plan))
    except TemplateNotFound as error:
        raise TemplateFault(f"templates/{error.name} is missing") from error
    except TemplateSyntaxError as error:
        raise TemplateFault(f"templates/{error.name}:{error.lineno}: {error.message}") from error
    except TemplateError as error:
        places = [place for place in traceback.extract_tb(error.__traceback__) if place.filename.endswith(".j2")]
        where = f"{places[-1].filename}:{places[-1].lineno}" if places else "templates"
        raise TemplateFault(f"{where}: {error}") from error
    except SyntaxError as error:
        raise TemplateFault(
            f"what the templates write is no Python: {error.msg} in `{(error.text or '').strip()}`"
        ) from error
    except reached.UnknownName as error:
        raise TemplateFault(f"{error}: no template of templates/parts/ has it") from error


def emit(plan: ModulePlan) -> str:
    """The module's text: formatted, with the digest of itself, the same bytes for the same plan."""
    import black

    # black formats twice, in case the first time was not enough. For what the templates write it is, as the tests say,
    # and half of a build's time is saved.
    once = getattr(black, "_format_str_once", black.format_str)
    text = once(draft(plan), mode=black.Mode(line_length=LINE_LENGTH))
    return seal.seal(prose.filled(text, LINE_LENGTH))

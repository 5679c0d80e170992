"""What each diagnostic means at length: one Markdown file per code in this folder, whose first line is its title.

The thousands tell the stage: TQ1 the text of a spec, TQ2 its keys and values, TQ3 the layout, TQ4 the command line and
files, TQ5 what was generated: files, kernels, and layouts that are in use, TQ6 codecs and templates.
"""

from __future__ import annotations

from importlib import resources


def codes() -> tuple[str, ...]:
    """Every code that there is, in order."""
    files = (entry.name for entry in resources.files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".md") for name in files if name.endswith(".md")))


def explanation(code: str) -> str:
    """The explanation in Markdown, title included; KeyError where there is no such code."""
    if code not in codes():
        raise KeyError(code)
    return resources.files(__name__).joinpath(f"{code}.md").read_text(encoding="utf-8")


def title(code: str) -> str:
    """What the code is about, in a few words; KeyError where there is no such code."""
    return explanation(code).splitlines()[0].removeprefix("# ")

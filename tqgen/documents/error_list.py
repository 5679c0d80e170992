"""docs/errors.md: every diagnostic, from the explanations."""

from __future__ import annotations

from tqgen import explanations
from tqgen.documents.markdown import page

STAGES = {
    "TQ1": "The text of a spec",
    "TQ2": "Keys and values",
    "TQ30": "The layout: sides",
    "TQ31": "The layout: regions and placement",
    "TQ32": "The layout: parameters of codecs",
    "TQ33": "The layout: rotations",
    "TQ34": "The layout: packing",
    "TQ40": "Files and options that change a spec",
    "TQ41": "The command line",
    "TQ50": "Generated files",
    "TQ51": "Generated kernels",
    "TQ52": "Layouts in use",
    "TQ60": "Codecs and templates",
}
INTRODUCTION = """\
# Diagnostics

Every mistake has a code. `tqgen explain TQ3107` prints one of these sections, `tqgen explain` the list. Diagnostics go
to stderr, with the place, the line and a way out.

`--error-format json` writes one object a line for tools. `code`, `severity` (`error` or `warning`) and `message` are
always there. `file`, `line`, `column` and `length` are the place: lines and columns count from 1, in characters, and
are null where a whole file is meant; all four are null where there is no place. `label` is what is said beside the
caret, `help` a way out, or null. `related` is a list of other places, each with a `label`.
"""


def text() -> str:
    """The page, with a digest of itself."""
    sections = [INTRODUCTION]
    for prefix, stage in STAGES.items():
        codes = [code for code in explanations.codes() if code.startswith(prefix)]
        if codes:
            sections.append(f"## {stage}\n")
            sections += [_section(code) for code in codes]
    missing = [code for code in explanations.codes() if not code.startswith(tuple(STAGES))]
    if missing:
        raise ValueError(f"no stage in the list of errors for {', '.join(missing)}")
    return page("tqgen/explanations", "\n".join(sections))


def _section(code: str) -> str:
    title, _, body = explanations.explanation(code).partition("\n")
    return f"### {code}: {title.removeprefix('# ')}\n\n{body.strip()}\n"

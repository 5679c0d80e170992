"""`tqgen explain`: what a diagnostic means."""

from __future__ import annotations

import re

from tqgen import explanations
from tqgen.commands import usage
from tqgen.commands.usage import UsageError
from tqgen.diagnostics import did_you_mean


def explain(code: str | None) -> int:
    """Print the explanation of a code, or the titles of all."""
    if code is None:
        for known in explanations.codes():
            print(f"{known}  {explanations.title(known)}")
        return usage.CLEAN
    in_a_message = re.search(r"\[(TQ\d+)\]", code)
    wanted = in_a_message[1] if in_a_message else code.strip().upper()
    wanted = wanted if wanted.startswith("TQ") else f"TQ{wanted}"
    try:
        text = explanations.explanation(wanted)
    except KeyError:
        close = did_you_mean(wanted, explanations.codes())
        help = f"did you mean `{close}`?" if close else "`tqgen explain` lists all codes"
        raise UsageError("TQ4108", f"no diagnostic has the code `{code}`", help=help) from None
    print(f"{wanted}: {text.removeprefix('# ').rstrip()}")
    return usage.CLEAN

"""Where diagnostics go and how they look: text for people, one JSON object a line for tools, colour on terminals."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO

from tqgen.diagnostics import Diagnostic

ERROR_FORMATS = ("text", "json")

_HEADER = re.compile(r"^(error|warning)\[(TQ\d{4})\]: (.*)$", re.MULTILINE)
_COLOURS = {"error": "31", "warning": "33"}


def has_colour(stream: TextIO) -> bool:
    """Whether `stream` is a terminal whose user has not asked for plain text."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal behind `stream`; None where it is a file or a pipe."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def coloured(text: str) -> str:
    """Rendered diagnostics with the severity in colour and the message in bold."""

    def header(found: re.Match[str]) -> str:
        severity, code, message = found.groups()
        return f"\033[1;{_COLOURS[severity]}m{severity}[{code}]\033[0m\033[1m: {message}\033[0m"

    return _HEADER.sub(header, text)


@dataclass
class Console:
    """Writes diagnostics to stderr, with an empty line between them."""

    error_format: str = "text"
    reported: int = 0

    def reset(self) -> None:
        """Forget an earlier command."""
        self.error_format, self.reported = "text", 0

    def report(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Write `diagnostics`, in their order."""
        for diagnostic in diagnostics:
            if self.error_format == "json":
                text = json.dumps(diagnostic.to_json(), ensure_ascii=False)
            else:
                text = ("\n" if self.reported else "") + diagnostic.render()
                text = coloured(text) if has_colour(sys.stderr) else text
            self.reported += 1
            print(text, file=sys.stderr)

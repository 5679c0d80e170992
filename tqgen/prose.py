"""Comments and docstrings of generated source within a line's length, from which numbers and names push them."""

from __future__ import annotations

import re
import textwrap

QUOTES = '"""'
ARGUMENT = re.compile(r"\w+: ")  # of a docstring, whose further lines are indented


def filled(source: str, width: int) -> str:
    """The source, where a paragraph with a longer line is filled anew from that line on; code and tables stay."""
    lines, made = source.split("\n"), []
    at, in_docstring = 0, False
    while at < len(lines):
        line = lines[at]
        is_comment = re.match(r"\s*# \S", line) is not None and not in_docstring
        is_docstring = in_docstring or line.lstrip().startswith(QUOTES)
        end = at + 1
        if len(line) > width and (is_comment or is_docstring):
            mark = "# " if is_comment else ""
            indent = _indent(line)
            rest = _rest_indent(line, lines[end] if end < len(lines) else "", mark)
            while end < len(lines) and _goes_on(lines[end - 1], lines[end], rest, mark):
                end += 1
            text = " ".join(one.strip().removeprefix(mark) for one in lines[at:end])
            made += textwrap.wrap(
                text, width, initial_indent=indent + mark, subsequent_indent=rest + mark, break_on_hyphens=False
            )
        else:
            made.append(line)
        if not is_comment:
            in_docstring ^= sum(one.count(QUOTES) for one in lines[at:end]) % 2 == 1
        at = end
    return "\n".join(made)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _rest_indent(line: str, following: str, mark: str) -> str:
    """The indentation of what a line continues with."""
    indent = _indent(line)
    if mark:
        return indent
    deeper = following.strip() and len(_indent(following)) > len(indent)
    return indent + "    " if deeper or ARGUMENT.match(line.lstrip()) else indent


def _goes_on(line: str, following: str, indent: str, mark: str) -> bool:
    """Whether a line of the same paragraph follows: none that starts something, as a table, a list or an argument."""
    text = following.removeprefix(indent + mark)
    is_same = following.startswith(indent + mark) and bool(text.strip()) and not text.startswith(" ")
    ends = line.rstrip().endswith(QUOTES) and line.strip() != QUOTES
    return is_same and not ends and text.strip() != QUOTES and not ARGUMENT.match(text) and not text.startswith("- ")

"""A command whose help names its arguments as their metavars do, and nothing else: `SPEC...`, and not `SPEC... <str>`.

typer puts braces around them in the first line, and their Python types behind them in the list.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class Command(TyperCommand):
    """Shows a metavar as it is."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [str(one.metavar) for one in self.get_params(ctx) if one.param_type_name == "argument"]
        return [self.options_metavar or "", *arguments]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for one in self.get_params(ctx):
            if record := one.get_help_record(ctx):
                name, text = record
                if one.param_type_name == "argument":
                    sections["Arguments"].append((str(one.metavar), text))
                else:
                    sections["Options"].append((name, text))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

"""`tqgen breaking`: layouts that are in use must not change under their names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqgen import manifest, resources
from tqgen.commands import usage
from tqgen.commands.changes_text import OFFSETS, lines
from tqgen.commands.console import Console
from tqgen.commands.usage import UsageError
from tqgen.compiler import compile_spec
from tqgen.diagnostics import Diagnostic, Place, Related
from tqgen.difference import Category, Change
from tqgen.difference.archive import Archive, ArchiveError, archive
from tqgen.difference.verdicts import Status, Verdict, verdict

CODES = {Category.LAYOUT: "TQ5201", Category.NUMERICS: "TQ5202", Category.API: "TQ5203"}
LOST = {
    Category.LAYOUT: "caches that were written before cannot be read",
    Category.NUMERICS: "caches that were written before are read as other numbers",
    Category.API: "callers of the module have to change",
}
NAMED = 3  # changes that a message names


def breaking(console: Console, arguments: Sequence[str], against: str, as_json: bool) -> int:
    """Compare specs with how they were; 1 where a name stands for something else now, or for nothing any more."""
    paths, folders = _paths(arguments)
    before = archive(against)
    try:
        for folder in {path.parent for path in paths} | set(folders):
            before.check(folder)
        compiled = usage.each(paths, compile_spec)
        verdicts = [
            verdict(path, one, usage.relative(manifest.default_output(path)) / f"{one.name}.py", before)
            for path, one in zip(paths, compiled, strict=True)
        ]
        for folder in folders:
            verdicts += _gone(folder, paths, before)
    except ArchiveError as error:
        help = "name a folder that holds specs or modules, or a revision as `main` or `HEAD~1`"
        raise UsageError("TQ4109", str(error), help=help) from None
    if as_json:
        print(json.dumps(_data(against, verdicts), indent=2, ensure_ascii=False))
    else:
        print("\n".join(_text(against, verdicts)))
    problems = [problem for one in verdicts for problem in _problems(one, against, before)]
    console.report(problems)
    return usage.FINDINGS if problems else usage.CLEAN


def _paths(arguments: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """The specs, and the folders of which every spec is meant; all shipped ones where there are no arguments."""
    folders = [Path(argument) for argument in arguments if Path(argument).is_dir()]
    if not arguments:
        folders = [usage.relative(resources.specs())]
    named = usage.spec_paths([argument for argument in arguments if not Path(argument).is_dir()])
    inside = [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
    return list(dict.fromkeys((*named, *inside))), folders


def _gone(folder: Path, paths: Sequence[Path], before: Archive) -> list[Verdict]:
    names = [name for name in before.names(folder) if name.endswith(".yaml")]
    missing = [folder / name for name in names if folder / name not in paths]
    return [Verdict(path.stem, path, Status.GONE) for path in missing]


def _problems(found: Verdict, against: str, before: Archive) -> list[Diagnostic]:
    if found.status is Status.GONE:
        message = f"`{found.name}` is gone, and was there in {against}"
        help = f"bring it back with `{before.restore(found.path)}`: its caches may be in use"
        return [Diagnostic("TQ5204", message, Place(str(found.path)), help=help)]
    problems = []
    for category in Category:
        broken = [change for change in found.changes if change.category is category and change.breaks]
        if broken:
            problems.append(_broken(found, category, broken, against, before))
    if found.recorded_id:
        problems.append(_other_id(found, against))
    return problems


def _other_id(found: Verdict, against: str) -> Diagnostic:
    message = f"`{found.name}` has layout_id {found.recorded_id} in its module of {against}"
    if found.old:
        message += ", but the compiler makes another layout of the same spec now"
        help = "undo that change of the compiler, or give the layout a new name"
    else:
        message += f", and {found.new.layout.layout_id if found.new else 'none'} now"
        help = f"the spec of that module is not there to tell what differs; {_new_name(found)}"
    return Diagnostic("TQ5205", message, Place(str(found.path)), help=help)


def _broken(found: Verdict, category: Category, broken: Sequence[Change], against: str, before: Archive) -> Diagnostic:
    names = [f"`{change.subject}`" for change in broken]
    named = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    message = f"`{found.name}` differs from {against} in its {category.value}: {named}"
    path = broken[0].path
    place, related = Place(str(found.path)), []
    if found.new and path:
        place = found.new.spec.place(path)
    if found.old and path:
        related = [Related(found.old.place(path), "as it was")]
    return Diagnostic(CODES[category], message, place, LOST[category], _way_out(found, before), tuple(related))


def _way_out(found: Verdict, before: Archive) -> str:
    if not found.old:
        return _new_name(found)
    new_name = f"{found.name}_2"
    return (
        f"move the new layout to `{found.path.with_name(new_name + '.yaml')}` with `name: {new_name}`,"
        f" and bring the old one back with `{before.restore(found.path)}`"
    )


def _new_name(found: Verdict) -> str:
    return f"give the new layout a name of its own, as `{found.name}_2`"


def _data(against: str, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    def one(found: Verdict) -> dict[str, Any]:
        return {
            "name": found.name,
            "spec": str(found.path),
            "status": found.status.value,
            "layout_id": found.new.layout.layout_id if found.new else None,
            "changes": [change.to_json() for change in found.changes],
        }

    return {"against": against, "layouts": [one(found) for found in verdicts]}


def _text(against: str, verdicts: Sequence[Verdict]) -> list[str]:
    """What changed, layout by layout, and how many did not."""
    text = []
    for found in verdicts:
        if found.changes:
            text += [f"{found.name}", *lines(found.changes, "  ")]
    if any(change.located for found in verdicts for change in found.changes):
        text.append(OFFSETS)
    count: Mapping[Status, int] = {status: sum(found.status is status for found in verdicts) for status in Status}
    parts = [f"{count[Status.SAME]} as in {against}"]
    for status, words in (
        (Status.COMPATIBLE, "with a wider interface"),
        (Status.CHANGED, "changed"),
        (Status.GONE, "gone"),
        (Status.NEW, "new"),
    ):
        if count[status]:
            parts.append(f"{count[status]} {words}")
    return [*text, f"{len(verdicts)} {'layout' if len(verdicts) == 1 else 'layouts'}: {', '.join(parts)}"]

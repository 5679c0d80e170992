"""Mistakes in how tqgen is called, and in what it finds on disk: the diagnostics that have no place in a spec."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from tqgen import manifest
from tqgen.diagnostics import Diagnostic, Place, SpecError, cut, did_you_mean
from tqgen.paths import real

S = TypeVar("S")
T = TypeVar("T")

CLEAN, FINDINGS, USAGE = 0, 1, 2
OVERRIDE = "--set"  # the place of diagnostics about the values of overrides


class UsageError(SpecError):
    """A call that cannot be carried out as it is: the exit status is 2."""

    def __init__(self, code: str, message: str, *, file: str = "", help: str = "") -> None:
        super().__init__([Diagnostic(code, message, Place(file) if file else None, help=help)])


def status_of(diagnostics: Iterable[Diagnostic]) -> int:
    """2 where one of `diagnostics` is about the call itself (TQ4xxx, or an option's value), otherwise 1."""
    about_call = any(found.code.startswith("TQ4") or found.file == OVERRIDE for found in diagnostics)
    return USAGE if about_call else FINDINGS


def relative(path: Path) -> Path:
    """`path` as a person here would write it: relative to the working folder where it lies below."""
    try:
        return Path(os.path.relpath(path)) if real(path).is_relative_to(Path.cwd()) else path
    except (OSError, ValueError):
        return path


def spec_paths(arguments: Sequence[str]) -> list[Path]:
    """The files that SPEC arguments mean; UsageError where one is neither a path nor the name of a shipped spec."""
    if "" in arguments:
        raise UsageError("TQ4001", "an empty text names no spec", help="name a file, or a shipped spec as `mse3_v4`")
    paths = [manifest.locate(argument) for argument in arguments]
    for argument, path in zip(arguments, paths, strict=True):
        is_name = path.name == argument and not path.suffix
        if is_name and not os.path.exists(path):
            close = did_you_mean(argument, [entry.name for entry in manifest.shipped()])
            help = f"did you mean `{close}`?" if close else "`tqgen list` shows the specs that are shipped"
            message = f"`{cut(argument, 80)}` is neither a file nor the name of a shipped spec"
            raise UsageError("TQ4001", message, help=help)
    return [relative(path) for path in paths]


def require_kernels(work: str) -> None:
    """UsageError where kernels can be neither compiled nor run; `work` says what needs them, up to the names."""
    missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    if missing:
        help = "install tqgen with its extra `kernels`, as in `pip install '.[kernels]'` in its folder"
        raise UsageError("TQ4107", f"{work} {' and '.join(missing)}", help=help)


def choose(option: str, value: str, choices: Sequence[str]) -> None:
    """UsageError where the value of an option is none of its choices."""
    if value not in choices:
        close = did_you_mean(value, choices)
        help = f"did you mean `{close}`?" if close else f"choose one of {', '.join(choices)}"
        raise UsageError("TQ4101", f"`{value}` is no value of `{option}`", help=help)


def below(option: str, value: int | None, default: int, limit: int, what: str) -> int:
    """An index among `limit`; without one `default` or the last. UsageError where it is out of range."""
    if value is None:
        return min(default, limit - 1)
    if value >= limit:
        raise UsageError("TQ4101", f"`{option} {value}` is out of range: there are {limit} {what}, counted from 0")
    return value


def parse_overrides(arguments: Sequence[str]) -> dict[str, str]:
    """`["head_dim=64", "key.bits=3"]` as a mapping, the values still text; UsageError where one is no `key=value`."""
    overrides: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key.strip():
            raise UsageError(
                "TQ4102", f"`--set {argument}` is no `key=value`", help="write it as in `--set head_dim=64`"
            )
        if key.strip() in overrides:
            raise UsageError("TQ4102", f"`--set {key.strip()}` is given twice", help="keep one of the two")
        overrides[key.strip()] = value.strip()
    return overrides


def each(items: Iterable[S], work: Callable[[S], T]) -> list[T]:
    """`work` of every item; SpecError with the problems of all where one of them has some."""
    results: list[T] = []
    problems: list[Diagnostic] = []
    for item in items:
        try:
            results.append(work(item))
        except SpecError as error:
            problems += error.diagnostics
    if problems:
        raise SpecError(problems)
    return results

"""What a shell offers where an argument or a value is being typed."""

from __future__ import annotations

from pathlib import Path

from tqgen import explanations, manifest


def specs(incomplete: str) -> list[str]:
    """Names of shipped specs, and spec files here or in the folder that was typed."""
    folder, slash, _ = incomplete.rpartition("/")
    try:
        entries = sorted(Path(folder + slash if slash else ".").iterdir())
    except OSError:
        entries = []
    files = [f"{folder}{slash}{path.name}{'/' if path.is_dir() else ''}" for path in entries if _is_offered(path)]
    return [name for name in (*(entry.name for entry in manifest.shipped()), *files) if name.startswith(incomplete)]


def _is_offered(path: Path) -> bool:
    return not path.name.startswith(".") and (path.suffix in (".yaml", ".yml") or path.is_dir())


def codes(incomplete: str) -> list[tuple[str, str]]:
    """Codes of diagnostics with their titles."""
    return [(code, explanations.title(code)) for code in explanations.codes() if code.startswith(incomplete.upper())]

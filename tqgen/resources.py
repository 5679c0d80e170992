"""Where the templates and the shipped specs are: in a checkout, beside the package; in an installation, inside it."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def checkout() -> Path | None:
    """The root of the source tree that this package runs from, or None where it was installed from a wheel."""
    root = PACKAGE.parent
    is_source_tree = (root / "pyproject.toml").is_file() and (root / "templates").is_dir()
    return root if is_source_tree else None


def _folder(name: str) -> Path:
    root = checkout()
    return root / name if root else PACKAGE / f"_{name}"


def templates() -> Path:
    """The folder of the templates."""
    return _folder("templates")


def specs() -> Path:
    """The folder of the shipped specs."""
    return _folder("specs")

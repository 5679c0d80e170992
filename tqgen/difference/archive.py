"""Files as they were: in a revision of git, or in a folder that keeps them."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

LINK = "120000 "  # how git lists a symbolic link, whose text is where it leads


class ArchiveError(Exception):
    """What was named holds no earlier versions; the text says why, lower case and without a full stop."""


@dataclass(frozen=True)
class Revision:
    """A commit of the git repository that a file lies in."""

    name: str

    def names(self, folder: Path) -> tuple[str, ...]:
        """The files that stood directly in `folder`."""
        if not folder.is_dir():
            return ()
        return tuple(name for name in self._git(folder, "ls-tree", "-z", "--name-only", self.name, "./").split("\0"))

    def read(self, path: Path) -> str | None:
        """The text of the file; None where there was none."""
        if path.name not in self.names(path.parent):
            return None
        text = self._git(path.parent, "cat-file", "blob", f"{self.name}:./{path.name}")
        if not self._git(path.parent, "ls-tree", self.name, f"./{path.name}").startswith(LINK):
            return text
        target = Path(os.path.normpath(path.parent / text))
        return None if target == path else self.read(target)

    def label(self, path: Path) -> str:
        """How a diagnostic names the file."""
        return f"{self.name}:{path}"

    def restore(self, path: Path) -> str:
        """A command that brings the file back."""
        return shlex.join(["git", "checkout", self.name, "--", str(path)])

    def check(self, folder: Path) -> None:
        """ArchiveError where the repository around `folder` has no such commit."""
        self._git(folder, "rev-parse", "--is-inside-work-tree")
        try:
            self._git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{self.name}^{{commit}}")
        except ArchiveError:
            raise ArchiveError(f"`{self.name}` is neither a folder nor a revision of this git repository") from None

    def _git(self, folder: Path, *arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except OSError as error:
            reason = (error.strerror or "").lower()
            raise ArchiveError(f"`{self.name}` is no folder, and git cannot be run: {reason}") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise ArchiveError(f"`{self.name}` is no folder, and git says: {said[0].removeprefix('fatal: ')}")
        return done.stdout.decode("utf-8", errors="replace")


@dataclass(frozen=True)
class Folder:
    """A folder that holds specs, generated modules, or both, whatever folders they came from."""

    folder: Path

    def names(self, folder: Path) -> tuple[str, ...]:
        """The files that are kept."""
        try:
            return tuple(sorted(path.name for path in self.folder.iterdir() if path.is_file()))
        except OSError as error:
            raise ArchiveError(f"`{self.folder}` cannot be read: {(error.strerror or '').lower()}") from None

    def read(self, path: Path) -> str | None:
        """The text of the file of this name; None where there is none."""
        kept = self.folder / path.name
        try:
            return kept.read_text(encoding="utf-8", errors="replace") if kept.is_file() else None
        except OSError as error:
            raise ArchiveError(f"`{kept}` cannot be read: {(error.strerror or '').lower()}") from None

    def label(self, path: Path) -> str:
        """How a diagnostic names the file."""
        return str(self.folder / path.name)

    def restore(self, path: Path) -> str:
        """A command that brings the file back."""
        return shlex.join(["cp", str(self.folder / path.name), str(path)])

    def check(self, folder: Path) -> None:
        """ArchiveError where the kept folder has nothing to compare with: everything would be new."""
        if not any(name.endswith(".yaml") or self._is_module(name) for name in self.names(folder)):
            raise ArchiveError(f"`{self.folder}` holds neither specs nor generated modules")

    def _is_module(self, name: str) -> bool:
        return name.endswith(".py") and "\n# layout: " in (self.read(Path(name)) or "")


Archive = Revision | Folder


def archive(name: str) -> Archive:
    """What `name` names: a folder where there is one of this path, otherwise a revision."""
    return Folder(Path(name)) if name and Path(name).is_dir() else Revision(name)

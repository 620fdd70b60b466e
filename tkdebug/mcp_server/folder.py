"""The folder that a server works in: names that clients give, kept inside of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from tkdebug.errors import UsageError

_MOST_CHARS = 1024


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder and what lies in it.

    Attributes:
        root: the folder, without symbolic links.
    """

    root: Path

    def inside(self, name: str) -> Path:
        """Return the path of what a client calls `name`, without symbolic links.

        Raises:
            UsageError: it lies elsewhere, or is no name of a file.
        """
        shown = repr(name[:80])
        if not name or len(name) > _MOST_CHARS or "\0" in name:
            raise UsageError(f"got {shown}, expected a path; give one that is relative")
        parts = {*PurePosixPath(name).parts, *PureWindowsPath(name).parts}
        absolute = os.path.isabs(name) or PureWindowsPath(name).anchor or name.startswith("~")
        if absolute or ".." in parts:
            raise UsageError(f"got {shown}, expected a path inside of the folder of the server")
        try:
            path = Path(os.path.realpath(self.root / name))
        except (OSError, ValueError):
            raise UsageError(f"got {shown}, expected a path that can be looked up") from None
        if not path.is_relative_to(self.root):
            raise UsageError(
                f"got {shown}, a link to elsewhere, expected a path inside of the folder of the "
                "server"
            )
        return path

    def word(self, path: Path) -> str:
        """Return a path inside as a word of a command line that runs in the folder."""
        name = str(path.relative_to(self.root))
        return f"./{name}" if name.startswith("-") else name

    def shown(self, file: str) -> str:
        """Return a file as answers name it: relative where it lies inside."""
        try:
            return str(Path(file).relative_to(self.root))
        except ValueError:
            return file

"""Text files that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path


def write_whole(path: Path, pieces: Iterable[str]) -> None:
    """Write `pieces` into the file `path`; on failure the old content stays.

    A device, a pipe or a link such as /dev/stdout is written in place, and so is a file in a folder
    where none can be made.

    Raises:
        OSError: it cannot be written.
    """
    if _must_stay(path):
        with path.open("w", encoding="utf-8") as file:
            file.writelines(pieces)
        return
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)  # of a process that was killed
    try:
        # Made here: a link of that name could lead to a file of the user's.
        with draft.open("x", encoding="utf-8") as file:
            file.writelines(pieces)
        if path.exists():
            shutil.copymode(path, draft)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _must_stay(path: Path) -> bool:
    """Whether another file must not replace the one that is there."""
    if path.is_symlink():
        return True
    return path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK))

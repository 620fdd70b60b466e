"""Text files that are written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def write_whole(path: Path, pieces: Iterable[str]) -> None:
    """Write `pieces` into the file `path`; on failure what stood there stays.

    A device or a pipe (/dev/stdout, a shell's >(…)) is written in place.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as file:
            file.writelines(pieces)
        return
    draft = path.with_name(f".{path.name}.new")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.writelines(pieces)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise

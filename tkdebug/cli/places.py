"""Whether a file can be written at all, told before a long run and not after it."""

from __future__ import annotations

from pathlib import Path

from tkdebug.errors import UsageError


def check_writable(option: str, path: Path) -> None:
    """Try to write at `path` without changing anything.

    Raises:
        UsageError: it cannot be written; `option` is what it was given for.
    """
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a directory; give a file name")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no directory {path.parent}; create it first")
    if path.exists() and not path.is_file():
        return  # a device or a pipe: opening it to try would be noticed at its other end
    existed = path.exists()
    try:
        path.open("ab").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise UsageError(
            f"{option} {path}: cannot be written ({error.strerror}); choose another place"
        ) from error

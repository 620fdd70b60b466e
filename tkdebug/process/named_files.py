"""Files that a user, a session or a core dump names, and texts of code that is in no file.

Opening a pipe would wait for its writer, a device has no end, and a file may be larger than memory.
Invariant: nothing here waits, and nothing reads more than its limit. Sources that `linecache` has
are used: cells of notebooks and texts of `exec` are in no file. Kernels of `python -c` and of a
script on stdin are in none either: many texts have the name `<string>`, so it is compiled again and
searched for the function's code.

Text files of our own are written whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import linecache
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any, BinaryIO

MAX_SOURCE_BYTES = 16 << 20
COMMAND, STDIN = "<string>", "<stdin>"
_MAX_STDIN_BYTES = 16 << 20


class UnfitFileError(OSError):
    """A file is not regular, or too large; `strerror` says which."""

    def __init__(self, path: str | os.PathLike[str], problem: str) -> None:
        super().__init__(errno.EINVAL, problem, os.fspath(path))


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading its bytes.

    Raises:
        OSError: it cannot be opened; an `UnfitFileError` if it is a pipe or a device.
    """
    _check_regular(path, os.stat(path))  # a device may act on being opened
    file = open(path, "rb", opener=_opened_without_waiting)
    try:
        _check_regular(path, os.fstat(file.fileno()))
    except BaseException:
        file.close()
        raise
    return file


def read_bounded(file: BinaryIO, limit_bytes: int) -> bytes:
    """Read all of a file that is open.

    Raises:
        OSError: it cannot be read; an `UnfitFileError` if it is larger than `limit_bytes`.
    """
    size_bytes = os.fstat(file.fileno()).st_size
    data = b""
    if size_bytes <= limit_bytes:
        data = file.read(limit_bytes + 1) or b""  # None of a file of /proc that would block
        size_bytes = max(size_bytes, len(data))
    if size_bytes > limit_bytes:
        limit = _size_text(limit_bytes)
        raise UnfitFileError(file.name, f"has more than the {limit} that are read")
    return data


def read_bytes(path: str | os.PathLike[str], limit_bytes: int) -> bytes:
    """Read a whole file.

    Raises:
        OSError: it cannot be read; an `UnfitFileError` if it is a pipe or a device, or larger than
            `limit_bytes`.
    """
    with open_regular(path) as file:
        return read_bounded(file, limit_bytes)


def read_text(path: str | os.PathLike[str], limit_bytes: int) -> str:
    """Read a whole file of UTF-8 text.

    Raises:
        OSError: as for `read_bytes`.
        UnicodeDecodeError: it is no UTF-8.
    """
    return read_bytes(path, limit_bytes).decode()


def source_lines(file: str, module_globals: Mapping[str, Any] | None = None) -> list[str]:
    """Return the lines of a source file as `linecache` does, [] where they cannot be had."""
    try:
        _check_source(file)
    except UnfitFileError:
        return []
    return linecache.getlines(file, None if module_globals is None else dict(module_globals))


def source_line(file: str, line: int) -> str:
    """Return one line (1-based) of a source file with its newline, "" if it cannot be had."""
    lines = source_lines(file)
    return lines[line - 1] if 1 <= line <= len(lines) else ""


def fresh_source(file: str) -> str:
    """Return the text of a source file as it is now, "" if there is none.

    Raises:
        UnfitFileError: it is a pipe or a device, or larger than sources are.
    """
    linecache.checkcache(file)
    _check_source(file)
    return "".join(linecache.getlines(file))


def _check_source(file: str) -> None:
    if file in linecache.cache:
        return
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return  # `linecache` looks for it along `sys.path`, and asks its loader
    if not stat.S_ISDIR(status.st_mode):
        _check_regular(file, status)
    if status.st_size > MAX_SOURCE_BYTES:
        limit = _size_text(MAX_SOURCE_BYTES)
        raise UnfitFileError(file, f"has more than the {limit} that are read of a source")


def _opened_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check_regular(path: str | os.PathLike[str], status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(status.st_mode):
        raise UnfitFileError(path, "is a pipe or a device, expected a file")


def _size_text(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes:,} bytes"


def is_unnamed(file: str) -> bool:
    """Whether any text may have that file name."""
    return file in (COMMAND, STDIN)


def unnamed_lines(code: CodeType) -> list[str]:
    """Return the lines of the text that `code` was compiled from, [] if they cannot be found.

    The text is put into `linecache`, from where faults and tracebacks quote.
    """
    file = code.co_filename
    known = "".join(source_lines(file))
    texts = (known, *_command_texts()) if file == COMMAND else (known, *_stdin_texts())
    for text in texts:
        if text and code in _codes_in(text, file):
            lines = text.splitlines(keepends=True)
            linecache.cache[file] = (len(text), None, lines, file)
            return lines
    return []


def _command_texts() -> Iterator[str]:
    """Yield the texts that `python -c` may have got: the words of the command line."""
    for word in sys.orig_argv[1:]:
        yield word
        if word.startswith("-c"):
            yield word[2:]


def _stdin_texts() -> Iterator[str]:
    """Yield the text of stdin if it is a file, which can be read again."""
    if not hasattr(os, "pread"):  # Windows
        return
    with contextlib.suppress(OSError, SyntaxError, UnicodeDecodeError):
        status = os.fstat(0)
        if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_STDIN_BYTES:
            yield importlib.util.decode_source(os.pread(0, status.st_size, 0))


@lru_cache(maxsize=4)
def _codes_in(text: str, file: str) -> frozenset[CodeType]:
    """Return the code objects of all functions and classes in `text`."""
    try:
        pending = [compile(text, file, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return frozenset()
    found = set()
    while pending:
        code = pending.pop()
        found.add(code)
        pending += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return frozenset(found)


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
            draft.chmod(stat.S_IMODE(path.stat().st_mode))
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _must_stay(path: Path) -> bool:
    """Whether `path` must be written in place: a link, not a file, or in a read-only folder."""
    if path.is_symlink():
        return True
    return path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK))

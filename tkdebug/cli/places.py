"""The place of a command's answer: stdout, or a file that is checked before a long run.

Invariants: no input is written over; a file is written whole or not at all; a file that cannot be
written is one line and never a traceback; nothing in an answer acts on the terminal.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tkdebug.errors import TkError, UsageError
from tkdebug.process.named_files import write_whole
from tkdebug.terminal.display import PLAIN_VIEW, View, view_of
from tkdebug.terminal.text import visible


def check_writable(option: str, path: Path, read: Mapping[str, Path | None] | None = None) -> None:
    """Try to write at `path` without changing anything.

    Args:
        option: the option that the path was given for.
        path: the file to write.
        read: the command's inputs, by their names; None for one that is no file.

    Raises:
        UsageError: it cannot be written, or is one of the inputs.
    """
    # `os.path` takes what cannot be looked at for not there, where `Path` raises.
    if os.path.isdir(path):
        raise UsageError(f"{option} {path}: is a directory; give a file name")
    for what, other in (read or {}).items():
        if other is not None and _same_file(path, other):
            raise UsageError(f"{option} {path}: is {what} itself; choose another name")
    target = Path(os.path.realpath(path))
    if not os.path.isdir(target.parent):
        raise UsageError(f"{option} {path}: there is no directory {target.parent}; create it first")
    if os.path.exists(target) and not os.path.isfile(target):
        return  # a device or a pipe: opening it to try would be noticed at its other end
    existed = os.path.exists(target)
    try:
        target.open("ab").close()
        if not existed:
            target.unlink()
    except OSError as error:
        raise UsageError(
            f"{option} {path}: cannot be written ({error.strerror}); choose another place"
        ) from error


def check_stdout() -> None:
    """Check that there is a stdout to answer on.

    Raises:
        TkError: the process began without one.
    """
    if sys.stdout is None:
        raise TkError("stdout: is closed; leave it open, or lead it into a file")


def check_answer(output: Path | None, asked: Path | None) -> None:
    """Check that an answer can be written where `-o` says, before anything is run.

    Args:
        output: the file; None for stdout.
        asked: the input; None for one that is no file.

    Raises:
        TkError: the answer cannot be written, or would replace the input.
    """
    if output is None:
        check_stdout()
    else:
        check_writable("-o", output, {"what is looked at": asked})


def put_out(pieces: Iterable[str], output: Path | None = None, *, styled: bool = False) -> None:
    """Write an answer to stdout, or into the file `output`, made `visible`.

    Args:
        pieces: the pieces of its text.
        output: the file to write; None for stdout.
        styled: as for `visible`.

    Raises:
        TkError: the answer cannot be written.
        BrokenPipeError: the reader of stdout has gone.
    """
    if output is None:
        check_stdout()
    shown = (visible(piece, styled=styled) for piece in pieces)
    try:
        if output is not None:
            write_whole(output, shown)
            return
        encoding = sys.stdout.encoding or "utf-8"
        for piece in shown:
            # Under LC_ALL=C and the like there are characters that stdout has not.
            sys.stdout.write(piece.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        if output is None:
            drop_stdout()
            if isinstance(error, BrokenPipeError):
                raise
        where = "stdout" if output is None else f"-o {output}"
        raise TkError(f"{where}: cannot be written ({error.strerror})") from error


def drop_stdout() -> None:
    """Lead stdout nowhere: the interpreter must not flush into it again when it ends."""
    with contextlib.suppress(OSError, ValueError):  # no file descriptor of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _same_file(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:  # one of them is not there yet
        return path.absolute() == other.absolute()


def view_of_answer(output: Path | None) -> View:
    """Return how an answer is shown that `put_out` writes to `output`."""
    return view_of(sys.stdout) if output is None else PLAIN_VIEW

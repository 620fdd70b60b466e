"""The text of kernels that are in no file: those of `python -c` and of a script on stdin.

Invariant: what is given is the text that the function was compiled from. Many a text has the name
`<string>` (all that `exec` gets), so it is compiled again and searched for the function's code.
"""

from __future__ import annotations

import contextlib
import importlib.util
import linecache
import os
import stat
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType

from tkdebug.process.named_files import source_lines

COMMAND, STDIN = "<string>", "<stdin>"
_MAX_STDIN_BYTES = 16 << 20


def is_unnamed(file: str) -> bool:
    """Whether any text may have that file name."""
    return file in (COMMAND, STDIN)


def unnamed_lines(code: CodeType) -> list[str]:
    """The lines of the text that `code` was compiled from, [] where they are not to be had.

    What is found is put into `linecache`, from where faults and tracebacks quote.
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
    """What `python -c` may have been given: the words of the command line."""
    for word in sys.orig_argv[1:]:
        yield word
        if word.startswith("-c"):
            yield word[2:]


def _stdin_texts() -> Iterator[str]:
    """What stdin held, where that is a file and can be read once more."""
    if not hasattr(os, "pread"):  # Windows
        return
    with contextlib.suppress(OSError, SyntaxError, UnicodeDecodeError):
        status = os.fstat(0)
        if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_STDIN_BYTES:
            yield importlib.util.decode_source(os.pread(0, status.st_size, 0))


@lru_cache(maxsize=4)
def _codes_in(text: str, file: str) -> frozenset[CodeType]:
    """All codes of the functions and classes in `text`."""
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

"""The source files that a session has recorded."""

from __future__ import annotations

from tkdebug.instrument.records import RecordedKernel
from tkdebug.instrument.session import Session
from tkdebug.tui.drawing.lines import Code, lines_of


def read_source(session: Session, kernel: RecordedKernel | None, file: str) -> Code:
    """The recorded text of `file`, or only the kernel's own where that is all there is; plain.

    Raises:
        SessionError: the session cannot be read.
    """
    # Only what was recorded: a path in a session is no reason to read this machine's files.
    text = session.source_text(file)
    first_line = 1
    if text is None and kernel is not None and kernel.file == file:
        text, first_line = kernel.source, kernel.line
    return Code(lines_of(text or ""), first_line)

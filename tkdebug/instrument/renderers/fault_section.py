"""One recorded fault as text: its source line is looked up in the session."""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.fault_printing import text as fault_text
from tkdebug.fault_printing.text import counted
from tkdebug.instrument.records import FaultGroup
from tkdebug.instrument.session import Session
from tkdebug.terminal.display import PLAIN_VIEW, View


def fault_lines(session: Session, group: FaultGroup, view: View = PLAIN_VIEW) -> Iterator[str]:
    """Return one fault: its place and message, source line, caret, call chain, offender, hint."""
    source = fault_source(session, group)
    return fault_text.fault_lines(group.fault, source, _times(group), view)


def offender_text(group: FaultGroup) -> str:
    """Return where the fault came up first, and how often; "" for one without a program."""
    return fault_text.offender_text(group.fault, _times(group))


def fault_source(session: Session, group: FaultGroup) -> str | None:
    """The faulting line as it was when the script ran, None if that is not known."""
    fault = group.fault
    if fault.file is None or fault.line is None:
        return None
    return source_line(session, fault.file, fault.line)


def source_line(session: Session, file: str, line: int) -> str | None:
    """Return a line as it was when the script ran, None if that is not known."""
    return session.source_line(file, line) or _kernel_line(session, file, line)


def _kernel_line(session: Session, file: str, line: int) -> str | None:
    for kernel in session.kernels():
        lines = kernel.source.splitlines()
        if kernel.file == file:
            offset = line - kernel.line
            if 0 <= offset < len(lines):
                return lines[offset]
    return None


def _times(group: FaultGroup) -> str:
    rank = f", rank {group.first.rank}" if group.first.rank else ""
    return f"{counted(group.count, 'time')} in {counted(group.launches, 'launch')}{rank}"

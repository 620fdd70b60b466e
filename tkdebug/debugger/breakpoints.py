"""Breakpoints: where to stop, on which condition, and how often they were met."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from types import CodeType

from tkdebug.debugger.elements import Element
from tkdebug.debugger.lines import is_path_end


class BreakKind(Enum):
    """What a breakpoint waits for."""

    LINE = "line"
    FUNCTION = "function"
    OP = "op"
    FAULT = "fault"
    # An element of a tensor is written, or read.
    WRITE = "write"
    READ = "read"
    # An expression over variables has another value than before.
    CHANGE = "change"
    # A variable becomes NaN or Inf.
    NAN = "nan"
    INF = "inf"
    # The launch has ended; its tensors can be looked at.
    END = "end"


@dataclass(slots=True, eq=False)
class Breakpoint:
    """One breakpoint; fronts read it, and change it through `Debugger` alone.

    Attributes:
        number: 1, 2, 3… never given twice.
        file: of a LINE: its path; of a file that was not loaded yet, the end of its path.
        line: of a LINE.
        subject: the name of a FUNCTION (a kernel or a device function) or of an OP (`tt.load`), the
            kind of a FAULT ("" for any), the element of a WRITE or READ (`out[3, 17]`), the
            expression of a CHANGE, the variable of NAN and INF, the kernel of an END ("" for any).
        condition: a Python expression, None for always.
        is_enabled: whether it stops at all.
        is_temporary: whether it is gone once it has stopped.
        ignored: how many more hits do not stop.
        hits: how often it was met with its condition true; not counted when time runs backwards
            or again.
        programs: for which it stops, as ids; None for those that are selected.
        element: of a WRITE or READ, where it is no argument's: it is that memory then.
        log: text that is printed instead of stopping, with expressions in braces; None to stop.
    """

    number: int
    kind: BreakKind
    file: str = ""
    line: int = 0
    subject: str = ""
    condition: str | None = None
    is_enabled: bool = True
    is_temporary: bool = False
    ignored: int = 0
    hits: int = 0
    programs: tuple[tuple[int, ...], ...] | None = None
    log: str | None = None
    compiled: CodeType | None = None
    element: Element | None = None

    @property
    def is_data(self) -> bool:
        """Whether it has to see accesses to memory."""
        return self.kind in (BreakKind.WRITE, BreakKind.READ)

    @property
    def is_watch(self) -> bool:
        """Whether it looks at variables at each line."""
        return self.kind in (BreakKind.CHANGE, BreakKind.NAN, BreakKind.INF)

    def is_at(self, file: str, line: int) -> bool:
        """Whether it is a LINE, and at this one."""
        if self.kind is not BreakKind.LINE or self.line != line:
            return False
        return self.file == file or (not os.path.isabs(self.file) and is_path_end(self.file, file))

    def describe(self) -> str:
        """What it waits for, on one line."""
        match self.kind:
            case BreakKind.LINE:
                text = f"{self.file}:{self.line}"
            case BreakKind.FUNCTION:
                text = f"function {self.subject}"
            case BreakKind.OP:
                text = f"op {self.subject}"
            case BreakKind.FAULT:
                text = f"fault {self.subject}".rstrip()
            case BreakKind.WRITE:
                text = f"{self.subject} is written"
            case BreakKind.READ:
                text = f"{self.subject} is read"
            case BreakKind.CHANGE:
                text = f"{self.subject} changes"
            case BreakKind.NAN:
                text = f"{self.subject} becomes NaN"
            case BreakKind.INF:
                text = f"{self.subject} becomes Inf"
            case BreakKind.END:
                text = f"the end of {self.subject or 'any kernel'}"
        return text if self.condition is None else f"{text} if {self.condition}"

"""Breakpoints: their places and conditions, and how often they were met.

Watches among them are variables and expressions that are looked at, at each line, for a change.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.debugger.elements import Element
from tkdebug.debugger.expressions import EvaluationError, compile_expression
from tkdebug.debugger.lines import is_path_end
from tkdebug.debugger.value_text import element_text, value_text
from tkdebug.debugger.values import PerProgram

if TYPE_CHECKING:
    from tkdebug.debugger.inspection import Inspection


class BreakKind(Enum):
    """Kinds of events that a breakpoint waits for."""

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
        number: 1, 2, 3… never used twice.
        file: the path of a LINE; for a file that was not loaded yet, the end of its path.
        line: the line of a LINE.
        subject: the name of a FUNCTION (a kernel or a device function) or of an OP (`tt.load`), the
            kind of a FAULT ("" for any), the element of a WRITE or READ (`out[3, 17]`), the
            expression of a CHANGE, the variable of NAN and INF, the kernel of an END ("" for any).
        condition: a Python expression, None for always.
        is_enabled: whether it stops at all.
        is_temporary: whether it is deleted once it has stopped.
        ignored: the number of further hits that do not stop.
        hits: the number of times it was met with its condition true; not counted when time runs
            backwards or again.
        programs: ids of the programs for which it stops; None for the selected ones.
        element: the memory of a WRITE or READ, if it is no argument's.
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
        """Describe what it waits for, on one line."""
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


_NOTHING = object()


class Watches:
    """The values of watched expressions when they could last be evaluated."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[tuple[int, ...], Any]] = {}
        self._names: dict[str, tuple[str, ...]] = {}

    def clear(self) -> None:
        """Forget the values seen: time has jumped, and a difference is no change."""
        self._last.clear()

    def see(self, one: Breakpoint, inspection: Inspection) -> None:
        """Note the value at a stop, so that it is no change later, or that there is none yet."""
        self.change(one, inspection)
        self._last.setdefault(one.number, ((), _NOTHING))

    def change(self, one: Breakpoint, inspection: Inspection) -> str | None:
        """Return the text of a change since the last look, or of new NaN or Inf; None for none."""
        if one.subject not in self._names:
            self._names[one.subject] = compile_expression(one.subject).co_names
        if inspection.is_bound_later(self._names[one.subject]):
            return None  # not the argument that goes by this name, too: `x` for `x_ptr`
        try:
            value = inspection.evaluate(one.subject)
        except EvaluationError:
            return None  # no such variable in this frame, or none yet
        what = "elements"
        if isinstance(value, PerProgram):
            what = what if value.is_tile else "programs"
            value = value.values if value.data is None else value.data
        if one.kind is not BreakKind.CHANGE:
            value = _bad(value, one.kind)
        programs = inspection.programs
        before = self._last.get(one.number)
        self._last[one.number] = (programs, _kept(value))
        if one.kind is not BreakKind.CHANGE:
            count = int(value)
            if not count or (before is not None and before[1] not in (0, _NOTHING)):
                return None
            what = "NaN" if one.kind is BreakKind.NAN else "Inf"
            return f"{one.subject} has {count} {what}"
        if before is not None and before[1] is _NOTHING:
            return f"{one.subject} has a value now"
        if before is None or before[0] != programs or _same(before[1], value):
            return None
        return f"{one.subject} changed{_shown(before[1], value, what)}"


def _bad(value: Any, kind: BreakKind) -> int:
    tensor = torch.as_tensor(value)
    if not tensor.dtype.is_floating_point:
        return 0
    wide = tensor.float() if tensor.element_size() < 2 else tensor
    return int((wide.isnan() if kind is BreakKind.NAN else wide.isinf()).sum())


def _kept(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return torch.equal(
            a.contiguous().reshape(-1).view(torch.uint8),
            b.contiguous().reshape(-1).view(torch.uint8),
        )
    try:
        return bool(a == b) or (a != a and b != b)
    except Exception:
        # A comparison of the user's own objects: what cannot be compared is the same if it is one.
        return a is b


def _shown(before: Any, now: Any, what: str) -> str:
    if isinstance(now, Tensor) and now.numel() > 1:
        if isinstance(before, Tensor) and _is_uniform(before) and _is_uniform(now):
            return f": {_plain(before.reshape(-1)[0])} -> {_plain(now.reshape(-1)[0])}"
        if isinstance(before, Tensor) and before.shape == now.shape:
            return f" in {int((before != now).sum())} of {now.numel()} {what}"
        return ""
    return f": {_plain(before)} -> {_plain(now)}"


def _is_uniform(value: Tensor) -> bool:
    return bool((value == value.reshape(-1)[0]).all())


def _plain(value: Any) -> str:
    is_element = isinstance(value, Tensor) and value.numel() == 1
    return element_text(value) if is_element else value_text(value)

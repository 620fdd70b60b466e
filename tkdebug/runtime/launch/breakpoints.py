"""`breakpoint()` in a kernel: a debugger's stop if there is a front to ask, else one warning."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from tkdebug.records.hook_chain import HOOKS, LaunchDebugger
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.compiler.ir import SourceLocation


def debugger_of_breakpoints(places: Sequence[SourceLocation]) -> LaunchDebugger | None:
    """Return the debugger that stops at `places`; without one, report that once, return None."""
    if os.environ.get("PYTHONBREAKPOINT") == "0":
        return None  # as Python's own `breakpoint()`
    found = None if HOOKS.break_into is None else HOOKS.break_into()
    if found is None:
        ignore_breakpoints(places, "there is no terminal to ask at")
    return found


def ignore_breakpoints(places: Sequence[SourceLocation], why: str) -> None:
    """Report that the kernel does not stop at `places`."""
    for place in places:
        _tell_once(
            f"{place.file}:{place.line}: breakpoint() is passed over: {why}; "
            "`tkdebug debug script.py` stops there"
        )


@cache
def _tell_once(text: str) -> None:
    tell(text)

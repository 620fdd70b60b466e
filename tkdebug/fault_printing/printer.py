"""Faults on stderr when they happen: each in full the first time it comes up, then only counted.

Responsible for output while a script runs; its caller prints the summary. Compile errors
are left out: callers of the compiler get them as exceptions. `processes` decides which process of a
run prints a fault.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.fault_printing.text import counted_line, describe, names_of
from tkdebug.terminal.display import style_of, view_of
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.records.events import Fault

MAX_PRINTED = 50


@dataclass(slots=True)
class _Count:
    """One fault: its first occurrence, and how often it came up since."""

    fault: Fault
    count: int = 0
    launches: int = 0


class FaultPrinter:
    """A subscriber that prints faults when they happen.

    Args:
        claims: whether this process prints a fault that it has not printed; asked once for each.
        end: the line that is printed once in place of all faults after the first `MAX_PRINTED`.
    """

    def __init__(
        self,
        claims: Callable[[Fault], bool] = lambda fault: sys.stderr is not None,
        end: str = "further faults are not shown here; `tkdebug run` has all",
    ) -> None:
        self._claims = claims
        self._end = end
        self._printed = 0
        self._counts: dict[tuple[object, ...], _Count] = {}
        # Worker threads of a script launch, too.
        self._lock = threading.Lock()
        self._owner = self._process = os.getpid()

    def on_fault(self, fault: Fault) -> None:
        """Count `fault`, and print it if it is new; ignore one that does not count."""
        if fault.kind == "compile-error" or not fault.is_open:
            return
        place = (fault.kind, fault.kernel, fault.frames, fault.tensor)
        if os.getpid() != self._process:
            # Forked: a thread that is not here may have held the lock.
            self._lock, self._process = threading.Lock(), os.getpid()
        with self._lock:
            known = self._counts.setdefault(place, _Count(fault))
            is_new = known.launches == 0
            known.count += fault.count
            known.launches += 1
            if not is_new or self._printed > MAX_PRINTED:
                return
            if self._printed == MAX_PRINTED:
                self._printed += 1
                tell(self._end)
                return
            if not self._claims(fault):
                return
            self._printed += 1
        tell(describe(fault, view_of(sys.stderr)), styled=True)

    def reset(self) -> None:
        """Forget what was printed and counted, so that it is printed again."""
        with self._lock:
            self._counts.clear()
            self._printed = 0

    def tell_counts(self) -> None:
        """Print each fault in a line with its counts, unless a single fault came up once.

        A forked child reports nothing: its counts began with its parent's.
        """
        if os.getpid() != self._owner:
            return
        with self._lock:
            counts = list(self._counts.values())
        if sum(known.launches for known in counts) < 2:
            return
        style, names = style_of(sys.stderr), names_of(known.fault for known in counts)
        for known in counts[:MAX_PRINTED]:
            line = counted_line(known.fault, known.count, known.launches, style, names)
            tell(line, styled=True)

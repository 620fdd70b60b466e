"""Kernels that do not end where no core dump can be had, as beside CUPTI: named by launch.

Nothing in the driver stops one kernel, and what waits for it waits forever. So the launch is
reported, with the line that made it, and the script's process ends, by what runs it.

Invariants: nothing here waits for the device; a launch is called stuck only where its stream has
ended nothing for `_STUCK_S`; of launches whose times may have been lost none is named as the one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NoReturn, Protocol

from tkdebug.compat.gpu_failures.running_launches import Running, running_launches
from tkdebug.findings.reporting import report
from tkdebug.records.events import Fault
from tkdebug.runtime.launch.launches_in_flight import Flight
from tkdebug.terminal.text import tell

NEXT_STEP = "the lines where its warps wait need --coredump or --hang-timeout S"
_STUCK_S = 1.5
_TAKE_S = 1.0
_MOST_FAULTS = 8
_MOST_NAMED = 5
_NS_PER_S = 1_000_000_000


class RunOfScript(Protocol):
    """The run whose main thread is stuck."""

    def take_ended(self, limit_s: float) -> None:
        """Have launches know their ends, as far as the device tells without waiting."""
        ...

    def end_stuck(self) -> NoReturn:
        """End the script's process as Ctrl-C would, from another thread than its main one."""
        ...


class UndumpedHangs:
    """Reports which launch is stuck, and ends the run."""

    def __init__(self, run: RunOfScript) -> None:
        self._run = run
        self._has_looked = False

    def look(self, waited: str) -> None:
        """Report it; where launches do end, one after the other, nothing happens.

        Args:
            waited: since when the kernel has not ended, in words.
        """
        self._run.take_ended(_TAKE_S)
        running = running_launches()
        if self._has_looked and running:
            # What was asked for while it ran may have no time: nobody knows which one it is now.
            flights = [flight for one in running for flight in one.flights]
            tell(f"the GPU is still busy; the script ends here, with {_named(flights)} in flight")
            _report_unfinished()
            self._run.end_stuck()
        self._has_looked = True
        stuck = [one for one in running if _is_stuck(one)]
        if not stuck:
            return
        for one in stuck[:_MOST_FAULTS]:
            report(hang_fault(one, waited), is_end=True)
        _report_unfinished()
        self._run.end_stuck()


def _report_unfinished() -> None:
    """Report what checked launches have found so far."""
    # It comes with the interpreter, which needs torch, as what is run here may not.
    from tkdebug.runtime.checked.checked_launches import CHECKED

    CHECKED.report_unfinished()


def hang_fault(running: Running, waited: str) -> Fault:
    """The fault of the launch of these that is stuck, at the line of the script that made it.

    Which of several it is, is not known: the times of those that have ended may not be there yet.
    The line and the kernel are named where they are all launches'.
    """
    first, last = running.flights[0], running.flights[-1]
    count = len(running.flights)
    callers = {flight.caller for flight in running.flights}
    kernels = {flight.kernel.name for flight in running.flights}
    caller = first.caller if len(callers) == 1 else None
    if count == 1:
        programs = math.prod(first.grid)
        said = f"launch {first.launch_id} of {programs:,} program{'s' * (programs != 1)}"
    else:
        said = f"one of {count:,} launches, {first.launch_id} to {last.launch_id}"
    if caller is not None:
        said += ", made here,"
    return Fault(
        kind="hang",
        kernel=first.kernel.name if len(kernels) == 1 else "unknown kernel",
        frames=() if caller is None else (caller,),
        message=f"{said} has not ended {waited}; {NEXT_STEP}",
        launch_id=first.launch_id if count == 1 else 0,
    )


def _is_stuck(running: Running) -> bool:
    """Whether nothing of that stream has ended lately."""
    ended_ns = running.last_end_ns
    return ended_ns is None or time.time_ns() - ended_ns > _STUCK_S * _NS_PER_S


def _named(flights: Sequence[Flight]) -> str:
    names = [f"launch {one.launch_id} ({one.kernel.name})" for one in flights[:_MOST_NAMED]]
    left = len(flights) - len(names)
    return ", ".join(names) + (f" and {left:,} more" if left else "")

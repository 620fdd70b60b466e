"""Interprets programs of a launch again that showed symptoms on a device.

A device notes that a NaN was stored, an integer divided by zero, an offset wrapped, and the first
program that did. The interpreter finds the op that made it and where its result goes, on copies of
the arguments: in all programs, or in that one alone if all take too long. A finding is a fault only
if it is what the device saw: of the same kind, and in no earlier program. Else nothing is reported,
as the arguments are no longer those of the launch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tkdebug.checks import THREAD_ORDER
from tkdebug.compiler.dialects import scf
from tkdebug.compiler.sites.table import HINT, INDEX
from tkdebug.interpreter.closer_looks.reports import symptoms
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.launch import run_programs
from tkdebug.interpreter.observers import CompiledFacts, Moments, Observer

if TYPE_CHECKING:
    from tkdebug.compiler.analysis.thread_order import ThreadOrder
    from tkdebug.compiler.ir import Operation, Region
    from tkdebug.compiler.sites.checks import CheckPlan
    from tkdebug.interpreter.closer_looks.reported_launch import ReportedLaunch
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.tiles.values import TileValue
    from tkdebug.records.events import Fault

# Launches of up to so many programs are looked at as a whole, if that takes no longer.
MOST_PROGRAMS = 1 << 16
WHOLE_S = 0.2
# Only the first programs of other launches are looked at.
_MOST_FIRST = 4
LONGEST_S = 0.3
# Kinds of false promises about numbers: by `tl.multiple_of` and its kin, and of descriptors.
_OF_HINTS = ("assumption", "misaligned-descriptor")
_ACCESS_KINDS = ("oob-load", "oob-store", "oob-atomic")


def needs_closer_look(plan: CheckPlan, table: bytes, faults: Sequence[Fault]) -> bool:
    """Whether a launch showed a symptom, or an access fault, that needs a closer look.

    Args:
        plan: the plan that its table is read by.
        table: the table as the launch left it.
        faults: the faults that the device reported (`faults_of`).
    """
    if symptoms(plan, table):
        return True
    # The access outside of a tensor: of a negative remainder, say, or of all of a block.
    return any(fault.kind in _ACCESS_KINDS for fault in faults)


def look_closer(
    plan: CheckPlan,
    table: bytes,
    launch: ReportedLaunch,
    values: Sequence[Any],
    faults: Sequence[Fault],
    order_of_threads: Callable[[], ThreadOrder | None] | None = None,
    further: frozenset[str] = frozenset(),
) -> list[Fault]:
    """Return the faults of a launch, with those that its device reported.

    Args:
        plan: the plan that its table is read by.
        table: the table as the launch left it.
        launch: the launch.
        values: one for each of the kernel's run-time arguments, as `run_module` takes them: copies
            of what was passed, which are changed.
        faults: the faults that the device reported (`faults_of`).
        order_of_threads: gives the facts of the kernel's threads; None if they are not asked for.
        further: checks that are looked for beside the device's symptoms.

    Raises:
        TooLongError: it would take too long; further checks look at all programs or at none.
    """
    seen = _Seen(launch, symptoms(plan, table), faults, further)
    checks = (seen.symptoms.keys() & {"nan", "inf"}) | further
    compiled = None
    if order_of_threads is not None:
        checks |= {THREAD_ORDER}
        compiled = CompiledFacts(None, order_of_threads)
    total = math.prod(launch.grid)
    ways = [([range(total)], WHOLE_S)] if total <= MOST_PROGRAMS else []
    if not further:
        ways.append((seen.first_programs() or [range(1)], LONGEST_S))
    for programs, longest_s in ways:
        log = FaultLog(launch.kernel, launch.launch_id, launch.grid, False, launch.arguments)
        deadline = _Deadline(time.monotonic() + longest_s)
        try:
            run_programs(
                plan.module, values, launch.grid, programs, log, checks, [deadline], compiled
            )
        except TooLongError:
            continue
        is_whole = sum(map(len, programs)) == total
        return _merged(log.publish(), seen, is_whole)
    raise TooLongError


@dataclass(frozen=True, slots=True)
class _Seen:
    """The symptoms and faults that a device saw in a launch.

    Attributes:
        symptoms: kinds, with the least program (x, y, z) of each.
        reported: the faults that it reported itself.
        further: kinds of faults that no device sees.
    """

    launch: ReportedLaunch
    symptoms: Mapping[str, tuple[int, int, int]]
    reported: Sequence[Fault]
    further: Collection[str] = ()

    def first_programs(self) -> list[range]:
        """Return the first program of each symptom and of each reported access fault."""
        total = math.prod(self.launch.grid)
        first = {
            *map(self._linear, self.symptoms.values()),
            *(self._number(fault) for fault in self.reported if fault.kind in _ACCESS_KINDS),
        }
        chosen = sorted(program for program in first if program < total)[:_MOST_FIRST]
        return [range(program, program + 1) for program in chosen]

    def shows(self, fault: Fault) -> bool:
        """Whether the device saw a symptom of the fault's kind in its program or an earlier one.

        Kinds that no device sees always count; negative remainders and wrapped offsets also count
        if any access fault was reported.
        """
        if fault.kind == THREAD_ORDER or fault.kind in self.further:
            return True  # of which the source, the layouts or all values tell, and no device
        kind: str = HINT if fault.kind in _OF_HINTS else fault.kind
        if fault.kind == "oob-load" and fault.tensor is None:
            kind = INDEX
        if kind in self.symptoms and self._linear(self.symptoms[kind]) <= self._number(fault):
            return True
        # What leads before a tensor: a remainder that is negative, of a product that may wrap.
        is_access = any(other.kind in _ACCESS_KINDS for other in self.reported)
        return is_access and fault.kind in ("negative-remainder", "offset-overflow")

    def _number(self, fault: Fault) -> int:
        return self._linear(fault.program_id or (0, 0, 0))

    def _linear(self, program: tuple[int, int, int]) -> int:
        x, y, z = program
        width, height, _ = self.launch.grid
        return (z * height + y) * width + x


def _merged(found: Sequence[Fault], seen: _Seen, is_whole: bool) -> list[Fault]:
    """Merge the device's reports with the faults that were found on the host."""
    known = {_key(fault): fault for fault in seen.reported}
    merged: list[Fault] = []
    for fault in found:
        same = known.get(_key(fault))
        if same is not None:
            del known[_key(fault)]
            merged.append(_explained(same, fault))
        elif seen.shows(fault):
            merged.append(fault if is_whole else _of_one_program(fault))
    return [*merged, *known.values()]


def _explained(reported: Fault, found: Fault) -> Fault:
    """Return a device's report, with the hint of `found` if that is the same element."""
    is_same = (reported.program_id, reported.lane, reported.index) == (
        found.program_id,
        found.lane,
        found.index,
    )
    return replace(reported, hint=found.hint) if is_same else reported


def _of_one_program(fault: Fault) -> Fault:
    """Return `fault` with a hint that it was counted in its own program alone."""
    x, y, z = fault.program_id or (0, 0, 0)
    said = f"counted in program ({x}, {y}, {z}) alone"
    return replace(fault, hint=said if fault.hint is None else f"{fault.hint}; {said}")


def _key(fault: Fault) -> tuple[str, int | None, str | None]:
    return fault.kind, fault.op_id, fault.tensor


class TooLongError(Exception):
    """Programs take longer than a closer look may."""


class _Deadline(Observer):
    """Raises `TooLongError` past a deadline, checked at each batch and loop iteration."""

    is_passive = True

    def __init__(self, end_s: float) -> None:
        self._end_s = end_s

    def moments(self, op: Operation) -> Moments:
        """Ask to be called at the iterations of loops."""
        return Moments.REGIONS if scf.Loop.matches(op) else Moments.NEVER

    def of_batch(self, run: Evaluator) -> Observer:
        """Check the deadline; return this observer."""
        self._look()
        return self

    def enters(self, run: Evaluator, region: Region, arguments: Sequence[TileValue]) -> None:
        """Check the deadline at an iteration."""
        self._look()

    def _look(self) -> None:
        if time.monotonic() > self._end_s:
            raise TooLongError

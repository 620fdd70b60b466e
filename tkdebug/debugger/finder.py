"""Finder of stops: ends of steps, breakpoints, and, backwards, the last of these.

Going backwards is a search: the launch is executed up to the present, and each moment at which it
would have stopped is noted. The launch then goes to the last one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tkdebug.compiler.frontend.variables import Activation, Mark, MarkKind
from tkdebug.debugger.breakpoints import BreakKind, Breakpoint, Watches
from tkdebug.debugger.elements import Element, find_element
from tkdebug.debugger.execution import Here, Rewind
from tkdebug.debugger.expressions import EvaluationError, compile_expression
from tkdebug.debugger.goals import Goal, Step, StepKind
from tkdebug.debugger.interruption import InterruptedEvaluation
from tkdebug.debugger.programs import ALL, Selection, program_text
from tkdebug.debugger.stops import END, Moment, Reason
from tkdebug.errors import UsageError
from tkdebug.records.events import Fault

if TYPE_CHECKING:
    from tkdebug.debugger.session import LaunchSession
    from tkdebug.interpreter.memory.observed_access import ObservedAccess

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hit:
    """Reasons to stop at a moment, and the programs to select there."""

    reason: Reason
    numbers: tuple[int, ...] = ()
    detail: tuple[str, ...] = ()
    programs: frozenset[int] | None = None


@dataclass(slots=True)
class Search:
    """A search for the last moment before a horizon.

    Attributes:
        goal: the goal of a step back, or of a run back to a line; None for breakpoints.
        origin: the place where it began, to stay at if nothing is found; None to go to the
            beginning.
        missing: the message if it stays there.
        element: the element whose last write is looked for.
        found: the last moment so far.
        hit: the stop there.
        began: the moment before which the execution under way began; None for the horizon.
        present: the launch's moment when it began, and again if it is interrupted.
    """

    horizon: Moment
    goal: Goal | None = None
    element: Element | None = None
    origin: Moment | None = None
    missing: str = ""
    found: Moment | None = None
    hit: Hit | None = None
    began: Moment | None = None
    present: Moment = END


class Finder:
    """Decides at each moment of one launch whether to stop; `look_up` has to be called first.

    Attributes:
        goal: the end of the step under way.
        search: the search under way.
        pending: the reason of the stop at the moment to go to.
        is_pausing: whether to stop as soon as possible; set from any thread.
    """

    def __init__(self, session: LaunchSession) -> None:
        self.goal: Goal | None = None
        self.search: Search | None = None
        self.pending = Hit(Reason.ARRIVED)
        self.is_pausing = False
        self._session = session
        self._accessed: list[tuple[Breakpoint, str, list[int]]] = []
        self._faulted: set[tuple[int, str]] = set()
        self._watches = Watches()
        self._last_line: tuple[int, int] | None = None
        self.stops_at_calls = os.environ.get("PYTHONBREAKPOINT") != "0"
        # The conditions that were interrupted since the last stop, as lines to show.
        self._interrupted: list[str] = []

    def begin_again(self) -> None:
        """Stop at the first line of the launch, which begins again in other code."""
        self.search = None
        self.goal = Goal(Step(StepKind.INTO))
        self.pending = Hit(Reason.ARRIVED)
        self._last_line = None
        self._faulted.clear()
        self._forget_seen()
        self.look_up()

    def look_up(self) -> None:
        """Index the breakpoints again, which have changed."""
        enabled = [one for one in self._session.breakpoints() if one.is_enabled]
        self._by_mark: dict[Mark, list[Breakpoint]] = {}
        at_lines = [one for one in enabled if one.kind is BreakKind.LINE]
        functions = _by_subject(enabled, BreakKind.FUNCTION)
        entered: set[Activation] = set()
        for mark in self._session.code.variables.marks:
            if mark.kind is not MarkKind.LINE:
                continue
            found = [one for one in at_lines if one.is_at(mark.location.file, mark.location.line)]
            if mark.activation not in entered:
                entered.add(mark.activation)
                found += functions.get(mark.activation.function, [])
            if found:
                self._by_mark[mark] = found
        self._ops = _by_subject(enabled, BreakKind.OP)
        self._by_op = {
            op: found
            for subject, found in self._ops.items()
            if (op := self._session.code.op_of(self._session.launch.kernel, subject)) is not None
        }
        self._faults = [one for one in enabled if one.kind is BreakKind.FAULT]
        self._watched = [one for one in enabled if one.is_watch]
        self._data = [
            (one, element)
            for one in enabled
            if one.is_data and (element := self._element(one)) is not None
        ]

    def _element(self, one: Breakpoint) -> Element | None:
        if one.element is not None:
            return one.element
        try:
            return find_element(self._session.inspect(None), one.subject)
        except UsageError:
            return None  # a tensor of other kernels

    # As a stop finder

    @property
    def looks_at_ops(self) -> bool:
        """Whether moments without marks matter."""
        search = self.search
        goal = self.goal if search is None else search.goal
        return (
            self.is_pausing
            or bool(self._ops)
            or bool(self._accessed)
            or (goal is not None and goal.wants_ops)
            or search is not None
        )

    @property
    def follows_accesses(self) -> bool:
        """Whether accesses to memory matter: to a breakpoint, or to the search."""
        return bool(self._data) or (self.search is not None and self.search.element is not None)

    def go_to(self, moment: Moment, reason: Reason) -> None:
        """Prepare to go to a moment that is known."""
        self.pending = Hit(reason)
        self._session.go_to(moment)

    def arrived(self, here: Here) -> None:
        """Stop at the moment that was to be reached."""
        hit, self.pending = self.pending, Hit(Reason.ARRIVED)
        self._forget_seen()
        self._stop(here, hit)

    def begin_search(self, search: Search) -> None:
        """Look for the last moment before its horizon; the launch is about to be executed again."""
        self.search = search
        self._forget_seen()

    def _forget_seen(self) -> None:
        """Forget values seen: time has jumped, so they are no news."""
        self._accessed = []
        self._watches.clear()

    def look(self, here: Here) -> None:
        """Stop at a moment if there is a reason; during a search, note the reason instead.

        Raises:
            Rewind: the launch is to be executed again, from elsewhere.
        """
        search = self.search
        if search is None:
            hit = self._hit(here, is_search=False)
            if hit is not None:
                self._stop(here, hit)
            return
        if self.is_pausing:
            self.search = None
            self._session.stay(search.present, "interrupted", Reason.PAUSE)
            raise Rewind
        if here.moment >= search.horizon:
            self.searched()
            raise Rewind
        hit = None
        if search.element is None:
            hit = self._goal_hit(search.goal, here) if search.goal else self._hit(here, True)
        if hit is not None:
            search.found, search.hit = here.moment, hit

    def searched(self) -> None:
        """Prepare to go to the last moment found, once all before the horizon have been seen."""
        search, session = self.search, self._session
        assert search is not None
        self._forget_seen()
        if search.found is not None:
            self.search = None
            self.pending = search.hit or Hit(Reason.STEP)
            session.go_to(search.found)
            return
        start = session.execution.searched_from(search.began or search.horizon)
        if start.op == 0 and search.origin is not None:
            self.search = None
            session.stay(search.origin, search.missing, Reason.ARRIVED)
            return
        if start.op == 0:
            self.search = None
            self.pending = Hit(Reason.BEGINNING)
            session.go_to(Moment(1, 0))
            return
        # The last op before the checkpoint is to be seen, too; the run begins at the one before.
        search.horizon, search.began = Moment(start.op + 1, 0), Moment(start.op, 0)
        session.execution.rewind(END, until=search.began)

    def accessed(self, here: Here, access: ObservedAccess, is_write: bool) -> None:
        """Note an access that a breakpoint waits for, or a write that the search looks for."""
        search = self.search
        if search is not None:
            if search.element is not None and is_write and here.moment < search.horizon:
                if search.element.touches(access):
                    search.found, search.hit = here.moment, Hit(Reason.WATCH)
                    return
        wanted = BreakKind.WRITE if is_write else BreakKind.READ
        for one, element in self._data:
            if one.kind is not wanted:
                continue
            programs = element.touches(access)
            if not programs:
                continue
            grid = self._session.launch.grid
            who = ", ".join(program_text(each, grid) for each in programs[:4])
            more = f" and {len(programs) - 4} more" if len(programs) > 4 else ""
            verb = "written" if is_write else "read"
            line = here.op.location.primary.line
            noun = "program" if len(programs) == 1 else "programs"
            self._accessed.append(
                (one, f"{element} was {verb} by {noun} {who}{more} at line {line}", programs)
            )

    def faulted(self, here: Here, fault: Fault) -> None:
        """Go back to before an op that had a fault, if a breakpoint waits for that.

        Raises:
            Rewind: one does.
        """
        key = (here.moment.op, fault.kind)
        problems: list[str] = []
        everywhere = ALL.positions(here.run).tolist()
        matching = [
            one
            for one in self._faults
            if one.subject in ("", fault.kind) and self._positions(one, here, everywhere, problems)
        ]
        if self.search is not None or not matching or key in self._faulted:
            return
        self._faulted.add(key)
        self._count(matching)
        from tkdebug.fault_printing.text import describe

        detail = (*problems, *describe(fault).splitlines())
        numbers = tuple(one.number for one in matching)
        self.pending = Hit(Reason.FAULT, numbers, detail, self._first_with(fault))
        self._session.go_to(here.moment)
        raise Rewind

    def _first_with(self, fault: Fault) -> frozenset[int] | None:
        """Return the program that the fault names, to select it; None if it names none."""
        if fault.program_id is None:
            return None
        x, y, z = fault.program_id
        columns, rows, _ = self._session.launch.grid
        return frozenset((x + columns * (y + rows * z),))

    # Hits

    def _hit(self, here: Here, is_search: bool) -> Hit | None:
        if is_search:
            return self._met(here)
        if self.is_pausing:
            self._accessed = []
            return Hit(Reason.PAUSE)
        hit = self._met(here)
        if self.is_pausing:  # a condition was interrupted
            hit = hit or Hit(Reason.PAUSE)
            return replace(hit, reason=Reason.PAUSE, detail=(*self._interrupted, *hit.detail))
        stepped = self._goal_hit(self.goal, here) if self.goal is not None else None
        return hit or stepped

    def _met(self, here: Here) -> Hit | None:
        """The hit of breakpoints, or of a call of `breakpoint()`, at a moment; None for none."""
        session = self._session
        accessed, self._accessed = self._accessed, []
        if accessed:
            problems: list[str] = []
            held = {
                one: text
                for one, text, programs in accessed
                if self._positions(one, here, [n - here.run.first for n in programs], problems)
            }
            kept = self._counted([*held], here)
            detail = (*problems, *(text for one, text in held.items() if one in kept))
            if kept:
                return Hit(Reason.WATCH, tuple(one.number for one in kept), detail)
        candidates: list[Breakpoint] = []
        if here.mark is None:
            if self._ops:
                candidates = [*self._ops.get(here.op.name, ()), *self._by_op.get(here.op, ())]
        else:
            candidates = self._by_mark.get(here.mark, [])
        hit = self._breakpoint_hit(candidates, here) if candidates else None
        if hit is None and self._watched and here.mark is not None:
            hit = self._watch_hit(here)
        if hit is None and here.mark is not None and here.mark.kind is MarkKind.BREAK:
            place = (here.moment.op, here.mark.location.line)
            if (
                self.stops_at_calls
                and session.selection.is_here(here.run)
                and place != self._last_line
            ):
                hit = Hit(Reason.CALL)
        return hit

    def _goal_hit(self, goal: Goal | None, here: Here) -> Hit | None:
        if goal is None or not goal.ends_at(here.mark):
            return None
        if not self._session.selection.is_here(here.run):
            return None
        return Hit(Reason.STEP)

    def _breakpoint_hit(self, candidates: Iterable[Breakpoint], here: Here) -> Hit | None:
        session = self._session
        met: list[Breakpoint] = []
        programs: set[int] | None = None
        problems: list[str] = []
        for one in candidates:
            selection = session.selection
            if one.programs is not None:
                selection = Selection.of(one.programs, session.launch.grid)
            positions = selection.positions(here.run).tolist()
            if not positions:
                continue
            positions = self._positions(one, here, positions, problems)
            if not positions:
                continue
            if one.condition is not None or one.programs is not None:
                programs = (programs or set()) | {here.run.first + place for place in positions}
            met.append(one)
        met = self._counted(met, here)
        if not met:
            return None
        narrowed = None if programs is None else frozenset(programs)
        return Hit(Reason.BREAKPOINT, tuple(m.number for m in met), tuple(problems), narrowed)

    def _positions(
        self, one: Breakpoint, here: Here, positions: list[int], problems: list[str]
    ) -> list[int]:
        """Return the batch positions at which the condition holds, or fails to be evaluated."""
        if one.condition is None or not positions:
            return positions
        text, inspection = one.condition, self._session.inspect(here)
        compiled = one.compiled = one.compiled or compile_expression(text)
        try:
            return self._session.expressions.call(
                lambda: inspection.holds(compiled, text, positions), is_brief=True
            )
        except InterruptedEvaluation:
            self.is_pausing = True
            self._interrupted.append(f"the condition of breakpoint {one.number} was interrupted")
            return []
        except EvaluationError as error:
            problems.append(f"the condition of breakpoint {one.number} failed: {error}")
            return positions

    def see_watched(self, here: Here) -> None:
        """Note the watched values at a stop: later ones that differ are a change."""
        inspection = self._session.inspect(here)
        for one in self._watched:
            self._seen(partial(self._watches.see, one, inspection))

    def _seen(self, look: Callable[[], T]) -> T | None:
        """Return what `look` returns; None if the user's code in it raises or is interrupted."""
        try:
            return self._session.expressions.call(look, is_brief=True)
        except InterruptedEvaluation:
            self.is_pausing = True
        except Exception:
            pass  # as where there is no such variable
        return None

    def _watch_hit(self, here: Here) -> Hit | None:
        session = self._session
        if not session.selection.is_here(here.run):
            return None
        inspection = session.inspect(here)
        problems: list[str] = []
        positions = session.selection.positions(here.run).tolist()
        found = [
            (one, text)
            for one in self._watched
            if (text := self._seen(partial(self._watches.change, one, inspection)))
            and self._positions(one, here, positions, problems)
        ]
        kept = self._counted([one for one, _ in found], here)
        if not kept:
            return None
        assert here.mark is not None
        behind = ""
        if here.mark.kind is MarkKind.SCOPE and here.mark.block.terminator is here.op:
            behind = f", after line {here.mark.location.line}"  # the last one of a branch
        detail = (*problems, *(f"{text}{behind}" for one, text in found if one in kept))
        return Hit(Reason.WATCH, tuple(one.number for one in kept), detail)

    def _counted(self, met: list[Breakpoint], here: Here) -> list[Breakpoint]:
        """Count hits and print log points; return the breakpoints that stop."""
        if self.search is not None:
            return [one for one in met if one.log is None]
        is_new = self._session.execution.is_new
        stopping = []
        for one in met:
            if is_new:
                one.hits += 1
                if one.ignored:
                    one.ignored -= 1
                    continue
            if one.log is not None:
                self._session.log(here, one.log)
                continue
            stopping.append(one)
        return stopping

    def _count(self, met: Iterable[Breakpoint]) -> None:
        for one in met:
            one.hits += 1

    def _stop(self, here: Here, hit: Hit) -> None:
        self.is_pausing = False
        self._interrupted.clear()
        mark = here.mark or here.context
        self._last_line = None if mark is None else (here.moment.op, mark.location.line)
        self._session.stop(here, hit.reason, hit.numbers, hit.detail, hit.programs)


def _by_subject(breakpoints: Iterable[Breakpoint], kind: BreakKind) -> dict[str, list[Breakpoint]]:
    found: dict[str, list[Breakpoint]] = {}
    for one in breakpoints:
        if one.kind is kind:
            found.setdefault(one.subject, []).append(one)
    return found

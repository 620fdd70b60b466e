"""A launch that is debugged, from its first op to the stop at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tkdebug.compiler.frontend.variables import Mark, MarkKind
from tkdebug.debugger.breakpoints import BreakKind, Breakpoint
from tkdebug.debugger.code import DebugCode
from tkdebug.debugger.comparison import difference
from tkdebug.debugger.elements import parse_element
from tkdebug.debugger.execution import Assignment, Execution, Here, LastFaults, Rewind
from tkdebug.debugger.expressions import EvaluationError, truth
from tkdebug.debugger.finder import Finder, Hit, Search
from tkdebug.debugger.goals import (
    ChangeStage,
    Continue,
    Detach,
    Ended,
    Goal,
    GoTo,
    LastWrite,
    Quit,
    Restart,
    Resume,
    RunAgain,
    RunToLine,
    Step,
    StepKind,
)
from tkdebug.debugger.inspection import Inspection, Launch
from tkdebug.debugger.interruption import Interruptible
from tkdebug.debugger.programs import ALL, Selection
from tkdebug.debugger.stops import END, Moment, Reason, Stop
from tkdebug.errors import TkError, UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.engine import Debugger
    from tkdebug.debugger.stages import Stage
    from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel


def refusal(kernel: InterpretedKernel, stage: Stage, error: TkError) -> str:
    """Return why a kernel cannot be run at a stage."""
    return f"{kernel.name} cannot be run at {stage}: {error}"


class LaunchSession:
    """One launch and its stops.

    Attributes:
        selection: the programs that are meant: steps follow them, breakpoints stop for them.
    """

    def __init__(
        self,
        debugger: Debugger,
        launch: Launch,
        kernel: InterpretedKernel,
        code: DebugCode,
        values: Sequence[object],
        faults: LastFaults,
    ) -> None:
        self.launch = launch
        self.kernel = kernel
        self.code = code
        self.selection: Selection = ALL
        self._debugger = debugger
        self._notes: list[str] = []
        self._left = 1
        self._stays_at_end = False
        self._ended_at: Moment | None = None
        self._has_stopped = self._shows_op = False
        self._compared: list[DebugCode] = []
        self.finder = Finder(self)
        self.execution = Execution(
            code, values, launch.grid, faults, self.finder, debugger.memory_bytes
        )
        self.finder.look_up()

    def code_at(self, stage: Stage) -> DebugCode:
        """The kernel's code at another stage.

        Raises:
            TkError: the kernel does not compile to that stage.
        """
        values = tuple(self.launch.arguments.values())
        try:
            return DebugCode.of(self.kernel, stage, self._debugger.target, values)
        except TkError as error:
            raise UsageError(refusal(self.kernel, stage, error)) from error

    @property
    def expressions(self) -> Interruptible:
        """Runs the user's code."""
        return self._debugger.expressions

    def breakpoints(self) -> Sequence[Breakpoint]:
        """The breakpoints of the debugger."""
        return self._debugger.breakpoints

    def run(self, stops_at_once: bool) -> None:
        """Run the launch to its end."""
        if stops_at_once:
            self.finder.goal = Goal.of(Step(StepKind.INTO), None)
        self.execution.execute(self._at_end)

    def inspect(self, here: Here | None) -> Inspection:
        """Return the inspection of a moment."""
        return Inspection(self.launch, self.execution, here, self.selection)

    def log(self, here: Here, text: str) -> None:
        """Print a log point's text."""
        self._debugger.log(self.inspect(here), text)

    # Stops

    def stop(
        self,
        here: Here,
        reason: Reason,
        numbers: Sequence[int],
        detail: Sequence[str],
        programs: frozenset[int] | None,
    ) -> None:
        """Stop at a moment, and go on as the front says."""
        goal = self.finder.goal
        if reason is Reason.STEP and goal is not None and self._left > 1 and goal.step is not None:
            self._left -= 1
            self.finder.goal = self._goal(goal.step, here.mark or here.context)
            return
        self.finder.goal = None
        if programs is not None:
            self.selection = Selection.narrowed(programs, self.launch.grid)
        mark = here.mark
        self._shows_op = mark is not None and not self.code.stage.is_front_end
        stop = Stop(
            reason,
            self.launch.number,
            self.launch.kernel,
            self.inspect(here).frames,
            here.moment,
            tuple(numbers),
            tuple(detail),
            tuple(self._notes),
            mark is not None and mark.kind is MarkKind.RETURN,
        )
        self._notes.clear()
        self._has_stopped = True
        resume = self._debugger.ask(self, here, stop)
        self.finder.look_up()
        self.execution.follow(here.run)
        if self._resumes(resume, here.moment, here.mark or here.context):
            raise Rewind
        self.finder.see_watched(here)

    def _at_end(self) -> bool:
        """End an execution; return whether the launch is over."""
        finder = self.finder
        if finder.search is not None:
            finder.searched()
            return False
        wanted = [
            one
            for one in self.breakpoints()
            if one.is_enabled
            and one.kind is BreakKind.END
            and one.subject in ("", self.launch.kernel)
            and self._holds_at_end(one)
        ]
        stepped_off = finder.goal is not None and finder.goal.step is not None
        stays, self._stays_at_end = self._stays_at_end, False
        if wanted or self._has_stopped:
            self._compare()
        if not wanted and not stepped_off and not stays:
            return True
        for one in wanted:
            one.hits += not stays
        finder.goal = None
        moment = self._ended_at = Moment(self.execution.now + 1, 0)
        numbers = () if stays else tuple(one.number for one in wanted)
        launch, notes = self.launch, tuple(self._notes)
        self._notes.clear()
        stop = Stop(Reason.END, launch.number, launch.kernel, (), moment, numbers, notes=notes)
        resume = self._debugger.ask(self, None, stop)
        finder.look_up()
        if isinstance(resume, Step) and not resume.backwards:
            self._debugger.stop_at_next_launch()
            return True
        return not self._resumes(resume, moment, None)

    def _holds_at_end(self, one: Breakpoint) -> bool:
        """Whether its condition holds for the arguments; one that fails stops."""
        if one.condition is None:
            return True
        try:
            condition, inspection = one.condition, self.inspect(None)
            return self.expressions.call(lambda: truth(inspection.evaluate(condition)))
        except EvaluationError as error:
            self._notes.append(f"the condition of breakpoint {one.number} failed: {error}")
            return True

    def _compare(self) -> None:
        """Report, once for each IR, that it stored other values than the launch."""
        if self.execution.has_assignments or self.code in self._compared:
            return
        if 2 * self.execution.written_bytes > self._debugger.memory_bytes:
            return  # what is kept meanwhile would not fit
        self._compared.append(self.code)
        launch, stage = self.launch, self.code.stage
        who = f"launch {launch.number} of {launch.kernel}"
        try:
            found = difference(self.execution, self.kernel.module, launch.arguments)
        except TkError as error:
            self._debugger.front.log(f"{who}: without the debugger it fails: {error}")
            return
        if found:
            before = ", before any pass," if stage.is_front_end else ""
            self._debugger.front.log(
                f"{who}: at {stage}{before} it stores something else than a launch does: {found}"
            )

    # Going on

    def _resumes(self, resume: Resume, now: Moment, mark: Mark | None) -> bool:
        """Prepare to go on; return whether the launch is to be executed again."""
        match resume:
            case Quit(runs_again=runs_again):
                self._debugger.end_script(RunAgain(0) if runs_again else Ended(0))
            case Detach():
                self._debugger.detach()
                for one in self.breakpoints():
                    one.is_enabled = False
                self.finder.stops_at_calls = False
                self.finder.look_up()
                return False
            case Restart():
                self._undo_assignments(Moment(0, 0))
                self.go_to(Moment(1, 0))
                return True
            case ChangeStage():
                self.code = self.code_at(self._debugger.stage)
                self.execution.begin_again(self.code)
                self.finder.begin_again()
                return True
            case GoTo(moment=moment):
                self._undo_assignments(moment)
                self.go_to(moment)
                return True
            case LastWrite(element=element):
                if isinstance(element, str):
                    element = parse_element(element, self.launch.arguments)
                missing = f"{element} was not written before this"
                search = Search(now, element=element, origin=now, missing=missing)
                return self._search(search, now)
            case Continue(backwards=True):
                return self._search(Search(now), now)
            case Step(backwards=True):
                horizon = now if resume.kind is StepKind.OP else self._line_began(now, mark)
                return self._search(Search(horizon, self._goal(resume, mark)), now)
            case RunToLine(backwards=True):
                goal = Goal(target=(resume.file, resume.line))
                missing = f"line {resume.line} has not run before this"
                return self._search(Search(now, goal, origin=now, missing=missing), now)
            case Continue():
                return False
            case RunToLine():
                self.finder.goal = Goal(target=(resume.file, resume.line))
                return False
            case Step():
                self._left = resume.count
                if resume.kind is StepKind.OP and self._shows_op:
                    self._left += 1  # the op of the line was shown at the line already
                self.finder.goal = self._goal(resume, mark)
                return False

    def _goal(self, step: Step, mark: Mark | None) -> Goal:
        return Goal.of(step, mark, self.code.stage.is_front_end)

    def _search(self, search: Search, now: Moment) -> bool:
        goal = search.goal
        if goal is not None and not goal.wants_ops:
            for passed in reversed(self.execution.passed):
                if passed.moment >= search.horizon or not goal.ends_at(passed.mark):
                    continue
                if self.selection.is_among(passed.first, passed.programs, passed.active):
                    self.finder.go_to(passed.moment, Reason.STEP)
                    return True
        search.present = now
        self.finder.begin_search(search)
        self.execution.rewind(END, until=search.horizon)
        return True

    def _line_began(self, now: Moment, mark: Mark | None) -> Moment:
        """Return when the line that is stopped in began: a step back is to the one before it."""
        found = (each.moment for each in reversed(self.execution.passed) if each.mark is mark)
        return next((moment for moment in found if moment <= now), now)

    def stay(self, moment: Moment, missing: str, reason: Reason) -> None:
        """Prepare to return to the moment where a search began that has found nothing."""
        self._notes.append(f"{missing}: the launch stays where it is")
        self._stays_at_end = moment == self._ended_at
        self.finder.pending = Hit(reason)
        self.go_to(moment)

    def go_to(self, moment: Moment) -> None:
        """Prepare another execution of the launch, up to a moment."""
        self._undo_assignments(moment)
        self.execution.rewind(moment)

    def _undo_assignments(self, moment: Moment) -> None:
        gone = self.execution.forget_assignments(Moment(moment.op, moment.place + 1))
        if gone:
            what = "an assignment was" if gone == 1 else f"{gone} assignments were"
            self._notes.append(f"{what} undone: time ran back to before")

    def assign(self, here: Here, inspection: Inspection, name: str, text: str, frame: int) -> None:
        """Assign to a variable."""
        value, data = inspection.assigned(name, text, frame)
        self.execution.assign(Assignment(here.moment, here.run.first, value, data), here.run)

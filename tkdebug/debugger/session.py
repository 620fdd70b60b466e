"""A launch that is debugged, from its first op to the stop at its end.

What it stored under the debugger is compared with what it stores without one. A debugger runs
another IR than a launch does: one before most passes, or after more of them. If both are to store
the same bits, every bit is compared. If one of them may sum in another order (dots, reductions,
atomic sums, GPU IR), elements may differ by as much as rounding makes probable, relative to the
largest element that is read or written: a false alarm is worse than a miss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.frontend.variables import Mark, MarkKind
from tkdebug.compiler.ir import Module, ScalarType
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.debugger.breakpoints import BreakKind, Breakpoint
from tkdebug.debugger.code import DebugCode
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
from tkdebug.interpreter.replay import Parameters

if TYPE_CHECKING:
    from tkdebug.debugger.engine import Debugger
    from tkdebug.debugger.stages import Stage
    from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel

# What tiles of a type may differ by, relative to the largest element: many roundings, since errors
# add up along sums and grow where large numbers cancel. Those of fp8 are not compared at all.
_TOLERANCES = {"f64": 1e-9, "f32": 1e-3, "f16": 2e-2, "bf16": 1e-1}
# Where a comparison of floats or a rounding to integers decides, a bit may change an element
# altogether; then so many of a tensor's elements have to differ before anything is said.
_FEWEST_PART = 0.01
_DECIDING = names_of(arith.CmpF, arith.FloatToInteger, tt.Bitcast)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The way in which results of two IRs of a kernel are compared.

    Attributes:
        tolerance: the tolerance for floats, relative to the largest; 0 for bits, None if only
            infinities and NaNs are compared.
        decides: whether rounding may decide a comparison, so that elements differ by any amount.
    """

    tolerance: float | None
    decides: bool

    @classmethod
    def of(cls, code: DebugCode, launched: Module) -> Comparison | None:
        """Return how a debugger's run compares with a launch's; None if they cannot be compared."""
        if Parameters.of(launched) is None or Parameters.of(code.module) is None:
            return None
        decides = _decides(code.module)
        if not (code.stage.is_gpu or code.rounds_otherwise or _sums(launched)):
            return cls(0.0, decides)
        types = _float_types(code.module)
        found = [_TOLERANCES.get(name) for name in types]
        if None in found:
            return cls(None, decides)
        return cls(max((one for one in found if one is not None), default=0.0), decides)

    def difference(
        self, got: Mapping[str, Tensor], wanted: Mapping[str, Tensor], largest: float
    ) -> str:
        """The first element that differs, and by how much; "" if none or too few do.

        Args:
            got: the results of the debugger's run, by the names of arguments.
            wanted: the results of the launch.
            largest: the largest magnitude that the launch read.
        """
        for name, mine in got.items():
            theirs = wanted[name]
            bad = self._differing(mine, theirs, largest)
            count = int(bad.sum())
            enough = _FEWEST_PART * bad.numel() if self.decides and self.tolerance else 1
            if not count or count < enough:
                continue
            return _difference_text(name, mine, theirs, bad, count)
        return ""

    def _differing(self, mine: Tensor, theirs: Tensor, largest: float) -> Tensor:
        if not mine.dtype.is_floating_point:
            return mine != theirs
        a, b = mine.double(), theirs.double()
        both_nan = a.isnan() & b.isnan()
        if self.tolerance == 0.0:
            return (a != b) & ~both_nan
        finite = a.isfinite() & b.isfinite()
        unlike = (a != b) & ~both_nan & ~finite
        if self.tolerance is None or not bool(finite.any()):
            return unlike
        scale = max(largest, float(b[finite].abs().max()))
        return unlike | (finite & ((a - b).abs() > self.tolerance * scale))


def _difference_text(name: str, mine: Tensor, theirs: Tensor, bad: Tensor, count: int) -> str:
    place = tuple(int(axis[0]) for axis in bad.nonzero(as_tuple=True)) if bad.dim() else ()
    a, b = mine[place].item(), theirs[place].item()
    shown = f"{name}[{', '.join(map(str, place))}]" if place else name
    by = (
        f", by {abs(a - b):.3g}" if isinstance(a, int | float) and abs(a - b) < float("inf") else ""
    )
    more = f"; {count} of {mine.numel()} elements differ" if mine.numel() > 1 else ""
    return f"{shown} is {_text(a)}, the launch gives {_text(b)}{by}{more}"


def _text(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def difference(execution: Execution, launched: Module, arguments: Mapping[str, Any]) -> str:
    """Say how a debugger's ended execution differs from a launch.

    "" if it does not differ, or cannot be compared.

    Args:
        execution: the execution of the launch, without assignments.
        launched: the IR that the launch runs without a debugger.
        arguments: the launch's, by name.

    Raises:
        TkError: the launch fails without a debugger.
    """
    comparison = Comparison.of(execution.code, launched)
    parameters = Parameters.of(launched)
    if comparison is None or parameters is None:
        return ""
    total = math.prod(execution.grid)
    if execution.batch_programs < total and parameters.read & parameters.written:
        return ""  # batches of another size may see what others have written
    names, tensors = tt.Func(launched.function).arg_names, tensors_of(arguments)
    written = {name for place, name in enumerate(names) if place in parameters.written}
    read = {name for place, name in enumerate(names) if place in parameters.read}
    got = {name: torch.clone(tensors[name]) for name in tensors if name in written}
    with execution.as_it_began():
        largest = largest_of([tensors[name] for name in tensors if name in read])
        execution.run_beside(launched)
        return comparison.difference(got, tensors, largest)


def tensors_of(arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a launch, those of descriptors too, by the names of arguments."""
    found: dict[str, Tensor] = {}
    for name, value in arguments.items():
        tensor = value if isinstance(value, Tensor) else getattr(value, "base", None)
        if isinstance(tensor, Tensor):
            found[name] = tensor
    return found


def largest_of(tensors: Sequence[Tensor]) -> float:
    """The largest finite magnitude among floats; 0 for none."""
    found = 0.0
    for tensor in tensors:
        if tensor.dtype.is_floating_point and tensor.numel():
            wide = tensor.float()
            finite = wide[wide.isfinite()]
            if finite.numel():
                found = max(found, float(finite.abs().max()))
    return found


def _sums(module: Module) -> bool:
    """Whether floats are summed up, in an order that is the interpreter's."""
    return any(
        tt.Dot.matches(op) or tt.Reduce.matches(op) or tt.Scan.matches(op) or tt.Atomic.matches(op)
        for op in module.walk()
        if any(map(_is_float, (value.type for value in op.operands)))
    )


def _decides(module: Module) -> bool:
    return any(
        op.name in _DECIDING or (tt.Reduce.matches(op) and len(op.operands) > 1)
        for op in module.walk()
        if any(map(_is_float, (value.type for value in op.operands)))
    )


def _is_float(type_: ir.Type) -> bool:
    element = ir.element_of(type_)
    return isinstance(element, ScalarType) and element.is_float


def _float_types(module: Module) -> set[str]:
    values = (value for op in module.walk() for value in (*op.operands, *op.results))
    return {str(ir.element_of(value.type)) for value in values if _is_float(value.type)}


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
        """Stop at a moment, unless further steps follow, and go on as the front says.

        Raises:
            Rewind: the launch is to be executed again.
        """
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
        """Return the moment when the line of the stop began: a step back goes to before it."""
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
        """Assign the value of `text` to a variable, in the selected programs."""
        value, data = inspection.assigned(name, text, frame)
        self.execution.assign(Assignment(here.moment, here.run.first, value, data), here.run)

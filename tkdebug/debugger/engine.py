"""The debugger: takes over launches, and asks a front how to go on at each stop.

Threads: `Front.stopped` is called in the thread that runs the programs; it may take as long as it
likes, and whatever is asked of the debugger at a stop is asked in that thread (`QueuedFront` does
that for fronts which live in another one). Breakpoints may be changed, and `pause` called, from any
thread. A launch that nothing can stop runs as without a debugger.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from tkdebug.causes.launches import RememberedLaunches
from tkdebug.debugger.breakpoints import BreakKind, Breakpoint
from tkdebug.debugger.code import DebugCode, pass_names
from tkdebug.debugger.elements import tensor_in
from tkdebug.debugger.execution import Here, LastFaults
from tkdebug.debugger.expressions import EvaluationError, compile_expression
from tkdebug.debugger.goals import Ended, Resume
from tkdebug.debugger.inspection import Inspection, Launch, host_frames
from tkdebug.debugger.interruption import Interruptible
from tkdebug.debugger.programs import Selection
from tkdebug.debugger.session import LaunchSession, refusal
from tkdebug.debugger.stages import FRONT_END, parse_stage
from tkdebug.debugger.stops import Moment, Stop
from tkdebug.debugger.value_text import found_text
from tkdebug.debugger.why.writers import Writers
from tkdebug.errors import NothingStoppedError, TkError, UsageError
from tkdebug.interpreter.checks.unwritten.gaps import HELD_GAPS
from tkdebug.records.events import LaunchRecord
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.arguments.specialize import runtime_values
from tkdebug.runtime.compile.compilation import TRYING

if TYPE_CHECKING:
    from tkdebug.debugger.recorded_values import RecordedValues
    from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel

_IN_BRACES = re.compile(r"\{([^{}]*)\}")


class Front(Protocol):
    """A front that is asked at a stop: a console, a pane, a protocol's adapter."""

    def stopped(self, debugger: Debugger, stop: Stop) -> Resume:
        """Ask how the stopped launch goes on, and return that.

        Called in the thread that runs the programs. Everything of `debugger` may be used until it
        returns. A `Resume` that is wrong raises UsageError before the launch goes on, and this is
        called again.
        """
        ...

    def log(self, text: str) -> None:
        """Take a log point's text, or another message while a launch runs."""
        ...


class Debugger:
    """Stops launches of interpreted kernels.

    Args:
        front: the front that is asked at stops.
        memory_bytes: the most memory that checkpoints of one launch may hold.
        stops_in_trials: whether launches of autotuning and of `do_bench` stop, too.
        target: see below.
        recorded: values of another run, with which stops compare theirs.

    Attributes:
        breakpoints: in the order in which they were made; change them by the methods here.
        inspection: the answers about a stop, None if nothing is stopped.
        stop: the stop, None while nothing is stopped.
        launches: the number of launches, without those of trials.
        stage: the IR in which kernels run.
        target: the architecture that GPU IR is for; None for the usual one.
        is_detached: whether launches are not debugged.
        tracing: traces the script's own lines again once the launch has ended.
        expressions: runs the user's code, and interrupts it.
    """

    def __init__(
        self,
        front: Front,
        *,
        memory_bytes: int = 1 << 30,
        stops_in_trials: bool = False,
        target: str | None = None,
        recorded: RecordedValues | None = None,
    ) -> None:
        self.front = front
        self.memory_bytes = memory_bytes
        self.stops_in_trials = stops_in_trials
        self.breakpoints: list[Breakpoint] = []
        self.inspection: Inspection | None = None
        self.stop: Stop | None = None
        self._numbers = 0
        self.launches = 0
        self.is_detached = False
        self.stage = FRONT_END
        self.target = target
        self._logged: set[object] = set()
        self._stops_at_next = False
        self._session: LaunchSession | None = None
        self._here: Here | None = None
        self._writers = Writers()
        self._recorded = recorded
        self.tracing: Any = None
        self.expressions = Interruptible()
        self._launches_of: Counter[str] = Counter()

    def attach(self) -> None:
        """Take over the launches of this process from now on."""
        self.is_detached = False
        HOOKS.debugger = self

    def detach(self) -> None:
        """Leave launches alone from now on, those of kernels that call `breakpoint()`, too."""
        self.is_detached = True
        if HOOKS.debugger is self:
            HOOKS.debugger = None

    def begin_again(self) -> None:
        """Hear that the script begins again: launches are counted from 1, breakpoints stay."""
        self.attach()
        self.launches = 0
        self._launches_of.clear()
        self._writers = Writers()
        self._stops_at_next = False

    def end_script(self, how: Ended) -> NoReturn:
        """End the script now: gaps that it would have read later are not judged."""
        HELD_GAPS.forget()
        raise how

    # Stages

    def stages(self) -> tuple[list[str], list[str]]:
        """The passes over Tile IR, and those from there to GPU IR, in order."""
        kernel = None if self._session is None else self._session.kernel
        return pass_names(kernel, self.target)

    def choose_stage(self, text: str) -> None:
        """Run kernels in another IR from the next launch on.

        At a stop, `ChangeStage` begins the launch again in it.

        Raises:
            UsageError: there is no such stage.
            TkError: the kernel that is stopped does not compile to it.
        """
        stage = parse_stage(text, *self.stages())
        if self._session is not None:
            self._session.code_at(stage)
        self.stage = stage

    # Breakpoints

    def add(self, kind: BreakKind, subject: str = "", **options: Any) -> Breakpoint:
        """Add a breakpoint, and return it.

        Args:
            kind: the event that it waits for.
            subject: the subject of that kind, as `Breakpoint.subject`.
            options: further attributes of it.

        Raises:
            EvaluationError: the condition, or the watched expression, is no expression.
        """
        condition = options.get("condition")
        if condition is not None:
            compile_expression(condition)
        if kind in (BreakKind.CHANGE, BreakKind.NAN, BreakKind.INF):
            compile_expression(subject)
        self._numbers += 1
        made = Breakpoint(self._numbers, kind, subject=subject, **options)
        self.breakpoints = [*self.breakpoints, made]
        self._changed()
        return made

    def reserve_numbers(self, upto: int) -> int:
        """Give breakpoints made from now on higher numbers; return the last number used."""
        self._numbers = max(self._numbers, upto)
        return self._numbers

    def add_line(self, file: str, line: int, **options: Any) -> Breakpoint:
        """Add a breakpoint at a line, which has to be the first of a statement; return it.

        Args:
            file: its path, as Python has it (`__file__`).
            line: 1 for the first.
            options: further attributes of it.
        """
        return self.add(BreakKind.LINE, file=file, line=line, **options)

    def remove(self, number: int) -> Breakpoint:
        """Remove a breakpoint, and return it.

        Raises:
            UsageError: there is no such breakpoint.
        """
        found = self.breakpoint(number)
        self.breakpoints = [one for one in self.breakpoints if one is not found]
        self._changed()
        return found

    def change(self, number: int, **options: Any) -> Breakpoint:
        """Change attributes of a breakpoint: condition, is_enabled, ignored, log, programs."""
        condition = options.get("condition")
        if condition is not None:
            compile_expression(condition)
        found = self.breakpoint(number)
        for name, value in options.items():
            setattr(found, name, value)
        found.compiled = None
        self._changed()
        return found

    def breakpoint(self, number: int) -> Breakpoint:
        """The breakpoint of that number.

        Raises:
            UsageError: there is no such breakpoint.
        """
        for one in self.breakpoints:
            if one.number == number:
                return one
        raise UsageError(f"there is no breakpoint {number}")

    def unmet(self) -> list[str]:
        """Return a line for each enabled breakpoint never met, and one if no kernel was run."""
        answer = [] if self.launches else ["the script has launched no kernel"]
        unmet = (one for one in self.breakpoints if not one.hits and one.is_enabled)
        return answer + [
            f"breakpoint {one.number} was never met: {one.describe()}" for one in unmet
        ]

    def _changed(self) -> None:
        session = self._session
        if session is not None:
            session.finder.look_up()

    # At a stop

    @property
    def at_stop(self) -> Inspection:
        """The inspection of the stopped launch.

        Raises:
            UsageError: nothing is stopped.
        """
        if self.inspection is None:
            raise NothingStoppedError("no kernel is stopped")
        return self.inspection

    @property
    def frontier(self) -> Moment:
        """The last moment that the stopped launch has reached."""
        assert self._session is not None
        return self._session.execution.frontier

    @property
    def selection(self) -> Selection:
        """The programs that commands apply to."""
        return self.at_stop.selection

    def select(self, selection: Selection) -> None:
        """Select programs: from now on, steps follow them and breakpoints stop for them."""
        inspection, session = self.at_stop, self._session
        assert session is not None
        session.selection = inspection.selection = selection

    def assign(self, name: str, text: str, frame: int = 0) -> None:
        """Assign the value of an expression to a variable, in the selected programs.

        The kernel computes with it from now on; going back to before undoes it.

        Raises:
            UsageError: the value cannot be assigned.
        """
        inspection, session, here = self.at_stop, self._session, self._here
        if session is None or here is None:
            raise UsageError("the launch has ended: nothing computes with its variables any more")
        if not session.code.stage.is_front_end:
            raise UsageError(
                f"`{name}` cannot be assigned at {session.code.stage}: passes may have made "
                "several values of it; `stage tile-ir` begins the launch again where it can"
            )
        session.assign(here, inspection, name, text, frame)

    @property
    def is_running(self) -> bool:
        """Whether a launch that can be stopped runs, and is not stopped."""
        return self._session is not None and self.inspection is None

    @property
    def has_launch(self) -> bool:
        """Whether a launch that can be stopped runs, or is stopped."""
        return self._session is not None

    def stop_at_next_launch(self) -> None:
        """Stop at the first line of the next launch."""
        self._stops_at_next = True

    def forget_next_launch(self) -> None:
        """Cancel `stop_at_next_launch`."""
        self._stops_at_next = False

    def pause(self) -> None:
        """Stop this launch, or else the next one, as soon as possible; interrupt an evaluation."""
        session = self._session
        if session is None:
            self._stops_at_next = True
        elif self.inspection is None:
            session.finder.is_pausing = True
        self.expressions.interrupt()

    # Launches

    def launch(
        self,
        kernel: object,
        grid: tuple[int, int, int],
        values: tuple[object, ...],
        record: LaunchRecord | None,
    ) -> bool:
        """Run a launch if something may stop it; return whether it ran. Called by the runtime."""
        from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel

        assert isinstance(kernel, InterpretedKernel)
        if self.is_detached or (not self.stops_in_trials and _is_trial()):
            return False
        self.launches += 1
        self._launches_of[kernel.name] += 1
        if self._session is not None:
            return False  # an expression at a stop launches a kernel
        code = self._code_to_stop(kernel, values)
        if code is None:
            self._wrote(kernel, values)
            return False
        names = kernel.src.fn.arg_names
        arguments = dict(zip(names, values, strict=True))
        faults = LastFaults(kernel.name, 0 if record is None else record.id, grid, True, arguments)
        session = LaunchSession(
            self,
            Launch(
                self.launches,
                kernel.name,
                grid,
                arguments,
                self._writers.of(values),
                self._writers,
                host_frames(sys._getframe()),  # noqa: SLF001
            ),
            kernel,
            code,
            runtime_values(kernel.src.specs, values),
            faults,
        )
        stops_at_once, self._stops_at_next = self._stops_at_next, False
        self._session = session
        # The trace function of the script's debugger, which is not to see tkdebug's own lines.
        self.tracing = sys.gettrace()
        sys.settrace(None)
        for argument in arguments.values():
            if (tensor := tensor_in(argument)) is not None:
                HELD_GAPS.use(tensor)  # whether it reads gaps is not looked for here
        try:
            with HELD_GAPS.aside(), self.expressions.outside():
                session.run(stops_at_once)
        finally:
            if self.tracing is not None:
                sys.settrace(self.tracing)
            self._session = None
            found = session.execution.faults
            self._wrote(kernel, values)
            found.is_reported = True
            found.publish()
        return True

    def _wrote(self, kernel: InterpretedKernel, values: tuple[object, ...]) -> None:
        """Note what the last launch writes, before the follower of launches hears of it."""
        remembered = HOOKS.follower
        place = remembered.total if isinstance(remembered, RememberedLaunches) else -1
        ordinal = self._launches_of[kernel.name]
        stored = kernel.stored_to(values)
        self._writers.note(stored, self.launches, kernel.name, ordinal, place)

    def _code_to_stop(
        self, kernel: InterpretedKernel, values: tuple[object, ...]
    ) -> DebugCode | None:
        """The code of a kernel, None if nothing may stop its launch."""
        enabled = [one for one in self.breakpoints if one.is_enabled]
        if not (enabled or self._stops_at_next or kernel.breakpoints):
            return None
        try:
            code = DebugCode.of(kernel, self.stage, self.target, values)
        except TkError as error:
            if self.stage.is_front_end:
                raise
            message = f"{refusal(kernel, self.stage, error)}; it runs at {FRONT_END}"
            if message not in self._logged:
                self._logged.add(message)
                self.front.log(message)
            code = DebugCode.of(kernel)
        lines, functions = set(code.lines()), code.functions()
        self._tell_lines_without_ops(kernel, code, lines)
        if self._stops_at_next or kernel.breakpoints:
            return code
        for one in enabled:
            match one.kind:
                case BreakKind.LINE:
                    stops = any(one.is_at(*line) for line in lines)
                case BreakKind.FUNCTION:
                    stops = one.subject in functions
                case BreakKind.END:
                    stops = one.subject in ("", kernel.name)
                case _:
                    stops = True
            if stops:
                return code
        return None

    def _tell_lines_without_ops(
        self, kernel: InterpretedKernel, code: DebugCode, lines: set[tuple[str, int]]
    ) -> None:
        """Log, once each, the breakpoints at lines of which passes have left no op."""
        if code.stage.is_front_end:
            return
        gone = set(DebugCode.of(kernel).lines()) - lines
        for one in self.breakpoints:
            place = next((line for line in gone if one.is_at(*line)), None)
            once = (one.number, str(code.stage))
            if one.kind is not BreakKind.LINE or place is None or once in self._logged:
                continue
            self._logged.add(once)
            others = [line for file, line in lines if file == place[0]]
            near = min(others, key=lambda line: abs(line - place[1]), default=None)
            hint = "" if near is None else f"; the nearest line with one is {near}"
            self.front.log(
                f"breakpoint {one.number}: at {code.stage} no op is left of line {place[1]}{hint}"
            )

    def ask(self, session: LaunchSession, here: Here | None, stop: Stop) -> Resume:
        """Ask the front how to go on. Called by the launch that is stopped."""
        for number in stop.breakpoints:
            if any(one.number == number and one.is_temporary for one in self.breakpoints):
                self.remove(number)
        inspection = self.inspection = session.inspect(here)
        if self._recorded is not None:
            number = self._launches_of[inspection.launch.kernel]
            compared = self._recorded.compared(inspection, number)
            stop = replace(stop, notes=(*stop.notes, *compared))
        self.stop, self._here = stop, here
        try:
            return self.front.stopped(self, stop)
        finally:
            self.inspection = self.stop = self._here = None

    def log(self, inspection: Inspection, text: str) -> None:
        """Hand a log point's text to the front, with the expressions in braces evaluated."""

        def value_text(text: str) -> str:
            found = inspection.ask(text)
            return found_text(found, inspection.programs, inspection.launch.grid)

        def shown(match: re.Match[str]) -> str:
            try:
                return self.expressions.call(lambda: value_text(match[1]), is_brief=True)
            except EvaluationError as error:
                return f"<{error}>"

        self.front.log(_IN_BRACES.sub(shown, text))


def _is_trial() -> bool:
    """Whether a tuner or a benchmark launches."""
    if TRYING.get():
        return True
    frame = sys._getframe(1)  # noqa: SLF001
    at: Any = frame
    while at is not None:
        if at.f_code.co_name in _BENCHMARKS and "benchmark" in at.f_code.co_filename:
            return True
        at = at.f_back
    return False


_BENCHMARKS = frozenset(("do_bench", "do_bench_cudagraph"))

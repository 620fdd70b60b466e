"""One launch under a debugger, executed as often as it takes to be at any moment of it.

Responsible for time: counting ops, stopping, going back by executing again from a checkpoint, and
executions beside the launch, which count ops as it did. The stop finder decides where to stop
(`finder`), the debugger what to do there. Invariant: each execution passes the same moments with
the same values, up to the first assignment that was undone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, TypeVar

from torch import Tensor

from tkdebug.compiler.dialects import tt, ttng
from tkdebug.compiler.dialects.interfaces import Effects, StatementRegions
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.frontend.variables import Mark
from tkdebug.compiler.ir import Module, Operation, Region, Value
from tkdebug.debugger.checkpoints import Checkpoints
from tkdebug.debugger.code import DebugCode
from tkdebug.debugger.stops import BEGINNING, END, Moment
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.launch import run_debugged
from tkdebug.interpreter.observers import LaunchContext, Moments, Observer
from tkdebug.interpreter.tiles.values import BufferView, TileValue
from tkdebug.records.events import Fault
from tkdebug.runtime.compile.debugged_stages import values_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.memory.observed_access import ObservedAccess
    from tkdebug.interpreter.state import EvaluatorState

_MOST_PASSED = 200_000
_EXACT_SECONDS = 5.0
_Beside = TypeVar("_Beside", bound=Observer)


@dataclass(frozen=True, slots=True, eq=False)
class Here:
    """The present moment of a launch, at which it could be stopped.

    Attributes:
        run: the batch; its values may be read, and changed through the debugger.
        op: the op that is about to run.
        mark: the line that begins, or None between lines.
        context: the mark whose names are in force.
    """

    run: Evaluator
    op: Operation
    mark: Mark | None
    context: Mark | None
    moment: Moment


class Passed(NamedTuple):
    """A line that was passed.

    Attributes:
        first: the first program of the batch.
        programs: the number of its programs.
        active: (programs,) bool, the programs that took part; None for all.
    """

    moment: Moment
    mark: Mark
    first: int
    programs: int
    active: Tensor | None


class StopFinder(Protocol):
    """Decides at each moment whether to stop."""

    @property
    def looks_at_ops(self) -> bool:
        """Whether moments without marks matter to it."""
        ...

    @property
    def follows_accesses(self) -> bool:
        """Whether it wants to see accesses."""
        ...

    def arrived(self, here: Here) -> None:
        """Hear that this is the moment that was to be reached."""
        ...

    def look(self, here: Here) -> None:
        """Hear of a later moment, or of any moment during a search."""
        ...

    def accessed(self, here: Here, access: ObservedAccess, is_write: bool) -> None:
        """Hear that the op of `here` accessed memory."""
        ...

    def faulted(self, here: Here, fault: Fault) -> None:
        """Hear that the op of `here` had a fault."""
        ...


class Traced(BaseException):
    """Ends an execution beside the launch that has reached the requested moment."""


class Rewind(BaseException):
    """Ends an execution, so that another one can begin."""


class LastFaults(FaultLog):
    """A log that keeps the fault that was added last."""

    fresh: Fault | None = None

    def add(self, fault: Fault) -> None:
        """Record `fault`."""
        super().add(fault)
        self.fresh = fault


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """A value that replaced a computed one.

    Attributes:
        first: the first program of the batch.
        data: the IR value's tile from then on.
    """

    moment: Moment
    first: int
    value: Value
    data: Tensor


class Execution(Observer):
    """A launch that is executed, and executed again.

    Attributes:
        now: the number of ops that have begun.
        faults: the faults of this execution.
        entered: for each running batch, the ops whose regions are running, outermost first, with
            the programs in them.
        begun: the first programs of the batches that have begun.
        ended: the first programs of the batches that have ended.
        frontier: the latest moment ever reached.
        recorded: by the number of ops begun, results that are no function of the inputs.
        passed: the lines that were passed, the latest ones if they are too many.
        is_new: whether the moment that is looked at was never reached before.
    """

    needs_intermediates = True
    is_passive: ClassVar[bool] = False
    # Variables are kept, and batches are small, so that one is executed again quickly.
    memory_factor = 4

    def __init__(
        self,
        code: DebugCode,
        values: Sequence[object],
        grid: tuple[int, int, int],
        faults: LastFaults,
        finder: StopFinder,
        memory_bytes: int,
    ) -> None:
        self.code = code
        self.grid = grid
        self.faults = faults
        self.now = 0
        self.entered: dict[Evaluator, list[tuple[Operation, Tensor | None]]] = {}
        self.begun: set[int] = set()
        self.ended: set[int] = set()
        self.batch_programs = 0
        self.frontier = BEGINNING
        self.is_new = True
        self.passed: deque[Passed] = deque(maxlen=_MOST_PASSED)
        self.launch: LaunchContext | None = None
        self._values = values
        self._finder = finder
        self._is_reported = faults.is_reported
        self._checkpoints = Checkpoints(memory_bytes)
        self._target: Moment | None = None
        self._asleep_until = 0
        self._first = 0
        self._assignments: list[Assignment] = []
        self.recorded: dict[int, Sequence[TileValue]] = {}
        # The op that began last.
        self._running: tuple[Evaluator, Operation, int] | None = None

    # Executions

    def execute(self, ended: Callable[[], bool]) -> None:
        """Run the launch to its end, and again after each `Rewind`, until `ended` returns True.

        Args:
            ended: called when an execution has come to its end; False if the launch is to be
                executed again, for which `rewind` has been called.
        """
        while True:
            try:
                self._run(self.code.module, self.faults, self, self._first)
            except Rewind:
                continue
            finally:
                self.entered.clear()
                self._running = None
            self._target = None
            if ended():
                return

    def _run(self, module: Module, faults: FaultLog, observer: Observer, first: int = 0) -> None:
        values = values_for(module, self._values)
        run_debugged(module, values, self.grid, faults, observer, first)

    def rewind(self, target: Moment, until: Moment | None = None) -> None:
        """Prepare another execution; callers in a program raise `Rewind` then.

        Args:
            target: the moment at which the finder's `arrived` is called; END for never.
            until: begin at the last checkpoint before this moment; None for `target`.
        """
        checkpoint = self._checkpoints.before(until or target)
        self._checkpoints.restore(checkpoint)
        faults = checkpoint.faults
        self.faults = LastFaults(
            faults.kernel, faults.launch_id, faults.grid, False, faults.arguments
        )
        self.faults.take_over(faults)
        self.now, self._first = checkpoint.op, checkpoint.first
        self.begun = {first for first in self.begun if first < checkpoint.first}
        self.ended = {first for first in self.ended if first < checkpoint.first}
        self._target = None if target == END else target
        self._plan_sleep()

    def begin_again(self, code: DebugCode) -> None:
        """Prepare to execute the launch from its beginning in another IR: all else is forgotten."""
        self.code = code
        self._checkpoints.forget_later()
        self._assignments.clear()
        self.recorded.clear()
        self.passed.clear()
        self.frontier = BEGINNING
        self.rewind(END, until=BEGINNING)

    def execute_beside(
        self, make: Callable[[int], _Beside], until: Moment, *, is_whole: bool = False
    ) -> _Beside:
        """Execute the launch up to a moment for another observer, and return that.

        Memory is put back after it.

        Args:
            make: makes that observer; gets how many ops had begun where it begins.
            until: the moment at which the observer ends the execution, by `Traced`.
            is_whole: begin with the launch, not with the batch in which `until` is.
        """
        checkpoint = self._checkpoints.before(BEGINNING if is_whole else until)
        faults = FaultLog(self.faults.kernel, 0, self.grid, False, self.faults.arguments)
        observer = make(checkpoint.op)
        with self._checkpoints.put_back():
            self._checkpoints.restore(checkpoint)
            try:
                self._run(self.code.module, faults, observer, checkpoint.first)
            except Traced:
                pass
        return observer

    @contextmanager
    def as_it_began(self) -> Iterator[None]:
        """Have memory as it was before the launch inside the block, and as it is now after it."""
        with self._checkpoints.put_back():
            self._checkpoints.restore(self._checkpoints.first)
            yield

    def run_beside(self, module: Module) -> None:
        """Run another IR of the kernel with the launch's arguments; nothing is reported."""
        faults = FaultLog(self.faults.kernel, 0, self.grid, False, self.faults.arguments)
        self._run(module, faults, Observer())

    def exact_values(
        self, program: int, wanted: frozenset[Value]
    ) -> Mapping[Value, Sequence[Tensor]]:
        """Return what floats of a program would be in fp64, as the launch began; {} if unknown.

        Args:
            program: linear number.
            wanted: the floats.
        """
        # Only `why` asks, for values of loops.
        from tkdebug.precision.looking import exact_values

        with self.as_it_began():
            values = values_for(self.code.module, self._values)
            module = self.code.module
            return exact_values(module, wanted, values, self.grid, program, _EXACT_SECONDS)

    @property
    def written_bytes(self) -> int:
        """The bytes of memory that the launch may write."""
        return self._checkpoints.first.size_bytes

    @property
    def has_assignments(self) -> bool:
        """Whether values were changed by hand."""
        return bool(self._assignments)

    def searched_from(self, until: Moment) -> Moment:
        """Return the moment at which an execution begins after a rewind with `until`."""
        return Moment(self._checkpoints.before(until).op, 0)

    def _plan_sleep(self) -> None:
        """Find the op until which nothing has to be looked at."""
        if self._target is None:
            self._asleep_until = 0
            return
        wake = [self._target.op]
        wake += [each.moment.op for each in self._assignments if each.moment.op > self.now]
        self._asleep_until = min(wake)

    # Assignments

    def assign(self, assignment: Assignment, run: Evaluator) -> None:
        """Change a value now, and in each execution that passes this moment."""
        self._assignments.append(assignment)
        run.values[assignment.value] = assignment.data

    def forget_assignments(self, after: Moment) -> int:
        """Undo assignments at or after a moment; return their number."""
        kept = [each for each in self._assignments if each.moment < after]
        while len(kept) < len(self._assignments) and self.passed:
            if self.passed[-1].moment < after:
                break
            self.passed.pop()  # other lines may be passed now
        gone = len(self._assignments) - len(kept)
        if gone:
            # Later results may have been computed from an assignment that is undone now.
            self.recorded = {op: out for op, out in self.recorded.items() if op < after.op}
            self.frontier = min(self.frontier, after)
        self._assignments = kept
        return gone

    def reapply(self, run: Evaluator, op: int) -> None:
        """Make the assignments of an op's moments, in an execution beside this one."""
        for each in self._assignments:
            if each.moment.op == op and each.first == run.first:
                run.values[each.value] = each.data

    def _apply(self, run: Evaluator, moment: Moment) -> None:
        for each in self._assignments:
            if each.moment == moment and each.first == run.first:
                run.values[each.value] = each.data

    # As an observer

    def moments(self, op: Operation) -> Moments:
        """Ask for the moment before each op outside of reductions and scans, and for regions."""
        if tt.Func.matches(op):
            return Moments.REGIONS
        if op not in self.code.needed:
            return Moments.NEVER
        wanted = Moments.BEFORE
        if StatementRegions.matches(op):
            wanted |= Moments.REGIONS
        elif ttng.WarpGroupDotWait.matches(op):
            pass  # a function of its inputs, whose tiles are of the execution that computes them
        elif op.results and Effects.OTHER in OPS[op.name].effects:
            wanted |= Moments.AFTER
        return wanted

    def needs(self, op: Operation) -> Iterable[Value]:
        """Return the values of the names of the line, and of its callers."""
        return self.code.needed.get(op, ())

    def keeps(self) -> Collection[Value]:
        """Return the values of names that have none at another line."""
        return self.code.kept

    def follow(self, run: Evaluator) -> None:
        """See accesses from now on if the finder wants to, which may have changed at a stop."""
        self.follows_accesses = self._finder.follows_accesses
        run.follow(self, self.follows_accesses)

    def launch_begins(self, launch: LaunchContext) -> None:
        """Note the launch."""
        self.launch = launch
        self.follows_accesses = self._finder.follows_accesses
        self._checkpoints.begin(launch)

    def of_batch(self, run: Evaluator) -> Observer:
        """Note a batch that begins, and take a checkpoint before it; return this observer."""
        self.begun.add(run.first)
        self.batch_programs = run.programs
        if run.scheduler is None or not self.now:
            self._checkpoints.take(self.now, run.first, self.faults)
        return self

    def enters(self, run: Evaluator, region: Region, arguments: Sequence[TileValue]) -> None:
        """Note the programs in the region."""
        assert region.parent is not None
        self.entered.setdefault(run, []).append((region.parent, run.active))

    def leaves(self, run: Evaluator, region: Region, results: Sequence[TileValue]) -> None:
        """Note that no program is in the region; the outermost one ends the batch."""
        stack = self.entered[run]
        stack.pop()
        if not stack:
            del self.entered[run]
            self.ended.add(run.first)

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Look at an op that is about to run: each mark before it is a moment, and so is the op."""
        self.now = now = self.now + 1
        if now < self._asleep_until:
            return
        if self.faults.fresh is not None:
            self._fault()
        marks = self.code.variables.before.get(op, ())
        for place, mark in enumerate(marks):
            self._pass(Here(run, op, mark, mark, Moment(now, place)))
        if self._target is not None or self._assignments or self._finder.looks_at_ops:
            self._pass(self._at_op(run, op, now))
        self._running = (run, op, now)

    def _at_op(self, run: Evaluator, op: Operation, now: int) -> Here:
        marks = self.code.variables.before.get(op, ())
        context = marks[-1] if marks else self.code.context.get(op)
        return Here(run, op, None, context, Moment(now, len(marks)))

    def _pass(self, here: Here) -> None:
        moment = here.moment
        if here.mark is not None and (not self.passed or self.passed[-1].moment < moment):
            run = here.run
            self.passed.append(Passed(moment, here.mark, run.first, run.programs, run.active))
        if self._assignments:
            self._apply(here.run, moment)
        target = self._target
        if target is not None:
            if moment < target:
                return
            self._target = None
            self._asleep_until = 0
            self.faults.fresh = None
            if moment >= self.frontier:
                self.faults.is_reported = self._is_reported
            if moment == target:
                self._finder.arrived(here)
                return
        self.is_new = moment > self.frontier
        if moment >= self.frontier:
            self.frontier = moment
            self.faults.is_reported = self._is_reported
        self._finder.look(here)

    def _fault(self) -> None:
        fault, self.faults.fresh = self.faults.fresh, None
        if fault is not None and self._running is not None and self._target is None:
            run, op, now = self._running
            self.frontier = max(self.frontier, Moment(now + 1, 0))
            self._finder.faulted(self._at_op(run, op, now), fault)

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """Return the first execution's results of an op that is no function of its inputs."""
        if any(isinstance(result, BufferView) for result in results):
            return results  # shared memory is made again in each
        return self.recorded.setdefault(self.now, results)

    def read(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Note a load."""
        self._accessed(access, False)

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Note a store."""
        self._accessed(access, True)

    def atomic_done(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Note an atomic."""
        self._accessed(access, True)

    def _accessed(self, access: ObservedAccess, is_write: bool) -> None:
        if self._target is not None or self.now < self._asleep_until:
            return
        if self._running is not None:
            self._finder.accessed(self._at_op(*self._running), access, is_write)


class CountingObserver(Observer):
    """Counts ops as an `Execution` does, and ends at a moment."""

    needs_intermediates = True
    is_passive = False
    # The same batches: they decide which op is the n-th.
    memory_factor = Execution.memory_factor

    def __init__(self, execution: Execution, until: Moment, now: int) -> None:
        self._execution = execution
        self._until = until
        self.now = now

    @property
    def key(self) -> None:
        """Return no key: its plan is for no other observer."""
        return None

    def moments(self, op: Operation) -> Moments:
        """Return the moments at which an execution counts."""
        if op not in self._execution.code.needed:
            return Moments.NEVER
        return Moments.BEFORE | Moments.AFTER

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Count an op, and reapply its assignments; raise `Traced` at the end."""
        self.now += 1
        if self.now >= self._until.op:
            raise Traced
        self._execution.reapply(run, self.now)

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """Return the recorded results, if they are no function of the inputs."""
        return self._execution.recorded.get(self.now, results)

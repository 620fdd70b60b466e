"""The first pass of a launch's kernel that changes its result, and the rewrite that does.

The kernel is interpreted after every pass on the inputs of a launch. Then the pass runs again with
its rewrites counted, and those after a number dropped: the least number with which the result
differs is the rewrite. Where that one changes many ops, or rewrites are not counted, the values of
one program are compared, op by op.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tkdebug.causes.rerun import Budget, OutOfTimeError
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.passes.checked_runs import Inventory, unrecorded_ops
from tkdebug.compiler.passes.gpu.insert_barriers import InsertBarriers, barriers_needed
from tkdebug.compiler.passes.pass_run import ForeignPass, Pass, PassRun, run_pass
from tkdebug.compiler.rewriting.copies import copy_module
from tkdebug.compiler.rewriting.rewriter import BegunRewrite, RewriteCounter, RewriteRecord
from tkdebug.compiler.verifier import verify
from tkdebug.errors import Frame, TkError
from tkdebug.runtime.compile.compilation import compile_with_sources, note_arguments
from tkdebug.runtime.compile.debugged_stages import passes_of, source_for_gpu
from tkdebug.variations.native_levels import AGREES, below_ir, native_runner
from tkdebug.variations.outcomes import (
    Difference,
    Outcome,
    Tolerance,
    crash_text,
    difference,
    run_kept,
)
from tkdebug.variations.values import Replacements, first_values, store_of

if TYPE_CHECKING:
    from tkdebug.interpreter.observers import Observer
    from tkdebug.runtime.compile.specialization import Specialization
    from tkdebug.variations.launches import KeptLaunch

TILE, GPU = "tile-ir", "gpu-ir"


@dataclass(frozen=True, slots=True)
class OpPlace:
    """An op, with the call chain of its source line.

    Attributes:
        frames: outermost first.
    """

    name: str
    id: int
    frames: tuple[Frame, ...]

    @staticmethod
    def of(op: Operation) -> OpPlace:
        """The place of `op`."""
        return OpPlace(op.name, op.id, op.location.frames)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite of a pass.

    Attributes:
        number: among those that the pass makes, from 1 on.
        of: how many the pass makes.
        at: the op that is rewritten.
        old: ops that it replaced, erased or changed.
        new: ops that it made or changed.
        suspects: the ops of `old` and `new` that the first differing value comes from; () if the
            rewrite left one record.
    """

    number: int
    of: int
    rule: str
    at: OpPlace
    old: tuple[OpPlace, ...]
    new: tuple[OpPlace, ...]
    suspects: tuple[OpPlace, ...] = ()


@dataclass(frozen=True, slots=True)
class DifferingValue:
    """The first value of a program that a pass changes.

    Attributes:
        at: the op that gives it.
        program: linear number.
        round: how often the op had run before in that program.
        lane: place in the tile.
    """

    at: OpPlace
    program: int
    round: int
    lane: tuple[int, ...]
    got: str
    expected: str


@dataclass(frozen=True, slots=True)
class Culprit:
    """The first pass after which a kernel's result differs.

    Attributes:
        stage: "tile-ir" or "gpu-ir".
        run: which run of the pass, 1 for the first.
        how: "value", "fault", "failure" (it cannot be interpreted), "invalid" (against the rules
            of the IR) or "error" (the pass failed).
        text: in words.
        rewrite: the rewrite that changes the result; None if none could be named.
        value: the first value that differs; None if none could be found.
    """

    stage: str
    pass_name: str
    run: int
    how: str
    text: str
    rewrite: Rewrite | None = None
    value: DifferingValue | None = None

    @property
    def stage_name(self) -> str:
        """The name of the IR after the pass, as `tkdebug debug --stage` takes it."""
        return f"{self.stage}:{self.pass_name}" + (f":{self.run}" if self.run > 1 else "")


@dataclass(frozen=True, slots=True)
class Bisected:
    """A launch's kernel, interpreted after each pass.

    Attributes:
        target: the architecture.
        passes: how many passes were looked at.
        culprit: None if each leaves the result as it is.
        note: why not all was looked at; "" if all was.
        below: what is known of the levels below tkdebug's IR; None if they were not looked at.
    """

    launch: KeptLaunch
    target: str
    passes: int
    culprit: Culprit | None = None
    note: str = ""
    below: str | None = None

    @property
    def differs(self) -> bool:
        """Whether a pass, or what lies below the IR, changes the result."""
        return self.culprit is not None or self.below not in (None, AGREES)


class _Wrong(Exception):
    """A pass failed, or left IR that breaks a rule."""

    def __init__(self, how: str, text: str) -> None:
        super().__init__(text)
        self.how = how
        # As the verifier names an op.
        named = re.search(r" #(\d+): ", text)
        self.op_id = None if named is None else int(named[1])


def bisect(
    launch: KeptLaunch, target: str, seconds: float, *, counts_bits: bool = False
) -> Bisected:
    """Look for the pass, and the rewrite, that change the result of a launch.

    Args:
        launch: the launch whose inputs are used.
        target: the architecture whose passes count.
        seconds: the seconds of processor time that it may take.
        counts_bits: whether each bit of a result counts, although arithmetic explains it.
    """
    search = _Search(launch, target, Budget(seconds), counts_bits)
    try:
        found = search.run()
    except OutOfTimeError:
        over = f"{seconds:g} s are over after {search.passes} passes"
        return Bisected(launch, target, search.passes, search.found, over)
    except TkError as error:
        return Bisected(launch, target, search.passes, search.found, str(error))
    except RuntimeError as error:
        return Bisected(launch, target, search.passes, search.found, crash_text(error))
    return Bisected(launch, target, search.passes, found, search.note, search.below)


class _Search:
    """One bisection.

    Args:
        launch: the launch whose inputs are used.
        target: the architecture.
        budget: the processor time for it.
        counts_bits: whether each bit counts.

    Attributes:
        passes: how many ran.
        found: the pass, as soon as it is known.
        note: what could not be looked at.
        below: what is known of the levels below; None if they were not looked at.
    """

    def __init__(self, launch: KeptLaunch, target: str, budget: Budget, counts_bits: bool) -> None:
        self.passes = 0
        self.found: Culprit | None = None
        self.note = ""
        self.below: str | None = None
        self._target = target
        self._counts_bits = counts_bits
        self.launch = launch
        self.budget = budget
        self._src = source_for_gpu(launch.src, target, launch.values)
        self.tolerance = Tolerance()

    def run(self) -> Culprit | None:
        """Return the first pass that changes the result, None for none."""
        module = compile_with_sources(self._src, {})
        note_arguments(self._src, module)
        first = copy_module(module)
        if not self._counts_bits:
            self.tolerance = Tolerance.of(first)
        expected = self._outcome(first)
        if expected.failure:
            self.note = f"before any pass it cannot be interpreted: {expected.failure}"
            return None
        for stage, number, pass_, before in self._each_pass(self._src, module):
            culprit = self._look(stage, number, pass_, before, module, expected)
            if culprit is not None:
                return culprit
        runner = native_runner(self.launch, self._target)
        if runner is not None:
            tolerance = Tolerance.of(first, natively=True)
            self.below = below_ir(self._outcome(copy_module(module)), runner, tolerance)
        return None

    def _each_pass(
        self, src: Specialization, module: Module
    ) -> Iterator[tuple[str, int, Pass, Module]]:
        """Yield each pass about to run: stage, number of its run, pass, the module before it."""
        runs: dict[tuple[str, str], int] = {}
        for is_gpu, pass_ in passes_of(src, module, GPU):
            stage = GPU if is_gpu else TILE
            number = runs[stage, pass_.name] = runs.get((stage, pass_.name), 0) + 1
            yield stage, number, pass_, copy_module(module)
            self.passes += 1

    def _look(
        self, stage: str, number: int, pass_: Pass, before: Module, module: Module, first: Outcome
    ) -> Culprit | None:
        """Run a pass, and return it if the result differs after it."""
        try:
            run = _run(pass_, module)
            changed = bool(run.records) or _is_changed(before, module)
            wrong = self.difference(module, first) if changed else None
            if wrong is None:
                _refuse_missing_barriers(pass_, module)
        except _Wrong as error:
            self.found = Culprit(stage, pass_.name, number, error.how, str(error))
        else:
            if wrong is None:
                return None
            self.found = Culprit(stage, pass_.name, number, wrong.what, wrong.text)
        expected = self._outcome(copy_module(before))
        narrowed = _Narrowing(self, pass_, before, expected)
        rewrite, value = narrowed.rewrite(), narrowed.value
        found = self.found
        self.found = Culprit(
            found.stage, found.pass_name, found.run, found.how, found.text, rewrite, value
        )
        return self.found

    def _outcome(self, module: Module) -> Outcome:
        return run_kept(self.launch, module, self.budget)

    def difference(self, module: Module, expected: Outcome) -> Difference | None:
        """Return how the result of a module differs, None if it does not.

        Raises:
            _Wrong: the module breaks rules of the IR.
        """
        try:
            verify(module)
        except TkError as error:
            raise _Wrong("invalid", f"the IR breaks a rule: {error}") from error
        return difference(self._outcome(copy_module(module)), expected, self.tolerance)


def _run(pass_: Pass, module: Module, counter: RewriteCounter | None = None) -> PassRun:
    """Run a pass.

    Raises:
        _Wrong: it fails.
    """
    try:
        return run_pass(pass_, module, None, counter)
    except OutOfTimeError:
        raise
    except Exception as error:
        text = str(error).strip() or type(error).__name__
        raise _Wrong("error", f"the pass fails: {text.splitlines()[0]}") from error


def _refuse_missing_barriers(pass_: Pass, module: Module) -> None:
    """Refuse hazards that are left by the pass that inserts barriers: no result shows them.

    Raises:
        _Wrong: there is a hazard.
    """
    plain = pass_.pass_ if isinstance(pass_, ForeignPass) else pass_
    if not isinstance(plain, InsertBarriers):
        return
    for op in barriers_needed(module.function, plain.scratch_bytes):
        place = op.location.primary
        who = f"{place.file}:{place.line}: {op.name} #{op.id}: "
        raise _Wrong("invalid", f"{who}a barrier is missing before it, warps may meet in memory")


def _is_changed(before: Module, after: Module) -> bool:
    return bool(unrecorded_ops(Inventory.of(before), Inventory.of(after), ()))


@dataclass(frozen=True, slots=True)
class _Unit:
    """A counted rewrite that left records."""

    begun: BegunRewrite
    records: tuple[RewriteRecord, ...]


class _Narrowing:
    """The search among the rewrites of one pass.

    Args:
        search: the bisection, with its launch.
        pass_: the pass that changes the result.
        before: the module before the pass.
        expected: the outcome before the pass.

    Attributes:
        value: the first value that differs, once `rewrite` has looked for it.
    """

    def __init__(self, search: _Search, pass_: Pass, before: Module, expected: Outcome) -> None:
        self._search = search
        self._pass = pass_
        self._before = before
        self._expected = expected
        self.value: DifferingValue | None = None

    def rewrite(self) -> Rewrite | None:
        """Return the rewrite that changes the result; None if none can be named."""
        counter = RewriteCounter()
        copied = copy_module(self._before)
        records: tuple[RewriteRecord, ...] = ()
        try:
            records = _run(self._pass, copied, counter).records
        except _Wrong:
            records = ()
        units = list(_units(counter.begun, records))
        if not units and counter.begun:
            # It fails at the last one that it began.
            units = [_Unit(one, ()) for one in counter.begun]
        place = self._first_wrong(units) if units else None
        if place is None:
            return self._by_values(records, None, 0, len(units))
        unit = units[place]
        before_it = units[place - 1].begun.number if place else 0
        return self._by_values(unit.records, unit, before_it, len(units), place + 1)

    def _first_wrong(self, units: Sequence[_Unit]) -> int | None:
        """The index of the first rewrite with which the result is wrong; None if unknown."""
        verdicts: dict[int, bool | None] = {}

        def is_wrong(count: int) -> bool | None:
            """Whether the result is wrong after some rewrites; None if that cannot be run."""
            if count not in verdicts:
                verdicts[count] = self._verdict(units[count - 1].begun.number if count else 0)
            return verdicts[count]

        if is_wrong(0) is not False:
            return None
        low, high = 0, len(units)
        while high - low > 1:
            middle = _nearest(low, high, is_wrong)
            if middle is None:
                break
            if is_wrong(middle):
                high = middle
            else:
                low = middle
        return low if high - low == 1 else None

    def _verdict(self, limit: int) -> bool | None:
        """Whether the result is wrong without the rewrites after `limit`; None if it cannot run."""
        module = copy_module(self._before)
        found = self._search.found
        try:
            _run(self._pass, module, RewriteCounter(limit))
            return self._search.difference(module, self._expected) is not None
        except _Wrong as error:
            # A pass that is stopped halfway may leave invalid IR; only if all of it does the same
            # is that a verdict.
            return True if found is not None and found.how == error.how else None

    def _by_values(
        self,
        records: Sequence[RewriteRecord],
        unit: _Unit | None,
        limit_before: int,
        of: int,
        number: int = 0,
    ) -> Rewrite | None:
        """Return the rewrite to name, by comparing the values of one program; None if unknown."""
        before, after = copy_module(self._before), copy_module(self._before)
        replaced = Replacements()
        after.follower = replaced
        try:
            if unit is not None:
                _run(self._pass, before, RewriteCounter(limit_before))
            _run(self._pass, after, None if unit is None else RewriteCounter(unit.begun.number))
        except _Wrong:
            return None if unit is None else _rewrite(unit, number, of, (), before, after)
        after.follower = None
        op = self._differing(before, after, replaced)
        chosen = _chosen(records, op)
        if unit is not None:
            return _rewrite(unit, number, of, chosen, before, after)
        if not chosen:
            return None
        at = records.index(chosen[0])
        return _recorded(chosen[0], at + 1, len(records), before, after)

    def _differing(self, before: Module, after: Module, replaced: Replacements) -> Operation | None:
        """Return the op of `after` that fails, gives the first differing value, or stores it.

        None if it cannot be found. The differing value, if there is one, is put into `value`.
        """
        search = self._search
        launch, budget, tolerance = search.launch, search.budget, search.tolerance
        try:
            wrong = search.difference(after, self._expected)
            if wrong is None or wrong.what == "failure":
                return None if wrong is None else _op_with(after, wrong.op_id)
            store = None
            if wrong.program is None:
                store = store_of(launch, copy_module(after), wrong, budget)
                store = store or store_of(launch, copy_module(before), wrong, budget)
            program = store.program if store is not None else wrong.program
            if program is None:
                return None
            only = (range(program, program + 1),)

            def run(module: Module, observer: Observer) -> None:
                run_kept(launch, copy_module(module), budget, observers=(observer,), programs=only)

            found = first_values(
                program, partial(run, before), partial(run, after), replaced, tolerance
            )
        except _Wrong as error:
            return _op_with(after, error.op_id)
        except TkError:
            return None
        if not found:
            return _op_with(after, wrong.op_id) if store is None else store.op
        first = found[0]
        at = OpPlace.of(first.op)
        self.value = DifferingValue(
            at, first.program, first.round, first.lane, first.got, first.expected
        )
        return first.op


def _op_with(module: Module, id_: int | None) -> Operation | None:
    return next((op for op in module.walk() if op.id == id_), None)


def _units(begun: Sequence[BegunRewrite], records: Sequence[RewriteRecord]) -> Iterator[_Unit]:
    ends = [*(one.first_record for one in begun[1:]), len(records)]
    for one, end in zip(begun, ends, strict=False):
        if end > one.first_record:
            yield _Unit(one, tuple(records[one.first_record : end]))


def _nearest(low: int, high: int, is_wrong: Callable[[int], bool | None]) -> int | None:
    """The count between two that is nearest to their middle and can be run, or None."""
    middle = (low + high) // 2
    inside = sorted(range(low + 1, high), key=lambda count: abs(count - middle))
    return next((count for count in inside if is_wrong(count) is not None), None)


def _chosen(records: Sequence[RewriteRecord], op: Operation | None) -> tuple[RewriteRecord, ...]:
    """The records that made an op, or else the nearest op that its operands are computed from."""
    if op is None:
        return ()
    waiting, seen = [op], {op}
    while waiting:
        at = waiting.pop(0)
        own = tuple(one for one in records if at.id in one.new_op_ids)
        if own:
            return own
        for value in at.operands:
            made = value.defining_op
            if made is not None and made not in seen:
                seen.add(made)
                waiting.append(made)
    return ()


def _rewrite(
    unit: _Unit,
    number: int,
    of: int,
    chosen: Sequence[RewriteRecord],
    before: Module,
    after: Module,
) -> Rewrite:
    """A counted rewrite; if it has several records, the ops of `chosen` are its suspects."""
    begun = unit.begun
    at = OpPlace(begun.op, begun.op_id, begun.location.frames)
    old, new = _places(unit.records, before, after)
    suspects: tuple[OpPlace, ...] = ()
    if len(unit.records) > 1:
        suspects = tuple(
            dict.fromkeys(one for each in _places(chosen, before, after) for one in each)
        )
    return Rewrite(number, of, begun.rule, at, old, new, suspects)


def _recorded(
    record: RewriteRecord, number: int, of: int, before: Module, after: Module
) -> Rewrite | None:
    old, new = _places((record,), before, after)
    at = next(iter((*old, *new)), None)
    return None if at is None else Rewrite(number, of, record.rule, at, old, new)


def _places(
    records: Sequence[RewriteRecord], before: Module, after: Module
) -> tuple[tuple[OpPlace, ...], tuple[OpPlace, ...]]:
    was = {op.id: op for op in before.walk()}
    now = {op.id: op for op in after.walk()}
    old = dict.fromkeys(id_ for record in records for id_ in record.old_op_ids if id_ in was)
    new = dict.fromkeys(id_ for record in records for id_ in record.new_op_ids if id_ in now)
    return (
        tuple(OpPlace.of(was[id_]) for id_ in old),
        tuple(OpPlace.of(now[id_]) for id_ in new),
    )

"""Control flow: branches and loops of a batch, under a mask where its programs disagree."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tkdebug.compiler.dialects import nvvm, scf
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.errors import LaunchError
from tkdebug.interpreter.blending import blend
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.scheduler import Scheduler
from tkdebug.interpreter.tiles.values import TileValue

# Rounds of a waiting loop that counts something, after which the other programs get a turn.
_ROUNDS_PER_TURN = 256


def run_if(run: Evaluator, view: scf.If, condition: TileValue) -> Sequence[TileValue]:
    """scf.if: one branch when all programs agree, else both under masks."""
    test = _condition(run, condition, view.condition.type)
    then_region, else_region = view.op.regions
    if isinstance(test, bool):
        return run.run_region(then_region if test else else_region, ())
    outer = run.active
    try:
        run.active = test if outer is None else outer & test
        then_values = run.run_region(then_region, ())
        run.active = ~test if outer is None else outer & ~test
        else_values = run.run_region(else_region, ())
    finally:
        run.active = outer
    return [
        blend(run, test, a, b, result.type)
        for a, b, result in zip(then_values, else_values, view.results, strict=True)
    ]


def _condition(run: Evaluator, value: TileValue, type_: ir.Type) -> bool | Tensor:
    """Return a scalar i1: a bool when all active programs agree, else (P,) bool."""
    if isinstance(value, int):
        return bool(value)
    tensor = run.dense(value, type_).reshape(-1)
    relevant = tensor
    if run.active is not None and tensor.shape[0] > 1:
        relevant = tensor[run.active]
    if bool(relevant.all()):
        return True
    if not bool(relevant.any()):
        return False
    return tensor


def run_for(run: Evaluator, view: scf.For, *operands: TileValue) -> Sequence[TileValue]:
    """scf.for: trip counts may differ between programs."""
    lower, upper, step, *carried = operands
    if isinstance(lower, int) and isinstance(upper, int) and isinstance(step, int):
        body = view.op.regions[0]
        positions = range(lower, upper, _checked_step(view.op, step))
        for number, position in enumerate(positions):
            run.rounds[view.op] = number, position
            carried = list(run.run_region(body, [position, *carried]))
        return carried
    return _run_divergent_for(run, view, lower, upper, step, carried)


def _checked_step(op: Operation, step: int) -> int:
    if step <= 0:
        where = op.location.primary
        raise LaunchError(
            f"{where.file}:{where.line}: a loop's step is {step} at run time; "
            "expected a positive step (a constant negative step is supported)"
        )
    return step


def _run_divergent_for(
    run: Evaluator,
    view: scf.For,
    lower: TileValue,
    upper: TileValue,
    step: TileValue,
    carried: list[TileValue],
) -> Sequence[TileValue]:
    type_ = view.lower.type
    low = run.dense(lower, type_).reshape(-1).to(torch.int64)
    high = run.dense(upper, type_).reshape(-1).to(torch.int64)
    stride = run.dense(step, type_).reshape(-1).to(torch.int64)
    _checked_step(view.op, int(stride.min()))
    trips = ((high - low + stride - 1).div(stride, rounding_mode="floor")).clamp(min=0)
    trips = trips.expand(run.programs)
    outer = run.active
    relevant = trips if outer is None else trips[outer]
    if relevant.numel() == 0:
        return carried
    shortest, longest = int(relevant.min()), int(relevant.max())
    position: TileValue = lower
    types = [result.type for result in view.results]
    try:
        for trip in range(longest):
            inside: Tensor | None = None
            if trip >= shortest:
                inside = trips > trip
                run.active = inside if outer is None else outer & inside
            run.rounds[view.op] = trip, position
            results = run.run_region(view.op.regions[0], [position, *carried])
            if inside is not None:
                results = [
                    blend(run, inside, new, old, value_type)
                    for new, old, value_type in zip(results, carried, types, strict=True)
                ]
            carried = list(results)
            position = _advanced(run, position, step, type_)
    finally:
        run.active = outer
    return carried


def _advanced(run: Evaluator, position: TileValue, step: TileValue, type_: ir.Type) -> TileValue:
    total = run.index.affine_add(position, step, ())
    return run.index.settle(total, ir.element_of(type_).bits)


def run_while(run: Evaluator, view: scf.While, *operands: TileValue) -> Sequence[TileValue]:
    """scf.while: programs leave one by one; the others go on under a mask."""
    carried = list(operands)
    outer = run.active
    before, after = view.op.regions
    condition_type = scf.Condition(view.before.terminator).condition.type
    types = [result.type for result in view.op.results]
    final: list[TileValue] | None = None
    running: Tensor | None = None
    waiting = _Waiting.of(run, view.op)
    try:
        while True:
            if waiting is not None:
                waiting.round_begins()
            given = carried
            condition, *forwarded = run.run_region(before, carried)
            if final is None or running is None:
                final = list(forwarded)
            else:
                final = [
                    blend(run, running, new, old, type_)
                    for new, old, type_ in zip(forwarded, final, types, strict=True)
                ]
            test = _condition(run, condition, condition_type)
            if test is False:
                return final
            if test is not True:
                running = test if run.active is None else run.active & test
                run.active = running
            carried = list(run.run_region(after, forwarded))
            if waiting is not None:
                waiting.round_ends(given, carried)
    finally:
        run.active = outer


class _Waiting:
    """One program's wait for others in a loop, in which the scheduler lets the others run.

    Args:
        scheduler: the scheduler that gives the turns.
        loop: the loop.
        program: the program that waits.
    """

    def __init__(
        self, scheduler: Scheduler, loop: Operation, program: tuple[int, int, int]
    ) -> None:
        self._scheduler = scheduler
        self._loop = loop
        self._program = program
        # A loop that waits for a time does not do the same in every iteration.
        self._is_timed = any(map(nvvm.GlobalTimer.matches, loop.walk()))
        self._rounds = 0
        self._changes = 0

    @classmethod
    def of(cls, run: Evaluator, loop: Operation) -> _Waiting | None:
        """Return the state of a program's wait in `loop`, or None if the loop waits for none."""
        scheduler = run.scheduler
        if scheduler is None or loop not in scheduler.loops:
            return None
        return cls(scheduler, loop, run.program_at(0))

    def round_begins(self) -> None:
        """Note how often memory was changed before the iteration."""
        self._changes = self._scheduler.changes

    def round_ends(self, given: Sequence[TileValue], carried: Sequence[TileValue]) -> None:
        """Let others go on after an iteration that changed nothing, and sometimes in any case."""
        self._rounds += 1
        is_idle = self._changes == self._scheduler.changes and _unchanged(carried, given)
        if is_idle or self._rounds % _ROUNDS_PER_TURN == 0:
            self._scheduler.wait(self._loop, self._program, is_idle and not self._is_timed)


def _unchanged(now: Sequence[TileValue], before: Sequence[TileValue]) -> bool:
    for a, b in zip(now, before, strict=True):
        if a is b or (isinstance(a, int) and isinstance(b, int) and a == b):
            continue
        if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and torch.equal(a, b)):
            return False
    return True

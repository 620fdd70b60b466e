"""The evaluator: runs the ops of blocks and regions on tile values, for a batch of programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import ReferenceType

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Block, Operation, Region, Value
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.interpreter.in_flight import InFlight
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.observers import Observer
from tkdebug.interpreter.state import Batch, EvaluatorState
from tkdebug.interpreter.tiles.values import (
    TileValue,
)

# (evaluator, view of the op, value of each operand) -> a value for each result; a terminator gives
# its operands. Operands that are missing at the end have the rule's defaults. The plan makes the
# view, once per op.
Rule = Callable[..., Sequence[TileValue]]


class Attended(NamedTuple):
    """The observers of a step, by their places among all.

    Attributes:
        may_alter: whether an observer before it may alter its operands.
    """

    op: Operation
    before: tuple[int, ...]
    after: tuple[int, ...]
    may_alter: bool


# One step of a block: how to run the op, its view, its operands and results, its observers (None
# for none), and the values that die after it.
Step = tuple[Rule, OpView, tuple[Value, ...], tuple[Value, ...], Attended | None, tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class Plan:
    """A module's blocks as lists of steps, shared by all batches, and launches of equal keys.

    It holds no observer: an observer may hold data of its launch.

    Attributes:
        steps: the steps of each block.
        attended_regions: the observers at the edges of a region, by their places among all.
    """

    steps: Mapping[Block, Sequence[Step]]
    attended_regions: Mapping[Region, tuple[int, ...]]


class Evaluator(EvaluatorState):
    """Runs one batch of programs. The functions of ops are in `rules`, control flow among them.

    Attributes:
        values: the values of all IR values in scope.
        observers: the observers of the batch, in the order of the plan's.
        attentive: observers that look at every op just now, beside those that the plan has.
        shared_bytes: the size of the kernel's shared memory.
        arena: the shared memory of each program, from its first use on.
        in_flight: the asynchronous work.
        sums: the last results of dots that add up in a loop.
        known_buffers: the buffers that a pointer from memory may point into, once one was seen.
        visits: the number of visits of each program to a watch, (P,) int64.
    """

    def __init__(self, plan: Plan, batch: Batch, observers: Sequence[Observer] = ()) -> None:
        super().__init__(batch)
        self.plan = plan
        self.values: dict[Value, TileValue] = {}
        self.observers = tuple(observer.of_batch(self) for observer in observers)
        # Observers that get accesses.
        self.followers: Sequence[Observer] = [
            mine
            for mine, observer in zip(self.observers, observers, strict=True)
            if observer.follows_accesses
        ]
        self.attentive: list[Observer] = []
        self.shared_bytes = 0
        self.arena: Tensor | None = None
        self.in_flight = InFlight()
        self.sums: dict[Operation, ReferenceType[Tensor]] = {}
        self.known_buffers: Sequence[Buffer] | None = None
        self.visits: dict[int, Tensor] = {}

    # Blocks

    def run_block(self, block: Block) -> Sequence[TileValue]:
        """Run a block whose arguments are bound; return its terminator's operands."""
        values, observers, attentive = self.values, self.observers, self.attentive
        results: Sequence[TileValue] = ()
        for rule, view, sources, defined, attended, dying in self.plan.steps[block]:
            operands = [values[source] for source in sources]
            if attentive:
                results = self._run_attended(rule, view, operands, attended)
            elif attended is None:
                results = rule(self, view, *operands)
            else:
                op, before, after, may_alter = attended
                for place in before:
                    observers[place].before(self, op, operands)
                if may_alter:
                    operands = [values[source] for source in sources]
                results = rule(self, view, *operands)
                for place in after:
                    results = observers[place].after(self, op, operands, results)
            if defined:  # a terminator hands its operands on instead
                for value, result in zip(defined, results, strict=True):
                    values[value] = result
            for value in dying:
                values.pop(value, None)
            if attentive:
                for observer in tuple(attentive):
                    observer.forget(self, dying)
        return results

    def _run_attended(
        self, rule: Rule, view: OpView, operands: Sequence[TileValue], attended: Attended | None
    ) -> Sequence[TileValue]:
        """Run an op while some observers look at every op."""
        op, observers = view.op, self.observers
        before, after = ((), ()) if attended is None else (attended.before, attended.after)
        for place in before:
            observers[place].before(self, op, operands)
        called = [observers[place] for place in before]
        for observer in tuple(self.attentive):
            if observer not in called:
                observer.before(self, op, operands)
        values = self.values
        # Observers may have altered them.
        operands = [values[operand] for operand in op.operands]
        results = rule(self, view, *operands)
        for place in after:
            results = observers[place].after(self, op, operands, results)
        return results

    def attend(self, observer: Observer, is_attentive: bool) -> None:
        """Call `observer` before every op from now on, or no longer."""
        if is_attentive != (observer in self.attentive):
            change = self.attentive.append if is_attentive else self.attentive.remove
            change(observer)

    def follow(self, observer: Observer, is_following: bool) -> None:
        """Pass accesses to memory to `observer` from now on, or no longer."""
        if is_following != (observer in self.followers):
            others = [one for one in self.followers if one is not observer]
            self.followers = [*others, observer] if is_following else others

    def run_region(self, region: Region, arguments: Sequence[TileValue]) -> Sequence[TileValue]:
        """Bind a region's arguments and run its block."""
        if self.scheduler is not None:
            self.scheduler.go_on()
        block = region.block
        for argument, value in zip(block.arguments, arguments, strict=True):
            self.values[argument] = value
        attending = self.plan.attended_regions.get(region, ())
        for place in attending:
            self.observers[place].enters(self, region, arguments)
        results = self.run_block(block)
        for place in attending:
            self.observers[place].leaves(self, region, results)
        return results

    def run_kernel(self, function: Operation, arguments: Sequence[TileValue]) -> None:
        """Run a `tt.func` on its arguments."""
        self.shared_bytes = tt.Func(function).shared_bytes
        self.run_region(function.regions[0], arguments)

    def visit(self, watch: int) -> Tensor:
        """Count a visit of the active programs; return how many each had before, (P,) int32."""
        before = self.visits.get(watch)
        if before is None:
            before = torch.zeros(self.programs, dtype=torch.int32, device=self.device)
        self.visits[watch] = before + (1 if self.active is None else self.active)
        return before

"""The evaluator: runs the ops of blocks and regions on tile values, for a batch of programs."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING
from weakref import ReferenceType

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Block, Operation, Region, Value
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.interpreter.asynchronous.bulk_copies import BulkLoad
from tkdebug.interpreter.asynchronous.in_flight import Copy, LandingQueue
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.observers import Observer
from tkdebug.interpreter.state import Batch, EvaluatorState
from tkdebug.interpreter.tiles.values import (
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.plan import Plan, Watch
    from tkdebug.interpreter.rules import Rule


class Evaluator(EvaluatorState):
    """Runs one batch of programs. What ops do is in `rules`, control flow among them.

    Attributes:
        values: of all IR values in scope.
        observers: who looks on, in the order of the plan's.
        attentive: those that look at every op just now, beside those that the plan knows of.
        lanes: how many entries of the program axis stand for one program.
        shared_bytes: of the kernel's shared memory.
        arena: the shared memory of each program, from its first use on.
        async_copies: groups of copies in flight.
        uncommitted: copies that are in no group yet.
        async_dots: asynchronous products in flight.
        pending: what a poison tile stands for until it is waited for, by the tensor object.
        sums: what dots that add up in a loop gave last.
        bulk_loads: bulk copies to shared memory in flight.
        bulk_stores: bulk copies from shared memory in flight.
        known_buffers: the buffers that a pointer from memory may point into, once one was seen.
        visits: how often each program came by at a watch, (P,) int64.
    """

    def __init__(self, plan: Plan, batch: Batch) -> None:
        super().__init__(batch)
        self.plan = plan
        self.values: dict[Value, TileValue] = {}
        self.observers = tuple(observer.of_batch(self) for observer in batch.observers)
        self.followers = [
            mine
            for mine, observer in zip(self.observers, batch.observers, strict=True)
            if observer.follows_accesses
        ]
        self.attentive: list[Observer] = []
        self.shared_bytes = 0
        self.arena: Tensor | None = None
        self.async_copies = LandingQueue()
        self.uncommitted: list[Copy] = []
        self.async_dots = LandingQueue()
        self.pending: MutableMapping[Tensor, Callable[[], Tensor]] = WeakTensorKeyDictionary()
        self.sums: dict[Operation, ReferenceType[Tensor]] = {}
        self.bulk_loads: list[BulkLoad] = []
        self.bulk_stores = LandingQueue()
        self.known_buffers: Sequence[Buffer] | None = None
        self.visits: dict[int, Tensor] = {}

    # Blocks

    def run_block(self, block: Block) -> Sequence[TileValue]:
        """Run a block whose arguments are bound; gives its terminator's operands."""
        values, observers, attentive = self.values, self.observers, self.attentive
        results: Sequence[TileValue] = ()
        for rule, view, sources, defined, watch, dying in self.plan.steps[block]:
            operands = [values[source] for source in sources]
            if attentive:
                results = self._run_attended(rule, view, operands, watch)
            elif watch is None:
                results = rule(self, view, *operands)
            else:
                op, before, after, may_alter = watch
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
        self, rule: Rule, view: OpView, operands: Sequence[TileValue], watch: Watch | None
    ) -> Sequence[TileValue]:
        """Run an op while some observers look at every op."""
        op, observers = view.op, self.observers
        before, after = ((), ()) if watch is None else (watch.before, watch.after)
        for place in before:
            observers[place].before(self, op, operands)
        called = [observers[place] for place in before]
        for observer in tuple(self.attentive):
            if observer not in called:
                observer.before(self, op, operands)
        values = self.values
        # Which observers may have altered.
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
        """Tell `observer` of accesses to memory from now on, or no longer."""
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
        watching = self.plan.watched_regions.get(region, ())
        for place in watching:
            self.observers[place].enters(self, region, arguments)
        results = self.run_block(block)
        for place in watching:
            self.observers[place].leaves(self, region, results)
        return results

    def run_kernel(self, function: Operation, arguments: Sequence[TileValue]) -> None:
        """Run a `tt.func` on its arguments."""
        self.shared_bytes = tt.Func(function).shared_bytes
        self.run_region(function.regions[0], arguments)

    def visit(self, watch: int) -> Tensor:
        """How often each program came by at a watch before, (P,) int32; those active do now."""
        before = self.visits.get(watch)
        if before is None:
            before = torch.zeros(self.programs, dtype=torch.int32, device=self.device)
        self.visits[watch] = before + (1 if self.active is None else self.active)
        return before

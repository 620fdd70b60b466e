"""The evaluator: runs a function's ops on tile values, control flow under a program mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from tkdebug.compiler.dialects import nvvm, scf, tt
from tkdebug.compiler.ir import Block, Operation, Region, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.errors import LaunchError
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.bulk_copies import BulkLoad
from tkdebug.interpreter.memory.in_flight import Copy, LandingQueue, blend_pending
from tkdebug.interpreter.memory.pointers import affine_of
from tkdebug.interpreter.memory.shared_buffers import blend_views
from tkdebug.interpreter.observers import Observer
from tkdebug.interpreter.scheduler import Scheduler
from tkdebug.interpreter.state import Batch, EvaluatorState
from tkdebug.interpreter.tile_ops.where import blend_affine, merged_addresses
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    AffineTile,
    BoxTile,
    BufferView,
    DescriptorTile,
    PointerTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.plan import Plan, Watch
    from tkdebug.interpreter.rules.types import Rule

# Rounds of a waiting loop that counts something, after which the other programs get a turn.
_ROUNDS_PER_TURN = 256


class Evaluator(EvaluatorState):
    """Runs one batch of programs: blocks and control flow. What ops do is in `rules`.

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
        self.pending: Any = WeakTensorKeyDictionary()
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

    # Branches

    def _condition(self, value: TileValue, type_: ir.Type) -> bool | Tensor:
        """A scalar i1: a bool when all active programs agree, else (P,) bool."""
        if isinstance(value, int):
            return bool(value)
        tensor = self.dense(value, type_).reshape(-1)
        relevant = tensor
        if self.active is not None and tensor.shape[0] > 1:
            relevant = tensor[self.active]
        if bool(relevant.all()):
            return True
        if not bool(relevant.any()):
            return False
        return tensor

    def run_if(self, view: scf.If, condition: TileValue) -> Sequence[TileValue]:
        """scf.if: one branch when all programs agree, else both under masks."""
        test = self._condition(condition, view.condition.type)
        then_region, else_region = view.op.regions
        if isinstance(test, bool):
            return self.run_region(then_region if test else else_region, ())
        outer = self.active
        try:
            self.active = test if outer is None else outer & test
            then_values = self.run_region(then_region, ())
            self.active = ~test if outer is None else outer & ~test
            else_values = self.run_region(else_region, ())
        finally:
            self.active = outer
        return [
            self.blend(test, a, b, result.type)
            for a, b, result in zip(then_values, else_values, view.results, strict=True)
        ]

    def blend(self, test: Tensor, a: TileValue, b: TileValue, type_: ir.Type) -> TileValue:
        """Per program `a` where `test` (P,), else `b`."""
        if a is b or (isinstance(a, int) and isinstance(b, int) and a == b):
            return a
        if isinstance(a, DescriptorTile):
            return self._blend_descriptors(test, a, b)
        if isinstance(a, PointerTile | AddressTile):
            return self._blend_pointers(test, a, b, type_)
        if isinstance(a, BufferView):
            assert isinstance(b, BufferView)
            return blend_views(self, test, a, b)
        shape = ir.shape_of(type_)
        element = ir.element_of(type_)
        if isinstance(a, int | AffineTile) and isinstance(b, int | AffineTile):
            x, y = affine_of(self, a, shape), affine_of(self, b, shape)
            if x.coefs == y.coefs and element.bits > 1:
                return blend_affine(self, test, x, y)
        if isinstance(a, BoxTile) and isinstance(b, BoxTile) and a.box == b.box:
            column = test.reshape(-1, *(1,) * len(shape))
            return BoxTile(
                torch.where(column, a.data, b.data),
                a.box,
                torch.where(column, a.fill, b.fill),
                a.shape,
            )
        column = test.reshape(-1, *(1,) * len(shape))
        first, second = self.dense(a, type_), self.dense(b, type_)
        return blend_pending(self, test, first, second, torch.where(column, first, second))

    def _blend_pointers(
        self, test: Tensor, a: PointerTile | AddressTile, b: TileValue, type_: ir.Type
    ) -> TileValue:
        assert isinstance(b, PointerTile | AddressTile)
        shape = ir.shape_of(type_)
        if isinstance(a, PointerTile) and isinstance(b, PointerTile) and a.buffer is b.buffer:
            return a.at(self.blend(test, a.offset, b.offset, ir.tile(shape, ir.I64)))
        return merged_addresses(self, test.reshape(-1, *(1,) * len(shape)), a, b, shape)

    def _blend_descriptors(self, test: Tensor, a: DescriptorTile, b: TileValue) -> DescriptorTile:
        assert isinstance(b, DescriptorTile)
        pointer = ir.PointerType(ir.I8)
        base = self._blend_pointers(test, a.base, b.base, pointer)
        assert isinstance(base, PointerTile | AddressTile)
        return DescriptorTile(
            base,
            [self.blend(test, x, y, ir.I64) for x, y in zip(a.shape, b.shape, strict=True)],  # type: ignore[misc]
            [self.blend(test, x, y, ir.I64) for x, y in zip(a.strides, b.strides, strict=True)],  # type: ignore[misc]
            a.padding,
        )

    # Loops

    def run_for(self, view: scf.For, *operands: TileValue) -> Sequence[TileValue]:
        """scf.for: trip counts may differ between programs."""
        lower, upper, step, *carried = operands
        if isinstance(lower, int) and isinstance(upper, int) and isinstance(step, int):
            body = view.op.regions[0]
            for position in range(lower, upper, self._step(view.op, step)):
                carried = list(self.run_region(body, [position, *carried]))
            return carried
        return self._run_divergent_for(view, lower, upper, step, carried)

    def _step(self, op: Operation, step: int) -> int:
        if step <= 0:
            where = op.location.primary
            raise LaunchError(
                f"{where.file}:{where.line}: a loop's step is {step} at run time; "
                "expected a positive step (a constant negative step is supported)"
            )
        return step

    def _run_divergent_for(
        self,
        view: scf.For,
        lower: TileValue,
        upper: TileValue,
        step: TileValue,
        carried: list[TileValue],
    ) -> Sequence[TileValue]:
        type_ = view.lower.type
        low = self.dense(lower, type_).reshape(-1).to(torch.int64)
        high = self.dense(upper, type_).reshape(-1).to(torch.int64)
        stride = self.dense(step, type_).reshape(-1).to(torch.int64)
        self._step(view.op, int(stride.min()))
        trips = ((high - low + stride - 1).div(stride, rounding_mode="floor")).clamp(min=0)
        trips = trips.expand(self.programs)
        outer = self.active
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
                    self.active = inside if outer is None else outer & inside
                results = self.run_region(view.op.regions[0], [position, *carried])
                if inside is not None:
                    results = [
                        self.blend(inside, new, old, value_type)
                        for new, old, value_type in zip(results, carried, types, strict=True)
                    ]
                carried = list(results)
                position = self._advanced(position, step, type_)
        finally:
            self.active = outer
        return carried

    def _advanced(self, position: TileValue, step: TileValue, type_: ir.Type) -> TileValue:
        total = self.index.affine_add(position, step, ())
        return self.index.settle(total, ir.element_of(type_).bits)

    def run_while(self, view: scf.While, *operands: TileValue) -> Sequence[TileValue]:
        """scf.while: programs leave one by one; the rest goes on under a mask."""
        carried = list(operands)
        outer = self.active
        op = view.op
        before, after = op.regions
        condition_type = scf.Condition(view.before.terminator).condition.type
        types = [result.type for result in op.results]
        final: list[TileValue] | None = None
        running: Tensor | None = None
        scheduler = (
            self.scheduler if self.scheduler is not None and op in self.scheduler.loops else None
        )
        # What waits for the time to come does not do the same in every round.
        is_timed = scheduler is not None and any(map(nvvm.GlobalTimer.matches, op.walk()))
        rounds = 0
        try:
            while True:
                changes = 0 if scheduler is None else scheduler.changes
                given = carried
                condition, *forwarded = self.run_region(before, carried)
                if final is None or running is None:
                    final = list(forwarded)
                else:
                    final = [
                        self.blend(running, new, old, type_)
                        for new, old, type_ in zip(forwarded, final, types, strict=True)
                    ]
                test = self._condition(condition, condition_type)
                if test is False:
                    return final
                if test is not True:
                    running = test if self.active is None else self.active & test
                    self.active = running
                carried = list(self.run_region(after, forwarded))
                if scheduler is not None:
                    rounds += 1
                    is_idle = changes == scheduler.changes and _unchanged(carried, given)
                    if is_idle or rounds % _ROUNDS_PER_TURN == 0:
                        self._let_others_go_on(scheduler, op, is_idle and not is_timed)
        finally:
            self.active = outer

    def _let_others_go_on(self, scheduler: Scheduler, op: Operation, is_idle: bool) -> None:
        scheduler.wait(op, self.program_at(0), is_idle)

    # Debug ops

    def visit(self, watch: int) -> Tensor:
        """How often each program came by at a watch before, (P,) int32; those active do now."""
        before = self.visits.get(watch)
        if before is None:
            before = torch.zeros(self.programs, dtype=torch.int32, device=self.device)
        self.visits[watch] = before + (1 if self.active is None else self.active)
        return before

    def device_assert(
        self, view: tt.Assert, condition: TileValue, mask: TileValue = 1
    ) -> Sequence[TileValue]:
        """tt.assert: a fault where the condition is false."""
        if isinstance(condition, int) and condition:
            return ()
        shape = ir.shape_of(view.condition.type)
        bad = ~self.dense(condition, view.condition.type)
        if not isinstance(mask, int):
            bad = bad & self.dense(mask, ir.tile(shape, ir.I1))
        elif not mask:
            return ()
        bad = bad.expand(self.programs, *shape)
        if self.active is not None:
            bad = bad & self.active.reshape(-1, *(1,) * len(shape))
        if bool(bad.any()):
            self.faults.assertion(view.op, self.offender(bad, None, None), int(bad.sum()))
        return ()


def _unchanged(now: Sequence[TileValue], before: Sequence[TileValue]) -> bool:
    for a, b in zip(now, before, strict=True):
        if a is b or (isinstance(a, int) and isinstance(b, int) and a == b):
            continue
        if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and torch.equal(a, b)):
            return False
    return True

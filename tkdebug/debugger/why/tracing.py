"""Traces of one program's computation, op by op, made by executing the launch again.

The launch stays where it is: it is executed beside itself from a checkpoint, and memory is
restored.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from tkdebug.compiler.dialects import scf, tt, ttg, ttng
from tkdebug.compiler.dialects.interfaces import PlainDot
from tkdebug.compiler.ir import Operation, Region, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.debugger.execution import CountingObserver, Execution
from tkdebug.debugger.stops import Moment
from tkdebug.debugger.why.slices import SharedWrite, places_of
from tkdebug.errors import UsageError
from tkdebug.interpreter.memory.checked_access import loaded_type
from tkdebug.interpreter.memory.descriptors import descriptor_access
from tkdebug.interpreter.memory.shared_buffers import read_view
from tkdebug.interpreter.observers import Moments
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    BufferView,
    DescriptorTile,
    PointerTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.memory.buffers import Buffer

_MOST_BYTES = 1 << 30
_MOST_TEXT = 60
# Ops whose results have the numbers of an operand.
_REARRANGING = names_of(tt.Broadcast, tt.ExpandDims, tt.Reshape, tt.Splat, tt.Trans)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The block that a load through a descriptor reads.

    Attributes:
        offsets: the offsets of each element in the buffer, in elements.
        keeps: the elements inside of the descriptor's shape; the others are padding.
    """

    buffer: Buffer
    offsets: Tensor
    keeps: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """One result of an op that ran once, for one program.

    Attributes:
        number: its position in the trace.
        time: the number of ops that had begun.
        op: None for an argument of the kernel.
        value: the IR value.
        operands: the numbers of the instances that it was computed from, -1 for unknown ones.
        data: the tile of this program; for pointers, offsets in elements; None if it has no
            numbers.
        buffer: the buffer that the pointers point into.
        places: for a view of shared memory, the address of each element.
        block: for a load through a descriptor, the block that it reads; None if that is not known.
        is_pending: whether `data` replaces what an asynchronous op is still computing.
        rounds: for each loop around it, outermost first, the number of its iteration, from 0 on.
    """

    number: int
    time: int
    op: Operation | None
    value: Value | None
    operands: tuple[int, ...]
    data: Tensor | None
    buffer: Buffer | None = None
    places: Tensor | None = None
    block: Block | None = None
    is_pending: bool = False
    rounds: tuple[int, ...] = ()


class Tracer(CountingObserver):
    """Notes each instance of one program.

    Attributes:
        instances: all instances, in the order in which they ran.
        current: the instance that each IR value is just now.
        stores: the instances' numbers of each store's operands, by time.
        shared_writes: writes to shared memory, in order.
        runs_ahead: whether passes have made ops for other iterations of a loop.
        bulk_stores: the instances of bulk copies to memory, in order.
        chosen_names: for instances without a name, the name that the result of their `if` is bound
            to.
        contents: contents of views of shared memory when an op read them: by the instance of its
            result and the operand's position.
    """

    def __init__(self, execution: Execution, until: Moment, now: int, program: int) -> None:
        super().__init__(execution, until, now)
        self.instances: list[Instance] = []
        self.current: dict[Value, int] = {}
        self.stores: dict[int, tuple[Operation, tuple[int, ...]]] = {}
        self.shared_writes: list[SharedWrite] = []
        self.contents: dict[tuple[int, int], Tensor] = {}
        self.bulk_stores: list[int] = []
        self.runs_ahead = bool(execution.code.ahead)
        self.chosen_names: dict[int, str] = {}
        self._program = program
        self._pending: dict[Operation, list[int]] = {}
        self._expressions = execution.code.variables.expressions
        # The iteration of each loop that runs, outermost first.
        self._rounds: list[int] = []
        self._bytes = 0

    def moments(self, op: Operation) -> Moments:
        """Ask for all moments, but not for the regions of reductions and scans."""
        if tt.Func.matches(op):
            return Moments.REGIONS
        wanted = super().moments(op)
        # Not of reductions and scans: their regions combine elements.
        return wanted | Moments.REGIONS if wanted and op.name in CONTROL_FLOW else wanted

    def _ids(self, values: Sequence[Value]) -> list[int]:
        return [self.current.get(value, -1) for value in values]

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Note the values that go into a loop, and the operands of an op without results."""
        super().before(run, op, operands)
        if not run.takes_part(self._program):
            return
        if scf.Loop.matches(op):
            self._pending[op] = self._ids(scf.For(op).inits if scf.For.matches(op) else op.operands)
            self._rounds.append(-1)
        elif not op.results:
            ids = tuple(self._ids(op.operands))
            self.stores[self.now] = (op, ids)
            if ttg.LocalStore.matches(op):
                self._writes_shared(ids[1], ids[0])
            elif ttng.AsyncTmaCopyGlobalToLocal.matches(op):
                self._bulk_copy(run, op, ids, operands)
            elif ttng.AsyncTmaCopyLocalToGlobal.matches(op):
                self._bulk_store(run, op, ids, operands)

    def enters(self, run: Evaluator, region: Region, arguments: Sequence[TileValue]) -> None:
        """Bind a region's arguments to the instances of the values that they get."""
        if not run.takes_part(self._program):
            return
        op = region.parent
        assert op is not None
        given = region.block.arguments
        if scf.Loop.matches(op) and region is op.regions[0]:
            self._rounds[-1] += 1
        if tt.Func.matches(op):
            for argument, value in zip(given, arguments, strict=True):
                self._add(run, None, argument, value, ())
        elif scf.For.matches(op):
            self._add(run, op, given[0], arguments[0], tuple(self._ids(scf.For(op).bounds)))
            self.current.update(zip(given[1:], self._pending[op], strict=True))
        elif scf.While.matches(op):
            self.current.update(zip(given, self._pending[op], strict=True))

    def leaves(self, run: Evaluator, region: Region, results: Sequence[TileValue]) -> None:
        """Note the values that a region forwards."""
        if not run.takes_part(self._program):
            return
        op, terminator = region.parent, region.block.terminator
        assert op is not None
        handed = terminator.operands
        if scf.Condition.matches(terminator):
            handed = handed[1:]
        self._pending[op] = self._ids(handed)

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """Note the results."""
        results = super().after(run, op, operands, results)
        if not run.takes_part(self._program):
            return results
        if op in self._pending:
            given = self._pending.pop(op)
            if scf.Loop.matches(op):
                self._rounds.pop()
            self.current.update(zip(op.results, given, strict=True))
            if scf.If.matches(op):
                self._name_choices(op, given)
            return results
        ids = tuple(self._ids(op.operands))
        if op.results:
            block = None
            if tt.DescriptorLoad.matches(op):
                block = self._block(run, op, operands[0], operands[1:])
            for value, result in zip(op.results, results, strict=True):
                self._add(run, op, value, result, ids, block)
            self._note_shared(run, op, operands, ids)
        return results

    def _note_shared(
        self, run: Evaluator, op: Operation, operands: Sequence[TileValue], ids: tuple[int, ...]
    ) -> None:
        """Note the shared memory that an op with results writes, or reads."""
        number = self.current[op.results[0]]
        if ttg.LocalAlloc.matches(op):
            self._writes_shared(number, ids[0] if ids else -1)
        elif ttg.AsyncCopyGlobalToLocal.matches(op):
            self._writes_shared(ids[1], number)
        elif PlainDot.matches(op):
            row = self._program - run.first
            for place, operand in enumerate(operands):
                if isinstance(operand, BufferView):
                    held = read_view(run, operand)
                    self.contents[number, place] = held[row if held.shape[0] > 1 else 0].clone()

    def _name_choices(self, op: Operation, given: Sequence[int]) -> None:
        """Name a branch's value after the `y` of `y = a if c else b`."""
        for value, number in zip(op.results, given, strict=True):
            inner = self.instances[number] if number >= 0 else None
            if value.name is None or inner is None or inner.value is None or inner.op is None:
                continue
            if inner.value.name is None and inner.op.location.frames == op.location.frames:
                self.chosen_names[number] = value.name

    def name_of(self, instance: Instance) -> str | None:
        """Return the name of the variable that an instance is bound to, or None."""
        assert instance.value is not None
        return instance.value.name or self.chosen_names.get(instance.number)

    def text_of(self, value: Value) -> str | None:
        """Source text of the expression that computed an unnamed value, or None if it has none.

        Rearranged tiles have none, as they hold no other numbers than their operand.
        """
        node = self._expressions.get(value)
        if node is None or value.name is not None or value.defining_op is None:
            return None
        if value.defining_op.name in _REARRANGING:
            return None
        text = ast.unparse(node)
        return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"

    def _writes_shared(self, view: int, source: int) -> None:
        places = self.instances[view].places if view >= 0 else None
        if places is not None:
            self.shared_writes.append(SharedWrite(len(self.instances), places, source))

    def _bulk_copy(
        self,
        run: Evaluator,
        op: Operation,
        ids: tuple[int, ...],
        operands: Sequence[TileValue],
    ) -> None:
        copy = ttng.AsyncTmaCopyGlobalToLocal(op)
        predicate = self.current.get(copy.predicate, -1)
        test = self.instances[predicate].data if predicate >= 0 else None
        if test is not None and not bool(test):
            return
        number, before = len(self.instances), len(operands) - len(copy.coordinates)
        block = self._block(run, op, operands[0], operands[before:])
        self.instances.append(Instance(number, self.now, op, None, ids, None, block=block))
        self._writes_shared(self.current.get(copy.buffer, -1), number)

    def _bulk_store(
        self,
        run: Evaluator,
        op: Operation,
        ids: tuple[int, ...],
        operands: Sequence[TileValue],
    ) -> None:
        view = operands[1]
        assert isinstance(view, BufferView)
        held, row = read_view(run, view), self._program - run.first
        data = held[row if held.shape[0] > 1 else 0].clone()
        number, block = len(self.instances), self._block(run, op, operands[0], operands[2:])
        self.instances.append(Instance(number, self.now, op, None, ids, data, block=block))
        self.bulk_stores.append(number)

    def bulk_store_of(self, op: Operation, lane: int, offset: int) -> int | None:
        """The last bulk copy by `op` whose element at `lane` is at `offset` of its tensor."""
        for number in reversed(self.bulk_stores):
            made = self.instances[number]
            if made.op is op and made.block is not None:
                if int(made.block.offsets.reshape(-1)[lane]) == offset:
                    return number
        return None

    def _block(
        self,
        run: Evaluator,
        op: Operation,
        descriptor: TileValue,
        offsets: Sequence[TileValue],
    ) -> Block | None:
        assert isinstance(descriptor, DescriptorTile)
        shape = ir.shape_of(loaded_type(op))
        pointer, mask = descriptor_access(run, descriptor, shape, offsets)
        if not isinstance(pointer, PointerTile):
            return None
        row = self._program - run.first
        places = run.full(pointer.places, ir.tile(shape, ir.I64))
        keeps = run.full(mask, ir.tile(shape, ir.I1))
        return Block(
            pointer.buffer,
            places[row if places.shape[0] > 1 else 0].clone(),
            keeps[row if keeps.shape[0] > 1 else 0].clone(),
        )

    def _add(
        self,
        run: Evaluator,
        op: Operation | None,
        value: Value,
        tile: TileValue,
        operands: tuple[int, ...],
        block: Block | None = None,
    ) -> None:
        data, buffer = self._row(run, value, tile)
        places = None
        if isinstance(tile, BufferView):
            places = places_of(run, tile, self._program - run.first)
        number = len(self.instances)
        waits = isinstance(tile, Tensor) and tile in run.in_flight.pending
        rounds = tuple(self._rounds)
        made = Instance(
            number, self.now, op, value, operands, data, buffer, places, block, waits, rounds
        )
        self.instances.append(made)
        self.current[value] = number
        if data is not None:
            self._bytes += data.numel() * data.element_size()
        if self._bytes > _MOST_BYTES:
            raise UsageError(
                "why: what this program computed takes more than 1 GiB; ask earlier in the launch"
            )

    def _row(
        self, run: Evaluator, value: Value, tile: TileValue
    ) -> tuple[Tensor | None, Buffer | None]:
        place, buffer = self._program - run.first, None
        if isinstance(tile, DescriptorTile | BufferView) or value.type == ir.TOKEN:
            return None, None
        type_ = value.type
        if isinstance(tile, PointerTile | AddressTile):
            buffer = tile.buffer if isinstance(tile, PointerTile) else None
            shape = ir.shape_of(type_)
            tile, type_ = tile.places, ir.tile(shape, ir.I64) if shape else ir.I64
        dense = run.full(tile, type_)
        return dense[place if dense.shape[0] > 1 else 0].clone(), buffer

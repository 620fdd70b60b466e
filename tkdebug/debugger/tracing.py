"""What one program computed, op instance by op instance: traced by executing the launch again.

The launch stays where it is: it is executed beside itself from a checkpoint, and memory is put back
as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir import Operation, Region, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.debugger.execution import Execution, Traced
from tkdebug.debugger.moments import Moment
from tkdebug.errors import UsageError
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.values import (
    AddressTile,
    BufferView,
    DescriptorTile,
    PointerTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.debugger.elements import Element
    from tkdebug.interpreter.buffers import Buffer
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.observed_access import ObservedAccess
    from tkdebug.interpreter.state import EvaluatorState

_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """One result of an op that ran once, for one program.

    Attributes:
        number: its position in the trace.
        time: how many ops had begun.
        op: None for an argument of the kernel.
        value: the IR value.
        operands: the numbers of the instances that it was computed from, -1 for unknown ones.
        data: the tile of this program; offsets in elements where it is pointers; None where it has
            no numbers.
        buffer: what the pointers point into.
    """

    number: int
    time: int
    op: Operation | None
    value: Value | None
    operands: tuple[int, ...]
    data: Tensor | None
    buffer: Buffer | None = None


class _Counting(Observer):
    """Counts ops as an `Execution` does, and ends at a moment."""

    needs_intermediates = True
    is_passive = False

    def __init__(self, execution: Execution, until: Moment, now: int) -> None:
        self._execution = execution
        self._until = until
        self.now = now

    @property
    def key(self) -> None:
        """Its plan is its own."""
        return None

    def moments(self, op: Operation) -> Moments:
        """Where an execution counts."""
        if op not in self._execution.code.needed:
            return Moments.NEVER
        return Moments.BEFORE | Moments.AFTER

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Count."""
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
        """What was recorded, where that is no function of the inputs."""
        return self._execution.recorded.get(self.now, results)


@dataclass(frozen=True, slots=True)
class Write:
    """A write of an element.

    Attributes:
        time: how many ops had begun.
        program: linear number of who wrote.
        lane: the position in the tile that was stored, row by row.
    """

    time: int
    op: Operation
    program: int
    lane: int


class WriteFinder(_Counting):
    """Notes the last write of an element."""

    follows_accesses = True

    def __init__(self, execution: Execution, until: Moment, now: int, element: Element) -> None:
        super().__init__(execution, until, now)
        self._element = element
        self.found: Write | None = None

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After a store."""
        self._note(access)

    def atomic_done(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After an atomic."""
        self._note(access)

    def _note(self, access: ObservedAccess) -> None:
        element = self._element
        if access.buffer.storage_key != element.storage_key:
            return
        touched = access.touch()
        hit = (touched.places * access.itemsize == element.byte).nonzero().reshape(-1)
        if hit.numel():
            last = int(hit[-1])
            self.found = Write(
                self.now, access.op, int(touched.programs[last]), int(touched.lanes[last])
            )


@dataclass(frozen=True, slots=True)
class Miss:
    """A store that addresses an element and does not write it.

    Attributes:
        is_masked: whether its mask is false there; else the program does not come by.
    """

    op: Operation
    program: int
    is_masked: bool


class MissFinder(_Counting):
    """Notes the stores that address an element, or what those of its tensor address instead.

    Attributes:
        misses: the first few.
        reached: for each store into the tensor the lowest and the highest element that it
            addresses, from the tensor's first.
    """

    def __init__(self, execution: Execution, until: Moment, now: int, element: Element) -> None:
        super().__init__(execution, until, now)
        self._element = element
        self.misses: list[Miss] = []
        self.reached: dict[Operation, tuple[int, int]] = {}

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Look at a store's pointers."""
        super().before(run, op, operands)
        if not tt.Store.matches(op) or not isinstance(operands[0], PointerTile):
            return
        pointer, element = operands[0], self._element
        buffer = pointer.buffer
        if buffer.storage_key != element.storage_key:
            return
        shape = ir.shape_of(tt.Store(op).pointer.type)
        offsets = run.full(pointer.offset, ir.tile(shape, ir.I64) if shape else ir.I64)
        low, high = self.reached.get(op, (int(offsets.min()), int(offsets.max())))
        self.reached[op] = (min(low, int(offsets.min())), max(high, int(offsets.max())))
        place = element.byte // buffer.itemsize - buffer.storage_offset
        hits = (offsets == place).reshape(offsets.shape[0], -1).any(1)
        hits = hits.expand(run.programs)
        mask = tt.Store(op).mask
        for program in hits.nonzero().reshape(-1).tolist()[:4]:
            is_here = run.active is None or bool(run.active[program])
            if len(self.misses) < 8 and (mask is not None or not is_here):
                self.misses.append(Miss(op, run.first + program, is_here))


class SourceFinder(_Counting):
    """Notes the writes of memory that a slice has loaded.

    Attributes:
        found: by allocation the last write that hit one of its elements.
    """

    follows_accesses = True

    def __init__(
        self,
        execution: Execution,
        until: Moment,
        now: int,
        bytes_of: Mapping[int, Tensor],
    ) -> None:
        super().__init__(execution, until, now)
        self.found: dict[int, Write] = {}
        self._bytes_of = bytes_of

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After a store."""
        self._note(access)

    def atomic_done(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After an atomic."""
        self._note(access)

    def _note(self, access: ObservedAccess) -> None:
        wanted = self._bytes_of.get(access.buffer.storage_key)
        if wanted is None:
            return
        touched = access.touch()
        hit = torch.isin(touched.places * access.itemsize, wanted).nonzero().reshape(-1)
        if hit.numel():
            last = int(hit[-1])
            self.found[access.buffer.storage_key] = Write(
                self.now, access.op, int(touched.programs[last]), int(touched.lanes[last])
            )


class Tracer(_Counting):
    """Notes each instance of one program.

    Attributes:
        instances: all, in the order in which they ran.
        current: the instance that each IR value is just now.
        stores: the instances' numbers of each store's operands, by time.
    """

    def __init__(self, execution: Execution, until: Moment, now: int, program: int) -> None:
        super().__init__(execution, until, now)
        self.instances: list[Instance] = []
        self.current: dict[Value, int] = {}
        self.stores: dict[int, tuple[Operation, tuple[int, ...]]] = {}
        self._program = program
        self._pending: dict[Operation, list[int]] = {}
        self._bytes = 0

    def moments(self, op: Operation) -> Moments:
        """Everything."""
        if tt.Func.matches(op):
            return Moments.REGIONS
        wanted = super().moments(op)
        return wanted | Moments.REGIONS if wanted and op.regions else wanted

    def _is_active(self, run: Evaluator) -> bool:
        place = self._program - run.first
        if not 0 <= place < run.programs:
            return False
        return run.active is None or bool(run.active[place])

    def _ids(self, values: Sequence[Value]) -> list[int]:
        return [self.current.get(value, -1) for value in values]

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Note what goes into a loop, and what a store stores."""
        super().before(run, op, operands)
        if not self._is_active(run):
            return
        if scf.For.matches(op):
            self._pending[op] = self._ids(scf.For(op).inits)
        elif scf.While.matches(op):
            self._pending[op] = self._ids(op.operands)
        elif not op.results:
            self.stores[self.now] = (op, tuple(self._ids(op.operands)))

    def enters(self, run: Evaluator, region: Region, arguments: Sequence[TileValue]) -> None:
        """Bind a region's arguments to the instances that they are."""
        if not self._is_active(run):
            return
        op = region.parent
        assert op is not None
        given = region.block.arguments
        if tt.Func.matches(op):
            for argument, value in zip(given, arguments, strict=True):
                self._add(run, None, argument, value, ())
        elif scf.For.matches(op):
            self._add(run, op, given[0], arguments[0], tuple(self._ids(scf.For(op).bounds)))
            self.current.update(zip(given[1:], self._pending[op], strict=True))
        elif scf.While.matches(op):
            self.current.update(zip(given, self._pending[op], strict=True))

    def leaves(self, run: Evaluator, region: Region, results: Sequence[TileValue]) -> None:
        """Note what a region forwards."""
        if not self._is_active(run):
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
        if not self._is_active(run):
            return results
        if op in self._pending:
            self.current.update(zip(op.results, self._pending.pop(op), strict=True))
            return results
        ids = tuple(self._ids(op.operands))
        if op.results:
            for value, result in zip(op.results, results, strict=True):
                self._add(run, op, value, result, ids)
        return results

    def _add(
        self,
        run: Evaluator,
        op: Operation | None,
        value: Value,
        tile: TileValue,
        operands: tuple[int, ...],
    ) -> None:
        data, buffer = self._row(run, value, tile)
        number = len(self.instances)
        self.instances.append(Instance(number, self.now, op, value, operands, data, buffer))
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
        if isinstance(tile, DescriptorTile | BufferView):
            return None, None
        type_ = value.type
        if isinstance(tile, PointerTile | AddressTile):
            buffer = tile.buffer if isinstance(tile, PointerTile) else None
            shape = ir.shape_of(type_)
            tile, type_ = tile.places, ir.tile(shape, ir.I64) if shape else ir.I64
        dense = run.full(tile, type_)
        return dense[place if dense.shape[0] > 1 else 0].clone(), buffer


def bit_mask(shape: Sequence[int], lane: int) -> Tensor:
    """A mask that is true at one position of a tile."""
    mask = torch.zeros(tuple(shape), dtype=torch.bool)
    mask.reshape(-1)[lane] = True
    return mask

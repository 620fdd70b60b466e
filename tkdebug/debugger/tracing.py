"""What one program computed, op instance by op instance: traced by executing the launch again.

The launch stays where it is: it is executed beside itself from a checkpoint, and memory is put back
as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir import Operation, Region, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.debugger.counting import CountingObserver
from tkdebug.debugger.execution import Execution
from tkdebug.debugger.moments import Moment
from tkdebug.errors import UsageError
from tkdebug.interpreter.observers import Moments
from tkdebug.interpreter.values import (
    AddressTile,
    BufferView,
    DescriptorTile,
    PointerTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.buffers import Buffer
    from tkdebug.interpreter.evaluator import Evaluator

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


class Tracer(CountingObserver):
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

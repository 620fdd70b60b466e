"""Reports accesses that stay inside their tensor, but leave their row for the next one.

Two shapes of this are certain; memory that is read as another shape than the tensor's looks like
neither:

- each program, or each iteration of the only program, begins at a row of its own and has more lanes
  than the row has elements; the mask cuts these off at the end of the tensor, not at the end of the
  row (`row * n + cols < rows * n`); or a program has a tile of such rows;
- a tile of rows and columns whose lanes along the stride of the columns go beyond the row, while
  the kernel takes the tensor's strides in the other order than the tensor has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.faults.hints import counted, stride_hint
from tkdebug.compiler.faults.messages import FaultText, access_verb, named
from tkdebug.compiler.ir import Module, Operation
from tkdebug.interpreter.checks.access_pattern_check import AccessPatternCheck
from tkdebug.interpreter.checks.dimension_ranges import dimensions
from tkdebug.interpreter.checks.value_sources import LaneSelections
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.checked_access import mask_of
from tkdebug.interpreter.observers import Moments
from tkdebug.interpreter.tiles.program_bases import Base
from tkdebug.interpreter.tiles.values import AffineTile, BoxMask, PointerTile, TileValue

_MASK_HINT = "mask by the column, cols < n, and not by the offset: the end of a row is not the end"
_MOST_ROUNDS = 1 << 14


@dataclass(slots=True)
class _Overrun:
    """The first element of an access beyond its row, and the number of all such elements."""

    buffer: Buffer
    offender: Offender
    row: int
    count: int
    hint: str


class RowOverruns(AccessPatternCheck):
    """`--check row-overrun`."""

    def __init__(self, module: Module, faults: FaultLog) -> None:
        super().__init__(module, faults)
        self._selects_loaded = LaneSelections.of(module).any_by_lane
        self._found: dict[Operation, _Overrun] = {}
        # For loads and stores of an only program: begin and elements of each iteration.
        self._rounds: dict[Operation, tuple[Buffer, int, int, list[tuple[int, int]]]] = {}
        # For bases that were seen: their remainders by the row's stride, where programs have rows.
        self._rows: dict[tuple[int, int], tuple[Base, Tensor | None]] = {}

    def _moments_of(self, op: Operation) -> Moments:
        """Ask to be called before loads and stores."""
        is_seen = tt.Store.matches(op) or tt.Load.matches(op)
        return Moments.BEFORE if is_seen else Moments.NEVER

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Look for lanes of a load or store that go beyond their row."""
        pointer = operands[0]
        if not isinstance(pointer, PointerTile) or not isinstance(pointer.offset, AffineTile):
            return
        buffer, tile = pointer.buffer, pointer.offset
        if len(buffer.dims) < 2 or buffer.itemsize != buffer.tensor.element_size():
            return
        (row, rows), (step, size) = _last_two(buffer)
        if row != step * size or rows < 2 or dimensions(buffer) is None:
            return
        mask = _mask(op, operands)
        if run.active is not None:
            return
        lanes = [axis for axis, coef in enumerate(tile.coefs) if coef and tile.shape[axis] > 1]
        is_tile = len(lanes) == 2 and {tile.coefs[axis] for axis in lanes} == {row, step}
        if isinstance(mask, Tensor) and is_tile:
            self._look_at_rows_of_tile(run, op, buffer, tile, mask, lanes)
        if not isinstance(mask, BoxMask | int) or mask == 0:
            return
        if self._selects_loaded and tt.Load.matches(op) and not _is_ended(mask, tile, lanes, step):
            return
        if len(lanes) == 1 and tile.coefs[lanes[0]] == step:
            if self._faults.grid == (1, 1, 1):
                self._note_round(op, buffer, tile, mask, lanes[0])
            elif isinstance(mask, BoxMask):
                self._look_at_rows(run, op, buffer, tile, mask, lanes[0])
        elif is_tile:
            self._look_at_tile(run, op, buffer, tile, mask, lanes)

    # Programs that have a row each

    def _look_at_rows(
        self,
        run: Evaluator,
        op: Operation,
        buffer: Buffer,
        tile: AffineTile,
        mask: BoxMask,
        axis: int,
    ) -> None:
        (row, _), (step, _) = _last_two(buffer)
        low, high = mask.bounds[axis]
        # A bound that is the same in all programs is the kernel's own for its row.
        if isinstance(high, int) or not isinstance(low, int):
            return
        columns = None if tile.base is None else self._columns(tile.base, row)
        if columns is None or tile.base is None:
            return
        # Lanes that the mask leaves out may be of the row before.
        first = int((columns[0] + tile.const + step * low) % row)
        ends = first + step * (high.clamp(max=tile.shape[axis]) - low)
        over = ends - row
        longest = int(over.max())
        if longest <= 0 or (longest + row) % row == 0:
            return
        at = int((over > 0).to(torch.uint8).argmax())
        lane = low + (row - first) // step
        start = int(tile.base.tensor.reshape(-1)[at]) + tile.const
        place = tuple(lane if a == axis else 0 for a in range(len(tile.shape)))
        offender = Offender(run.program_at(at), place, start + lane * step)
        count = int(over.clamp(min=0).sum()) // step
        self._note(op, _Overrun(buffer, offender, row // step, count, _MASK_HINT))

    def _look_at_rows_of_tile(
        self,
        run: Evaluator,
        op: Operation,
        buffer: Buffer,
        tile: AffineTile,
        mask: Tensor,
        lanes: list[int],
    ) -> None:
        """Look for lanes beyond a tile's rows that only the end of the tensor cuts off."""
        (row, _), (step, size) = _last_two(buffer)
        (across,) = (axis for axis in lanes if tile.coefs[axis] == step)
        width = tile.shape[across] * step
        starts = torch.tensor([0]) if tile.base is None else tile.base.tensor.reshape(-1).cpu()
        starts = starts + tile.const
        # Several rows at once are meant.
        if op in self._found or width < row or not width % row or bool((starts % row).any()):
            return
        offsets = starts.reshape(-1, *(1 for _ in tile.shape))
        for axis, coef in enumerate(tile.coefs):
            offsets = offsets + coef * _positions(tile, axis)
        inside = offsets < 1 + sum(stride * (count - 1) for stride, count in buffer.dims)
        if bool(inside.all()) or not torch.equal(mask.cpu().bool().expand_as(inside), inside):
            return
        beyond = inside & (_positions(tile, across) >= size)
        program, *place = (int(at) for at in beyond.nonzero()[0])
        offender = Offender(
            run.program_at(program), tuple(place), int(offsets[program][tuple(place)])
        )
        self._note(op, _Overrun(buffer, offender, size, int(beyond.sum()), _MASK_HINT))

    # The only program, which goes from row to row

    def _note_round(
        self, op: Operation, buffer: Buffer, tile: AffineTile, mask: BoxMask | int, axis: int
    ) -> None:
        extent = tile.shape[axis]
        low, high = (0, extent) if isinstance(mask, int) else mask.bounds[axis]
        start = tile.const + (0 if tile.base is None else int(tile.base.tensor.reshape(-1)[0]))
        ends = min(extent, int(high)) if int(low) == 0 else 0
        known = self._rounds.setdefault(op, (buffer, axis, extent, []))
        if known[0] is buffer and len(known[3]) < _MOST_ROUNDS:
            known[3].append((start, ends))

    def _look_at_rounds(
        self, op: Operation, buffer: Buffer, axis: int, extent: int, rounds: list[tuple[int, int]]
    ) -> None:
        """Note iterations that begin at a row each, and access up to the end of the tensor."""
        (row, rows), (step, _) = _last_two(buffer)
        moves = {after[0] - before[0] for before, after in pairwise(rounds)}
        end = rounds[0][0] + row * len(rounds)
        if moves != {row} or len(rounds) != rows or extent * step <= row:
            return
        if any(count != min(extent, (end - start) // step) for start, count in rounds):
            return
        over = [count - row // step for _, count in rounds]
        start, size = rounds[0][0], row // step
        place = tuple(size if a == axis else 0 for a in range(axis + 1))
        offender = Offender((0, 0, 0), place, start + row)
        count = sum(max(each, 0) for each in over)
        self._note(op, _Overrun(buffer, offender, size, count, _MASK_HINT))

    def _columns(self, base: Base, row: int) -> Tensor | None:
        """Return bases modulo the row's stride; None unless each program has a row of its own."""
        key = id(base.tensor), row
        known = self._rows.get(key)
        if known is None:
            known = self._rows[key] = base, _columns_of_rows(base, row)
            if len(self._rows) > 64:
                self._rows.pop(next(iter(self._rows)))
        return known[1]

    # Tiles whose strides are swapped

    def _look_at_tile(
        self,
        run: Evaluator,
        op: Operation,
        buffer: Buffer,
        tile: AffineTile,
        mask: BoxMask | int,
        lanes: list[int],
    ) -> None:
        if op in self._found:
            return
        (row, rows), (step, size) = _last_two(buffer)
        (across,) = (axis for axis in lanes if tile.coefs[axis] == step)
        along = lanes[0] if lanes[1] == across else lanes[1]
        end = tile.shape[across]
        if isinstance(mask, BoxMask):
            high = mask.bounds[across][1]
            end = min(end, high if isinstance(high, int) else int(high.max()))
        if end <= size:
            return
        hint = stride_hint(op, buffer, self._faults.arguments)
        if hint is not None:
            hint = f"the strides are taken in another order than the tensor's: {hint}"
        elif rows != size and _is_cut_at(mask, along, tile.shape[along], size):
            hint = f"the lanes that go from row to row end at {size}, as the columns do"
            hint += ": are the strides swapped?"
        else:
            return
        start = tile.const + (0 if tile.base is None else int(tile.base.tensor.reshape(-1)[0]))
        lane = size - start % row // step
        place = tuple(lane if axis == across else 0 for axis in range(len(tile.shape)))
        offender = Offender(run.program_at(0), place, start + lane * step)
        count = (end - size) * tile.shape[along]
        self._note(op, _Overrun(buffer, offender, size, count, hint))

    def _note(self, op: Operation, found: _Overrun) -> None:
        known = self._found.setdefault(op, found)
        if known is not found:
            known.count += found.count

    def _report(self) -> bool:
        """Report accesses that did not also leave the tensor; return whether any was found."""
        for op, (buffer, axis, extent, rounds) in self._rounds.items():
            if len(rounds) > 1:
                self._look_at_rounds(op, buffer, axis, extent, rounds)
        for op, found in self._found.items():
            if not self._faults.has_access_fault(op):
                self._faults.record(op, _text(op, found), found.offender, found.count)
        return bool(self._found)


def _text(op: Operation, found: _Overrun) -> FaultText:
    tensor = found.buffer.name
    return FaultText(
        "row-overrun",
        f"{access_verb(op)} {found.count} elements beyond the end of its row of "
        f"{named(tensor, 'the tensor')} ({counted(found.row)}), which are of the next rows",
        "warning",
        tensor,
        found.offender.index,
        hint=found.hint,
    )


def _mask(op: Operation, operands: Sequence[TileValue]) -> TileValue:
    """Return the mask of a load or store, 1 without one."""
    value = mask_of(op)
    return 1 if value is None else operands[op.operands.index(value)]


def _positions(tile: AffineTile, axis: int) -> Tensor:
    """Return 0, 1, … along an axis of a tile, after the axis of programs."""
    sizes = [1 if other != axis else -1 for other in range(len(tile.shape))]
    return torch.arange(tile.shape[axis]).reshape(1, *sizes)


def _last_two(buffer: Buffer) -> list[tuple[int, int]]:
    """Return strides and sizes of the last two dimensions of more than one element.

    If there are not two, return those of the last two dimensions.
    """
    dims = [dim for dim in buffer.dims if dim[1] != 1]
    return dims[-2:] if len(dims) > 1 else buffer.dims[-2:]


def _is_ended(mask: BoxMask | int, tile: AffineTile, lanes: list[int], step: int) -> bool:
    """Whether the mask ends a tile's lanes along its columns before the tile does."""
    across = [axis for axis in lanes if tile.coefs[axis] == step]
    if len(lanes) != 2 or len(across) != 1 or not isinstance(mask, BoxMask):
        return False
    high, extent = mask.bounds[across[0]][1], tile.shape[across[0]]
    return high < extent if isinstance(high, int) else bool((high < extent).any())


def _is_cut_at(mask: BoxMask | int, axis: int, extent: int, end: int) -> bool:
    """Whether the mask, before the tile's end, ends at `end` along an axis in all programs."""
    if not isinstance(mask, BoxMask) or extent <= end:
        return False
    high = mask.bounds[axis][1]
    return high == end if isinstance(high, int) else bool((high == end).all())


def _columns_of_rows(base: Base, row: int) -> Tensor | None:
    if not base.is_per_program or base.tensor.numel() < 2:
        return None
    starts = base.tensor.reshape(-1)
    steps = starts.sort().values.diff()
    moves = steps[steps > 0]
    is_next = moves.numel() > 0 and int(moves.min()) == row and not bool((moves % row).any())
    return starts % row if is_next else None

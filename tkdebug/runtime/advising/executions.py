"""Executions of each op of the GPU IR in a launch, from the counts of Tile IR.

Passes move, copy and rename ops. An op in a loop still runs as often as that loop's body did; an op
that passes put before a loop runs as often as the ops around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir import Module, Operation, Region
from tkdebug.linemap.parts import OpPlace


class Executions:
    """Counts of one launch.

    Args:
        tile: the module that was interpreted.
        gpu: the module that was lowered.
        places: the ops of a compile that began with the same Tile IR, by origin.
        entered: by region of `tile`, the number of programs that entered it, each iteration
            counted.
        programs: the programs of the grid.
    """

    def __init__(
        self,
        tile: Module,
        gpu: Module,
        places: Mapping[int, OpPlace],
        entered: Mapping[Region, int],
        programs: int,
    ) -> None:
        self._tile_ops = {op.id: op for op in tile.walk()}
        self._gpu_ops = {op.id: op for op in gpu.walk()}
        self._places = places
        self._entered = entered
        self._programs = programs
        self._known: dict[Operation, int] = {}

    def tile_op(self, gpu_op_id: int) -> Operation | None:
        """Return the Tile IR op that an op of GPU IR came from, the first of several, or None."""
        return next(self.tile_ops(gpu_op_id), None)

    def tile_ops(self, gpu_op_id: int) -> Iterator[Operation]:
        """Yield the Tile IR ops that an op of GPU IR came from."""
        place = self._places.get(gpu_op_id)
        origins = (gpu_op_id, *(place.origins if place is not None else ()))
        return (self._tile_ops[o] for o in origins if o in self._tile_ops)

    def gpu_op(self, op_id: int) -> Operation | None:
        """Return the op of GPU IR with that id, or None."""
        return self._gpu_ops.get(op_id)

    def of_tile(self, op: Operation) -> int:
        """Return how often an op of Tile IR runs."""
        region = _region_around(op)
        return self._programs if region is None else self._entered.get(region, 0)

    def rounds_of_tile(self, loop: Operation) -> int:
        """Iterations of a loop of Tile IR, in all programs."""
        return self._entered.get(loop.regions[-1], 0)

    def of_gpu(self, op_id: int | None) -> int:
        """Return how often an op of GPU IR runs; once an iteration for a loop's own code."""
        op = self._gpu_ops.get(op_id) if op_id is not None else None
        if op is None:
            return self._programs
        if scf.Loop.matches(op):
            rounds = self._of_region(op.regions[-1])
            return self._of_op(op) if rounds is None else rounds
        return self._of_op(op)

    def entered(self, loop: Operation) -> int:
        """Return how often a loop of GPU IR is entered, in all programs."""
        return self._of_op(loop)

    def _of_op(self, op: Operation) -> int:
        known = self._known.get(op)
        if known is None:
            known = self._known[op] = self._count(op)
        return known

    def _count(self, op: Operation) -> int:
        region = _region_around(op)
        if region is None:
            return self._programs
        counted = self._of_region(region)
        assert region.parent is not None
        return self._of_op(region.parent) if counted is None else counted

    def _of_region(self, region: Region) -> int | None:
        """Return how often a region of GPU IR is entered; None if Tile IR has no such region."""
        parent = region.parent
        assert parent is not None
        tile = self.tile_op(parent.id)
        if tile is None or tile.name != parent.name:
            return None
        return self._entered.get(tile.regions[parent.regions.index(region)], 0)


def _region_around(op: Operation) -> Region | None:
    """Return the innermost region of control flow around an op; None in the kernel's own body."""
    block = op.block
    while block is not None:
        region = block.region
        parent = region.parent if region is not None else None
        if parent is None or tt.Func.matches(parent):
            return None
        if scf.Loop.matches(parent) or scf.If.matches(parent):
            return region
        block = parent.block
    return None


def loops_around(op: Operation) -> int:
    """Return how many loops an op is in."""
    count, block = 0, op.block
    while block is not None and block.region is not None and block.region.parent is not None:
        parent = block.region.parent
        count += scf.Loop.matches(parent)
        block = parent.block
    return count

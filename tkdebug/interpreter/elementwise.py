"""Mapped functions, inline assembly and special registers.

A mapped function runs once for all elements: each element is a program of its own on the program
axis, so branches and loops diverge element by element under the same masks that programs use.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter import ptx
from tkdebug.interpreter.addresses import AddressOps
from tkdebug.interpreter.reductions import ReductionOps
from tkdebug.interpreter.state import Batch
from tkdebug.interpreter.values import AddressTile, AffineTile, Base, PointerTile, TileValue

# Multiprocessors of the GPU that interpretation stands in for, an H200.
_MULTIPROCESSORS = 132


class ElementwiseOps(AddressOps, ReductionOps):
    """tt.map_elementwise, tt.elementwise_inline_asm and nvvm's special registers."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        # How many entries of the program axis stand for one program.
        self._lanes = 1

    # Mapped functions

    def map_elementwise(self, op: Operation, *operands: TileValue) -> Sequence[TileValue]:
        """tt.map_elementwise."""
        pack = op.attributes["pack"]
        assert isinstance(pack, int)
        shape = ir.shape_of(op.operands[0].type)
        region = op.regions[0]
        arguments: list[TileValue] = []
        for value, operand in zip(operands, op.operands, strict=True):
            arguments += self._lanes_of(value, operand.type, pack)
        count = 1
        for extent in shape:
            count *= extent
        saved = self.programs, self.active, self._lanes
        lanes = count // pack
        self.programs, self._lanes = self.programs * lanes, self._lanes * lanes
        if self.active is not None:
            self.active = self.active.repeat_interleave(lanes)
        try:
            results = self.run_region(region, arguments)
        finally:
            whole = self.programs
            self.programs, self.active, self._lanes = saved
        types = [value.type for value in region.block.terminator.operands]
        columns = [
            self.dense(value, type_).reshape(-1).expand(whole)
            for value, type_ in zip(results, types, strict=True)
        ]
        return [
            torch.stack(columns[place : place + pack], -1).reshape(self.programs, *shape)
            for place in range(0, len(columns), pack)
        ]

    def _lanes_of(self, value: TileValue, type_: ir.Type, pack: int) -> list[TileValue]:
        """A tile's elements on the program axis, in `pack` interleaved parts."""
        if isinstance(value, PointerTile | AddressTile):
            parts = self._lanes_of(value.places, _index_type(type_), pack)
            return [value.at(part) for part in parts]
        if isinstance(value, int):
            return [value] * pack
        tile = self.full(value, type_)
        flat = tile.expand(self.programs, *tile.shape[1:]).reshape(-1, pack)
        return [flat[:, place] for place in range(pack)]

    def program_id(self, axis: int) -> TileValue:
        """Program ids along a grid axis; all lanes of a program have its id."""
        if self._lanes == 1:
            return super().program_id(axis)
        whole = self.programs
        self.programs = whole // self._lanes
        try:
            ids = super().program_id(axis)
        finally:
            self.programs = whole
        if isinstance(ids, AffineTile) and ids.base is not None:
            spread = ids.base.tensor.repeat_interleave(self._lanes)
            return AffineTile(ids.const, Base(spread, ids.base.bounds), (), ())
        return ids

    def program_at(self, position: int) -> tuple[int, int, int]:
        """Program id of the batch's entry at `position` of the program axis."""
        return super().program_at(position // self._lanes)

    # Inline assembly and special registers

    def inline_asm(self, op: Operation, *operands: TileValue) -> Sequence[TileValue]:
        """tt.elementwise_inline_asm, where its PTX is understood."""
        tiles = []
        for value, operand in zip(operands, op.operands, strict=True):
            if isinstance(value, PointerTile | AddressTile):
                tiles.append(self.full(self.addresses(value), _index_type(operand.type)))
            else:
                tiles.append(self.full(value, operand.type))
        shape = ir.shape_of(op.results[0].type)
        count = max((tile.shape[0] for tile in tiles), default=1)
        flat = [tile.expand(count, *shape).reshape(-1) for tile in tiles]
        targets = [self.dtype_of(result.type) for result in op.results]
        results = ptx.run(op, flat, targets, self.device)
        return [result.reshape(-1, *shape) for result in results]

    def multiprocessor_id(self, op: Operation) -> TileValue:
        """nvvm.read.ptx.sreg.smid: programs take turns."""
        first = self.first
        ids = torch.arange(first, first + self.programs // self._lanes, device=self.device)
        tile: Tensor = (ids % _MULTIPROCESSORS).to(torch.int32)
        return tile.repeat_interleave(self._lanes)

    def global_timer(self, op: Operation) -> TileValue:
        """nvvm.read.ptx.sreg.globaltimer."""
        return time.time_ns()


def _index_type(type_: ir.Type) -> ir.Type:
    return ir.tile(ir.shape_of(type_), ir.I64)

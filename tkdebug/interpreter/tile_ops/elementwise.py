"""Mapped functions, inline assembly, special registers and assertions.

A mapped function runs once for all elements: each element is a program of its own on the program
axis, so branches and loops diverge element by element under the same masks that programs use.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import nvvm, tt
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.pointers import byte_addresses
from tkdebug.interpreter.tiles.values import AddressTile, PointerTile, TileValue
from tkdebug.process.apart_imports import import_apart

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

# Multiprocessors of an H200, the GPU that interpreted kernels are shown.
_MULTIPROCESSORS = 132


# Mapped functions


def map_elementwise(
    run: Evaluator, view: tt.MapElementwise, *operands: TileValue
) -> Sequence[TileValue]:
    """tt.map_elementwise."""
    pack = view.pack
    shape = ir.shape_of(view.sources[0].type)
    region = view.op.regions[0]
    arguments: list[TileValue] = []
    for value, operand in zip(operands, view.sources, strict=True):
        arguments += _lanes_of(run, value, operand.type, pack)
    count = 1
    for extent in shape:
        count *= extent
    saved = run.programs, run.active, run.lanes
    lanes = count // pack
    run.programs, run.lanes = run.programs * lanes, run.lanes * lanes
    if run.active is not None:
        run.active = run.active.repeat_interleave(lanes)
    try:
        results = run.run_region(region, arguments)
    finally:
        whole = run.programs
        run.programs, run.active, run.lanes = saved
    types = [value.type for value in region.block.terminator.operands]
    columns = [
        run.dense(value, type_).reshape(-1).expand(whole)
        for value, type_ in zip(results, types, strict=True)
    ]
    return [
        torch.stack(columns[place : place + pack], -1).reshape(run.programs, *shape)
        for place in range(0, len(columns), pack)
    ]


def _lanes_of(run: Evaluator, value: TileValue, type_: ir.Type, pack: int) -> list[TileValue]:
    """A tile's elements on the program axis, in `pack` interleaved parts."""
    if isinstance(value, PointerTile | AddressTile):
        parts = _lanes_of(run, value.places, _index_type(type_), pack)
        return [value.at(part) for part in parts]
    if isinstance(value, int):
        return [value] * pack
    tile = run.full(value, type_)
    flat = tile.expand(run.programs, *tile.shape[1:]).reshape(-1, pack)
    return [flat[:, place] for place in range(pack)]


# Inline assembly and special registers


def inline_asm(
    run: Evaluator, view: tt.ElementwiseInlineAsm, *operands: TileValue
) -> Sequence[TileValue]:
    """tt.elementwise_inline_asm, where its PTX is understood."""
    import_apart("tkdebug.interpreter.ptx.program")
    from tkdebug.interpreter.ptx import program as ptx

    tiles = []
    for value, operand in zip(operands, view.sources, strict=True):
        if isinstance(value, PointerTile | AddressTile):
            tiles.append(run.full(byte_addresses(value), _index_type(operand.type)))
        else:
            tiles.append(run.full(value, operand.type))
    shape = ir.shape_of(view.results[0].type)
    count = max((tile.shape[0] for tile in tiles), default=1)
    flat = [tile.expand(count, *shape).reshape(-1) for tile in tiles]
    targets = [run.dtype_of(result.type) for result in view.results]
    results = ptx.run(view, flat, targets, run.device)
    return [result.reshape(-1, *shape) for result in results]


def multiprocessor_id(run: Evaluator, view: nvvm.MultiprocessorId) -> TileValue:
    """nvvm.read.ptx.sreg.smid: programs take turns."""
    first = run.first
    ids = torch.arange(first, first + run.programs // run.lanes, device=run.device)
    tile: Tensor = (ids % _MULTIPROCESSORS).to(torch.int32)
    return tile.repeat_interleave(run.lanes)


def global_timer(run: Evaluator, view: nvvm.GlobalTimer) -> TileValue:
    """nvvm.read.ptx.sreg.globaltimer."""
    return time.time_ns()


def _index_type(type_: ir.Type) -> ir.Type:
    return ir.tile(ir.shape_of(type_), ir.I64)


def device_assert(
    run: Evaluator, view: tt.Assert, condition: TileValue, mask: TileValue = 1
) -> Sequence[TileValue]:
    """tt.assert: a fault where the condition is false."""
    if isinstance(condition, int) and condition:
        return ()
    shape = ir.shape_of(view.condition.type)
    bad = ~run.dense(condition, view.condition.type)
    if not isinstance(mask, int):
        bad = bad & run.dense(mask, ir.tile(shape, ir.I1))
    elif not mask:
        return ()
    bad = bad.expand(run.programs, *shape)
    if run.active is not None:
        bad = bad & run.active.reshape(-1, *(1,) * len(shape))
    if bool(bad.any()):
        run.faults.assertion(view.op, run.offender(bad, None, None), int(bad.sum()))
    return ()

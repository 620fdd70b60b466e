"""Ops on single elements: conversions, mapped functions, inline assembly, assertions.

Conversions are plain functions over what every evaluator has: its dtypes, its index algebra and
`map`. Integers that are numbers or affine stay so.

A mapped function runs once for all elements: each element is a program of its own on the program
axis, so branches and loops diverge element by element under the same masks that programs use.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, nvvm, tt
from tkdebug.compiler.dialects.arith import wrap
from tkdebug.compiler.dialects.interfaces import Cast
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.pointers import affine_of, byte_addresses
from tkdebug.interpreter.numerics import fp8, rounding
from tkdebug.interpreter.tiles.values import AddressTile, AffineTile, PointerTile, TileValue
from tkdebug.process.apart_imports import import_apart

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


def extend_signed(run: Evaluator, view: arith.ExtSI, value: TileValue) -> TileValue:
    """arith.extsi."""
    source = ir.element_of(view.source.type).bits
    if isinstance(value, int):
        return -value if source == 1 else value
    if isinstance(value, AffineTile):
        return value
    target = run.dtype_of(view.result.type)
    if source == 1:
        return run.map(view.op, lambda t: -t.to(target), value)
    return run.map(view.op, lambda t: t.to(target), value)


def extend_unsigned(run: Evaluator, view: arith.ExtUI, value: TileValue) -> TileValue:
    """arith.extui."""
    source = ir.element_of(view.source.type).bits
    if isinstance(value, int):
        return value & ((1 << source) - 1)
    if isinstance(value, AffineTile) and value.bounds(exact=True)[0] >= 0:
        return value
    target = run.dtype_of(view.result.type)
    if source == 1:
        return run.map(view.op, lambda t: t.to(target), value)
    return run.map(view.op, lambda t: t.to(target) & ((1 << source) - 1), value)


def truncate(run: Evaluator, view: arith.TruncI, value: TileValue) -> TileValue:
    """arith.trunci."""
    bits = ir.element_of(view.result.type).bits
    if isinstance(value, int):
        return wrap(value, bits)
    if isinstance(value, AffineTile) and bits > 1:
        return run.index.settle(value, bits)
    target = run.dtype_of(view.result.type)
    if bits == 1:
        return run.map(view.op, lambda t: (t & 1).to(target), value)
    return run.map(view.op, lambda t: t.to(target), value)


def integer_to_float(run: Evaluator, view: arith.SIToFP, value: TileValue) -> TileValue:
    """arith.sitofp."""
    target = run.dtype_of(view.result.type)
    return run.map(view.op, lambda t: t.to(target), value)


def unsigned_to_float(run: Evaluator, view: arith.UIToFP, value: TileValue) -> TileValue:
    """arith.uitofp."""
    bits = ir.element_of(view.source.type).bits
    target = run.dtype_of(view.result.type)

    def convert(t: Tensor) -> Tensor:
        if bits == 1:
            return t.to(target)
        if bits < 64:
            return (t.to(torch.int64) & ((1 << bits) - 1)).to(target)
        # Halve with the lost bit kept sticky, convert, double: one rounding.
        half = ((t >> 1) & (2**63 - 1)) | (t & 1)
        return torch.where(t >= 0, t.to(target), half.to(target) * 2)

    return run.map(view.op, convert, value)


def float_to_integer(run: Evaluator, view: Cast, value: TileValue) -> TileValue:
    """arith.fptosi and arith.fptoui: toward zero, as cvt does it; 8 bits are 16 cut short."""
    target = run.dtype_of(view.result.type)
    dtype = torch.int16 if target is torch.int8 else target
    unsigned = isinstance(view, arith.FPToUI)
    return run.map(
        view.op, lambda t: rounding.to_integer(torch, "rz", dtype, unsigned, t).to(target), value
    )


def convert_float(run: Evaluator, view: Cast, value: TileValue) -> TileValue:
    """arith.extf and arith.truncf: to nearest even."""
    target = run.dtype_of(view.result.type)
    if ir.element_of(view.source.type) == ir.F64 and target.itemsize < 4:
        # torch goes by way of fp32, which rounds twice.
        return run.map(view.op, lambda t: fp8.rounded_to_odd(t).to(target), value)
    return run.map(view.op, lambda t: t.to(target), value)


def fp_to_fp(run: Evaluator, view: tt.FpToFp, value: TileValue) -> TileValue:
    """tt.fp_to_fp: with a rounding mode; fp8 saturates to finite."""
    source = ir.element_of(view.source.type)
    target = ir.element_of(view.result.type)
    assert isinstance(source, ir.ScalarType)
    assert isinstance(target, ir.ScalarType)
    toward_zero = view.rounding == "rtz"
    return run.map(
        view.op,
        lambda t: fp8.convert(t, source.name, target.name, run.dtypes, toward_zero),
        value,
    )


def bitcast(run: Evaluator, view: tt.Bitcast, value: TileValue) -> TileValue:
    """tt.bitcast: the same bits under another type; pointers to another element type."""
    element = ir.element_of(view.result.type)
    if isinstance(element, ir.PointerType):
        return _bitcast_pointer(run, view, value, max(1, element.pointee.bits // 8))
    source = ir.element_of(view.source.type)
    if isinstance(value, int | AffineTile) and element.is_integer:
        return value
    target = run.dtype_of(view.result.type)
    if source.bits == 1 or element.bits == 1:
        return run.map(view.op, lambda t: t.to(target), value)
    return run.map(view.op, lambda t: t.view(target), value)


def _bitcast_pointer(run: Evaluator, view: tt.Bitcast, value: TileValue, size: int) -> TileValue:
    if isinstance(value, AddressTile):
        return AddressTile(value.address, value.buffers, size)
    if not isinstance(value, PointerTile):
        return AddressTile(value, (), size)  # type: ignore[arg-type]
    have = value.buffer.itemsize
    if have == size:
        return value
    shape = ir.shape_of(view.result.type)
    if have < size or have % size:
        address = byte_addresses(value)
        return AddressTile(address, (value.buffer,), size)  # type: ignore[arg-type]
    offset = run.index.scaled(affine_of(run, value.offset, shape), have // size)
    return PointerTile(value.buffer.reinterpreted(size), offset)


def pointer_to_integer(run: Evaluator, view: tt.PtrToInt, value: TileValue) -> TileValue:
    """tt.ptr_to_int."""
    assert isinstance(value, PointerTile | AddressTile)
    return byte_addresses(value)


def integer_to_pointer(run: Evaluator, view: tt.IntToPtr, value: TileValue) -> TileValue:
    """tt.int_to_ptr."""
    element = ir.element_of(view.result.type)
    assert isinstance(element, ir.PointerType)
    if not isinstance(value, int | AffineTile):
        value = run.dense(value, view.source.type).to(torch.int64)
    return AddressTile(value, (), max(1, element.pointee.bits // 8))


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
    """Return a tile's elements on the program axis, as `pack` interleaved parts."""
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
    """tt.elementwise_inline_asm, if its PTX is understood."""
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
    """nvvm.read.ptx.sreg.smid: the multiprocessor, to which programs are dealt in turn."""
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

"""Conversions of tile values to another element type, a function for each op.

Plain functions over what every evaluator has: its dtypes, its index algebra and `map`. Integers
that are numbers or affine stay so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ops.arith import wrap
from tkdebug.interpreter import fp8, rounding
from tkdebug.interpreter.addresses import byte_addresses
from tkdebug.interpreter.memory import affine_of
from tkdebug.interpreter.values import AddressTile, AffineTile, PointerTile, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


def _extend_signed(ev: Evaluator, op: Operation, value: TileValue) -> TileValue:
    """arith.extsi."""
    source = ir.element_of(op.operands[0].type).bits
    if isinstance(value, int):
        return -value if source == 1 else value
    if isinstance(value, AffineTile):
        return value
    target = ev.dtype_of(op.result.type)
    if source == 1:
        return ev.map(op, lambda t: -t.to(target), value)
    return ev.map(op, lambda t: t.to(target), value)


def _extend_unsigned(ev: Evaluator, op: Operation, value: TileValue) -> TileValue:
    """arith.extui."""
    source = ir.element_of(op.operands[0].type).bits
    if isinstance(value, int):
        return value & ((1 << source) - 1)
    if isinstance(value, AffineTile) and value.bounds(exact=True)[0] >= 0:
        return value
    target = ev.dtype_of(op.result.type)
    if source == 1:
        return ev.map(op, lambda t: t.to(target), value)
    return ev.map(op, lambda t: t.to(target) & ((1 << source) - 1), value)


def _truncate(ev: Evaluator, op: Operation, value: TileValue) -> TileValue:
    """arith.trunci."""
    bits = ir.element_of(op.result.type).bits
    if isinstance(value, int):
        return wrap(value, bits)
    if isinstance(value, AffineTile) and bits > 1:
        return ev.index.settle(value, bits)
    target = ev.dtype_of(op.result.type)
    if bits == 1:
        return ev.map(op, lambda t: (t & 1).to(target), value)
    return ev.map(op, lambda t: t.to(target), value)


def _integer_to_float(ev: Evaluator, op: Operation, value: TileValue) -> TileValue:
    """arith.sitofp."""
    target = ev.dtype_of(op.result.type)
    return ev.map(op, lambda t: t.to(target), value)


def _unsigned_to_float(ev: Evaluator, op: Operation, value: TileValue) -> TileValue:
    """arith.uitofp."""
    bits = ir.element_of(op.operands[0].type).bits
    target = ev.dtype_of(op.result.type)

    def convert(t: Tensor) -> Tensor:
        if bits == 1:
            return t.to(target)
        if bits < 64:
            return (t.to(torch.int64) & ((1 << bits) - 1)).to(target)
        # Halve with the lost bit kept sticky, convert, double: one rounding.
        half = ((t >> 1) & (2**63 - 1)) | (t & 1)
        return torch.where(t >= 0, t.to(target), half.to(target) * 2)

    return ev.map(op, convert, value)


def _float_to_integer(ev: Evaluator, op: Operation, value: TileValue) -> TileValue:
    """arith.fptosi and arith.fptoui: toward zero, as cvt does it; 8 bits are 16 cut short."""
    target = ev.dtype_of(op.result.type)
    dtype = torch.int16 if target is torch.int8 else target
    unsigned = op.name == "arith.fptoui"
    return ev.map(
        op, lambda t: rounding.to_integer(torch, "rz", dtype, unsigned, t).to(target), value
    )


def _convert_float(ev: Evaluator, op: Operation, value: TileValue) -> TileValue:
    """arith.extf and arith.truncf: to nearest even."""
    target = ev.dtype_of(op.result.type)
    if ir.element_of(op.operands[0].type) == ir.F64 and target.itemsize < 4:
        # torch goes by way of fp32, which rounds twice.
        return ev.map(op, lambda t: fp8.rounded_to_odd(t).to(target), value)
    return ev.map(op, lambda t: t.to(target), value)


def _fp_to_fp(ev: Evaluator, op: Operation, value: TileValue) -> TileValue:
    """tt.fp_to_fp: with a rounding mode; fp8 saturates to finite."""
    source = ir.element_of(op.operands[0].type)
    target = ir.element_of(op.result.type)
    assert isinstance(source, ir.ScalarType)
    assert isinstance(target, ir.ScalarType)
    toward_zero = op.attributes.get("rounding") == "rtz"
    return ev.map(
        op,
        lambda t: fp8.convert(t, source.name, target.name, ev.dtypes, toward_zero),
        value,
    )


def _bitcast(ev: Evaluator, op: Operation, value: TileValue) -> TileValue:
    """tt.bitcast: the same bits under another type; pointers to another element type."""
    element = ir.element_of(op.result.type)
    if isinstance(element, ir.PointerType):
        return _bitcast_pointer(ev, op, value, max(1, element.pointee.bits // 8))
    source = ir.element_of(op.operands[0].type)
    if isinstance(value, int | AffineTile) and element.is_integer:
        return value
    target = ev.dtype_of(op.result.type)
    if source.bits == 1 or element.bits == 1:
        return ev.map(op, lambda t: t.to(target), value)
    return ev.map(op, lambda t: t.view(target), value)


def _bitcast_pointer(ev: Evaluator, op: Operation, value: TileValue, size: int) -> TileValue:
    if isinstance(value, AddressTile):
        return AddressTile(value.address, value.buffers, size)
    assert isinstance(value, PointerTile)
    have = value.buffer.itemsize
    if have == size:
        return value
    shape = ir.shape_of(op.result.type)
    if have < size or have % size:
        address = byte_addresses(value)
        return AddressTile(address, (value.buffer,), size)  # type: ignore[arg-type]
    offset = ev.index.scaled(affine_of(ev, value.offset, shape), have // size)
    return PointerTile(value.buffer.reinterpreted(size), offset)


def _pointer_to_integer(ev: Evaluator, op: Operation, value: TileValue) -> TileValue:
    """tt.ptr_to_int."""
    assert isinstance(value, PointerTile | AddressTile)
    return byte_addresses(value)


def _integer_to_pointer(ev: Evaluator, op: Operation, value: TileValue) -> TileValue:
    """tt.int_to_ptr."""
    element = ir.element_of(op.result.type)
    assert isinstance(element, ir.PointerType)
    if not isinstance(value, int | AffineTile):
        value = ev.dense(value, op.operands[0].type).to(torch.int64)
    return AddressTile(value, (), max(1, element.pointee.bits // 8))


CONVERSIONS: dict[str, Callable[[Evaluator, Operation, TileValue], TileValue]] = {
    "arith.extsi": _extend_signed,
    "arith.extui": _extend_unsigned,
    "arith.trunci": _truncate,
    "arith.sitofp": _integer_to_float,
    "arith.uitofp": _unsigned_to_float,
    "arith.fptosi": _float_to_integer,
    "arith.fptoui": _float_to_integer,
    "arith.extf": _convert_float,
    "arith.truncf": _convert_float,
    "tt.fp_to_fp": _fp_to_fp,
    "tt.bitcast": _bitcast,
    "tt.ptr_to_int": _pointer_to_integer,
    "tt.int_to_ptr": _integer_to_pointer,
}

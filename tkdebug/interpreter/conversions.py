"""Conversions of tile values to another element type, a function for each op.

Plain functions over what every evaluator has: its dtypes, its index algebra and `map`. Integers
that are numbers or affine stay so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ops.arith import wrap
from tkdebug.interpreter import fp8
from tkdebug.interpreter.addresses import AddressOps
from tkdebug.interpreter.values import AddressTile, AffineTile, PointerTile, TileValue


def _extend_signed(ev: AddressOps, op: Operation, value: TileValue) -> TileValue:
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


def _extend_unsigned(ev: AddressOps, op: Operation, value: TileValue) -> TileValue:
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


def _truncate(ev: AddressOps, op: Operation, value: TileValue) -> TileValue:
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


def _integer_to_float(ev: AddressOps, op: Operation, value: TileValue) -> TileValue:
    """arith.sitofp."""
    target = ev.dtype_of(op.result.type)
    return ev.map(op, lambda t: t.to(target), value)


def _unsigned_to_float(ev: AddressOps, op: Operation, value: TileValue) -> TileValue:
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


def _to_signed(ev: AddressOps, op: Operation, value: TileValue) -> TileValue:
    """arith.fptosi: toward zero, saturating, NaN to 0 (PTX ISA, "cvt", .rzi)."""
    bits = ir.element_of(op.result.type).bits
    target = ev.dtype_of(op.result.type)
    return ev.map(op, lambda t: _to_integer(t, target, -(1 << (bits - 1)), bits), value)


def _to_integer(t: Tensor, target: Any, low: int, bits: int) -> Tensor:
    if bits == 64:
        wide = t.double().nan_to_num(0.0, posinf=2.0**63, neginf=-(2.0**63))
        safe = wide.clamp(-(2.0**63), 2.0**63 - 1024)
        whole = safe.to(torch.int64)
        return torch.where(wide >= 2.0**63, 2**63 - 1, whole)
    limit = float(low + (1 << bits) - 1)
    clamped = t.double().nan_to_num(0.0, posinf=limit, neginf=float(low))
    return clamped.clamp(float(low), limit).to(torch.int64).to(target)


def _to_unsigned(ev: AddressOps, op: Operation, value: TileValue) -> TileValue:
    """arith.fptoui: toward zero, saturating, NaN to 0."""
    bits = ir.element_of(op.result.type).bits
    target = ev.dtype_of(op.result.type)

    def convert(t: Tensor) -> Tensor:
        if bits < 64:
            return _to_integer(t, target, 0, bits)
        wide = t.double().nan_to_num(0.0, posinf=2.0**64, neginf=0.0).clamp(min=0.0)
        low = wide.clamp(max=2.0**63 - 1024).to(torch.int64)
        high = (wide - 2.0**63).clamp(0.0, 2.0**63 - 1024).to(torch.int64) ^ -(2**63)
        out = torch.where(wide >= 2.0**63, high, low)
        return torch.where(wide >= 2.0**64, -1, out)

    return ev.map(op, convert, value)


def _convert_float(ev: AddressOps, op: Operation, value: TileValue) -> TileValue:
    """arith.extf and arith.truncf: to nearest even."""
    target = ev.dtype_of(op.result.type)
    if ir.element_of(op.operands[0].type) == ir.F64 and target.itemsize < 4:
        # torch goes by way of fp32, which rounds twice.
        return ev.map(op, lambda t: fp8.rounded_to_odd(t).to(target), value)
    return ev.map(op, lambda t: t.to(target), value)


def _fp_to_fp(ev: AddressOps, op: Operation, value: TileValue) -> TileValue:
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


def _bitcast(ev: AddressOps, op: Operation, value: TileValue) -> TileValue:
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


def _bitcast_pointer(ev: AddressOps, op: Operation, value: TileValue, size: int) -> TileValue:
    if isinstance(value, AddressTile):
        return AddressTile(value.address, value.buffers, size)
    assert isinstance(value, PointerTile)
    have = value.buffer.itemsize
    if have == size:
        return value
    shape = ir.shape_of(op.result.type)
    if have < size or have % size:
        address = ev.addresses(value)
        return AddressTile(address, (value.buffer,), size)  # type: ignore[arg-type]
    offset = ev.index.scaled(ev.affine_of(value.offset, shape), have // size)
    return PointerTile(value.buffer.reinterpreted(size), offset)


def _pointer_to_integer(ev: AddressOps, op: Operation, value: TileValue) -> TileValue:
    """tt.ptr_to_int."""
    assert isinstance(value, PointerTile | AddressTile)
    return ev.addresses(value)


def _integer_to_pointer(ev: AddressOps, op: Operation, value: TileValue) -> TileValue:
    """tt.int_to_ptr."""
    element = ir.element_of(op.result.type)
    assert isinstance(element, ir.PointerType)
    if not isinstance(value, int | AffineTile):
        value = ev.dense(value, op.operands[0].type).to(torch.int64)
    return AddressTile(value, (), max(1, element.pointee.bits // 8))


CONVERSIONS: dict[str, Callable[[AddressOps, Operation, TileValue], TileValue]] = {
    "arith.extsi": _extend_signed,
    "arith.extui": _extend_unsigned,
    "arith.trunci": _truncate,
    "arith.sitofp": _integer_to_float,
    "arith.uitofp": _unsigned_to_float,
    "arith.fptosi": _to_signed,
    "arith.fptoui": _to_unsigned,
    "arith.extf": _convert_float,
    "arith.truncf": _convert_float,
    "tt.fp_to_fp": _fp_to_fp,
    "tt.bitcast": _bitcast,
    "tt.ptr_to_int": _pointer_to_integer,
    "tt.int_to_ptr": _integer_to_pointer,
}

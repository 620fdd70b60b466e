"""`LowerDescriptors`: accesses through tensor descriptors become those of pointer tiles with masks.

Those of parameters that `SelectTensorMaps` chose stay. Any other descriptor becomes its base
pointer, followed wherever it is forwarded (parameters, loops, branches) by its shape and strides as
values of their own. What the hardware's rules for descriptors guarantee is noted as hints: the base
and all strides but the last are multiples of 16 bytes, the last stride is 1. An element is inside
the tensor if its index along every axis, read without sign, is below the extent: that also keeps
negative indices out, and does not overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

from tkdebug.compiler.analysis.tensor_maps import is_mapped
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import accessed
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.core import Block, Module, Operation, Value
from tkdebug.compiler.ir.types import DescriptorType, element_of, shape_of
from tkdebug.compiler.passes.descriptor_slots import Descriptor, Slots
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.errors import CompileError

# What addresses and strides of a tensor map are multiples of (PTX ISA, tensor-map object).
_ALIGNMENT_BYTES = 16


@dataclass(frozen=True, slots=True)
class LowerDescriptors:
    """Replaces every descriptor that is no tensor map, and every op on one."""

    name: ClassVar[str] = "lower-descriptors"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Lower in program order, so that a descriptor is known before its uses."""
        slots = Slots(rewriter)
        slots.spread_parameters(module.function)
        _lower_block(module.function.regions[0].block, slots, rewriter)
        rewriter.commit()


def _lower_block(block: Block, slots: Slots, rewriter: Rewriter) -> None:
    for op in list(block.operations):
        lower = _LOWERINGS.get(op.name)
        if lower is not None:
            is_map = isinstance(accessed(op).type, DescriptorType)
            if is_map or is_mapped(op):
                # A tensor map is made of it, bulk copies do the access.
                continue
            rule = op.name.removeprefix("tt.").replace("_", "-")
            lower(op, OpBuilder(rewriter, op, f"lower-{rule}"), slots)
            continue
        slots.spread_operands(op)
        for region in op.regions:
            slots.spread_arguments(op, region)
            _lower_block(region.block, slots, rewriter)
        slots.spread_results(op)


def _lower_make(op: Operation, build: OpBuilder, slots: Slots) -> None:
    """The descriptor's place is taken by its base pointer."""
    type_ = op.result.type
    assert isinstance(type_, DescriptorType)
    make = tt.MakeTensorDescriptor(op)
    base, sizes, strides = make.base, make.shape, make.strides
    if constant_value(strides[-1]) != 1:
        raise CompileError(
            "make_tensor_descriptor: the last stride is only known at run time; it must be the "
            "constant 1, so write 1",
            frames=op.location.frames,
        )
    extents = tuple(_extent(build, size) for size in sizes)
    unit = max(1, _ALIGNMENT_BYTES * 8 // type_.block.element.bits)
    steps = tuple(_aligned(build, stride, unit) for stride in strides[:-1])
    hint = build.replace(
        tt.Hint,
        (base,),
        {"kind": "divisibility", "values": (_ALIGNMENT_BYTES,)},
        (base.type,),
    )
    padding = make.padding
    slots.known[hint.result] = Descriptor(type_.block, extents, steps, padding)


def _extent(build: OpBuilder, size: Value) -> Value:
    """An extent as i32 that is not negative: a negative one holds no element."""
    number = constant_value(size)
    if isinstance(number, int) and number >= 0:
        return size
    return build.binary(arith.MaxSI, size, 0)


def _aligned(build: OpBuilder, stride: Value, unit: int) -> Value:
    if unit == 1 or constant_value(stride) is not None:
        return stride
    return build.op(tt.Hint, (stride,), kind="divisibility", values=(unit,))


@dataclass(frozen=True, slots=True)
class _Axis:
    """Where the elements of a block are along one axis: `start` + `lanes`, one of them at least.

    Attributes:
        start: an i32 scalar.
        lanes: an i32 tile of one axis.
    """

    start: Value | None
    lanes: Value | None


def _block_axes(build: OpBuilder, shape: Sequence[int], offsets: Sequence[Value]) -> list[_Axis]:
    return [
        _Axis(offset, build.range(extent) if extent > 1 else None)
        for extent, offset in zip(shape, offsets, strict=True)
    ]


def _row_axes(build: OpBuilder, shape: Sequence[int], rows: Value, column: Value) -> list[_Axis]:
    return [_Axis(None, rows), _Axis(column, build.range(shape[1]))]


def _pointers(
    build: OpBuilder,
    base: Value,
    descriptor: Descriptor,
    shape: tuple[int, ...],
    axes: Sequence[_Axis],
) -> tuple[Value, Value]:
    """Pointer tile and mask of a block of `shape`."""
    start: Value | None = None
    offset: Value | None = None
    for place, axis in enumerate(axes):
        stride = descriptor.strides[place] if place < len(descriptor.strides) else None
        if axis.start is not None:
            step = _times(build, axis.start, stride)
            start = step if start is None else build.binary(arith.AddI, start, step)
        if axis.lanes is not None:
            lanes = build.along(_times(build, axis.lanes, stride), place, len(axes))
            lanes = build.broadcast(lanes, shape)
            offset = lanes if offset is None else build.binary(arith.AddI, offset, lanes)
    if start is not None:
        base = build.op(tt.AddPtr, (base, start))
    pointers = build.splat(base, shape)
    if offset is not None:
        pointers = build.op(tt.AddPtr, (pointers, offset))
    return pointers, _mask(build, descriptor, shape, axes)


def _times(build: OpBuilder, index: Value, stride: Value | None) -> Value:
    """An index of i32 times a stride, in 64 bits."""
    wide = build.cast(arith.ExtSI, index, ir.I64)
    if stride is None:
        return wide
    shape = shape_of(wide.type)
    return build.binary(arith.MulI, wide, build.splat(stride, shape) if shape else stride)


def _mask(
    build: OpBuilder, descriptor: Descriptor, shape: tuple[int, ...], axes: Sequence[_Axis]
) -> Value:
    parts = []
    whole: Value | None = None
    for place, axis in enumerate(axes):
        extent = descriptor.shape[place]
        if axis.lanes is None:
            assert axis.start is not None
            inside = build.compare("ult", axis.start, extent)
            whole = inside if whole is None else build.binary(arith.AndI, whole, inside)
            continue
        index, lanes = axis.lanes, shape_of(axis.lanes.type)
        if axis.start is not None:
            index = build.binary(arith.AddI, build.splat(axis.start, lanes), index)
        inside = build.compare("ult", index, build.splat(extent, lanes))
        parts.append(build.broadcast(build.along(inside, place, len(axes)), shape))
    if whole is not None:
        parts.append(build.splat(whole, shape))
    return reduce(lambda a, b: build.binary(arith.AndI, a, b), parts)


def _padding(build: OpBuilder, descriptor: Descriptor, type_: ir.Type) -> Value:
    element = element_of(type_)
    assert isinstance(element, ir.ScalarType)
    if descriptor.padding == "nan":
        return build.constant(type_, float("nan"))
    return build.constant(type_, 0.0 if element.is_float else 0)


def _lower_load(op: Operation, build: OpBuilder, slots: Slots) -> None:
    base, *offsets = op.operands
    descriptor = slots.of(op, base)
    shape = shape_of(op.result.type)
    axes = _block_axes(build, shape, offsets)
    _replace_load(op, build, base, descriptor, axes)


def _lower_gather(op: Operation, build: OpBuilder, slots: Slots) -> None:
    base, rows, column = op.operands
    descriptor = slots.of(op, base)
    axes = _row_axes(build, shape_of(op.result.type), rows, column)
    _replace_load(op, build, base, descriptor, axes)


def _replace_load(
    op: Operation,
    build: OpBuilder,
    base: Value,
    descriptor: Descriptor,
    axes: Sequence[_Axis],
) -> None:
    type_ = op.result.type
    pointers, mask = _pointers(build, base, descriptor, shape_of(type_), axes)
    other = _padding(build, descriptor, type_)
    build.replace(tt.Load, (pointers, mask, other), op.attributes)


def _lower_store(op: Operation, build: OpBuilder, slots: Slots) -> None:
    base, value, *offsets = op.operands
    shape = shape_of(value.type)
    axes = _block_axes(build, shape, offsets)
    pointers, mask = _pointers(build, base, slots.of(op, base), shape, axes)
    build.replace(tt.Store, (pointers, value, mask), op.attributes)


def _lower_scatter(op: Operation, build: OpBuilder, slots: Slots) -> None:
    base, value, rows, column = op.operands
    shape = shape_of(value.type)
    axes = _row_axes(build, shape, rows, column)
    pointers, mask = _pointers(build, base, slots.of(op, base), shape, axes)
    build.replace(tt.Store, (pointers, value, mask), op.attributes)


def _lower_reduce(op: Operation, build: OpBuilder, slots: Slots) -> None:
    base, value, *offsets = op.operands
    shape = shape_of(value.type)
    axes = _block_axes(build, shape, offsets)
    pointers, mask = _pointers(build, base, slots.of(op, base), shape, axes)
    # Bulk reductions are relaxed at gpu scope (PTX ISA, cp.reduce.async.bulk.tensor).
    build.replace(
        tt.AtomicRmw,
        (pointers, value, mask),
        {**op.attributes, "sem": "relaxed", "scope": "gpu"},
        (value.type,),
    )


_LOWERINGS: dict[str, Callable[[Operation, OpBuilder, Slots], None]] = {
    tt.MakeTensorDescriptor.name: _lower_make,
    tt.DescriptorLoad.name: _lower_load,
    tt.DescriptorStore.name: _lower_store,
    tt.DescriptorGather.name: _lower_gather,
    tt.DescriptorScatter.name: _lower_scatter,
    tt.DescriptorReduce.name: _lower_reduce,
}

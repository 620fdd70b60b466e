"""`LowerDescriptors`: accesses through tensor descriptors become those of pointer tiles with masks.

Accesses of parameters that `SelectTensorMaps` chose stay. Any other descriptor becomes a base
pointer, a shape and strides, and each slot that held one (parameters of the function, carried
values of loops and branches) becomes several. Between ops the shape is i32 and the last stride,
which is 1, is left out; parameters have all of them as i64, as they are passed.

The hardware's guarantees for descriptors are noted as hints: the base and all strides but the last
are multiples of 16 bytes, the last stride is 1. An element is inside the tensor if its index along
every axis, read without sign, is below the extent: that also keeps negative indices out, and does
not overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

from tkdebug.compiler.analysis.tensor_maps import is_mapped
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.interfaces import accessed
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import edges, forwarded_operands, junctions
from tkdebug.compiler.ir.core import Block, Module, Operation, Region, Value
from tkdebug.compiler.ir.types import (
    DescriptorType,
    PointerType,
    TensorType,
    Type,
    element_of,
    shape_of,
)
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.errors import CompileError, IRError

_RULE = "spread-descriptor"
# Ops that forward values; a descriptor as an operand of any other op is an error.
_HANDING_ON = frozenset(
    (scf.For.name, scf.While.name, scf.If.name, scf.Yield.name, scf.Condition.name)
)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A descriptor without its base pointer.

    Attributes:
        block: type of the blocks it reads and writes.
        shape: extents, i32 and not negative.
        strides: in elements, i64; all but the last.
        padding: "zero" or "nan".
    """

    block: TensorType
    shape: tuple[Value, ...]
    strides: tuple[Value, ...]
    padding: str

    @property
    def values(self) -> tuple[Value, ...]:
        """The values that are forwarded after the base pointer."""
        return (*self.shape, *self.strides)


class Slots:
    """Replaces each descriptor value by its base pointer, shape and strides.

    Attributes:
        known: the descriptors by base pointer.
    """

    def __init__(self, rewriter: Rewriter) -> None:
        self.known: dict[Value, Descriptor] = {}
        self._rewriter = rewriter

    def of(self, op: Operation, base: Value) -> Descriptor:
        """The descriptor with base pointer `base`, which `op` uses.

        Raises:
            IRError: no op before `op` defines such a descriptor.
        """
        descriptor = self.known.get(base)
        if descriptor is None:
            raise IRError(f"{_where(op)}: operand 0 is not a descriptor that is defined before it")
        return descriptor

    def spread_parameters(self, function: Operation) -> None:
        """Replace each descriptor parameter by base, shape and strides, all as they are passed.

        Tensor maps stay as they are, with shape and strides after them.
        """
        block = function.regions[0].block
        if not any(isinstance(a.type, DescriptorType) for a in block.arguments):
            return
        view = tt.Func(function)
        names, divisors = view.arg_names, view.arg_divisibility
        padded, mapped = view.nan_padded, view.tensor_maps
        del view.nan_padded
        del view.mappable
        if kept := tuple(name for name in padded if name in mapped):
            view.nan_padded = kept
        parts: list[tuple[Value, list[Value]]] = []
        new_names: list[str] = []
        new_divisors: list[int] = []
        for index, argument in enumerate(block.arguments):
            name = names[index] if names else str(argument.name)
            divisor = 1 if divisors is None else divisors[index]
            extra: list[Value] = []
            if isinstance(argument.type, DescriptorType):
                argument.name = name
                extra = _dimensions(block, argument.type, argument.name)
                if name not in mapped:
                    padding = "nan" if name in padded else "zero"
                    self._use_pointer(block, argument, extra, padding)
                new_names += [argument.name, *(str(value.name) for value in extra)]
                new_divisors += [divisor, *_divisors(divisors, index, len(extra))]
            else:
                new_names.append(name)
                new_divisors.append(divisor)
            parts.append((argument, extra))
        _renumber(block, [value for argument, extra in parts for value in (argument, *extra)])
        if names:
            view.arg_names = tuple(new_names)
        if divisors is not None:
            view.arg_divisibility = tuple(new_divisors)
        self._rewriter.record_change(function, _RULE)

    def _use_pointer(
        self, block: Block, argument: Value, dimensions: Sequence[Value], padding: str
    ) -> None:
        """Turn a descriptor parameter into its base pointer, and note its shape and strides."""
        type_ = argument.type
        assert isinstance(type_, DescriptorType)
        rank = len(type_.block.shape)
        argument.type = PointerType(type_.block.element)
        argument.name = f"{argument.name}.base"
        function = block.parent_op
        assert function is not None
        first = block.operations[0]
        build = OpBuilder(self._rewriter, first, _RULE, function.location)
        # Extents are i32 in the language, and positive where the host makes the descriptor.
        shape = tuple(build.op(arith.TruncI, (size,), ir.I32) for size in dimensions[:rank])
        strides = tuple(dimensions[rank:-1])
        self.known[argument] = Descriptor(type_.block, shape, strides, padding)

    def spread_operands(self, op: Operation) -> None:
        """Forward shape and strides with every descriptor that `op` forwards."""
        if not any(value in self.known for value in op.operands):
            return
        if op.name not in _HANDING_ON:
            raise IRError(f"{_where(op)}: has no form for tensor descriptors")
        op.operands = tuple(
            part
            for value in op.operands
            for part in (value, *(self.known[value].values if value in self.known else ()))
        )
        self._rewriter.record_change(op, _RULE)

    def spread_arguments(self, op: Operation, region: Region) -> None:
        """Add arguments for shape and strides after each descriptor argument of a region."""
        block = region.block
        if not any(isinstance(a.type, DescriptorType) for a in block.arguments):
            return
        handed_on = self._handed_to(op, region)
        values = self._spread(block.arguments, handed_on, lambda t: Value(t, block, 0), op)
        _renumber(block, values)

    def spread_results(self, op: Operation) -> None:
        """Add results for shape and strides after each descriptor result of `op`."""
        self._check_padding(op)
        if not any(isinstance(value.type, DescriptorType) for value in op.results):
            return
        handed_on = next(
            edge.operands for edge in edges(op) if edge.target is None and edge.branch is not op
        )
        results = self._spread(op.results, handed_on, lambda t: Value(t, op, 0), op)
        op.results = tuple(results)
        for index, value in enumerate(op.results):
            value.index = index
        self._rewriter.record_change(op, _RULE)

    def _handed_to(self, op: Operation, region: Region) -> tuple[Value, ...]:
        """The values of a region's arguments on entry; a counter of a loop stays itself.

        Raises:
            IRError: no edge of `op` enters the region.
        """
        entry = next((edge for edge in edges(op) if edge.target is region), None)
        if entry is None:
            raise IRError(f"{_where(op)}: has no form for tensor descriptors")
        # No edge forwards to the loop's counter, the first argument.
        own = len(region.block.arguments) - len(entry.values)
        return (*region.block.arguments[:own], *entry.operands)

    def _spread(
        self,
        slots: Sequence[Value],
        handed_on: Sequence[Value],
        make: Callable[[Type], Value],
        op: Operation,
    ) -> list[Value]:
        """Insert values for shape and strides after each descriptor among `slots`.

        Args:
            slots: arguments or results; descriptors among them become base pointers.
            handed_on: the values forwarded to them, with shapes and strides already inserted.
            make: makes a value of a type.
            op: the op of the slots.

        Raises:
            IRError: no descriptor is forwarded to a descriptor.
        """
        values: list[Value] = []
        for slot in slots:
            source = self.known.get(handed_on[len(values)])
            values.append(slot)
            if not isinstance(slot.type, DescriptorType):
                continue
            if source is None:
                raise IRError(f"{_where(op)}: forwards no descriptor where {slot.type} is expected")
            slot.type = PointerType(source.block.element)
            extra = [make(value.type) for value in source.values]
            values += extra
            rank = len(source.shape)
            self.known[slot] = Descriptor(
                source.block, tuple(extra[:rank]), tuple(extra[rank:]), source.padding
            )
        return values

    def _check_padding(self, op: Operation) -> None:
        """Check that all descriptors that are forwarded to one value have the same padding.

        Raises:
            CompileError: their paddings differ.
        """
        for junction in junctions(op):
            sources = [forwarded_operands(branch) for branch in junction.branches]
            for values in zip(*sources, strict=True):
                paddings = {
                    self.known[value].padding: None for value in values if value in self.known
                }
                if len(paddings) > 1:
                    first, other, *_ = paddings
                    raise CompileError(
                        f"a tensor descriptor that pads with {first} and one that pads with "
                        f"{other} cannot both be assigned to one variable here; "
                        "give both the same padding_option",
                        frames=op.location.frames,
                    )


def _divisors(divisors: Sequence[int] | None, index: int, count: int) -> Sequence[int]:
    """The divisors of the shape and strides of the descriptor parameter `index`.

    They follow the descriptor's own divisor: the language also passes the same numbers as separate
    parameters after it.
    """
    return () if divisors is None else divisors[index + 1 : index + 1 + count]


def _dimensions(block: Block, type_: DescriptorType, name: str) -> list[Value]:
    """Make new i64 parameters for the shape and the strides of a descriptor."""
    rank = len(type_.block.shape)
    labels = [f"{name}.{part}{i}" for part in ("shape", "stride") for i in range(rank)]
    return [_named(Value(ir.I64, block, 0), label) for label in labels]


def _named(value: Value, name: str) -> Value:
    value.name = name
    return value


def _renumber(block: Block, values: list[Value]) -> None:
    block.arguments = values
    for index, value in enumerate(values):
        value.index = index


def _where(op: Operation) -> str:
    place = op.location.primary
    return f"{place.file}:{place.line}: {op.name} #{op.id}"


# The divisor of addresses and strides of a tensor map (PTX ISA, tensor-map object).
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
                # A tensor map is made of the descriptor, and bulk copies do the access.
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
    """Replace the descriptor by its base pointer, and note its shape and strides in `slots`.

    Raises:
        CompileError: the last stride is not the constant 1.
    """
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
    """The i32 extent max(`size`, 0): a negative extent holds no element."""
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
    """The indices of a block's elements along one axis: `start` + `lanes`, None counting as 0.

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
    """An i32 index times a stride, in 64 bits; the stride None is 1."""
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

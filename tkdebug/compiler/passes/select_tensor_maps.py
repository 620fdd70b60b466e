"""`SelectTensorMaps`: which tensor descriptors become tensor maps, and why the others do not.

A descriptor that a kernel only loads operands of dots from, or only stores to, can be a tensor map,
by which one thread moves whole blocks between memory and shared memory (TMA). Where the host made
the descriptor, the kernel is passed one. Where the kernel makes it of its arguments alone, the
launch makes the tensor map (`HostTmaDescriptors`); where it makes it of what it loads or computes,
each program does (`DeviceTmaDescriptors`). The accesses of all other descriptors become those of
pointer tiles; each carries the reason in its attribute `by_pointers`.

Bulk stores write units of 16 bytes, so blocks have to begin at multiples of 16 bytes; what loads do
elsewhere has not been seen. Where a store's block begins before the tensor, it ends with an illegal
instruction (CUDA C++ Programming Guide, "Tensor Memory Access", on writing). No pass can know that
of a descriptor that the host made.

A separate unit makes the bulk copies, and the memory model orders its accesses with the threads'
only where there are fences. No kernel in which that order could be seen uses them: neither
one that both reads and writes a descriptor, nor one whose programs signal others after a store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import ClassVar

from tkdebug.compiler.analysis.axis_facts import AxisInfo
from tkdebug.compiler.analysis.axis_info import analyse
from tkdebug.compiler.analysis.global_memory import may_meet, pointer_base, pointer_origin
from tkdebug.compiler.analysis.tensor_maps import (
    LOAD,
    MAKE,
    STORE,
    UNIT_BYTES,
    integer_parameters,
    is_mapped,
    launch_text,
    misfit,
    misplaced,
    misuse,
    padding_of,
)
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.interfaces import Effects, accessed
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.core import Attribute, Block, Module, Operation, Region, Value
from tkdebug.compiler.ir.types import DescriptorType
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.targets.target import TMA, Target


class HostTmaDescriptors:
    """The descriptors that a kernel makes of its arguments alone: each launch makes their maps.

    The op that makes one moves to the kernel's beginning and stays in the GPU IR, where it
    represents a parameter of its own: the kernel itself has nothing left to do. A launch checks
    what it alone knows (extents and strides are positive, the integers by which stores find their
    place are not negative), and takes code that uses pointers where that does not hold.

    Args:
        module: the kernel, before descriptors are lowered.
        target: the target that it is compiled for.
        infos: the facts about its values.
    """

    def __init__(self, module: Module, target: Target, infos: Mapping[Value, AxisInfo]) -> None:
        self._module = module
        self._target = target
        self._infos = infos

    def knows(self, op: Operation) -> bool:
        """Whether `op` makes its descriptor of the kernel's arguments alone."""
        base, *numbers = op.operands
        is_parameter = base.owner is self._module.function.regions[0].block
        return is_parameter and None not in [launch_text(value) for value in numbers]

    def reason(self, op: Operation) -> str | None:
        """The reason why no launch can make the descriptor of `op`, or None if one can."""
        if not self._target.has(TMA):
            return f"{self._target} has no TMA"
        type_ = op.result.type
        assert isinstance(type_, DescriptorType)
        return (
            self._misshapen(op)
            or misfit(type_.block, tt.MakeTensorDescriptor(op).padding)
            or misuse(op.result)
            or misplaced(op.result, self._infos)
            or self._before_the_tensor(op)
            or self._conflict(op)
        )

    def choose(self, op: Operation, rewriter: Rewriter) -> None:
        """Have launches make the tensor map of `op`."""
        needs_check = not self._stores_are_inside(op, self._infos)
        made = _hoist(op, rewriter)
        tt.MakeTensorDescriptor(made).by_launch = True
        if needs_check:
            tt.MakeTensorDescriptor(made).non_negative = True

    def _misshapen(self, op: Operation) -> str | None:
        type_ = op.result.type
        assert isinstance(type_, DescriptorType)
        rank, element_bytes = len(type_.block.shape), type_.block.element.bits // 8
        base, *sizes = op.operands
        strides = sizes[rank:]
        if constant_value(strides[-1]) != 1:
            return "its strides are not those of a tensor map"
        steps = [
            self._infos[value].divisibility[0] * element_bytes
            for value in (sizes[rank - 1], *strides[:-1])
        ]
        if any(step % UNIT_BYTES for step in (self._infos[base].divisibility[0], *steps)):
            return f"base, strides or rows are not known to be multiples of {UNIT_BYTES} bytes"
        return None

    def _before_the_tensor(self, op: Operation) -> str | None:
        if self._stores_are_inside(op, self._assuming):
            return None
        return "a store may begin before the tensor"

    @cached_property
    def _assuming(self) -> Mapping[Value, AxisInfo]:
        """The facts that hold if no integer argument is negative."""
        function = self._module.function
        return analyse(function, integer_parameters(function))

    @staticmethod
    def _stores_are_inside(op: Operation, infos: Mapping[Value, AxisInfo]) -> bool:
        return all(
            infos[start].non_negative
            for user in op.result.uses
            if user.name == STORE
            for start in tt.DescriptorStore(user).offsets
        )

    def _conflict(self, made: Operation) -> str | None:
        """Return why threads may write memory that bulk copies access, or read what these write.

        None if they do not.
        """
        base = tt.MakeTensorDescriptor(made).base
        stores = any(user.name == STORE for user in made.result.uses)
        for op in self._module.walk():
            effects = OPS[op.name].effects if op.name in OPS else Effects.PURE
            touches = Effects.WRITE in effects or (stores and Effects.READ in effects)
            if not touches or not op.operands or accessed(op) is made.result:
                continue
            if self._parameter(accessed(op)) in (None, base):
                return "the kernel may also access what it describes by pointers"
        return None

    def _parameter(self, pointer: Value) -> Value | None:
        """The parameter that a pointer or descriptor is computed from, or None if it is unknown."""
        base = pointer_base(pointer)
        maker = base.defining_op
        if maker is not None and maker.name == MAKE:
            base = pointer_base(tt.MakeTensorDescriptor(maker).base)
        return base if base.owner is self._module.function.regions[0].block else None


def _hoist(op: Operation, rewriter: Rewriter) -> Operation:
    """Move the op that makes a descriptor, with the ops it needs, to the kernel's beginning.

    All programs must make the same descriptor. Returns the new op.
    """
    first = rewriter.module.function.regions[0].block.operations[0]
    known: dict[Value, Value] = {}

    def early(value: Value) -> Value:
        maker = value.defining_op
        if maker is None:
            return value
        if value not in known:
            clone = rewriter.build_before(
                first,
                maker.name,
                [early(operand) for operand in maker.operands],
                [value.type],
                maker.attributes,
                location=maker.location,
            )
            rewriter.record_new(clone, "make-by-launch")
            known[value] = clone.result
        return known[value]

    made = rewriter.build_before(
        first,
        op.name,
        [early(operand) for operand in op.operands],
        [op.result.type],
        op.attributes,
        location=op.location,
    )
    made.result.name = op.result.name
    rewriter.replace_with_values(op, "make-by-launch", [made.result], [made])
    return made


_OTHERWISE = "a bulk store cannot begin before the tensor or end within a unit of 16 bytes"


class DeviceTmaDescriptors:
    """The descriptors that depend on what a kernel loads or computes: programs write their maps.

    The op that makes one stays in the GPU IR. In its place, the program writes a tensor map to its
    workspace in global memory. An op in a loop writes the same place each time, so no copy by the
    old map may be under way then: no loop or branch forwards the descriptor, and no load by it is
    in the loop that makes it, where loads run ahead.

    Base and strides are taken to be multiples of 16 bytes, and strides not negative, as Triton's
    reference of make_tensor_descriptor asks; where they are not, the program traps at the op.

    Extents may be anything, and rows may end within a unit of 16 bytes. Loads pad there. A bulk
    store writes the whole unit, beyond the row's end, and it is an illegal instruction if the block
    begins before the tensor or the tensor is empty (both seen on an H200). A store for which that
    is not excluded is made in two ways: an `scf.if` chooses between the tensor map and pointers.

    Args:
        module: the kernel, before descriptors are lowered.
        target: the target that it is compiled for.
        infos: the facts about its values.

    Attributes:
        reasons: why the descriptors of stores that are made in both ways stay pointers.
    """

    def __init__(self, module: Module, target: Target, infos: Mapping[Value, AxisInfo]) -> None:
        self.reasons: dict[Value, str] = {}
        self._module = module
        self._target = target
        self._infos = infos

    def reason(self, op: Operation) -> str | None:
        """The reason why programs can make no tensor map for `op`, or None if they can."""
        if not self._target.has(TMA):
            return f"{self._target} has no TMA"
        type_ = op.result.type
        assert isinstance(type_, DescriptorType)
        if constant_value(tt.MakeTensorDescriptor(op).strides[-1]) != 1:
            return "its strides are not those of a tensor map"
        return (
            misfit(type_.block, tt.MakeTensorDescriptor(op).padding)
            or misuse(op.result)
            or misplaced(op.result, self._infos)
            or _runs_ahead(op)
            or self._conflict(op)
        )

    def choose(self, op: Operation, rewriter: Rewriter) -> None:
        """Have programs make the tensor map of `op`."""
        tt.MakeTensorDescriptor(op).by_kernel = True
        rewriter.record_change(op, "make-by-kernel")
        stores = [user for user in op.result.uses if user.name == STORE]
        if not stores:
            return
        fits = self._fits(op, OpBuilder(rewriter, op, "make-by-kernel"))
        conditions = [
            fits
            + self._non_negative(
                tt.DescriptorStore(store).offsets, OpBuilder(rewriter, store, "make-by-kernel")
            )
            for store in stores
        ]
        if not any(conditions):
            return
        plain = rewriter.build_before(
            op, MAKE, op.operands, [op.result.type], _unmapped(op), location=op.location
        )
        rewriter.record_new(plain, "make-by-kernel")
        self.reasons[plain.result] = _OTHERWISE
        for store, asked in zip(stores, conditions, strict=True):
            if asked:
                _store_both_ways(store, asked, plain.result, rewriter)

    def _fits(self, op: Operation, build: OpBuilder) -> list[Value]:
        """The conditions on the tensor under which bulk stores to it are allowed."""
        type_ = op.result.type
        assert isinstance(type_, DescriptorType)
        element_bytes = type_.block.element.bits // 8
        make = tt.MakeTensorDescriptor(op)
        sizes, strides = make.shape, make.strides[:-1]
        asked = [
            build.compare("sgt", size, build.constant(size.type, 0))
            for size in sizes
            if not _is_positive(size)
        ]
        unit = UNIT_BYTES // element_bytes
        if self._infos[sizes[-1]].divisibility[0] % unit:
            rest = build.binary(arith.AndI, sizes[-1], unit - 1)
            asked.append(build.compare("eq", rest, build.constant(rest.type, 0)))
        return asked + self._non_negative(strides, build)

    def _non_negative(self, values: Sequence[Value], build: OpBuilder) -> list[Value]:
        """Comparisons of `values` with 0, for those that are not known to be non-negative."""
        return [
            build.compare("sge", value, build.constant(value.type, 0))
            for value in values
            if not self._infos[value].non_negative
        ]

    def _conflict(self, made: Operation) -> str | None:
        """Return why pointers may access memory that bulk copies read or write, or None."""
        stores = any(user.name == STORE for user in made.result.uses)
        base = pointer_origin(tt.MakeTensorDescriptor(made).base)
        for op in self._module.walk():
            effects = OPS[op.name].effects if op.name in OPS else Effects.PURE
            touches = Effects.WRITE in effects or (stores and Effects.READ in effects)
            if not touches or not op.operands or isinstance(accessed(op).type, DescriptorType):
                continue
            if may_meet(base, pointer_origin(accessed(op))):
                return "the kernel may also access what it describes by pointers"
        return None


def _is_positive(size: Value) -> bool:
    number = constant_value(size)
    return isinstance(number, int) and number > 0


def _runs_ahead(op: Operation) -> str | None:
    loop = _loop_around(op)
    if loop is None or not scf.For.matches(loop):
        return None
    if any(_loop_around(user) is loop for user in op.result.uses if user.name == LOAD):
        return "the loop that loads by it makes it again"
    return None


def _loop_around(op: Operation) -> Operation | None:
    """Return the innermost loop that an op is in."""
    return next(scf.loops_around(op), None)


def _unmapped(op: Operation) -> dict[str, Attribute]:
    return {
        name: value
        for name, value in op.attributes.items()
        if name != tt.MakeTensorDescriptor.by_kernel.key
    }


def _store_both_ways(
    store: Operation, asked: Sequence[Value], plain: Value, rewriter: Rewriter
) -> None:
    """Store by the tensor map if all conditions hold, by the other descriptor if not."""
    build = OpBuilder(rewriter, store, "make-by-kernel")
    condition = reduce(lambda a, b: build.binary(arith.AndI, a, b), asked)
    regions = []
    view = tt.DescriptorStore(store)
    for descriptor in (view.descriptor, plain):
        block = Block()
        for name, operands in (
            (store.name, (descriptor, view.value, *view.offsets)),
            (scf.Yield.name, ()),
        ):
            attributes = store.attributes if operands else {}
            new_id = rewriter.module.new_id()
            op = Operation(name, operands, (), attributes, (), store.location, new_id)
            rewriter.record_new(op, "make-by-kernel")
            block.append(op)
        regions.append(Region([block]))
    branch = rewriter.build_before(
        store, scf.If, (condition,), (), location=store.location, regions=regions
    )
    rewriter.replace_with_ops(store, "make-by-kernel", [branch])


_UNFIT = "tensor maps do not fit the launch's arguments"


@dataclass(frozen=True, slots=True)
class SelectTensorMaps:
    """Decides for each descriptor how it is accessed.

    Attributes:
        target: the architecture.
        host_tma_descriptors: whether tensor maps may be made of descriptors that kernels make.
    """

    target: Target
    host_tma_descriptors: bool = True
    name: ClassVar[str] = "select-tensor-maps"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Write the chosen parameters to the function, and the reasons to all other accesses."""
        function = module.function
        arguments = function.regions[0].block.arguments
        reasons: dict[Value, str] = {}
        chosen: list[str] = []
        telling = _tells_others(module)
        makers = [op for op in module.walk() if op.name == MAKE]
        takes_descriptors = any(isinstance(a.type, DescriptorType) for a in arguments)
        infos = analyse(function) if takes_descriptors or makers else {}
        for place, argument in enumerate(arguments):
            if isinstance(argument.type, DescriptorType) and argument.uses:
                reason = self._reason(function, place, argument, infos) or telling
                if reason is None:
                    chosen.append(_names(function)[place])
                else:
                    reasons[argument] = reason
        if chosen:
            tt.Func(function).tensor_maps = tuple(chosen)
            rewriter.record_change(function, "use-tensor-maps")
        launch = HostTmaDescriptors(module, self.target, infos)
        kernel = DeviceTmaDescriptors(module, self.target, infos)
        for op in makers:
            maps = launch if launch.knows(op) else kernel
            reason = maps.reason(op) or telling if self.host_tma_descriptors else _UNFIT
            if reason is None and not rewriter.begins(op, "use-tensor-maps"):
                reason = _UNFIT
            if reason is None:
                maps.choose(op, rewriter)
            else:
                reasons[op.result] = reason
        rewriter.commit()
        reasons |= kernel.reasons
        for op in _accesses(module):
            maker = tt.DescriptorAccess(op).descriptor.defining_op
            if maker is not None and is_mapped(maker):
                continue
            if _names_of(function, tt.DescriptorAccess(op).descriptor) not in chosen:
                access = tt.DescriptorAccess(op)
                access.by_pointers = _reason_of(access.descriptor, reasons)
                rewriter.record_change(op, "keep-pointers")

    def _reason(
        self, function: Operation, place: int, argument: Value, infos: Mapping[Value, AxisInfo]
    ) -> str | None:
        """Return why this parameter cannot be a tensor map, or None if it can."""
        type_ = argument.type
        assert isinstance(type_, DescriptorType)
        if not self.target.has(TMA):
            return f"{self.target} has no TMA"
        names = _names(function)
        mappable, padded = tt.Func(function).mappable, tt.Func(function).nan_padded
        if not names or names[place] not in mappable:
            return "its strides and rows are not known to be those of a tensor map"
        unfit = misfit(type_.block, padding_of(names, padded, place))
        return unfit or misuse(argument) or misplaced(argument, infos)


def _reason_of(descriptor: Value, reasons: Mapping[Value, str]) -> str:
    """Return why an access through a descriptor is made by pointers."""
    return reasons.get(descriptor, "a loop or a branch forwards the descriptor")


def _names(function: Operation) -> tuple[str, ...]:
    return tt.Func(function).arg_names


def _names_of(function: Operation, value: Value) -> str | None:
    is_parameter = value.owner is function.regions[0].block
    names = _names(function)
    return names[value.index] if is_parameter and value.index < len(names) else None


def _accesses(module: Module) -> Iterator[Operation]:
    for op in module.walk():
        if tt.DescriptorAccess.matches(op):
            yield op


def _tells_others(module: Module) -> str | None:
    """Return how the kernel orders its accesses with those of other threads, or None."""
    for op in module.walk():
        if tt.Barrier.matches(op):
            return "the kernel has a barrier, which does not order bulk copies"
        if tt.Atomic.matches(op) and tt.Atomic(op).sem != "relaxed":
            return "the kernel has an atomic that orders memory, but not bulk copies"
    return None

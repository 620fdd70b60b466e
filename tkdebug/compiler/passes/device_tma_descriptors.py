"""Tensor maps of descriptors that depend on what a kernel loads or computes: programs write them.

The op that makes one stays in the GPU IR. In its place, the program writes a tensor map to its
workspace in global memory. An op in a loop writes the same place each time, so no copy by the old
map may be under way then: no loop or branch forwards the descriptor, and no load by it is in the
loop that makes it, where loads run ahead.

Base and strides are taken to be multiples of 16 bytes, and strides not negative, as Triton's
reference of make_tensor_descriptor asks; where they are not, the program traps at the op.

Extents may be anything, and rows may end within a unit of 16 bytes. Loads pad there. A bulk store
writes the whole unit, beyond the row's end, and it is an illegal instruction where the block begins
before the tensor or the tensor is empty (both seen on an H200). A store for which that is not
excluded is made in two ways: an `scf.if` chooses between the tensor map and pointers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from tkdebug.compiler.analysis.axis_facts import AxisInfo
from tkdebug.compiler.analysis.pointer_origins import may_meet, pointer_origin
from tkdebug.compiler.analysis.tensor_map_use import LOAD, STORE, UNIT_BYTES, misplaced, misuse
from tkdebug.compiler.analysis.tensor_maps import MAKE, misfit
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.interfaces import accessed
from tkdebug.compiler.dialects.op import Effects
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.core import Attribute, Block, Module, Operation, Region, Value
from tkdebug.compiler.ir.types import DescriptorType
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.targets.target import TMA, Target

_RULE = "make-by-kernel"
_OTHERWISE = "a bulk store cannot begin before the tensor or end within a unit of 16 bytes"


class DeviceTmaDescriptors:
    """Which descriptors of a module its programs make tensor maps of.

    Args:
        module: before descriptors are lowered.
        target: what it is compiled for.
        infos: the facts about its values.

    Attributes:
        reasons: why descriptors stay pointers that were made for stores which are made both ways.
    """

    def __init__(self, module: Module, target: Target, infos: Mapping[Value, AxisInfo]) -> None:
        self.reasons: dict[Value, str] = {}
        self._module = module
        self._target = target
        self._infos = infos

    def reason(self, op: Operation) -> str | None:
        """Why programs can make no tensor map of what `op` makes; None when they can."""
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
        """Have programs make a tensor map of what `op` makes."""
        tt.MakeTensorDescriptor(op).by_kernel = True
        rewriter.record_change(op, _RULE)
        stores = [user for user in op.result.uses if user.name == STORE]
        if not stores:
            return
        fits = self._fits(op, OpBuilder(rewriter, op, _RULE))
        conditions = [
            fits
            + self._non_negative(
                tt.DescriptorStore(store).offsets, OpBuilder(rewriter, store, _RULE)
            )
            for store in stores
        ]
        if not any(conditions):
            return
        plain = rewriter.build_before(
            op, MAKE, op.operands, [op.result.type], _unmapped(op), location=op.location
        )
        rewriter.record_new(plain, _RULE)
        self.reasons[plain.result] = _OTHERWISE
        for store, asked in zip(stores, conditions, strict=True):
            if asked:
                _store_both_ways(store, asked, plain.result, rewriter)

    def _fits(self, op: Operation, build: OpBuilder) -> list[Value]:
        """What has to hold of the tensor for bulk stores to it."""
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
        """That they are so, as far as that is not known."""
        return [
            build.compare("sge", value, build.constant(value.type, 0))
            for value in values
            if not self._infos[value].non_negative
        ]

    def _conflict(self, made: Operation) -> str | None:
        """Whether threads may write what bulk copies access, or read what those write."""
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
        return "the loop that loads by it makes it anew"
    return None


def _loop_around(op: Operation) -> Operation | None:
    """The innermost loop that an op is in."""
    block = op.block
    while block is not None and (parent := block.parent_op) is not None:
        if scf.Loop.matches(parent):
            return parent
        block = parent.block
    return None


def _unmapped(op: Operation) -> dict[str, Attribute]:
    return {
        name: value
        for name, value in op.attributes.items()
        if name != tt.MakeTensorDescriptor.by_kernel.key
    }


def _store_both_ways(
    store: Operation, asked: Sequence[Value], plain: Value, rewriter: Rewriter
) -> None:
    """Store by the tensor map where all that is asked holds, by the other descriptor elsewhere."""
    build = OpBuilder(rewriter, store, _RULE)
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
            rewriter.record_new(op, _RULE)
            block.append(op)
        regions.append(Region([block]))
    branch = rewriter.build_before(
        store, scf.If, (condition,), (), location=store.location, regions=regions
    )
    rewriter.replace_with_ops(store, _RULE, [branch])

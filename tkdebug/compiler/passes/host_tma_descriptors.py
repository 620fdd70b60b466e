"""Tensor maps of descriptors that a kernel makes of its arguments alone: each launch makes them.

The op that makes one moves to the kernel's beginning and stays in the GPU IR, where it represents a
parameter of its own: the kernel itself has nothing left to do. What only the launch knows (that
extents and strides are positive, that the integers by which stores find their place are not
negative), it checks, and takes code that uses pointers where it does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from tkdebug.compiler.analysis.axis_facts import AxisInfo
from tkdebug.compiler.analysis.axis_info import analyse
from tkdebug.compiler.analysis.memory_tiles import pointer_base
from tkdebug.compiler.analysis.tensor_map_use import STORE, UNIT_BYTES, misplaced, misuse
from tkdebug.compiler.analysis.tensor_maps import (
    MAKE,
    integer_parameters,
    launch_text,
    misfit,
)
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import accessed
from tkdebug.compiler.dialects.op import Effects
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.types import DescriptorType
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.targets.target import TMA, Target

_RULE = "make-by-launch"


class HostTmaDescriptors:
    """Which descriptors of a module launches make.

    Args:
        module: before descriptors are lowered.
        target: what it is compiled for.
        infos: the facts about its values.
    """

    def __init__(self, module: Module, target: Target, infos: Mapping[Value, AxisInfo]) -> None:
        self._module = module
        self._target = target
        self._infos = infos

    def knows(self, op: Operation) -> bool:
        """Whether what `op` makes is made of the kernel's arguments alone."""
        base, *numbers = op.operands
        is_parameter = base.owner is self._module.function.regions[0].block
        return is_parameter and None not in [launch_text(value) for value in numbers]

    def reason(self, op: Operation) -> str | None:
        """Why no launch can make what `op` makes, which it knows; None when one can."""
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
        """Have launches make what `op` makes."""
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
        """What holds where no integer argument is negative."""
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
        """Whether threads write what bulk copies read or write, or read what those write."""
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
        """The parameter that an access goes by, through a descriptor or not, if it is plain."""
        base = pointer_base(pointer)
        maker = base.defining_op
        if maker is not None and maker.name == MAKE:
            base = pointer_base(tt.MakeTensorDescriptor(maker).base)
        return base if base.owner is self._module.function.regions[0].block else None


def _hoist(op: Operation, rewriter: Rewriter) -> Operation:
    """Make the descriptor at the kernel's beginning, where all programs make the same."""
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
            rewriter.record_new(clone, _RULE)
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
    rewriter.replace_with_values(op, _RULE, [made.result], [made])
    return made

"""`SelectTensorMaps`: which tensor descriptors become tensor maps, and why the others do not.

A descriptor that a kernel only loads operands of dots from, or only stores to, can be handed to it
as a tensor map, by which one thread moves whole blocks between memory and shared memory (TMA). The
host has made it, or the kernel makes it of its arguments alone: then the launch does that, and the
op that makes it moves to the kernel's beginning. The accesses of all other descriptors become those
of pointer tiles; each carries the reason in its attribute `by_pointers`.

The bulk copies are made by a unit of its own, whose accesses the memory model orders with the
threads' only where fences say so. No kernel in which that order could be seen uses them: neither
one that both reads and writes a descriptor, nor one whose programs tell others of their stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.axis_facts import AxisInfo
from tkdebug.compiler.analysis.axis_info import analyse
from tkdebug.compiler.analysis.pointer_roots import pointer_root
from tkdebug.compiler.analysis.tensor_maps import MAKE, launch_text, misfit, padding_of
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.rewriter import Rewriter
from tkdebug.compiler.ir.structure import constant_value
from tkdebug.compiler.ir.types import DescriptorType
from tkdebug.compiler.ops.descriptors import MAPPABLE, NAN_PADDED, TENSOR_MAPS
from tkdebug.compiler.ops.spec import Effects
from tkdebug.compiler.ops.table import OPS
from tkdebug.compiler.passes.gpu.dot_use import feeds_dot
from tkdebug.compiler.targets import Target

_ALIGNMENT_BYTES = 16
LOAD, STORE = "tt.descriptor_load", "tt.descriptor_store"
_ATOMICS = ("tt.atomic_rmw", "tt.atomic_cas")


@dataclass(frozen=True, slots=True)
class SelectTensorMaps:
    """Decides for each descriptor how it is accessed.

    Attributes:
        target: what is compiled for.
    """

    target: Target
    name: ClassVar[str] = "select-tensor-maps"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Write the chosen parameters to the function, and the reasons to all other accesses."""
        function = module.function
        arguments = function.regions[0].block.arguments
        makers = [op for op in module.walk() if op.name == MAKE]
        if not makers and not any(isinstance(a.type, DescriptorType) for a in arguments):
            return
        reasons: dict[Value, str] = {}
        chosen: list[str] = []
        telling = _tells_others(module)
        infos = analyse(function) if makers else {}
        for place, argument in enumerate(arguments):
            if isinstance(argument.type, DescriptorType) and argument.uses:
                reason = self._reason(function, place, argument) or telling
                if reason is None:
                    chosen.append(_names(function)[place])
                else:
                    reasons[argument] = reason
        if chosen:
            function.attributes[TENSOR_MAPS] = tuple(chosen)
            rewriter.record_change(function, "use-tensor-maps")
        for op in makers:
            reason = self._reason_made(module, op, infos) or telling
            if reason is None:
                made = _hoist(op, rewriter)
                made.attributes["by_launch"] = True
            else:
                reasons[op.result] = reason
        rewriter.commit()
        for op in _accesses(module):
            if _names_of(function, op.operands[0]) not in chosen and not _is_made_by_launch(op):
                op.attributes["by_pointers"] = _reason_of(op.operands[0], reasons)
                rewriter.record_change(op, "keep-pointers")

    def _reason(self, function: Operation, place: int, argument: Value) -> str | None:
        """Why this parameter is no tensor map; None when it can be one."""
        type_ = argument.type
        assert isinstance(type_, DescriptorType)
        if not self.target.tma:
            return f"{self.target} has no TMA"
        names = _names(function)
        mappable, padded = (function.attributes.get(key, ()) for key in (MAPPABLE, NAN_PADDED))
        assert isinstance(mappable, tuple)
        assert isinstance(padded, tuple)
        if not names or names[place] not in mappable:
            return "its strides are not known to be those of a tensor map"
        unfit = misfit(type_.block, padding_of(names, padded, place))
        return unfit or _misuse(argument)

    def _reason_made(
        self, module: Module, op: Operation, infos: Mapping[Value, AxisInfo]
    ) -> str | None:
        """Why no launch can make the tensor map of what a kernel makes; None when one can."""
        if not self.target.tma:
            return f"{self.target} has no TMA"
        type_ = op.result.type
        assert isinstance(type_, DescriptorType)
        rank = len(type_.block.shape)
        base, strides = op.operands[0], op.operands[1 + rank : -1]
        is_parameter = base.owner is module.function.regions[0].block
        if not is_parameter or None in [launch_text(value) for value in op.operands[1:]]:
            return "the descriptor is made of more than the kernel's arguments"
        if op.attributes.get("padding", "zero") != "zero":
            return "the descriptor is made in the kernel and pads with NaN"
        element_bytes = type_.block.element.bits // 8
        steps = [infos[value].divisibility[0] * element_bytes for value in strides]
        if any(step % _ALIGNMENT_BYTES for step in (infos[base].divisibility[0], *steps)):
            return f"base or strides are not known to be multiples of {_ALIGNMENT_BYTES} bytes"
        if constant_value(op.operands[-1]) != 1 or 0 in map(constant_value, strides):
            return "its strides are not those of a tensor map"
        return misfit(type_.block, "zero") or _misuse(op.result) or _conflict(module, op)


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


def _is_made_by_launch(access: Operation) -> bool:
    maker = access.operands[0].defining_op
    return maker is not None and maker.attributes.get("by_launch") is True


def _conflict(module: Module, made: Operation) -> str | None:
    """Whether threads write what bulk copies read or write, or read what those write."""
    base = made.operands[0]
    stores = any(user.name == STORE for user in made.result.uses)
    for op in module.walk():
        effects = OPS[op.name].effects if op.name in OPS else Effects.PURE
        touches = Effects.WRITE in effects or (stores and Effects.READ in effects)
        if not touches or op.operands[0] is made.result:
            continue
        if pointer_root(op.operands[0]) in (None, base):
            return "the kernel may also access what it describes by pointers"
    return None


def _reason_of(descriptor: Value, reasons: Mapping[Value, str]) -> str:
    """Why an access through a descriptor is made by pointers."""
    return reasons.get(descriptor, "a loop or a branch hands the descriptor on")


def _names(function: Operation) -> tuple[str, ...]:
    names = function.attributes.get("arg_names", ())
    assert isinstance(names, tuple)
    return tuple(str(name) for name in names)


def _names_of(function: Operation, value: Value) -> str | None:
    is_parameter = value.owner is function.regions[0].block
    names = _names(function)
    return names[value.index] if is_parameter and value.index < len(names) else None


def _accesses(module: Module) -> Iterator[Operation]:
    for op in module.walk():
        if op.operands and isinstance(op.operands[0].type, DescriptorType):
            if op.name.startswith("tt.descriptor_"):
                yield op


def _misuse(argument: Value) -> str | None:
    """What is done with a descriptor that bulk copies do not do."""
    kinds = {user.name for user in argument.uses}
    for name in sorted(kinds - {LOAD, STORE}):
        if name.startswith("tt.descriptor_"):
            return f"{name.removeprefix('tt.descriptor_')}s are made by pointers"
        return "a loop or a branch hands the descriptor on"
    if kinds == {LOAD, STORE}:
        return "it is both loaded from and stored to"
    if not all(feeds_dot(user.result) for user in argument.uses if user.name == LOAD):
        # They would go through shared memory, one trip more than to registers.
        return "no dot multiplies what it loads"
    return None


def _tells_others(module: Module) -> str | None:
    """How the kernel orders its accesses with those of other threads or programs, if it does."""
    for op in module.walk():
        if op.name == "tt.barrier":
            return "the kernel has a barrier, which does not order bulk copies"
        if op.name in _ATOMICS and op.attributes.get("sem", "acq_rel") != "relaxed":
            return "the kernel has an atomic that orders memory, but not bulk copies"
    return None

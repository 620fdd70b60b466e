"""`SelectTensorMaps`: which tensor descriptors become tensor maps, and why the others do not.

A descriptor that a kernel only loads operands of dots from, or only stores to, can be a tensor map,
by which one thread moves whole blocks between memory and shared memory (TMA). Where the host made
the descriptor, the kernel is passed one. Where the kernel makes it of its arguments alone, the
launch makes the tensor map (`passes.host_tma_descriptors`); where it makes it of what it loads or
computes, each program does (`passes.device_tma_descriptors`). The accesses of all other descriptors
become those of pointer tiles; each carries the reason in its attribute `by_pointers`.

Bulk stores write units of 16 bytes, so blocks have to begin at such; what loads do elsewhere has
not been seen. Where a store's block begins before the tensor, it ends with an illegal instruction
(CUDA C++ Programming Guide, "Tensor Memory Access", on writing). No pass can know that of a
descriptor that the host made.

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
from tkdebug.compiler.analysis.tensor_map_use import misplaced, misuse
from tkdebug.compiler.analysis.tensor_maps import MAKE, is_mapped, misfit, padding_of
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.types import DescriptorType
from tkdebug.compiler.passes.device_tma_descriptors import DeviceTmaDescriptors
from tkdebug.compiler.passes.host_tma_descriptors import HostTmaDescriptors
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.targets.target import TMA, Target

_UNFIT = "tensor maps do not fit the launch's arguments"


@dataclass(frozen=True, slots=True)
class SelectTensorMaps:
    """Decides for each descriptor how it is accessed.

    Attributes:
        target: what is compiled for.
        host_tma_descriptors: whether tensor maps may be made of what kernels describe.
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
        """Why this parameter is no tensor map; None when it can be one."""
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
    """Why an access through a descriptor is made by pointers."""
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
    """How the kernel orders its accesses with those of other threads or programs, if it does."""
    for op in module.walk():
        if tt.Barrier.matches(op):
            return "the kernel has a barrier, which does not order bulk copies"
        if tt.Atomic.matches(op) and tt.Atomic(op).sem != "relaxed":
            return "the kernel has an atomic that orders memory, but not bulk copies"
    return None

"""`InsertProbes`: makes sites of what a checked kernel tests as it runs.

It comes before all GPU passes, so that one source access is one site: these copy, peel and mask
accesses, and each copy keeps its number. Nothing else of the kernel changes, and the tests
themselves are written by lowering, so that no pass has to look through them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.axis_facts import unit_of
from tkdebug.compiler.analysis.launch_slice import decided_values, is_decided
from tkdebug.compiler.analysis.pointer_origins import Origin, pointer_origin
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import MaskedAccess, PointerAccess, stored
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.ir.types import element_of, shape_of
from tkdebug.compiler.probes.sites import (
    ProbeOptions,
    ProbePlan,
    ProbeSite,
    probe_bounds,
    probe_sites,
)
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.rewriting.saved_module import copy_module

_KINDS = {
    tt.Load.name: "oob-load",
    tt.Store.name: "oob-store",
    tt.AtomicRmw.name: "oob-atomic",
    tt.AtomicCas.name: "oob-atomic",
    tt.AtomicLoad.name: "oob-atomic",
    tt.DescriptorLoad.name: "oob-load",
    tt.DescriptorGather.name: "oob-load",
    tt.DescriptorStore.name: "oob-store",
    tt.DescriptorScatter.name: "oob-store",
    tt.DescriptorReduce.name: "oob-atomic",
    tt.Assert.name: "assert",
    tt.Assume.name: "assumption",
}


@dataclass(frozen=True, slots=True)
class InsertProbes:
    """Numbers the sites of a kernel, and lists them in it.

    Args:
        options: what is looked for.
    """

    options: ProbeOptions
    name: ClassVar[str] = "insert-probes"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Give each site its number."""
        sites = tuple(self._sites(module, rewriter))
        function = tt.Func(module.function)
        named = {site.tensor: None for site in sites if site.tensor is not None}
        function.probe_sites = tuple(site.encoded() for site in sites)
        function.probe_bounds = tuple(named)
        if sites:
            rewriter.record_change(module.function, "list-sites")
        rewriter.commit()

    def _sites(self, module: Module, rewriter: Rewriter) -> Iterator[ProbeSite]:
        number, decided = 0, decided_values(module)
        for op in module.walk():
            kind = _KINDS.get(op.name)
            if kind is None or kind not in self.options.kinds:
                continue
            yield _site(module.function, op, number, kind, decided)
            OpView(op).probe = number
            rewriter.record_change(op, "number-site")
            number += 1


def probe_plan(module: Module) -> ProbePlan | None:
    """What the reports of a kernel are read by, as the module is now; None without sites."""
    sites = probe_sites(module.function)
    if not sites:
        return None
    return ProbePlan(sites, probe_bounds(module.function), copy_module(module))


def _site(
    function: Operation, op: Operation, number: int, kind: str, decided: frozenset[Value]
) -> ProbeSite:
    """What is tested of `op`."""
    if PointerAccess.matches(op):
        pointer, masked = PointerAccess(op).pointer, MaskedAccess.cast(op)
        mask = None if masked is None else masked.mask
        shape, size = shape_of(pointer.type), unit_of(pointer.type)
        tensor = _tensor(function, pointer)
        needed = (pointer,) if mask is None else (pointer, mask)
        is_recomputed = tensor is not None and is_decided(op, needed, decided)
        return ProbeSite(number, kind, op.id, tensor, shape, size, mask is not None, is_recomputed)
    if tt.DescriptorAccess.matches(op):
        descriptor = tt.DescriptorAccess(op).descriptor
        tile = op.result.type if op.results else stored(op).type
        size = element_of(tile).bits // 8
        name = _described(function, descriptor)
        return ProbeSite(number, kind, op.id, name, shape_of(tile), size, True)
    condition = tt.Assume(op).condition if tt.Assume.matches(op) else tt.Assert(op).condition
    return ProbeSite(number, kind, op.id, None, shape_of(condition.type), 0, False)


def _described(function: Operation, descriptor: Value) -> str | None:
    """The parameter that a descriptor is, or that it is made of."""
    made = tt.MakeTensorDescriptor.defining(descriptor)
    if made is not None:
        return _tensor(function, made.base)
    arguments = tt.Func(function).body.arguments
    if descriptor not in arguments:
        return None
    return tt.Func(function).arg_names[arguments.index(descriptor)]


def _tensor(function: Operation, pointer: Value) -> str | None:
    """The parameter that a pointer was made of, if it is plain to see."""
    origin = pointer_origin(pointer)
    if isinstance(origin, Origin):
        return None
    view = tt.Func(function)
    return view.arg_names[view.body.arguments.index(origin)]

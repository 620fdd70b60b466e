"""Puts what records operands into kernels, for the plugins that want them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.print_summaries import printed_type
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.sites.texts import site_text
from tkdebug.compiler.sites.watches import WatchSite, watch_sites
from tkdebug.plugins import Plugin, loaded
from tkdebug.runtime.instrumentation.layouts import gpu_ops
from tkdebug.runtime.instrumentation.plugin import Instrumentation
from tkdebug.watches.places import read_programs


@cache
def instrumentations(names: tuple[str, ...]) -> tuple[tuple[Plugin, Instrumentation], ...]:
    """The plugins of those names."""
    found = loaded("tkdebug.instrumentation", Instrumentation)
    return tuple((plugin, one) for plugin, one in found if plugin.name in names)


@dataclass(frozen=True, slots=True)
class RecordOperands:
    """Records operands of the ops that instrumentations want.

    Args:
        names: the names of the plugins.
        target: the architecture of GPU IR.
        num_warps: the warps of a block.
    """

    names: tuple[str, ...]
    target: str
    num_warps: int
    name: ClassVar[str] = "record-operands"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Put a `tt.watch` before each op, for each value that is asked for."""
        sites = list(watch_sites(module.function))
        for plugin, one in instrumentations(self.names):
            if plugin.problem:
                continue
            try:
                wanted = list(self._wanted(module, one))
            except Exception as error:  # another distribution's code may raise anything
                plugin.fail(error)
                continue
            for op, operand, value in wanted:
                shown = _shown(OpBuilder(rewriter, op, self.name), value)
                site = _site(plugin.name, one, op, operand, shown, len(sites))
                OpBuilder(rewriter, op, self.name).effect(tt.Watch, (shown,), watch=site.number)
                sites.append(site)
        tt.Func(module.function).watch_sites = tuple(map(site_text, sites))
        rewriter.record_change(module.function, self.name)
        rewriter.commit()

    def _wanted(
        self, module: Module, one: Instrumentation
    ) -> Iterator[tuple[Operation, int, Value]]:
        known: Mapping[int, Operation] = {}
        if one.level == "gpu":
            divisors = tt.Func(module.function).arg_divisibility
            known = gpu_ops(module, self.target, self.num_warps, divisors)
        for op in list(module.walk()):
            asked = op if one.level == "tile" else known.get(op.id)
            if asked is None or _is_own(op) or not one.wants(asked):
                continue
            for operand, value in enumerate(one.values(op)):
                if not isinstance(value.type, ir.ScalarType | ir.PointerType | ir.TensorType):
                    raise TypeError(f"{op.name}: a value of type {value.type} cannot be recorded")
                yield op, operand, value


def _is_own(op: Operation) -> bool:
    return tt.Watch.matches(op) or tt.Visit.matches(op)


def _shown(build: OpBuilder, value: Value) -> Value:
    """A value as numbers."""
    if isinstance(ir.element_of(value.type), ir.PointerType):
        return build.op(tt.PtrToInt, (value,), ir.with_element(value.type, ir.I64))
    return value


def _site(
    plugin: str, one: Instrumentation, op: Operation, operand: int, value: Value, number: int
) -> WatchSite:
    element = ir.element_of(value.type)
    assert isinstance(element, ir.ScalarType)
    # The IR does not tell signed from unsigned.
    type_ = printed_type(value, is_signed=element != ir.I1)
    return WatchSite(
        number=number,
        watch=f"{plugin}: {op.name} {op.id}, value {operand}",
        name=value.name or "",
        frames=op.location.frames,
        type=str(type_),
        dtype=str(type_.scalar),
        element=element.name,
        is_unsigned=element == ir.I1,
        shape=ir.shape_of(value.type),
        programs=read_programs(one.programs),
        condition="",
        is_whole=True,
        plugin=plugin,
        op_id=op.id,
        operand=operand,
    )

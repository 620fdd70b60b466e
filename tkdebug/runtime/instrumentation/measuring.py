"""Records operands of kernels for the plugins that want them, and keeps their measurements by line.

It adds the ops that record operands to kernels, and passes a launch's records to plugins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.ir.types import encoding_of
from tkdebug.compiler.layouts import LinearLayout
from tkdebug.compiler.passes.pipeline import run_pipeline
from tkdebug.compiler.print_summaries import printed_type
from tkdebug.compiler.rewriting.copies import copy_module
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.sites.texts import site_text
from tkdebug.compiler.sites.watches import WatchSite, watch_sites
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.registered_backends import backend_of, target_of
from tkdebug.interpreter.watching.records import Captured, WatchedLaunch
from tkdebug.plugins import Plugin, loaded
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.instrumentation.plugin import Instrumentation, SeenOp
from tkdebug.watches.places import read_programs
from tkdebug.watches.records import Instrumented


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
    """Return a value, pointers converted to 64-bit integers."""
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


DEFAULT_TARGET = "sm_90a"


def gpu_ops(
    module: Module, target: str, num_warps: int, divisibility: tuple[int, ...] | None
) -> Mapping[int, Operation]:
    """Return the GPU op that each op of the Tile IR becomes, by its id, if it is one op.

    The passes run on a copy of the bare kernel, so the ops have its layouts.

    Args:
        module: Tile IR, which stays as it is.
        target: architecture.
        num_warps: the warps of a block.
        divisibility: known divisors of the kernel's parameters; None if nothing is known.
    """
    copy = copy_module(module)
    _remove_watches(copy)
    function = tt.Func(copy.function)
    function.num_warps, function.target = num_warps, target
    if divisibility is not None:
        function.arg_divisibility = divisibility
    known = target_of(target)
    if known.threads_per_warp != function.threads_per_warp:
        function.threads_per_warp = known.threads_per_warp
    accesses: dict[int, int] = {}
    for op in copy.walk():
        # Passes carry the number along, as that of a check's site.
        OpView(op).site = len(accesses) if PointerAccess.matches(op) else None
        if PointerAccess.matches(op):
            accesses[len(accesses)] = op.id
    function.check_sites = ()
    options = NativeOptions(num_warps=num_warps)
    run_pipeline(copy, backend_of(known).pipeline(known, options))
    found: dict[int, Operation] = {}
    for op in copy.walk():
        number = OpView(op).site
        # The first of the copies that pipelining makes.
        found.setdefault(op.id if number is None else accesses[number], op)
    return found


def layout_of(op: Operation) -> LinearLayout | None:
    """Return the layout of an op's first tile, or None if it has no tile."""
    for value in (*op.operands, *op.results):
        layout = encoding_of(value.type)
        if isinstance(layout, LinearLayout):
            return layout
    return None


def _remove_watches(module: Module) -> None:
    for op in list(module.walk()):
        if tt.Watch.matches(op):
            op.operands = ()
            assert op.block is not None
            op.block.operations.remove(op)
    tt.Func(module.function).watch_sites = ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel that was compiled.

    Attributes:
        module: Tile IR with the ops that record operands.
        target: architecture of its GPU IR.
        num_warps: the warps of a block.
        divisibility: known divisors of the parameters; None if nothing is known.
    """

    module: Module
    target: str
    num_warps: int
    divisibility: tuple[int, ...] | None

    def gpu_ops(self) -> Mapping[int, Operation]:
        """Return the GPU op of each op of the Tile IR, by its id."""
        key = ("gpu ops", self.target, self.num_warps, self.divisibility)
        derived: dict[object, object] = self.module.derived
        if key not in derived:
            # The parameters of a module whose watches are expanded are more.
            arguments = len(tt.Func(self.module.function).body.arguments)
            known = None if self.divisibility is None else self.divisibility[:arguments]
            derived[key] = gpu_ops(self.module, self.target, self.num_warps, known)
        return derived[key]  # type: ignore[return-value]


def measure(captured: Sequence[Captured], kernel: Kernel, launch: WatchedLaunch) -> None:
    """Have plugins measure the records of a launch, and record their results."""
    names = tuple(dict.fromkeys(one.site.plugin for one in captured))
    ops = {op.id: op for op in kernel.module.walk()}
    for plugin, instrumentation in instrumentations(names):
        mine = [one for one in captured if one.site.plugin == plugin.name]
        for op_id in dict.fromkeys(one.site.op_id for one in mine):
            of_op = [one for one in mine if one.site.op_id == op_id]
            found = _measured(plugin, instrumentation, ops[op_id], of_op, kernel, launch)
            if found is not None:
                HOOKS.record(found)


def _measured(
    plugin: Plugin,
    instrumentation: Instrumentation,
    op: Operation,
    captured: Sequence[Captured],
    kernel: Kernel,
    launch: WatchedLaunch,
) -> Instrumented | None:
    if plugin.problem:
        return None
    totals: Counter[str] = Counter()
    measured = 0
    try:
        gpu_op = kernel.gpu_ops().get(op.id) if instrumentation.level == "gpu" else None
        layout = None if gpu_op is None else layout_of(gpu_op)
        for program, iteration, values in _moments(captured):
            seen = SeenOp(op, values, launch.program_at(program), iteration, gpu_op, layout)
            record = instrumentation.measure(seen)
            measured += 1
            if record is None:
                continue
            if not isinstance(record, instrumentation.record):
                name = instrumentation.record.__name__
                raise TypeError(f"measure gave a {type(record).__name__}, expected a {name}")
            totals.update(asdict(record))  # type: ignore[call-overload]
    except Exception as error:  # another distribution's code may raise anything
        plugin.fail(error)
        return None
    seen_count = max(one.seen for one in captured)
    frames = captured[0].site.frames
    return Instrumented(
        plugin.name,
        launch.kernel,
        op.name,
        frames,
        launch.launch_id,
        seen_count,
        measured,
        {name: float(total) for name, total in totals.items()},
    )


def _moments(captured: Sequence[Captured]) -> Iterator[tuple[int, int, tuple[Tensor, ...]]]:
    """Yield program, iteration and values of each execution that all values' records have."""
    tables = []
    for one in sorted(captured, key=lambda each: each.site.operand):
        keys = zip(one.programs.tolist(), one.visits.tolist(), strict=True)
        shape = one.site.shape
        rows = (_typed(row, one).reshape(shape) for row in one.values)
        tables.append(dict(zip(keys, rows, strict=True)))
    for key in sorted(set(tables[0]).intersection(*tables[1:])):
        yield (*key, tuple(table[key] for table in tables))


def _typed(row: Tensor, one: Captured) -> Tensor:
    return row if one.site.element.startswith(("f", "bf")) else row.to(torch.int64)

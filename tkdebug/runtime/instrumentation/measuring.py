"""Hands a launch's records to plugins, and keeps their measurements by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Module, Operation
from tkdebug.interpreter.watching.records import Captured, WatchedLaunch
from tkdebug.plugins import Plugin
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.instrumentation.captures import gpu_ops, instrumentations, layout_of
from tkdebug.runtime.instrumentation.plugin import Instrumentation, SeenOp
from tkdebug.watches.records import Instrumented


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
    """Program, iteration and values, from the records of all values of the op."""
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

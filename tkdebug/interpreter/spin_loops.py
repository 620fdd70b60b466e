"""Finds spin loops, which wait for other programs, in the IR.

Such programs cannot run in lockstep: who waits would keep the one that it waits for from going on.
"""

from __future__ import annotations

from tkdebug.compiler.analysis.data_flow import backward
from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.control_flow import deciding, forwarded
from tkdebug.interpreter.memory_usage import pointer_origins, written_arguments


def spin_loops(module: Module) -> tuple[Operation, ...]:
    """Loops whose end other programs may bring about, in program order.

    They read memory with an atomic or a load that may not be cached, or their condition hangs on
    what a plain load reads at one address in memory that the kernel writes.
    """
    found = []
    for op in module.walk():
        # What the body reads may reach the condition through a carried value.
        if scf.While.matches(op) and (
            any(map(_reads_shared, op.walk())) or polled_loads(op, module)
        ):
            found.append(op)
    return tuple(found)


def is_uncached_load(op: Operation) -> bool:
    """Whether `op` is a load that sees what other programs store meanwhile."""
    load = tt.Load.cast(op)
    return load is not None and (load.volatile or load.cache == ".cv")


def _reads_shared(op: Operation) -> bool:
    return is_uncached_load(op) or (tt.Atomic.matches(op) and bool(op.result.uses))


def polled_loads(loop: Operation, module: Module) -> list[Operation]:
    """Loads of a loop at one address in memory that the kernel writes, on which its end hangs."""
    loads = [tt.Load(op) for op in loop.walk() if tt.Load.matches(op)]
    if not loads:
        return []
    feeds, view = _feeds(loop), scf.While(loop)
    reached = _sources(scf.Condition(view.before.terminator).condition, feeds)
    carried = {*view.before.arguments, *view.after.arguments}
    polled = [
        load
        for load in loads
        if load.result in reached and not carried & _sources(load.pointer, feeds)
    ]
    written = written_arguments(module) if polled else None
    if written is None:
        return [load.op for load in polled]
    origins = pointer_origins(module)
    elsewhere = frozenset([-1])
    shared = written | elsewhere
    return [load.op for load in polled if origins.get(load.pointer, elsewhere) & shared]


def _feeds(loop: Operation) -> dict[Value, list[Value]]:
    """For each value that is made in a loop, what it is made of in one step."""
    feeds: dict[Value, list[Value]] = {}
    for op in loop.walk():
        for result in op.results:
            feeds.setdefault(result, []).extend(_deciding(op))
        if scf.For.matches(op):
            feeds.setdefault(scf.For(op).induction_variable, []).extend(_deciding(op))
        for source, value in forwarded(op):
            feeds.setdefault(value, []).append(source)
    return feeds


def _deciding(op: Operation) -> list[Value]:
    """What decides where and how often the regions of `op` run; the operands of what has none."""
    branches = [op, *(region.block.terminator for region in op.regions)]
    return [value for branch in branches for value in deciding(branch)]


def _sources(value: Value, feeds: dict[Value, list[Value]]) -> set[Value]:
    """All that `value` may be computed from, itself included."""
    return backward([value], lambda made: feeds.get(made, ()))

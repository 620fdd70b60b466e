"""Facts of a module that all its launches share: its plans, its memory usage, its writes.

A plan has a function's blocks as steps: the rule and the observers of each op are looked up once
per module.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from tkdebug.compiler.analysis.global_memory import loaded_root
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import Effects
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Block, Module, Operation, Region, Value
from tkdebug.compiler.ir.core import fact_of
from tkdebug.compiler.ir.op_view import OpView, names_of
from tkdebug.interpreter.evaluator import Attended, Evaluator, Plan, Rule, Step
from tkdebug.interpreter.fusion import Fusion
from tkdebug.interpreter.memory.shared_buffers import clobber_scratch
from tkdebug.interpreter.memory_usage import live_bytes_per_program, written_arguments
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.rules import RULES
from tkdebug.interpreter.scheduler import spin_loops
from tkdebug.interpreter.tiles.values import TileValue

if TYPE_CHECKING:
    from tkdebug.compiler.targets.backend import Backend


# Their rules count what they change.
_COUNT_THEMSELVES = names_of(tt.Atomic)


def planned(
    module: Module | Operation, observers: Sequence[Observer] = (), counts_changes: bool = False
) -> Plan:
    """Return the plan of a module.

    Args:
        module: the module that is run, or an op with regions of it.
        observers: the observers of a launch; others with the same keys may take their places later.
        counts_changes: whether ops that write memory count it in `Scheduler.changes`.
    """
    steps: dict[Block, list[Step]] = {}
    attended_regions: dict[Region, tuple[int, ...]] = {}
    for op in module.walk():
        attending: tuple[int, ...] = ()
        if op.regions:
            attending = _places(Moments.REGIONS, [one.moments(op) for one in observers])
        for region in op.regions:
            if attending:
                attended_regions[region] = attending
            for block in region.blocks:
                steps[block] = _steps_of(block, observers, counts_changes)
    return Plan(steps, attended_regions)


def _steps_of(block: Block, observers: Sequence[Observer], counts_changes: bool) -> list[Step]:
    keeps_values = any(observer.keeps_values for observer in observers)
    dying = [()] * len(block.operations) if keeps_values else _dying(block, observers)
    return [
        (
            _rule(op, counts_changes),
            OpView(op),
            op.operands,
            op.results,
            _attended(op, observers),
            dead,
        )
        for op, dead in zip(block.operations, dying, strict=True)
    ]


def _attended(op: Operation, observers: Sequence[Observer]) -> Attended | None:
    moments = [observer.moments(op) for observer in observers]
    before, after = _places(Moments.BEFORE, moments), _places(Moments.AFTER, moments)
    may_alter = not all(observers[place].is_passive for place in before)
    return Attended(op, before, after, may_alter) if before or after else None


def _places(moment: Moments, moments: Sequence[Moments]) -> tuple[int, ...]:
    """Return the places of the observers that want to be called at `moment`."""
    return tuple(place for place, wanted in enumerate(moments) if wanted and moment in wanted)


def _rule(op: Operation, counts_changes: bool) -> Rule:
    rule = _clobbering(op, RULES[op.name])
    changes = Effects.WRITE in OPS[op.name].effects and op.name not in _COUNT_THEMSELVES
    if counts_changes and changes:
        return _counted(rule)
    return rule


def _dying(block: Block, observers: Sequence[Observer]) -> list[tuple[Value, ...]]:
    """Return, for each op, the block's values that nothing after it needs, but for kept ones."""
    last: dict[Value, int] = {}
    defined: set[Value] = set(block.arguments)
    kept = [observer.keeps() for observer in observers]
    for place, op in enumerate(block.operations):
        for inner in op.walk():
            for value in inner.operands:
                last[value] = place
            root = loaded_root(inner)
            if root is not None:
                last[root] = place
            for observer in observers:
                for value in observer.needs(inner):
                    last[value] = place
        for result in op.results:
            defined.add(result)
            # Requests of an op before it are of no use in the next iteration of a loop.
            last[result] = max(last.get(result, place), place)
    dying: list[list[Value]] = [[] for _ in block.operations]
    for value, place in last.items():
        if value in defined and not any(value in values for values in kept):
            dying[place].append(value)
    return [tuple(values) for values in dying]


def _counted(rule: Rule) -> Rule:
    """Return `rule`, which then also counts a change of memory in the scheduler."""

    def apply(run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
        if run.scheduler is not None:
            run.scheduler.changes += 1
        return rule(run, view, *operands)

    return apply


def _backend(op: Operation) -> Backend:
    """Return the backend that lowers the function that `op` is in."""
    from tkdebug.compiler.targets.registered_backends import backend_of, default_backend, target_of

    *_, function = (op, *op.ancestors())
    target = tt.Func(function).target
    return default_backend() if target is None else backend_of(target_of(target))


def _clobbering(op: Operation, rule: Rule) -> Rule:
    """Return `rule`; if the op has scratch shared memory, overwrite that before it runs."""
    offset = OpView(op).scratch_offset
    if offset is None:
        return rule
    # Only GPU IR after AllocateShared needs to know how ops are lowered.
    size_bytes = _backend(op).scratch_bytes(op)

    def apply(run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
        clobber_scratch(run, op, offset, size_bytes)
        return rule(run, view, *operands)

    return apply


class Prepared:
    """Facts of a module, worked out once: plans of its blocks, its memory usage, its writes."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self.fusion = Fusion.of(module)
        self.bytes_per_program = live_bytes_per_program(module)
        self.written = written_arguments(module)
        self.spin_loops = spin_loops(module)
        self._plans: dict[tuple[Hashable, ...], Plan] = {}
        self.names = tt.Func(module.function).arg_names
        self.announced = False

    @classmethod
    def of(cls, module: Module) -> Prepared:
        """Return the facts of a module, made when they are first asked for."""
        return fact_of(module, cls, cls)

    def plan(self, observers: Sequence[Observer]) -> Plan:
        """Return the plan for `observers`; it is cached if all of them have keys."""
        keys = tuple(observer.key for observer in observers)
        plan = self._plans.get(keys)
        if plan is None:
            plan = planned(self._module, observers, bool(self.spin_loops))
            if None not in keys:
                self._plans[keys] = plan
        return plan

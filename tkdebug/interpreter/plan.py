"""A function's blocks as steps: how each op runs is looked up once per module."""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.ir import Block, Operation, Value
from tkdebug.compiler.ops.spec import Effects
from tkdebug.compiler.ops.table import OPS
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.offset_wraps import OffsetArithmetic, may_be_negative, may_wrap
from tkdebug.interpreter.rules.table import RULES
from tkdebug.interpreter.rules.types import Rule
from tkdebug.interpreter.undefined import is_watched
from tkdebug.interpreter.values import TileValue

# One step of a block: how to run the op, the op, whether it may give undefined values or hand them
# on between regions, and the values that die after it.
Step = tuple[Rule, Operation, bool, tuple[Value, ...]]


class Plan:
    """A function's blocks as lists of steps; made once per module, shared by all batches.

    Args:
        counts_changes: whether stores tell `Turns` that they have changed memory.
        offsets: what offsets are made by; that it wraps, or is negative, is looked for.
    """

    def __init__(
        self, counts_changes: bool = False, offsets: OffsetArithmetic | None = None
    ) -> None:
        self._steps: dict[Block, list[Step]] = {}
        self._counts_changes = counts_changes
        self.offsets = offsets or OffsetArithmetic()

    def steps(self, block: Block) -> list[Step]:
        """The steps of `block`."""
        steps = self._steps.get(block)
        if steps is None:
            steps = self._steps[block] = _steps_of(block, self._counts_changes, self.offsets)
        return steps

    def rule(self, op: Operation) -> Rule:
        """How `op` runs by itself."""
        return RULES[op.name]


def _steps_of(block: Block, counts_changes: bool, offsets: OffsetArithmetic) -> list[Step]:
    """Each op with the values whose last use in this block it is."""
    last: dict[Value, int] = {}
    defined: set[Value] = set(block.arguments)
    for place, op in enumerate(block.operations):
        for inner in op.walk():
            for value in inner.operands:
                last[value] = place
        for result in op.results:
            defined.add(result)
            last.setdefault(result, place)
    dying: list[list[Value]] = [[] for _ in block.operations]
    for value, place in last.items():
        if value in defined:
            dying[place].append(value)
    steps = []
    for place, op in enumerate(block.operations):
        rule = _rule(op)
        if counts_changes and Effects.WRITE in OPS[op.name].effects and "atomic" not in op.name:
            rule = _counted(rule)
        if op in offsets.sums or op in offsets.hashed:
            rule = _followed(rule)
        elif op in offsets.remainders:
            rule = _followed_remainder(rule)
        steps.append((rule, op, is_watched(op), tuple(dying[place])))
    return steps


def _counted(rule: Rule) -> Rule:
    """`rule` of an op that changes memory, counted. Atomics count what they change."""

    def run(evaluator: Evaluator, op: Operation, *operands: TileValue) -> Sequence[TileValue]:
        if evaluator.turns is not None:
            evaluator.turns.changes += 1
        return rule(evaluator, op, *operands)

    return run


def _followed(rule: Rule) -> Rule:
    """`rule` of an op that makes offsets; elements that wrap are followed to accesses."""

    def run(evaluator: Evaluator, op: Operation, *operands: TileValue) -> Sequence[TileValue]:
        results = rule(evaluator, op, *operands)
        if may_wrap(op, operands, results[0]):
            evaluator.undefined.wrapped(op, operands)
        return results

    return run


def _followed_remainder(rule: Rule) -> Rule:
    """`rule` of a remainder in an offset; negative elements are followed to accesses."""

    def run(evaluator: Evaluator, op: Operation, *operands: TileValue) -> Sequence[TileValue]:
        results = rule(evaluator, op, *operands)
        if may_be_negative(results[0]):
            evaluator.undefined.negative_remainder(op, operands, results[0])
        return results

    return run


def _rule(op: Operation) -> Rule:
    """How to run `op`; one with a region of shared memory overwrites that too."""
    rule = RULES[op.name]
    offset = op.attributes.get("scratch_offset")
    if not isinstance(offset, int):
        return rule
    # Only GPU IR after AllocateShared needs to know how ops are lowered.
    from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes

    size_bytes = scratch_bytes(op)

    def run(evaluator: Evaluator, op: Operation, *operands: TileValue) -> Sequence[TileValue]:
        evaluator.clobber_scratch(op, offset, size_bytes)
        return rule(evaluator, op, *operands)

    return run

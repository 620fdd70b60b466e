"""Fusion of ops: results that reuse an operand's memory, or have the form that their user needs.

Fresh memory costs a page fault per page, more than the arithmetic on it. All plans are made
once per module from the uses of each value. Invariant: a value is reused only when no view of it
can be alive: all its uses are ops that compute from it, and this one is the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.interfaces import FloatOp
from tkdebug.compiler.ir import Block, Module, Operation, Value
from tkdebug.compiler.ir.op_view import names_of

_GIVES_FRESH = FloatOp.names | names_of(tt.Dot)
# Ops that read a value and keep no view of it.
_CONSUMES = FloatOp.names | names_of(tt.Reduce, tt.Store, tt.Dot, arith.CmpF)


@dataclass(frozen=True)
class Fusion:
    """The plans of one module.

    Attributes:
        deferred: ops whose only use is the value of a store in the same block.
        reused: op -> place of the operand whose memory its result may take.
        factors: loads whose only use is to be multiplied by a dot in the same block.
        sums: dots whose only use is to be their own accumulator in a loop's next iteration.
    """

    deferred: frozenset[Operation] = frozenset()
    reused: dict[Operation, int] = field(default_factory=dict)
    factors: frozenset[Operation] = frozenset()
    sums: frozenset[Operation] = frozenset()

    @staticmethod
    def of(module: Module) -> Fusion:
        """Plan a whole module."""
        deferred: set[Operation] = set()
        reused: dict[Operation, int] = {}
        for op in module.walk():
            for region in op.regions:
                for block in region.blocks:
                    deferred |= _deferred(block)
        for op in module.walk():
            for region in op.regions:
                for block in region.blocks:
                    reused |= _reused(block, deferred)
        dots = [dot for dot in map(tt.Dot.cast, module.walk()) if dot is not None]
        factors = frozenset(load for dot in dots for load in _factors(dot))
        sums = frozenset(dot.op for dot in dots if _is_sum(dot))
        return Fusion(frozenset(deferred), reused, factors, sums)


def _deferred(block: Block) -> set[Operation]:
    found = set()
    for op in block.operations:
        if not FloatOp.matches(op) or len(op.result.uses) != 1:
            continue
        (user,) = op.result.uses
        store = tt.Store.cast(user)
        if store is not None and user.block is block and store.value is op.result:
            found.add(op)
    return found


def _reused(block: Block, deferred: set[Operation]) -> dict[Operation, int]:
    order = {op: place for place, op in enumerate(block.operations)}
    found = {}
    for op in block.operations:
        if op.name not in _GIVES_FRESH or op in deferred:
            continue
        dot = tt.Dot.cast(op)
        for place, operand in enumerate(op.operands):
            if dot is not None and (operand is not dot.accumulator or operand in dot.factors):
                continue
            if _dies_at(operand, op, order, deferred):
                found[op] = place
                break
    return found


def _dies_at(
    value: Value, op: Operation, order: dict[Operation, int], deferred: set[Operation]
) -> bool:
    producer = value.defining_op
    if producer is None or producer.name not in _GIVES_FRESH or producer not in order:
        return False
    for user in value.uses:
        if user not in order or user.name not in _CONSUMES or user in deferred:
            return False
        if order[user] > order[op]:
            return False
    return True


def _factors(dot: tt.Dot) -> Iterator[Operation]:
    for value in dot.factors:
        load = tt.Load.defining(value)
        if load is not None and load.op.block is dot.op.block and len(value.uses) == 1:
            yield load.op


def _is_sum(dot: tt.Dot) -> bool:
    """Whether a dot accumulates into its result of the previous iteration, used by nothing else.

    The loop begins with a constant: another loop's carried value may be needed after this one.
    """
    block = dot.op.block
    loop = None if block is None else scf.For.cast(block.parent_op)
    if block is None or loop is None or dot.accumulator not in block.arguments[1:]:
        return False
    slot = block.arguments.index(dot.accumulator) - 1
    begin, end = loop.inits[slot], scf.Yield(block.terminator)
    return (
        dot.accumulator.uses == {dot.op: 1}
        and dot.result.uses == {end.op: 1}
        and end.values[slot] is dot.result
        and (arith.Constant.defining(begin) or tt.Splat.defining(begin)) is not None
    )

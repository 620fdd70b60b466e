"""Which elementwise ops may reuse an operand's memory or write straight into a store's.

Fresh memory costs a page fault per page, more than the arithmetic on it. Both plans are made
once per module from the uses of each value. Invariant: a value is reused only when no view of it
can be alive: all its uses are ops that compute from it, and this one is the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tkdebug.compiler.dialects import arith, math, tt
from tkdebug.compiler.ir import Block, Module, Operation, Value
from tkdebug.compiler.ir.op_view import names_of

# Ops that are one torch function with an `out=`, and always give fresh memory without it.
_COMPUTES = names_of(
    *(arith.AddF, arith.SubF, arith.MulF, arith.DivF, arith.NegF),
    *(arith.MaximumF, arith.MinimumF, arith.MaxNumF, arith.MinNumF),
    *(math.Exp, math.Exp2, math.Log, math.Log2, math.Sqrt, math.Rsqrt, math.Sin, math.Cos),
    *(math.Erf, math.Floor, math.Ceil, math.AbsF, tt.PreciseDivF, tt.PreciseSqrt),
)
# Ops that read a value and keep no view of it.
_CONSUMES = _COMPUTES | names_of(tt.Reduce, tt.Store, tt.Dot, arith.CmpF)


@dataclass(frozen=True)
class Fusion:
    """The plans of one module.

    Attributes:
        deferred: ops whose only use is the value of a store in the same block.
        reused: op -> place of the operand whose memory its result may take.
    """

    deferred: frozenset[Operation] = frozenset()
    reused: dict[Operation, int] = field(default_factory=dict)

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
        return Fusion(frozenset(deferred), reused)


def _deferred(block: Block) -> set[Operation]:
    found = set()
    for op in block.operations:
        if op.name not in _COMPUTES or len(op.result.uses) != 1:
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
        if op.name not in _COMPUTES or op in deferred:
            continue
        for place, operand in enumerate(op.operands):
            if _dies_at(operand, op, order, deferred):
                found[op] = place
                break
    return found


def _dies_at(
    value: Value, op: Operation, order: dict[Operation, int], deferred: set[Operation]
) -> bool:
    producer = value.defining_op
    if producer is None or producer.name not in _COMPUTES or producer not in order:
        return False
    for user in value.uses:
        if user not in order or user.name not in _CONSUMES or user in deferred:
            return False
        if order[user] > order[op]:
            return False
    return True

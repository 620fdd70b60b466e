"""`RematerialisePastLoops`: offsets that only code around a loop uses are computed again behind it.

A kernel often loads its first tile and stores its last one at the same offsets. These then take
registers throughout the loop between, and neither LLVM nor the assembler recomputes them: they
spill them. Computing integers again costs a few instructions once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import TensorType, element_of
from tkdebug.compiler.layouts import REGISTER
from tkdebug.compiler.rewriting.cloning import clone_before
from tkdebug.compiler.rewriting.rewriter import Rewriter

_RULE = "rematerialise"
_CHEAP = names_of(tt.MakeRange, tt.Splat, tt.ExpandDims, tt.Broadcast, arith.WrappingBinary)
# A chain that keeps fewer registers is not worth its instructions.
_FEWEST_REGISTERS = 4


@dataclass(frozen=True, slots=True)
class RematerialisePastLoops:
    """Clones cheap integer tiles behind the last loop of a block that keeps them alive."""

    name: ClassVar[str] = "rematerialise-past-loops"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at the function's own block: inner loops end where an outer one goes on."""
        ops = module.function.regions[0].block.operations
        loops = [index for index, op in enumerate(ops) if scf.Loop.matches(op)]
        if not loops:
            return
        first, last = loops[0], loops[-1]
        before = frozenset(ops[:first])
        in_loops = _used_between(ops[first : last + 1])
        known: dict[Value, Value] = {}
        for op in ops[last + 1 :]:
            for operand in dict.fromkeys(op.operands):
                chain = _chain(operand, before, in_loops | known.keys())
                if _is_worth_it(operand, chain):
                    _clone(op, chain, known, rewriter)
            if any(operand in known for operand in op.operands):
                op.operands = tuple(known.get(operand, operand) for operand in op.operands)
                rewriter.record_change(op, _RULE)


def _used_between(ops: Sequence[Operation]) -> frozenset[Value]:
    return frozenset(value for op in ops for inner in op.walk() for value in inner.operands)


def _chain(
    value: Value, before: frozenset[Operation], in_loops: frozenset[Value]
) -> list[Operation]:
    """The ops on tiles that `value` is computed by, in order; none where one is not cheap."""
    found: dict[Operation, None] = {}

    def visit(value: Value) -> bool:
        op = value.defining_op
        if value in in_loops or not isinstance(value.type, TensorType) or op in found:
            return True
        if op not in before or op.name not in _CHEAP or not all(map(visit, op.operands)):
            return False
        found[op] = None
        return True

    return list(found) if visit(value) else []


def _is_worth_it(value: Value, chain: Sequence[Operation]) -> bool:
    """Whether the loops keep several registers of `value`.

    Without a product the elements of a thread differ by constants, and one register has them all.
    """
    names = {op.name for op in chain}
    if tt.MakeRange.name not in names or arith.MulI.name not in names:
        return False
    inside = set(chain)
    leaves = {x for op in chain for x in op.operands if x.defining_op not in inside}
    return _registers(value) >= max(_FEWEST_REGISTERS, len(leaves) + 1)


def _registers(value: Value) -> int:
    """Registers of a thread that hold elements of their own of a tile of integers."""
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.encoding is None:
        return 0
    bases = type_.encoding.packed_bases(REGISTER)
    return (element_of(type_).bits + 31) // 32 << sum(1 for base in bases if base)


def _clone(
    anchor: Operation, chain: Sequence[Operation], known: dict[Value, Value], rewriter: Rewriter
) -> None:
    for op in clone_before(anchor, chain, known, rewriter, _RULE):
        if tt.MakeRange.matches(op):
            tt.MakeRange(op).rereads_thread = True

"""Offsets and masks that only code around a loop uses, kept out of its registers.

Kernels often compute the offsets and masks of their epilogue before the loop, or load their first
tile and store their last one at the same offsets. These take registers throughout the loop, and
neither LLVM nor the assembler moves or recomputes them: they spill them.

- `SinkPastLoops` moves ops that only code after a loop needs there, unless their operands would
  take more registers across the loop than they do.
- `RematerialisePastLoops` computes offsets that both sides use again after the loop: a few integer
  instructions, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.layout_inference import register_words
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.table import PURE
from tkdebug.compiler.ir.core import Block, Module, Operation, Value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import TensorType, element_of
from tkdebug.compiler.layouts import REGISTER
from tkdebug.compiler.rewriting.copies import clone_before
from tkdebug.compiler.rewriting.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class SinkPastLoops:
    """Moves pure ops on tiles from before a loop to after it."""

    name: ClassVar[str] = "sink-past-loops"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every loop; ops that pass one may pass the next."""
        for loop in [op for op in module.walk() if scf.Loop.matches(op)]:
            assert loop.block is not None
            ops = loop.block.operations
            place = ops.index(loop)
            sunk = _sinkable(ops[:place], set(ops[place + 1 :]), loop.block)
            if not sunk or _words(_leaves(sunk, set(ops[place:]))) > _words(_results(sunk)):
                continue
            if not rewriter.begins(loop, "sink"):
                continue
            for op in sunk:
                rewriter.move_before(op, ops[place + 1], "sink")
            rewriter.commit()


def _sinkable(before: Sequence[Operation], after: set[Operation], block: Block) -> list[Operation]:
    """The ops of `before` that nothing needs but ops of `after` and each other, in order."""
    sunk: dict[Operation, None] = {}
    for op in reversed(before):
        if op.name not in PURE or not any(isinstance(x.type, TensorType) for x in op.results):
            continue
        users = [_in_block(user, block) for result in op.results for user in result.uses]
        if users and all(user in after or user in sunk for user in users):
            sunk[op] = None
    return list(reversed(sunk))


def _in_block(op: Operation, block: Block) -> Operation:
    """The op of `block` that is or contains `op`."""
    while op.block is not block:
        assert op.block is not None
        assert op.block.parent_op is not None
        op = op.block.parent_op
    return op


def _leaves(sunk: Sequence[Operation], later: set[Operation]) -> Iterator[Value]:
    """The operands that `sunk` would newly keep in registers across the loop."""
    inside = set(sunk)
    for value in dict.fromkeys(value for op in sunk for value in op.operands):
        if value.defining_op not in inside and not any(user in later for user in value.uses):
            yield value


def _results(sunk: Sequence[Operation]) -> Iterator[Value]:
    """Return the results of `sunk` that remaining ops use."""
    inside = set(sunk)
    for op in sunk:
        yield from (x for x in op.results if any(user not in inside for user in x.uses))


def _words(values: Iterator[Value]) -> int:
    return sum(register_words(value.type) for value in values)


_RULE = "rematerialise"
_CHEAP = names_of(tt.MakeRange, tt.Splat, tt.ExpandDims, tt.Broadcast, arith.WrappingBinary)
# A chain that keeps fewer registers is not worth its instructions.
_FEWEST_REGISTERS = 4


@dataclass(frozen=True, slots=True)
class RematerialisePastLoops:
    """Clones cheap integer tiles after the last loop of a block that keeps them alive."""

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
                if _is_worth_it(operand, chain) and rewriter.begins(op, _RULE):
                    _clone(op, chain, known, rewriter)
            if any(operand in known for operand in op.operands):
                op.operands = tuple(known.get(operand, operand) for operand in op.operands)
                rewriter.record_change(op, _RULE)


def _used_between(ops: Sequence[Operation]) -> frozenset[Value]:
    return frozenset(value for op in ops for inner in op.walk() for value in inner.operands)


def _chain(
    value: Value, before: frozenset[Operation], in_loops: frozenset[Value]
) -> list[Operation]:
    """The ops on tiles that `value` is computed by, in order; none if one is not cheap."""
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

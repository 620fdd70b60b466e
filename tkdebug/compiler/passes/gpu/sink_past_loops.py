"""`SinkPastLoops`: what only the code behind a loop needs is computed there.

Kernels often compute the offsets and masks of their epilogue before the loop, where these would
take registers throughout. LLVM and the assembler leave them there: they spill them. Nothing is
moved where its operands would then take more registers across the loop than it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import scf
from tkdebug.compiler.dialects.table import PURE
from tkdebug.compiler.ir.core import Block, Module, Operation, Value
from tkdebug.compiler.ir.types import TensorType
from tkdebug.compiler.passes.gpu.register_words import register_words
from tkdebug.compiler.rewriting.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class SinkPastLoops:
    """Moves pure ops on tiles from before a loop to behind it."""

    name: ClassVar[str] = "sink-past-loops"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every loop; what passes one may pass the next."""
        for loop in [op for op in module.walk() if scf.Loop.matches(op)]:
            assert loop.block is not None
            ops = loop.block.operations
            place = ops.index(loop)
            sunk = _sinkable(ops[:place], set(ops[place + 1 :]), loop.block)
            if not sunk or _words(_leaves(sunk, set(ops[place:]))) > _words(_results(sunk)):
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
    """What `sunk` would keep in registers across the loop that is not there anyway."""
    inside = set(sunk)
    for value in dict.fromkeys(value for op in sunk for value in op.operands):
        if value.defining_op not in inside and not any(user in later for user in value.uses):
            yield value


def _results(sunk: Sequence[Operation]) -> Iterator[Value]:
    """What `sunk` gives to ops that stay where they are."""
    inside = set(sunk)
    for op in sunk:
        yield from (x for x in op.results if any(user not in inside for user in x.uses))


def _words(values: Iterator[Value]) -> int:
    return sum(register_words(value.type) for value in values)

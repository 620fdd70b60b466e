"""`RereadOperands`: operands that do not fit into registers across a loop stay in shared memory.

An operand of a dot on mma.sync that is loaded before a loop (queries of attention) is read from its
buffer there, into registers that it takes throughout. Where those, the accumulators that the loop
carries and the dot's own do not fit together, the assembler would spill: each iteration would store
and load what it could read from the buffer as well. There the reading moves into the loop. The
buffer then lives as long as the loop, which counts when its rings are given their place: this pass
comes before `PipelineLoops`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.layout_inference import register_words
from tkdebug.compiler.dialects import scf, tt, ttg
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.types import MemDescType
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class RereadOperands:
    """Moves the reading of operands from before a loop into it, where registers are short.

    Attributes:
        registers: the number of a thread's 255 that these tiles may take; others are for addresses,
            masks and a slice of the other operand.
    """

    registers: int = 224
    name: ClassVar[str] = "reread-operands"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at the dots of every loop."""
        for loop in [op for op in module.walk() if scf.For.matches(op)]:
            for dot in [op for op in loop.regions[0].block.operations if tt.Dot.matches(op)]:
                for operand in dict.fromkeys(tt.Dot(dot).factors):
                    if (
                        _lasts(operand, loop)
                        and _words(loop, dot, operand) > self.registers
                        and rewriter.begins(dot, "reread-operand")
                    ):
                        _reread(operand, dot, rewriter)
        rewriter.commit()


def _lasts(operand: Value, loop: Operation) -> bool:
    """Whether `operand` was read before `loop`, from a buffer that is not written again."""
    load = operand.defining_op
    if load is None or not ttg.LocalLoad.matches(load) or load.block is loop.regions[0].block:
        return False
    memory = ttg.LocalLoad(load).buffer.type
    assert isinstance(memory, MemDescType)
    return not memory.mutable


def _words(loop: Operation, dot: Operation, operand: Value) -> int:
    """The registers that `operand` takes beside the dot's sums and the carried values."""
    carried = [x for x in loop.regions[0].block.arguments[1:] if x is not tt.Dot(dot).accumulator]
    return sum(register_words(value.type) for value in (*carried, dot.result, operand))


def _reread(operand: Value, dot: Operation, rewriter: Rewriter) -> None:
    load = operand.defining_op
    assert load is not None
    build = OpBuilder(rewriter, dot, "reread-operand", load.location)
    again = build.op(load.name, load.operands, operand.type)
    dot.replace_operand(operand, again)
    rewriter.record_change(dot, "reread-operand")
    if not operand.uses:
        assert again.defining_op is not None
        rewriter.replace_with_ops(load, "reread-operand", [again.defining_op])

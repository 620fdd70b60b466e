"""`HoistLoopInvariants`: effect-free ops that compute the same in every iteration move out.

A hoisted op also runs when the loop does not. Divisions therefore stay unless their divisor is a
constant other than zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import arith, scf
from tkdebug.compiler.dialects.table import ASSEMBLY, is_effect_free, is_terminator
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.core import Block, Module, Operation
from tkdebug.compiler.rewriting.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class HoistLoopInvariants:
    """Moves invariant ops out of scf.for and scf.while, innermost loops first.

    A loop with the attribute `disable_licm` keeps its own, to need fewer registers.
    """

    name: ClassVar[str] = "hoist-loop-invariants"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Hoist from every loop."""
        # A walk meets a loop before the loops inside it.
        for loop in reversed([op for op in module.walk() if scf.Loop.matches(op)]):
            if not scf.Loop(loop).disable_licm:
                self._hoist(loop, rewriter)
                rewriter.commit()

    def _hoist(self, loop: Operation, rewriter: Rewriter) -> None:
        inside = _blocks(loop)
        for region in loop.regions:
            for block in region.blocks:
                for op in block.operations:
                    if _is_invariant(op, inside) and rewriter.begins(op, "hoist"):
                        rewriter.move_before(op, loop, "hoist")


def _blocks(op: Operation) -> set[Block]:
    """Every block inside `op`, at any depth."""
    return {
        block
        for inner in op.walk()
        if inner.regions
        for region in inner.regions
        for block in region.blocks
    }


def _is_invariant(op: Operation, inside: set[Block]) -> bool:
    if is_terminator(op) or not is_effect_free(op):
        return False
    own = _blocks(op) if op.regions else set()
    for inner in op.walk() if op.regions else (op,):
        if inner.name == ASSEMBLY:  # `interpret` may not know it, where the loop never comes to it
            return False
        if arith.IntegerDivision.matches(inner) and not constant_value(arith.Binary(inner).rhs):
            return False
        for value in inner.operands:
            block = value.parent_block
            if block in inside and block not in own:
                return False
    return True

"""`EliminateDeadCode`: effect-free ops and carried values that nothing depends on.

Liveness starts at ops with effects and runs backwards. A loop's carried value is live only if its
result, or something live in the body, needs it, so a value that only feeds itself goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.data_flow import backward
from tkdebug.compiler.dialects.table import PURE, TRANSPARENT, is_terminator
from tkdebug.compiler.ir.control_flow import Junction, deciding, junctions, tied_values
from tkdebug.compiler.ir.core import Block, Module, Operation, Value
from tkdebug.compiler.rewriting.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class EliminateDeadCode:
    """Erases effect-free ops without live uses, and drops dead carried values and results."""

    name: ClassVar[str] = "eliminate-dead-code"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Mark live ops and values, then sweep the rest."""
        _sweep(module.body, _Liveness(module), rewriter)
        rewriter.commit()


class _Liveness:
    """The ops and values that something observable depends on."""

    def __init__(self, module: Module) -> None:
        self.ops: set[Operation] = set()
        roots = [
            value for op in module.walk() if _has_effects(op) for value in self._needed_to_run(op)
        ]
        self.values = backward(roots, self._needs)

    def _needs(self, value: Value) -> list[Value]:
        """The values that a live value needs."""
        owner = value.owner
        op = owner if isinstance(owner, Operation) else owner.parent_op
        needed = self._needed_to_run(op)
        tied = tied_values(value)
        # A live result of a loop needs its initial value too: it may run no iteration.
        return needed if tied is None else [*needed, *tied.sources, *tied.values]

    def _needed_to_run(self, op: Operation | None) -> list[Value]:
        """Make `op` and all ops around it live; return the values that they need to run."""
        needed: list[Value] = []
        while op is not None and op not in self.ops:
            self.ops.add(op)
            needed += deciding(op)
            for region in op.regions:
                for block in region.blocks:
                    if block.operations and is_terminator(block.terminator):
                        needed += deciding(block.terminator)
            op = op.block.parent_op if op.block is not None else None
        return needed


def _has_effects(op: Operation) -> bool:
    return op.name not in PURE and op.name not in TRANSPARENT and not is_terminator(op)


def _sweep(block: Block, live: _Liveness, rewriter: Rewriter) -> None:
    # From the end, so that an op's users are gone before it is looked at.
    for op in reversed(block.operations):
        if op in live.ops:
            for junction in junctions(op):
                _drop_dead_values(junction, live, rewriter)
            for region in op.regions:
                for inner in region.blocks:
                    _sweep(inner, live, rewriter)
        elif not is_terminator(op) and rewriter.begins(op, "erase-dead"):
            rewriter.erase(op, "erase-dead")


def _drop_dead_values(junction: Junction, live: _Liveness, rewriter: Rewriter) -> None:
    tied = junction.tied()
    kept = [place for place, each in enumerate(tied) if each.values[0] in live.values]
    if len(kept) == len(tied) or not rewriter.begins(junction.op, "drop-dead-carried-values"):
        return
    junction.keep(kept)
    if None in junction.targets:
        rewriter.keep_results(junction.op, kept, "drop-dead-results")
    else:
        rewriter.record_change(junction.op, "drop-dead-carried-values")

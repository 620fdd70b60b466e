"""`AssignLayouts`: from tiles without layouts to GPU IR, with as few conversions as can be.

Anchors bring layouts: accesses and dots by what earlier passes chose for them, reductions by what
they are given. Everything computed from them follows (`layout_assignment.py`). What is
made of constants and ranges alone, small vectors loaded from there included, is assigned none: it
is made again in each layout that is wanted (`placement.py`).

Invariant: afterwards every tile has a layout and every op's layouts pass `verifier.layouts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Block, Module, Operation
from tkdebug.compiler.passes.gpu.dot_operands import place_dot
from tkdebug.compiler.passes.gpu.layout_assignment import LayoutAssignment
from tkdebug.compiler.passes.gpu.placement import Placement
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.targets.target import Target


@dataclass(frozen=True, slots=True)
class AssignLayouts:
    """Gives every tile its layout.

    Args:
        target: the architecture.
    """

    target: Target
    name: ClassVar[str] = "assign-layouts"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Assign layouts, then rewrite in program order."""
        placement = Placement(module, rewriter, LayoutAssignment.of(module), self.target)
        _place_block(placement, module.function.regions[0].block)
        rewriter.commit()


def _place_block(placement: Placement, block: Block) -> None:
    """Rewrite all ops of `block`, and what is inside them."""
    layouts = placement.layouts
    for argument in block.arguments:
        placement.settle(argument)
    for op in list(block.operations):
        if not layouts.is_flexible_op(op):
            _place_op(placement, op)
    for op in block.operations:
        if layouts.is_flexible_op(op):
            placement.settle_unused(op)


def _place_op(placement: Placement, op: Operation) -> None:
    if tt.Dot.matches(op):
        place_dot(placement, op)
        return
    before, types = op.operands, [result.type for result in op.results]
    op.operands = tuple(
        placement.wanted(operand, layout) if layout is not None else operand
        for operand, layout in zip(before, placement.layouts.operand_layouts(op), strict=True)
    )
    for result in op.results:
        placement.settle(result)
    for region in op.regions:
        if op.name.startswith("scf.") or tt.Func.matches(op):
            _place_block(placement, region.block)
    if op.operands != before or [result.type for result in op.results] != types:
        placement.rewriter.record_change(op, "assign-layout")

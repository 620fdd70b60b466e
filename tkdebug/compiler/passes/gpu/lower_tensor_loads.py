"""`LowerTensorLoads`: loads by tensor maps that no pipeline copies ahead.

The block lands in a buffer of its own and is waited for at once. A dot that reads it from a buffer
reads this one; other users get it in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.tensor_map_use import LOAD
from tkdebug.compiler.analysis.tensor_maps import LANDING_ALIGNMENT, landing_layout
from tkdebug.compiler.dialects import tt, ttg
from tkdebug.compiler.ir.core import Module, Operation
from tkdebug.compiler.ir.types import I1, I32, MemDescType, TensorType, element_of, shape_of
from tkdebug.compiler.passes.gpu.mbarrier_ring import MbarrierRing, holds_block, make_mutable
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter

_RULE = "copy-block"


@dataclass(frozen=True, slots=True)
class LowerTensorLoads:
    """Makes a bulk copy and a wait of each `tt.descriptor_load`."""

    name: ClassVar[str] = "lower-tensor-loads"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Lower every load."""
        for op in [op for op in module.walk() if op.name == LOAD]:
            _lower(op, rewriter)
        rewriter.commit()


def _lower(op: Operation, rewriter: Rewriter) -> None:
    build = OpBuilder(rewriter, op, _RULE)
    block = op.result.type
    assert isinstance(block, TensorType)
    type_ = MemDescType(shape_of(block), element_of(block), landing_layout(block), True)
    buffer = build.op(ttg.LocalAlloc, (), type_, alignment=LANDING_ALIGNMENT)
    arrivals = MbarrierRing.make([op], 1, rewriter, op, _RULE)
    first, always = build.constant(I32, 0), build.constant(I1, 1)
    copies = arrivals.copy(op, _RULE, first, [buffer], [tt.DescriptorLoad(op).offsets], always)
    arrivals.wait(op, _RULE, first, first)
    arrivals.end(op, _RULE)
    for user in list(op.result.uses):
        if ttg.LocalAlloc.matches(user) and holds_block(user, type_):
            user.result.replace_all_uses_with(buffer)
            make_mutable(buffer)
            assert buffer.defining_op is not None
            rewriter.replace_with_ops(user, "land-in-operand", [buffer.defining_op])
    if op.result.uses:
        value = build.op(ttg.LocalLoad, (buffer,), block)
        value.name = op.result.name
        rewriter.replace_value(op.result, value)
    rewriter.replace_with_ops(op, _RULE, copies)

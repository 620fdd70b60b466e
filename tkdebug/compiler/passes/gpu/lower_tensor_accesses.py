"""Accesses by tensor maps that no pipeline copies ahead, as bulk copies.

- `LowerTensorLoads`: the block lands in a buffer of its own and is waited for at once. A dot that
  reads it from a buffer reads this one; other users get it in registers.
- `LowerTensorStores`: the block goes through a buffer that a bulk copy reads. The copy is waited
  for at once, but only by the thread that issued it, and only until the buffer has been read: the
  others go on until the buffer's bytes are used again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.tensor_maps import LANDING_ALIGNMENT, LOAD, STORE, landing_layout
from tkdebug.compiler.dialects import tt, ttg, ttng
from tkdebug.compiler.ir.core import Module, Operation
from tkdebug.compiler.ir.types import I1, I32, MemDescType, TensorType, element_of, shape_of
from tkdebug.compiler.passes.gpu.mbarrier_ring import FENCE, MbarrierRing, holds_block, make_mutable
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
            if rewriter.begins(op, _RULE):
                _lower_load(op, rewriter)
        rewriter.commit()


def _lower_load(op: Operation, rewriter: Rewriter) -> None:
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


@dataclass(frozen=True, slots=True)
class LowerTensorStores:
    """Makes a buffer and a bulk copy of each `tt.descriptor_store`."""

    name: ClassVar[str] = "lower-tensor-stores"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Lower every store."""
        for op in [op for op in module.walk() if op.name == STORE]:
            if rewriter.begins(op, _RULE):
                _lower_store(op, rewriter)
        rewriter.commit()


def _lower_store(op: Operation, rewriter: Rewriter) -> None:
    build = OpBuilder(rewriter, op, _RULE)
    descriptor, value, *coordinates = op.operands
    block = value.type
    assert isinstance(block, TensorType)
    type_ = MemDescType(shape_of(block), element_of(block), landing_layout(block), False)
    buffer = build.op(ttg.LocalAlloc, (value,), type_, alignment=LANDING_ALIGNMENT)
    # The copy sees the threads' stores only after a fence of theirs.
    build.effect(FENCE, ())
    copy = build.effect(ttng.AsyncTmaCopyLocalToGlobal.name, (descriptor, buffer, *coordinates))
    build.effect(ttng.AsyncTmaStoreWait.name, (), pendings=0)
    rewriter.replace_with_ops(op, _RULE, [copy])

"""`LowerTensorStores`: stores by tensor maps go through a buffer that a bulk copy reads.

The copy is waited for at once, but only by the thread that issued it, and only until the buffer has
been read: the others go on until the buffer's bytes are used again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.tensor_map_use import STORE
from tkdebug.compiler.analysis.tensor_maps import LANDING_ALIGNMENT, landing_layout
from tkdebug.compiler.dialects import ttg, ttng
from tkdebug.compiler.ir.core import Module, Operation
from tkdebug.compiler.ir.types import MemDescType, TensorType, element_of, shape_of
from tkdebug.compiler.passes.gpu.mbarrier_ring import FENCE
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter

_RULE = "copy-block"


@dataclass(frozen=True, slots=True)
class LowerTensorStores:
    """Makes a buffer and a bulk copy of each `tt.descriptor_store`."""

    name: ClassVar[str] = "lower-tensor-stores"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Lower every store."""
        for op in [op for op in module.walk() if op.name == STORE]:
            _lower(op, rewriter)
        rewriter.commit()


def _lower(op: Operation, rewriter: Rewriter) -> None:
    build = OpBuilder(rewriter, op, _RULE)
    descriptor, value, *coordinates = op.operands
    block = value.type
    assert isinstance(block, TensorType)
    type_ = MemDescType(shape_of(block), element_of(block), landing_layout(block), False)
    buffer = build.op(ttg.LocalAlloc, (value,), type_, alignment=LANDING_ALIGNMENT)
    # The copy sees what threads stored only after a fence of theirs.
    build.effect(FENCE, ())
    copy = build.effect(ttng.AsyncTmaCopyLocalToGlobal.name, (descriptor, buffer, *coordinates))
    build.effect(ttng.AsyncTmaStoreWait.name, (), pendings=0)
    rewriter.replace_with_ops(op, _RULE, [copy])

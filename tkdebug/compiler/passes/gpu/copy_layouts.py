"""Small vectors of a loop are copied ahead in few wide accesses, whatever uses their elements.

`AssignLayouts` lets every thread load the elements of a small vector that it needs, which saves a
conversion. A loop's load that becomes an asynchronous copy goes through shared memory anyway, so
there 16 bytes a thread are better: the row statistics of attention's backward pass are 8 copies of
8 bytes in the layout of their users, and one of 16 bytes so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.compiler.analysis import layout_inference
from tkdebug.compiler.analysis.axis_facts import AxisInfo
from tkdebug.compiler.analysis.vectorization import accessible_elems
from tkdebug.compiler.dialects import tt, ttg
from tkdebug.compiler.dialects.table import PURE
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.types import TensorType, with_encoding
from tkdebug.compiler.layouts import REGISTER, LinearLayout, blocked
from tkdebug.compiler.passes.gpu.pipelined_loads import PipelinedLoad
from tkdebug.compiler.rewriting.rewriter import Rewriter


def widen_copies(
    loop: Operation,
    loads: Sequence[PipelinedLoad],
    infos: Mapping[Value, AxisInfo],
    num_warps: int,
    warp_size: int,
    rewriter: Rewriter,
) -> bool:
    """Give the vectors among `loads` the layout of few wide copies, and convert what they give.

    Returns:
        Whether anything changed.
    """
    changed = False
    for load in loads:
        layout = None if load.is_bulk else _wide_layout(load.op, infos, num_warps, warp_size)
        if layout is not None and _registers(layout) < _registers(_encoding(load.op)):
            changed |= _Remake(loop, layout, rewriter).load(load.op)
    return changed


def _wide_layout(
    op: Operation, infos: Mapping[Value, AxisInfo], num_warps: int, warp_size: int
) -> LinearLayout | None:
    """As many elements a thread as one access moves; None for what is no vector."""
    type_ = op.result.type
    if not isinstance(type_, TensorType) or len(type_.shape) != 1:
        return None
    access = tt.Load(op)
    mask = None if access.mask is None else infos[access.mask]
    width = min(accessible_elems(op, 0, infos[access.pointer], mask), type_.shape[0])
    made = blocked((width,), (warp_size,), (num_warps,), (0,), type_.shape)
    return made.without_zero_bases(REGISTER)


def _encoding(op: Operation) -> LinearLayout:
    assert isinstance(op.result.type, TensorType)
    assert op.result.type.encoding is not None
    return op.result.type.encoding


def _registers(layout: LinearLayout) -> int:
    return layout.in_size(REGISTER)


class _Remake:
    """Makes a load and what it is addressed by again, in another layout."""

    def __init__(self, loop: Operation, layout: LinearLayout, rewriter: Rewriter) -> None:
        self.loop = loop
        self.layout = layout
        self.rewriter = rewriter
        self.made: dict[Value, Value] = {}

    def load(self, op: Operation) -> bool:
        """Replace `op` by one in the layout and a conversion, if its operands can be remade."""
        if not all(self._can_be_remade(value) for value in op.operands):
            return False
        new = self.rewriter.build_before(
            op,
            op.name,
            [self._remade(value) for value in op.operands],
            [with_encoding(op.result.type, self.layout)],
            {**op.attributes, "layout": self.layout},
            location=op.location,
        )
        new.result.name = op.result.name
        self.rewriter.record_new(new, "widen-copy")
        self.rewriter.replace_with_op(op, "widen-copy", ttg.ConvertLayout, [new.result])
        return True

    def _can_be_remade(self, value: Value) -> bool:
        op = value.defining_op
        if not isinstance(value.type, TensorType):
            return True
        if op is None or op.regions:
            return False
        follows = layout_inference.is_elementwise(op) and op.name in PURE
        return (op.name in layout_inference.SOURCES or follows) and all(
            self._can_be_remade(operand) for operand in op.operands
        )

    def _remade(self, value: Value) -> Value:
        op = value.defining_op
        if not isinstance(value.type, TensorType):
            return value
        assert op is not None
        if value not in self.made:
            inside = op.block is self.loop.regions[0].block
            new = self.rewriter.build_before(
                op if inside else self.loop,
                op.name,
                [self._remade(operand) for operand in op.operands],
                [with_encoding(value.type, self.layout)],
                op.attributes,
                location=op.location,
            )
            self.rewriter.record_new(new, "widen-copy")
            self.made[value] = new.result
        return self.made[value]

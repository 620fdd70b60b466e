"""Values in the layouts that `AssignLayouts` wants them in, each made once.

What has an assigned layout is converted; what is made of constants and ranges alone (the flexible
ops) is made again in each layout, which costs less than moving it. A conversion is placed right
after what it converts, so outside of loops where it can.
"""

from __future__ import annotations

from tkdebug.compiler.analysis import layout_inference
from tkdebug.compiler.dialects import tt, ttg
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.ir.types import TensorType, shape_of, with_encoding
from tkdebug.compiler.layouts import REGISTER, LinearLayout
from tkdebug.compiler.passes.gpu.layout_assignment import LayoutAssignment
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.targets.target import Target

# A small vector of which each thread wants more is handed around after all.
_MOST_REGISTERS_OF_A_LOAD = 32


class Placement:
    """Hands out values in the layouts that ops need.

    Args:
        module: what is rewritten.
        rewriter: how.
        layouts: the layout of each value that has one.
        target: the architecture.

    Attributes:
        banks: of the target's shared memory.
        buffers: the shared-memory buffers made so far, by what they hold.
    """

    def __init__(
        self, module: Module, rewriter: Rewriter, layouts: LayoutAssignment, target: Target
    ) -> None:
        self.rewriter = rewriter
        self.banks = target.banks
        self.layouts = layouts
        self.buffers: dict[tuple[Value, LinearLayout | None, tuple[int, ...] | None], Value] = {}
        self._made: dict[tuple[Value, LinearLayout], Value] = {}
        # The flexible ops that have a layout themselves, with the operands they had before.
        self._placed: dict[Operation, tuple[Value, ...]] = {}
        self._following: dict[Operation, Operation] = {}
        for op in module.walk():
            for region in op.regions:
                for block in region.blocks:
                    pairs = zip(block.operations, block.operations[1:], strict=False)
                    self._following.update(pairs)

    def wanted(self, value: Value, layout: LinearLayout) -> Value:
        """`value` in `layout`; scalars as they are."""
        if not isinstance(value.type, TensorType):
            return value
        key = (value, layout)
        known = self._made.get(key)
        if known is None:
            flexible = value.defining_op is not None and self.layouts.is_flexible_op(
                value.defining_op
            )
            known = self._remake(value, layout) if flexible else self._convert(value, layout)
            self._made[key] = known
        return known

    def settle(self, value: Value) -> None:
        """Give `value` its assigned layout."""
        if isinstance(value.type, TensorType):
            value.type = with_encoding(value.type, self.layouts.of_value(value))

    def settle_unused(self, op: Operation) -> None:
        """Give an unused flexible op some layout: it is dead, the module stays valid."""
        if op in self._placed:
            return
        for result in op.results:
            shape = shape_of(result.type)
            self.wanted(result, self.layouts.default_layout(shape))

    def after(self, value: Value) -> Operation:
        """The op before which something computed from `value` may stand at the earliest."""
        owner = value.owner
        if isinstance(owner, Operation):
            return self._following[owner]
        return owner.operations[0]

    def _convert(self, value: Value, layout: LinearLayout) -> Value:
        assigned = self.layouts.of_value(value)
        if assigned == layout:
            return value
        anchor = self.after(value)
        owner = value.defining_op
        made = self.rewriter.build_before(
            anchor,
            ttg.ConvertLayout,
            [value],
            [with_encoding(value.type, layout)],
            location=owner.location if owner is not None else anchor.location,
        )
        self.rewriter.record_new(made, "convert-layout")
        return made.result

    def _remake(self, value: Value, layout: LinearLayout) -> Value:
        op = value.defining_op
        assert op is not None
        source: LinearLayout | None = layout
        if op.name not in layout_inference.SOURCES and not tt.Load.matches(op):
            source = layout_inference.operand_layout(op, layout)
        crowded = tt.Load.matches(op) and layout.in_size(REGISTER) > _MOST_REGISTERS_OF_A_LOAD
        own = self.layouts.default_layout(layout.shape)
        if crowded and layout != own:
            return self._convert_after(op, self.wanted(value, own), layout)
        if source is None:
            return self._convert_remade(value, layout)
        sources = self._placed.get(op, op.operands)
        operands = [self.wanted(operand, source) for operand in sources]
        type_ = with_encoding(value.type, layout)
        if op not in self._placed:
            self._placed[op] = sources
            op.operands = tuple(operands)
            # What a load was given is for those that stay.
            del OpView(op).layout
            value.type = type_
            self.rewriter.record_change(op, "assign-layout")
            return value
        clone = self.rewriter.build_before(
            op, op.name, operands, [type_], op.attributes, location=op.location
        )
        clone.result.name = value.name
        self.rewriter.record_new(clone, "remake-in-layout")
        return clone.result

    def _convert_remade(self, value: Value, layout: LinearLayout) -> Value:
        """For views that cannot give `layout` whatever their operands have."""
        op = value.defining_op
        assert op is not None
        (source, *_) = op.operands
        own = self.layouts.default_layout(shape_of(source.type))
        given = layout_inference.result_layout(op, own)
        assert given is not None, f"{op.name} has no layout rule"
        return self._convert_after(op, self.wanted(value, given), layout)

    def _convert_after(self, op: Operation, made: Value, layout: LinearLayout) -> Value:
        converted = self.rewriter.build_before(
            self._following[op],
            ttg.ConvertLayout,
            [made],
            [with_encoding(made.type, layout)],
            location=op.location,
        )
        self.rewriter.record_new(converted, "convert-layout")
        return converted.result

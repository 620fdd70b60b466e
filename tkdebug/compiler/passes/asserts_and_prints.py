"""Asserts and prints of native code.

- `DropAsserts`: removes device asserts from kernels that are not compiled for debugging. As
  upstream, native code checks them with `debug=True` or TRITON_DEBUG; the interpreter always does.
- `SummarisePrints`: large tiles are printed as one line, not as one for each element. Interpreted
  prints are summarised as they are printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dtypes import describe_type
from tkdebug.compiler.ir.core import Module, Operation
from tkdebug.compiler.ops.emitter import CompileOptions, Emitter
from tkdebug.compiler.print_summaries import is_summarised, printed_type, summary_template
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.tensor import tensor


@dataclass(frozen=True, slots=True)
class DropAsserts:
    """Erases every `tt.assert`, and records the erased source lines."""

    name: ClassVar[str] = "drop-asserts"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Erase the asserts one by one."""
        for op in module.walk():
            if tt.Assert.matches(op):
                rewriter.erase_unreachable(op, "drop-assert")
        rewriter.commit()


@dataclass(frozen=True, slots=True)
class SummarisePrints:
    """Prints tiles of more than `most` elements as summaries.

    Args:
        most: the largest number of elements that are printed one by one.
    """

    most: int
    name: ClassVar[str] = "summarise-prints"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Replace prints of larger tiles."""
        prints = [
            op
            for op in module.walk()
            if tt.Print.matches(op)
            and any(is_summarised(op, value, self.most) for value in op.operands)
        ]
        if not prints:
            return
        emit = Emitter(module, CompileOptions())
        known = {op.id for op in module.walk()}
        for op in prints:
            with emit.builder.before(op), emit.builder.at(op.location):
                new = [self._printed(emit, op, place) for place in range(len(op.operands))]
            rewriter.replace_with_ops(op, "summarise-print", new)
        rewriter.commit()
        for op in module.walk():
            if op.id not in known:
                rewriter.record_new(op, "summarise-print")

    def _printed(self, emit: Emitter, op: Operation, place: int) -> Operation:
        """Emit the print of operand `place` of `op`: of its summary if it is large."""
        view = tt.Print(op)
        value = view.values[place]
        is_signed = view.signed is None or view.signed[place]
        prefix = view.prefix + (f"(operand {place}) " if len(view.values) > 1 else "")
        if not is_summarised(op, value, self.most):
            return emit.op(tt.Print, [value], prefix=prefix, hex=view.hex, signed=(is_signed,))
        from tkdebug.compiler.passes.tile_summaries import TileSummary  # for few kernels

        type_ = printed_type(value, is_signed)
        summary = TileSummary(emit, tensor(value, type_))
        counts = (summary.nan, summary.inf, summary.zeros)
        numbers: Sequence[tensor] = (
            summary.or_nan(summary.minimum),
            summary.or_nan(summary.maximum),
            summary.mean,
            *(summary.cast(count, dt.int32) for count in counts),
        )
        scalar = type_.scalar
        is_float = isinstance(scalar, dt.dtype) and scalar.is_floating()
        template = summary_template(prefix, describe_type(type_), is_float)
        return emit.op(tt.Print, numbers, prefix="", hex=False, template=template)

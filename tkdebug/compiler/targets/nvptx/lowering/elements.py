"""Element by element: how a rule for one element becomes a rule for all registers of a tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, Registers

# (kernel, op, one element of each operand) -> the element of the result.
ElementRule = Callable[..., LLVMValue]


def per_element(rule: ElementRule) -> Lower:
    """The lowering of an op without side effects that does the same for every element.

    Registers that are known to be equal, as those of a splat, are computed once.
    """

    def lower(ctx: Lowering, op: Operation, *operands: Registers) -> Sequence[Registers]:
        known: dict[tuple[LLVMValue, ...], LLVMValue] = {}
        results = []
        for elements in zip(*operands, strict=True):
            result = known.get(elements)
            if result is None:
                result = known[elements] = rule(ctx, op, *elements)
            results.append(result)
        return (results,)

    lower.__doc__ = rule.__doc__
    return lower

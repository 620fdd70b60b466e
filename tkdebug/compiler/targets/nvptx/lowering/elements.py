"""Element by element: how a rule for one element becomes a rule for all registers of a tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.types import ScalarType, TensorType, element_of
from tkdebug.compiler.layouts import REGISTER, LinearLayout
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, Registers

# (kernel, op, one element of each operand) -> the element of the result.
ElementRule = Callable[..., LLVMValue]


def per_element(rule: ElementRule) -> Lower:
    """The lowering of an op without side effects that does the same for every element.

    Registers that are known to be equal are computed once: those of a splat by their operands,
    those of a mask such as `offsets < n`, where n has a known divisor, by what `analysis/axis_info`
    says of the result.
    """

    def lower(ctx: Lowering, op: Operation, *operands: Registers) -> Sequence[Registers]:
        known: dict[tuple[LLVMValue, ...], LLVMValue] = {}
        results: list[LLVMValue] = []
        ignored = _ignored_bits(ctx, op.result)
        for index, elements in enumerate(zip(*operands, strict=True)):
            if index & ignored:
                results.append(results[index & ~ignored])
                continue
            result = known.get(elements)
            if result is None:
                result = known[elements] = rule(ctx, op, *elements)
            results.append(result)
        return (results,)

    lower.__doc__ = rule.__doc__
    return lower


def _ignored_bits(ctx: Lowering, value: Value) -> int:
    """Bits of the register's index on which no integer in `value` depends."""
    element = element_of(value.type)
    is_whole = isinstance(element, ScalarType) and element.is_integer
    if not is_whole or not isinstance(value.type, TensorType):
        return 0
    layout = ctx.layout(value)
    info = ctx.axis_info.get(value) if layout.in_size(REGISTER) > 1 else None
    return 0 if info is None else _bits_inside(layout, info.constancy)


@lru_cache(maxsize=1024)
def _bits_inside(layout: LinearLayout, constancy: tuple[int, ...]) -> int:
    """The bits of the register's index that stay in one aligned group of so many elements."""
    aligned = [count & -count for count in constancy]
    return sum(
        1 << bit
        for bit, basis in enumerate(layout.bases(REGISTER))
        if all(step < count for step, count in zip(basis, aligned, strict=True))
    )

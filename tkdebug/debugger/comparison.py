"""Compares what a launch stored under the debugger with what it stores without one.

A debugger runs another IR than a launch does: one before most passes, or after more of them. If
both are to store the same bits, every bit is compared. If one of them may sum in another order
(dots, reductions, atomic sums, GPU IR), elements may differ by as much as rounding makes probable,
relative to the largest element that is read or written: a false alarm is worse than a miss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Module, ScalarType
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.replay import Parameters

if TYPE_CHECKING:
    from tkdebug.debugger.code import DebugCode
    from tkdebug.debugger.execution import Execution

# What tiles of a type may differ by, relative to the largest element: many roundings, since errors
# add up along sums and grow where large numbers cancel. Those of fp8 are not compared at all.
_TOLERANCES = {"f64": 1e-9, "f32": 1e-3, "f16": 2e-2, "bf16": 1e-1}
# Where a comparison of floats or a rounding to integers decides, a bit may change an element
# altogether; then so many of a tensor's elements have to differ before anything is said.
_FEWEST_PART = 0.01
_DECIDING = names_of(arith.CmpF, arith.FloatToInteger, tt.Bitcast)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The way in which results of two IRs of a kernel are compared.

    Attributes:
        tolerance: the tolerance for floats, relative to the largest; 0 for bits, None for not at
            all.
        decides: whether rounding may decide a comparison, so that elements differ by any amount.
    """

    tolerance: float | None
    decides: bool

    @classmethod
    def of(cls, code: DebugCode, launched: Module) -> Comparison | None:
        """Return how a debugger's run compares with a launch's; None if runs may differ."""
        if Parameters.of(launched) is None or Parameters.of(code.module) is None:
            return None
        decides = _decides(code.module)
        if not (code.stage.is_gpu or code.rounds_otherwise or _sums(launched)):
            return cls(0.0, decides)
        types = _float_types(code.module)
        found = [_TOLERANCES.get(name) for name in types]
        if None in found:
            return cls(None, decides)
        return cls(max((one for one in found if one is not None), default=0.0), decides)

    def difference(
        self, got: Mapping[str, Tensor], wanted: Mapping[str, Tensor], largest: float
    ) -> str:
        """The first element that differs, and by how much; "" if none does.

        Args:
            got: the results of the debugger's run, by the names of arguments.
            wanted: the results of the launch.
            largest: the largest magnitude that the launch read.
        """
        for name, mine in got.items():
            theirs = wanted[name]
            bad = self._differing(mine, theirs, largest)
            count = int(bad.sum())
            enough = _FEWEST_PART * bad.numel() if self.decides and self.tolerance else 1
            if not count or count < enough:
                continue
            return _difference_text(name, mine, theirs, bad, count)
        return ""

    def _differing(self, mine: Tensor, theirs: Tensor, largest: float) -> Tensor:
        if not mine.dtype.is_floating_point:
            return mine != theirs
        a, b = mine.double(), theirs.double()
        both_nan = a.isnan() & b.isnan()
        if self.tolerance == 0.0:
            return (a != b) & ~both_nan
        finite = a.isfinite() & b.isfinite()
        unlike = (a != b) & ~both_nan & ~finite
        if self.tolerance is None or not bool(finite.any()):
            return unlike
        scale = max(largest, float(b[finite].abs().max()))
        return unlike | (finite & ((a - b).abs() > self.tolerance * scale))


def _difference_text(name: str, mine: Tensor, theirs: Tensor, bad: Tensor, count: int) -> str:
    place = tuple(int(axis[0]) for axis in bad.nonzero(as_tuple=True))
    a, b = mine[place].item(), theirs[place].item()
    shown = f"{name}[{', '.join(map(str, place))}]" if place else name
    by = (
        f", by {abs(a - b):.3g}" if isinstance(a, int | float) and abs(a - b) < float("inf") else ""
    )
    more = f"; {count} of {mine.numel()} elements differ" if mine.numel() > 1 else ""
    return f"{shown} is {_text(a)}, the launch gives {_text(b)}{by}{more}"


def _text(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def difference(execution: Execution, launched: Module, arguments: Mapping[str, Any]) -> str:
    """Say how a debugger's ended execution differs from a launch; "" for not at all.

    Args:
        execution: the execution of the launch, without assignments.
        launched: the IR that the launch runs without a debugger.
        arguments: the launch's, by name.

    Raises:
        TkError: the launch fails without a debugger.
    """
    comparison = Comparison.of(execution.code, launched)
    parameters = Parameters.of(launched)
    if comparison is None or parameters is None:
        return ""
    total = math.prod(execution.grid)
    if execution.batch_programs < total and parameters.read & parameters.written:
        return ""  # batches of another size may see what others have written
    names, tensors = tt.Func(launched.function).arg_names, tensors_of(arguments)
    written = {name for place, name in enumerate(names) if place in parameters.written}
    read = {name for place, name in enumerate(names) if place in parameters.read}
    got = {name: torch.clone(tensors[name]) for name in tensors if name in written}
    with execution.as_it_began():
        largest = largest_of([tensors[name] for name in tensors if name in read])
        execution.run_beside(launched)
        return comparison.difference(got, tensors, largest)


def tensors_of(arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a launch, those of descriptors too, by the names of arguments."""
    found: dict[str, Tensor] = {}
    for name, value in arguments.items():
        tensor = value if isinstance(value, Tensor) else getattr(value, "base", None)
        if isinstance(tensor, Tensor):
            found[name] = tensor
    return found


def largest_of(tensors: Sequence[Tensor]) -> float:
    """The largest finite magnitude among floats; 0 for none."""
    found = 0.0
    for tensor in tensors:
        if tensor.dtype.is_floating_point and tensor.numel():
            wide = tensor.float()
            finite = wide[wide.isfinite()]
            if finite.numel():
                found = max(found, float(finite.abs().max()))
    return found


def _sums(module: Module) -> bool:
    """Whether floats are summed up, in an order that is the interpreter's."""
    return any(
        tt.Dot.matches(op) or tt.Reduce.matches(op) or tt.Scan.matches(op) or tt.Atomic.matches(op)
        for op in module.walk()
        if any(map(_is_float, (value.type for value in op.operands)))
    )


def _decides(module: Module) -> bool:
    return any(
        op.name in _DECIDING or (tt.Reduce.matches(op) and len(op.operands) > 1)
        for op in module.walk()
        if any(map(_is_float, (value.type for value in op.operands)))
    )


def _is_float(type_: ir.Type) -> bool:
    element = ir.element_of(type_)
    return isinstance(element, ScalarType) and element.is_float


def _float_types(module: Module) -> set[str]:
    values = (value for op in module.walk() for value in (*op.operands, *op.results))
    return {str(ir.element_of(value.type)) for value in values if _is_float(value.type)}

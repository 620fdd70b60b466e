"""The tests for symptoms that lowering writes into checked kernels, on interpreted tiles.

With it, a kernel's sites for stored values and its symptoms are tested without a GPU. Invariant:
what is noted here is noted natively, too; native code may note more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.analysis.offset_arithmetic import offset_arithmetic
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import stored
from tkdebug.compiler.ir import Operation, PointerType
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import OpView, names_of
from tkdebug.compiler.probes.symptoms import HINT, INDEX, unwritten_infinities
from tkdebug.interpreter.checks.shadow_flow import computable
from tkdebug.interpreter.checks.shadow_values import is_in_kernel, stored_value
from tkdebug.interpreter.checks.undefined.offset_wraps import wraps
from tkdebug.interpreter.checks.unwritten.patterns import MARKS, bits_type
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.memory.pointers import byte_addresses
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.tiles.values import AddressTile, PointerTile

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Module
    from tkdebug.interpreter.memory.observed_access import ObservedAccess
    from tkdebug.interpreter.probes.recorder import ProbeRecorder
    from tkdebug.interpreter.state import EvaluatorState
    from tkdebug.interpreter.tiles.values import TileValue

_PARTIAL = names_of(arith.IntegerDivision, arith.Shift)


class ProbeObserver(Observer):
    """Notes stored values and symptoms.

    Args:
        module: GPU IR with probes.
        recorder: takes the reports.
    """

    needs_intermediates = True
    follows_accesses = True

    def __init__(self, module: Module, recorder: ProbeRecorder) -> None:
        self._recorder = recorder
        self._kinds = tt.Func(module.function).probe_symptoms
        self._infinities = unwritten_infinities(module.function)
        self._sums = offset_arithmetic(module).sums

    def moments(self, op: Operation) -> Moments:
        """After what may give an undefined result, and hints."""
        if not self._kinds or not is_in_kernel(op):
            return Moments.NEVER
        is_watched = op.name in _PARTIAL or op in self._sums or tt.Hint.matches(op)
        is_watched = is_watched or tt.Gather.matches(op)
        return Moments.AFTER if is_watched else Moments.NEVER

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """An op has run."""
        if tt.Gather.matches(op):
            gather, (_, index) = tt.Gather(op), operands
            indices = run.full(index, gather.indices.type)
            extent = ir.shape_of(gather.source.type)[gather.axis]
            self._note(run, INDEX, (indices < 0) | (indices >= extent))
            return results
        if tt.Hint.matches(op):
            (source,) = operands
            if not isinstance(ir.element_of(op.result.type), PointerType):
                self._note(run, HINT, _may_break(run, tt.Hint(op), source))
            elif isinstance(source, PointerTile | AddressTile) and not ir.shape_of(op.result.type):
                addresses = run.dense(byte_addresses(source), ir.I64)
                self._note(run, HINT, addresses % max(tt.Hint(op).values) != 0)
            return results
        left, right = (
            run.dense(tile, value.type) for tile, value in zip(operands, op.operands, strict=True)
        )
        bits = ir.element_of(op.result.type).bits
        if arith.IntegerDivision.matches(op):
            self._note(run, "division-by-zero", right == 0)
        elif arith.Shift.matches(op):
            self._note(run, "shift-range", (right < 0) | (right >= bits))
        else:
            self._note(run, "offset-overflow", wraps(op, left, right))
        return results

    def _note(self, run: Evaluator, kind: str, bad: Tensor) -> None:
        if kind not in self._kinds or not bool(bad.any()):
            return
        by_program = bad.reshape(bad.shape[0], -1).any(1).expand(run.programs)
        if run.active is not None:
            by_program = by_program & run.active
        if bool(by_program.any()):
            first = run.first + int(by_program.to(torch.uint8).argmax()) // run.lanes
            self._recorder.symptom(kind, first)

    def read(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After a load: count what nothing has written."""
        number, buffer = OpView(access.op).value_probe, access.buffer
        mark = MARKS.get(buffer.tensor.dtype)
        if number is None or mark is None or buffer.itemsize != buffer.tensor.element_size():
            return
        touched = access.touch()
        memory = buffer.flat(buffer.tensor.dtype).view(bits_type(buffer.itemsize))
        places = (memory[touched.places] == mark).nonzero().reshape(-1)
        if places.numel():
            self._recorder.touched(number, buffer, touched.chosen(places))

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before an atomic: whether what it combines is finite."""
        value = stored_value(access.op)
        assert isinstance(run, Evaluator)
        if value is None or not _is_float(value.type):
            return
        tile = run.full(run.values[value], value.type)
        self._note(run, "inf", self._is_bad(computable(tile)))
        self._note(run, "nan", computable(tile).isnan())

    def _is_bad(self, values: Tensor) -> Tensor:
        """Whether values are NaN, or an infinity that the kernel has no constant of."""
        bad = values.isnan()
        for infinity in self._infinities:
            bad = bad | (values == infinity)
        return bad

    def writing(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before a store: whether it stores NaNs, or what is not finite."""
        if not _is_float(stored(access.op).type):
            return
        values, programs = access.stored(), access.touch().programs
        for kind, bad in (("nan", values.isnan()), ("inf", self._is_bad(values))):
            if kind in self._kinds and bool(bad.any()):
                self._recorder.symptom(kind, int(programs[bad].min()))


def _is_float(type_: ir.Type) -> bool:
    element = ir.element_of(type_)
    return isinstance(element, ir.ScalarType) and element.name in ("f16", "bf16", "f32", "f64")


def _may_break(run: Evaluator, hint: tt.Hint, value: TileValue) -> Tensor:
    """Where a hint may not hold; more than is reported."""
    values = run.full(value, hint.source.type)
    bad = torch.zeros_like(values, dtype=torch.bool)
    for axis, number in enumerate(hint.values):
        if hint.kind in ("divisibility", tt.BLOCK_START):
            bad = bad | (values % number != 0)
        elif number > 1 and values.dim() > axis + 1:
            before = values.roll(1, axis + 1)
            bad = bad | (values != (before if hint.kind == "constancy" else before + 1))
    return bad

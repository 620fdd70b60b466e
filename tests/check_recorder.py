"""Fills the table of a checked native kernel while its GPU IR is interpreted.

Faults become reports of their sites, as native code makes them, so that all of it is tested without
a GPU. What no check tests stays a fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.sites.table import SYMPTOMS, Report, packed_symptoms, table_bytes
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.bad_elements import BadElements
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.checked_access import is_block

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Operation, Value
    from tkdebug.compiler.sites.checks import CheckPlan
    from tkdebug.interpreter.memory.touched import Touched
    from tkdebug.records.events import FaultKind
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.analysis.offset_arithmetic import offset_arithmetic
from tkdebug.compiler.dialects import arith
from tkdebug.compiler.dialects.interfaces import stored
from tkdebug.compiler.ir import Operation, PointerType
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.sites.table import HINT, INDEX, unwritten_infinities
from tkdebug.interpreter.checks.shadow_values import computable, is_in_kernel, stored_value
from tkdebug.interpreter.checks.undefined import wraps
from tkdebug.interpreter.checks.unwritten.patterns import MARKS, bits_type
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.memory.pointers import byte_addresses
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.tiles.values import AddressTile, PointerTile

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Module
    from tkdebug.interpreter.memory.observed_access import ObservedAccess
    from tkdebug.interpreter.state import EvaluatorState
    from tkdebug.interpreter.tiles.values import TileValue


def _tile_facts(op: Operation, offender: Offender, size: int) -> tuple[int, int, bool]:
    """Bad and masked elements such that they say of the example's tile what is known of it."""
    masked = 0 if offender.is_unmasked else 1
    whole = size - masked if is_block(op) else size
    return (whole if offender.is_whole_tile else 0, masked, True)


class CheckRecorder(FaultLog):
    """Keeps what an interpreted launch would report, in place of its faults.

    Args:
        plan: of the GPU IR that is run.
        kernel: the kernel's name.
        grid: programs along x, y, z.
    """

    def __init__(self, plan: CheckPlan, kernel: str, grid: tuple[int, int, int]) -> None:
        super().__init__(kernel, 0, grid, is_reported=False)
        self._plan = plan
        self._reports: dict[int, Report] = {}
        self._symptoms: dict[str, int] = {}
        self._times = 0

    def bad_access(
        self,
        op: Operation,
        kind: FaultKind,
        buffer: Buffer | None,
        offender: Offender,
        count: int,
        mask: Value | None,
        bad: BadElements | None = None,
    ) -> None:
        """Report what a site's access did; what no check tests stays a fault."""
        number = OpView(op).site
        site = None if number is None else self._plan.sites[number]
        is_tested = site is not None and (site.is_loaded or buffer is not None)
        if site is None or site.bound is None or site.kind != kind or not is_tested:
            super().bad_access(op, kind, buffer, offender, count, mask, bad)
            return
        assert offender.index is not None
        self._times += 1
        if site.is_recomputed:
            self._reports[site.number] = Report.flagged(site.number)
            return
        self._add(
            Report(
                site.number,
                count,
                self._linear(offender.program_id),
                self._times,
                _place(offender.lane, site.shape),
                offender.index if buffer is None else _address(buffer, offender.index),
                *_tile_facts(op, offender, math.prod(site.shape)),
                0 if buffer is None else buffer.address,
            )
        )

    def undefined(self, op: Operation, *rest: object, **others: object) -> None:
        """Nothing: a symptom stands for it."""

    def bad_index(self, op: Operation, *rest: object) -> None:
        """Nothing: a symptom stands for it."""

    def symptom(self, kind: str, program: int) -> None:
        """Note a symptom."""
        self._symptoms[kind] = min(program, self._symptoms.get(kind, program))

    def touched(self, number: int, buffer: Buffer, bad: Touched) -> None:
        """Report what is loaded that nothing has written.

        Args:
            number: of the site.
            buffer: their tensor.
            bad: the elements, one at least.
        """
        self._times += 1
        first = buffer.address + (int(bad.places[0]) - buffer.storage_offset) * buffer.itemsize
        count = int(bad.programs.numel())
        program, element = int(bad.programs[0]), int(bad.lanes[0])
        self._add(Report(number, count, program, self._times, element, first, 0))

    def assertion(self, op: Operation, offender: Offender, count: int) -> None:
        """Report a failed assertion."""
        if not self._is_reported(op, "assert", offender, count):
            super().assertion(op, offender, count)

    def false_assumption(
        self, op: Operation, offender: Offender, call: str, what: str, count: int
    ) -> None:
        """Report an assumption that does not hold; of hints, a symptom does."""
        if not tt.Hint.matches(op) and not self._is_reported(op, "assumption", offender, count):
            super().false_assumption(op, offender, call, what, count)

    def _is_reported(self, op: Operation, kind: str, offender: Offender, count: int) -> bool:
        number = OpView(op).site
        if number is None or self._plan.sites[number].kind != kind:
            return False
        self._times += 1
        place = _place(offender.lane, self._plan.sites[number].shape)
        program = self._linear(offender.program_id)
        self._add(Report(number, count, program, self._times, place, 0, 0))
        return True

    def _add(self, report: Report) -> None:
        known = self._reports.get(report.site)
        if known is None:
            self._reports[report.site] = report
            return
        first = min(known, report, key=lambda one: (one.program, one.time))
        self._reports[report.site] = replace(first, count=known.count + report.count)

    def _linear(self, program: tuple[int, int, int]) -> int:
        x, y, z = program
        width, height, _ = self.grid
        return (z * height + y) * width + x

    def table(self) -> bytes:
        """Return the table that the launch leaves."""
        return b"".join(self._slots())

    def _slots(self) -> Iterator[bytes]:
        for site in self._plan.sites:
            if site.kind == SYMPTOMS:
                first = {kind: self.program_at(at) for kind, at in self._symptoms.items()}
                yield packed_symptoms(first)
                continue
            report = self._reports.get(site.number)
            yield bytes(table_bytes(1)) if report is None else report.packed()


def _address(buffer: Buffer, index: int) -> int:
    return buffer.address + index * buffer.itemsize


def _place(lane: Sequence[int], shape: Sequence[int]) -> int:
    place = 0
    for position, extent in zip(lane, shape, strict=True):
        place = place * extent + position
    return place


_DIVISIONS = names_of(arith.DivSI, arith.DivUI, arith.RemSI, arith.RemUI)
_SHIFTS = names_of(arith.ShLI, arith.ShRSI, arith.ShRUI)


class SymptomObserver(Observer):
    """Notes stored values and symptoms.

    Args:
        module: GPU IR with checks.
        recorder: takes the reports.
    """

    needs_intermediates = True
    follows_accesses = True

    def __init__(self, module: Module, recorder: CheckRecorder) -> None:
        self._recorder = recorder
        self._kinds = tt.Func(module.function).check_symptoms
        self._infinities = unwritten_infinities(module.function)
        self._sums = offset_arithmetic(module).sums

    def moments(self, op: Operation) -> Moments:
        """After what may give an undefined result, and hints."""
        if not self._kinds or not is_in_kernel(op):
            return Moments.NEVER
        is_watched = op.name in _DIVISIONS | _SHIFTS or op in self._sums or tt.Hint.matches(op)
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
        if op.name in _DIVISIONS:
            self._note(run, "division-by-zero", right == 0)
        elif op.name in _SHIFTS:
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
        number, buffer = OpView(access.op).value_site, access.buffer
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
    """Return the places where a hint may not hold; more than are reported."""
    values = run.full(value, hint.source.type)
    bad = torch.zeros_like(values, dtype=torch.bool)
    for axis, number in enumerate(hint.values):
        if hint.kind in ("divisibility", tt.BLOCK_START):
            bad = bad | (values % number != 0)
        elif number > 1 and values.dim() > axis + 1:
            before = values.roll(1, axis + 1)
            bad = bad | (values != (before if hint.kind == "constancy" else before + 1))
    return bad

"""Fills the table of a checked native kernel while its GPU IR is interpreted.

Faults become reports of their sites, as native code makes them, so that all of it is tested without
a GPU. What no probe tests stays a fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.probes.symptoms import SYMPTOMS, packed_symptoms
from tkdebug.compiler.probes.table import Report, table_bytes
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.checked_access import is_block

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Operation, Value
    from tkdebug.compiler.probes.sites import ProbePlan
    from tkdebug.events import FaultKind
    from tkdebug.interpreter.memory.touched import Touched


def _tile_facts(op: Operation, offender: Offender, size: int) -> tuple[int, int, bool]:
    """Bad and masked elements such that they say of the example's tile what is known of it."""
    masked = 0 if offender.is_unmasked else 1
    whole = size - masked if is_block(op) else size
    return (whole if offender.is_whole_tile else 0, masked, True)


class ProbeRecorder(FaultLog):
    """Keeps what an interpreted launch would report, in place of its faults.

    Args:
        plan: of the GPU IR that is run.
        kernel: the kernel's name.
        grid: programs along x, y, z.
    """

    def __init__(self, plan: ProbePlan, kernel: str, grid: tuple[int, int, int]) -> None:
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
    ) -> None:
        """Report what a site's access did; what no probe tests stays a fault."""
        number = OpView(op).probe
        site = None if number is None else self._plan.sites[number]
        is_tested = site is not None and (site.is_loaded or buffer is not None)
        if site is None or site.bound is None or site.kind != kind or not is_tested:
            super().bad_access(op, kind, buffer, offender, count, mask)
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
        number = OpView(op).probe
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
        """What the launch leaves in its table."""
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

"""From what a checked launch reported to faults, and what it would report to reports.

A native launch fills a table (`compiler.probes.table`); `faults_of` makes of it the faults that the
interpreter finds, in the same words. `ProbeRecorder` is the other half without a GPU: where GPU IR
with probes is interpreted, its faults become reports of their sites, as native code makes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.probes.table import Report, reports, table_bytes
from tkdebug.interpreter.buffers import Buffer
from tkdebug.interpreter.checked_access import mask_of
from tkdebug.interpreter.fault_log import FaultLog

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Operation, Value
    from tkdebug.compiler.probes.sites import ProbePlan
    from tkdebug.events import Fault, FaultKind


@dataclass(frozen=True, slots=True)
class PassedTensor:
    """A tensor as a launch got it; it keeps no memory alive.

    Attributes:
        address: of its first element.
        shape: its extents.
        strides: in elements.
        dtype: of its elements.
        storage_offset: of the first element in the allocation, in elements.
        storage_bytes: of the allocation.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    storage_offset: int
    storage_bytes: int

    @staticmethod
    def of(tensor: torch.Tensor) -> PassedTensor:
        """What is known of `tensor` without looking at its elements."""
        return PassedTensor(
            tensor.data_ptr(),
            tuple(tensor.shape),
            tensor.stride(),
            tensor.dtype,
            int(tensor.storage_offset()),
            tensor.untyped_storage().nbytes(),
        )

    def buffer(self, name: str) -> Buffer:
        """What may be touched through it; there is no memory behind it."""
        whole = torch.empty(self.storage_bytes, dtype=torch.uint8, device="meta")
        count = self.storage_bytes // self.dtype.itemsize
        elements = whole[: count * self.dtype.itemsize].view(self.dtype)
        view = elements.as_strided(self.shape, self.strides, self.storage_offset)
        buffer = Buffer(view, name)
        buffer.address = self.address
        return buffer


@dataclass(frozen=True, slots=True)
class CheckedLaunch:
    """A launch whose reports are read.

    Attributes:
        kernel: how faults name the kernel.
        launch_id: the launch's number in its process.
        grid: programs along x, y, z.
        tensors: what was passed, by the parameter's name, as `ProbePlan.bounds` has it.
        arguments: what the kernel was called with, by name, constants too; for hints.
    """

    kernel: str
    launch_id: int
    grid: tuple[int, int, int]
    tensors: Mapping[str, PassedTensor]
    arguments: Mapping[str, object] = field(default_factory=dict)


def faults_of(plan: ProbePlan, table: bytes, launch: CheckedLaunch) -> list[Fault]:
    """The faults that a launch reported; nobody is told of them.

    Raises:
        ValueError: the table is not of the plan's size.
    """
    if len(table) != table_bytes(len(plan.sites)):
        wanted = table_bytes(len(plan.sites))
        raise ValueError(f"{launch.kernel}: got a table of {len(table)} bytes, expected {wanted}")
    log = FaultLog(launch.kernel, launch.launch_id, launch.grid, False, launch.arguments)
    for report in reports(table):
        _add(log, plan, report, launch)
    return log.publish()


def _add(log: FaultLog, plan: ProbePlan, report: Report, launch: CheckedLaunch) -> None:
    site = plan.sites[report.site]
    op = plan.op_of(site)
    assert site.tensor is not None
    buffer = launch.tensors[site.tensor].buffer(site.tensor).reinterpreted(site.element_bytes)
    size = math.prod(site.shape)
    is_whole = report.bad == size
    offender = Offender(
        log.program_at(report.program),
        _position(report.element, site.shape),
        (_signed(report.payload) - buffer.address) // site.element_bytes,
        is_whole,
        is_whole or not site.is_masked,
    )
    kind: FaultKind = site.kind  # type: ignore[assignment]
    log.bad_access(op, kind, buffer, offender, report.count, mask_of(op))


def _signed(address: int) -> int:
    """An address as a number that may be below 0, where an offset led before all memory."""
    return address - (1 << 64) if address >> 63 else address


def _position(element: int, shape: Sequence[int]) -> tuple[int, ...]:
    place = []
    for extent in reversed(shape):
        place.append(element % extent)
        element //= extent
    return tuple(reversed(place))


class ProbeRecorder(FaultLog):
    """Keeps what an interpreted launch would report, in place of its faults.

    Args:
        plan: of the GPU IR that is run.
        kernel: the kernel's name.
        grid: programs along x, y, z.
    """

    def __init__(self, plan: ProbePlan, kernel: str, grid: tuple[int, int, int]) -> None:
        super().__init__(kernel, 0, grid, is_told=False)
        self._plan = plan
        self._reports: dict[int, Report] = {}
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
        if site is None or site.tensor is None or site.kind != kind or buffer is None:
            super().bad_access(op, kind, buffer, offender, count, mask)
            return
        assert offender.index is not None
        self._times += 1
        self._add(
            Report(
                site.number,
                count,
                self._linear(offender.program_id),
                self._times,
                _place(offender.lane, site.shape),
                buffer.address + offender.index * buffer.itemsize,
                math.prod(site.shape) if offender.is_whole_tile else 0,
            )
        )

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
            report = self._reports.get(site.number)
            yield bytes(table_bytes(1)) if report is None else report.packed()


def _place(lane: Sequence[int], shape: Sequence[int]) -> int:
    place = 0
    for position, extent in zip(lane, shape, strict=True):
        place = place * extent + position
    return place

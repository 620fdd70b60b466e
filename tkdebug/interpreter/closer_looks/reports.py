"""Turns a checked launch's reports into faults, worded as the interpreter's.

A native launch fills a table (`compiler.sites.table`), which `faults_of` reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tkdebug.compiler.analysis.axis_facts import unit_of
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.ir.types import DescriptorType, PointerType, element_of
from tkdebug.compiler.sites.checks import BOUNDS_KINDS, UNWRITTEN
from tkdebug.compiler.sites.table import (
    SLOT_BYTES,
    SYMPTOMS,
    Report,
    reports,
    table_bytes,
    unpacked_symptoms,
)
from tkdebug.interpreter.checks.unwritten.patterns import MARKS
from tkdebug.interpreter.checks.unwritten.uninitialised_reads import is_used
from tkdebug.interpreter.closer_looks.reported_launch import PassedTensor, ReportedLaunch
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.checked_access import is_block, mask_of
from tkdebug.interpreter.tiles.values import DescriptorTile, PointerTile
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Operation, Value
    from tkdebug.compiler.sites.checks import CheckPlan, CheckSite
    from tkdebug.interpreter.tiles.values import TileValue
    from tkdebug.records.events import Fault, FaultKind


# Words for `tl.assume`, as the interpreter has them.
_ASSUMPTION = ("tl.assume", "is false here")


def faults_of(plan: CheckPlan, table: bytes, launch: ReportedLaunch) -> list[Fault]:
    """Return the faults in a launch's table, without reporting them.

    Raises:
        ValueError: the table is not of the plan's size, or was not zero before the launch.
    """
    if len(table) != table_bytes(len(plan.sites)):
        wanted = table_bytes(len(plan.sites))
        raise ValueError(f"{launch.kernel}: got a table of {len(table)} bytes, expected {wanted}")
    log = launch.log()
    found = _elements(plan, table)
    flagged = [plan.sites[r.site] for r in found if plan.sites[r.site].is_recomputed]
    recomputed = _recomputed(plan, flagged, launch) if flagged else {}
    for report in found:
        if plan.sites[report.site].is_recomputed:
            for fault in recomputed.get(plan.sites[report.site].op_id, ()):
                log.add(fault)
        elif report.program < 0:
            raise ValueError(f"{launch.kernel}: its table was not zero before the launch")
        else:
            _add(log, plan, report, launch)
    return log.publish()


def merged(reported: Sequence[Fault], found: Sequence[Fault]) -> list[Fault]:
    """Return the device's faults, then those of `found` that differ in kind, op or tensor."""
    known = {(fault.kind, fault.op_id, fault.tensor) for fault in reported}
    others = [fault for fault in found if (fault.kind, fault.op_id, fault.tensor) not in known]
    return [*reported, *others]


def host_faults(plan: CheckPlan, launch: ReportedLaunch) -> list[Fault]:
    """Return faults that no kernel tests for: the host finds them by the arguments alone.

    These are blocks outside of a descriptor's tensor, which bulk copies would move, and accesses
    between the elements of views, if arguments and program ids decide them.
    """
    from tkdebug.interpreter.closer_looks.recomputed_faults import RecomputedFaults, decided_blocks

    decided = plan.module.derived.get(decided_blocks)
    if decided is None:
        decided = plan.module.derived[decided_blocks] = decided_blocks(plan.module)
    assert isinstance(decided, frozenset)
    sites = [
        site
        for site in plan.sites
        if site.op_id in decided and site.tensor is not None and site.kind in BOUNDS_KINDS
    ]
    found = faults_between_elements(plan, launch)
    if sites:
        log = launch.log()
        values = _values(plan, launch)
        found += RecomputedFaults.of(plan.module).find(sites, values, launch.facts, log)
    return found


def faults_between_elements(plan: CheckPlan, launch: ReportedLaunch) -> list[Fault]:
    """Return the faults of accesses between the elements of strided views."""
    gapped = {name for name, passed in launch.tensors.items() if passed.has_gaps}
    sites = [
        site
        for site in plan.sites
        if site.is_recomputed and site.tensor in gapped and site.kind in BOUNDS_KINDS
    ]
    if not sites:
        return []
    from tkdebug.interpreter.closer_looks.recomputed_faults import BETWEEN, RecomputedFaults

    log = launch.log()
    values = _values(plan, launch)
    return RecomputedFaults.of(plan.module).find(sites, values, launch.facts, log, BETWEEN)


def _recomputed(
    plan: CheckPlan, sites: Sequence[CheckSite], launch: ReportedLaunch
) -> dict[int, list[Fault]]:
    """Return the faults of flagged accesses, by op id."""
    from tkdebug.interpreter.closer_looks.recomputed_faults import RecomputedFaults

    log = launch.log()
    values = _values(plan, launch)
    found = RecomputedFaults.of(plan.module).find(sites, values, launch.facts, log)
    faults: dict[int, list[Fault]] = {}
    for fault in found:
        faults.setdefault(fault.op_id or 0, []).append(fault)
    for site in sites:
        if site.op_id not in faults:
            _tell_nothing_found(plan.op_of(site), launch.kernel, site)
    return faults


def _values(plan: CheckPlan, launch: ReportedLaunch) -> dict[Value, TileValue]:
    """Return the values of the kernel's arguments that are tensors or integers."""
    function = tt.Func(plan.module.function)
    values: dict[Value, TileValue] = {}
    for argument, name in zip(function.body.arguments, function.arg_names, strict=True):
        if isinstance(argument.type, DescriptorType):
            if name in launch.tensors and launch.tensors[name].described is not None:
                values[argument] = _descriptor(launch.tensors[name], name)
            continue
        element = element_of(argument.type)
        passed = launch.arguments.get(name)
        if name in launch.tensors and isinstance(element, PointerType):
            buffer = launch.tensors[name].buffer(name)
            values[argument] = PointerTile(buffer.reinterpreted(unit_of(argument.type)), 0)
        elif isinstance(passed, int) and not isinstance(element, PointerType):
            values[argument] = arith.wrap(passed, element.bits)
    return values


def _descriptor(passed: PassedTensor, name: str) -> DescriptorTile:
    assert passed.described is not None
    shape, strides = passed.described
    return DescriptorTile(PointerTile(passed.buffer(name), 0), shape, strides, "zero")


def _tell_nothing_found(op: Operation, kernel: str, site: CheckSite) -> None:
    place = op.location.primary
    tell(
        f"{place.file}:{place.line}: {kernel}: an element outside `{site.tensor}` was masked off, "
        "but which one is not known: computed again on the CPU, all are inside. Use "
        "`tkdebug run --mode interpret`, and report this as a mistake in tkdebug"
    )


def symptoms(plan: CheckPlan, table: bytes) -> dict[str, tuple[int, int, int]]:
    """Return the symptoms of a launch, each with the first program (x, y, z) that showed it."""
    for site in plan.sites:
        if site.kind == SYMPTOMS:
            first = site.number * SLOT_BYTES
            return unpacked_symptoms(table[first : first + SLOT_BYTES])
    return {}


def _elements(plan: CheckPlan, table: bytes) -> list[Report]:
    """Return the reports of all sites except the symptoms' site, whose slot has another layout."""
    return [report for report in reports(table) if plan.sites[report.site].kind != SYMPTOMS]


def _add(log: FaultLog, plan: CheckPlan, report: Report, launch: ReportedLaunch) -> None:
    site = plan.sites[report.site]
    op = plan.value_op_of(site) if site.kind == UNWRITTEN else plan.op_of(site)
    if site.kind == UNWRITTEN:
        _add_unwritten(log, site, op, report, launch)
        return
    if site.kind not in BOUNDS_KINDS:
        program, lane = log.program_at(report.program), _position(report.element, site.shape)
        _add_other(log, site, op, Offender(program, lane, None), report.count)
        return
    kind: FaultKind = site.kind  # type: ignore[assignment]
    buffer = _buffer_of(site, report, launch)
    if buffer is None:
        program, lane = log.program_at(report.program), _position(report.element, site.shape)
        offender = Offender(program, lane, _signed(report.payload))
        log.bad_access(op, kind, None, offender, report.count, mask_of(op))
        return
    size = math.prod(site.shape)
    is_unmasked = report.bad == size or not site.is_masked
    if report.is_complete:
        is_unmasked = report.masked == 0
    inside = size
    if report.is_complete and is_block(op):
        inside -= report.masked
    offender = Offender(
        log.program_at(report.program),
        _position(report.element, site.shape),
        (_signed(report.payload) - buffer.address) // site.element_bytes,
        report.bad == inside,
        is_unmasked,
    )
    log.bad_access(op, kind, buffer, offender, report.count, mask_of(op))


def _buffer_of(site: CheckSite, report: Report, launch: ReportedLaunch) -> Buffer | None:
    """Return the tensor that an access should have stayed in.

    Return None if a loaded pointer led to no known tensor, or the address is inside it.
    """
    if not site.is_loaded:
        assert site.tensor is not None
        passed = launch.tensors[site.tensor].buffer(site.tensor)
        return passed.reinterpreted(site.element_bytes)
    if not report.origin:
        return None
    buffer = launch.buffer_at(report.origin, site.element_bytes)
    if buffer is None:
        return None
    offset = _signed(report.payload) - buffer.address
    return None if 0 <= offset < buffer.hull_elems * site.element_bytes else buffer


def _add_unwritten(
    log: FaultLog, site: CheckSite, op: Operation, report: Report, launch: ReportedLaunch
) -> None:
    """Record a read of unwritten memory.

    Skip it if the tensor's type has no mark of the access's width, or the value is unused.
    """
    assert site.tensor is not None
    passed = launch.tensors[site.tensor]
    if passed.dtype not in MARKS or passed.dtype.itemsize != site.element_bytes or not is_used(op):
        return
    buffer = passed.buffer(site.tensor)
    index = (_signed(report.payload) - buffer.address) // site.element_bytes
    lane = _position(report.element, site.shape)
    log.unwritten(op, buffer, Offender(log.program_at(report.program), lane, index), report.count)


def _add_other(
    log: FaultLog, site: CheckSite, op: Operation, offender: Offender, count: int
) -> None:
    """Record a failed assertion or a false assumption."""
    match site.kind:
        case "assert":
            log.assertion(op, offender, count)
        case "assumption":
            log.false_assumption(op, offender, *_ASSUMPTION, count)
        case _:
            raise AssertionError(f"a site of kind {site.kind}")


def _signed(address: int) -> int:
    """Return a 64-bit address as a signed number: an offset may have led below address 0."""
    return address - (1 << 64) if address >> 63 else address


def _position(element: int, shape: Sequence[int]) -> tuple[int, ...]:
    place = []
    for extent in reversed(shape):
        place.append(element % extent)
        element //= extent
    return tuple(reversed(place))

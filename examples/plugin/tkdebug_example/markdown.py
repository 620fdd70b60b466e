"""A report format: the kernels and faults of a run as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.instrument.records import FaultGroup
from tkdebug.instrument.report import ReportFormat
from tkdebug.instrument.session import Session


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def _render(session: Session, faults: tuple[FaultGroup, ...]) -> Iterator[str]:
    yield "| kernel | launches |\n|---|---:|\n"
    for kernel in session.kernel_summaries():
        yield f"| {_cell(kernel.kernel)} | {kernel.launches} |\n"
    if not faults:
        yield "\nNo faults.\n"
        return
    yield "\n| fault | place | count | message |\n|---|---|---:|---|\n"
    for group in faults:
        fault = group.fault
        place = f"{fault.file}:{fault.line}"
        cells = (fault.kind, place, group.count, fault.message)
        yield f"| {' | '.join(map(_cell, cells))} |\n"


FORMAT = ReportFormat(_render, suffixes=(".md",))

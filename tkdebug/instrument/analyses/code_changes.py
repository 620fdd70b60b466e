"""What changed of a kernel's machine code between two runs: registers, spills, shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.instrument.session import Session
from tkdebug.linemap.line_table import LineTableError
from tkdebug.linemap.line_table_data import from_data
from tkdebug.linemap.resources import Resources


@dataclass(frozen=True, slots=True)
class CodeFigures:
    """What one specialisation of a kernel needs: most of any, where there are several.

    Attributes:
        registers: of a thread.
        spill_bytes: of a thread, stored and loaded.
        shared_bytes: of a block.
    """

    registers: int
    spill_bytes: int
    shared_bytes: int


def code_figures(session: Session) -> dict[str, CodeFigures]:
    """By kernel that was compiled natively."""
    found: dict[str, CodeFigures] = {}
    for kernel in session.kernels():
        resources = _resources(session, kernel.hash)
        if resources is None:
            continue
        spills = (resources.spill_store_bytes or 0) + (resources.spill_load_bytes or 0)
        figures = CodeFigures(resources.registers, spills, resources.shared_bytes)
        known = found.get(kernel.name, figures)
        found[kernel.name] = CodeFigures(
            max(known.registers, figures.registers),
            max(known.spill_bytes, figures.spill_bytes),
            max(known.shared_bytes, figures.shared_bytes),
        )
    return found


def _resources(session: Session, kernel_hash: str) -> Resources | None:
    data = session.line_table(kernel_hash)
    try:
        return None if data is None else from_data(data).resources
    except LineTableError:
        return None

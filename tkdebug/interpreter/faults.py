"""Collects the faults of one launch: one record per (kind, op, tensor), counted, first kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tkdebug.compiler.ir import Operation, Value
from tkdebug.events import HOOKS, Fault, FaultKind
from tkdebug.interpreter.buffers import Buffer
from tkdebug.interpreter.hints import access_hint, counted

_VERBS = {
    "oob-load": "load reads",
    "oob-store": "store writes",
    "oob-atomic": "atomic touches",
}


@dataclass(frozen=True, slots=True)
class Offender:
    """The first bad element: its program, lane, and element offset.

    Attributes:
        is_whole_tile: whether every element of this program's tile is bad; of a block, every one
            inside the shape that it is checked against.
    """

    program_id: tuple[int, int, int]
    lane: tuple[int, ...]
    index: int | None
    is_whole_tile: bool = False


class FaultLog:
    """Faults of one launch, in the order in which they were first seen."""

    def __init__(self, kernel: str, launch_id: int, grid: tuple[int, int, int]) -> None:
        self.kernel = kernel
        self.launch_id = launch_id
        self.grid = grid
        self._faults: dict[tuple[FaultKind, int, str | None], Fault] = {}

    def add(self, fault: Fault) -> None:
        """Record `fault`, or add its count to the one already there."""
        key = (fault.kind, fault.op_id or 0, fault.tensor)
        known = self._faults.get(key)
        if known is None:
            self._faults[key] = fault
        else:
            self._faults[key] = replace(known, count=known.count + fault.count)

    def bad_access(
        self,
        op: Operation,
        kind: FaultKind,
        buffer: Buffer | None,
        offender: Offender,
        count: int,
        mask: Value | None,
    ) -> None:
        """Record an access outside a tensor, or between its elements."""
        name = buffer.name if buffer is not None else None
        legal = (0, buffer.hull_elems) if buffer is not None else None
        between = kind == "between-elements"
        verb = _VERBS.get(kind, "access touches")
        what = f"`{name}`" if name else "memory"
        if buffer is None:
            message = f"{verb} address {offender.index:#x}, which belongs to no tensor"
        elif between:
            message = (
                f"access touches offset {offender.index} of {what}, between the elements of a "
                f"view of shape {list(buffer.shape)}"
            )
        else:
            extent = buffer.hull_elems
            message = (
                f"{verb} offset {offender.index} of {what}, which has {counted(extent)} "
                f"(legal: 0 to {extent - 1})"
                if extent
                else f"{verb} offset {offender.index} of {what}, which is empty"
            )
        hint = None
        if buffer is not None and offender.index is not None:
            hint = access_hint(op, buffer, mask, offender, self.grid)
        self.add(
            Fault(
                kind=kind,
                kernel=self.kernel,
                frames=op.location.frames,
                column=op.location.primary.column,
                message=message,
                launch_id=self.launch_id,
                severity="warning" if between else "error",
                op_id=op.id,
                program_id=offender.program_id,
                lane=offender.lane,
                tensor=name,
                index=offender.index,
                legal=legal,
                count=count,
                hint=hint,
            )
        )

    def assertion(self, op: Operation, offender: Offender, count: int) -> None:
        """Record a failed device_assert."""
        text = str(op.attributes.get("message") or "")
        self.add(
            Fault(
                kind="assert",
                kernel=self.kernel,
                frames=op.location.frames,
                column=op.location.primary.column,
                message="device assertion failed" + (f": {text}" if text else ""),
                launch_id=self.launch_id,
                op_id=op.id,
                program_id=offender.program_id,
                lane=offender.lane,
                count=count,
            )
        )

    def publish(self) -> list[Fault]:
        """Hand the faults to the hooks and return them."""
        faults = list(self._faults.values())
        for fault in faults:
            HOOKS.fault(fault)
        return faults

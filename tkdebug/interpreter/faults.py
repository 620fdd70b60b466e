"""Collects the faults of one launch: one record per (kind, op, tensor), counted, first kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.events import HOOKS, Fault, FaultKind
from tkdebug.interpreter.buffers import Buffer
from tkdebug.interpreter.hints import access_hint, counted
from tkdebug.interpreter.races import Race

_VERBS = {
    "oob-load": "load reads",
    "oob-store": "store writes",
    "oob-atomic": "atomic touches",
}


def _access_verb(op: Operation) -> str:
    if "atomic" in op.name or "reduce" in op.name:
        return "atomic changes"
    return "store writes" if "store" in op.name or "scatter" in op.name else "load reads"


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

    def broken_promise(
        self, op: Operation, offender: Offender, call: str, what: str, count: int
    ) -> None:
        """Record a promise to the compiler that does not hold."""
        self.add(
            Fault(
                kind="broken-promise",
                kernel=self.kernel,
                frames=op.location.frames,
                column=op.location.primary.column,
                message=f"{call} {what}",
                launch_id=self.launch_id,
                severity="error" if op.name == "tt.assume" else "warning",
                op_id=op.id,
                program_id=offender.program_id,
                lane=offender.lane,
                count=count,
                hint=(
                    "native code is generated as if it held, and may read and write elsewhere: "
                    f"take {call} away, or make it true"
                ),
            )
        )

    def unwritten(self, op: Operation, buffer: Buffer, offender: Offender, count: int) -> None:
        """Record a read of memory that nothing has written."""
        place = f"offset {offender.index} of `{buffer.name}`"
        message = f"{_access_verb(op)} {place}, which nothing has written"
        hint = (
            "its memory is of torch.empty or the like: make it by torch.zeros, or write it first; "
            "a mask that is too wide reads it too"
        )
        self._add_access(op, "uninitialised-read", buffer, offender, count, message, hint)

    def left_unwritten(self, op: Operation, buffer: Buffer, first: int, count: int) -> None:
        """Record a fresh tensor that the launch stored to (first by `op`) and left with gaps."""
        total = buffer.tensor.numel()
        self.add(
            Fault(
                kind="unwritten-output",
                kernel=self.kernel,
                frames=op.location.frames,
                column=op.location.primary.column,
                message=(
                    f"the launch leaves {count} of the {counted(total)} of `{buffer.name}` as "
                    f"torch.empty made them, the first at position {first}"
                ),
                launch_id=self.launch_id,
                severity="warning",
                op_id=op.id,
                tensor=buffer.name,
                index=first,
                count=count,
                hint=f"is the grid, {self.grid}, too small, or a mask too narrow?",
            )
        )

    def race(self, op: Operation, buffer: Buffer, offender: Offender, race: Race) -> None:
        """Record an access that races with another program's."""
        place, here = race.other_op.location.primary, op.location.primary
        other = "another program"
        if race.other is None:
            other = "another element of the same tile"
        elif race.other >= 0:
            other = f"program {self.program_at(race.other)}"
        where = f" at line {place.line}"
        if place.file != here.file:
            where = f" at {place.file}:{place.line}"
        elif race.other_op is op:
            where = " here too"
        message = (
            f"{_access_verb(op)} offset {offender.index} of `{buffer.name}`, which {other} "
            f"{race.did}{where}, in no certain order"
        )
        self._add_access(op, "race", buffer, offender, race.count, message, race.hint)

    def nan(
        self,
        op: Operation,
        offender: Offender,
        cause: str,
        store: Operation,
        tensor: str | None,
        index: int,
        count: int,
    ) -> None:
        """Record a NaN that `op` made and `store` stored."""
        place, here = store.location.primary, op.location.primary
        where = f"line {place.line}"
        if place.file != here.file:
            where = f"{place.file}:{place.line}"
        of = f", of {cause}," if cause else ""
        what = f"`{tensor}`" if tensor else "memory"
        self.add(
            Fault(
                kind="nan",
                kernel=self.kernel,
                frames=op.location.frames,
                column=here.column,
                message=f"a NaN is made here{of} and stored at {where} to offset {index} of {what}",
                launch_id=self.launch_id,
                op_id=op.id,
                program_id=offender.program_id,
                lane=offender.lane,
                tensor=tensor,
                index=index,
                count=count,
                hint="guard the operands, or choose with tl.where what is stored instead",
            )
        )

    def undefined(
        self,
        op: Operation,
        offender: Offender,
        shown: str,
        user: Operation,
        use: str,
        tensor: str | None,
        index: int | None,
        count: int,
    ) -> None:
        """Record an undefined result of `op`, such as of "7 // 0", that `user` makes use of."""
        place, here = user.location.primary, op.location.primary
        where = f"line {place.line}"
        if place.file != here.file:
            where = f"{place.file}:{place.line}"
        if index is not None:
            use += f" to offset {index} of " + (f"`{tensor}`" if tensor else "memory")
        bits = ir.element_of(op.result.type).bits
        is_shift = op.name.startswith("arith.sh")
        if is_shift:
            message = (
                f"`{shown}` shifts {bits} bits by {shown.split()[-1]} (legal: 0 to {bits - 1})"
            )
            hint = "a GPU may give anything here: limit the amount, or choose with tl.where"
        else:
            message = f"integer division by zero, `{shown}`"
            hint = (
                "a GPU does not trap here, it gives an arbitrary number: divide by "
                "tl.where(d == 0, 1, d), or mask off what comes of it"
            )
        self.add(
            Fault(
                kind="shift-range" if is_shift else "division-by-zero",
                kernel=self.kernel,
                frames=op.location.frames,
                column=here.column,
                message=f"{message}; what comes of it {use} at {where}",
                launch_id=self.launch_id,
                severity="warning" if is_shift else "error",
                op_id=op.id,
                program_id=offender.program_id,
                lane=offender.lane,
                tensor=tensor,
                index=index,
                count=count,
                hint=hint,
            )
        )

    def _add_access(
        self,
        op: Operation,
        kind: FaultKind,
        buffer: Buffer,
        offender: Offender,
        count: int,
        message: str,
        hint: str,
    ) -> None:
        self.add(
            Fault(
                kind=kind,
                kernel=self.kernel,
                frames=op.location.frames,
                column=op.location.primary.column,
                message=message,
                launch_id=self.launch_id,
                op_id=op.id,
                program_id=offender.program_id,
                lane=offender.lane,
                tensor=buffer.name,
                index=offender.index,
                count=count,
                hint=hint,
            )
        )

    def program_at(self, linear: int) -> tuple[int, int, int]:
        """Program id (x, y, z) of the launch's program number `linear`."""
        x, y, _ = self.grid
        return (linear % x, linear // x % y, linear // (x * y))

    def publish(self) -> list[Fault]:
        """Hand the faults to the hooks and return them."""
        faults = list(self._faults.values())
        for fault in faults:
            HOOKS.fault(fault)
        return faults

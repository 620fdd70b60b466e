"""Collects the faults of one launch: one record per (kind, op, tensor), counted, first kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.events import Fault, FaultKind
from tkdebug.findings.reporting import report
from tkdebug.interpreter import offset_wraps
from tkdebug.interpreter.buffers import Buffer
from tkdebug.interpreter.hints import access_hint, counted, loaded_offset
from tkdebug.interpreter.stride_hints import stride_hint
from tkdebug.interpreter.touched import Touched

if TYPE_CHECKING:
    from tkdebug.interpreter.coverage_rules import Gap
    from tkdebug.interpreter.races import Race

_VERBS = {
    "oob-load": "load reads",
    "oob-store": "store writes",
    "oob-atomic": "atomic touches",
}

_UNDEFINED_ERRORS = ("division-by-zero", "offset-overflow")
_MISLEADING = ("offset-overflow", "negative-remainder")


def _access_verb(op: Operation) -> str:
    if "atomic" in op.name or "reduce" in op.name:
        return "atomic changes"
    return "store writes" if "store" in op.name or "scatter" in op.name else "load reads"


def _access_text(kind: FaultKind, buffer: Buffer | None, index: int | None) -> str:
    verb = _VERBS.get(kind, "access touches")
    if buffer is None:
        return f"{verb} address {index:#x}, which belongs to no tensor"
    offset = f"{verb} offset {index} of " + (f"`{buffer.name}`" if buffer.name else "memory")
    if kind == "between-elements":
        return f"{offset}, between the elements of a view of shape {list(buffer.shape)}"
    extent = buffer.hull_elems
    if not extent:
        return f"{offset}, which is empty"
    return f"{offset}, which has {counted(extent)} (legal: 0 to {extent - 1})"


def _place(op: Operation, seen_from: Operation) -> str:
    """The line of `op`, with its file where the fault at `seen_from` is in another."""
    place = op.location.primary
    if place.file == seen_from.location.primary.file:
        return f"line {place.line}"
    return f"{place.file}:{place.line}"


def _undefined_texts(op: Operation, shown: str, is_negative: bool) -> tuple[FaultKind, str, str]:
    """Kind, message and hint for an op whose result is undefined, or a negative remainder."""
    if is_negative:
        return (
            "negative-remainder",
            f"`{shown}` is negative, as its left operand",
            "`%` of the kernel language truncates, as in C and not as in Python: add the divisor "
            "before, (a + n) % n, or after where the remainder is below 0",
        )
    if tt.Load.matches(op):
        return (
            "undefined-value",
            "this load has no `other`, so what it gives where its mask is false is undefined",
            "tkdebug reads 0 there: pass other=, with what the rest of the kernel wants there, or "
            "mask off what comes of it",
        )
    bits = ir.element_of(op.result.type).bits
    if op.name in offset_wraps.SYMBOLS:
        return (
            "offset-overflow",
            f"`{shown}` does not fit int{bits} and wraps",
            "cast a factor before it is multiplied, as in row.to(tl.int64) * stride; a program id "
            "and an int argument below 2**31 are int32",
        )
    if not op.name.startswith("arith.sh"):
        return (
            "division-by-zero",
            f"integer division by zero, `{shown}`",
            "a GPU does not trap here, it gives an arbitrary number: divide by "
            "tl.where(d == 0, 1, d), or mask off what comes of it",
        )
    return (
        "shift-range",
        f"`{shown}` shifts {bits} bits by {shown.split()[-1]} (legal: 0 to {bits - 1})",
        "a GPU may give anything here: limit the amount, or choose with tl.where",
    )


@dataclass(frozen=True, slots=True)
class Offender:
    """The first bad element: its program, lane, and element offset.

    Attributes:
        is_whole_tile: whether every element of this program's tile is bad; of a block, every one
            inside the shape that it is checked against.
        is_unmasked: whether the mask, if there is one, is true in all of this program's tile.
    """

    program_id: tuple[int, int, int]
    lane: tuple[int, ...]
    index: int | None
    is_whole_tile: bool = False
    is_unmasked: bool = False


def _is_earlier(fault: Fault, known: Fault) -> bool:
    """Whether a fault is of a program before that of one that was seen before it."""
    if fault.program_id is None or known.program_id is None:
        return False
    return fault.program_id[::-1] < known.program_id[::-1]


class FaultLog:
    """Faults of one launch, in the order in which they were first seen.

    Each shows the least program that has it, the first time that it has it: a GPU, where programs
    run in any order, can say the same.

    Attributes:
        is_told: whether anyone is to hear of the launch: of its faults, and what it prints.
        arguments: of the launch, by name, for hints.
    """

    def __init__(
        self,
        kernel: str,
        launch_id: int,
        grid: tuple[int, int, int],
        is_told: bool = True,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        self.arguments = arguments or {}
        self.is_told = is_told
        self.kernel = kernel
        self.launch_id = launch_id
        self.grid = grid
        self._faults: dict[tuple[FaultKind, int, str | None], Fault] = {}
        # Of accesses that go by an offset that wrapped or is a negative remainder: what made it.
        self._misled: dict[Operation, Operation] = {}

    def add(self, fault: Fault) -> None:
        """Record `fault`, or add its count to the one already there."""
        key = (fault.kind, fault.op_id or 0, fault.tensor)
        known = self._faults.get(key)
        if known is None:
            self._faults[key] = fault
        else:
            first = fault if _is_earlier(fault, known) else known
            self._faults[key] = replace(first, count=known.count + fault.count)

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
        hint = None
        if buffer is None:
            hint = (
                "it was loaded, or made of a number: is the tensor that it was taken of, by "
                "data_ptr(), still alive?"
            )
        elif offender.index is not None:
            hint = self._access_hint(op, buffer, mask, offender)
        self._record(
            op,
            kind,
            _access_text(kind, buffer, offender.index),
            offender,
            count,
            severity="warning" if kind == "between-elements" else "error",
            tensor=None if buffer is None else buffer.name,
            index=offender.index,
            legal=None if buffer is None else (0, buffer.hull_elems),
            hint=hint,
        )

    def _access_hint(
        self, op: Operation, buffer: Buffer, mask: Value | None, offender: Offender
    ) -> str:
        misled_by = self._misled.get(op)
        if misled_by is not None:
            negative = misled_by.name == offset_wraps.REMAINDER
            did = "is a negative remainder, made" if negative else "wrapped"
            return f"the offset {did} at {_place(misled_by, op)}: fix that first"
        hint = access_hint(op, buffer, mask, offender, self.grid)
        strides = stride_hint(op, buffer, self.arguments)
        if strides is not None:
            hint += f"; {strides}"
        source = loaded_offset(op)
        if source is not None:
            load, name = source
            hint += f"; the offset comes of what {_place(load, op)} loads from `{name}`"
        return hint

    def bad_index(
        self, op: Operation, offender: Offender, axis: int, extent: int, count: int
    ) -> None:
        """Record an index of a gather that is outside the axis it counts along."""
        self._record(
            op,
            "oob-load",
            f"gather reads index {offender.index} along axis {axis}, which has {extent} elements "
            f"(legal: 0 to {extent - 1})",
            offender,
            count,
            index=offender.index,
            legal=(0, extent),
            hint="clamp the index, or choose with tl.where where it is outside",
        )

    def assertion(self, op: Operation, offender: Offender, count: int) -> None:
        """Record a failed device_assert."""
        text = tt.Assert(op).message
        self._record(
            op,
            "assert",
            "device assertion failed" + (f": {text}" if text else ""),
            offender,
            count,
        )

    def broken_promise(
        self, op: Operation, offender: Offender, call: str, what: str, count: int
    ) -> None:
        """Record a promise to the compiler that does not hold."""
        self._record(
            op,
            "broken-promise",
            f"{call} {what}",
            offender,
            count,
            severity="error" if tt.Assume.matches(op) else "warning",
            hint="native code is generated as if it held, and may read and write elsewhere: "
            f"take {call} away, or make it true",
        )

    def unwritten(self, op: Operation, buffer: Buffer, offender: Offender, count: int) -> None:
        """Record a read of memory that nothing has written."""
        place = f"offset {offender.index} of `{buffer.name}`"
        message = f"{_access_verb(op)} {place}, which nothing has written"
        hint = (
            "its memory is of torch.empty or the like: make it by torch.zeros, or write it first; "
            "a mask that is too wide reads it too"
        )
        self._record(
            op,
            "uninitialised-read",
            message,
            offender,
            count,
            tensor=buffer.name,
            index=offender.index,
            hint=hint,
        )

    def left_unwritten(self, op: Operation, buffer: Buffer, first: int, count: int) -> Fault:
        """The fault of a fresh tensor that the launch left with gaps, stored to first by `op`.

        It is not recorded: whether it is one shows when something reads the gaps.
        """
        total = buffer.tensor.numel()
        return self._record(
            op,
            "unwritten-output",
            f"the launch leaves {count} of the {counted(total)} of `{buffer.name}` as "
            f"torch.empty made them, the first at position {first}",
            None,
            count,
            severity="warning",
            tensor=buffer.name,
            index=first,
            hint=f"is the grid, {self.grid}, too small, or a mask too narrow?",
            is_held=True,
        )

    def row_overrun(
        self, op: Operation, buffer: Buffer, offender: Offender, row: int, count: int, hint: str
    ) -> None:
        """Record an access that goes on beyond the end of its row, of `row` elements."""
        name = f"`{buffer.name}`" if buffer.name else "the tensor"
        self._record(
            op,
            "row-overrun",
            f"{_access_verb(op)} {count} elements beyond the end of its row of {name} "
            f"({counted(row)}), which are of the next rows",
            offender,
            count,
            severity="warning",
            tensor=buffer.name,
            index=offender.index,
            hint=hint,
        )

    def has_access_fault(self, op: Operation) -> bool:
        """Whether an access of `op` was outside its tensor."""
        return any(o == op.id and kind.startswith("oob") for kind, o, _ in self._faults)

    def coverage(self, gap: Gap) -> None:
        """Record elements of an input that the launch left out, or read twice."""
        # Imported with its check, which not every launch has.
        from tkdebug.interpreter.coverage_text import coverage_text

        message, hint = coverage_text(gap, self.grid)
        self._record(
            gap.load,
            "coverage",
            message,
            None,
            gap.count * gap.behind,
            severity="warning",
            tensor=gap.buffer.name,
            index=gap.first * gap.stride,
            hint=hint,
        )

    def race(self, op: Operation, buffer: Buffer, offender: Offender, race: Race) -> None:
        """Record an access that races with another program's."""
        other = "another element of the same tile"
        if race.other is not None:
            other = f"program {self.program_at(race.other)}"
        where = "here too" if race.other_op is op else f"at {_place(race.other_op, op)}"
        message = (
            f"{_access_verb(op)} offset {offender.index} of `{buffer.name}`, which {other} "
            f"{race.did} {where}, in no certain order"
        )
        self._record(
            op,
            "race",
            message,
            offender,
            race.count,
            tensor=buffer.name,
            index=offender.index,
            hint=race.hint,
        )

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
        of = f", of {cause}," if cause else ""
        what = f"`{tensor}`" if tensor else "memory"
        self._record(
            op,
            "nan",
            f"a NaN is made here{of} and stored at {_place(store, op)} to offset {index} of {what}",
            offender,
            count,
            tensor=tensor,
            index=index,
            hint="guard the operands, or choose with tl.where what is stored instead",
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
        is_negative: bool = False,
    ) -> None:
        """Record an undefined result of `op`, such as of "7 // 0", that `user` makes use of.

        Args:
            op: a division, a shift, or a load without `other`.
            offender: the element that is undefined.
            shown: the op at that element, "" of a load.
            user: what makes use of it.
            use: what `user` does with it.
            tensor: where it is stored, None for elsewhere.
            index: the offset there.
            count: how many such elements are used.
            is_negative: whether they are defined, but negative remainders that `user` goes by.
        """
        if index is not None:
            use += f" to offset {index} of " + (f"`{tensor}`" if tensor else "memory")
        kind, message, hint = _undefined_texts(op, shown, is_negative)
        if kind in _MISLEADING:
            self._misled.setdefault(user, op)
        # One fault for each op, whatever its values are used for.
        tensor = next((t for k, o, t in self._faults if (k, o) == (kind, op.id)), tensor)
        self._record(
            op,
            kind,
            f"{message}; what comes of it {use} at {_place(user, op)}",
            offender,
            count,
            severity="error" if kind in _UNDEFINED_ERRORS else "warning",
            tensor=tensor,
            index=index,
            hint=hint,
        )

    def value_fault(
        self,
        op: Operation,
        kind: FaultKind,
        message: str,
        offender: Offender,
        count: int,
        *,
        store: Operation,
        severity: Literal["error", "warning"],
        tensor: str | None,
        hint: str,
    ) -> None:
        """Record a wrong value that `op` gave, and that reached memory at `store`.

        Args:
            op: where it is reported.
            kind: of the fault.
            message: what happened, up to "stored".
            offender: the element of `op`; its index is the offset it was stored to.
            count: how many were stored.
            store: where they were.
            severity: of the fault.
            tensor: what they were stored to.
            hint: what to do about it.
        """
        what = f"`{tensor}`" if tensor else "memory"
        # One fault for each op, whatever its values are stored to.
        tensor = next((t for k, o, t in self._faults if (k, o) == (kind, op.id)), tensor)
        self._record(
            op,
            kind,
            f"{message} at {_place(store, op)} to offset {offender.index} of {what}",
            offender,
            count,
            severity=severity,
            tensor=tensor,
            index=offender.index,
            hint=hint,
        )

    def padding(
        self,
        op: Operation,
        load: Operation,
        what: str,
        stored: tuple[str, str],
        offender: Offender,
        count: int,
        *,
        store: Operation,
        tensor: str | None,
        hint: str,
    ) -> None:
        """Record padding that changes what is stored.

        Args:
            op: what takes it in.
            load: whose masked-off elements it is.
            what: how `op` is called, such as "max".
            stored: the first element that is wrong, and what it would be without padding.
            offender: where it is stored.
            count: how many elements are wrong.
            store: what stores them.
            tensor: what they were stored to.
            hint: what to do about it.
        """
        wrong, right = stored
        if what == "mean":
            did = f"this mean counts elements that the load at {_place(load, op)} masks off"
        else:
            did = f"this {what} takes in elements that the load at {_place(load, op)} masks off"
        message = f"{did}: {wrong} in place of {right} is stored"
        self.value_fault(
            op, "padding", message, offender, count,
            store=store, severity="error", tensor=tensor, hint=hint,
        )  # fmt: skip

    def narrowed_offset(
        self, op: Operation, lost: str, offender: Offender, count: int, access: Operation, hint: str
    ) -> None:
        """Record a value that the conversion `op` lost, and that `access` goes by."""
        message = f"{lost}; what comes of it is the address accessed at {_place(access, op)}"
        self._record(op, "narrowing", message, offender, count, hint=hint)

    def plugin_fault(
        self,
        op: Operation,
        check: str,
        message: str,
        offender: Offender | None = None,
        count: int = 1,
        *,
        severity: Literal["error", "warning"] = "error",
        tensor: str | None = None,
        hint: str | None = None,
    ) -> None:
        """Record what a plugin's check found.

        Args:
            op: where it is reported.
            check: the check's name.
            message: what happened.
            offender: the first element of it.
            count: how many there are.
            severity: of the fault.
            tensor: the argument that it concerns.
            hint: what to do about it.
        """
        index = None if offender is None else offender.index
        self._record(
            op,
            "plugin-check",
            f"{check}: {message}",
            offender,
            count,
            severity=severity,
            tensor=tensor,
            index=index,
            hint=hint,
        )

    def _record(
        self,
        op: Operation,
        kind: FaultKind,
        message: str,
        offender: Offender | None,
        count: int,
        *,
        severity: Literal["error", "warning"] = "error",
        tensor: str | None = None,
        index: int | None = None,
        legal: tuple[int, int] | None = None,
        hint: str | None = None,
        is_held: bool = False,
    ) -> Fault:
        fault = Fault(
            kind=kind,
            kernel=self.kernel,
            frames=op.location.frames,
            column=op.location.primary.column,
            message=message,
            launch_id=self.launch_id,
            severity=severity,
            op_id=op.id,
            program_id=None if offender is None else offender.program_id,
            lane=() if offender is None else offender.lane,
            tensor=tensor,
            index=index,
            legal=legal,
            count=count,
            hint=hint,
        )
        if not is_held:
            self.add(fault)
        return fault

    def program_at(self, linear: int) -> tuple[int, int, int]:
        """Program id (x, y, z) of the launch's program number `linear`."""
        x, y, _ = self.grid
        return (linear % x, linear // x % y, linear // (x * y))

    def offender(self, buffer: Buffer, touched: Touched, at: int) -> Offender:
        """The element of `buffer` that stands at `at` among those touched."""
        lane, rest = [], int(touched.lanes[at])
        for extent in reversed(touched.shape):
            lane.append(rest % extent)
            rest //= extent
        index = int(touched.places[at]) - buffer.storage_offset
        return Offender(self.program_at(int(touched.programs[at])), tuple(reversed(lane)), index)

    def publish(self) -> list[Fault]:
        """Hand the faults to the hooks, if they are to be told, and return them."""
        faults = list(self._faults.values())
        for fault in faults if self.is_told else ():
            report(fault)
        return faults

"""Collects the faults of one launch: one record per (kind, op, tensor), counted, first kept.

Their texts are made by `tkdebug.compiler.faults`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import torch

from tkdebug.compiler.faults import messages
from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.faults.hints import loaded_offset
from tkdebug.compiler.faults.messages import FaultText, named, place_of
from tkdebug.compiler.ir import Operation, Value
from tkdebug.findings.reporting import report
from tkdebug.interpreter.memory.address_registry import ADDRESSES
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.touched import Touched
from tkdebug.records.events import Fault, FaultExtent, FaultKind

if TYPE_CHECKING:
    from tkdebug.interpreter.memory.bad_elements import BadElements

_Key = tuple[FaultKind, int, "str | None"]
# Runs of programs that a fault's extent has at most.
_MOST_RUNS = 512
# A larger grid's bad elements are not counted by program.
_MOST_PROGRAMS = 1 << 20
_MISLEADING = ("offset-overflow", "negative-remainder")


def _is_earlier(fault: Fault, known: Fault) -> bool:
    """Whether the program of `fault` comes before that of `known`."""
    if fault.program_id is None or known.program_id is None:
        return False
    return fault.program_id[::-1] < known.program_id[::-1]


def _joined(
    first: FaultExtent | None, one: FaultExtent | None, other: FaultExtent | None
) -> FaultExtent | None:
    """Return `first` with the offsets of both extents, or `first` unchanged if one is None."""
    if first is None or one is None or other is None:
        return first
    return replace(first, low=min(one.low, other.low), high=max(one.high, other.high))


def _runs(counts: torch.Tensor) -> Iterator[tuple[int, int, int]]:
    """Yield runs of programs with equally many bad elements: first, number, and each's count."""
    begin = 0
    ends = (counts.diff().nonzero().reshape(-1) + 1).tolist()
    for end in (*ends, len(counts)):
        if count := int(counts[begin]):
            yield begin, end - begin, count
        begin = end


class FaultLog:
    """Faults of one launch, in the order in which they were first seen.

    Each fault shows the least program that has it, the first time that it has it: a GPU, where
    programs run in any order, can say the same.

    Attributes:
        is_reported: whether the launch's faults and prints are shown to anyone.
        arguments: the arguments of the launch, by name, for hints.
        freed_at: gives the freed tensor that an address led to, in words.
    """

    def __init__(
        self,
        kernel: str,
        launch_id: int,
        grid: tuple[int, int, int],
        is_reported: bool = True,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        self.arguments = arguments or {}
        self.is_reported = is_reported
        self.kernel = kernel
        self.launch_id = launch_id
        self.grid = grid
        self._faults: dict[_Key, Fault] = {}
        # Bad elements by number of the program.
        self._programs: dict[_Key, torch.Tensor] = {}
        # For accesses by an offset that wrapped or is a negative remainder, the op that made it.
        self._misled: dict[Operation, Operation] = {}
        self.freed_at: Callable[[int], str | None] = ADDRESSES.freed_at

    def add(self, fault: Fault) -> None:
        """Record `fault`, or add its count to the one already there."""
        key = (fault.kind, fault.op_id or 0, fault.tensor)
        known = self._faults.get(key)
        if known is None:
            self._faults[key] = fault
        else:
            first = fault if _is_earlier(fault, known) else known
            extent = _joined(first.extent, fault.extent, known.extent)
            self._faults[key] = replace(first, count=known.count + fault.count, extent=extent)

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
        """Record an access outside a tensor, or between its elements."""
        text = messages.bad_access(
            op,
            kind,
            buffer,
            offender,
            mask,
            grid=self.grid,
            arguments=self.arguments,
            misled_by=self._misled.get(op),
            freed=None if buffer is not None else self.freed_at(offender.index or 0),
            negative=self._negative_source(op) if (offender.index or 0) < 0 else None,
        )
        fault = self.fault(op, text, offender, count)
        if bad is not None:
            fault = replace(fault, extent=bad.extent)
            self._count_programs((fault.kind, op.id, fault.tensor), bad)
        self.add(fault)

    def _count_programs(self, key: _Key, bad: BadElements) -> None:
        programs = math.prod(self.grid)
        if programs > _MOST_PROGRAMS:
            return
        if key not in self._programs:
            self._programs[key] = torch.zeros(programs, dtype=torch.int64)
        self._programs[key].index_add_(0, bad.programs.cpu(), bad.counts.cpu())

    def _with_programs(self, key: _Key, fault: Fault) -> Fault:
        counts, extent = self._programs.get(key), fault.extent
        if counts is None or extent is None:
            return fault
        runs = tuple(itertools.islice(_runs(counts), _MOST_RUNS))
        number = int(counts.count_nonzero())
        return replace(fault, extent=replace(extent, programs=runs, bad_programs=number))

    def _negative_source(self, op: Operation) -> str | None:
        """Return a clause on the minimum of an offset's source tensor, or None.

        It is None unless the access's offset is loaded from an argument with negative numbers.
        """
        source = loaded_offset(op)
        tensor = None if source is None else self.arguments.get(source[1])
        if not isinstance(tensor, torch.Tensor) or not tensor.numel():
            return None
        if tensor.is_floating_point() or tensor.is_complex():
            return None
        least = int(tensor.min())
        return f"whose least element is {least}" if least < 0 else None

    def bad_index(
        self, op: Operation, offender: Offender, axis: int, extent: int, count: int
    ) -> None:
        """Record an index of a gather that is outside the axis it counts along."""
        text = messages.bad_index(offender.index, axis, extent)
        self.record(op, text, offender, count)

    def misaligned_descriptor(
        self, op: Operation, tensor: str | None, part: str, offender: Offender, count: int
    ) -> None:
        """Record a descriptor with an address or a stride that TMA does not take."""
        text = messages.misaligned_descriptor(tensor, part, offender.index)
        self.record(op, text, offender, count)

    def misaligned_block(
        self, op: Operation, tensor: str | None, unit: int, offender: Offender, count: int
    ) -> None:
        """Record a block that begins at no multiple of `unit` elements."""
        self.record(
            op, messages.misaligned_block(op, tensor, unit, offender.index), offender, count
        )

    def assertion(self, op: Operation, offender: Offender, count: int) -> None:
        """Record a failed device_assert."""
        self.record(op, messages.failed_assertion(op), offender, count)

    def false_assumption(
        self, op: Operation, offender: Offender, call: str, what: str, count: int
    ) -> None:
        """Record an assumption of the compiler that does not hold."""
        self.record(op, messages.false_assumption(op, call, what), offender, count)

    def unwritten(self, op: Operation, buffer: Buffer, offender: Offender, count: int) -> None:
        """Record a read of memory that nothing has written."""
        text = messages.unwritten_read(op, buffer.name, offender.index)
        self.record(op, text, offender, count)

    def has_access_fault(self, op: Operation) -> bool:
        """Whether an access of `op` was outside its tensor."""
        return any(o == op.id and kind.startswith("oob") for kind, o, _ in self._faults)

    def nan(
        self,
        op: Operation,
        offender: Offender,
        cause: str,
        store: Operation,
        tensor: str | None,
        index: int,
        count: int,
        is_of_input: bool = False,
    ) -> None:
        """Record a NaN that `op` made, maybe of values as they were passed, and `store` stored."""
        text = messages.nan_made(op, cause, store, tensor, index, is_of_input)
        self.record(op, text, offender, count)

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
        """Record an undefined result of `op`, such as of "7 // 0", that `user` uses.

        Args:
            op: a division, a shift, or a load without `other`.
            offender: the element that is undefined.
            shown: the op at that element, "" for a load.
            user: the op that uses it.
            use: the use that `user` makes of it.
            tensor: the tensor that it is stored to, None for elsewhere.
            index: the offset there.
            count: the number of such elements that are used.
            is_negative: whether they are defined, but negative remainders that `user` depends on.
        """
        if index is not None:
            use += f" to offset {index} of {named(tensor)}"
        text = messages.undefined_result(op, shown, is_negative)
        if text.kind in _MISLEADING:
            self._misled.setdefault(user, op)
        text = replace(
            text,
            message=f"{text.message}; the result {use} at {place_of(user, op)}",
            tensor=self._first_tensor(text.kind, op, tensor),
            index=index,
        )
        self.record(op, text, offender, count)

    def _first_tensor(self, kind: FaultKind, op: Operation, tensor: str | None) -> str | None:
        """Return the tensor of a known fault of this op and kind, else `tensor`."""
        return next((t for k, o, t in self._faults if (k, o) == (kind, op.id)), tensor)

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
            op: the op that it is reported at.
            kind: the kind of the fault.
            message: what happened, up to "stored".
            offender: the element of `op`; its index is the offset it was stored to.
            count: the number of stored values.
            store: the op that stored them.
            severity: the severity of the fault.
            tensor: the tensor that they were stored to.
            hint: what to do about it.
        """
        text = self.value_text(
            op, kind, message, offender, store=store, severity=severity, tensor=tensor, hint=hint
        )
        self.record(op, text, offender, count)

    def value_text(
        self,
        op: Operation,
        kind: FaultKind,
        message: str,
        offender: Offender,
        *,
        store: Operation,
        severity: Literal["error", "warning"],
        tensor: str | None,
        hint: str,
    ) -> FaultText:
        """Return the text of a `value_fault`; arguments as there."""
        return FaultText(
            kind,
            f"{message} at {place_of(store, op)} to offset {offender.index} of {named(tensor)}",
            severity=severity,
            tensor=self._first_tensor(kind, op, tensor),
            index=offender.index,
            hint=hint,
        )

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
        """Record a finding of a plugin's check.

        Args:
            op: the op that it is reported at.
            check: the check's name.
            message: what happened.
            offender: the first element of it.
            count: the number of elements.
            severity: the severity of the fault.
            tensor: the argument that it concerns.
            hint: what to do about it.
        """
        index = None if offender is None else offender.index
        self.record(
            op,
            FaultText(
                "plugin-check",
                f"{check}: {message}",
                severity=severity,
                tensor=tensor,
                index=index,
                hint=hint,
            ),
            offender,
            count,
        )

    def record(
        self, op: Operation, text: FaultText, offender: Offender | None = None, count: int = 1
    ) -> None:
        """Record a fault at `op`, with its first offender and the number of elements."""
        self.add(self.fault(op, text, offender, count))

    def fault(self, op: Operation, text: FaultText, offender: Offender | None, count: int) -> Fault:
        """Return the record of a fault at `op`, without adding it to the log."""
        return Fault(
            kind=text.kind,
            kernel=self.kernel,
            frames=op.location.frames,
            column=op.location.primary.column,
            message=text.message,
            launch_id=self.launch_id,
            severity=text.severity,
            op_id=op.id,
            program_id=None if offender is None else offender.program_id,
            lane=() if offender is None else offender.lane,
            tensor=text.tensor,
            index=text.index,
            legal=text.legal,
            count=count,
            hint=text.hint,
        )

    def program_at(self, linear: int) -> tuple[int, int, int]:
        """Program id (x, y, z) of the launch's program number `linear`."""
        x, y, _ = self.grid
        return (linear % x, linear // x % y, linear // (x * y))

    def offender(self, buffer: Buffer, touched: Touched, at: int) -> Offender:
        """The element of `buffer` at position `at` among the touched ones."""
        lane, rest = [], int(touched.lanes[at])
        for extent in reversed(touched.shape):
            lane.append(rest % extent)
            rest //= extent
        index = int(touched.places[at]) - buffer.storage_offset
        return Offender(self.program_at(int(touched.programs[at])), tuple(reversed(lane)), index)

    def copied(self) -> FaultLog:
        """Return a copy of the log, whose faults change independently of this log's."""
        out = copy(self)
        out.take_over(self)
        return out

    def take_over(self, other: FaultLog) -> None:
        """Replace this log's faults by copies of those of another log."""
        self._faults, self._misled = dict(other._faults), dict(other._misled)
        self._programs = {key: counts.clone() for key, counts in other._programs.items()}

    def publish(self) -> list[Fault]:
        """Hand the faults to the hooks, if they are to be reported, and return them."""
        faults = [self._with_programs(key, fault) for key, fault in self._faults.items()]
        for fault in faults if self.is_reported else ():
            report(fault)
        return faults

"""Reports of the Infs that a launch stored.

A wrong Inf is reported when the launch ends, if it is still there. A right one is kept, and
reported if a later launch makes a NaN of it: exp(100) is Inf in fp32, so a kernel that stores it is
right; if another kernel divides by the sum of a row of such values, the fault is in the first.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, math, tt
from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.faults.messages import FaultText, op_text
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.location import SourceLocation
from tkdebug.findings.reporting import report
from tkdebug.interpreter.checks.shadow_values import Origin, element_at
from tkdebug.interpreter.checks.stored_values import HeldStores
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.memory.touched import Touched
from tkdebug.interpreter.observers import LaunchContext
from tkdebug.records.events import Fault


def is_exponential(op: Operation) -> bool:
    """Whether an op is exp or a function like it."""
    if tt.ExternElementwise.matches(op):
        return "exp" in tt.ExternElementwise(op).function
    return math.Exponential.matches(op)


def _is_logarithm(op: Operation) -> bool:
    if tt.ExternElementwise.matches(op):
        return "log" in tt.ExternElementwise(op).function
    return math.Logarithm.matches(op)


def cause_of(origin: Origin, at: tuple[int, ...]) -> str:
    """Return the text of an elementwise op with its operands at `at`; "" for other ops."""
    shown = [f"{float(element_at(values, at)):g}" for values in origin.operands]
    return op_text(origin.op, shown) if shown else ""


def hint_for(op: Operation) -> str:
    """Return the hint for an Inf that `op` made."""
    if is_exponential(op):
        return "subtract the maximum first, as in exp(x - max), or bound the operand"
    if arith.FloatDivision.matches(op) or math.Rsqrt.matches(op):
        return "guard the divisor: add an epsilon, or tl.where(d == 0, 1, d)"
    if _is_logarithm(op):
        return "keep 0 out: log(x + eps), or the logarithm before the exponential (x - logsumexp)"
    if tt.Dot.matches(op) or tt.Combining.matches(op):
        return "accumulate in fp32, and scale before the result is narrowed"
    return "compute it in a wider type, or scale the operands down first"


_FEW_ALLOCATIONS = 64


@dataclass(slots=True)
class HeldFault:
    """A fault that is held back; copies of its Infs share it."""

    fault: Fault
    is_reported: bool = False


@dataclass(frozen=True, slots=True)
class HeldInf:
    """Infs that one op of a launch made, in one allocation.

    Attributes:
        held: the text that is reported for them.
        op: the op that made them.
        storage: the allocation, without holding on to it.
        version: the tensor's version when they were stored: torch counts changes. None for tensors
            without a version.
        places: (n,) int64, offsets from the start of the allocation, in elements of `itemsize`.
    """

    held: HeldFault
    op: Operation
    storage: weakref.ref[torch.UntypedStorage]
    version: int | None
    places: Tensor
    itemsize: int


class HeldInfs:
    """All Infs that are kept, by the address of the allocation."""

    def __init__(self) -> None:
        self._infs: dict[int, list[HeldInf]] = {}
        # How many allocations there are before those that are gone are forgotten.
        self._most = _FEW_ALLOCATIONS

    def __len__(self) -> int:
        """Return the number of allocations that have, or had, held Infs."""
        return len(self._infs)

    def hold(self, buffer: Buffer, places: Tensor, op: Operation, held: HeldFault) -> None:
        """Keep Infs that `op` made and a launch stored to `places` of a buffer."""
        if len(self._infs) >= self._most:
            self._forget_the_gone()
        storage = weakref.ref(buffer.tensor.untyped_storage())
        version = _version_of(buffer.tensor)
        inf = HeldInf(held, op, storage, version, places, buffer.itemsize)
        self._infs.setdefault(buffer.storage_key, []).append(inf)

    def of(self, buffer: Buffer) -> Sequence[HeldInf]:
        """Return the Infs in a buffer's allocation that torch has not changed since."""
        found = self._infs.get(buffer.storage_key, ())
        version = _version_of(buffer.tensor) if found else None
        return [inf for inf in found if inf.storage() is not None and inf.version == version]

    def drop(self, storage_key: int) -> None:
        """Forget the Infs of an allocation that was written to."""
        self._infs.pop(storage_key, None)

    def tell(self, held: HeldFault, kernel: str, place: SourceLocation) -> None:
        """Report, once, that a kernel made a NaN of a kept Inf and stored it."""
        if held.is_reported:
            return
        held.is_reported = True
        fault = held.fault
        is_same_file = bool(fault.frames) and fault.frames[-1].file == place.file
        where = f"line {place.line}" if is_same_file else f"{place.file}:{place.line}"
        message = f"{fault.message}; {kernel} makes a NaN of it, and stores that at {where}"
        report(replace(fault, message=message))

    def _forget_the_gone(self) -> None:
        for key, infs in tuple(self._infs.items()):
            if not any(inf.storage() is not None for inf in infs):
                del self._infs[key]
        self._most = max(_FEW_ALLOCATIONS, 2 * len(self._infs))


def _version_of(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version  # noqa: SLF001


HELD_INFS = HeldInfs()


class InfReports:
    """The reports of one launch.

    Attributes:
        loaded: Infs of earlier launches that this one may load, by the key of the allocation.
    """

    def __init__(self, faults: FaultLog, wrong: HeldStores) -> None:
        self._faults = faults
        self._wrong = wrong
        self._right = HeldStores()
        self._written: Sequence[int] = ()
        self.loaded: Mapping[int, Sequence[HeldInf]] = {}

    def launch_begins(self, launch: LaunchContext) -> None:
        """Note which Infs of earlier launches the launch may load and write."""
        if not HELD_INFS:
            return
        found = {buffer.storage_key: HELD_INFS.of(buffer) for buffer in launch.buffers}
        self.loaded = {key: infs for key, infs in found.items() if infs}
        self._written = [key for key in found if launch.written is None or key in launch.written]

    def launch_ends(self) -> None:
        """Forget kept Infs in memory that was written to, and keep the new right ones."""
        for key in self._written:
            HELD_INFS.drop(key)
        self._right.settle()

    def wrong(
        self,
        origin: Origin,
        access: ObservedAccess,
        dtype: torch.dtype,
        touched: Touched,
        base: int,
    ) -> None:
        """Have NaNs or wrong Infs that a store writes reported, if nothing overwrites them.

        Args:
            origin: the op that made the Infs.
            access: the store.
            dtype: the dtype of the elements in memory.
            touched: the wrong elements.
            base: the batch's first program.
        """
        buffer = access.buffer
        memory = buffer.flat(dtype)

        def tell(first: int, count: int) -> None:
            is_inf = bool(memory[touched.places[first]].isinf())
            at, offender = self._first(origin, buffer, touched, first, base)
            self._faults.record(
                origin.op, self._text(origin, access, at, offender, is_inf), offender, count
            )

        self._wrong.hold(origin.op, access, dtype, touched.places, _not_finite, tell)

    def right(
        self,
        origin: Origin,
        access: ObservedAccess,
        dtype: torch.dtype,
        touched: Touched,
        base: int,
    ) -> None:
        """Keep right Infs that a store writes, if nothing overwrites them."""
        buffer = access.buffer
        if not self._faults.is_reported:
            return

        def tell(first: int, count: int) -> None:
            at, offender = self._first(origin, buffer, touched, first, base)
            text = replace(self._text(origin, access, at, offender, True), severity="error")
            held = HeldFault(self._faults.fault(origin.op, text, offender, count))
            HELD_INFS.hold(buffer, _infs_of(buffer, dtype, touched), origin.op, held)

        self._right.hold(origin.op, access, dtype, touched.places, torch.isinf, tell)

    def of_loaded(
        self, inf: HeldInf, access: ObservedAccess, dtype: torch.dtype, touched: Touched
    ) -> None:
        """Report NaNs that a store stores and that were made of the Infs of an earlier launch."""
        buffer, kernel, place = access.buffer, self._faults.kernel, access.op.location.primary

        def tell(first: int, count: int) -> None:
            HELD_INFS.tell(inf.held, kernel, place)

        def keep(first: int, count: int) -> None:
            HELD_INFS.hold(buffer, _infs_of(buffer, dtype, touched), inf.op, inf.held)

        self._wrong.hold(inf.op, access, dtype, touched.places, torch.isnan, tell)
        self._right.hold(inf.op, access, dtype, touched.places, torch.isinf, keep)

    def _first(
        self, origin: Origin, buffer: Buffer, touched: Touched, first: int, base: int
    ) -> tuple[tuple[int, ...], Offender]:
        stored = self._faults.offender(buffer, touched, first)
        at = origin.place_of(int(touched.programs[first]) - base, stored.lane)
        return at, Offender(stored.program_id, at[1:], stored.index)

    def _text(
        self,
        origin: Origin,
        access: ObservedAccess,
        at: tuple[int, ...],
        offender: Offender,
        is_inf: bool,
    ) -> FaultText:
        cause = cause_of(origin, at)
        of = f", of {cause}," if cause else ""
        became = "" if is_inf else " as a NaN"
        return self._faults.value_text(
            origin.op,
            "inf",
            f"an Inf is made here{of} and stored{became}",
            offender,
            store=access.op,
            severity="warning" if is_inf else "error",
            tensor=access.buffer.name,
            hint=hint_for(origin.op),
        )


def _not_finite(values: Tensor) -> Tensor:
    return ~values.isfinite()


def _infs_of(buffer: Buffer, dtype: torch.dtype, touched: Touched) -> Tensor:
    """Return the places of those elements that are Inf now."""
    return touched.places[buffer.flat(dtype)[touched.places].isinf()]

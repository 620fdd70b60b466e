"""What is reported of the Infs that a launch stored.

What is wrong is reported when the launch ends, if it is still there. What is right is kept, and
reported if a later launch makes a NaN of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.faults.messages import FaultText
from tkdebug.interpreter.checks.held_infs import HELD_INFS, HeldFault, HeldInf
from tkdebug.interpreter.checks.inf_text import cause_of, hint_for
from tkdebug.interpreter.checks.shadow_values import Origin
from tkdebug.interpreter.checks.stored_values import HeldStores
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.memory.touched import Touched
from tkdebug.interpreter.observers import LaunchContext


class InfReports:
    """Those of one launch.

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
        """Note what it may load and write of what earlier launches left."""
        if not HELD_INFS:
            return
        found = {buffer.storage_key: HELD_INFS.of(buffer) for buffer in launch.buffers}
        self.loaded = {key: infs for key, infs in found.items() if infs}
        self._written = [key for key in found if launch.written is None or key in launch.written]

    def launch_ends(self) -> None:
        """Keep what is right; what is wrong is settled by others."""
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
        """A store stores NaNs, or Infs that are wrong: report them if they stay.

        Args:
            origin: what made the Infs.
            access: the store.
            dtype: of the elements in memory.
            touched: those that are wrong.
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
        """A store stores Infs that are right: keep them if they stay. Arguments as above."""
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
        """A store stores what was made of the Infs of an earlier launch."""
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
    """The places of those that are Inf now."""
    return touched.places[buffer.flat(dtype)[touched.places].isinf()]

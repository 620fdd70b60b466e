"""Tells of programs of one launch that touch the same memory in no certain order."""

from __future__ import annotations

from torch import Tensor

from tkdebug.compiler.ir import Module, Operation
from tkdebug.interpreter.buffers import Buffer
from tkdebug.interpreter.faults import FaultLog
from tkdebug.interpreter.observed_access import ObservedAccess
from tkdebug.interpreter.observers import LaunchContext, Observer
from tkdebug.interpreter.races import Race, RaceDetector, Touched, synchronising_op
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.unwritten import bits_type
from tkdebug.terminal_text import tell

# Kernels whose races are not looked for, which is said once.
_announced: set[str] = set()


class RaceCheck(Observer):
    """`--check race`."""

    follows_accesses = True
    is_passive = True
    memory_factor = 4  # index vectors of each access

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._faults = faults
        self._detector: RaceDetector | None = None

    def launch_begins(self, launch: LaunchContext) -> None:
        """Look for races, unless programs order their accesses themselves."""
        op = synchronising_op(launch.module)
        if op is None:
            self._detector = RaceDetector(self._report)
        else:
            _announce(self._faults.kernel, op)

    def read(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After a load; what the kernel does not write is in no race."""
        if self._detector is None:
            return
        if run.written is None or access.buffer.storage_key in run.written:
            self._detector.read(access.op, access.buffer, access.touch())

    def writing(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before a store: where it changes memory."""
        if self._detector is not None:
            self._detector.write(access.op, access.buffer, access.touch(), _differs(access))

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After a store: which of its elements another one overwrote."""
        if self._detector is not None:
            self._detector.overwritten(access.op, access.buffer, access.touch(), _differs(access))

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before an atomic."""
        if self._detector is not None:
            self._detector.atomic(access.op, access.buffer, access.touch())

    def _report(self, op: Operation, buffer: Buffer, touched: Touched, race: Race) -> None:
        offender = self._faults.offender(buffer, touched, race.first)
        self._faults.race(op, buffer, offender, race)


def _differs(access: ObservedAccess) -> Tensor:
    """Where memory does not hold what is stored, compared by bits."""
    touched, values = access.touch(), access.stored()
    bits = bits_type(touched.itemsize)
    memory = access.buffer.flat(values.dtype).view(bits)
    different: Tensor = memory[touched.places] != values.view(bits)
    return different


def _announce(kernel: str, op: Operation) -> None:
    if kernel in _announced:
        return
    _announced.add(kernel)
    place = op.location.primary
    tell(
        f"{kernel}: its programs may wait for each other at {place.file}:{place.line}; "
        "races are not looked for in it"
    )

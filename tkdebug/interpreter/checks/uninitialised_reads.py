"""Tells of memory that is read before anything has written it."""

from __future__ import annotations

from tkdebug.compiler.ir import Module
from tkdebug.interpreter.faults import FaultLog
from tkdebug.interpreter.observed_access import ObservedAccess
from tkdebug.interpreter.observers import Observer
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.unwritten import MARKS, bits_type


class UninitialisedReads(Observer):
    """`--check uninitialised-read`."""

    follows_accesses = True
    memory_factor = 4  # index vectors of each access

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._faults = faults

    def read(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After a load: whether it gave what nothing has written."""
        if access.loaded is not None:
            self._look_for_marks(access)

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before an atomic: all but an exchange compute with what is there."""
        if access.op.attributes.get("kind") != "xchg":
            self._look_for_marks(access)

    def _look_for_marks(self, access: ObservedAccess) -> None:
        buffer, values = access.buffer, access.loaded
        mark = MARKS.get(buffer.tensor.dtype)
        if mark is None or buffer.itemsize != buffer.tensor.element_size():
            return
        bits = bits_type(buffer.itemsize)
        if values is not None and not bool((values.view(bits) == mark).any()):
            return
        touched = access.touch()
        memory = buffer.flat(buffer.tensor.dtype).view(bits)
        unwritten = (memory[touched.places] == mark).nonzero().reshape(-1)
        if unwritten.numel():
            offender = self._faults.offender(buffer, touched, int(unwritten[0]))
            self._faults.unwritten(access.op, buffer, offender, int(unwritten.numel()))

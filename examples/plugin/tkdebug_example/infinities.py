"""A check: a kernel stores an infinity (`tkdebug run --check infinity`)."""

from __future__ import annotations

from tkdebug.compiler.ir import Module
from tkdebug.interpreter.checks.plugin_checks import CheckPlugin
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.observers import Observer
from tkdebug.interpreter.state import EvaluatorState


class Infinities(Observer):
    """Looks at what is stored: elements that a mask leaves out are not among it."""

    follows_accesses = True
    is_passive = True

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._faults = faults

    def writing(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before a store."""
        if not access.stored_tile().is_floating_point() or not access.stored_tile().isinf().any():
            return
        (places,) = access.stored().isinf().nonzero(as_tuple=True)
        if places.numel():
            buffer = access.buffer
            offender = self._faults.offender(buffer, access.touch(), int(places[0]))
            self._faults.plugin_fault(
                access.op,
                "infinity",
                f"an infinity is stored to offset {offender.index} of `{buffer.name}`",
                offender,
                places.numel(),
                tensor=buffer.name,
                hint="clamp what is stored, or store a wider type",
            )


PLUGIN = CheckPlugin(Infinities)

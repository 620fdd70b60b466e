"""A check: a kernel stores an infinity (`tkdebug run --check infinity`)."""

from __future__ import annotations

import torch
from torch import Tensor

from tkdebug.compiler.ir import Module, Operation
from tkdebug.interpreter.buffers import Buffer
from tkdebug.interpreter.checks.plugin_checks import CheckPlugin
from tkdebug.interpreter.faults import FaultLog
from tkdebug.interpreter.observers import Observer
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.touched import Touched


class Infinities(Observer):
    """Looks at what is stored: elements that a mask leaves out are not among it."""

    follows_accesses = True

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._faults = faults

    def writing(
        self, run: EvaluatorState, op: Operation, buffer: Buffer, touched: Touched, values: Tensor
    ) -> None:
        """Before a store."""
        if not values.is_floating_point():
            return
        (places,) = torch.isinf(values).reshape(-1).nonzero(as_tuple=True)
        if places.numel():
            offender = self._faults.offender(buffer, touched, int(places[0]))
            self._faults.plugin_fault(
                op,
                "infinity",
                f"an infinity is stored to offset {offender.index} of `{buffer.name}`",
                offender,
                places.numel(),
                tensor=buffer.name,
                hint="clamp what is stored, or store a wider type",
            )


PLUGIN = CheckPlugin(Infinities)

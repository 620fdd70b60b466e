"""A device that runs checked builds: their GPU IR is interpreted, and fills the table by checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from check_recorder import CheckRecorder, SymptomObserver
from schedule_backend import PRINTER
from simulated_checks import CheckedPrinter, MappedMemory

from tkdebug import knobs
from tkdebug.interpreter.launch import run_module
from tkdebug.runtime.device.platform import LaunchableKernel


class Untimed:
    """Measures nothing."""

    def start(self, stream: int) -> None:
        return None


@dataclass(eq=False)
class InterpretingDevice(CheckedPrinter):
    """Launches are run on the tensors whose addresses they are given."""

    memory: MappedMemory = field(default_factory=MappedMemory)
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)

    def getters(self) -> tuple[Callable[[], int], Callable[[int], int]]:
        # Tensors of the CPU are elsewhere, so that it is shown each of them.
        return (lambda: 0), (lambda device: 7)

    def accessible_address(self, kernel: str, argument: str, value: Any, device: int) -> int:
        self.tensors[value.data_ptr()] = value
        return int(value.data_ptr())

    def span_timer(self, device: int) -> Untimed:
        return Untimed()

    def load(self, kernel: Any) -> LaunchableKernel:
        plan = kernel.binary.checks

        def submit(x: int, y: int, z: int, stream: int, *arguments: Any) -> None:
            self.is_checked.append(plan is not None)
            if plan is None:
                run_module(kernel.gpu_module, self._values(arguments), (x, y, z), is_reported=False)
                return
            *passed, (address, *bounds) = arguments
            self.bounds.append(tuple(bounds))
            counters, hidden = torch.zeros(len(plan.watches), dtype=torch.int64), ()
            if plan.watches:
                hidden = (counters, self.memory.records[bounds[-1]].memory)
            recorder = CheckRecorder(plan, kernel.name, (x, y, z))
            looking = [SymptomObserver(kernel.gpu_module, recorder)]
            with knobs.scope(checks=("none",)):
                other = run_module(
                    kernel.gpu_module,
                    [*self._values(passed), *hidden],
                    (x, y, z),
                    log=recorder,
                    observers=looking,
                )
            assert not other
            self.memory.tables[address].content = recorder.table() + counters.numpy().tobytes()

        return LaunchableKernel(1, 1, 1, 0, PRINTER.threads_per_block, submit)

    def _values(self, passed: Any) -> list[Any]:
        return [self.tensors.get(value, value) for value in passed]

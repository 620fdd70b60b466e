"""Counters by kernel: how much each of them grew while launches of a kernel ran.

    tkdebug run examples/profilers/counter_collector.py

A counter is a function that gives a number that only grows: here the operating system's, and the
energy of a GPU. Natively each launch is waited for, so that what is counted is of one kernel.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

import torch

from tkdebug.instrument import KernelObject, kernel_launch_enter, kernel_launch_exit


def system_counters() -> Mapping[str, Callable[[], float]]:
    """What the operating system counts of this process, and NVML of its GPU."""
    found: dict[str, Callable[[], float]] = {
        "cpu seconds": time.process_time,
        "page faults": lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt,
        "context switches": lambda: resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw,
    }
    if os.path.exists("/dev/nvidia0") and importlib.util.find_spec("pynvml"):
        import pynvml

        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        found["millijoules"] = lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(device)
    return found


class CounterCollector:
    """Sums counters by kernel while it is in force, as a context manager."""

    def __init__(self, counters: Mapping[str, Callable[[], float]]) -> None:
        self._counters = counters
        self._began: dict[int, dict[str, float]] = {}
        self.launches: dict[str, int] = defaultdict(int)
        self.sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def __enter__(self) -> CounterCollector:
        self._hooks = [kernel_launch_enter(self._enter), kernel_launch_exit(self._exit)]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _read(self, kernel: KernelObject) -> dict[str, float]:
        if kernel.mode == "native":
            torch.cuda.synchronize()
        return {name: read() for name, read in self._counters.items()}

    def _enter(self, kernel: KernelObject) -> None:
        self._began[kernel.correlation_id] = self._read(kernel)

    def _exit(self, kernel: KernelObject) -> None:
        before = self._began.pop(kernel.correlation_id)
        self.launches[kernel.name] += 1
        for name, value in self._read(kernel).items():
            self.sums[kernel.name][name] += value - before[name]


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from vector_add import main

    with CounterCollector(system_counters()) as collector:
        main()
    for kernel, sums in collector.sums.items():
        counted = ", ".join(f"{n:.6g} {name}" for name, n in sums.items())
        print(f"{kernel}: {collector.launches[kernel]} launches, {counted}")

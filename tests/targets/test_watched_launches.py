"""Native launches whose values are watched, on a device that interprets the kernel's GPU IR."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from schedule_backend import PRINTER
from simulated_checks import CheckedPrinter, MappedMemory, in_use

import tkdebug
import tkdebug.language as tl
from tkdebug import knobs
from tkdebug.compiler.sites.table import table_bytes
from tkdebug.interpreter.launch import run_module
from tkdebug.runtime.device.modes import timed_launches
from tkdebug.runtime.device.platform import LaunchableKernel
from tkdebug.watches.records import summary_text


@tkdebug.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr + offsets, x * 2, mask=offsets < n)


LINE = scale.kernel_source.first_line + 3


@dataclass(eq=False)
class InterpretingPrinter(CheckedPrinter):
    """Interprets the GPU IR of kernels with watched values, on the tensors that it was shown."""

    memory: MappedMemory = field(default_factory=MappedMemory)
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)

    def load(self, kernel: Any) -> LaunchableKernel:
        plan = kernel.binary.checks

        def submit(x: int, y: int, z: int, stream: int, *arguments: Any) -> None:
            self.is_checked.append(plan is not None)
            if plan is None:
                return
            *passed, (address, *_, counters_at, records_at) = arguments
            table = self.memory.tables[address]
            assert counters_at == address + table_bytes(len(plan.sites))
            assert table.size_bytes == plan.table_bytes
            values = [self.tensors.get(value, value) for value in passed]
            counters = torch.zeros(len(plan.watches), dtype=torch.int64)
            records = self.memory.records[records_at].memory
            run_module(kernel.gpu_module, [*values, counters, records], (x, y, z))
            table.content = bytes(table_bytes(len(plan.sites))) + counters.numpy().tobytes()

        return LaunchableKernel(1, 1, 1, 0, PRINTER.threads_per_block, submit)


@pytest.fixture
def printer():
    with in_use(InterpretingPrinter(), mode="native") as device:
        yield device
    scale.kernels.clear()


def show(printer: InterpretingPrinter, *tensors: torch.Tensor) -> None:
    printer.tensors.update({tensor.data_ptr(): tensor for tensor in tensors})


@pytest.fixture
def x(printer: InterpretingPrinter) -> torch.Tensor:
    tensor = torch.arange(100.0)
    show(printer, tensor)
    return tensor


@pytest.mark.parametrize("checks", ["none", "first"])
def test_every_launch_shows_its_values(printer, x, checks) -> None:
    out = torch.zeros(100)
    show(printer, out)
    with knobs.scope(check_launches=checks), tkdebug.watch(scale, LINE, "x") as seen:
        for _ in range(5):
            scale[(2,)](x, out, 100, BLOCK=64)
    assert printer.is_checked == [True] * 5
    texts = [summary_text(value) for value in seen.values]
    first = "min 0, max 63, mean 31.5, 1 zero"
    assert texts == [first, "min 0, max 99, mean 45.8438, 28 zeros"] * 5
    assert [value.program_id[0] for value in seen.values] == [0, 1] * 5
    # All memory was given back, and somebody waited for none of it longer than needed.
    assert printer.memory.records == {}


def test_launches_are_bare_again_when_the_watch_ends(printer, x) -> None:
    scale[(2,)](x, x, 100, BLOCK=64)
    with tkdebug.watch(scale, LINE, "x"):
        scale[(2,)](x, x, 100, BLOCK=64)
    scale[(2,)](x, x, 100, BLOCK=64)
    assert printer.is_checked == [False, True, False]


def test_timed_and_captured_launches_are_bare(printer, x) -> None:
    with tkdebug.watch(scale, LINE, "x") as seen:
        with timed_launches():
            scale[(2,)](x, x, 100, BLOCK=64)
        printer.memory.capturing.add(7)
        scale[(2,)](x, x, 100, BLOCK=64)
    assert printer.is_checked == [False, False]
    assert seen.seen == 0


def test_launches_wait_for_memory_that_is_taken(printer, x) -> None:
    printer.memory.holds = True
    with tkdebug.watch(scale, LINE, "x", programs="0") as seen:
        for _ in range(4):
            scale[(2,)](x, x, 100, BLOCK=64)
        assert printer.memory.waited == 2
        assert len(seen.values) == 4


def test_device_without_mapped_memory_is_reported_and_launches_go_on(printer, x, capsys) -> None:
    printer.memory.is_mapped = False
    with tkdebug.watch(scale, LINE, "x") as seen:
        scale[(2,)](x, x, 100, BLOCK=64)
        scale[(2,)](x, x, 100, BLOCK=64)
    assert printer.is_checked == [False, False]
    assert seen.seen == 0
    printed = capsys.readouterr().err.splitlines()
    assert (
        "tkdebug: kernel scale: its values are not watched: TkError: the printer cannot"
        in printed[0]
    )

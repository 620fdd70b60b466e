"""Kernels whose launches are all checked, which are compiled again for many launches."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch
from schedule_backend import ScheduleBackend
from simulated_checks import CheckedPrinter, in_use

import tkdebug
import tkdebug.language as tl
from tkdebug import knobs
from tkdebug.errors import CompileError
from tkdebug.findings.launch_counts import AccessTests
from tkdebug.linemap.parts import Occupancy
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.checked import checked_launches
from tkdebug.runtime.checked.builds import Build

BARE, SOON, LASTING = "bare", "there soon", "for many launches"


@pytest.fixture
def printer():
    with in_use(CheckedPrinter(), check_launches="all") as device:
        yield device


def loaded(printer):
    """Return the builds that were loaded."""
    return [
        BARE if checks is None else LASTING if checks.is_lasting else SOON
        for checks in printer.builds
    ]


@pytest.fixture
def few_blocks(monkeypatch):
    """Registers keep more than two blocks from a multiprocessor."""
    fitting = Occupancy(2, 8, 64, {"registers": 2, "warps": 8}, ("registers",))
    monkeypatch.setattr(ScheduleBackend, "occupancy", lambda *arguments: fitting)


def launch_until(condition):
    @tkdebug.jit
    def double(x_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2, mask=mask)

    x = torch.arange(100, dtype=torch.int32)
    ended_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ended_s
        double[(2,)](x, 64, BLOCK=64)


def test_kernel_whose_launches_are_all_checked_is_compiled_for_many(printer, few_blocks):
    launch_until(lambda: LASTING in loaded(printer))
    assert loaded(printer) == [SOON, LASTING]
    assert len(printer.is_checked) >= 4
    assert all(printer.is_checked)


def test_its_accesses_are_not_counted_again(printer, few_blocks, monkeypatch):
    counted = []

    def count(tests):
        counted.append(tests)
        return AccessTests()

    monkeypatch.setattr(checked_launches, "access_tests", count)
    launch_until(lambda: LASTING in loaded(printer) and printer.is_checked[8:])
    assert len(counted) == 1


def test_what_belongs_to_it_is_not_taken_for_another_builds(printer, few_blocks):
    compiled = []
    hook = Hook(compiled=compiled.append)
    HOOKS.add(hook)
    try:
        launch_until(lambda: LASTING in loaded(printer))
    finally:
        HOOKS.remove(hook)
    hashes = [one.hash for one in compiled]
    assert len(set(hashes)) == len(hashes) >= 2


def test_backend_that_cannot_say_how_many_blocks_fit_harms_no_launch(printer, monkeypatch, capsys):
    def occupancy(*arguments):
        raise ValueError("unknown")

    monkeypatch.setattr(ScheduleBackend, "occupancy", occupancy)
    launch_until(lambda: len(printer.is_checked) > 10)
    assert all(printer.is_checked)
    assert "its faster build fails: ValueError: unknown" in capsys.readouterr().err


def test_kernel_whose_first_launches_are_checked_is_not(printer, few_blocks):
    with knobs.scope(check_launches="first"):
        launch_until(lambda: len(printer.is_checked) > 10)
    assert LASTING not in loaded(printer)


def test_kernel_that_registers_do_not_limit_is_not(printer):
    launch_until(lambda: len(printer.is_checked) > 10)
    assert loaded(printer) == [SOON]


def test_kernel_goes_on_where_that_fails(printer, few_blocks, monkeypatch, capsys):
    def begin():
        raise CompileError("no memory")

    monkeypatch.setattr(Build, "lasting", lambda self, kernel: SimpleNamespace(begin=begin))
    launch_until(lambda: len(printer.is_checked) > 10)
    assert all(printer.is_checked)
    assert capsys.readouterr().err.splitlines() == [
        "tkdebug: kernel double: its faster build fails: CompileError: no memory"
    ]

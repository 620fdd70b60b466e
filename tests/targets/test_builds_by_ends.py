"""Checked builds that know that tensors end at multiples of 16 bytes, and launches of others."""

from __future__ import annotations

import threading

import pytest
import torch
from simulated_checks import CheckedPrinter, in_use

import tkdebug
import tkdebug.language as tl
from tkdebug import knobs
from tkdebug.compiler.sites.checks import BOUNDS_KINDS
from tkdebug.errors import CompileError
from tkdebug.findings.launch_counts import AccessTests
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.checked import checked_launches
from tkdebug.runtime.checked.builds import Build
from tkdebug.runtime.checked.checked_launch import CheckedLaunch
from tkdebug.runtime.checked.passed_arguments import PassedArguments
from tkdebug.runtime.compile.specialization import Specialization

ALIGNED, ODD = 64, 65


@pytest.fixture
def printer():
    with in_use(CheckedPrinter(), check_launches="all") as device:
        yield device


def known_ends(printer):
    """Return, for each checked build that was loaded, the tensors whose ends it knows."""
    return [set(checks.aligned_ends) for checks in printer.builds if checks is not None]


@pytest.fixture
def copy():
    @tkdebug.jit
    def copy(x, out, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)

    def launch(x_size, out_size):
        x, out = (torch.zeros(size, dtype=torch.int32) for size in (x_size, out_size))
        copy[(1,)](x, out, 48, BLOCK=64)

    launch.kernel = copy
    return launch


def test_first_launch_says_which_ends_the_build_knows(printer, copy):
    copy(ALIGNED, ODD)
    copy(ALIGNED, ALIGNED)
    assert known_ends(printer) == [{"x"}]
    assert printer.is_checked == [True, True]


def test_launch_with_other_ends_gets_a_build_for_any(printer, copy):
    for sizes in ((ALIGNED, ALIGNED), (ODD, ALIGNED), (ALIGNED, ODD), (ALIGNED, ALIGNED)):
        copy(*sizes)
    assert known_ends(printer) == [{"x", "out"}, set()]
    assert printer.is_checked == [True] * 4


def test_what_belongs_to_it_is_not_taken_for_another_builds(printer, copy):
    compiled = []
    hook = Hook(compiled=compiled.append)
    HOOKS.add(hook)
    try:
        copy(ALIGNED, ALIGNED)
        copy(ODD, ALIGNED)
    finally:
        HOOKS.remove(hook)
    hashes = [one.hash for one in compiled]
    assert len(set(hashes)) == len(hashes) >= 2


def test_its_accesses_are_counted_once(printer, copy, monkeypatch):
    counted = []

    def count(tests):
        counted.append(tests)
        return AccessTests()

    monkeypatch.setattr(checked_launches, "access_tests", count)
    copy(ALIGNED, ALIGNED)
    copy(ODD, ODD)
    assert len(known_ends(printer)) == 2
    assert len(counted) == 1


def test_only_launches_that_are_checked_ask_for_it(printer, copy):
    with knobs.scope(check_launches="first"):
        copy(ALIGNED, ALIGNED)
        copy(ALIGNED, ALIGNED)
        assert printer.is_checked == [True, False]
        copy(ODD, ALIGNED)
    assert printer.is_checked == [True, False, True]
    assert known_ends(printer) == [{"x", "out"}, set()]


def test_warm_up_knows_no_end(printer, copy):
    x = torch.zeros(ALIGNED, dtype=torch.int32)
    copy.kernel.warmup(x, x, 48, BLOCK=64, grid=(1,))
    copy(ALIGNED, ALIGNED)
    assert known_ends(printer) == [set()]


def test_build_that_tests_no_bounds_knows_no_end(printer, copy):
    with knobs.scope(ignored_kinds=BOUNDS_KINDS):
        copy(ALIGNED, ALIGNED)
        copy(ODD, ODD)
    assert known_ends(printer) == [set()]


def test_address_has_no_end():
    x = torch.zeros(ALIGNED, dtype=torch.int32)
    passed = PassedArguments(("x", "at", "n"), (x, x.data_ptr(), 64))
    assert passed.aligned_ends == {"x"}
    assert passed.has_aligned_ends({"x"})
    assert not passed.has_aligned_ends({"x", "at"})


def test_threads_get_kernels_that_fit_their_tensors(printer, copy):
    fitting = []
    submit = CheckedLaunch.launch

    def launch(self, values, passed):
        fitting.append(self._arguments.has_aligned_ends(self._kernel.src.checks.aligned_ends))
        submit(self, values, passed)

    def work(size):
        for _ in range(20):
            copy(size, size)

    copy(ALIGNED, ALIGNED)
    threads = [threading.Thread(target=work, args=(size,)) for size in (ALIGNED, ODD) * 3]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckedLaunch, "launch", launch)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert fitting == [True] * 120
    assert known_ends(printer) == [{"x", "out"}, set()]


def test_kernel_that_another_thread_replaced_is_not_taken_for_fitting(printer, copy):
    copy(ALIGNED, ALIGNED)
    (checked,) = copy.kernel.kernels.values()
    stale = checked._checked.kernel()
    copy(ODD, ODD)
    x = torch.zeros(ODD, dtype=torch.int32)
    passed = PassedArguments(("x", "out"), (x, x))
    assert checked._checked.fitting(stale, passed).src.checks.aligned_ends == frozenset()


def test_launches_are_bare_where_the_build_for_any_fails(printer, copy, monkeypatch, capsys):
    copy(ALIGNED, ALIGNED)

    class Failing(Build):
        def kernel(self):
            raise CompileError("no memory")

    def for_ends(build: Build, aligned: frozenset[str]) -> Build:
        src = build.src
        assert isinstance(src, Specialization)
        return Failing(src, 0, is_quiet=True)

    monkeypatch.setattr(Build, "for_ends", for_ends)
    copy(ODD, ODD)
    assert printer.is_checked == [True, False]
    assert capsys.readouterr().err.splitlines() == [
        "tkdebug: kernel copy: its launches are not checked: CompileError: no memory"
    ]

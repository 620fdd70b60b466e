"""A check that is added takes none away: faults of PTX with it are those without it, and more."""

from __future__ import annotations

from dataclasses import replace

import checked_bugs
import pytest
import torch
from check_support import copy_of, launches, with_checks
from machine_launches import by_ptx
from native_check_kernels import described
from native_support import needs_codegen

from tkdebug import knobs
from tkdebug.checks import RACE
from tkdebug.compiler.sites.checks import KINDS, UNWRITTEN, CheckOptions
from tkdebug.compiler.sites.live_memory import MARKS
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.compile import lower_to_llvm
from tkdebug.interpreter.closer_looks.reported_launch import PassedTensor, ReportedLaunch
from tkdebug.interpreter.closer_looks.reports import host_faults

pytestmark = needs_codegen
ALL = CheckOptions(frozenset((*KINDS, RACE, UNWRITTEN)), watch_bytes=1 << 20)
SLOW = (
    checked_bugs.nan_in_a_large_launch,
    checked_bugs.number_too_large_for_its_type,
    *checked_bugs.FAULTLESS,
)
BUGS = [bug for bug in checked_bugs.BUGS if bug not in SLOW]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_faults_are_the_same_with_further_checks(bug):
    with knobs.scope(checks=("nan", "inf")):
        (launch,) = launches(lambda: bug("cpu"))
    assert launch.faults
    assert as_found(by_ptx(launch, ALL)[0]) == as_found(launch.faults)


def as_found(faults):
    return [replace(fault, launch_id=0) for fault in faults]


def in_blocks(x):
    return launches(lambda: described[(3, 1)](x, torch.zeros(48, 16), 48, 16, B=16))[-1]


def test_block_outside_of_its_tensor_is_found_beside_what_nothing_has_written():
    x, out = torch.randn(20, 16), torch.zeros(48, 16)
    launch = in_blocks(x)
    _, plan = with_checks(launch, ALL)
    tensors = {"x": PassedTensor.of(x), "out": PassedTensor.of(out)}
    checked = ReportedLaunch("described", 0, launch.grid, tensors, launch.arguments)
    assert launch.faults
    assert host_faults(plan, checked) == launch.faults


def test_block_of_what_nothing_has_written_is_found():
    x = torch.randn(48, 16)
    x.view(torch.int32)[20] = MARKS["f32"]
    (fault,) = by_ptx(in_blocks(x), ALL)[0]
    assert (fault.kind, fault.index, fault.count) == (UNWRITTEN, 320, 16)


@pytest.mark.parametrize(("options", "copies"), [(CheckOptions(), True), (ALL, False)])
def test_no_bulk_copy_moves_what_is_looked_at(options, copies):
    module = copy_of(in_blocks(torch.randn(48, 16)))
    native = NativeOptions(checks=options)
    assert ("cp.async.bulk" in lower_to_llvm(module, native, TARGETS["sm_90a"]).llvm_ir) is copies

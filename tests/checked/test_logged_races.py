"""Races of native launches, from their log: those that the interpreter finds, and no others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from check_support import Launch, copy_of, launches
from native_support import needs_codegen
from race_support import raced, races, with_log

from tkdebug import knobs
from tkdebug.checks import RACE
from tkdebug.compiler.sites.checks import CheckOptions
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.compile import compile_module
from tkdebug.records.events import Fault

sys.path.append(str(Path(__file__).parents[1] / "interpreter"))

import checked_kernels as kernels
import order_kernels as ordered


def launched(run: Callable[[], object]) -> Launch:
    with knobs.scope(checks=("race",)):
        return launches(run)[-1]


def check(run: Callable[[], object]) -> Sequence[Fault]:
    """The races of a launch, which its log shows as the interpreter does."""
    launch = launched(run)
    judged = raced(launch)
    assert judged is not None
    assert judged.unseen is None
    expected = [replace(fault, launch_id=0) for fault in races(launch.faults)]
    assert list(judged.faults) == expected
    return judged.faults


def ints(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


@pytest.mark.parametrize(
    ("run", "count"),
    [
        (lambda: kernels.all_store_here[(4,)](ints(8), BLOCK=8), 1),
        (lambda: kernels.all_store_the_same[(4,)](ints(8), BLOCK=8), 0),
        (lambda: kernels.shift_in_place[(4,)](torch.arange(64.0), 64, BLOCK=16), 1),
        (lambda: kernels.scale_in_place[(4,)](torch.arange(100.0), 64, BLOCK=16), 0),
        (lambda: kernels.clear_and_add[(4,)](ints(1), BLOCK=4), 1),
        (lambda: kernels.add_atomically[(4,)](ints(1)), 0),
        (lambda: kernels.add_plainly[(4,)](ints(1)), 1),
        (lambda: kernels.add_plainly[(1,)](ints(1)), 0),
    ],
)
def test_races_are_those_of_the_interpreter(run: Callable[[], object], count: int) -> None:
    assert len(check(run)) == count


def test_elements_of_one_tile_that_are_stored_to_one_place() -> None:
    index = torch.tensor([0, 1, 1, 3], dtype=torch.int32)
    (fault,) = check(lambda: kernels.scatter[(1,)](ints(4), index, BLOCK=4))
    assert "another element of the same tile" in fault.message


def split_k(bug: str) -> Sequence[Fault]:
    x, out = torch.rand(3, 5, 4), torch.zeros(3, 4)
    scratch = torch.zeros(3, 5, 4), ints(3)
    return check(lambda: ordered.split_k[(3, 5)](x, *scratch, out, BUG=bug, SPLITS=5, BLOCK=4))


def test_programs_that_synchronise_rightly_are_in_no_race() -> None:
    assert split_k("") == []


@pytest.mark.parametrize("bug", ["counted first", "relaxed", "cta"])
def test_programs_that_synchronise_wrongly(bug: str) -> None:
    assert {fault.tensor for fault in split_k(bug)} >= {"parts"}


def test_lock_is_an_order() -> None:
    def locked() -> None:
        x, out = torch.rand(6, 4), torch.zeros(4)
        ordered.locked_sum[(6,)](x, ints(2), out, BUG="", BLOCK=4)

    assert check(locked) == []


def test_what_does_not_fit_is_said_and_makes_no_race() -> None:
    launch = launched(lambda: kernels.shift_in_place[(4,)](torch.arange(64.0), 64, BLOCK=16))
    judged = raced(launch, log_bytes=3 * 3 * 144)
    assert judged is not None
    assert judged.unseen == "2 of 8 accesses of tiles did not fit into its log"
    known = {(fault.line, fault.tensor) for fault in races(launch.faults)}
    assert {(fault.line, fault.tensor) for fault in judged.faults} <= known


def test_order_of_programs_is_not_judged_by_half_a_log() -> None:
    launch = launched(
        lambda: ordered.locked_sum[(6,)](
            torch.rand(6, 4), ints(2), torch.zeros(4), BUG="two locks", BLOCK=4
        )
    )
    assert races(launch.faults)
    judged = raced(launch, log_bytes=1200)
    assert judged is not None
    assert (list(judged.faults), "did not fit" in str(judged.unseen)) == ([], True)


@pytest.mark.parametrize(("first", "is_said"), [(32, False), (31, True)])
def test_loads_of_memory_that_another_parameter_writes_are_said(first: int, is_said: bool) -> None:
    x = torch.zeros(64)
    judged = raced(launched(lambda: kernels.double[(4,)](x[:32], x[first:][:32], 32, BLOCK=16)))
    assert judged is not None
    said = "`x_ptr` overlaps `out_ptr`, and its loads are not in the log"
    assert judged.unseen == (said if is_said else None)


def test_kernel_that_writes_alone_logs_its_stores_alone() -> None:
    launch = launched(lambda: kernels.double[(4,)](torch.zeros(32), torch.zeros(32), 32, BLOCK=16))
    _, plan = with_log(launch)
    assert plan is not None
    assert [site.op_id > 0 for site in plan.watches] == [True, False]


@needs_codegen
@pytest.mark.parametrize("target", ["sm_75", "sm_90a"])
def test_logging_code_assembles(target: str) -> None:
    launch = launched(lambda: kernels.shift_in_place[(4,)](torch.arange(64.0), 64, BLOCK=16))
    options = NativeOptions(checks=CheckOptions(frozenset([RACE])))
    compiled = compile_module(copy_of(launch), options, TARGETS[target])
    plan = compiled.binary().checks
    assert plan is not None
    assert len(plan.watches) == 3
    assert not compiled.code.warnings

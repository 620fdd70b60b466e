"""Launches that are checked on a GPU: their faults are those that the interpreter finds."""

from __future__ import annotations

from dataclasses import replace

import checked_bugs
import pytest
import torch

import tkdebug
from tkdebug import knobs
from tkdebug.checks import NATIVE_CHECKS
from tkdebug.compat.around_torch.checked_synchronisations import collect_at_synchronisations
from tkdebug.findings.launch_counts import LaunchCounts
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.checked import checked_launches
from tkdebug.runtime.checked.checked_launches import CHECKED

pytestmark = pytest.mark.gpu
LAUNCHES, FAULTS = 1000, 1 << 20


@pytest.fixture
def faults():
    found = []
    hook = Hook(fault=found.append)
    HOOKS.add(hook)
    yield found
    HOOKS.remove(hook)


def taken(faults):
    found = sorted((replace(fault, launch_id=0) for fault in faults), key=lambda f: str(f))
    faults.clear()
    return found


@pytest.fixture(autouse=True)
def fresh_kernels(monkeypatch):
    # Arguments are looked at again before they are freed, though other tests hold the GPU.
    monkeypatch.setattr(checked_launches, "LONGEST_MOMENT_S", 5.0)
    monkeypatch.setattr(checked_launches, "ALL_MOMENTS_S", 20.0)
    for kernel in vars(checked_bugs).values():
        if isinstance(kernel, tkdebug.JITFunction):
            kernel.kernels.clear()
    CHECKED.renew_locks()


@pytest.mark.parametrize(
    "further",
    [(), ("race",), ("uninitialised-read",), NATIVE_CHECKS],
    ids=("usual", "race", "uninitialised", "all"),
)
@pytest.mark.parametrize("bug", checked_bugs.BUGS, ids=lambda bug: bug.__name__)
def test_faults_are_those_of_the_interpreter(faults, bug, further):
    with tkdebug.mode("interpret"), knobs.scope(checks=("nan", "inf", *further)):
        bug("cpu")
    expected = taken(faults)
    with tkdebug.mode("native"), knobs.scope(check_launches="all", checks=further):
        bug("cuda")
        CHECKED.conclude()
    assert taken(faults) == expected
    assert bool(expected) is checked_bugs.is_faulty(bug, further)


def test_launches_are_reported_after_a_synchronisation_and_by_their_number(faults):
    ids = []
    hook = Hook(enter=lambda kernel, record: ids.append(record.id))
    HOOKS.add(hook)
    try:
        with tkdebug.mode("native"), knobs.scope(check_launches="all"):
            checked_bugs.load_behind_the_end("cuda")
            checked_bugs.load_behind_the_end("cuda")
            torch.cuda.synchronize()
            CHECKED.collect()
    finally:
        HOOKS.remove(hook)
    assert [fault.launch_id for fault in faults] == ids


def test_graph_is_captured_bare_and_said(faults):
    x, out = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    with tkdebug.mode("native"), knobs.scope(check_launches="first"):
        checked_bugs.copy[(8,)](x, out, 1000, BLOCK=128)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        out.zero_()
        with torch.cuda.graph(graph):
            checked_bugs.copy[(8,)](x, out, 1000, BLOCK=128)
        graph.replay()
        torch.cuda.synchronize()
        CHECKED.conclude()
    assert out.sum() == 1000
    assert (CHECKED.counts, faults) == (LaunchCounts(1, 1), [])


@pytest.mark.parametrize("warm_ups", [1, 100])
def test_index_that_is_wrong_in_a_replay_alone_is_found(faults, warm_ups):
    undo = collect_at_synchronisations()
    x = torch.ones(64, device="cuda")
    index = torch.zeros(128, device="cuda", dtype=torch.int32)
    out = torch.zeros(128, device="cuda")
    with tkdebug.mode("native"), knobs.scope(check_launches="first"):
        for _ in range(warm_ups):
            checked_bugs.gather[(2,)](x, index, out, BLOCK=64)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            checked_bugs.gather[(2,)](x, index, out, BLOCK=64)
        graph.replay()
        torch.cuda.synchronize()
        assert faults == []
        index[70] = 1000
        graph.replay()
        torch.cuda.synchronize()
        undo()
        (fault,) = faults
        # The first that was found is reported once for all replays that follow.
        graph.replay()
        CHECKED.conclude()
    assert (fault.kind, fault.tensor, fault.index, fault.count) == ("oob-load", "x", 1000, 1)
    assert fault.program_id == (1, 0, 0)
    assert "in a replay of a CUDA graph" in fault.message
    assert len(faults) == 1
    assert out.sum() == 127


def test_launches_of_several_streams_and_many_faults(faults):
    x, out = torch.zeros(16, device="cuda"), torch.zeros(FAULTS + 16, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    with tkdebug.mode("native"), knobs.scope(check_launches="all"):
        for number in range(LAUNCHES):
            with torch.cuda.stream(streams[number % 3]):
                checked_bugs.copy[(FAULTS // 1024 + 1,)](x, out, FAULTS + 16, BLOCK=1024)
        before = torch.cuda.memory_allocated()
        CHECKED.conclude()
    assert {fault.count for fault in faults} == {FAULTS}
    assert len({fault.launch_id for fault in faults}) == len(faults) == LAUNCHES
    assert torch.cuda.memory_allocated() == before

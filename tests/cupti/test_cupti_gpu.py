"""Recorded runs on a GPU: times by CUPTI, and torch's kernels beside ours."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.instrument.activities import recorded_activities
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS

pytestmark = pytest.mark.gpu


@tkdebug.jit
def add_one(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, tl.load(x + offs, mask=offs < n) + 1, mask=offs < n)


@pytest.fixture
def tensors():
    x = torch.zeros(1 << 20, device="cuda")
    return x, torch.empty_like(x)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.tkd"


def launch(tensors, blocks=4):
    with KNOBS.scope(mode="native"):
        add_one[(blocks,)](*tensors, 1024, BLOCK=256)


def read(path):
    with Session.open(path) as session:
        return session.launches_in_order(), list(recorded_activities(session))


def test_kernel_of_a_microsecond_is_recorded_as_that(tensors, path):
    launch(tensors)
    with Recorder(path, output=False):
        for _ in range(100):
            launch(tensors)
    launches, _ = read(path)
    assert {one.time_source for one in launches} == {"cupti"}
    times = sorted(one.duration_ns for one in launches)
    assert 500 < times[50] < 3000


def test_torchs_kernels_and_copies_are_activities(tensors, path):
    with Recorder(path, output=False):
        launch(tensors)
        torch.relu(tensors[0])
        tensors[0].cpu()
    launches, activities = read(path)
    assert [a.launch for a in activities if a.name == "add_one"] == [launches[0].id]
    assert any("at6native" in a.name and a.launch == 0 for a in activities)
    assert any((a.kind, a.name) == ("memcpy", "DtoH") for a in activities)


def test_captured_launch_has_no_time_and_its_replays_are_of_the_graph(tensors, path):
    with Recorder(path, output=False):
        launch(tensors, 1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch(tensors, 2)
        graph.replay()
        graph.replay()
        launch(tensors, 3)
    launches, activities = read(path)
    assert [(one.grid[0], one.time_source) for one in launches] == [
        (1, "cupti"),
        (2, "none"),
        (3, "cupti"),
    ]
    replayed = [a for a in activities if a.graph and a.name == "add_one"]
    assert [a.grid[0] for a in replayed] == [2, 2]


def test_launches_of_threads_have_their_own_kernels(tensors, path):
    with Recorder(path, output=False):

        def work(first):
            for number in range(200):
                launch(tensors, 1 + (7 * number + first) % 97)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    launches, activities = read(path)
    grids = {one.id: one.grid for one in launches}
    assert {one.time_source for one in launches} == {"cupti"}
    assert all(grids[a.launch] == a.grid for a in activities if a.launch)


def test_torch_profiler_works_beside_the_recorder(path):
    # In a process of its own: torch's profiler keeps CUPTI until its process ends.
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import {__name__} as here; here.profile_and_record({str(path)!r})",
        ],
        cwd=Path(__file__).parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    launches, _ = read(path)
    assert launches[0].time_source == "cupti"
    assert launches[1].time_source.startswith("events")


def profile_and_record(path):
    from torch.profiler import ProfilerActivity, profile

    x = torch.zeros(1 << 20, device="cuda")
    tensors = x, torch.empty_like(x)
    with Recorder(path, output=False):
        launch(tensors)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
            launch(tensors, 2)
            torch.cuda.synchronize()
    events = [e for e in prof.events() if "CUDA" in str(e.device_type)]
    assert sum("add_one" in e.name for e in events) == 1

"""Profiling sessions over native launches, made by hand: whose time is known late, or never."""

import threading
import time
from types import SimpleNamespace

import pytest
from launching import make_record

from tkdebug.instrument.profiling.files import chrome_trace, hatchet
from tkdebug.instrument.profiling.profiler import Profiler
from tkdebug.records.hook_chain import HOOKS
from tkdebug.records.scopes import SCOPES

FACTS = {"arch": "90", "num_sms": 132}


class Kernel:
    """A launch's time on the device, known once it is done or waited for."""

    def __init__(self, duration_ns):
        self.duration_ns = duration_ns
        self.done = threading.Event()
        self.waited = 0

    def __call__(self, wait=False):
        if wait:
            self.waited += 1
            self.done.set()
        return self.duration_ns if self.done.is_set() else None


def launch(device_ns, kernel="matmul", device=0, error=None, start_ns=None, **changes):
    start_ns = time.time_ns() if start_ns is None else start_ns
    record = make_record(kernel, mode="native", start_ns=start_ns, **changes)
    loaded = SimpleNamespace(device=device)
    hooks = HOOKS.enter(loaded, record)
    record.duration_ns, record.error, record.device_ns = 5, error, device_ns
    HOOKS.exit(hooks, loaded, record)


@pytest.fixture
def profiler():
    profiler = Profiler()
    yield profiler
    profiler.end()
    assert not HOOKS.launch


def end(profiler):
    (profile,) = profiler.end()
    return profile


def test_times_are_the_devices_and_only_the_end_waits_for_them(profiler):
    kernels = [Kernel(1000), Kernel(3000)]
    session = profiler.start("p")
    assert HOOKS.timed
    for kernel in kernels:
        launch(kernel)
    profiler.deactivate(session)
    profiler.activate(session)
    assert [kernel.waited for kernel in kernels] == [0, 0]
    profile = end(profiler)
    assert [kernel.waited for kernel in kernels] == [1, 1]
    place = profile.tree.children["matmul"]
    assert (place.launches, place.time_ns) == (2, 4000)
    assert not profile.interpreted


def test_devices_are_distinguished_and_described_once_used(profiler):
    profiler.start("p")
    launch(Kernel(10), "a", device=0)
    launch(Kernel(20), "b", device=1)
    asked = []
    tree, devices = hatchet(end(profiler).tree, lambda index: asked.append(index) or FACTS)
    assert sorted(asked) == [0, 1]
    assert devices == {"CUDA": {"0": FACTS, "1": FACTS}}
    metrics = [child["metrics"] for child in tree["children"]]
    assert [(m["device_type"], m["device_id"]) for m in metrics] == [("CUDA", "0"), ("CUDA", "1")]


def test_launch_into_a_graph_and_one_that_fails_are_not_counted(profiler):
    def fail(wait=False):
        raise RuntimeError("an illegal address")

    profiler.start("p")
    launch(None, "captured")
    launch(None, "refused", error="CudaError")
    launch(fail, "crashed")
    launch(Kernel(7), "ran")
    assert {name for name, p in end(profiler).tree.children.items() if p.launches} == {"ran"}


def test_launch_belongs_to_the_scopes_that_it_was_made_in(profiler):
    profiler.start("p")
    kernel = Kernel(50)
    scope = SCOPES.enter("step")
    launch(kernel)
    SCOPES.exit(scope)
    other = SCOPES.enter("later")
    profile = end(profiler)
    SCOPES.exit(other)
    assert profile.tree.children["step"].children["matmul"].time_ns == 50


def test_session_that_ended_first_has_what_it_saw(profiler):
    first, second = profiler.start("first"), profiler.start("second")
    launch(Kernel(10))
    (early,) = profiler.end(first)
    launch(Kernel(20))
    (late,) = profiler.end(second)
    assert early.tree.children["matmul"].time_ns == 10
    assert late.tree.children["matmul"].time_ns == 30


def test_metadata_that_raises_is_reported_once_and_the_launch_counted(profiler, capsys):
    def broken():
        raise KeyError("M")

    profiler.start("p")
    profiler.metadata_wanted = lambda kernel: True
    for _ in range(2):
        launch(Kernel(10), user_metadata=broken)
    assert end(profiler).tree.children["matmul"].launches == 2
    assert capsys.readouterr().err.count("launch_metadata of matmul raised KeyError: 'M'") == 1


def test_trace_of_a_stream_has_its_launches_in_turn(profiler):
    profiler.start("p", kind="trace")
    launch(Kernel(5000), start_ns=1_000_000)
    launch(Kernel(2000), start_ns=1_001_000)
    launch(Kernel(1000), start_ns=1_002_000, stream=7)
    events = chrome_trace(end(profiler))["traceEvents"]
    assert [(e["ts"], e["dur"], e["tid"]) for e in events] == [
        (0.0, 5.0, 0),
        (5.0, 2.0, 0),
        (2.0, 1.0, 7),
    ]

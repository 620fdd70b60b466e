"""Lines that launch torch's kernels: noted operations, calls that CUPTI saw, and reports."""

import json
import threading
import time

import activity_records as made
import pytest
import torch

from tkdebug.compat.op_origins import op_origins
from tkdebug.instrument.activities import recorded_activities
from tkdebug.instrument.analyses.origin_totals import origin_totals
from tkdebug.instrument.cupti import recording as cupti_recording
from tkdebug.instrument.cupti.activity_join import OpSpans
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.recording import gpu_recording
from tkdebug.instrument.report import render
from tkdebug.instrument.session import Session
from tkdebug.records.scopes import SCOPES

LINE = "a line"


@pytest.fixture
def reported():
    """(line, scopes) of each operation that was noted."""
    found = []

    def note(start_ns, end_ns, code, line):
        assert start_ns <= end_ns
        found.append((code.co_name, line, SCOPES.path()))

    SCOPES.keep(1)
    with op_origins(note):
        yield found
    SCOPES.keep(-1)


def here():
    import sys

    return sys._getframe(1).f_lineno


def test_operation_has_the_line_that_called_it(reported):
    x = torch.ones(4)
    line = here() + 1
    torch.nn.functional.gelu(x)
    (_, place, scopes) = reported[-1]
    assert (place, scopes) == (line, ())


def test_operation_in_a_module_has_the_path_of_modules(reported):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.ReLU()))
    line = here() + 1
    net(torch.ones(2, 4))
    places = {(place, scopes) for _, place, scopes in reported if len(scopes) > 1}
    assert (line, ("Sequential", "0")) in places
    assert (line, ("Sequential", "1", "0")) in places
    assert SCOPES.path() == ()


def test_module_that_raises_leaves_no_scope(reported):
    class Broken(torch.nn.Module):
        def forward(self, x):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        torch.nn.Sequential(Broken())(torch.ones(1))
    assert SCOPES.path() == ()


def test_record_function_is_a_scope(reported):
    with torch.profiler.record_function("attention"):
        line = here() + 1
        torch.ones(4).sum()
    torch.ones(4).sum()
    found = [(place, scopes) for _, place, scopes in reported]
    assert (line, ("attention",)) in found
    assert found[-1] == (line + 1, ())


def test_nothing_is_reported_afterwards():
    found = []
    with op_origins(lambda *op: found.append(op)):
        torch.ones(1) + 1
    count = len(found)
    torch.ones(1) + 1
    assert len(found) == count > 0


def spans(*ops):
    import numpy as np

    found = OpSpans()
    for op in ops:
        found.add(*op)

    def at(thread, time_ns):
        records = np.zeros(1, [("start", "<u8"), ("correlationId", "<u4"), ("threadId", "<u4")])
        records[0] = (time_ns, 1, thread)
        found.add_calls(records, 0)
        return found.origins_of(np.array([1]))[0]

    return at


def test_call_belongs_to_the_operation_of_its_thread():
    at = spans((1, 100, 200, 5), (1, 300, 400, 6), (2, 100, 400, 7))
    assert [at(1, t) for t in (99, 100, 200, 250, 350)] == [0, 5, 5, 0, 6]
    assert at(2, 350) == 7


def test_call_of_autograds_thread_belongs_to_who_waits_for_it():
    at = spans((1, 100, 200, 5), (2, 150, 400, 7))
    assert at(9, 120) == 5
    assert at(9, 300) == 7
    # Two were in an operation: no line is better than the wrong one.
    assert at(9, 180) == 0


@pytest.fixture
def gpu(fake, buffers, monkeypatch):
    monkeypatch.setattr(gpu_recording, "find_cupti", lambda: fake.path)
    monkeypatch.setattr(gpu_recording.GpuRecording, "_open_nvml", lambda self: None)
    monkeypatch.setattr(cupti_recording.Collection, "synchronize", lambda self: None)
    fake.buffers = buffers
    return fake


def test_reports_tell_what_lines_launched(gpu, tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, output=False, stacks=True) as recorder:
        recorder._gpu_used(lambda: gpu.buffers)
        assert made.RUNTIME in gpu.enabled
        with op_origins(recorder.note_operation):
            line = here() + 1
            torch.ones(4).sum()
        step = SCOPES.enter("step 1")
        start_ns = time.time_ns()
        code = test_reports_tell_what_lines_launched.__code__
        recorder.note_operation(start_ns, start_ns + 1_000_000, code, line)
        SCOPES.exit(step)
        call = made.runtime_call(start_ns + 500_000, 9, threading.get_native_id())
        kernel = made.kernel("sum", start=start_ns + 600_000, end=start_ns + 600_300, call=9)
        gpu.deliver(call, kernel, made.kernel("other", start=1, end=101, call=77))
    with Session.open(path) as session:
        known = [one for one in recorded_activities(session) if one.origin]
        assert [one.name for one in known] == ["sum"]
        first, second = origin_totals(session)
        assert (first.origin.frame.line, first.count, first.total_ns) == (line, 1, 300)
        assert (second.origin, second.total_ns) == (None, 100)
        text = "".join(render(session, "text"))
        assert f"test_origins.py:{line} test_reports_tell_what_lines_launched" in text
        data = json.loads("".join(render(session, "json")))
        assert [one["line"] for one in data["origins"]] == [line, None]
        trace = "".join(render(session, "chrome-trace"))
        assert f"test_origins.py:{line} in" in trace
        root, _ = json.loads("".join(render(session, "hatchet")))
        other, scope = sorted(root["children"], key=lambda child: child["frame"]["name"])
        assert scope["frame"] == {"name": "step 1", "type": "scope"}
        assert [child["frame"]["name"] for child in scope["children"]] == ["sum"]
        assert (other["frame"]["name"], other["metrics"]["time (ns)"]) == ("other", 100)

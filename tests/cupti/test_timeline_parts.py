"""Parts of a kernel's time that CUPTI measured: stretches of its warps, and the rest."""

import json

import activity_records as made
import pytest
from hooked_launches import native_launch

from tkdebug.errors import Frame
from tkdebug.instrument.cupti import recording as cupti_recording
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.recording import gpu_recording
from tkdebug.instrument.renderers.timeline_section import timeline_text
from tkdebug.instrument.report import render
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS
from tkdebug.records.hook_chain import HOOKS
from tkdebug.timelines import ClockSite, WarpTimeline

SITES = tuple(ClockSite("tt.load", 0, (Frame("/k.py", line, "add"),)) for line in (3, 4))
# As an H200 had them: a matmul of 71.5 us whose warps lasted 69.6 us, at 1.9 GHz.
KERNEL_NS, SPAN_NS, CYCLES = 71_500, 69_600, 132_240


def warp(launch_id, number, program=0, late_ns=0, lost=0):
    cycles = CYCLES - round(late_ns * CYCLES / SPAN_NS)
    marks = ((cycles // 4, 0), (cycles // 2, 1))
    return WarpTimeline(
        "add", launch_id, (2, 1, 1), program, number, 11, 5_000_000 + late_ns,
        5_000_000 + SPAN_NS, 0, cycles, SITES, marks, lost,
    )  # fmt: skip


@pytest.fixture
def recorded(fake, buffers, tmp_path, monkeypatch):
    """A session with a launch of that time, and the warps that `make` gives for it."""
    monkeypatch.setattr(gpu_recording, "find_cupti", lambda: fake.path)
    monkeypatch.setattr(gpu_recording.GpuRecording, "_open_nvml", lambda self: None)
    monkeypatch.setattr(cupti_recording.Collection, "synchronize", lambda self: None)
    monkeypatch.setattr(HOOKS, "_make_buffers", None)

    def record(make, kernel_ns=KERNEL_NS):
        path = tmp_path / "run.tkd"
        with KNOBS.scope(recording_process=False):
            with Recorder(path, script="s.py", output=False) as recorder:
                HOOKS.device_used(lambda: buffers)
                launch = native_launch("add")
                if kernel_ns is not None:
                    began_ns = launch.start_ns + 7_001
                    fake.note(launch.start_ns + 100, 1)
                    fake.deliver(
                        made.kernel("add", start=began_ns, end=began_ns + kernel_ns, call=1)
                    )
                for one in make(launch.id):
                    recorder._on_record(one)
        with Session.open(path) as session:
            text = "".join(render(session, "text"))
            (timeline,) = json.loads("".join(render(session, "json")))["timelines"]
            launched = session.launch_of(session.launches().launches[0].process, launch.id)
            assert [line.strip() for line in timeline_text(session, launched)][1:] == [
                line.strip() for line in text.splitlines() if " %  " in line
            ]
        return text, timeline

    return record


def shares(text):
    return [float(line.split("%")[0]) for line in text.splitlines() if " %  " in line]


def test_lines_and_what_is_outside_of_warps_add_up_to_the_kernel(recorded):
    text, timeline = recorded(lambda launch: [warp(launch, 0), warp(launch, 1, program=1)])
    assert "up to 132,240 cycles (69.6 µs of the kernel's 71.5 µs)" in text
    assert (
        "    2.7 %  outside of warps, 1.90 µs: the launch's begin and end "
        "(CUPTI's time less the span of the warps)\n" in text
    )
    assert "while a warp" not in text
    assert shares(text) == pytest.approx([48.7, 24.3, 24.3, 2.7])
    assert timeline["kernel_ns"] == KERNEL_NS
    assert timeline["outside_ns"] == 1_900
    assert timeline["warp_ns"] == pytest.approx(SPAN_NS)
    assert [(line["line"], line["cycles"]) for line in timeline["lines"]] == [
        (4, CYCLES),
        (None, CYCLES // 2),
        (3, CYCLES // 2),
    ]


def test_warps_that_begin_late_leave_time_to_others(recorded):
    make = lambda launch: [warp(launch, 0), warp(launch, 1, program=1, late_ns=10_000)]  # noqa: E731
    text, timeline = recorded(make)
    assert "7.0 %  while a warp had not begun or had ended, 5.00 µs: others of these ran" in text
    assert sum(shares(text)) == pytest.approx(100, abs=0.3)
    parts = timeline["warp_ns"] + timeline["others_ns"] + timeline["outside_ns"]
    assert parts == pytest.approx(timeline["kernel_ns"])


def test_programs_without_timelines_are_outside_too(recorded):
    text, timeline = recorded(lambda launch: [warp(launch, 0)])
    assert "outside of these warps, 1.90 µs: the launch's begin and end, and programs " in text
    assert timeline["has_all_programs"] is False


def test_readings_that_are_lost_have_their_share(recorded):
    text, _ = recorded(lambda launch: [warp(launch, 0, lost=7)])
    assert "48.7 %  (no room for 7 further readings" in text
    assert sum(shares(text)) == pytest.approx(100, abs=0.3)


@pytest.mark.parametrize("kernel_ns", [None, SPAN_NS - 32])
def test_nothing_is_outside_without_a_time_that_tells(recorded, kernel_ns):
    text, timeline = recorded(lambda launch: [warp(launch, 0)], kernel_ns)
    assert "outside" not in text
    assert shares(text) == [50.0, 25.0, 25.0]
    assert timeline["outside_ns"] is None

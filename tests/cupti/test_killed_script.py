"""Records that CUPTI had handed over when the script was killed are in the session."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tkdebug.instrument.activities import recorded_activities
from tkdebug.instrument.session import Session

# Its buffers are lent while the recording process stands still; so it reads them after the kill.
SCRIPT = """
import os, signal, sys, threading
import activity_records as made
from hooked_launches import native_launch
from made_cupti import FakeCupti, PlainBuffers
from tkdebug.records.hook_chain import HOOKS
from tkdebug.instrument.cupti.recording import Collection
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.recording import gpu_recording
fake = FakeCupti(sys.argv[1])
gpu_recording.find_cupti = lambda: fake.path
gpu_recording.GpuRecording._open_nvml = lambda self: None
Collection.synchronize = lambda self: None
recorder = Recorder(sys.argv[2], output=False).start()
HOOKS.device_used(PlainBuffers)
launch = native_launch("add")
recorder.flush()
number = recorder._sink.process.number
os.kill(number, signal.SIGSTOP)
start_ns = launch.start_ns + 5000
fake.note(launch.start_ns + 100, 5)
fake.deliver(
    made.kernel("add", start=start_ns, end=start_ns + 864, call=5),
    made.kernel("relu", start=start_ns, end=start_ns + 300, call=77),
    made.memcpy(),
)
recorder._gpu._recording._round(forced=False)
print(number, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
HERE = Path(__file__).resolve().parent


def test_buffers_that_were_lent_outlive_the_script(fake_path, tmp_path):
    path = tmp_path / "run.tkd"
    places = [str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(fake_path), str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    os.kill(int(done.stdout), signal.SIGCONT)
    ended = time.monotonic() + 60
    while path.with_name(f".{path.name}.lock").exists():
        assert time.monotonic() < ended
        time.sleep(0.01)
    with Session.open(path) as session:
        (launch,) = session.launches_in_order()
        assert (launch.duration_ns, launch.time_source) == (864, "cupti")
        found = sorted((one.kind, one.launch) for one in recorded_activities(session))
        assert found == [("kernel", 0), ("kernel", launch.id), ("memcpy", 0)]

"""A recorded run that has something of everything a trace shows, on a GPU that is not there.

Launches of kernels of ours, torch's kernels and copies as an H200 gave them, scopes of the host, a
fault, and a timeline of two warps.
"""

from __future__ import annotations

import ctypes
import threading
import time

import activity_records as made
import numpy as np
from captured_buffers import LAYOUT, captured
from hooked_launches import native_launch

from tkdebug.errors import Frame
from tkdebug.instrument.cupti.layouts import CONCURRENT_KERNEL, DRIVER, MEMCPY, record_type
from tkdebug.instrument.recorder import Recorder
from tkdebug.records.events import Fault, LaunchRecord, next_launch_id
from tkdebug.records.hook_chain import HOOKS
from tkdebug.records.scopes import SCOPES
from tkdebug.timelines import ClockSite, WarpTimeline

SOURCE = "x = tl.load(p)\ny = x + 1\ntl.store(q, y)\n"
_names = []


def torch_records(now_ns, first_call):
    """The kernels and copies that torch ran, moved to this time and to names of this process."""
    names, data = captured("torch_eager.xz")
    texts = {address: ctypes.create_string_buffer(text.encode()) for address, text in names.items()}
    _names.append(texts)
    records, at, first_ns = [], 0, None
    while at < len(data):
        (kind,) = np.frombuffer(data, "<u4", 1, at).tolist()
        size = LAYOUT.sizes[kind]
        record = np.frombuffer(bytearray(data[at : at + size]), record_type(kind, size))
        at += size
        if kind in (CONCURRENT_KERNEL, MEMCPY):
            first_ns = int(record["start"][0]) if first_ns is None else first_ns
            lasted = record["end"] - record["start"]
            record["start"] = now_ns + (record["start"].astype("i8") - first_ns)
            record["end"] = record["start"] + lasted
            record["correlationId"] += first_call
        if kind == CONCURRENT_KERNEL:
            record["name"] = ctypes.addressof(texts[int(record["name"][0])])
        assert kind != DRIVER
        records.append(record.tobytes())
    return records


def make_run(path, gpu, source_file):
    """Record it; the result is the launches in order."""
    source_file.write_text(SOURCE)
    site = lambda op, line: ClockSite(op, 0, (Frame(str(source_file), line, "add"),))  # noqa: E731
    with Recorder(path, script="train.py", output=False) as recorder:
        gpu.use()
        step = SCOPES.enter("step 1")
        launches = [native_launch(name) for name in ("add", 'mul"<é>\n', "add")]
        thread = threading.get_native_id()
        began_ns = launches[-1].start_ns + 7_001
        for call, launch in enumerate(launches, 1):
            # Each begins in the nanosecond in which the one before it ends.
            ended_ns = began_ns + 864 + call
            gpu.note(launch.start_ns + 100, call, thread)
            gpu.deliver(made.kernel(launch.kernel, start=began_ns, end=ended_ns, call=call))
            began_ns = ended_ns
        # Nodes of a graph run side by side, in one stream.
        gpu.deliver(
            made.kernel("left", start=ended_ns + 500, end=ended_ns + 1500, call=9, graph=3),
            made.kernel("right", start=ended_ns + 1000, end=ended_ns + 2000, call=9, graph=3),
            made.kernel("within", start=ended_ns + 1600, end=ended_ns + 1700, call=9, graph=3),
        )
        SCOPES.exit(step)
        gpu.deliver(*torch_records(time.time_ns() + 1_000_000, 100))
        HOOKS.fault(_fault(source_file, launches[0].id))
        for warp in range(2):
            recorder._on_record(
                WarpTimeline(
                    "add", launches[0].id, (2, 1, 1), 0, warp, 11, 5_000_000, 5_000_865, 0, 1517,
                    (site("tt.load", 1), site("tt.store", 3)), _marks(warp), 0,
                )
            )  # fmt: skip
        launches.append(_interpreted("reduce", 1500))
        launches.append(_interpreted("reduce", None))
    return launches


def _marks(warp):
    """Readings at odd distances: cycles are no whole nanoseconds."""
    return tuple((101 + 7 * warp + 13 * number, number % 2) for number in range(100))


def _fault(file, launch_id):
    frames = (Frame(str(file), 1, "add"),)
    return Fault("oob-load", "add", frames, "load reads offset 96 of `p`", launch_id, 5)


def _interpreted(kernel, duration_ns):
    record = LaunchRecord(
        next_launch_id(), kernel, (1, 1, 1), "interpret", {"num_warps": 4}, tuple, f"hash {kernel}"
    )
    record.start_ns = time.time_ns()
    hooks = HOOKS.enter(None, record)
    if duration_ns is not None:
        record.duration_ns = duration_ns
        HOOKS.exit(hooks, None, record)
    return record

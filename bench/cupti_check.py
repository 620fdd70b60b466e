"""Recorded times on a GPU, looked at from all sides: what is recorded, what it costs, who else is there.

Each step is a process of its own. Needs a GPU.

    python bench/cupti_check.py [--out FOLDER] [STEP …]
"""

# ruff: noqa: D102, E501, SLF001
from __future__ import annotations

import argparse
import collections
import faulthandler
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def say(*words):
    print(*words, flush=True)


def kernels():
    import tkdebug
    import tkdebug.language as tl

    @tkdebug.jit
    def add_one(x, y, n, B: tl.constexpr):
        o = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(y + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)

    @tkdebug.jit
    def spin(x, y, n, times, B: tl.constexpr):
        o = tl.program_id(0) * B + tl.arange(0, B)
        a = tl.load(x + o, mask=o < n)
        for _ in range(times):
            a = tl.exp(a) * 0.5
        tl.store(y + o, a, mask=o < n)

    return add_one, spin


def tensors():
    import torch

    x = torch.zeros(1 << 20, device="cuda")
    return x, torch.empty_like(x)


class Recorded:
    """A recorded stretch, and what the session says of it."""

    def __init__(self, keep=None):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "run.tkd" if keep is None else keep

    def __enter__(self):
        from tkdebug.instrument.recorder import Recorder
        from tkdebug.runtime.cuda import first_use

        self.recorder = Recorder(self.path, output=False).start()
        first_use.announce_with_torch()
        return self.recorder

    def __exit__(self, *_):
        start = time.perf_counter()
        self.recorder.stop()
        say(
            "  stop took ms",
            round(1e3 * (time.perf_counter() - start), 1),
            "error",
            self.recorder.error,
        )

    def show(self, title, details=True):
        from tkdebug.instrument.activities import (
            recorded_activities,
        )
        from tkdebug.instrument.device_records import GpuState, LostActivities
        from tkdebug.instrument.session import Session

        with Session.open(self.path) as session:
            launches = session.launches_in_order(0, 10000)
            say(
                f"  {title}: launches",
                len(launches),
                collections.Counter(one.time_source for one in launches),
            )
            if details:
                for one in launches[:12]:
                    say("   ", one.id, one.kernel, one.grid, one.duration_ns, one.time_source, one.device_stream,
                        (one.device_start_ns or one.start_ns) - one.start_ns)  # fmt: skip
            for total in session.other_totals()[1][:8]:
                say("    others:", total.kind, total.name[:60], total.count, total.total_ns)
            activities = list(recorded_activities(session))
            say("    activities", len(activities), "of graphs", sum(a.graph > 0 for a in activities),
                "ours", sum(a.launch > 0 for a in activities))  # fmt: skip
            for kind in (LostActivities, GpuState):
                for one in session.records(kind)[:3]:
                    say("   ", one.event)
            return launches, activities


def records(out):
    import torch

    recorded = Recorded()
    with recorded as recorder:
        add_one, spin = kernels()
        x, y = tensors()
        torch.relu(x)
        add_one[(4,)](x, y, 1024, B=256)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            add_one[(2,)](x, y, 1024, B=256)
            torch.relu(x)
        graph.replay()
        add_one[(3,)](x, y, 1024, B=256)
        graph.replay()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            add_one[(5,)](x, y, 1024, B=256)
            y.copy_(x)

        def other(n):
            for _ in range(50):
                add_one[(n,)](x, y, 1024, B=256)
                x @ y

        threads = [threading.Thread(target=other, args=(10 + n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for times in (10, 100, 1000, 10000):
            spin[(64,)](x, y, 1 << 16, times, B=1024)
        torch.cuda.synchronize()
        time.sleep(0.3)
        say("is on", recorder._gpu.is_on, "cupti", recorder._gpu._recording)
        if recorder._gpu._recording is not None:
            say(recorder._gpu._recording._collection.cupti.path)
    launches, _ = recorded.show("everything")
    say(
        "    of threads",
        collections.Counter(
            (one.grid[0], one.time_source) for one in launches if one.grid[0] in (10, 11, 12)
        ),
    )
    say("    spins", [one.duration_ns for one in launches[-4:]])


def raw(out):
    """Buffers as they come, with calls of the driver: what tests read."""
    import lzma
    import struct

    import torch

    from tkdebug.instrument.cupti.layouts import CONCURRENT_KERNEL, records_by_kind
    from tkdebug.instrument.cupti.library import Cupti, find_cupti
    from tkdebug.instrument.cupti.recording import Collection, names_at
    from tkdebug.runtime.cuda.activity_buffers import activity_buffers

    add_one, _ = kernels()
    x, y = tensors()
    add_one[(4,)](x, y, 1024, B=256)
    torch.cuda.synchronize()
    collection = Collection(Cupti(find_cupti()), activity_buffers())
    collection.start()
    graph = torch.cuda.CUDAGraph()
    for grid in (1, 2):
        add_one[(grid,)](x, y, 1024, B=256)
        torch.relu(x)
        y.zero_()
        y.copy_(x)
        x.cpu()
    with torch.cuda.graph(graph):
        add_one[(3,)](x, y, 1024, B=256)
        torch.relu(x)
    graph.replay()
    torch.cuda.synchronize()
    say("clock", collection.clock(), "tid", threading.get_native_id())
    for number, data in enumerate(collection.take(forced=True)):
        found = records_by_kind(data, collection.cupti.layout)
        has_kernels = CONCURRENT_KERNEL in found
        places = set(found[CONCURRENT_KERNEL]["name"].tolist()) if has_kernels else set()
        names = names_at(sorted(places))
        say("buffer", len(data), {kind: len(r) for kind, r in found.items()})
        if 4 in found:
            say(
                "  calls",
                collections.Counter(found[4]["cbid"].tolist()),
                "threads",
                set(found[4]["threadId"].tolist()),
            )
        if out is not None:
            text = b"".join(
                struct.pack("<QI", a, len(n.encode())) + n.encode() for a, n in names.items()
            )
            head = struct.pack("<II", len(names), len(text))
            (out / f"raw{number}.xz").write_bytes(lzma.compress(head + text + data))
    collection.stop()


def costs(out):
    """Host us a launch: bare, a no-op hook, recorded with CUPTI, recorded with events."""
    import torch

    import tkdebug.instrument
    from tkdebug.instrument.recorder import Recorder
    from tkdebug.instrument.recording import gpu_recording
    from tkdebug.runtime.cuda import first_use

    add_one, _ = kernels()
    x, y = tensors()

    def burst(n=4000):
        for _ in range(300):
            add_one[(4,)](x, y, 1024, B=256)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            add_one[(4,)](x, y, 1024, B=256)
        took = time.perf_counter() - start
        torch.cuda.synchronize()
        return took / n * 1e6

    first_use.announce()
    found = collections.defaultdict(list)
    find = gpu_recording.find_cupti

    def missing():
        raise gpu_recording.CuptiError("switched off for the measurement")

    for _ in range(3):
        found["bare"].append(burst())
        with tkdebug.instrument.add_hook(enter=lambda kernel, record: None):
            found["a no-op hook"].append(burst())
        for name, finder in (("recorded by CUPTI", find), ("recorded by events", missing)):
            gpu_recording.find_cupti = finder
            with tempfile.TemporaryDirectory() as folder:
                recorder = Recorder(Path(folder) / "run.tkd", output=False).start()
                found[name].append(burst())
                recorder.stop()
    for name, values in found.items():
        say(f"  {name:20} {statistics.median(values):8.2f} us  {[round(v, 2) for v in values]}")
    from tkdebug.runtime.cuda.device import device
    from tkdebug.runtime.cuda.timing import event_overhead_ns

    say("event overhead ns", [event_overhead_ns(device(0)) for _ in range(5)])


def events(out):
    """Times by events against those by CUPTI, of the same kernels."""
    import torch

    from tkdebug.instrument.recording import gpu_recording

    find = gpu_recording.find_cupti

    def missing():
        raise gpu_recording.CuptiError("switched off for the measurement")

    for name, finder in (("cupti", find), ("events", missing)):
        gpu_recording.find_cupti = finder
        recorded = Recorded()
        with recorded:
            _, spin = kernels()
            x, y = tensors()
            spin[(64,)](x, y, 1 << 16, 10, B=1024)
            for busy in (False, True):
                for times in (10, 100, 1000, 10000):
                    torch.cuda.synchronize()
                    if busy:
                        torch.cuda._sleep(20_000_000)
                    for _ in range(20):
                        spin[(64,)](x, y, 1 << 16, times, B=1024)
            torch.cuda.synchronize()
        launches, _ = recorded.show(name, details=False)
        for at in range(1, 161, 20):
            part = launches[at : at + 20]
            times = sorted(one.duration_ns for one in part)
            say(
                "   ",
                times[0],
                times[10],
                times[-1],
                collections.Counter(one.time_source for one in part),
            )


def model():
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, device="cuda")
    net = torch.nn.Sequential(layer, torch.nn.Linear(256, 256, device="cuda"))
    return net, torch.optim.AdamW(net.parameters()), torch.randn(16, 64, 256, device="cuda")


def step(net, optimizer, batch):
    optimizer.zero_grad()
    net(batch).square().mean().backward()
    optimizer.step()


def profiled(out):
    """torch.profiler inside of a recorded run, and sums against it."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    recorded = Recorded()
    with recorded as recorder:
        add_one, _ = kernels()
        x, y = tensors()
        parts = model()
        for _ in range(5):
            step(*parts)
        torch.cuda.synchronize()
        time.sleep(0.4)
        before = time.time_ns()
        for _ in range(5):
            step(*parts)
        torch.cuda.synchronize()
        after = time.time_ns()
        for round_number in range(2):
            say("  profiling", round_number, "on", recorder._gpu.is_on)
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
                say("   inside on", recorder._gpu.is_on)
                add_one[(7,)](x, y, 1024, B=256)
                for _ in range(5):
                    step(*parts)
                torch.cuda.synchronize()
            events = [e for e in prof.events() if "CUDA" in str(e.device_type)]
            say("   torch.profiler: GPU events", len(events), "sum us", round(sum(e.time_range.elapsed_us() for e in events), 1),
                "ours", sum("add_one" in e.name for e in events))  # fmt: skip
            for attempt in range(6):
                say("   after on", recorder._gpu.is_on)
                add_one[(8 + attempt,)](x, y, 1024, B=256)
                time.sleep(0.25)
        torch.cuda.synchronize()
    _, activities = recorded.show("profiled")
    part = [a for a in activities if before <= a.start_ns <= after]
    say(
        "    five steps by us: activities",
        len(part),
        "sum us",
        sum(a.duration_ns for a in part) / 1e3,
    )


def inside(out):
    """A recording that begins while torch.profiler is at work, and after it was used."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    add_one, _ = kernels()
    x, y = tensors()
    recorded = Recorded()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        with recorded as recorder:
            say("  inside of torch.profiler: on", recorder._gpu.is_on)
            for _ in range(7):
                add_one[(4,)](x, y, 1024, B=256)
            torch.cuda.synchronize()
    say(
        "  torch.profiler has",
        sum("add_one" in e.name and "CUDA" in str(e.device_type) for e in prof.events()),
        "of 7",
    )
    recorded.show("inside", details=False)
    recorded = Recorded()
    with recorded as recorder:
        say("  after torch.profiler: on", recorder._gpu.is_on)
        add_one[(4,)](x, y, 1024, B=256)
    recorded.show("after", details=False)


def stress(out):
    """Small buffers, many threads, calls of torch that keep the GIL: nothing may wait for ever."""
    import torch

    from tkdebug.runtime.cuda import activity_buffers

    small = activity_buffers.ActivityBuffers(16 << 10, 64)
    activity_buffers._buffers = lambda: small
    recorded = Recorded()
    with recorded as recorder:
        add_one, _ = kernels()
        x, y = tensors()
        parts = model()
        ended = time.monotonic() + 8

        def other(n):
            while time.monotonic() < ended:
                add_one[(n,)](x, y, 1024, B=256)
                torch.relu(x)

        threads = [threading.Thread(target=other, args=(1 + n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        steps = 0
        while time.monotonic() < ended:
            step(*parts)
            steps += 1
        for thread in threads:
            thread.join()
        torch.cuda.synchronize()
        say("  steps", steps, "on", recorder._gpu.is_on)
    recorded.show("stress", details=False)


def forked(out):
    """A recorded process whose child, forked before CUDA was in use, uses it."""
    import multiprocessing

    recorded = Recorded()
    with recorded:

        def child():
            try:
                add_one, _ = kernels()
                x, y = tensors()
                add_one[(4,)](x, y, 1024, B=256)
                import torch

                torch.cuda.synchronize()
                say("  child had CUDA")
            except BaseException:
                traceback.print_exc()

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(40)
        say("  exit status of the child", process.exitcode)
    recorded.show("forked")


def kinds(out):
    """Measure the cost of each kind of record to a loop of torch's and launches of ours, CUPTI alone."""
    import ctypes

    import torch

    from tkdebug.instrument.cupti.library import Cupti, find_cupti
    from tkdebug.runtime.cuda.activity_buffers import activity_buffers

    cupti = Cupti(find_cupti())
    library = ctypes.CDLL(cupti.path)
    buffers = activity_buffers()
    add_one, _ = kernels()
    x, y = tensors()
    parts = model()

    def api(callback, on):
        return library.cuptiActivityEnableDriverApi(ctypes.c_uint32(callback), ctypes.c_uint8(on))

    def only_launch():
        return [
            cupti.status("cuptiActivityEnable", 4),
            [api(n, 0) for n in range(1, 790) if n != 652][:3],
        ]

    def launch_alone():
        return api(652, 1)

    def launch_then_all_off():
        return [cupti.status("cuptiActivityEnable", 4), api(392, 0)]

    variants = {
        "nothing": ((), None),
        "kernel": ((10,), None),
        "kernel memcpy memset": ((10, 1, 2), None),
        "kernel driver": ((10, 4), None),
        "kernel memcpy memset driver": ((10, 1, 2, 4), None),
        "kernel, driver less cuDevicePrimaryCtxGetState": ((10,), launch_then_all_off),
        "kernel, driver less all but launches": ((10,), only_launch),
        "kernel, launch alone": ((10,), launch_alone),
        "kernel runtime": ((10, 5), None),
    }

    def burst():
        for _ in range(200):
            add_one[(4,)](x, y, 1024, B=256)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(3000):
            add_one[(4,)](x, y, 1024, B=256)
        launch = (time.perf_counter() - start) / 3000 * 1e6
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(15):
            step(*parts)
        torch.cuda.synchronize()
        return launch, (time.perf_counter() - start) / 15 * 1e3

    burst()
    cupti.register(buffers.requested, buffers.completed)
    found, said = collections.defaultdict(list), {}
    for _ in range(3):
        for name, (enabled, more) in variants.items():
            statuses = [cupti.status("cuptiActivityEnable", kind) for kind in enabled]
            if more is not None:
                statuses.append(more())
            found[name].append(burst())
            cupti.status("cuptiActivityFlushAll", 1)
            data = buffers.filled()
            count = collections.Counter()
            from tkdebug.instrument.cupti.layouts import records_by_kind

            if 5 not in enabled:
                for one in data:
                    for kind, records in records_by_kind(one, cupti.layout).items():
                        count[kind] += len(records)
                        if kind == 4:
                            count.update(
                                {
                                    f"cb{c}": n
                                    for c, n in collections.Counter(
                                        records["cbid"].tolist()
                                    ).items()
                                }
                            )
            said[name] = (statuses, dict(count))
            for kind in (10, 1, 2, 4, 5):
                cupti.status("cuptiActivityDisable", kind)
            for callback in range(1, 790):
                api(callback, 0)
            cupti.status("cuptiActivityFlushAll", 1)
            buffers.filled()
    for name, values in found.items():
        launches, steps = zip(*values, strict=True)
        say(f"  {name:48} launch {statistics.median(launches):6.2f} us  step {statistics.median(steps):6.2f} ms  "
            f"(least {min(launches):.2f}, {min(steps):.2f})  {said[name]}")  # fmt: skip


def joins(out):
    """Launches of several threads and grids: each has the record of a kernel of its own grid."""
    import torch

    recorded = Recorded()
    with recorded:
        add_one, _ = kernels()
        x, y = tensors()

        def other(n):
            for k in range(700):
                add_one[(1 + (k * 7 + n) % 97,)](x, y, 1024, B=256)

        threads = [threading.Thread(target=other, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        torch.cuda.synchronize()
    launches, activities = recorded.show("joins", details=False)
    grids = {one.id: one.grid for one in launches}
    wrong = [a for a in activities if a.launch and grids[a.launch] != a.grid]
    say("  joined", sum(a.launch > 0 for a in activities), "wrong", len(wrong), wrong[:2])


STEPS = (kinds, joins, raw, records, costs, events, profiled, inside, forked, stress)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--here", action="store_true")
    parser.add_argument("steps", nargs="*")
    arguments = parser.parse_args()
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
    chosen = [s for s in STEPS if not arguments.steps or s.__name__ in arguments.steps]
    if arguments.here:
        faulthandler.enable()
        faulthandler.dump_traceback_later(35, exit=True)
        for one in chosen:
            one(arguments.out)
        return
    for one in chosen:
        say(f"== {one.__name__}: {(one.__doc__ or '').strip()}")
        command = [sys.executable, __file__, "--here", one.__name__]
        if arguments.out is not None:
            command += ["--out", str(arguments.out)]
        start = time.perf_counter()
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=45,
                check=False,
                env={**os.environ, "TKDEBUG_MODE": "native"},
            )
            say(done.stdout[-6000:] + done.stderr[-2500:])
            say(f"-- status {done.returncode}, {time.perf_counter() - start:.1f} s")
        except subprocess.TimeoutExpired as error:
            say("TIMED OUT", (error.stdout or b"")[-3000:], (error.stderr or b"")[-3000:])


if __name__ == "__main__":
    main()

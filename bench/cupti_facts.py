"""What libcupti does on this machine: record sizes, costs per launch, clients beside us, clocks.

The facts that `tkdebug/instrument/cupti` is built on, measured anew. Needs a GPU.

    python bench/cupti_facts.py [--out FOLDER]     # FOLDER gets raw buffers, as tests keep them
"""

# ruff: noqa: D101, D102, E501, SLF001
from __future__ import annotations

import argparse
import collections
import ctypes
import faulthandler
import glob
import lzma
import os
import statistics
import struct
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL, EXTERNAL = 1, 2, 4, 5, 10, 39
LAUNCH_KERNEL, GRAPH_LAUNCH, LAUNCH_KERNEL_EX = 307, 514, 652  # cupti_driver_cbid.h
NAMES = {MEMCPY: "memcpy", MEMSET: "memset", DRIVER: "driver", RUNTIME: "runtime",
         KERNEL: "kernel", EXTERNAL: "external"}  # fmt: skip
BUFFER = 4 << 20
REQUEST = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
COMPLETE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


def say(*words):
    print(*words, flush=True)


class Cupti:
    def __init__(self):
        import nvidia

        found = [
            f for root in nvidia.__path__ for f in glob.glob(f"{root}/*/lib/libcupti.so.1*")
        ] + glob.glob("/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so.1*")
        say("libcupti candidates", found)
        self.lib = ctypes.CDLL(found[0])
        self.free, self.done, self.kept = [], [], []
        self.threads = set()
        self.callbacks = REQUEST(self._request), COMPLETE(self._complete)
        version = ctypes.c_uint32()
        self.call("cuptiGetVersion", ctypes.byref(version))
        say("cuptiGetVersion", version.value)

    def call(self, name, *arguments, quiet=False):
        try:
            status = getattr(self.lib, name)(*arguments)
        except AttributeError:
            say(f"no function {name}")
            return -1
        if status and not quiet:
            say(f"{name}{arguments[:2]} -> {status}")
        return status

    def _request(self, buffer, size, records):
        if not self.free:
            memory = ctypes.create_string_buffer(BUFFER)
            self.kept.append(memory)
            self.free.append(ctypes.addressof(memory))
        buffer[0], size[0], records[0] = self.free.pop(), BUFFER, 0

    def _complete(self, context, stream, buffer, size, valid):
        self.threads.add(threading.get_native_id())
        self.done.append(ctypes.string_at(buffer, valid) if valid else b"")
        self.free.append(buffer)

    def register(self):
        return self.call("cuptiActivityRegisterCallbacks", *self.callbacks)

    def enable(self, *kinds):
        return [self.call("cuptiActivityEnable", kind) for kind in kinds]

    def disable(self, *kinds):
        return [self.call("cuptiActivityDisable", kind, quiet=True) for kind in kinds]

    def flush(self, force=1):
        self.call("cuptiActivityFlushAll", force)
        taken, self.done = self.done, []
        return [b for b in taken if b]

    def records(self, buffers):
        """By the library's own walk: (kind, bytes) of each."""
        found = []
        for data in buffers:
            memory = ctypes.create_string_buffer(data, len(data))
            base, record, offsets = ctypes.addressof(memory), ctypes.c_void_p(), []
            while not self.lib.cuptiActivityGetNextRecord(
                ctypes.c_void_p(base), ctypes.c_size_t(len(data)), ctypes.byref(record)
            ):
                offsets.append(record.value - base)
            for start, end in zip(offsets, [*offsets[1:], len(data)], strict=False):
                piece = data[start:end]
                found.append((struct.unpack_from("I", piece)[0], piece))
        return found


def kernel_fields(piece):
    start, end = struct.unpack_from("QQ", piece, 16)
    device, context, stream = struct.unpack_from("III", piece, 40)
    grid, block = struct.unpack_from("iii", piece, 52), struct.unpack_from("iii", piece, 64)
    static, dynamic = struct.unpack_from("ii", piece, 76)
    (correlation,) = struct.unpack_from("I", piece, 92)
    (name,) = struct.unpack_from("Q", piece, 104)
    (node,), (graph,) = struct.unpack_from("Q", piece, 144), struct.unpack_from("I", piece, 156)
    return dict(
        ns=end - start, start=start, device=device, context=context, stream=stream, grid=grid,
        block=block, shared=(static, dynamic), correlation=correlation, node=node, graph=graph,
        registers=struct.unpack_from("H", piece, 6)[0],
        name=ctypes.string_at(name).decode()[:60] if name else None,
    )  # fmt: skip


def api_fields(piece):
    _, cbid, start, end, process, thread, correlation, value = struct.unpack_from("IIQQIIII", piece)
    return dict(cbid=cbid, start=start, ns=end - start, process=process, thread=thread,
                correlation=correlation, value=value)  # fmt: skip


def show(records, limit=12):
    say("counts", {NAMES.get(k, k): n for k, n in collections.Counter(k for k, _ in records).items()},
        "sizes", sorted({(NAMES.get(k, k), len(p)) for k, p in records}))  # fmt: skip
    shown = collections.Counter()
    for kind, piece in records:
        shown[kind] += 1
        if shown[kind] > limit:
            continue
        if kind == KERNEL:
            say("  kernel", kernel_fields(piece))
        elif kind in (DRIVER, RUNTIME):
            say(" ", NAMES[kind], api_fields(piece))
        elif kind in (MEMCPY, MEMSET):
            size, start, end, _, _, stream, correlation = struct.unpack_from("QQQIIII", piece, 8)
            say(" ", NAMES[kind], dict(bytes=size, ns=end - start, stream=stream,
                correlation=correlation, head=piece[4:8].hex()))  # fmt: skip
        elif kind == EXTERNAL:
            say("  external", struct.unpack_from("IIQI", piece))


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


def facts(out):
    import torch

    cupti = Cupti()
    say(
        "before CUDA: register",
        cupti.register(),
        "thread ids",
        cupti.call("cuptiSetThreadIdType", 1),
    )
    x = torch.zeros(1 << 20, device="cuda")
    y = torch.empty_like(x)
    add_one, spin = kernels()
    add_one[(4,)](x, y, 1024, B=256)
    torch.cuda.synchronize()

    say("== records of everything")
    say("enable", cupti.enable(KERNEL, MEMCPY, MEMSET),
        cupti.call("cuptiActivityEnableDriverApi", LAUNCH_KERNEL_EX, 1))  # fmt: skip
    stamp = ctypes.c_uint64()
    cupti.call("cuptiGetTimestamp", ctypes.byref(stamp))
    say("timestamp - time_ns", stamp.value - time.time_ns(), "tid", threading.get_native_id(),
        "pid", os.getpid())  # fmt: skip
    side = torch.cuda.Stream()
    for stream in (torch.cuda.current_stream(), side):
        with torch.cuda.stream(stream):
            before = time.time_ns()
            add_one[(4,)](x, y, 1024, B=256)
            say("host launch from", before, "to", time.time_ns(), "stream", stream.cuda_stream)
            torch.relu(x)
            y.zero_()
            y.fill_(3)
            y.copy_(x)
            x.cpu()
            a = torch.randn(256, 256, device="cuda", dtype=torch.float16)
            a @ a
    torch.cuda.synchronize()
    context = ctypes.c_void_p()
    from cuda.bindings import driver

    context = ctypes.c_void_p(int(driver.cuCtxGetCurrent()[1]))
    for stream in (0, side.cuda_stream):
        number = ctypes.c_uint32()
        for per_thread in (0, 1):
            status = cupti.call("cuptiGetStreamIdEx", context, ctypes.c_void_p(stream),
                                ctypes.c_uint8(per_thread), ctypes.byref(number))  # fmt: skip
            say(
                "stream", stream, "per thread", per_thread, "has id", number.value, "status", status
            )
        say("cuStreamGetId", [str(v) for v in driver.cuStreamGetId(driver.CUstream(stream))])
    number = ctypes.c_uint32()
    say("context id", cupti.call("cuptiGetContextId", context, ctypes.byref(number)), number.value)
    show(save(out, cupti, "eager", cupti.flush()), 30)

    say("== a graph: capture, two replays, and a launch before, between and after")
    graph = torch.cuda.CUDAGraph()
    add_one[(1,)](x, y, 1024, B=256)
    with torch.cuda.graph(graph):
        add_one[(2,)](x, y, 1024, B=256)
        torch.relu(x)
        y.copy_(x)
    add_one[(3,)](x, y, 1024, B=256)
    graph.replay()
    add_one[(5,)](x, y, 1024, B=256)
    graph.replay()
    add_one[(6,)](x, y, 1024, B=256)
    torch.cuda.synchronize()
    show(save(out, cupti, "graph", cupti.flush()), 30)

    say("== who calls back", cupti.threads, "we are", threading.get_native_id())
    say("== flush without force while a kernel runs")
    spin[(1024,)](x, y, 1 << 20, 20000, B=1024)
    add_one[(4,)](x, y, 1024, B=256)
    t = time.perf_counter()
    early = cupti.flush(0)
    say("early", len(cupti.records(early)), "took ms", 1e3 * (time.perf_counter() - t))
    torch.cuda.synchronize()
    say(
        "late",
        len(cupti.records(cupti.flush(0))),
        "then forced",
        len(cupti.records(cupti.flush(1))),
    )
    cupti.disable(KERNEL, MEMCPY, MEMSET)
    cupti.call("cuptiActivityEnableDriverApi", LAUNCH_KERNEL_EX, 0)
    costs(cupti, add_one, x, y)
    events(cupti, add_one, spin, x, y)
    profiler(cupti, add_one, x, y)


def save(out, cupti, name, buffers):
    records = cupti.records(buffers)
    if out is not None:
        names = {}
        for kind, piece in records:
            if kind == KERNEL:
                (pointer,) = struct.unpack_from("Q", piece, 104)
                names[pointer] = ctypes.string_at(pointer)
        text = b"".join(struct.pack("<QI", p, len(t)) + t for p, t in names.items())
        for number, data in enumerate(buffers):
            head = struct.pack("<II", len(names), len(text))
            (out / f"{name}{number}.xz").write_bytes(lzma.compress(head + text + data))
    return records


def costs(cupti, add_one, x, y):
    import torch

    from tkdebug.runtime.cuda import driver_api

    say("== host us a launch, 20000 launches, alternating")
    push = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint64)(
        ctypes.cast(cupti.lib.cuptiActivityPushExternalCorrelationId, ctypes.c_void_p).value
    )
    pop = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(
        ctypes.cast(cupti.lib.cuptiActivityPopExternalCorrelationId, ctypes.c_void_p).value
    )
    capturing = driver_api.raw_function(
        "cuStreamIsCapturing", ctypes.c_void_p, ctypes.c_void_p, keeps_gil=True
    )
    answer = ctypes.c_int()
    where = ctypes.addressof(answer)

    def plain(n):
        for _ in range(n):
            add_one[(4,)](x, y, 1024, B=256)

    def external(n):
        for i in range(n):
            push(3, i)
            add_one[(4,)](x, y, 1024, B=256)
            pop(3, None)

    def asked(n):
        for _ in range(n):
            capturing(0, where)
            add_one[(4,)](x, y, 1024, B=256)

    variants = {
        "none": ((), (), plain),
        "kernel": ((KERNEL,), (), plain),
        "kernel+memcpy+memset": ((KERNEL, MEMCPY, MEMSET), (), plain),
        "kernel+driver(launch)": ((KERNEL,), (LAUNCH_KERNEL_EX,), plain),
        "kernel+driver(all)": ((KERNEL, DRIVER), (), plain),
        "kernel+external+driver(launch)": ((KERNEL, EXTERNAL), (LAUNCH_KERNEL_EX,), external),
        "kernel+external": ((KERNEL, EXTERNAL), (), external),
        "none+is_capturing": ((), (), asked),
    }
    times = collections.defaultdict(list)
    counts = {}
    for _ in range(5):
        for name, (kinds, calls, launch) in variants.items():
            cupti.enable(*kinds)
            for call in calls:
                cupti.call("cuptiActivityEnableDriverApi", call, 1)
            launch(200)
            torch.cuda.synchronize()
            cupti.flush()
            start = time.perf_counter()
            for _ in range(10):
                launch(400)
            times[name].append((time.perf_counter() - start) / 4000 * 1e6)
            torch.cuda.synchronize()
            start = time.perf_counter()
            buffers = cupti.flush()
            flushed = time.perf_counter() - start
            counts[name] = (sum(map(len, buffers)) // 4000, round(flushed * 1e3, 2))
            cupti.disable(*kinds)
            for call in calls:
                cupti.call("cuptiActivityEnableDriverApi", call, 0)
            cupti.flush()
    for name, found in times.items():
        say(f"{name:32} {statistics.median(found):7.2f} us  least {min(found):7.2f}  "
            f"(bytes a launch, flush ms) {counts[name]}")  # fmt: skip
    cupti.enable(KERNEL, EXTERNAL)
    external(3)
    torch.cuda.synchronize()
    say("kernel+external alone gives")
    show(cupti.records(cupti.flush()))
    cupti.disable(KERNEL, EXTERNAL)


def events(cupti, add_one, spin, x, y):
    import torch

    say("== event pairs against CUPTI: ns of the pair, minus CUPTI's")

    def pairs(work, n=60):
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(n)]
        for start, end in marks:
            start.record()
            work()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e6 for start, end in marks]

    def spread(values):
        if not values:
            return "none"
        q = sorted(values)
        return [round(q[int(f * (len(q) - 1))]) for f in (0, 0.1, 0.5, 0.9, 1)]

    works = {
        "nothing": lambda: None,
        "empty": lambda: add_one[(4,)](x, y, 1024, B=256),
        "spin10": lambda: spin[(64,)](x, y, 1 << 16, 10, B=1024),
        "spin100": lambda: spin[(64,)](x, y, 1 << 16, 100, B=1024),
        "spin1000": lambda: spin[(64,)](x, y, 1 << 16, 1000, B=1024),
        "spin10000": lambda: spin[(64,)](x, y, 1 << 16, 10000, B=1024),
    }
    for on in (True, False):
        if on:
            cupti.enable(KERNEL)
        for busy in (False, True):
            for name, work in works.items():
                work()
                torch.cuda.synchronize()
                cupti.flush()
                if busy:
                    # Everything is queued behind this: the GPU, not the host, sets the pace.
                    torch.cuda._sleep(20_000_000)
                found = pairs(work)
                own = []
                if on:
                    fields = [
                        kernel_fields(p) for k, p in cupti.records(cupti.flush()) if k == KERNEL
                    ]
                    own = [f["ns"] for f in fields if "spin_kernel" not in f["name"]][-60:]
                say(f"cupti {on!s:5} busy {busy!s:5} {name:10} pair", spread(found), "cupti",
                    spread(own), "least, 10 %, median, 90 %, most")  # fmt: skip
        cupti.disable(KERNEL)


def profiler(cupti, add_one, x, y):
    import torch
    from torch.profiler import ProfilerActivity, profile

    def ours(n=7):
        for _ in range(n):
            add_one[(4,)](x, y, 1024, B=256)
        torch.cuda.synchronize()

    def count():
        return sum(k == KERNEL for k, _ in cupti.records(cupti.flush()))

    def profiled():
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
            ours()
        return sum("add_one" in e.name for e in prof.events() if "CUDA" in str(e.device_type))

    def subscribe(keep=False):
        handle = ctypes.c_void_p()
        status = cupti.call("cuptiSubscribe", ctypes.byref(handle), None, None, quiet=True)
        if not status and not keep:
            cupti.call("cuptiUnsubscribe", handle)
        return status, handle

    say("== torch.profiler beside us")
    say("a subscriber there?", subscribe()[0])
    say("enable", cupti.enable(KERNEL))
    ours()
    say("alone we see", count())
    say("torch.profiler sees", profiled(), "of 7; we", count())
    say("a subscriber there now?", subscribe()[0])
    ours()
    say("afterwards we see", count(), "of 7")
    say("enabled again:", cupti.enable(KERNEL))
    ours()
    say("we see", count())
    say("registered again:", cupti.register(), cupti.enable(KERNEL))
    ours()
    say("we see", count())
    say("torch.profiler sees", profiled(), "of 7; we", count())
    cupti.disable(KERNEL)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        ours()
        say("inside torch.profiler: subscriber", subscribe()[0])
        say("  register", cupti.register(), "enable", cupti.enable(KERNEL))
        ours()
        say("  we see", count())
    say(
        "torch.profiler has",
        sum("add_one" in e.name for e in prof.events()),
        "of 14, device and host",
    )
    cupti.disable(KERNEL)
    say("== with a subscriber of ours")
    status, handle = subscribe(keep=True)
    say("subscribe", status, "register", cupti.register(), cupti.enable(KERNEL))
    say("torch.profiler sees", profiled(), "of 7; we", count())
    if not status:
        say("unsubscribe", cupti.call("cuptiUnsubscribe", handle))
    say("torch.profiler sees", profiled(), "of 7; we", count())
    say(
        "flags",
        {
            n: getattr(torch.autograd.profiler, n, None)
            for n in dir(torch.autograd.profiler)
            if "enabled" in n or "_run_on" in n
        },
    )


def nvml():
    say("== NVML")
    lib = ctypes.CDLL("libnvidia-ml.so.1")
    say("init", lib.nvmlInit_v2())
    handle = ctypes.c_void_p()
    say("handle", lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)))
    name = ctypes.create_string_buffer(96)
    say("uuid", lib.nvmlDeviceGetUUID(handle, name, 96), name.value)
    import torch

    say("torch uuid", torch.cuda.get_device_properties(0).uuid)
    value, wide = ctypes.c_uint(), ctypes.c_ulonglong()
    started = time.perf_counter()
    for clock in range(4):
        say("clock", clock, lib.nvmlDeviceGetClockInfo(handle, clock, ctypes.byref(value)), value.value,
            "max", lib.nvmlDeviceGetMaxClockInfo(handle, clock, ctypes.byref(value)), value.value)  # fmt: skip
    for function in (
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    ):
        say(function, getattr(lib, function)(handle, ctypes.byref(wide)), hex(wide.value))
    say("state", lib.nvmlDeviceGetPerformanceState(handle, ctypes.byref(value)), value.value)
    say("temperature", lib.nvmlDeviceGetTemperature(handle, 0, ctypes.byref(value)), value.value)
    say("power mW", lib.nvmlDeviceGetPowerUsage(handle, ctypes.byref(value)), value.value)
    say("all of it took ms", 1e3 * (time.perf_counter() - started))


def fork_and_init():
    """Whether enabling an activity alone initialises CUDA, which would end CUDA in forked children."""
    code = (
        "import ctypes, os, sys; sys.path.insert(0, 'bench'); import cupti_facts as f\n"
        "c = f.Cupti(); c.register(); print('enable', c.enable(10))\n"
        "import torch\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try: torch.zeros(3, device='cuda'); torch.cuda.synchronize(); print('child has CUDA')\n"
        "    except Exception as e: print('child:', str(e)[:200])\n"
        "    sys.stdout.flush(); os._exit(0)\n"
        "os.waitpid(child, 0); print('records', len(c.records(c.flush())))\n"
    )
    say("== enabled, then forked")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    say(done.returncode, done.stdout[-1500:], done.stderr[-800:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=None)
    out = parser.parse_args().out
    faulthandler.enable()
    faulthandler.dump_traceback_later(150, exit=True)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    for step in (nvml, fork_and_init, lambda: facts(out)):
        try:
            step()
        except Exception:
            traceback.print_exc(file=sys.stdout)


if __name__ == "__main__":
    main()

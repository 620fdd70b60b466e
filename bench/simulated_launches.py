"""Time that hooks and recording add to a launch, without a GPU: the driver does nothing.

Everything else of a native launch is there: binding, the key, packing the arguments, a call of C.
`packed` is recorded beside a recording process, `noted` the same where nobody reads meanwhile, and
`noted, kept` with what is kept for crashes and hangs, as `tkdebug run` does. Needs no GPU.

    python bench/simulated_launches.py [--rounds 7] [--launches 20000] [--only hook]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from simulated_inductor import silent_driver

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests" / "targets")]

from schedule_backend import PRINTER, PrinterPlatform, ScheduleBackend  # noqa: E402

import tkdebug  # noqa: E402
import tkdebug.language as tl  # noqa: E402
from tkdebug.compiler.targets import register_backend  # noqa: E402
from tkdebug.instrument import add_hook  # noqa: E402
from tkdebug.instrument.recorder import Recorder  # noqa: E402
from tkdebug.instrument.recording.gpu_recording import GpuRecording  # noqa: E402
from tkdebug.instrument.recording_process.packing import LaunchPacker  # noqa: E402
from tkdebug.instrument.recording_process.ring import RingWriter  # noqa: E402
from tkdebug.records.hook_chain import HOOKS, Hook  # noqa: E402
from tkdebug.runtime.cuda.launcher import LaunchShape, make_submit  # noqa: E402
from tkdebug.runtime.cuda.packing import kernel_slots  # noqa: E402
from tkdebug.runtime.device.platform import LaunchableKernel, platform  # noqa: E402
from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT  # noqa: E402

DRIVER, _ENGINE = silent_driver()


class SilentSpan:
    """A kernel that takes 1 us, by no clock."""

    source = "events"
    settled_ns = 1

    def end(self) -> None:
        """Nothing is recorded."""

    def __call__(self, wait: bool = False) -> int:
        """Its nanoseconds."""
        return 1000


class SilentTimer:
    """Starts spans."""

    def start(self, stream: int) -> SilentSpan:
        """A span."""
        return SilentSpan()


class SilentPlatform(PrinterPlatform):
    """Launches nothing, the way CUDA launches."""

    def load(self, kernel: Any) -> LaunchableKernel:
        """The generated function of a CUDA launch, around a driver that says it is done."""
        source = kernel.src
        names = [f"v{p.num}" for p in source.fn.params if not p.is_constexpr]
        slots = kernel_slots(source.fn.arg_names, source.specs)
        shape = LaunchShape(1, PRINTER.threads_per_block, 0)
        submit = make_submit(kernel.name, slots, names, shape, _never, DRIVER)
        return LaunchableKernel(1, 1, 1, 0, PRINTER.threads_per_block, submit)

    def span_timer(self, device: int) -> SilentTimer:
        """Return a timer by events, which does nothing."""
        return SilentTimer()


def _never(status: int, is_last: bool) -> None:
    raise AssertionError(status)


@tkdebug.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Vector add."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    total = tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, total, mask=mask)


def _hooked(count: int) -> Callable[[Path], ExitStack]:
    def start(folder: Path) -> ExitStack:
        stack = ExitStack()
        for _ in range(count):
            stack.enter_context(add_hook(lambda kernel, record: None, lambda kernel, record: None))
        return stack

    return start


def _recorded(folder: Path) -> Recorder:
    return Recorder(folder / "run.tkd", output=False)


@contextmanager
def _packed(folder: Path) -> Iterator[None]:
    """Record as with CUPTI, which makes launches packed; no record of any comes."""

    def start(recording: GpuRecording, *arguments: object) -> None:
        recording.is_on = True
        HOOKS.time_natively(recorder._hook, False)  # noqa: SLF001

    with patch.object(GpuRecording, "start", start), _recorded(folder) as recorder:
        recorder._gpu_used(lambda: None)  # type: ignore[arg-type,return-value]  # noqa: SLF001
        yield


@contextmanager
def _noted(folder: Path) -> Iterator[None]:
    """Packed into memory that nobody reads and that is written over."""
    ring = RingWriter(lambda: True)
    ring._limit = sys.maxsize  # noqa: SLF001
    ring.touch()
    watcher: Any = object()
    packer = LaunchPacker(
        ring, _ignore, _ignore, watcher, bytearray(1), lambda launch: lambda: None
    )
    hook = Hook(enter=_ignore, exit=_ignore)
    HOOKS.add(hook)
    HOOKS.pack_natively(hook, packer)
    try:
        yield
    finally:
        HOOKS.remove(hook)


def _ignore(*arguments: object) -> None:
    pass


@contextmanager
def _kept(folder: Path) -> Iterator[None]:
    with _noted(folder), patch.object(IN_FLIGHT, "is_on", True):
        yield


WATCHES: dict[str, Callable[[Path], Any]] = {
    "bare": lambda folder: ExitStack(),
    "hook": _hooked(1),
    "hooks": _hooked(2),
    "eleven hooks": _hooked(11),
    "recorded": _recorded,
    "packed": _packed,
    "noted": _noted,
    "noted, kept": _kept,
}


def seconds_of_launch(launches: int) -> float:
    """Host time of a launch."""
    x, y, out = (torch.zeros(64) for _ in range(3))
    for _ in range(100):
        add[(1,)](x, y, out, 64, BLOCK=64)
    start = time.perf_counter()
    for _ in range(launches):
        add[(1,)](x, y, out, 64, BLOCK=64)
    return (time.perf_counter() - start) / launches


@contextmanager
def watched(name: str) -> Iterator[None]:
    """Launches in here are watched in that way."""
    with tempfile.TemporaryDirectory() as folder, WATCHES[name](Path(folder)):
        yield


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--launches", type=int, default=20000)
    parser.add_argument("--only", choices=list(WATCHES))
    arguments = parser.parse_args()
    chosen = list(WATCHES) if arguments.only is None else ["bare", arguments.only]
    register_backend(ScheduleBackend())
    times: dict[str, list[float]] = {name: [] for name in chosen}
    with platform(SilentPlatform()):
        for _ in range(arguments.rounds):
            for name in chosen:
                with watched(name):
                    times[name].append(seconds_of_launch(arguments.launches))
    bare = min(times["bare"])
    for name, found in times.items():
        # The least is what it takes where nothing else runs.
        added = f"+{(min(found) - bare) * 1e6:5.2f} us  {min(found) / bare:.2f}x"
        print(f"{name:>14}: {min(found) * 1e6:6.2f} us  {added}")


if __name__ == "__main__":
    main()

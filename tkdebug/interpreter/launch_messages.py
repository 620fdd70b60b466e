"""Messages about a launch while it runs: its progress, and where it was interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import FrameType

from tkdebug.compiler.dialects import scf
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.scheduler import Scheduler
from tkdebug.records.events import LaunchProgress, LaunchRecord
from tkdebug.records.hook_chain import HOOKS
from tkdebug.terminal.text import tell

_PROGRESS_EVERY_NS = 100_000_000


def announce_sequential(loop: Operation, name: str) -> None:
    """Say that programs run one after the other, since they may wait in `loop`."""
    where = loop.location.primary
    tell(
        f"{name}: its programs may wait for each other at {where.file}:{where.line}; "
        "running them one after the other"
    )


def tell_interrupted(name: str, error: KeyboardInterrupt, scheduler: Scheduler | None) -> None:
    """Say which line was running: of a loop that does not end the traceback shows nothing."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    running = _running_ops(frames)
    if not running and scheduler is not None:
        # Another thread's, whose innermost frame comes first.
        frame = scheduler.interrupted
        frames = []
        while frame is not None:
            frames.insert(0, frame)
            frame = frame.f_back
        running = _running_ops(frames)
    if not running:
        return
    place = running[-1].location.primary
    loops = [op.location.primary for op in running if scf.Loop.matches(op)]
    where = f", in the loop at line {loops[-1].line}" if loops else ""
    tell(f"{place.file}:{place.line}: {name} was interrupted here{where}")


def _running_ops(frames: Sequence[FrameType]) -> list[Operation]:
    """The ops that are run in `frames`, outermost first."""
    views = [
        frame.f_locals.get("view")
        for frame in frames
        if frame.f_code is Evaluator.run_block.__code__
    ]
    return [view.op for view in views if isinstance(view, OpView)]


def progress_reporter(
    record: LaunchRecord | None, name: str, total: int
) -> Callable[[int], None] | None:
    """What hands the number of programs that are done to the hooks; None where none wants it."""
    if record is None or not HOOKS.wants_progress():
        return None
    started_ns = last_ns = time.perf_counter_ns()

    def report(done: int) -> None:
        nonlocal last_ns
        now_ns = time.perf_counter_ns()
        # Of a short launch its end says enough.
        is_last = done == total and last_ns != started_ns
        if now_ns - last_ns < _PROGRESS_EVERY_NS and not is_last:
            return
        last_ns = now_ns
        HOOKS.progress(LaunchProgress(record.id, name, done, total, now_ns - started_ns))

    return report

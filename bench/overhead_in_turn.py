"""Time that recording adds, measured in one process: bare, CUPTI alone, and recorded, in turn.

Processes differ by more than recording takes, by the GPU's clocks and where they run; rounds of one
process do not. CUPTI alone is asked for the same records, which nobody reads. Prints medians of the
rounds' ratios to their own bare time. A recording is measured once its process has started, and
CUPTI alone as long after its start. Needs a GPU and a torch for it.

    python bench/overhead_in_turn.py [--rounds 7] [--sums]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

sys.argv[1:1] = ["--watch", "bare"]

import torch  # noqa: E402
from overhead_worker import Programs  # noqa: E402
from sections import check_gpu  # noqa: E402

from tkdebug.instrument.activities import recorded_activities  # noqa: E402
from tkdebug.instrument.cupti.library import Cupti, find_cupti  # noqa: E402
from tkdebug.instrument.cupti.recording import Collection  # noqa: E402
from tkdebug.instrument.recorder import Recorder  # noqa: E402
from tkdebug.instrument.session import Session  # noqa: E402
from tkdebug.runtime.cuda.activity_buffers import activity_buffers  # noqa: E402

NAMES = ("empty", "big", "training")
# So long until the recording process has started and read its modules, and until CUPTI sees to
# records of launches before while it takes new ones.
SETTLED_S = 0.8
SETTLED = ("CUPTI alone", "recorded")


@contextmanager
def cupti_alone(*, has_origins: bool = False) -> Iterator[None]:
    """CUPTI records what the GPU does, and what it records is thrown away.

    Args:
        has_origins: all calls of the runtime and of the driver are recorded, too.
    """
    collection = Collection(Cupti(find_cupti()), activity_buffers(), has_origins=has_origins)
    collection.start()
    try:
        yield
    finally:
        collection.stop()
        collection.take(forced=True)


@contextmanager
def recorded(folder: Path) -> Iterator[Path]:
    """A recorded run."""
    path = folder / "run.tkd"
    with Recorder(path, output=False):
        yield path


def overheads(programs: Programs, names: Sequence[str], rounds: int, folder: Path) -> None:
    """Print what each of these programs takes in each way."""
    ways: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "bare": nullcontext,
        "CUPTI, all calls": lambda: cupti_alone(has_origins=True),
        "CUPTI alone": cupti_alone,
        "recorded": lambda: recorded(folder),
    }
    for name in names:
        run = getattr(programs, name)
        times: dict[str, list[float]] = {way: [] for way in ways}
        steps: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, watch in ways.items():
                with watch():
                    settle(run, SETTLED_S if way in SETTLED else 0)
                    times[way].append(run())
                    steps[way] += programs.steps
                    torch.cuda.synchronize()
        for way, found in times.items():
            ratios = [a / b for a, b in zip(found, times["bare"], strict=True)]
            # What else the machine does makes rounds slower, never faster.
            quiet, bare = (quiet_quarter(each) for each in (found, times["bare"]))
            print(
                f"{name:>9} {way:>15}: median {statistics.median(found) * 1e6:9.2f} us, "
                f"{statistics.median(ratios):.3f}x; quietest quarter of rounds "
                f"{quiet * 1e6:9.2f} us, {quiet / bare:.3f}x",
                flush=True,
            )
        if name == "training":
            print_steps(steps)


def settle(run: Callable[[], object], seconds: float) -> None:
    """Run what is done once for a recording, and go on until `seconds` are over."""
    ends_s = time.monotonic() + seconds
    while True:
        run()
        torch.cuda.synchronize()
        if time.monotonic() >= ends_s:
            return


def print_steps(steps: dict[str, list[float]]) -> None:
    """Host time of single steps: a fast and a slow machine show as two humps, not as a mean."""
    bare = statistics.quantiles(steps["bare"], n=20)
    for way, found in steps.items():
        cuts = statistics.quantiles(found, n=20)
        texts = (
            f"{5 * (place + 1)} % {cuts[place] * 1e6:8.1f} us {cuts[place] / bare[place]:.3f}x"
            for place in (0, 4, 9, 14)
        )
        print(f"   a step {way:>15}: {', '.join(texts)}", flush=True)


def quiet_quarter(times: list[float]) -> float:
    """The median of the shortest quarter."""
    return statistics.median(sorted(times)[: max(1, len(times) // 4)])


def sums(programs: Programs, folder: Path) -> None:
    """Print kernels of training steps and their time, recorded and by torch's profiler."""
    with recorded(folder) as path:
        settle(programs.training, SETTLED_S)
        begin_ns = time.time_ns()
        programs.training()
        torch.cuda.synchronize()
    with Session.open(path) as session:
        kernels = [one for one in recorded_activities(session) if one.kind == "kernel"]
    found = [one.duration_ns for one in kernels if one.start_ns > begin_ns]
    ours_us = sum(found) / 1e3
    theirs_us, theirs = profiled(programs)
    print(f"kernels: {len(found)} of {theirs}, {ours_us:.0f} us of {theirs_us:.0f}")
    print(f"sum of kernels, recorded over torch.profiler's: {ours_us / theirs_us:.4f}")


def profiled(programs: Programs) -> tuple[float, int]:
    """Microseconds and number of kernels by torch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        programs.training()
        torch.cuda.synchronize()
    trace = Path(tempfile.mkdtemp()) / "trace.json"
    profiler.export_chrome_trace(str(trace))
    events = json.loads(trace.read_text())["traceEvents"]
    kernels = [event["dur"] for event in events if event.get("cat") == "kernel"]
    return sum(kernels), len(kernels)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--watch")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sums", action="store_true", help="also kernels, beside torch.profiler")
    parser.add_argument("--only", action="append", choices=NAMES, help="of the programs")
    arguments = parser.parse_args()
    check_gpu()
    programs = Programs()
    for name in NAMES:
        getattr(programs, name)()
    torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        overheads(programs, arguments.only or NAMES, arguments.rounds, Path(folder))
        if arguments.sums:
            # Last: behind torch's profiler CUPTI's times are wrong.
            sums(programs, Path(folder))


if __name__ == "__main__":
    main()

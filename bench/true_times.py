"""Recorded times beside raw CUPTI's: 20 kernels from 1 us to 10 ms, and one empty kernel often.

The same launches are made with CUPTI's activity API alone, whose records are read here, and under
the recorder, whose session is read, in turn in one process. Needs a GPU.

    python bench/true_times.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tkdebug.compat import install

install("native")
sys.argv[1:1] = ["--watch", "bare"]  # as the modules of the other benchmarks want it

import torch  # noqa: E402
from kernels_native import add_kernel, empty_kernel  # noqa: E402
from overhead_in_turn import recorded  # noqa: E402
from sections import check_gpu  # noqa: E402

import tkdebug.language as tl  # noqa: E402
from tkdebug import jit  # noqa: E402
from tkdebug.instrument.cupti.layouts import CONCURRENT_KERNEL, records_by_kind  # noqa: E402
from tkdebug.instrument.cupti.library import Cupti, find_cupti  # noqa: E402
from tkdebug.instrument.cupti.recording import Collection  # noqa: E402
from tkdebug.instrument.session import Session  # noqa: E402
from tkdebug.runtime.cuda.activity_buffers import activity_buffers  # noqa: E402

Runs = list[Callable[[], object]]
REPEATS = 5
EMPTY_LAUNCHES = 2000
# Within 2 % or 50 ns of raw CUPTI's.
MOST_RATIO, MOST_NS = 0.02, 50.0


@jit
def spin(out_ptr, times, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = offs.to(tl.float32)
    for _ in range(times):
        value = tl.exp(value) * 0.5
    tl.store(out_ptr + offs, value)


def kernels() -> dict[str, Callable[[], object]]:
    """The 20 kernels by name: ten that compute and ten that move memory."""
    small = torch.zeros(1 << 17, device="cuda")
    big = [torch.zeros(1 << 28, device="cuda") for _ in range(3)]
    found: dict[str, Callable[[], object]] = {}

    def spinning(times: int) -> Callable[[], object]:
        return lambda: spin[(128,)](small, times, BLOCK=1024)

    def adding(count: int) -> Callable[[], object]:
        return lambda: add_kernel[((count + 1023) // 1024,)](*big, count, BLOCK=1024)

    for step in range(10):
        times = int(4 * 3.4**step)
        found[f"spin {times}"] = spinning(times)
    for step in range(10):
        count = 1 << (10 + 2 * step)
        found[f"add {count}"] = adding(count)
    return found


def raw(run: Callable[[], object]) -> list[int]:
    """Durations of the kernels that `run` launches, in ns, by CUPTI alone."""
    collection = Collection(Cupti(find_cupti()), activity_buffers())
    collection.start()
    try:
        run()
        torch.cuda.synchronize()
    finally:
        collection.stop()
    found: list[tuple[int, int]] = []
    for data in collection.take(forced=True):
        records = records_by_kind(data, collection.cupti.layout).get(CONCURRENT_KERNEL)
        if records is not None:
            found += zip(
                records["start"].tolist(),
                (records["end"] - records["start"]).tolist(),
                strict=True,
            )
    return [duration for _, duration in sorted(found)]


def ours(run: Callable[[], object], folder: Path) -> list[int]:
    """Return the same by a recorded run."""
    with recorded(folder) as path:
        run()
        torch.cuda.synchronize()
    with Session.open(path) as session:
        launches = session.launches_in_order(0, 1 << 20)
        assert {one.time_source for one in launches} == {"cupti"}, "not all have CUPTI's times"
        path.unlink()
        return [one.duration_ns for one in launches]


def quantiles(durations: list[int]) -> str:
    """Some of them, in ns."""
    ordered = sorted(durations)
    at = {
        f"p{part}": ordered[min(len(ordered) - 1, len(ordered) * part // 100)]
        for part in (1, 10, 50, 90, 99)
    }
    return ", ".join(f"{name} {value}" for name, value in at.items())


def main() -> int:
    """Measure and print; 1 where a kernel is further off than allowed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--watch")
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    check_gpu()
    named = kernels()
    for run in named.values():
        run()
    torch.cuda.synchronize()
    here: dict[str, list[int]] = {name: [] for name in named}
    there: dict[str, list[int]] = {name: [] for name in named}

    def all_of_them() -> None:
        for run in named.values():
            for _ in range(REPEATS):
                run()

    def empty() -> None:
        for _ in range(EMPTY_LAUNCHES):
            empty_kernel[(1,)](*[torch_small] * 3, 64, 64, BLOCK=64)

    torch_small = torch.zeros(64, device="cuda")
    empty()
    off = 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for found, measure in ((there, raw), (here, lambda run: ours(run, Path(folder)))):
                durations = measure(all_of_them)
                assert len(durations) == len(named) * REPEATS
                for place, name in enumerate(named):
                    found[name] += durations[place * REPEATS : (place + 1) * REPEATS]
        for name in named:
            mine, theirs = statistics.median(here[name]), statistics.median(there[name])
            is_off = abs(mine - theirs) > max(MOST_RATIO * theirs, MOST_NS)
            off += is_off
            print(
                f"{name:>16}: raw CUPTI {theirs / 1e3:10.3f} us, recorded {mine / 1e3:10.3f} us, "
                f"{mine / theirs:.4f}{'  OFF' if is_off else ''}"
            )
        for what, found_empty in (
            ("raw CUPTI", raw(empty)),
            ("recorded", ours(empty, Path(folder))),
        ):
            print(f"empty kernel, {what}: {quantiles(found_empty)} ns of {len(found_empty)}")
    print(f"{len(named) - off} of {len(named)} within 2 % or 50 ns")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())

"""A million launches recorded: memory of the script, write rate, size, and what reading them takes.

The launches are packed as beside a GPU, of a kernel that is not there. Needs no GPU.

    python bench/million.py [--launches 1000000]
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "instrument")]

from packed_launches import Kernel, note, start  # noqa: E402

from tkdebug.instrument.report import write_report  # noqa: E402
from tkdebug.instrument.session import Session  # noqa: E402

_PAGE_BYTES = resource.getpagesize()


def resident_mb() -> float:
    """Return the private memory of this process in MB."""
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * _PAGE_BYTES / 1e6


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long it took."""
    before = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - before:.2f} s", flush=True)


def main() -> None:
    """Record, read, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--launches", type=int, default=1_000_000)
    count = parser.parse_args().launches
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.tkd"
        recorder, kernel = start(path), Kernel()
        for n in range(1000):
            note(recorder, kernel, n=n)
        before_mb, before_s = resident_mb(), time.perf_counter()
        for n in range(count - 1000):
            note(recorder, kernel, n=n % 1000)
        noted_s = time.perf_counter() - before_s
        added_mb = resident_mb() - before_mb
        recorder.stop(0)
        stored_s = time.perf_counter() - before_s
        print(f"noted: {noted_s / count * 1e6:.2f} us a launch, {added_mb:+.1f} MB of memory")
        print(f"stored: {count / stored_s:,.0f} launches/s")
        size_bytes = os.stat(path).st_size
        print(f"size: {size_bytes / 1e6:.0f} MB, {size_bytes / count:.0f} bytes a launch")
        with timed("open"), Session.open(path) as session:
            assert session.launch_count() == count
        with Session.open(path) as session:
            for name, suffix in (("text", "txt"), ("json", "json"), ("chrome-trace", "trace")):
                report = Path(folder) / f"report.{suffix}"
                with timed(name):
                    write_report(session, report, name, kept=True)
                print(f"    {os.stat(report).st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()

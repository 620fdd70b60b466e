"""Time from a key to its picture in the TUI: a million launches, 10,000 faults, a growing run.

Needs no GPU and no terminal. A key's time ends with the last picture before nothing is left to do:
by the clock, and as processor time of the thread that draws, which other programs disturb less.

    python bench/tui.py [--launches 1000000] [--faults 10000]
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from textual import events
from textual.app import App

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / one) for one in ("", "instrument", "tui"))]

import tui_sample  # noqa: E402
from packed_launches import Kernel, note, start  # noqa: E402

from tkdebug.instrument.session import Session  # noqa: E402
from tkdebug.records.hook_chain import HOOKS  # noqa: E402
from tkdebug.tui.app import TkdebugApp  # noqa: E402
from tkdebug.tui.home.pane import HomePane  # noqa: E402
from tkdebug.tui.live import answer_keys_soon  # noqa: E402
from tkdebug.tui.tabs import PaneTabs  # noqa: E402

PER_SECOND = 10_000
SIZES = ((120, 35), (80, 24))
KEYS = (
    *("n", "n", "p", "j", "j", "k", "J", "f", "escape", "s", "right", "right", "[", "]", "u", "g"),
    *("1", "down", "down", "end", "home", "2", "down", "down", "end"),
    *("3", "down", "s", "0", "n", "j"),
)
NAMES = {"[": "left_square_bracket", "]": "right_square_bracket"}


class Drawn:
    """The times of the latest picture: of the clock, and of the processor in this thread."""

    def __init__(self) -> None:
        self.at_s = self.busy_s = 0.0

    def note(self) -> None:
        """Note that a picture is finished."""
        self.at_s, self.busy_s = time.perf_counter(), time.thread_time()


@contextmanager
def noting_pictures() -> Iterator[Drawn]:
    """Have all pictures noted."""
    drawn, display = Drawn(), App._display  # noqa: SLF001

    def noted(app: App[object], *arguments: object) -> None:
        display(app, *arguments)  # type: ignore[arg-type]
        drawn.note()

    App._display = noted  # type: ignore[method-assign, assignment]  # noqa: SLF001
    try:
        yield drawn
    finally:
        App._display = display  # type: ignore[method-assign]  # noqa: SLF001


async def latencies(path: Path, size: tuple[int, int]) -> list[tuple[str, float, float]]:
    """Return each key with its time and its processor time, in ms."""
    answer_keys_soon()
    found = []
    with noting_pictures() as drawn, Session.open(path) as session:
        app = TkdebugApp(session, opens=HomePane.TAB)
        async with app.run_test(size=size) as pilot:
            home = app.query_one(PaneTabs).get(HomePane)
            # One that grows is read again and again.
            while home.index is None or (home.is_reading and session.run().end_ns is not None):
                await pilot.pause(0.05)
            for key in KEYS * 2:
                await pilot.pause(0.05)
                begin_s, busy_s = time.perf_counter(), time.thread_time()
                name = NAMES.get(key, key)
                app.post_message(events.Key(name, key if len(key) == 1 else None))
                await pilot.pause()
                if drawn.at_s > begin_s:
                    took = 1e3 * (drawn.at_s - begin_s), 1e3 * (drawn.busy_s - busy_s)
                    found.append((key, *took))
    return found


def write_many(path: Path, count: int) -> None:
    """Write launches as fast as they can be."""
    recorder, kernel = start(path), Kernel()
    for number in range(count):
        note(recorder, kernel, n=number % 1000)
    recorder.stop(0)


def write_evenly(path: Path, seconds: float) -> None:
    """Write launches at an even rate."""
    recorder, kernel = start(path), Kernel()
    begin_s, number = time.perf_counter(), 0
    while (now_s := time.perf_counter() - begin_s) < seconds:
        while number < now_s * PER_SECOND:
            note(recorder, kernel, n=number % 1000)
            number += 1
        time.sleep(0.002)
    recorder.stop(0)


def write_faults(path: Path, count: int) -> None:
    """Write a run whose faults all differ."""

    def during(file: Path) -> None:
        for number in range(count):
            HOOKS.fault(replace(tui_sample.fault(file), tensor=f"t{number}"))

    tui_sample.write_run(path, faults=False, during=during)


def row(name: str, size: tuple[int, int], found: list[tuple[str, float, float]]) -> str:
    """Return a row of the table: the median, the 95th percentile, and the slowest key."""

    def at(part: float, which: int) -> float:
        times = sorted(one[which] for one in found)
        return float(times[min(len(times) - 1, int(part * len(times)))])

    slowest = max(found, key=lambda one: one[2])
    cells = f"{at(0.5, 2):.0f} | {at(0.95, 2):.0f} | {at(0.5, 1):.0f} | {at(0.95, 1):.0f}"
    return f"| {name} | {size[0]}x{size[1]} | {cells} | {slowest[0]} ({slowest[2]:.0f}) |"


def measured(name: str, folder: str, write: Callable[[Path], None]) -> None:
    """Write a session and print its rows."""
    path = Path(folder) / "run.tkd"
    write(path)
    for size in SIZES:
        print(row(name, size, asyncio.run(latencies(path, size))), flush=True)
    path.unlink()


def measured_live(folder: str) -> None:
    """Print the rows of a session that grows."""
    for size in SIZES:
        path = Path(folder) / f"live-{size[0]}.tkd"
        writer = subprocess.Popen([sys.executable, __file__, "--write", str(path)])
        try:
            while not path.exists():
                time.sleep(0.1)
            time.sleep(1)
            found = asyncio.run(latencies(path, size))
            with Session.open(path) as session:
                run = session.run()
                rate = 1e9 * session.launch_count() / (time.time_ns() - run.start_ns)
            print(row(f"{rate:,.0f} launches a second", size, found), flush=True)
        finally:
            writer.kill()
            writer.wait()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--launches", type=int, default=1_000_000)
    parser.add_argument("--faults", type=int, default=10_000)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None:
        write_evenly(options.write, 600)
        return
    print("| session | size | busy p50, ms | p95 | clock p50 | p95 | slowest key (busy) |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        measured("an ordinary one", folder, tui_sample.write_run)
        launches, faults = options.launches, options.faults
        measured(f"{launches:,} launches", folder, lambda path: write_many(path, launches))
        measured(f"{faults:,} faults", folder, lambda path: write_faults(path, faults))
        measured_live(folder)


if __name__ == "__main__":
    main()

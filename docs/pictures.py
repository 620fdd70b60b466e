"""Makes the pictures of README and the site, docs/*.svg, of runs of the examples.

python docs/pictures.py          # all; `debug`: that of the Debug pane alone
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text
from textual.pilot import Pilot

from tkdebug.cli.command_line import parse
from tkdebug.cli.runs.live import child_command
from tkdebug.cli.runs.request import run_request
from tkdebug.debugger.remote.records import Wire
from tkdebug.instrument.session import Session
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.debug.link import DebugLink
from tkdebug.tui.debug.source import DebugSource
from tkdebug.tui.live import DebugEnds
from tkdebug.tui.script.child import Child
from tkdebug.tui.session.follow import AwaitedSession

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SIZE = (132, 34)
FAULTY = "examples/missing_mask.py"
DEBUGGED, DEBUGGED_LINE = "examples/matmul.py", 73
# What is pressed to reach the pane of each picture, and the run that it shows.
PANES = {
    # The faults, and from the first one to its line in the kernel.
    "tui.svg": ("fault", ["2", "enter"]),
    # The passes, all of them: the first ones, and what the second one did.
    "passes.svg": ("matmul", ["5", *["down"] * 6]),
    # The kernel, past LLVM IR and PTX to SASS, from the line of the dot.
    "sass.svg": ("matmul", ["3", "S", ":", "7", "3", "enter", "escape"]),
}


def tkdebug(*arguments: str) -> str:
    """Return the output of a command on stderr, in colour."""
    done = subprocess.run(
        [sys.executable, "-m", "tkdebug", *arguments],
        cwd=ROOT,
        env={**os.environ, "FORCE_COLOR": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.stderr


def terminal(command: str, text: str) -> str:
    """A terminal in which `command` printed `text`, as SVG."""
    console = Console(record=True, width=SIZE[0], file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text.from_ansi(text))
    return console.export_svg(title=command)


async def pane(session: Path, keys: Sequence[str], title: str) -> str:
    """The TUI on a recorded run after some keys, as SVG."""
    with Session.open(session) as opened:
        app = TkdebugApp(opened)
        async with app.run_test(size=SIZE) as pilot:
            await settle(pilot)
            for key in keys:
                await pilot.press(key)
                await settle(pilot)
            return app.export_screenshot(title=title)


async def debug_pane(folder: Path, keys: Sequence[str], title: str) -> str:
    """The TUI on a script that is stopped in a kernel, after some keys, as SVG."""
    session, ends = folder / "debug.tkd", DebugEnds.made()
    _, options = parse(["run", "--no-tui", "--wait-for-pane", "--mode=interpret", DEBUGGED])
    own = ["--temporary", f"--pane-socket={ends.theirs.fileno()}"]
    command = child_command(run_request(options), session, own)
    child = Child(command, rows=24, columns=80, descriptors=(ends.theirs.fileno(),))
    ends.theirs.close()
    link = DebugLink(Wire(ends.ours), [f"b {DEBUGGED_LINE}, k == 96 and program[0] == 1", "c"])
    app = TkdebugApp(AwaitedSession(session), child, link, opens="debug")
    try:
        async with app.run_test(size=(132, 40)) as pilot:
            while app.query_one(DebugSource).lit != {DEBUGGED_LINE}:
                await pilot.pause(0.1)
            for key in keys:
                await pilot.press(key)
                await settle(pilot)
            return app.export_screenshot(title=title)
    finally:
        child.stop()
        child.close()
        app.close_session()


async def settle(pilot: Pilot[None]) -> None:
    """Give the threads of the app time to read and the panes time to show."""
    for _ in range(10):
        await pilot.pause(0.1)


def write(name: str, svg: str) -> None:
    """Write one picture; its bytes depend neither on the machine nor on the checkout's path."""
    # The fonts would be fetched from elsewhere; any monospaced one does.
    svg = re.sub(r"@font-face\s*\{[^}]*\}", "", svg)
    svg = svg.replace(str(ROOT).replace("/", "&#x2F;") + "&#x2F;", "").replace(f"{ROOT}/", "")
    svg = re.sub(r"(process&#160;)\d+", r"\g<1>4711", svg)
    # rich makes the ids of a picture from its content and the time.
    unique = re.search(r"terminal-\d+", svg)
    if unique:
        svg = svg.replace(unique[0], f"terminal-{Path(name).stem}")
    (DOCS / name).write_text(svg, encoding="utf-8")
    print(f"wrote docs/{name}")


def draw_debugger() -> None:
    """The Debug pane alone."""
    title = f"tkdebug debug --tui {DEBUGGED}"
    with tempfile.TemporaryDirectory() as folder:
        write("debug.svg", asyncio.run(debug_pane(Path(folder), ["n"], title)))


def main() -> None:
    """Run, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="?", choices=["debug"], help="the Debug pane's alone")
    only = parser.parse_args().only
    draw_debugger()
    if only:
        return
    interpreted = ("run", "--mode", "interpret")
    said = tkdebug(*interpreted, FAULTY)
    # That the machine which draws has no GPU is no part of the picture.
    lines = [line for line in said.splitlines() if "no CUDA device" not in line]
    write("fault.svg", terminal(f"tkdebug run --mode interpret {FAULTY}", "\n".join(lines)))
    with tempfile.TemporaryDirectory() as folder:
        runs = {name: Path(folder) / f"{name}.tkd" for name in ("fault", "matmul")}
        tkdebug(*interpreted, "-o", str(runs["fault"]), FAULTY)
        to_sass = ("--quick", "--target", "sm_90a")
        tkdebug(*interpreted, *to_sass, "-o", str(runs["matmul"]), "examples/matmul.py")
        for name, (run, keys) in PANES.items():
            write(name, asyncio.run(pane(runs[run], keys, f"tkdebug view {run}.tkd")))


if __name__ == "__main__":
    main()

"""Makes the pictures of README and the site, docs/*.svg and docs/home.png, of runs of the examples.

python docs/pictures.py                     # all that need no GPU
python docs/pictures.py home cause          # these, by their names in PICTURES
python docs/pictures.py timeline --session run.tkd checks --printed run.txt

What the last two are drawn of is recorded on a GPU:

tkdebug run --no-tui --timeline matmul_kernel -o run.tkd examples/matmul.py
FORCE_COLOR=1 tkdebug run --no-tui --mode native examples/missing_mask.py 2> run.txt
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from animation import Step, animated
from rich.console import Console
from rich.text import Text
from textual.pilot import Pilot

from tkdebug.cli.command_line import parse
from tkdebug.cli.commands.demo import recorded_demo
from tkdebug.cli.runs.live import child_command
from tkdebug.cli.runs.request import run_request
from tkdebug.debugger.remote.records import Wire
from tkdebug.instrument.home.model import model_of
from tkdebug.instrument.report import render
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
WRONG = "examples/debugging/softmax_axis.py"
PAGE_SIZE = {"width": 1320, "height": 800}
# What is pressed to reach the pane of each picture.
PANES = {
    # Home, at the fault of the matmul: the finding after the first.
    "tui.svg": ["n"],
    # The passes, all of them: the first ones, and what the layouts' one did.
    "passes.svg": ["5", *["down"] * 6],
    # The kernel, past LLVM IR and PTX to SASS, from the line of the dot.
    "sass.svg": ["3", "S", ":", "5", "1", "enter"],
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
        app = TkdebugApp(opened, opens="home")
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
    """Wait until the app has read and shown what it was asked for."""
    for _ in range(5):
        await pilot.pause(0.1)
    # The one that follows the session never ends, nor do those of a script that runs.
    for _ in range(300):
        if not any(one.is_running and one.name != "follow" for one in pilot.app.workers):
            break
        await pilot.pause(0.1)
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


def draw_debug() -> None:
    """The Debug pane."""
    title = f"tkdebug debug --tui {DEBUGGED}"
    with tempfile.TemporaryDirectory() as folder:
        write("debug.svg", asyncio.run(debug_pane(Path(folder), ["n"], title)))


def draw_fault() -> None:
    """A fault, as it is printed."""
    interpreted = ("run", "--mode", "interpret")
    write(
        "fault.svg",
        terminal(f"tkdebug run --mode interpret {FAULTY}", said(*interpreted, FAULTY)),
    )


def draw_checks() -> None:
    """A fault, as a run on a GPU printed it."""
    if OPTIONS.printed is None:
        raise SystemExit("checks: needs --printed, what the run on a GPU wrote to stderr")
    printed = OPTIONS.printed.read_text(encoding="utf-8")
    write("checks.svg", terminal(f"tkdebug run --mode native {FAULTY}", without_machine(printed)))


def draw_panes() -> None:
    """Panes of the TUI, on the run that `tkdebug demo` shows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demo.tkd"
        path.write_bytes(recorded_demo())
        for name, keys in PANES.items():
            write(name, asyncio.run(pane(path, keys, "tkdebug demo")))


def draw_home() -> None:
    """The page of the run that `tkdebug demo` shows, at the fault of its matmul."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demo.html"
        tkdebug("demo", "-o", str(path))
        shoot(path, "home.png", ["n"])


def draw_timeline() -> None:
    """The page of a run with timelines, at the kernel that has them."""
    if OPTIONS.session is None:
        raise SystemExit("timeline: needs --session, of a run with --timeline on a GPU")
    with tempfile.TemporaryDirectory() as folder, Session.open(OPTIONS.session) as session:
        model = model_of(session)
        timed = [k for k in model.kernels if k.variants and "timeline" in k.variants[0].heats]
        if not timed:
            raise SystemExit(f"{OPTIONS.session}: no launch has a timeline")
        name = {one.file: one.name for one in model.files}[timed[0].file]
        lines = (session.source_text(timed[0].file) or "").splitlines()
        def_line = next(
            n for n in range(timed[0].line, len(lines)) if lines[n - 1].startswith("def ")
        )
        path = Path(folder) / "timeline.html"
        path.write_text("".join(render(session, "html")), encoding="utf-8")
        shoot(path, "timeline.png", [], f"#{timed[0].name}/0/{name}:{def_line}")


def draw_cause() -> None:
    """A wrong number to its cause, as it is typed: each output is that of its command."""
    edit = r"s/axis=0)$/axis=1)/; s/total\[None, :\]/total[:, None]/"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / Path(WRONG).name
        shutil.copyfile(ROOT / WRONG, copy)
        run = ["tkdebug", "run", copy.name]
        why = [
            *("tkdebug", "debug", "-c", "b end softmax", "-c", "c"),
            *("-c", "why out[15, 14]", "-c", "q", copy.name),
        ]
        steps = []
        for words, reading_s in (
            (run, 9),
            (why, 11),
            (["sed", "-i", edit, copy.name], 1),
            (run, 7),
        ):
            typed = shlex.join(words)
            steps.append(Step(typed, answer(words, Path(folder)), reading_s))
        play("cause.svg", "a wrong number to its cause", steps, 34)


def draw_stepping() -> None:
    """All programs of a matmul stopped, stepped forward and back, as typed into the debugger."""
    commands = ["b 73 if k == 96", "c", "p acc", "n", "p acc", "rn", "p acc", "rc", "programs"]
    words = ["tkdebug", "debug", *(word for one in commands for word in ("-c", one)), "-c", "q"]
    said, *answers = re.split(
        r"^\(tkdebug\) (.*)\n", answer([*words, DEBUGGED], ROOT), flags=re.MULTILINE
    )
    first = "\n".join(line for line in said.splitlines() if line.startswith((">", "->")))
    steps = [Step(f"tkdebug debug {DEBUGGED}", first, 2)]
    for command, printed in zip(answers[::2], answers[1::2], strict=False):
        steps.append(Step(command, printed.rstrip("\n"), 2.5, "(tkdebug) "))
    steps[-1] = replace(steps[-1], reading_s=6)
    play("stepping.svg", "tile programs, stepped back and forth", steps, 30)


def play(name: str, title: str, steps: Sequence[Step], rows: int) -> None:
    """Write an animation."""
    (DOCS / name).write_text(animated(title, steps, 104, rows), encoding="utf-8")
    print(f"wrote docs/{name}")


def answer(words: Sequence[str], folder: Path) -> str:
    """Return what a command in `folder` prints in a terminal without a GPU."""
    argv = [sys.executable, "-m", *words] if words[0] == "tkdebug" else [*words]
    done = subprocess.run(
        argv,
        cwd=folder,
        env={**os.environ, "FORCE_COLOR": "1", "TKDEBUG_MODE": "interpret"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return without_machine(done.stdout.replace(f"{folder}/", ""))


def said(*arguments: str) -> str:
    """Return the output of a command on stderr, less what is the machine's."""
    return without_machine(tkdebug(*arguments))


def without_machine(text: str) -> str:
    """Return a text without the line that there is no GPU, and without where packages lie."""
    text = text.replace(f"{sysconfig.get_paths()['purelib']}/", "")
    return "\n".join(line for line in text.splitlines() if "no CUDA device" not in line)


def shoot(page: Path, name: str, keys: Sequence[str], place: str = "") -> None:
    """Write a picture of a page, after some keys."""
    # Of no extra: pip install playwright pillow
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = os.environ.get("TKDEBUG_CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        view = browser.new_page(viewport=PAGE_SIZE, color_scheme="light")
        view.goto(page.as_uri() + place)
        view.wait_for_selector("body[data-ready]")
        for key in keys:
            view.keyboard.press(key)
        shot = view.screenshot()
        browser.close()
    # 256 colours are all that a page has, and half the size.
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        DOCS / name, optimize=True
    )
    print(f"wrote docs/{name}")


PICTURES = {
    "home": draw_home,
    "cause": draw_cause,
    "stepping": draw_stepping,
    "fault": draw_fault,
    "debug": draw_debug,
    "panes": draw_panes,
    "checks": draw_checks,
    "timeline": draw_timeline,
}
ON_A_GPU = ("checks", "timeline")
OPTIONS = argparse.Namespace(session=None, printed=None)


def main() -> None:
    """Draw what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PICTURES)}")
    parser.add_argument("--session", type=Path, help="for timeline: recorded with --timeline")
    parser.add_argument("--printed", type=Path, help="for checks: what a run wrote to stderr")
    parser.parse_intermixed_args(namespace=OPTIONS)
    for name in OPTIONS.names or [name for name in PICTURES if name not in ON_A_GPU]:
        PICTURES[name]()


if __name__ == "__main__":
    main()

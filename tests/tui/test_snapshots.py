"""Screens as SVG, kept in tests/golden/tui to be looked at in a browser.

Run with UPDATE_GOLDEN=1 to write them again; look at each that has changed.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pytest
import tui_sample
from pilot_support import screen_text, until
from stopped_kernels import line
from test_debug_pane import at, debugging

from tkdebug.instrument.session import Session
from tkdebug.tui.app import TkdebugApp

pytestmark = pytest.mark.skipif(
    version("textual").split(".")[0] != "8", reason="kept as Textual 8 draws them"
)
GOLDEN = Path(__file__).parents[1] / "golden" / "tui"
_LOOKS = 100
BEGIN_NS = 1_700_000_000_000_000_000
# Keys to a screen, its size, and what is there last.
SCREENS = {
    "home-120x35": ("0", (120, 35), "add mask=offsets < n"),
    "timeline-120x35": ("0]]", (120, 35), "launch 2 add_kernel"),
    "faults-200x50": ("2", (200, 50), "fix  add mask"),
    "home-200x50": ("0g", (200, 50), "add mask=offsets < n"),
    "faults-80x24": ("2", (80, 24), "fix  add mask"),
    "home-80x24": ("0g", (80, 24), "add mask=offsets < n"),
}


def drawn(app: TkdebugApp) -> str:
    """The screen as an SVG of its text and colours, without names, fonts and clips of its own."""
    svg = app.export_screenshot(title="tkdebug", simplify=True)
    svg = re.sub(r"terminal-\d+-", "", svg)
    svg = re.sub(r"<!--.*?-->|\s*@font-face {.*?}|<defs>.*?</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:clip-path|textLength)="[^"]*"', "", svg)
    svg = svg.replace("</style>", "text { white-space: pre }</style>", 1)
    svg = svg.replace("&#160;", " ").replace("Fira Code, ", "").replace("/>", "/>\n")
    svg = re.sub(r" +(?=</text>)", "", svg.replace("</text>", "</text>\n"))
    svg = re.sub(r'<text class="r\d+" x="[^"]*" y="[^"]*">\s*</text>\n', "", svg)
    return re.sub(r"\n\s+", "\n", svg)


async def check(name: str, pilot) -> None:
    """Wait for a screen to look as it was kept."""
    file = GOLDEN / f"{name}.svg"
    if os.environ.get("UPDATE_GOLDEN"):
        await pilot.pause(0.5)
        file.write_text(drawn(pilot.app))
    kept = file.read_text()
    for _ in range(_LOOKS):
        if drawn(pilot.app) == kept:
            return
        await pilot.pause(0.1)
    assert drawn(pilot.app) == kept, f"{file}: UPDATE_GOLDEN=1 writes it again; look at it"


async def test_screens_of_a_run_look_as_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for paths without a folder
    path = tui_sample.write_run(Path("run.tkd"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE run SET start_ns = {BEGIN_NS}, end_ns = {BEGIN_NS + 10**8}")
        connection.execute(f"UPDATE launches SET start_ns = {BEGIN_NS} + seq * 20000000")
        connection.commit()
    with Session.open(path) as session:
        app = TkdebugApp(session, opens="home")
        async with app.run_test(size=(120, 35)) as pilot:
            await until(pilot, lambda: "%x = tt.load" in screen_text(app), "the model")
            for name, (keys, size, last) in SCREENS.items():
                if app.size != size:
                    await pilot.resize_terminal(*size)
                names = {"]": "right_square_bracket"}
                await pilot.press(*(names.get(key, key) for key in keys))
                if name.startswith("timeline"):
                    await pilot.press("right", "right")
                await until(pilot, lambda last=last: last in screen_text(app), name)
                await check(name, pilot)


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_debug_pane_looks_as_kept(tmp_path, size):
    async with debugging(tmp_path, f"b {line('add')}", "c", size=size) as (app, pilot):
        await at(pilot, "add")
        await until(pilot, lambda: "█ to " in screen_text(app), "the map")
        await check(f"debug-{size[0]}x{size[1]}", pilot)

"""The watches pane: values by place and time, the tile at the cursor, and why there are none."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import tui_sample
from pilot_support import screen_text, until

from tkdebug.errors import Frame
from tkdebug.instrument.session import Session
from tkdebug.records.hook_chain import HOOKS
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.widgets.code_view import CodeView
from tkdebug.watches.records import WatchedValue, packed


def value(file, line, program, iteration, tile=(), nan=0):
    return WatchedValue(
        watch=f"kernels.py:{line}:x",
        kernel="add_kernel",
        name="x",
        type="fp32[2, 3]",
        frames=(Frame(str(file), line, "add_kernel"),),
        launch_id=1,
        program_id=(program, 0, 0),
        iteration=iteration,
        shape=(2, 3),
        nan=nan,
        inf=0,
        zeros=1,
        minimum=-2.5,
        maximum=4.0,
        mean=0.5,
        histogram=((-1, 2), (2, 3)),
        tile=packed(tile) if tile else b"",
    )


@asynccontextmanager
async def shown(path, last, keys=()):
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 32)) as pilot:
            await until(pilot, lambda: app._snapshot is not None, "the session")
            await pilot.press("8")
            for key, text in keys:
                await until(pilot, lambda text=text: text in screen_text(app), text)
                await pilot.press(key)
            await until(pilot, lambda: last in screen_text(app), last)
            yield app


async def test_values_come_by_line_program_and_iteration(tmp_path):
    def during(file):
        HOOKS.record(value(file, 18, 0, 0))
        HOOKS.record(value(file, 16, 3, 1))
        HOOKS.record(value(file, 16, 3, 0, tile=(1.0, 2.0, -2.5, 4.0, float("nan"), 0.0), nan=1))

    path = tui_sample.write_run(tmp_path / "run.tkd", during=during)
    async with shown(path, "Watches 3") as app:
        text = screen_text(app)
        lines = [line for line in text.splitlines() if "kernels.py:1" in line]
        rows = [line.split() for line in lines if " x " in line]
        assert [row[:5] for row in rows[:3]] == [
            ["kernels.py:16", "x", "1", "3", "0"],
            ["kernels.py:16", "x", "1", "3", "1"],
            ["kernels.py:18", "x", "1", "0", "0"],
        ]
        assert "min -2.5, max 4, mean 0.5, 1 NaN, 1 zero" in text
        assert "[0]    1    2 -2.5" in text
        assert "[1]    4  nan    0" in text
        assert "2^2" in text
    async with shown(path, "%8 = arith.addf", keys=[("enter", "min -2.5")]) as app:
        assert app.query_one("#source", CodeView).line == 16


@pytest.mark.parametrize(
    ("launches", "why"),
    [(2, "nothing was watched; tkdebug run --watch"), (0, "no values: no kernel was launched")],
)
async def test_without_values_it_says_why(tmp_path, launches, why):
    path = tui_sample.write_run(
        tmp_path / "run.tkd", launches=launches, faults=False, exit_status=0
    )
    async with shown(path, why) as app:
        assert "Watches" in screen_text(app).splitlines()[1].split()

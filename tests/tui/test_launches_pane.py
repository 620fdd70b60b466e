"""The launches pane: what an autotuner chose beside the launches; and panes of a few rows."""

import math

import tui_sample
from pilot_support import notified, screen_text, until
from textual.widgets import TabbedContent

from tkdebug.errors import Frame
from tkdebug.instrument.session import Session
from tkdebug.records.events import AutotuneChoice
from tkdebug.records.hook_chain import HOOKS
from tkdebug.records.scopes import SCOPES
from tkdebug.timelines import ClockSite, WarpTimeline
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.widgets.table import Table

TIMINGS = {"BLOCK: 32": 0.0321, "BLOCK: 64": 0.0123, "BLOCK: 4096": math.inf}


def tuned(file):
    HOOKS.autotuned(AutotuneChoice("add_kernel", "(300, 'fp16')", "BLOCK: 64", TIMINGS))
    HOOKS.autotuned(AutotuneChoice("other_kernel", "(7,)", "BLOCK: 1", {}))
    HOOKS.autotuned(AutotuneChoice("add_kernel", "(400, 'fp16')", "BLOCK: 16", {}))


async def test_launch_shows_the_tunings_of_its_kernel_the_latest_first(tmp_path):
    path = tui_sample.write_run(tmp_path / "run.tkd", during=tuned)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: "autotuned for" in screen_text(app), "the tunings")
            text = screen_text(app)
    assert "(7,)" not in text
    assert text.index("(400, 'fp16')") < text.index("(300, 'fp16')")
    assert "BLOCK: 16  not timed: interpreted" in text
    lines = [line for line in text.splitlines() if "BLOCK: " in line and "not timed" not in line]
    fastest, slower, failed = lines
    assert "✓  12.3 µs  BLOCK: 64" in fastest
    assert "   32.1 µs  BLOCK: 32" in slower
    assert "    failed  BLOCK: 4096" in failed


async def test_launch_with_a_fault_says_which_and_leads_there(tmp_path):
    path = tui_sample.write_run(tmp_path / "run.tkd", launches=1)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: "✖ oob-load  kernels.py" in screen_text(app), "the fault")
            await pilot.press("x")
            await until(pilot, lambda: "called from" in screen_text(app), "its details")
            assert app.query_one(TabbedContent).active == "faults"


def timed_inside(file):
    sites = (ClockSite("tt.load", 0, (Frame(str(file), 4, "add_kernel"),)),)
    HOOKS.record(
        WarpTimeline("add_kernel", 1, (1, 1, 1), 0, 0, 3, 0, 500, 0, 1000, sites, ((250, 0),), 0)
    )


async def test_launch_with_timelines_says_where_its_time_went(tmp_path):
    path = tui_sample.write_run(tmp_path / "run.tkd", launches=1, during=timed_inside)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(160, 50)) as pilot:
            await until(pilot, lambda: "inside" in screen_text(app), "the timeline")
            text = screen_text(app)
    assert "program 0, 1 warps, up to 1,000 cycles (500 ns)" in text
    assert "75.0 %        750 cycles x 1      kernels.py:4" in text


async def test_launch_without_fault_leads_to_none(tmp_path):
    path = tui_sample.write_run(tmp_path / "run.tkd", launches=2)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: "launch 2  grid" in screen_text(app), "the launch")
            assert "oob-load" not in screen_text(app)
            await pilot.press("x")
            await until(pilot, lambda: notified(app) == ["this launch had no fault"], "the answer")


async def test_launches_are_in_sight_in_a_few_rows(tmp_path):
    def more(file):
        for number in range(8):
            tui_sample.launch(10 + number, kernel=f"kernel_{number}")

    path = tui_sample.write_run(tmp_path / "run.tkd", during=more)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(80, 40)) as pilot:
            await until(pilot, lambda: "kernel_7" in screen_text(app), "the launches")
            table = app.query_one("#launch-table", Table)
            summary = app.query_one("#summary", Table)
            await until(pilot, lambda: summary.size.height == 10, "the summary")
            await pilot.resize_terminal(80, 15)
            await until(pilot, lambda: summary.size.height == 3, "the smaller summary")
            assert table.size.height >= 3  # titles and two launches
            await until(pilot, lambda: "17  kernel_7" in screen_text(app), "the text")


def launch_in_a_scope(file):
    outer = SCOPES.enter("epoch 1")
    inner = SCOPES.enter("backward")
    tui_sample.launch(77, kernel="grad_kernel")
    SCOPES.exit(inner)
    SCOPES.exit(outer)


async def test_launches_show_their_scopes_and_are_filtered_by_them(tmp_path):
    path = tui_sample.write_run(tmp_path / "run.tkd", during=launch_in_a_scope)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(160, 40)) as pilot:
            title = "epoch 1 > backward > grad_kernel"
            await until(pilot, lambda: title in screen_text(app), "the scopes of the launch")
            await pilot.press("slash", *"backw", "enter")
            table = app.query_one("#launch-table", Table)
            await until(pilot, lambda: table.line_count == 1, "the launches of the scope")
            await until(pilot, lambda: "in epoch 1 > backward\n" in screen_text(app), "its details")

"""Filters, Esc, `:`, where a kernel begins, and what stays in sight below."""

import dataclasses

import pytest
import tui_sample
from pilot_support import loaded, notified, screen_text, type_at_once, until
from textual.events import MouseScrollDown
from textual.widgets import Input
from textual.widgets._toast import Toast

from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.session import Session
from tkdebug.records.events import Fault
from tkdebug.records.hook_chain import HOOKS
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.widgets.code_view import CodeView
from tkdebug.tui.widgets.dialogs import HelpScreen
from tkdebug.tui.widgets.find import FindBar
from tkdebug.tui.widgets.key_row import KeyRow
from tkdebug.tui.widgets.table import Table


@pytest.fixture
def two_kernels(tmp_path):
    """Launches 1 to 4 of add_kernel, then 5, 6 of copy_kernel, then 7 of add_kernel."""

    def more(file):
        HOOKS.compiled(tui_sample.compiled(file, "copy_kernel", "h-copy"))
        tui_sample.launch(5, kernel="copy_kernel", hash="h-copy")
        tui_sample.launch(6, kernel="copy_kernel", hash="h-copy")
        tui_sample.launch(7)

    path = tui_sample.write_run(tmp_path / "run.tkd", launches=4, during=more)
    with Session.open(path) as session:
        yield session


def table(app: TkdebugApp, id: str) -> Table:
    return app.query_one(f"#{id}", Table)


def rows(shown: Table) -> list[str]:
    return [shown.line_text(index) for index in range(shown.line_count)]


async def test_escape_keeps_the_launch_that_was_selected_under_a_filter(two_kernels):
    app = TkdebugApp(two_kernels)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(pilot)
        launches = table(app, "launch-table")
        await until(pilot, lambda: launches.line_count == 7, "the launches")
        await pilot.press("end", "slash", *"copy", "enter")
        await until(pilot, lambda: launches.line_count == 2, "the copies")
        await pilot.press("end")
        assert "copy_kernel" in launches.cursor_text
        selected = launches.key
        await pilot.press("escape")
        await until(pilot, lambda: launches.line_count == 7, "all launches")
        assert launches.key == selected


async def test_escape_after_a_filter_that_nothing_passes_keeps_the_selection(two_kernels):
    app = TkdebugApp(two_kernels)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(pilot)
        launches = table(app, "launch-table")
        await until(pilot, lambda: launches.line_count == 7, "the launches")
        await pilot.press("home", "down", "down")
        selected = launches.key
        await pilot.press("slash", *"zzz")
        await until(pilot, lambda: launches.line_count == 0, "nothing")
        await pilot.press("escape")
        await until(pilot, lambda: launches.line_count == 7, "all launches")
        assert launches.key == selected


async def test_filter_narrows_the_kernels_too(two_kernels):
    app = TkdebugApp(two_kernels)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(pilot)
        launches, kernels = table(app, "launch-table"), table(app, "summary")
        await until(pilot, lambda: kernels.line_count == 2, "the kernels")
        await pilot.press("slash", *"COPY")
        await until(pilot, lambda: launches.line_count == 2, "the copies")
        (row,) = rows(kernels)
        assert "copy_kernel" in row
        share = row.split()[-2]
        assert share.endswith("%")
        assert share != "100.0%"  # of the whole run
        await pilot.press("escape")
        await until(pilot, lambda: kernels.line_count == 2, "both kernels")


async def test_kernel_chosen_among_the_kernels_leaves_the_others_to_choose(two_kernels):
    app = TkdebugApp(two_kernels)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(pilot)
        launches, kernels = table(app, "launch-table"), table(app, "summary")
        await until(pilot, lambda: kernels.line_count == 2, "the kernels")
        kernels.focus()
        await pilot.press("end", "enter")
        await until(pilot, lambda: launches.line_count < 7, "the launches of one")
        assert kernels.line_count == 2
        assert kernels.has_focus
        await pilot.press("escape")
        await until(pilot, lambda: launches.line_count == 7, "all launches")
        assert kernels.has_focus


async def test_escape_keeps_the_fault_that_was_selected(tmp_path):
    def more(file):
        for kind in ("oob-store", "division-by-zero", "assert"):
            HOOKS.fault(dataclasses.replace(tui_sample.fault(file), kind=kind))

    path = tui_sample.write_run(tmp_path / "run.tkd", during=more)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(100, 30)) as pilot:
            await loaded(pilot)
            await pilot.press("2")
            faults = table(app, "fault-table")
            await until(pilot, lambda: faults.line_count == 4, "the faults")
            await pilot.press("slash", *"zero", "enter")
            await until(pilot, lambda: faults.line_count == 1, "one")
            await pilot.press("escape")
            await until(pilot, lambda: faults.line_count == 4, "all")
            assert "division-by-zero" in faults.cursor_text


@pytest.mark.parametrize("pane", ["3", "5"])
async def test_colon_asks_for_a_line(session, pane):
    app = TkdebugApp(session)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(pilot)
        await pilot.press(pane, "colon")
        bars = [bar for bar in app.query(FindBar) if bar.has_focus]
        assert [bar.value for bar in bars] == [":"]
        bars[0].value = ":" + "9" * 5000
        await until(pilot, lambda: bars[0].has_class("-nothing"), "no such line")
        bars[0].value = ":"
        if pane == "3":
            await pilot.press("9", "enter")
            assert app.query_one("#source", CodeView).line == 9
            assert app.query_one("#source", CodeView).has_focus


LONG_DOCSTRING = '"""What the file is about.\n' + "\nline\n" * 12 + '"""\n'


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("first_seen", ["after", "before"])
async def test_kernel_pane_opens_at_the_kernel(tmp_path, monkeypatch, size, first_seen):
    below = "\n" + "x = 1\n" * 60
    monkeypatch.setattr(tui_sample, "SOURCE", LONG_DOCSTRING + tui_sample.SOURCE + below)
    added = LONG_DOCSTRING.count("\n")

    def moved(kernel):
        return dataclasses.replace(kernel, line=kernel.line + added, op_lines={})

    compiled = tui_sample.compiled
    monkeypatch.setattr(tui_sample, "compiled", lambda *a, **k: moved(compiled(*a, **k)))
    path = tui_sample.write_run(tmp_path / "run.tkd", faults=False)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=size) as pilot:
            if first_seen == "before":
                await pilot.press("3")
            await loaded(pilot)
            await pilot.press("3")
            source = app.query_one("#source", CodeView)
            await until(pilot, lambda: source.has_focus, "the source")
            await until(pilot, lambda: source.scroll_offset.y > 0, "the kernel")
            on_top = source.code.lines[source.scroll_offset.y :]
            assert on_top[2] == "@triton.jit"
            assert on_top[3].startswith("def add_kernel")
            assert LONG_DOCSTRING.split("\n")[0] not in screen_text(app)


async def test_s_with_one_stage_says_so(tmp_path, monkeypatch):
    compiled = tui_sample.compiled

    def with_one(*arguments):
        kernel = compiled(*arguments)
        return dataclasses.replace(kernel, artifacts={"tile-ir": kernel.artifacts["tile-ir"]})

    monkeypatch.setattr(tui_sample, "compiled", with_one)
    path = tui_sample.write_run(tmp_path / "run.tkd", faults=False)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(100, 30)) as pilot:
            await loaded(pilot)
            await pilot.press("3", "s")
            (said,) = notified(app)
            assert said.startswith("tile-ir is the only stage")
            assert "--target sm_90a" in said


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_toasts_leave_the_keys_and_what_stands_above_them_in_sight(session, size):
    app = TkdebugApp(session)
    async with app.run_test(size=size, notifications=True) as pilot:
        await loaded(pilot)
        await pilot.press("3")
        app.notify("words that go on and on, and so on, until they are wrapped " * 2)
        app.notify("more")
        await until(pilot, lambda: len(app.screen.query(Toast)) == 2, "the toasts")
        await pilot.pause(0.2)
        footer = app.query_one(KeyRow).region
        assert footer.height == 1
        for toast in app.screen.query(Toast):
            assert toast.region.height > 0
            # The row above the footer has the FindBar, the call chain or the script's input.
            assert toast.region.bottom <= footer.y - 1


async def test_filter_box_is_gone_after_escape(two_kernels):
    app = TkdebugApp(two_kernels)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(pilot)
        await pilot.press("slash", "a", "escape")
        assert not app.query_one("#filter", Input).display
        assert table(app, "launch-table").has_focus


async def test_panes_lead_to_the_fault_where_no_kernel_compiled(tmp_path):
    file = tui_sample.write_sources(tmp_path)
    with Recorder(tmp_path / "run.tkd", script="train.py", output=False):
        HOOKS.fault(Fault("compile-error", "bad", tui_sample.frames(file, 14), "no `lod`", 0))
    with Session.open(tmp_path / "run.tkd") as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app._snapshot is not None, "the session")
            said = "no kernel was compiled; press 2"
            for pane in "35":
                await pilot.press(pane)
                await until(pilot, lambda: said in screen_text(app), "where to look")


async def test_a_click_presses_the_key_and_the_wheel_shows_more_keys(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(40, 20)) as pilot:
        await loaded(pilot)
        keys = app.query_one(KeyRow)

        def row():
            return screen_text(app).splitlines()[-1]

        await until(pilot, lambda: "/ Filter" in row(), "the keys of the launches")
        assert "r Reverse" not in row()
        assert row().endswith("? Help  q Quit")
        for _ in range(5):
            keys.post_message(MouseScrollDown(keys, 0, 0, 0, 1, 0, False, False, False))
        await until(pilot, lambda: "r Reverse" in row(), "the keys further on")
        assert row().endswith("? Help  q Quit")
        await pilot.click(KeyRow, offset=(row().index("? Help") + 2, 0))
        await until(pilot, lambda: isinstance(app.screen, HelpScreen), "the help")


async def test_keys_pasted_after_a_digit_are_the_panes(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        type_at_once(app, *"2/2x1")
        await until(pilot, lambda: "0 of 1 with …2x1…" in screen_text(app), "the filter")
        await pilot.press("escape")
        type_at_once(app, "1", "home", "j")
        table = app.query_one("#launch-table", Table)
        await until(pilot, lambda: table.has_focus and table.cursor == 1, "the second launch")

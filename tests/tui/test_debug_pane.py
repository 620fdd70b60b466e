"""The Debug pane, driven by a pilot, over launches of this process that are really stopped."""

from __future__ import annotations

import socket
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import stopped_kernels as kernels
import torch
from patience import LONGEST_WAIT_S
from pilot_support import begun, notified, screen_text, type_at_once, until
from stopped_kernels import line
from textual.widgets import TabbedContent

from tkdebug.debugger.remote.front import RemoteFront
from tkdebug.debugger.remote.records import HeatMap, Variable, Wire
from tkdebug.records.hook_chain import HOOKS
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.debug.command import AnswerLog, CommandLine
from tkdebug.tui.debug.heat import HeatMapView, cell_text
from tkdebug.tui.debug.link import Ahead, Answer, DebugLink, Runs
from tkdebug.tui.debug.pane import DebugPane
from tkdebug.tui.debug.program_grid import ProgramGrid
from tkdebug.tui.debug.source import DebugSource
from tkdebug.tui.debug.stop_view import StopView, _cells
from tkdebug.tui.debug.timeline import TimeLog, TimeSlider
from tkdebug.tui.drawing import palette
from tkdebug.tui.kernel.pane import KernelPane
from tkdebug.tui.session.follow import AwaitedSession
from tkdebug.tui.widgets.code_view import CodeView
from tkdebug.tui.widgets.find import FindBar

BLOCK = 8


HOST_LINES = """\
import stopped_kernels as kernels
import torch

x = torch.arange(512.0) - 100
out = torch.zeros(32)
kernels.tiled[(4,)](x, out, 16, BLOCK=8)
total = out.sum()
twice = total * 2
"""


class Script:
    """A launch in a thread, with a debugger that is asked over a socket."""

    def __init__(self, *commands, programs=4):
        self.programs = programs
        ours, theirs = socket.socketpair()
        self.front = RemoteFront(Wire(theirs), kernels.FILE)
        self.link = DebugLink(Wire(ours), commands)
        self.out = torch.zeros(programs * BLOCK)
        self._threads = [
            threading.Thread(target=self.front.serve),
            threading.Thread(target=self._run),
        ]
        for thread in self._threads:
            thread.start()

    def _run(self):
        try:
            if begun(self.front):
                n = 2 * BLOCK
                x = torch.arange(self.programs * BLOCK * n).float() - 100
                kernels.tiled[(self.programs,)](x, self.out, n, BLOCK=BLOCK)
        finally:
            self.front.log("the script has come to its end")

    def run_host_lines(self, file):
        """Run a script of its own instead, whose lines are stopped at."""
        file.write_text(HOST_LINES)
        self.front._given_script = self.front.console.script = str(file)

        def run():
            self.front.begin_at_script()
            try:
                exec(compile(HOST_LINES, str(file), "exec"), {"__name__": "__main__"})
            finally:
                self.front.ended()

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def close(self):
        self.link.close()
        for thread in self._threads:
            thread.join(LONGEST_WAIT_S)
            assert not thread.is_alive()
        HOOKS.debugger = None


@asynccontextmanager
async def debugging(tmp_path, *commands, size=(160, 50), programs=4):
    script = Script(*commands, programs=programs)
    app = TkdebugApp(AwaitedSession(tmp_path / "none.tkd"), link=script.link)
    try:
        async with app.run_test(size=size) as pilot:
            yield app, pilot
    finally:
        script.close()


def lit(app):
    return list(app.query_one(DebugSource).lit)


async def at(pilot, name):
    await until(pilot, lambda: lit(pilot.app) == [line(name)], f"the stop at {name}")


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_a_stop_shows_source_values_programs_and_time(tmp_path, size):
    commands = (f"b {line('add')}", "c")
    async with debugging(tmp_path, *commands, size=size) as (app, pilot):
        await at(pilot, "add")
        assert app.query_one(TabbedContent).active == "debug"
        await until(pilot, lambda: "acc += scaled" in screen_text(app), "the source")
        await until(pilot, lambda: "█ to " in screen_text(app), "the map, as large as fits")
        text = screen_text(app)
        assert "breakpoint 1  launch 1 of tiled 4  all 4 programs are here" in text
        assert "●▶" in text
        assert "■ stopped in the debugger" in text
        assert "x  fp32[8, 8] of pro" in text
        assert "≠ 3 here, with" in text
        assert f"line {line('add')}: acc += " in text
        await pilot.press("s")
        await until(pilot, lambda: lit(app) == [line("scaled body")], "the function")
        assert f"in scaled:{line('scaled body')} ← tiled:{line('add')}" in screen_text(app)
        await pilot.press("u")
        await at(pilot, "add")


async def test_keys_go_on_and_back(tmp_path):
    async with debugging(tmp_path, f"b {line('load')}", "c") as (app, pilot):
        await at(pilot, "load")
        app.query_one(ProgramGrid).focus()
        for key, name in (("n", "add"), ("c", "load"), ("N", "round"), ("C", "load")):
            await pilot.press(key)
            await at(pilot, name)
        assert app.focused is app.query_one(ProgramGrid)
        await pilot.press("b")  # none any more
        await until(pilot, lambda: not app.query_one(DebugSource)._marks, "no breakpoint")
        await pilot.press("c")
        await until(pilot, lambda: "come to its end" in screen_text(app), "the end")
        await pilot.press("n")
        await until(pilot, lambda: notified(app) == ["no kernel is stopped"], "the refusal")


async def test_the_scripts_own_lines_are_stepped_into_a_launch_and_back(tmp_path):
    script = Script.__new__(Script)
    ours, theirs = socket.socketpair()
    script.front, script.link = RemoteFront(Wire(theirs), ""), DebugLink(Wire(ours))
    script._threads = [threading.Thread(target=script.front.serve)]
    script._threads[0].start()
    app = TkdebugApp(AwaitedSession(tmp_path / "none.tkd"), link=script.link, opens="debug")
    try:
        async with app.run_test(size=(100, 40)) as pilot:
            assert app.query_one(TabbedContent).active == "debug"
            script.run_host_lines(tmp_path / "script.py")
            await until(pilot, lambda: "the script's own lines" in screen_text(app), "the script")
            await pilot.press(*"nnnn")
            await until(pilot, lambda: lit(app) == [6], "the launch's line")
            assert "float32[512]: min -100" in screen_text(app)
            assert "the script's own lines cannot be gone back to" in screen_text(app)
            await pilot.press("down", "down", "b", "s")
            await until(pilot, lambda: "launch 1 of tiled 4" in screen_text(app), "the kernel")
            await pilot.press("c")
            await until(pilot, lambda: lit(app) != [6] and lit(app) != [], "the next stop")
            assert lit(app) == [8]
            assert "●▶8" in screen_text(app)
            await until(pilot, lambda: "total" in screen_text(app).split("●▶8")[0], "its variables")
    finally:
        script.close()


async def test_no_key_that_is_pressed_quickly_is_lost(tmp_path):
    async with debugging(tmp_path, f"b {line('load')}", "c") as (_, pilot):
        await at(pilot, "load")
        await pilot.press("n", "n")
        await at(pilot, "round")
        await pilot.press("N", "N", "n")
        await at(pilot, "add")


async def test_commands_that_wait_for_the_next_stop_are_shown_and_forgotten_by_esc(tmp_path):
    async with debugging(tmp_path, f"b {line('load')}", "c") as (app, pilot):
        await at(pilot, "load")
        pane = app.query_one(DebugPane)
        asked = []
        pane._ask = lambda **wish: asked.append(wish)
        pane.hear(Runs())
        pane.hear(Ahead(2))
        await until(
            pilot,
            lambda: "running; P stops it; 2 commands for the next stop" in screen_text(app),
            "what waits",
        )
        await pilot.press("escape")
        await until(pilot, lambda: {"do": "forget"} in asked, "the wish")
        pane.hear(Ahead(0))
        await until(pilot, lambda: "next stop" not in screen_text(app), "nothing")


async def test_u_goes_on_to_the_scripts_lines_and_variables(tmp_path):
    async with debugging(tmp_path, f"b {line('load')}", "c") as (app, pilot):
        await at(pilot, "load")
        await pilot.press("u")
        await until(
            pilot, lambda: "kernels.tiled[(self.programs,)]" in screen_text(app), "the call"
        )
        frames = str(app.query_one("#debug-frames").render())
        assert frames.startswith(f"in tiled:{line('load')} ← _run:")
        await until(pilot, lambda: "float32[512]" in screen_text(app), "the tensor of the script")
        await pilot.press("d")
        await at(pilot, "load")


async def test_the_command_line_takes_the_consoles_commands(tmp_path):
    async with debugging(tmp_path, f"b {line('store')}", "c") as (app, pilot):
        await at(pilot, "store")
        await pilot.press(*"p ac")
        await until(pilot, lambda: "p acc" in screen_text(app).splitlines()[-2], "what is offered")
        log, command = app.query_one(AnswerLog), app.query_one(CommandLine)
        await pilot.press("right")
        for rest, answer in (
            ("[0, 0]", "acc[0, 0] = "),
            ("1 / 0", "*** 1 / 0: ZeroDivisionError"),
            ("p '\\x1b[2J'", "'\\x1b[2J' = '\\x1b[2J'"),
            ("why acc[0, 1]", "computed at, the last line first"),
        ):
            command.value += rest
            await pilot.press("enter")
            await until(pilot, lambda answer=answer: answer in log.text, answer)
        await pilot.press("up")
        assert command.value == "why acc[0, 1]"
        await pilot.press("escape")
        assert app.focused is app.query_one(DebugSource)
        assert "\x1b" not in screen_text(app)


async def test_text_that_is_typed_at_once_is_no_keys(tmp_path):
    async with debugging(tmp_path, f"b {line('load')}", "c") as (app, pilot):
        await at(pilot, "load")
        command, grid = app.query_one(CommandLine), app.query_one(ProgramGrid)
        find = app.query_one(DebugPane).query_one(FindBar)
        grid.focus()
        await pilot.pause()
        type_at_once(app, *":p n, cNS")
        await until(pilot, lambda: command.value == "p n, cNS", "the text")
        assert lit(app) == [line("load")]
        type_at_once(app, "escape", "n")
        await at(pilot, "add")
        assert app.focused is grid
        type_at_once(app, *"/doubled")
        await until(pilot, lambda: find.value == "doubled", "what to find")
        type_at_once(app, "escape", "N")
        await at(pilot, "load")
        await pilot.press(":")
        command.value = ":p 6 * 7"
        await pilot.press("enter")
        await until(pilot, lambda: "6 * 7 = 42" in app.query_one(AnswerLog).text, "the answer")


async def test_programs_are_shown_and_selected(tmp_path):
    async with debugging(tmp_path, f"b {line('doubled')}", "c") as (app, pilot):
        await at(pilot, "doubled")
        grid = app.query_one(ProgramGrid)
        assert grid._programs.states == "aa#≠"
        assert "in the other branch of the `if`" in screen_text(app) or "a 2" in screen_text(app)
        grid.focus()
        await pilot.press("right")
        await until(pilot, lambda: grid._programs.shown == 3, "the other program")
        await pilot.press("enter")
        await until(pilot, lambda: "program 3; 2 of 4" in screen_text(app), "the selection")
        await pilot.press("a")
        await until(pilot, lambda: "program 3; 2 of 4" not in screen_text(app), "all of them")


async def test_the_map_is_of_the_variable_at_the_cursor_and_can_be_enlarged(tmp_path):
    async with debugging(tmp_path, f"b {line('store')}", "c", size=(80, 24)) as (app, pilot):
        await at(pilot, "store")
        view, heat = app.query_one(StopView), app.query_one(HeatMapView)
        table = app.query_one("#debug-variables")
        table.focus()
        await pilot.press("home")
        await until(pilot, lambda: heat._heat.name == "x_ptr", "the tensor")
        assert heat._heat.step != (1,)
        heat.focus()
        await until(pilot, lambda: "[]" in screen_text(app), "the cursor")
        await pilot.press("down", "enter")
        await until(pilot, lambda: heat._heat.end != heat._heat.shape, "a part of it")
        await pilot.press("escape")
        await until(pilot, lambda: heat._heat.end == heat._heat.shape, "all of it")
        assert view.look.variable == "x_ptr"


async def test_the_map_follows_what_was_bound_last_until_a_variable_is_chosen(tmp_path):
    async with debugging(tmp_path, f"b {line('load')}", "c") as (app, pilot):
        heat, table = app.query_one(HeatMapView), app.query_one("#debug-variables")

        async def drawn(name):
            await until(pilot, lambda: (heat._heat.name, table.key) == (name, name), name)

        await at(pilot, "load")
        await pilot.press("n")
        await drawn("x")
        await pilot.press("n")
        await drawn("acc")
        table.focus()
        await pilot.press("up", "c", "n")
        await at(pilot, "add")
        await drawn("rows")
        await pilot.press("escape")
        await drawn("x")


async def test_enter_prints_a_variable_in_full_and_selects_the_program_of_a_scalar(tmp_path):
    async with debugging(tmp_path, f"b {line('add')}", "c", size=(80, 24)) as (app, pilot):
        await at(pilot, "add")
        table, heat = app.query_one("#debug-variables"), app.query_one(HeatMapView)
        table.focus()
        await pilot.press("enter")
        answers = app.query_one(AnswerLog)
        await until(pilot, lambda: "x = fp32[8, 8] in 4 programs" in answers.text, "the value")
        table.select_key("k")
        await until(pilot, lambda: heat._heat.name == "k", "the scalar")
        heat.focus()
        await pilot.press("right", "right", "enter")
        await until(pilot, lambda: "program 2; all 4" in screen_text(app), "the selection")


async def test_a_breakpoint_at_a_function_has_a_mark_and_a_click_there_takes_it_away(tmp_path):
    async with debugging(tmp_path, "b tiled", "c") as (app, pilot):
        source = app.query_one(DebugSource)
        await until(pilot, lambda: bool(lit(app)), "the stop")
        (first,) = lit(app)
        await until(pilot, lambda: source._marks == {first: "breakpoint"}, "the mark")
        await pilot.press("b")
        await until(pilot, lambda: not source._marks, "none")


async def test_ctrl_c_at_a_stop_ends_nothing(tmp_path):
    async with debugging(tmp_path, f"b {line('load')}", "c") as (app, pilot):
        await at(pilot, "load")
        app._child = SimpleNamespace(waits_for_input=bool, echoes=bool, status=None)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "c goes on, q quits" in "".join(notified(app)), "the word")
        app._child = None
        await pilot.press("n")
        await at(pilot, "add")


async def test_keys_that_wait_for_the_next_stop_are_no_answers(tmp_path):
    async with debugging(tmp_path, f"b {line('load')}", "c") as (app, pilot):
        await at(pilot, "load")
        pane = app.query_one(DebugPane)
        pane._unanswered.append("n")
        pane.hear(Answer("n", ("waits for the next stop",)))
        pane.hear(Answer("p x", ("waits for the next stop",)))
        assert app.query_one(AnswerLog).text.count("waits") == 1


async def test_long_reasons_and_answers_are_broken_and_tables_are_not(tmp_path):
    commands = (f"b {line('store')}", "c")
    async with debugging(tmp_path, *commands, size=(80, 24)) as (app, pilot):
        await at(pilot, "store")
        pane, answers = app.query_one(DebugPane), app.query_one(AnswerLog)
        long = "breakpoint 7; " + "a word " * 30
        pane.hear(replace(pane._view, reasons=("a fault", long)))
        title = str(app.query_one("#debug-title").render())
        assert "a fault (below)" in title
        assert "launch 1 of tiled" in title
        await until(pilot, lambda: answers._lines[-1][0].endswith("a word"), "the end of it")
        assert max(len(text) for text, _ in answers._lines) < 80
        assert long.rstrip() in answers.text.replace("\n", " ")
        pane.hear(Answer("tile acc", ("1 " * 60,)))
        assert answers._lines[-1][0] == "1 " * 60


def test_a_variable_with_nan_says_so_first():
    name, value = _cells(Variable("x", "fp32[64]: min 0, max 1, 3 NaN", True, True))
    assert (name.style, value.text[:5]) == (palette.FAULT, "NaN! ")


async def test_the_slider_goes_to_lines_passed(tmp_path):
    async with debugging(tmp_path, f"b {line('store')}", "c") as (app, pilot):
        await at(pilot, "store")
        slider = app.query_one(TimeSlider)
        slider.focus()
        await pilot.press("home", *["right"] * 3)
        await until(pilot, lambda: f"line {line('load')}: x = tl" in screen_text(app), "the line")
        await pilot.press("enter")
        await at(pilot, "load")
        await pilot.press("L")
        await until(pilot, lambda: "out_ptr + rows" in screen_text(app), "the lines passed")


async def test_lines_passed_are_read_as_they_are_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr("tkdebug.debugger.remote.looking._LINES_AROUND", 2)
    async with debugging(tmp_path, f"b {line('store')}", "c") as (app, pilot):
        await at(pilot, "store")
        log = app.query_one(TimeLog)
        await until(pilot, lambda: log.line_count == 4, "the lines around the stop")
        await pilot.press("L", *["up"] * 4)
        await until(pilot, lambda: log.index < log._timeline.total - 4, "earlier lines")
        await until(pilot, lambda: log._timeline.first < log.index, "those before them, too")
        app.query_one(TimeSlider).focus()
        await pilot.press("home")
        await until(pilot, lambda: log._timeline.first == 0, "the first lines")
        assert log.index == 0


async def test_a_breakpoint_is_set_by_a_click_beside_a_line(tmp_path):
    async with debugging(tmp_path, "s") as (app, pilot):
        source = app.query_one(DebugSource)
        await until(pilot, lambda: source.lit and source.line_count > 0, "the first line")
        await pilot.click(source, offset=(2, line("load") - 1))
        await until(pilot, lambda: source._marks == {line("load"): "breakpoint"}, "the mark")
        await pilot.press("c")
        await at(pilot, "load")


async def test_a_debugger_that_goes_while_stopped_is_reported_and_the_picture_stays(tmp_path):
    async with debugging(tmp_path, f"b {line('load')}", "c") as (app, pilot):
        await at(pilot, "load")
        app._link.close()
        await until(pilot, lambda: "the debugger has gone" in screen_text(app), "the report")
        assert lit(app) == []
        await until(pilot, lambda: "x = tl.load" in screen_text(app), "the text")
        await pilot.press("n")
        await until(pilot, lambda: bool(notified(app)), "the refusal")


async def test_large_grids_have_several_programs_in_a_cell(tmp_path):
    async with debugging(tmp_path, f"b {line('store')}", "c", programs=5000) as (app, pilot):
        await at(pilot, "store")
        await until(pilot, lambda: "a sign stands for 2 programs" in screen_text(app), "the text")
        grid = app.query_one(ProgramGrid)
        widths = [len(grid.render_item(index, 9, 0).text.split("≠")[0]) for index in (0, 1, 2)]
        assert widths == [5, 5, 5]


async def test_a_recorded_run_says_that_it_cannot_be_stopped(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app._snapshot is not None, "the session")
        await app.action_tab("debug")
        await until(pilot, lambda: "a recorded run cannot be stopped" in screen_text(app), "why")
        await pilot.press("n")
        await until(pilot, lambda: notified(app) == ["no kernel is stopped"], "the refusal")


def test_cells_read_without_colour():
    texts = [cell_text(value, 4.0)[0] for value in (4.0, 1.0, -2.5, 0.0, float("nan"), None)]
    assert texts == ["██", "▒▒", "-▓", " ·", "NN", "  "]
    assert cell_text(float("-inf"), 0.0)[0] == "-∞"
    assert HeatMap.__slots__


async def test_b_in_the_kernel_pane_sets_a_breakpoint_for_the_next_launch(session):
    script = Script()
    app = TkdebugApp(session, link=script.link)
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press("3")
            source = app.query_one("#source", CodeView)
            await until(pilot, lambda: source.line_count > 0, "the source")
            await pilot.press(":", "1", "8", "enter")
            await until(pilot, lambda: source.line == 18, "the line")
            await pilot.press("b")
            await until(pilot, lambda: source._marks.get(18) == "breakpoint", "the mark")
            made = script.front.debugger.breakpoints
            file = app.query_one(KernelPane)._text.file
            assert [(one.file, one.line) for one in made] == [(file, 18)]
            await pilot.press("b")
            await until(pilot, lambda: source._marks.get(18) != "breakpoint", "none")
    finally:
        script.close()

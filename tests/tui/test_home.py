"""The home pane: what it opens at, what it shows of a line, and where its keys lead."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import tui_sample
from pilot_support import notified, screen_text, until
from textual.command import CommandList

from tkdebug.errors import SessionError
from tkdebug.instrument.session import Session
from tkdebug.records.hook_chain import HOOKS
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.drawing import palette
from tkdebug.tui.editor import edit_command
from tkdebug.tui.home.pane import HomePane
from tkdebug.tui.home.source import HomeSource
from tkdebug.tui.home.strip import Window, _ticks
from tkdebug.tui.home.view import HomeView
from tkdebug.tui.recent import SessionList, session_row
from tkdebug.tui.tabs import PaneTabs


async def home(pilot) -> HomePane:
    pane = pilot.app.query_one(HomePane)
    await until(pilot, lambda: pane.index is not None and not pane.is_reading, "the model")
    await pilot.pause()
    return pane


def line(app: TkdebugApp) -> int:
    place = app.query_one(HomeSource).place
    return 0 if place is None else place.line


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 50)])
async def test_home_opens_at_the_fault_in_what_is_inlined(session, size):
    app = TkdebugApp(session, opens="home")
    async with app.run_test(size=size) as pilot:
        await home(pilot)
        assert line(app) == 9
        text = screen_text(app)
        assert "Next  ✖ kernels.py:9" in text
        assert " n the next finding" in text  # until the user goes anywhere
        caret = next(row for row in text.split("\n") if "^ load reads past the end" in row)
        code = next(row for row in text.split("\n") if "▌✖" in row and "tl.load" in row)
        assert caret.index("^") == code.index("tl.load")
        assert "✖ oob-load" in text
        if size[0] >= 200:
            strips = app.screen._compositor.render_strips()
            hint = next(seg for strip in strips for seg in strip if "add mask=offsets" in seg.text)
            assert hint.style.color.name == palette.WARNING
        assert app.query_one(HomeView).has_class("-one") == (size[0] < 110)
        assert ("%x = tt.load" in text) == (size[0] >= 110)
        await pilot.press("f")
        await until(pilot, lambda: "add mask=offsets < n to the load" in screen_text(app), "it")
        assert "esc Back" in screen_text(app)
        await pilot.press("escape", "u")
        assert line(app) == 16
        assert "▸1" in screen_text(app)
        await pilot.press("j")
        assert line(app) == 17
        assert " n the next finding" not in screen_text(app)
        await pilot.press("g")
        assert line(app) == 9
        await pilot.press("s")
        name = "[Tile IR 3]" if size[0] < 110 else "[GPU IR 3]"
        await until(pilot, lambda: name in screen_text(app), "the stage")
        assert "%x = tt.load" in screen_text(app)
        await pilot.press("right", "right")
        strip = screen_text(app).split("\n")
        assert size[0] < 110 or any("launch 2 add_kernel" in row for row in strip)
        await pilot.resize_terminal(39, 9)
        await until(pilot, lambda: "needs 40 columns" in screen_text(app), "the sentence")
        assert not notified(app)


async def test_home_of_a_run_without_launches_says_where_to_look(tmp_path: Path):
    path = tui_sample.write_run(tmp_path / "run.tkd", launches=0, faults=False, exit_status=None)
    with Session.open(path) as session:
        app = TkdebugApp(session, opens="home")
        async with app.run_test(size=(80, 24)) as pilot:
            await home(pilot)
            text = screen_text(app)
            assert "no findings" in text or "nothing found" in text
            await pilot.press("n", "left", "s")
            assert "no findings" in notified(app)


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_home_of_a_killed_run_shows_what_was_recorded(tmp_path: Path, size):
    def killed(file: Path) -> None:
        tui_sample.launch(9, None)

    path = tui_sample.write_run(tmp_path / "run.tkd", during=killed)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE run SET end_ns = NULL, exit_status = NULL, host = ''")
    with Session.open(path) as session:
        app = TkdebugApp(session, opens="home")
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: "no end recorded" in screen_text(app), "how it ended")
            await until(pilot, lambda: "Next  ✖ kernels.py:9" in screen_text(app), "the fault")
            await pilot.press("1")
            await until(pilot, lambda: "unfinished" in screen_text(app), "the launch")


async def test_home_of_very_many_faults_is_bounded_and_says_so(tmp_path: Path):
    def during(file: Path) -> None:
        for number in range(600):
            HOOKS.fault(replace(tui_sample.fault(file), tensor=f"t{number}"))

    path = tui_sample.write_run(tmp_path / "run.tkd", faults=False, during=during)
    with Session.open(path) as session:
        app = TkdebugApp(session, opens="home")
        async with app.run_test(size=(120, 35)) as pilot:
            pane = await home(pilot)
            assert "600 faults" in screen_text(app)
            assert "and 492 more faults of this line: 2 lists them" in pane.copied_text()
            await pilot.press("p")
            assert line(app) == 9


async def test_home_says_why_a_session_cannot_be_read(session, monkeypatch):
    def refuse(*args: object, **options: object) -> None:
        raise SessionError("run.tkd: damaged")

    monkeypatch.setattr("tkdebug.instrument.home.model.model_of", refuse)
    app = TkdebugApp(session, opens="home")
    async with app.run_test(size=(80, 24)) as pilot:
        said = "the recording cannot be read: run.tkd: damaged"
        await until(pilot, lambda: said in screen_text(app), "the sentence")
        monkeypatch.undo()
        await pilot.press("1", "0")
        await until(pilot, lambda: "Next" in screen_text(app), "the model")
        assert "cannot be read" not in screen_text(app)


async def test_palette_themes_and_the_way_back(session):
    app = TkdebugApp(session, opens="home")
    async with app.run_test(size=(120, 35)) as pilot:
        pane = await home(pilot)
        await pilot.press("ctrl+p", *"store(out")
        await until(pilot, lambda: "kernels.py:18 tl.store(out_ptr" in screen_text(app), "the line")
        await until(pilot, lambda: app.screen.query_one(CommandList).highlighted == 0, "the list")
        await pilot.press("enter")
        await until(pilot, lambda: line(app) == 18, "the line")
        await pilot.press("enter")
        await until(pilot, lambda: app.query_one(PaneTabs).active == "kernel", "the kernel")
        await pilot.press("escape")
        await until(pilot, lambda: app.query_one(PaneTabs).active == "home", "home")
        await pilot.press("escape")
        await until(pilot, lambda: line(app) == 9, "the fault")
        for name in ("light", "for any colour vision", "without colours"):
            await pilot.press("t")
            await until(pilot, lambda name=name: f"colours: {name}" in notified(app), name)
        assert palette.is_plain(app)
        await pilot.press("slash", *"pid", "escape")
        assert line(app) == 14
        Path(str(pane.source_place()[0])).unlink()
        await pilot.press("e")
        await until(pilot, lambda: "no such file" in notified(app)[-1], "what became of e")


def test_editor_is_the_users_own_at_the_line(tmp_path, monkeypatch):
    file = tmp_path / "k.py"
    file.write_text("")
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    vim = edit_command(str(file), 7, {"EDITOR": "vim -n", "VISUAL": ""})
    assert vim == ["vim", "-n", "+7", str(file)]
    code = edit_command(str(file), 7, {"VISUAL": "code --wait", "EDITOR": "vim"})
    assert code == ["code", "--wait", "--goto", f"{file}:7"]
    assert "cannot be read" in edit_command(str(file), 7, {"EDITOR": "vim 'a"})
    assert edit_command("-c", 7, {"EDITOR": "vim"}) == "-c: no such file on this machine"
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert edit_command(str(file), 7, {}) == "no editor: set VISUAL or EDITOR to one"


async def test_sessions_of_a_folder_are_a_list(run_path, tmp_path):
    damaged = tmp_path / "old.tkd"
    damaged.write_bytes(b"no database")
    paths = [run_path, damaged]
    app = SessionList([session_row(path) for path in paths], paths)
    async with app.run_test(size=(100, 12)) as pilot:
        text = screen_text(app)
        assert "run.tkd" in text
        assert "train.py --fast" in text
        assert "✖ 1" in text
        assert "old.tkd" in text
        await pilot.press("slash", *"old", "escape", "enter")
    assert app.return_value == damaged


def test_ticks_stand_at_their_times():
    assert _ticks(Window(0, 10_000), 40).rstrip() == "0                   5 µs"
    found = _ticks(Window(3e9, 4e9), 60).split()
    assert found == ["3", "s", "3.2", "s", "3.4", "s", "3.6", "s", "3.8", "s"]

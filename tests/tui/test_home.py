"""The home pane: what it opens at, what it shows of a line, and where its keys lead."""

from __future__ import annotations

from pathlib import Path

import pytest
import tui_sample
from pilot_support import notified, screen_text, until

from tkdebug.instrument.session import Session
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.home.pane import HomePane
from tkdebug.tui.home.source import HomeSource


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
        pane = await home(pilot)
        assert line(app) == 9
        text = screen_text(app)
        assert "Next  ✖ kernels.py:9" in text
        caret = next(row for row in text.split("\n") if "^ load reads past the end" in row)
        code = next(row for row in text.split("\n") if "▌✖" in row and "tl.load" in row)
        assert caret.index("^") == code.index("tl.load")
        assert "✖ oob-load" in text
        assert pane.has_class("-one") == (size[0] < 110)
        assert ("%x = tt.load" in text) == (size[0] >= 110)
        await pilot.press("f")
        await until(pilot, lambda: "add mask=offsets < n to the load" in screen_text(app), "it")
        await pilot.press("escape", "u")
        assert line(app) == 16
        assert "▸1" in screen_text(app)
        await pilot.press("j")
        assert line(app) == 17
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

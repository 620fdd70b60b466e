"""Widgets that draw their rows: a key has no more rows drawn than it changes."""

from __future__ import annotations

import tui_sample
from pilot_support import loaded
from rich.text import Text
from textual.app import App

from tkdebug.instrument.session import Session
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.widgets.rows_view import RowsView
from tkdebug.tui.widgets.table import Table


def noting(monkeypatch, kind) -> list[int]:
    """The rows of widgets of that kind that are drawn from here on."""
    rows: list[int] = []
    draw = kind.render_line

    def noted(self, y):
        rows.append(y)
        return draw(self, y)

    monkeypatch.setattr(kind, "render_line", noted)
    return rows


async def test_cursor_key_draws_two_rows(tmp_path, monkeypatch):
    with Session.open(tui_sample.write_run(tmp_path / "run.tkd", launches=30)) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(80, 50)) as pilot:
            await loaded(pilot)
            await pilot.press("home")
            rows = noting(monkeypatch, Table)
            await pilot.press("down")
            await pilot.pause()
            assert sorted(set(rows)) == [1, 2]  # below the header
            assert app.query_one("#launch-table", Table).cursor == 1


async def test_other_rows_have_those_drawn_that_differ(monkeypatch):
    view = RowsView()

    class Shown(App[None]):
        CSS = "RowsView { padding: 0 1; }"

        def compose(self):
            yield view

    async with Shown().run_test(size=(20, 4)) as pilot:
        view.show_rows([Text("a"), Text("b", "bold"), Text("c")])
        await pilot.pause()
        rows = noting(monkeypatch, RowsView)
        view.show_rows([Text("a"), Text("b"), Text("c" * 18), Text("d"), Text("e")])
        await pilot.pause()
        assert sorted(set(rows)) == [1, 2, 3]
        strips = pilot.app.screen._compositor.render_strips()
        assert [strip.text.strip() for strip in strips] == ["a", "b", "c" * 18, "▾ 2 more rows"]

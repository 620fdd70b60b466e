"""Faults that are ignored or in the baseline: dimmed, last, and not counted."""

from dataclasses import replace

import tui_sample
from pilot_support import screen_text, until

from tkdebug.instrument.session import Session
from tkdebug.records.hook_chain import HOOKS
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.drawing import palette
from tkdebug.tui.widgets.table import Table


def with_states(*states):
    def during(file):
        for state in states:
            HOOKS.fault(replace(tui_sample.fault(file), tensor=state, state=state))

    return during


async def test_faults_that_do_not_count_are_last_and_dimmed(tmp_path):
    during = with_states("ignored", "known", "open")
    path = tui_sample.write_run(tmp_path / "run.tkd", faults=False, during=during)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app._snapshot is not None, "the session")
            await pilot.press("2")
            await until(pilot, lambda: "ignored" in screen_text(app), "the rows")
            text = screen_text(app)
            rows = [line for line in text.splitlines() if "oob-load" in line and "…" not in line]
            assert "1 fault " in text.splitlines()[0]
            assert "2 Faults ✖1" in text
            tensors = [word for row in rows for word in ("open", "ignored", "known") if word in row]
            assert tensors[:3] == ["open", "ignored", "known"]
            await pilot.press("down")
            await until(pilot, lambda: "a comment ignores it" in screen_text(app), "why")
            await pilot.press("slash", *"known", "enter")
            await until(pilot, lambda: "it is in the baseline" in screen_text(app), "why")
            assert app.query_one("#fault-table", Table).cursor == 0


async def test_warnings_are_no_faults_behind_the_tabs_name(tmp_path):
    def warned(file):
        HOOKS.fault(replace(tui_sample.fault(file), severity="warning"))

    path = tui_sample.write_run(tmp_path / "run.tkd", faults=False, during=warned)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: "2 Faults ▲1" in screen_text(app), "the mark")


async def test_run_with_faults_that_do_not_count_is_clean(tmp_path):
    path = tui_sample.write_run(
        tmp_path / "run.tkd", faults=False, exit_status=0, during=with_states("ignored", "known")
    )
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app._snapshot is not None, "the session")
            await until(pilot, lambda: "0 faults" in screen_text(app), "the counts")
            text = screen_text(app)
            assert "✓ ended (exit 0)" in text
            assert "warning" not in text.splitlines()[0]
            assert app._snapshot.faulty == frozenset()


def test_marks_tell_the_states_apart(tmp_path):
    fault = tui_sample.fault(tui_sample.write_sources(tmp_path))
    assert palette.mark_of(fault) == palette.MARKS["fault"]
    assert palette.mark_of(replace(fault, severity="warning")) == palette.MARKS["warning"]
    assert palette.mark_of(replace(fault, state="known"))[1] == palette.MUTED
    assert palette.mark_of(replace(fault, state="of a later release"))[1] == palette.MUTED

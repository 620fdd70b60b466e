"""Many faults: the list is bounded and says so, can be filtered, and counts as reports do."""

from dataclasses import replace
from pathlib import Path

import tui_sample
from pilot_support import until
from textual.widgets import Input

from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.session import Session
from tkdebug.records.hook_chain import HOOKS
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.session import follow
from tkdebug.tui.session.follow import Follower
from tkdebug.tui.widgets.table import Table


def different_faults(number):
    def during(file: Path) -> None:
        for n in range(number):
            kind = "race" if n % 2 else "oob-store"
            HOOKS.fault(replace(tui_sample.fault(file), kind=kind, tensor=f"out{n}"))

    return during


def screen_text(app):
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


async def test_faults_are_filtered_by_what_their_rows_show(tmp_path):
    path = tui_sample.write_run(tmp_path / "run.tkd", during=different_faults(6))
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app._snapshot is not None, "the session")
            await pilot.press("2", "slash", *"RACE", "enter")
            table = app.query_one("#fault-table", Table)
            await until(pilot, lambda: table.has_focus, "the list")
            await until(
                pilot, lambda: "3 of 7 with …RACE…; Esc: all" in screen_text(app), "the text"
            )
            await until(pilot, lambda: "out1" in screen_text(app), "the text")
            assert "out0" not in screen_text(app)
            await pilot.press("escape")
            await until(pilot, lambda: "out0" in screen_text(app), "the text")
            assert not app.query_one("#fault-filter", Input).display


async def test_filter_that_lets_nothing_through_says_how_to_go_on(tmp_path):
    path = tui_sample.write_run(tmp_path / "run.tkd")
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app._snapshot is not None, "the session")
            await pilot.press("2", "slash", *"nosuch", "enter")
            await until(pilot, lambda: "no such fault; Esc" in screen_text(app), "the hint")
            await pilot.press("enter")  # nothing to open, and nothing breaks
            await pilot.press("escape")
            await until(pilot, lambda: "oob-load" in screen_text(app), "the text")


async def test_more_faults_than_are_listed_are_not_counted_as_all(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "MAX_FAULT_GROUPS", 5)
    path = tui_sample.write_run(tmp_path / "run.tkd", during=different_faults(6))
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app._snapshot is not None, "the session")
            await pilot.press("2")
            await until(pilot, lambda: "only the first 5 are listed" in screen_text(app), "a note")
            await until(pilot, lambda: "5+ faults" in screen_text(app), "the text")
            await until(pilot, lambda: "✖5+" in screen_text(app), "the text")


def test_faults_are_merged_and_counted_as_in_reports(tmp_path):
    def during(file: Path) -> None:
        for launch in (2, 2, 3):  # two ops of a line, and another specialisation's
            for op in (9, 10):
                HOOKS.fault(replace(tui_sample.fault(file, launch), op_id=op))

    with Session.open(tui_sample.write_run(tmp_path / "run.tkd", during=during)) as session:
        groups = Follower(session).poll().faults
        merged = session.fault_groups()
    assert [(g.count, g.launches) for g in groups] == [(7 * 896, 3)]
    assert [(m.fault.count, m.launches) for m in merged] == [(7 * 896, 3)]


def test_faults_that_come_later_add_to_those_that_were_there(tmp_path):
    file = tui_sample.write_sources(tmp_path)

    def fault(launch, kind="oob-load"):
        HOOKS.fault(replace(tui_sample.fault(file, launch), kind=kind))
        recorder.flush()

    with Recorder(tmp_path / "run.tkd", output=False) as recorder:
        fault(1)
        fault(2)
        with Session.open(tmp_path / "run.tkd") as session:
            follower = Follower(session)
            first = follower.poll()
            fault(3)
            fault(3, kind="race")
            second = follower.poll()
    assert [(g.count, g.launches) for g in first.faults] == [(2 * 896, 2)]
    assert {launch for _, launch in first.faulty} == {1, 2}
    assert [(g.count, g.launches) for g in second.faults] == [(3 * 896, 3), (896, 1)]
    assert {launch for _, launch in second.faulty} == {1, 2, 3}

"""The cause of a wrong number in the Faults pane."""

from dataclasses import replace

import tui_sample
from pilot_support import screen_text, until

from tkdebug.instrument.session import Session
from tkdebug.records.events import Cause, SourceEdit
from tkdebug.records.hook_chain import HOOKS
from tkdebug.tui.app import TkdebugApp


async def test_cause_is_first_with_facts_and_a_picture(tmp_path):
    def wrong(file):
        edit = SourceEdit(str(file), 3, ("x = a - b",), ("x = a + \x1b[31mb",))
        fixed = Cause("fixes", (edit,), picture=("##..",))
        HOOKS.fault(replace(tui_sample.fault(file), kind="mismatch", message="o is 1", cause=fixed))

    path = tui_sample.write_run(tmp_path / "run.tkd", faults=False, during=wrong)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app._snapshot is not None, "the session")
            await pilot.press("2")
            await until(pilot, lambda: "the launch agrees" in screen_text(app), "the cause")
            text = screen_text(app)
            assert "3 - x = a - b" in text
            assert "3 + x = a + " in text
            assert "\x1b[31m" not in text
            assert "##.." in text
            assert text.index("the launch agrees") < text.index("o is 1")


async def test_facts_are_shown_without_a_cause(tmp_path):
    def wrong(file):
        cause = Cause("undecided", facts=("o[1] depends on x[2]",))
        HOOKS.fault(replace(tui_sample.fault(file), kind="mismatch", cause=cause))

    path = tui_sample.write_run(tmp_path / "run.tkd", faults=False, during=wrong)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app._snapshot is not None, "the session")
            await pilot.press("2")
            await until(pilot, lambda: "o[1] depends on x[2]" in screen_text(app), "the fact")

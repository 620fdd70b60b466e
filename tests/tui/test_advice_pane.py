"""The advice pane: remarks by rank, the way to their lines, and why there are none."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import tui_sample
from pilot_support import screen_text, until

from tkdebug.advice.records import LaunchCost, Remark
from tkdebug.instrument.session import Session
from tkdebug.records.hook_chain import HOOKS
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.widgets.code_view import CodeView


def record_advice(file, *remarks):
    cost = LaunchCost(
        kernel="add_kernel",
        kernel_hash="h-add",
        launch_id=1,
        file=str(file),
        line=13,
        grid=(97, 1, 1),
        target="sm_90a",
        machine="H100 SXM",
        ceilings="by its data sheet",
        read_bytes=1000,
        written_bytes=500,
        l2_bytes=1500,
        flops=0,
        tensor_flops=0,
        predicted_ns=100.0,
        grid_ns=100.0,
        roof_ns=20.0,
        bound="latency",
        bound_share=0.5,
        occupancy_percent=100.0,
        limited_by=("warps",),
        is_exact=True,
        resources_ns={},
    )
    HOOKS.record(cost)
    for line, kind, message, better_ns in remarks:
        place = ("add_kernel", "h-add", 1, str(file), line)
        HOOKS.record(Remark(*place, kind, message, predicted_ns=100.0, better_ns=better_ns))


@asynccontextmanager
async def shown(path, keys=(), last="Advice"):
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 24)) as pilot:
            await until(pilot, lambda: app._snapshot is not None, "the session")
            await pilot.press("7")
            for key, text in keys:
                await until(pilot, lambda text=text: text in screen_text(app), text)
                await pilot.press(key)
            await until(pilot, lambda: last in screen_text(app), last)
            yield app


async def test_remarks_come_by_gain_and_enter_goes_to_the_line(tmp_path):
    def during(file):
        record_advice(
            file,
            (16, "narrow-access", "loads of 2 bytes \x1b[2J", 80.0),
            (18, "uncoalesced", "32 sectors where 4 would do", 25.0),
        )

    path = tui_sample.write_run(tmp_path / "run.tkd", during=during)
    async with shown(path, last="Advice 2") as app:
        text = screen_text(app)
        rows = [line.split() for line in text.splitlines() if "kernels.py:1" in line]
        assert rows[0][:6] == ["1", "75", "%", "4x", "uncoalesced", "kernels.py:18"]
        assert rows[1][:5] == ["2", "20", "%", "1.25x", "narrow-access"]
        assert "tl.store(out_ptr + offsets" in text
        assert "32 sectors where 4" in text
        assert "\x1b" not in text
    async with shown(path, keys=[("enter", "32 sectors")], last="%8 = arith.addf") as app:
        assert app.query_one("#source", CodeView).line == 18


@pytest.mark.parametrize(
    ("during", "launches", "why"),
    [
        (None, 5, "launches were not looked at for advice; tkdebug run --advise"),
        (None, 0, "no remarks: no kernel was launched"),
        (record_advice, 1, "no remarks: nothing found that would help"),
    ],
)
async def test_without_remarks_it_says_why(tmp_path, during, launches, why):
    path = tui_sample.write_run(
        tmp_path / "run.tkd", launches=launches, during=during, faults=False, exit_status=0
    )
    async with shown(path, last=why) as app:
        assert "Advice" in screen_text(app).splitlines()[1].split()

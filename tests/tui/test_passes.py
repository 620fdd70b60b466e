"""The passes pane and the kernel pane's stages, on a recorded run of a real kernel."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tui_sample
from pilot_support import loaded, screen_text, until, walk
from textual.widgets import Static

from tkdebug.cli import main
from tkdebug.instrument.passes.kernel_passes import load_kernel_passes
from tkdebug.instrument.passes.stage_lines import load_line_table
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS
from tkdebug.linemap.line_table import AssemblerNote
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.passes import text_diff_rows
from tkdebug.tui.widgets.code_view import CodeView
from tkdebug.tui.widgets.line_list import TextList
from tkdebug.tui.widgets.table import Table

SCRIPT = """\
import torch
import triton
import triton.language as tl


@triton.jit
def scaled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    unused = tl.arange(0, 8)
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x * 2.0, mask=offs < n)


x = torch.ones(1024, device="cuda")
out = torch.zeros(1024, device="cuda")
scaled[(8,)](x, out, 1024, BLOCK=128)
"""
LOAD_LINE = 10


@pytest.fixture(scope="module")
def native_path(tmp_path_factory) -> Path:
    """A run whose kernel was also compiled for a GPU, recorded without one."""
    folder = tmp_path_factory.mktemp("native")
    (folder / "scaled.py").write_text(SCRIPT)
    path = folder / "run.tkd"
    with KNOBS.scope(cross_compile="sm_90a"):
        assert main(["run", "--no-tui", "-o", str(path), str(folder / "scaled.py")]) == 0
    return path


@pytest.fixture
def native(native_path):
    with Session.open(native_path) as session:
        yield session


def names(app: TkdebugApp) -> list[str]:
    table = app.query_one("#pass-table", Table)
    return [table._cells(index)[0].text for index in range(table.line_count)]


async def test_a_few_keys_lead_to_what_a_pass_did(native_path):
    await walk(
        native_path,
        "what a pass did to a line",
        ("what became of the line", "after front-end", "tt.load"),
    )


async def passes_shown(pilot) -> None:
    await pilot.press("5")
    await until(pilot, lambda: pilot.app.query_one("#pass-table", Table).line_count, "the passes")


async def select(pilot, name: str) -> None:
    pilot.app.query_one("#pass-table", Table).move_cursor(
        names(pilot.app).index(name), announce=True
    )
    await pilot.pause()


@pytest.mark.parametrize("size", [(80, 24), (150, 40)])
async def test_passes_pane_lists_tile_and_gpu_passes_with_what_they_changed(native, size):
    app = TkdebugApp(native)
    async with app.run_test(size=size) as pilot:
        await loaded(pilot)
        await passes_shown(pilot)
        await pilot.press("o")
        assert names(app)[:2] == ["front-end", "canonicalize"]
        assert names(app)[-1] == "insert-barriers"
        await until(pilot, lambda: "scaled for sm_90a" in screen_text(app), "the text")
        await select(pilot, "eliminate-dead-code")
        await until(pilot, lambda: "erase-dead" in screen_text(app), "the op that was removed")
        assert "op removed" in screen_text(app) or "ops removed" in screen_text(app)


async def test_d_turns_between_ops_and_text(native):
    app = TkdebugApp(native)
    async with app.run_test(size=(150, 40)) as pilot:
        await loaded(pilot)
        await passes_shown(pilot)
        await select(pilot, "assign-layouts")
        await until(pilot, lambda: "(assign-layout)" in screen_text(app), "the changes")
        await pilot.press("d")
        await until(
            pilot, lambda: "+++ gpu-ir after assign-layouts" in screen_text(app), "the diff"
        )
        await pilot.press("d")
        await until(pilot, lambda: "(assign-layout)" in screen_text(app), "the changes")


def test_rows_of_the_text_diff_lead_to_the_source_lines_of_their_ops(native):
    kernel = native.kernels()[-1]
    passes = load_kernel_passes(native, kernel)
    diff = next(d for d in passes.diffs if d.name == "coalesce-accesses")
    rows = text_diff_rows(passes, diff)
    loads = [row for row in rows if "tt.load" in row.text]
    assert [row.text[0] for row in loads] == ["-", "+"]
    assert [row.place[1] for row in loads] == [LOAD_LINE, LOAD_LINE]
    stores = [row for row in rows if "tt.store" in row.text]
    assert {row.place[1] for row in stores} == {LOAD_LINE + 1}
    assert all(row.place is None for row in rows[:3])


async def test_passes_that_did_nothing_are_left_out_until_o_shows_all(native):
    app = TkdebugApp(native)
    async with app.run_test(size=(150, 40)) as pilot:
        await loaded(pilot)
        await passes_shown(pilot)
        await until(pilot, lambda: "of the compile's" in screen_text(app), "the text")
        changed = names(app)
        assert "pipeline-wgmma" not in changed
        assert "front-end" in changed
        await pilot.press("o")
        await until(pilot, lambda: "pipeline-wgmma" in names(app), "all passes")
        every = len(names(app))
        assert f"{every} passes, o: the {len(changed)} that changed it" in screen_text(app)
        await pilot.press("o")
        await until(pilot, lambda: names(app) == changed, "those that changed something")
        assert f"{len(changed)} of {every} passes, o: all" in screen_text(app)


async def test_line_is_followed_from_the_kernel_through_every_pass_and_back(native):
    app = TkdebugApp(native)
    async with app.run_test(size=(150, 40)) as pilot:
        await loaded(pilot)
        await pilot.press("3")
        await until(pilot, lambda: "for sm_90a" in str(title(app)), "the native kernel")
        app.query_one("#source", CodeView).go_to(LOAD_LINE)
        await pilot.press("l")
        await until(pilot, lambda: "sass" in names(app), "the life of the line")
        assert f"follows scaled.py:{LOAD_LINE}" in screen_text(app)
        assert names(app)[0] == "front-end"
        assert names(app)[-3:] == ["llvm-ir", "ptx", "sass"]
        assert app.query_one("#pass-table", Table).cursor == 0
        await select(pilot, "sass")
        await until(pilot, lambda: "LDG" in screen_text(app), "the instruction")
        await select(pilot, "coalesce-accesses")
        await pilot.press("escape")
        await until(pilot, lambda: "sass" not in names(app), "all ops")
        table = app.query_one("#pass-table", Table)
        assert names(app)[table.cursor] == "coalesce-accesses"


def title(app: TkdebugApp) -> object:
    return app.query_one("#kernel-title", Static).content


async def test_enter_on_a_change_goes_to_its_source_line(native):
    app = TkdebugApp(native)
    async with app.run_test(size=(150, 40)) as pilot:
        await loaded(pilot)
        await passes_shown(pilot)
        await select(pilot, "coalesce-accesses")
        await pilot.press("enter")
        text = app.query_one("#pass-text", TextList)
        index = next(i for i, row in enumerate(text._rows) if "tt.load" in row.text)
        text.move_cursor(index)
        await pilot.press("enter")
        source = app.query_one("#source", CodeView)
        await until(pilot, lambda: source.line == LOAD_LINE and source.lit, "the source line")


async def test_kernel_pane_lights_sass_of_a_line_and_the_line_of_an_instruction(native):
    app = TkdebugApp(native)
    async with app.run_test(size=(150, 40)) as pilot:
        await loaded(pilot)
        await pilot.press("3")
        await until(pilot, lambda: "for sm_90a" in str(title(app)), "the native kernel")
        await pilot.press("t")
        await until(pilot, lambda: "sass" in screen_text(app), "the list of stages")
        await pilot.press("end", "enter")
        stage, source = app.query_one("#stage", CodeView), app.query_one("#source", CodeView)
        await until(pilot, lambda: any("LDG" in line for line in stage.code.lines), "the SASS")
        source.go_to(LOAD_LINE - 1)
        source.focus()
        await pilot.press("down")
        await until(pilot, lambda: stage.lit, "the instructions of the load")
        lit = [stage.code.lines[number - 1] for number in stage.lit]
        assert any("LDG" in line for line in lit)
        assert not any("STG" in line for line in lit)
        assert re.search(
            r"line 10: \d+ lines of sass   \d+ SASS, \d+ regs, load ", screen_text(app)
        )
        assert re.search(r"for sm_90a  \d+ registers, .*occupancy \d+ %", screen_text(app))
        first, second, *_ = sorted(stage.lit)
        assert stage.line == first
        await pilot.press("right_square_bracket")
        assert stage.line == second
        await pilot.press("left_square_bracket", "left_square_bracket")
        assert stage.line == max(stage.lit)
        assert source.line == LOAD_LINE
        store = next(i for i, line in enumerate(stage.code.lines) if "STG" in line)
        stage.focus()
        stage.move_cursor(store, announce=True)
        await until(pilot, lambda: source.line == LOAD_LINE + 1, "the line of the store")


async def test_kernel_pane_shows_what_the_assembler_notes(native, monkeypatch):
    def noted(session, kernel_hash):
        table, reason = load_line_table(session, kernel_hash)
        if table is not None:
            table = replace(table, notes=(AssemblerNote("C7510", "serialised"),))
        return table, reason

    monkeypatch.setattr("tkdebug.tui.kernel.text.load_line_table", noted)
    app = TkdebugApp(native)
    async with app.run_test(size=(150, 40)) as pilot:
        await loaded(pilot)
        await pilot.press("3")
        await until(pilot, lambda: "C7510: serialised" in screen_text(app), "the note")


async def test_passes_that_were_not_recorded_are_said_to_be_missing(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(110, 30)) as pilot:
        await loaded(pilot)
        await pilot.press("5")
        await until(pilot, lambda: "was not recorded" in screen_text(app), "why there are none")
        await pilot.press("d", "o", "l", "enter", "escape", "n")
        assert app.is_running


async def test_passes_pane_survives_any_key_and_size(native):
    app = TkdebugApp(native)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await passes_shown(pilot)
        for size in ((200, 60), (1, 1), (300, 5), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.press("down", "d", "end", "o", "tab", "down", "l", "escape", "n", "N", "d")
        assert app.is_running


def test_tui_reads_passes_without_torch_or_the_compiler(native_path):
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tkdebug.instrument.session import Session\n"
        "from tkdebug.tui.kernel.text import load_kernel_text\n"
        "import tkdebug.tui.passes\n"
        "from tkdebug.instrument.passes.kernel_passes import load_kernel_passes\n"
        "session = Session.open(Path(sys.argv[1]))\n"
        "kernel = session.kernels()[-1]\n"
        "assert load_kernel_passes(session, kernel).later[-1].name == 'sass'\n"
        "text = load_kernel_text(session, kernel, kernel.file, 'sass')\n"
        "assert text.stage == 'sass' and text.stage_code.lines\n"
        "bad = {'torch', 'llvmlite', 'cuda', 'tkdebug.compiler'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    import subprocess

    root = Path(tui_sample.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(native_path)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


async def test_passes_pane_begins_with_the_first_change_and_says_what_its_signs_mean(native):
    app = TkdebugApp(native)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await passes_shown(pilot)
        table = app.query_one("#pass-table", Table)
        await until(pilot, lambda: table.cursor > 0, "the first change")
        await until(pilot, lambda: "~ replaced" in screen_text(app), "the text")
        footer = screen_text(app).splitlines()[-1]
        assert "Ops/text" in footer
        assert "All ops" not in footer
        assert "q Quit" in footer
        await select(pilot, "front-end")
        await until(pilot, lambda: "ops made of the source" in screen_text(app), "the front end")


async def test_followed_line_shows_its_text_and_counts_lines(native):
    app = TkdebugApp(native)
    async with app.run_test(size=(120, 40)) as pilot:
        await loaded(pilot)
        await pilot.press("3")
        source = app.query_one("#source", CodeView)
        await until(pilot, lambda: source.has_focus and source.line == 7, "the kernel")
        await pilot.press(*["down"] * (LOAD_LINE - 7), "l")
        await until(pilot, lambda: "what became of the line" in screen_text(app), "the life")
        await until(pilot, lambda: "esc All ops" in screen_text(app), "the keys of the life")
        text = screen_text(app)
        assert "x = tl.load(x_ptr + offs" in text.splitlines()[2]
        assert "esc All ops" in text.splitlines()[-1]
        assert "Ops/text" not in text.splitlines()[-1]


async def test_changes_stand_beside_their_source_lines(native):
    app = TkdebugApp(native)
    async with app.run_test(size=(120, 40)) as pilot:
        await loaded(pilot)
        await passes_shown(pilot)
        await select(pilot, "coalesce-accesses")
        await until(pilot, lambda: f" {LOAD_LINE}   tt.load" in screen_text(app), "the load's line")

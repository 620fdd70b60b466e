"""The TUI and `tkdebug passes` say of a line that no pass changed it."""

import pytest
from pilot_support import loaded, screen_text, until

from tkdebug.cli import main
from tkdebug.instrument.session import Session
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.widgets.code_view import CodeView

SCRIPT = """\
import torch, triton, triton.language as tl
@triton.jit
def doubled(x_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(x_ptr + offs, x + x)
doubled[(1,)](torch.ones(16, device="cuda"), BLOCK=16)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doubled")
    (folder / "script.py").write_text(SCRIPT)
    path = folder / "run.tkd"
    assert main(["run", "--no-tui", "-o", str(path), str(folder / "script.py")]) == 0
    return path


@pytest.mark.parametrize(("line", "is_untouched"), [(4, True), (6, False)])
def test_passes_say_that_no_pass_changed_the_line(recorded, capsys, line, is_untouched):
    assert main(["passes", str(recorded), "--line", str(line)]) == 0
    assert ("\nno pass changed this line\n" in capsys.readouterr().out) == is_untouched


async def test_passes_pane_says_that_no_pass_changed_the_line(recorded):
    with Session.open(recorded) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await loaded(pilot)
            await pilot.press("3")
            source = app.query_one("#source", CodeView)
            await until(pilot, lambda: source.has_focus and source.line == 3, "the kernel")
            await pilot.press("down", "l")
            await until(pilot, lambda: "follows script.py:4" in screen_text(app), "the life")
            await until(
                pilot,
                lambda: "after front-end  no pass changed this line" in screen_text(app),
                "the text",
            )


async def test_passes_pane_says_that_nothing_comes_from_the_line(recorded):
    with Session.open(recorded) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await loaded(pilot)
            await pilot.press("3")
            source = app.query_one("#source", CodeView)
            await until(pilot, lambda: source.has_focus and source.line == 3, "the kernel")
            await pilot.press("home", "l")
            said = "no op of this kernel comes from this line"
            await until(pilot, lambda: said in screen_text(app), "that there is nothing")


async def test_kernel_pane_names_the_whole_stage(recorded):
    with Session.open(recorded) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await loaded(pilot)
            await pilot.press("3")
            source = app.query_one("#source", CodeView)
            await until(pilot, lambda: source.has_focus and source.line == 3, "the kernel")
            await pilot.press("S", "down")
            wanted = "of tile-ir after eliminate-common-subexpressions"
            await until(pilot, lambda: wanted in screen_text(app), "the stage")

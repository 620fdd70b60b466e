from __future__ import annotations

import os
import signal
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
import tui_sample
from pilot_support import loaded, notified, printed, screen_text, until
from textual.color import Color
from textual.widgets import Input, Static, TabbedContent, TabPane

from tkdebug.errors import SessionError
from tkdebug.instrument.session import Session
from tkdebug.records import scopes
from tkdebug.records.events import Fault
from tkdebug.records.hook_chain import HOOKS
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.drawing import palette
from tkdebug.tui.drawing.palette import OnLight
from tkdebug.tui.pane import Pane
from tkdebug.tui.session.follow import AwaitedSession
from tkdebug.tui.widgets.code_view import CodeView
from tkdebug.tui.widgets.dialogs import HelpScreen, PickScreen, QuitScreen
from tkdebug.tui.widgets.table import Cell, Table

SIZES = [(80, 24), (110, 30), (200, 60)]


@pytest.mark.parametrize("size", SIZES)
async def test_app_shows_every_pane_at_any_size(session, size):
    app = TkdebugApp(session)
    async with app.run_test(size=size) as pilot:
        await loaded(pilot)
        text = screen_text(app)
        assert "train.py" in text
        assert "ended, faults (exit 3)" in text
        assert "add_kernel" in text
        assert "100.0%" in text
        await until(pilot, lambda: "98432" in screen_text(app), "the launch's arguments")
        await pilot.press("2")
        await until(pilot, lambda: "tl.load(pointer" in screen_text(app), "the fault's source")
        await until(pilot, lambda: "fix  add mask=offsets < n" in screen_text(app), "the text")
        await pilot.press("enter")
        await until(pilot, lambda: "%x = tt.load" in screen_text(app), "the op's line")
        await pilot.press("4")
        await until(pilot, lambda: "printed nothing" in screen_text(app), "the output")


async def test_panes_are_mounted_when_first_opened(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        assert [pane.TAB for pane in app.query(Pane)] == ["launches"]
        assert "2 Faults ✖1" in screen_text(app)
        await pilot.press("2", "slash", *"rac")
        await until(pilot, lambda: "0 of 1 with …rac…" in screen_text(app), "the filter")
        assert [pane.TAB for pane in app.query(Pane)] == ["launches", "faults"]


async def test_app_survives_any_resize(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        for tab in "1234":
            await pilot.press(tab)
            for size in ((200, 60), (1, 1), (300, 5), (80, 24)):
                await pilot.resize_terminal(*size)
                await pilot.pause()
        await pilot.press("question_mark")
        await pilot.resize_terminal(30, 8)
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)


_CALL = "x = load_row(x_ptr, offsets)"


async def test_fault_detail_says_program_index_range_and_chain(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(200, 60)) as pilot:
        await loaded(pilot)
        await pilot.press("2")
        await until(pilot, lambda: _CALL in screen_text(app), "the fault")
        text = screen_text(app)
        assert "(96, 0, 0)" in text
        assert "98,432, legal 0 to 98,431: 1 past the end" in text
        lines = text.split("\n")
        at = next(i for i, line in enumerate(lines) if "return tl.load(pointer" in line)
        assert lines[at].index("tl.load") == lines[at + 1].index("^")


async def test_fault_detail_has_the_launch_and_its_arguments(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(200, 60)) as pilot:
        await loaded(pilot)
        await pilot.press("2")
        await until(pilot, lambda: "launch 1  grid 97" in screen_text(app), "the launch")
        await until(
            pilot,
            lambda: "y_ptr  pointer<fp32> [64, 32] strides [1, 64]" in screen_text(app),
            "the text",
        )
        await until(pilot, lambda: "element  [128]" in screen_text(app), "the text")


@pytest.mark.parametrize(
    ("keys", "copied"),
    [
        ("1", "add_kernel  launch 5  grid 97"),
        ("2", "fix  add mask=offsets < n to the load"),
        ("3", "    pid = tl.program_id(0)"),
        ("4", None),
    ],
)
async def test_y_copies_what_is_looked_at(session, keys, copied):
    app = TkdebugApp(session)
    async with app.run_test(size=(140, 40)) as pilot:
        await loaded(pilot)
        await pilot.press(*keys)
        await until(pilot, lambda: app.focused is not None, "the pane's focus")
        await until(pilot, lambda: copied is None or "launch" in screen_text(app), "the details")
        await pilot.pause(0.2)
        await pilot.press("y")
        await until(pilot, lambda: notified(app), "what is said of it")
    assert (copied or "") in app.clipboard
    assert notified(app)[0].startswith("copied " if copied else "nothing to copy")


async def test_few_faults_leave_the_room_to_their_details(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(100, 40)) as pilot:
        await loaded(pilot)
        await pilot.press("2")
        table = app.query_one("#fault-table", Table)
        await until(pilot, lambda: table.size.height == 4, "the small table")
        assert app.query_one("#fault-detail").size.height > 25


async def test_narrow_screen_has_the_counts_of_faults_and_help_in_columns(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(60, 20)) as pilot:
        await loaded(pilot)
        await pilot.press("2")
        await until(pilot, lambda: "count" in screen_text(app), "the faults")
        await pilot.press("question_mark")
        await until(pilot, lambda: "Everywhere" in screen_text(app), "the help")
        lines = screen_text(app).splitlines()
        at = next(number for number, line in enumerate(lines) if "0 … " in line)
        assert lines[at + 1].index("output") == lines[at].index("home")


async def test_w_keeps_the_recording(session, tmp_path, monkeypatch):
    folder = tmp_path / "kept"
    folder.mkdir()
    monkeypatch.chdir(folder)
    app = TkdebugApp(session)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(pilot)
        for number, name in enumerate(("train.tkd", "train-2.tkd"), 1):
            await pilot.press("w")
            await until(
                pilot, lambda number=number: len(notified(app)) == number, "what is said of it"
            )
            with Session.open(folder / name) as copy:
                assert copy.launch_count() == session.launch_count()
                assert copy.kernels() == session.kernels()
    assert notified(app)[0] == "saved; tkdebug view train.tkd opens it"
    assert sorted(path.name for path in folder.iterdir()) == ["train-2.tkd", "train.tkd"]


async def test_fault_enter_goes_to_the_line_and_lights_the_ops(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(140, 40)) as pilot:
        await loaded(pilot)
        await pilot.press("2", "enter")
        source, stage = app.query_one("#source", CodeView), app.query_one("#stage", CodeView)
        await until(pilot, lambda: source.line == 9, "the faulting line")
        assert app.query_one(TabbedContent).active == "kernel"
        assert stage.lit == {8, 9, 10}


async def test_kernel_lines_light_each_other_both_ways(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(140, 40)) as pilot:
        await loaded(pilot)
        await pilot.press("3")
        source, stage = app.query_one("#source", CodeView), app.query_one("#stage", CodeView)
        await until(pilot, lambda: source.has_focus and source.line == 14, "the kernel's first op")
        await until(pilot, lambda: stage.lit == {2}, "the ops of line 14")
        assert stage.line == 2
        await pilot.press("enter")
        await until(pilot, lambda: stage.has_focus, "the other side")
        await pilot.press(*["down"] * 8)
        await until(pilot, lambda: source.lit == {9, 16}, "the chain of the op")
        assert source.line == 9
        chain = str(app.query_one("#kernel-chain", Static).render())
        assert "kernels.py:9 load_row" in chain
        assert "kernels.py:16 add_kernel" in chain


async def test_kernel_stages_and_kernels_can_be_chosen(tmp_path):
    def more(file: Path) -> None:
        HOOKS.compiled(tui_sample.compiled(file, "other_kernel", "h-other"))

    with Session.open(tui_sample.write_run(tmp_path / "run.tkd", during=more)) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(140, 40)) as pilot:
            await loaded(pilot)
            await pilot.press("3", "s")
            stage = app.query_one("#stage", CodeView)
            await until(pilot, lambda: stage.code.lines[0] == "// gpu", "the other stage")
            await pilot.press("p")
            await until(pilot, lambda: isinstance(app.screen, PickScreen), "the list")
            await pilot.press("down", "enter")
            await until(pilot, lambda: "2/2 other_kernel" in screen_text(app), "the other kernel")
            assert stage.code.lines[0] == "// gpu"
            await pilot.press("n")
            await until(pilot, lambda: "1/2 add_kernel" in screen_text(app), "the first again")


async def test_launches_filter_and_sort(tmp_path):
    def more(file: Path) -> None:
        for number in range(6, 10):
            tui_sample.launch(number, number, "softmax_kernel", "h-2")

    with Session.open(tui_sample.write_run(tmp_path / "run.tkd", during=more)) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(100, 40)) as pilot:
            await loaded(pilot)
            table = app.query_one("#launch-table", Table)
            assert table.line_count == 9
            assert table.key == 9
            await pilot.press("slash", *"soft")
            await until(pilot, lambda: table.line_count == 4, "the filter")
            await pilot.press("enter")
            await until(pilot, lambda: table.has_focus, "the launches")
            await pilot.press("escape")
            assert table.line_count == 9
            await pilot.press("o", "o", "o", "home")
            assert table.key == 5  # the longest first
            await pilot.press("r")
            await pilot.press("home")
            assert table.key == 6
            summary = app.query_one("#summary", Table)
            summary.focus()
            await pilot.press("down", "enter")
            await until(pilot, lambda: table.line_count == 4, "only the launches of a kernel")


async def test_launch_selection_stays_while_rows_come(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        table = app.query_one("#summary", Table)
        for keys, key, expected in ((range(30), 29, 31), (range(30), 27, 27), (range(5), 4, 4)):
            table.show_rows(keys, lambda index: [Cell("")] * 8)
            table.select_key(key)
            more = [*keys, 30, 31] if key != 4 else list(reversed(keys))
            table.show_rows(more, lambda index: [Cell("")] * 8, follow_last=key != 4)
            assert table.key == expected


async def test_empty_session_says_what_to_do(tmp_path):
    path = tui_sample.write_run(tmp_path / "run.tkd", launches=0, faults=False, exit_status=0)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: "no kernel was launched" in screen_text(app), "the hint")
            await pilot.press("2")
            await until(pilot, lambda: "none could fault" in screen_text(app), "the hint")


ACTING = "\x1b[31m\x07\x9b2J\u202e\u2066\u200b\u2028\ufeff"
HOSTILE = f"[bold red]k[/] [@click=app.quit]x[/] {ACTING}[/nonsense] $x [link=file:///]"


def acts(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


async def test_markup_and_escapes_of_a_session_stay_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where `w` writes

    def more(file: Path) -> None:
        with scopes.state(HOSTILE):
            tui_sample.launch(51, 5, HOSTILE, "h-bad")
        HOOKS.compiled(tui_sample.compiled(file, HOSTILE, "h-bad"))
        tui_sample.launch(50, 5, HOSTILE, "h-bad")
        HOOKS.fault(
            Fault(
                kind=HOSTILE,  # type: ignore[arg-type]
                kernel=HOSTILE,
                frames=(tui_sample.Frame(HOSTILE, 3, HOSTILE),),
                message=HOSTILE,
                tensor=HOSTILE,
                hint=HOSTILE,
            )
        )

    path = tui_sample.write_run(tmp_path / "run.tkd", faults=False, during=more)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(200, 50), notifications=True) as pilot:
            await loaded(pilot)
            keys = "1 end y 2 enter y 3 n n p escape s t escape l 4 y 5 n o l p escape y w"
            for key in keys.split():
                await pilot.press(key)
                await pilot.pause(0.1)
                assert not any(map(acts, screen_text(app).replace("\n", ""))), key
            await pilot.press("1", "end")
            await until(pilot, lambda: "[bold red]k[/]" in screen_text(app), "the name as it is")
            await pilot.press("2")
            await until(
                pilot, lambda: "fix  [bold red]k[/]" in screen_text(app), "the hint as it is"
            )


async def test_recorded_output_is_shown_in_its_colours(tmp_path):
    path = tmp_path / "run.tkd"
    script = (
        "import sys; from tkdebug.instrument.recorder import Recorder\n"
        "with Recorder(sys.argv[1]):\n"
        "    print('\\033[31mred\\033[0m [b]plain[/b]')\n    print('10%\\r99%')\n"
    )
    os.spawnl(os.P_WAIT, sys.executable, sys.executable, "-c", script, str(path))
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: printed(app) == "red [b]plain[/b]\n99%", "the output")
            await pilot.press("4")
            assert not app.query_one("#input", Input).display


async def test_help_opens_and_closes(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        assert not isinstance(app.screen, HelpScreen)


async def test_quit_of_a_recorded_run_asks_nothing(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await pilot.press("ctrl+c")
        assert app.is_running
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running, "the end")


async def test_session_that_breaks_is_reported_and_what_was_read_stays(session):
    class Breaking:
        broken = False

        def __getattr__(self, name):
            if self.broken and name == "run":
                raise SessionError("run.tkd: truncated or damaged session")
            return getattr(session, name)

    breaking = Breaking()
    app = TkdebugApp(breaking)
    async with app.run_test(size=(200, 24)) as pilot:
        await loaded(pilot)
        breaking.broken = True
        await until(pilot, lambda: "damaged session" in screen_text(app), "the reason")
        await until(pilot, lambda: "add_kernel" in screen_text(app), "the text")


@pytest.fixture
def live(tmp_path, script):
    """The app over a script that is given as text; `PATH` in it is the session."""
    from tkdebug.tui.script.child import Child

    children = []

    def make(text: str) -> TkdebugApp:
        path = tmp_path / "run.tkd"
        here = str(Path(tui_sample.__file__).parent)
        head = (
            f"import sys, time; sys.path.insert(0, {here!r})\n"
            "import pathlib, tui_sample\n"
            "from tkdebug.records.hook_chain import HOOKS\n"
            "from tkdebug.instrument.recorder import Recorder\n"
            f"PATH = pathlib.Path({str(path)!r})\n"
        )
        awaited = AwaitedSession(path)
        child = Child(script(head + text), rows=24, columns=80)
        children.append(child)
        return TkdebugApp(awaited, child)

    yield make
    for child in children:
        child.stop()
        child.close()


RECORDED = """
recorder = Recorder(PATH, script="live.py").start()
file = tui_sample.write_sources(PATH.parent)
print("[red]ready[/red]", flush=True)
word = input("go? ")
HOOKS.compiled(tui_sample.compiled(file))
tui_sample.launch(1)
tui_sample.launch(2, None)
tui_sample.progress(2, 45, 100)
HOOKS.fault(tui_sample.fault(file))
recorder.flush()
try:
    time.sleep(1000)
except KeyboardInterrupt:
    print("stopping on", word)
    recorder.stop(3)
    sys.exit(3)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="ptys are POSIX")
async def test_live_script_prints_reads_launches_and_is_interrupted(live):
    app = live(RECORDED)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "go? " in printed(app), "the question")
        await until(pilot, lambda: "no kernel launched yet" in screen_text(app), "the empty state")
        await pilot.press("4", "i")
        await pilot.press(*"q1", "enter")
        await until(pilot, lambda: "▶ 45%" not in screen_text(app), "the output pane")
        await pilot.press("escape", "1")
        await until(pilot, lambda: "▶ 45%" in screen_text(app), "the launch under way")
        await until(pilot, lambda: "running" in screen_text(app), "the text")
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "stopping on q1" in printed(app), "its answer to Ctrl-C")
        assert "[red]ready[/red]" in printed(app)
        await until(pilot, lambda: "ended, faults (exit 3)" in screen_text(app), "the end")
        await until(pilot, lambda: "unfinished" in screen_text(app), "the text")
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running, "the app's end")


@pytest.mark.skipif(sys.platform == "win32", reason="ptys are POSIX")
async def test_live_script_killed_leaves_what_it_had(live):
    app = live(RECORDED)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "go? " in printed(app), "the question")
        app._child.write(b"\n")
        await until(pilot, lambda: "▶ 45%" in screen_text(app), "the launch under way")
        os.kill(app._child.pid, signal.SIGKILL)
        await until(pilot, lambda: "killed by signal 9" in screen_text(app), "the end")
        await until(pilot, lambda: "2 launches" in screen_text(app), "the text")
        await until(pilot, lambda: "1 fault" in screen_text(app), "the text")


@pytest.mark.skipif(sys.platform == "win32", reason="ptys are POSIX")
async def test_live_quit_asks_and_stops_the_script(live):
    app = live("print('up', flush=True)\ntime.sleep(1000)\n")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "up" in printed(app), "the script")
        await pilot.press("q")
        assert isinstance(app.screen, QuitScreen)
        await until(pilot, lambda: "Ctrl-C first, so it can clean up" in screen_text(app), "why")
        await pilot.press("escape")
        assert not isinstance(app.screen, QuitScreen)
        assert app._child.status is None
        await pilot.press("q", "s")
        await until(pilot, lambda: not app.is_running, "the app's end")
    assert app._child.status == -signal.SIGINT


@pytest.mark.skipif(sys.platform == "win32", reason="ptys are POSIX")
async def test_live_quit_lets_the_script_run_on(live):
    app = live("print('up', flush=True)\ntime.sleep(1000)\n")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "up" in printed(app), "the script")
        await pilot.press("q", "l")
        await until(pilot, lambda: not app.is_running, "the app's end")
    assert app.runs_on
    assert app._child.status is None


@pytest.mark.skipif(sys.platform == "win32", reason="ptys are POSIX")
async def test_live_script_that_fails_before_any_kernel_shows_its_output(live):
    app = live("sys.exit('no such data set')\n")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "no such data set" in screen_text(app), "the message")
        await until(pilot, lambda: "failed (exit 1)" in screen_text(app), "the status")
        assert app.query_one(TabbedContent).active == "output"


@pytest.mark.parametrize("tab", "12345")
async def test_keys_of_every_pane_fit_into_80_columns(session, tab):
    app = TkdebugApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await pilot.press(tab)
        await until(pilot, lambda: app.focused is not None, "the pane's focus")
        await pilot.pause()
        footer = screen_text(app).splitlines()[-1]
        assert "? Help" in footer
        assert "q Quit" in footer


async def test_find_moves_the_cursor_of_the_side_in_focus(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(140, 40)) as pilot:
        await loaded(pilot)
        await pilot.press("3")
        source, stage = app.query_one("#source", CodeView), app.query_one("#stage", CodeView)
        await until(pilot, lambda: source.has_focus and source.line == 14, "the first op")
        await pilot.press("slash", *"TL.", "backspace")
        await until(pilot, lambda: app.query_one("#kernel-pane .find").has_class("-nothing"), "no")
        assert source.line == 14  # capitals count where there are some
        await pilot.press("ctrl+u", *"tl.load")
        await until(pilot, lambda: source.line == 17, "the first load from here")
        await until(pilot, lambda: stage.lit == {11}, "its op")
        await pilot.press("enter")
        await until(pilot, lambda: source.line == 9, "round to the load of the device function")
        await pilot.press("up")
        await until(pilot, lambda: source.line == 17, "back again")
        await pilot.press("escape")
        await until(pilot, lambda: source.has_focus, "the source")
        assert source.line == 17
        await pilot.press("slash", "ctrl+u", *":12", "enter")
        await until(pilot, lambda: source.line == 12 and source.has_focus, "line 12")


async def test_specialisations_are_distinguished_where_they_differ(tmp_path):
    def more(file: Path) -> None:
        other = tui_sample.compiled(file, "add_kernel", "h-other")
        HOOKS.compiled(replace(other, signature=other.signature.replace("1024", "64")))

    with Session.open(tui_sample.write_run(tmp_path / "run.tkd", during=more)) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 30)) as pilot:
            await loaded(pilot)
            await pilot.press("3", "n")
            await until(pilot, lambda: "2/2 add_kernel  BLOCK=64" in screen_text(app), "the other")
            await pilot.press("p")
            await until(pilot, lambda: isinstance(app.screen, PickScreen), "the list")
            await until(
                pilot, lambda: "add_kernel  BLOCK=1024  x_ptr" in screen_text(app), "the text"
            )
            assert app.screen.query_one("#pick", Table).cursor == 1


async def test_palette_is_darkened_on_a_light_theme(session):
    def colors() -> set[str]:
        strips = app.screen._compositor.render_strips()
        segments = [segment for strip in strips for segment in strip]
        light = next(f for f in app.get_line_filters() if isinstance(f, OnLight))
        filtered = light.apply(segments, Color(255, 255, 255))
        return {s.style.color.name for s in filtered if s.style and s.style.color}

    app = TkdebugApp(session)
    async with app.run_test(size=(120, 30)) as pilot:
        await loaded(pilot)
        await pilot.press("3", "T")
        await until(pilot, lambda: not app.current_theme.dark, "the light theme")
        await pilot.pause()
        assert palette.ON_LIGHT["#cc79d7"] in colors()
        assert not colors() & set(palette.ON_LIGHT)
        await pilot.press("T")
        assert app.current_theme.dark


def test_palette_has_a_darker_hue_for_each_of_its_colours():
    styles = [v for name, v in vars(palette).items() if name.isupper() and isinstance(v, str)]
    used = {word for style in styles for word in style.split() if word.startswith("#")}
    used |= {s.color.name for s in palette.CODE_STYLES.values() if s.color}
    assert used <= set(palette.ON_LIGHT)


async def test_recorded_run_with_faults_does_not_look_clean(tmp_path):
    path = tui_sample.write_run(tmp_path / "run.tkd", exit_status=0)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(100, 24)) as pilot:
            await loaded(pilot)
            await until(
                pilot,
                lambda: "✖ ended, faults (the script: exit 0)" in screen_text(app),
                "the text",
            )
            assert "✓ ended" not in screen_text(app)


@pytest.mark.parametrize(
    "name", ["triton_poi_fused_add_native_layer_norm_mul_7", "kernel_" * 9 + "8"]
)
async def test_long_kernel_names_keep_their_ends(tmp_path, name):
    path = tui_sample.write_run(tmp_path / "run.tkd", kernel=name, faults=False)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(80, 24)) as pilot:
            await loaded(pilot)
            lines = screen_text(app).splitlines()
            assert sum("…" in line and name[-3:] in line for line in lines) >= 2


async def test_compile_error_is_in_no_launch(tmp_path):
    def more(file: Path) -> None:
        HOOKS.fault(Fault("compile-error", "bad", tui_sample.frames(file, 14), "no `lod`", 0))

    path = tui_sample.write_run(tmp_path / "run.tkd", launches=0, faults=False, during=more)
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(100, 30)) as pilot:
            await loaded(pilot)
            await until(
                pilot, lambda: "press 2 to see what was wrong" in screen_text(app), "the text"
            )
            await pilot.press("2")
            await until(pilot, lambda: "no `lod`" in screen_text(app), "the error")
            assert "first in launch" not in screen_text(app)


async def test_pane_that_is_late_to_say_it_had_the_focus_does_not_come_back(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(pilot)
        await pilot.press("4")
        tabs = app.query_one(TabbedContent)
        await until(pilot, lambda: tabs.active == "output", "the output")
        tabs.post_message(TabPane.Focused(tabs.get_pane("launches")))
        for _ in range(5):
            await pilot.pause()
        assert tabs.active == "output"
        await pilot.click("#--content-tab-faults")
        await until(pilot, lambda: tabs.active == "faults", "the tab that was clicked")
        await until(pilot, lambda: app.query_one("#fault-table").has_focus, "the focus of the list")

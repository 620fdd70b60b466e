from hypothesis import given, settings
from hypothesis import strategies as st
from textual.app import App

from tkdebug.terminal.text import visible_line
from tkdebug.tui.output import OutputView
from tkdebug.tui.script import terminal
from tkdebug.tui.script.terminal import Line, OutputSnapshot, Terminal


def lines(*chunks: str, rows: int = 24) -> list[str]:
    screen = Terminal(rows)
    for chunk in chunks:
        screen.feed(chunk)
    return [line.text for line in screen.snapshot().lines]


def test_terminal_carriage_return_overwrites():
    assert lines("10%\r100%\r\ndone\r\n") == ["100%", "done"]


def test_terminal_backspace_and_tab():
    assert lines("ab\bc\td") == ["ac      d"]


def test_terminal_erases_to_end_of_line():
    assert lines("long text\rok\x1b[K") == ["ok"]


def test_terminal_moves_up_as_nested_progress_bars_do():
    assert lines("a\nb\nc\x1b[2A\rA\x1b[1B\rB\x1b[1B\rC") == ["A", "B", "C"]


def test_terminal_cursor_stops_at_the_top_of_the_screen():
    assert lines("1\n2\n3\n4\x1b[99A\rX", rows=2) == ["1", "2", "X", "4"]


def test_terminal_clearing_keeps_what_was_printed():
    assert lines("kept\n\x1b[2J\x1b[Hnew", rows=2)[0] == "kept"
    assert lines("kept\n\x1b[2J\x1b[Hnew", rows=2)[-1] == "new"


def test_terminal_colours_are_runs():
    screen = Terminal()
    screen.feed("a\x1b[1;31mb\x1b[38;5;200mc\x1b[0md")
    runs = screen.snapshot().runs(0)
    assert [text for text, _ in runs] == ["a", "b", "c", "d"]
    assert runs[1][1].bold
    assert runs[1][1].color.number == 1
    assert runs[2][1].color.number == 200
    assert not runs[3][1]


def test_terminal_drops_titles_and_other_strings():
    assert lines("a\x1b]0;title\x07b\x1bP1;2q#stuff\x1b\\c") == ["abc"]


def test_terminal_string_without_end_does_not_swallow_the_rest():
    assert lines("\x1b]0;" + "x" * (terminal.MAX_STRING_CHARS + 10), "\nafter")[-1] == "after"


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_terminal_chunks_do_not_matter(data):
    piece = st.sampled_from(
        (
            "ab|\r|\n|\t|\b|\x1b[31m|\x1b[0m|\x1b[2A|\x1b[K|\x1b[2J|\x1b]0;t\x07|\x1b[5;9H|\x1b|[|é|"
            "\x1b[1;2;3|\x1b(B|\x9b|日本"
        ).split("|")
    )
    text = "".join(data.draw(st.lists(piece, max_size=40)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert lines(text, rows=5) == lines(*parts, rows=5)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters(), max_size=300))
def test_terminal_lines_hold_no_control_characters(text):
    screen = Terminal(4)
    screen.feed(text)
    for line in screen.snapshot().lines:
        assert visible_line(line.text) == line.text
        assert line.styles is None or len(line.styles) == len(line.text)


def test_terminal_memory_is_bounded():
    screen = Terminal()
    screen.feed("x\n" * (terminal.MAX_LINES + 500))
    snapshot = screen.snapshot()
    assert len(snapshot.lines) <= terminal.MAX_LINES
    assert snapshot.first >= 500
    screen = Terminal()
    screen.feed("y" * 10**6)
    assert len(screen.snapshot().lines[0].text) == terminal.MAX_LINE_CHARS


def test_terminal_styles_are_bounded():
    screen = Terminal()
    for number in range(terminal.MAX_STYLES + 100):
        screen.feed(f"\x1b[38;2;{number % 256};{number // 256};7mx\r")
    assert len(screen.snapshot().palette) <= terminal.MAX_STYLES


def test_terminal_snapshot_tells_what_changed():
    screen = Terminal()
    screen.feed("a\nb\nc")
    assert screen.snapshot().changed_from == 0
    screen.feed("C")
    assert screen.snapshot().changed_from == 2
    screen.feed("\nd")
    assert screen.snapshot().changed_from == 3


def test_terminal_sequence_cut_off_by_ctrl_c_swallows_nothing():
    assert lines("y\x1b", "^Cstopped\n")[0].endswith("Cstopped")
    assert lines("y\x1b]0;", "^C\r\nstopped\n") == ["y", "stopped"]


async def test_found_line_stays_marked_where_older_lines_are_dropped():
    async with App().run_test() as pilot:
        view = OutputView()
        await pilot.app.mount(view)
        view.show(OutputSnapshot((Line("a"), Line("b"), Line("c"))))
        view.move_cursor(view.find("c", 0))
        view.show(OutputSnapshot((Line("b"), Line("c")), first=1, changed_from=3))
        assert view.find("c", 0) == view.cursor == 1
        view.show(OutputSnapshot((Line("d"),), first=3, changed_from=3))
        assert view.cursor == -1

"""Text for a terminal: no character of it acts there, whatever a name or a message holds."""

import io
import unicodedata

import pytest

from tkdebug.errors import CompileError, Frame, TkError, shown_path
from tkdebug.fault_printing.text import describe
from tkdebug.records.events import Fault
from tkdebug.runtime.errors import PTXASError, UnknownOptionError
from tkdebug.terminal.text import tell, visible, visible_line

ACTING_CATEGORIES = {"Cc", "Cs", "Zl", "Zp"}
# Overrides, embeddings, isolates; BN is zero columns wide.
ACTING_DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "BN"}
EVIL = "\x1b[2J\x07\u202e\u2066\u200b\x9b\udc80"


def acts(character: str) -> bool:
    return (
        unicodedata.category(character) in ACTING_CATEGORIES
        or unicodedata.bidirectional(character) in ACTING_DIRECTIONS
    )


def test_every_character_that_acts_on_a_terminal_is_written_out():
    for code in range(0x110000):
        character = chr(code)
        if acts(character) and character not in "\n\t":
            shown = visible(character)
            assert shown.isascii(), hex(code)
            assert shown.isprintable(), hex(code)
            assert shown.encode().decode("unicode_escape") == character


@pytest.mark.parametrize(
    "text", ["plain", "\ta\n", "größer 日本語 €…→", "עברית العربية", "└─ 1,5 µs"]
)
def test_what_is_read_stays(text):
    assert visible(text) == visible(text, styled=True) == text


def test_a_name_cannot_begin_a_line():
    assert visible_line("a\n\tb\x1bc") == r"a\n\tb\x1bc"


@pytest.mark.parametrize("code", ["\x1b[1m", "\x1b[31;1m", "\x1b[0m", "\x1b[90m"])
def test_styled_text_keeps_its_colours(code):
    assert visible(f"{code}red{EVIL}", styled=True) == f"{code}red{visible(EVIL)}"
    assert "\x1b" not in visible(code)


@pytest.mark.parametrize(
    "code", ["\x1b[8m", "\x1b[38;5;1m", "\x1b[2J", "\x1b[1;9999H", "\x1b]0;t\x07"]
)
def test_styled_text_keeps_nothing_but_colours(code):
    assert "\x1b" not in visible(code, styled=True)


def test_tell_writes_one_visible_line_under_our_name(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    tell(f"{EVIL}: gone")
    assert stream.getvalue() == f"tkdebug: {visible(EVIL)}: gone\n"


def test_tell_without_stderr_leaves_the_script_s_stdout_alone(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr", None)
    tell("nobody hears it")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "error",
    [
        TkError(f"{EVIL}: no such file"),
        CompileError(f"got {EVIL}", (Frame(f"{EVIL}.py", 3, "k"),), source_line=f"x = {EVIL!s}"),
        PTXASError(f"error: {EVIL}"),
        UnknownOptionError(f"{EVIL}=1"),
    ],
)
def test_errors_are_visible_where_python_prints_them(error):
    assert not any(map(acts, str(error).replace("\n", "")))
    assert visible(EVIL) in str(error)


def test_faults_and_paths_are_visible():
    fault = Fault("oob-load", EVIL, (Frame(EVIL, 3, EVIL),), EVIL, hint=EVIL)
    assert not any(map(acts, describe(fault).replace("\n", "")))
    assert shown_path("a\nb\x1b.py") == r"a\nb\x1b.py"

"""Commands that are given and not typed, whose file they are of; scripts that are in no file."""

import io
import json
import os
import stat
from pathlib import Path

import pytest

from tkdebug.cli.commands import debug

TWICE = str(Path(__file__).parent / "scripts" / "twice.py")
CODE = """\
import sys
import torch, triton, triton.language as tl
from dataclasses import dataclass

@dataclass
class Two:
    a: int
    b: int

@triton.jit
def add(x_ptr, n):
    at = x_ptr + tl.arange(0, 4)
    x = tl.load(at)
    tl.store(at, x + n)

two = Two(1, 2)
x = torch.arange(4.0)
add[(1,)](x, two.b)
print(x.tolist(), sys.argv)
"""
AT_STORE, AT_PRINT = 14, 19


class Terminal(io.StringIO):
    """A stdin at which somebody is asked."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("words", "failed", "left"),
    [
        (["b 999", "c", "p 1"], "*** ", "c ;; p 1"),
        (["b nothing.py:3 if", "c"], "*** nothing.py:3 if: expected a condition", "c"),
        (["p nothing ;; p 2", "c"], "*** NameError: name 'nothing' is not defined", "p 2 ;; c"),
        (["b 8", "c", "p nothing", "p 2"], "*** nothing: NameError", "p 2"),
        (["b 8", "c", "p nothing ;; p 2 ;; c", "q"], "*** nothing: NameError", "p 2 ;; c ;; q"),
        (["b 8", "c ;; p nothing ;; p 2", "q"], "*** nothing: NameError", "p 2 ;; q"),
        (["b 8", "c", "\udcff", "p 2"], "*** the line is no UTF-8 text", "p 2"),
    ],
)
def test_a_given_command_that_fails_stops_the_rest_and_the_script(run, words, failed, left):
    status, out, err = run(*(word for each in words for word in ("-c", each)), TWICE)
    assert status == 2
    assert out.splitlines()[-3].startswith(failed)
    assert out.splitlines()[-2:] == [
        f"not run: {left}",
        "a command has failed, and nobody can be asked: the script ends here",
    ]
    assert "24.0" not in out
    assert "never met" not in err


def test_a_given_command_that_fails_leaves_the_rest_to_who_is_asked(run, monkeypatch):
    lines = iter(["p 'typed'", "p nothing ;; p 'still'", "q"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    words = ["-c", "b 8", "-c", "c", "-c", "nothing", "-c", "p 'given'"]
    status, out, _ = run(*words, TWICE, typed=Terminal())
    assert status == 0
    assert "not run: p 'given'\n'typed' = 'typed'\n" in out
    assert "'still' = 'still'" in out


def test_a_given_command_that_fails_is_said_as_json(run):
    words = ["-c", "b 8", "-c", "c", "-c", "p nothing", "-c", "p 2"]
    status, out, _ = run("--json", *words, TWICE)
    records = [json.loads(line) for line in out.splitlines()]
    assert status == 2
    assert records[-2] == {"event": "failed", "not_run": ["p 2"], "ends_script": True}
    assert records[-1] == {"event": "end", "exit_status": 2}


def test_a_command_of_a_file_that_fails_stops_those_of_the_command_line(run, tmp_path):
    commands = tmp_path / "commands"
    commands.write_text("b 8\nc\np nothing\np 2\n")
    status, out, _ = run("-x", commands, "-c", "p 3", TWICE)
    assert status == 2
    assert "not run: p 2 ;; p 3\n" in out


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.chmod(0o620), "may be written by others (chmod go-w takes that away)"),
        (lambda path: path.chmod(0o602), "may be written by others (chmod go-w takes that away)"),
        (lambda path: path.unlink() or os.mkfifo(path), "is no regular file"),
        (lambda path: path.unlink() or path.mkdir(), "is no regular file"),
    ],
)
def test_commands_that_others_may_have_written_are_not_run(run, tmp_path, make, said):
    own = tmp_path / ".tkdebugrc"
    own.write_text("!open('ran', 'w')\n")
    make(own)
    status, out, err = run("-c", "q", TWICE)
    assert status == 0
    assert "ran" not in out
    assert err == f"tkdebug: ~/.tkdebugrc: {said}: its commands are not run\n"


def test_commands_of_another_user_are_not_run(run, tmp_path, monkeypatch):
    own = tmp_path / ".tkdebugrc"
    own.write_text("p 'ran'\n")
    own.chmod(stat.S_IRUSR | stat.S_IWUSR)
    _, out, _ = run("-c", "q", TWICE)
    assert "'ran'" in out
    monkeypatch.setattr(debug.os, "geteuid", lambda: os.getuid() + 1)
    _, out, err = run("-c", "q", TWICE)
    assert "'ran'" not in out
    assert err == "tkdebug: ~/.tkdebugrc: belongs to another user: its commands are not run\n"


def test_a_link_to_an_own_file_of_commands_is_followed(run, tmp_path):
    (tmp_path / "dotfiles").write_text("p 'ran'\n")
    (tmp_path / "dotfiles").chmod(0o600)
    (tmp_path / ".tkdebugrc").symlink_to(tmp_path / "dotfiles")
    _, out, err = run("-c", "q", TWICE)
    assert ("'ran'" in out, err) == (True, "")


@pytest.mark.parametrize("option", [["--code", CODE], [f"--code={CODE}"]])
def test_code_of_the_command_line_is_debugged(run, option):
    typed = f"b {AT_STORE} if n == 2\nb {AT_PRINT}\nc\np x[3]\nw\nc\nl\nc\n"
    status, out, _ = run(*option, "-c", "--own", typed=typed)
    assert status == 0
    assert f"> <code>({AT_STORE})add()\n-> tl.store(at, x + n)\n" in out
    assert "x[3] = 3\n" in out
    assert f"> <code>({AT_PRINT})<module>()\n-> print(x.tolist(), sys.argv)\n" in out
    assert "__init__" not in out  # what a dataclass generates
    assert "[2.0, 3.0, 4.0, 5.0] ['-c', '-c', '--own']\n" in out


def stdin_with(text):
    return io.TextIOWrapper(io.BytesIO(text.encode()))


def test_a_script_of_stdin_is_debugged(run):
    words = (f"b {AT_STORE}", "c", "p x[3]", "c")
    commands = [word for each in words for word in ("-c", each)]
    status, out, _ = run(*commands, "-", "own", typed=stdin_with(CODE))
    assert status == 0
    assert f"> <stdin>({AT_STORE})add()\n" in out
    assert "x[3] = 3\n" in out
    assert "[2.0, 3.0, 4.0, 5.0] ['-', 'own']\n" in out


def test_who_is_to_be_asked_about_a_script_of_stdin_has_to_be_said(run):
    status, out, err = run("-", typed=stdin_with(CODE))
    assert (status, out) == (2, "")
    assert "debug: stdin is the script, so nobody can be asked; give commands by -c" in err


def test_code_that_is_not_there_is_asked_for(run):
    status, _, err = run("--code")
    assert status == 2
    assert "give a script.py, -m module, --code code, or - for stdin, to debug" in err


def test_no_rc_leaves_the_users_commands_out(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / ".tkdebugrc"
    own.write_text("p 6 * 7\n")
    own.chmod(0o600)
    assert "42" in run("-c", "q", TWICE)[1]
    assert "42" not in run("--no-rc", "-c", "q", TWICE)[1]


def test_answers_say_whether_the_script_goes_on(run):
    words = ["b 8", "c", "p 1", "n", "moment"]
    _, out, _ = run("--json", *(word for each in words for word in ("-c", each)), TWICE)
    answers = [one for one in map(json.loads, out.splitlines()) if one["event"] == "answer"]
    found = {one["command"]: one["resumes"] for one in answers}
    assert found == {"b 8": False, "c": True, "p 1": False, "n": True, "moment": False}

"""One bad line is one line of answer, and the session goes on: bytes, expressions, Ctrl-C."""

import builtins
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from patience import LONGEST_WAIT_S
from warm_python import run_module, start_python

TWICE = str(Path(__file__).parent / "scripts" / "twice.py")
DEEP = "1 +" * 5000 + "1"


def debug(*words, typed=b""):
    """Run the command, typed at as at a pipe: its status, and what it says."""
    done = run_module("tkdebug", "debug", *words, input=typed, timeout=LONGEST_WAIT_S)
    return done.returncode, done.stdout, done.stderr


BAD = [
    (b"p \xff", "*** the line is no UTF-8 text"),
    (b"\xc3\x28\xff\xfe", "*** the line is no UTF-8 text"),
    (b"p 10 ** 5000", "an int of 16,610 bits"),
    (b"p [10 ** 5000, 1]", "[an int of 16,610 bits, 1]"),
    (b"p {1: 10 ** 5000}", "<dict without a repr: ValueError: Exceeds the limit"),
    (b'p __import__("sys").exit(9)', "*** SystemExit: 9"),
    (b'__import__("sys").exit(9)', "*** SystemExit: 9"),
    (b"p (_ for _ in ()).throw(BaseException('x'))", "*** BaseException: x"),
    (b"p '\\udcff'", r"'\udcff'"),
    (b"p \x00", "null"),
    (b"p " + DEEP.encode(), "***"),
    (DEEP.encode(), "***"),
    (b"x = " + DEEP.encode(), "***"),
    (b"why " + b"-" * 5000 + b"x[0]", "***"),
    (b"watch " + DEEP.encode(), "***"),
    (b"p " + b"(" * 3000, "***"),
    (b"pp type('R', (), {'__repr__': lambda _: 1 / 0})()", "ZeroDivisionError"),
    (b"p type('R', (), {'__repr__': lambda _: __import__('sys').exit(3)})()", "*** SystemExit: 3"),
    (b"b 9 if " + DEEP.encode(), "***"),
]


@pytest.mark.parametrize("place", ["at the script's lines", "in a kernel"])
def test_a_bad_line_is_one_line_and_the_session_goes_on(place):
    begin = b"b 8\nc\n" if place == "in a kernel" else b""
    typed = begin + b"".join(line + b"\np 'after'\n" for line, _ in BAD) + b"q\n"
    status, out, err = debug(TWICE, typed=typed)
    assert (status, err) == (0, "")
    answers = out.split("(tkdebug) ")[3 if begin else 1 :]
    for place_, (line, said) in enumerate(BAD):
        answer, after = answers[2 * place_ : 2 * place_ + 2]
        assert said in answer, line[:60]
        # What pdb says of a piece of Python that it cannot compile may have several lines.
        assert answer.count("\n") == 1, line[:60]
        assert after.endswith("'after'\n"), line[:60]


def test_a_bad_line_is_one_object_of_json():
    typed = b"b 8\nc\n" + b"".join(line + b"\n" for line, _ in BAD) + b"p 'after'\nq\n"
    status, out, _ = debug("--json", TWICE, typed=typed)
    answers = [json.loads(line) for line in out.splitlines()]
    answers = [each for each in answers if each["event"] == "answer"]
    assert status == 0
    assert len(answers) == len(BAD) + 4
    assert answers[-2]["text"] == ["'after' = 'after'"]


def test_text_that_stdout_has_no_letters_for_is_written_out():
    command = [sys.executable, "-m", "tkdebug", "debug", "--code", "x = '\u00e9'\nprint(1)"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    typed = b"n\np x\nq\n"
    done = subprocess.run(
        command, input=typed, capture_output=True, timeout=LONGEST_WAIT_S, env=environment
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"(tkdebug) '\\xe9'\n" in done.stdout


ENDLESS = "begun.set() or [0 for _ in iter(int, 1) if 0]"


@pytest.fixture
def pressed(monkeypatch):
    """Presses Ctrl-C once the expression has begun that sets `begun`."""
    begun = threading.Event()
    monkeypatch.setattr(builtins, "begun", begun, raising=False)

    def press():
        begun.wait(LONGEST_WAIT_S)
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    yield
    begun.set()
    pressing.join()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["b 8", "c", f"p {ENDLESS}"], "*** interrupted"),
        ([f"p {ENDLESS}"], "*** KeyboardInterrupt"),
        ([f"b 8 if {ENDLESS}", "c"], "the condition of breakpoint 1 was interrupted\n> "),
        ([f"b 22 if {ENDLESS}", "c"], "twice.py(22)<module>()"),
        ([f"watch ({ENDLESS}) or 1", "c"], "interrupted\n> "),
        (["b 8", f"log 1 {{{ENDLESS}}}", "b 9", "c"], "<interrupted>\n"),
        (
            ["b end", "c", "clear 1", f"b 8 if {ENDLESS}", "rc"],
            "interrupted: the launch stays where it is\n",
        ),
        ([f"b end if {ENDLESS}", "c"], "the condition of breakpoint 1 failed: interrupted"),
    ],
)
def test_ctrl_c_interrupts_what_is_evaluated_and_the_session_goes_on(run, pressed, typed, said):
    status, out, err = run(TWICE, typed="\n".join([*typed, "p 'after'", "q", ""]))
    assert status == 0
    assert said in out
    assert "'after'\n" in out
    assert "KeyboardInterrupt" not in err


@pytest.mark.parametrize("typed", [b"exit()\n", b"b 8\nc\nquit()\n", b"b 8\nc\np exit(3)\n"])
def test_the_way_out_of_python_leaves_too(typed):
    status, out, err = debug(TWICE, typed=typed + b"p 'never'\n")
    assert (status, err) == (0, "")
    assert "never" not in out


@pytest.mark.parametrize("words", [(), ("-c", "b 8", "-c", "c")])
def test_sigterm_ends_a_script_while_an_expression_runs(words):
    expression = "p __import__('os').write(2, b'begun\\n') and [0 for _ in iter(int, 1) if 0]"
    command = ("-m", "tkdebug", "debug", *words, "-c", expression, TWICE)
    with start_python(*command, stderr=subprocess.PIPE) as process:
        assert process.stderr.readline() == b"begun\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONGEST_WAIT_S) == 128 + signal.SIGTERM

"""When `tkdebug run` tells a fault: at once where it happens, and with its counts at the end."""

import os
from dataclasses import replace

import pytest
from cli_scripts import NOT_LOOKED_FOR, tkdebug

from tkdebug.errors import Frame
from tkdebug.fault_printing.printer import MAX_PRINTED, FaultPrinter
from tkdebug.fault_printing.text import counted_line, fault_lines, names_of
from tkdebug.records.events import Fault
from tkdebug.terminal.display import View


def test_fault_is_reported_before_what_the_script_does_next(write_script, run_main):
    script = write_script(
        "launch(faulty=True)\nprint('next', file=sys.stderr)\nlaunch(faulty=True)\n"
        "print('last', file=sys.stderr)\n"
    )
    status, _, err = run_main("run", "--no-tui", script)
    assert status == 3
    place = f"tkdebug: {script}:2: oob-load in scale"
    assert err.splitlines() == [
        f"{place}: too far",
        "    from tkdebug.errors import Frame",
        "next",
        "last",
        f"tkdebug: {script.name}:2: oob-load in scale, 2 times in 2 launches",
        f"tkdebug: 2 launches of 1 kernel, 1 fault{NOT_LOOKED_FOR}",
    ]


def test_fault_whose_report_the_script_swallowed_is_reported_at_the_end(write_script, run_main):
    script = write_script(
        "import contextlib, io\n"
        "with contextlib.redirect_stderr(io.StringIO()):\n    launch(faulty=True)\n"
    )
    err = run_main("run", "--no-tui", script)[2]
    assert f"tkdebug: {script}:2: oob-load in scale: too far" in err


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_tell_a_fault_at_once_and_one_of_them_only(write_script, method):
    script = write_script(
        "def work():\n    launch(faulty=True)\n"
        "if __name__ == '__main__':\n"
        "    import multiprocessing\n"
        f"    context = multiprocessing.get_context({method!r})\n"
        "    for _ in range(2):\n"
        "        child = context.Process(target=work); child.start(); child.join()\n"
        "    print('after them', file=sys.stderr)\n"
    )
    done = tkdebug("run", "--no-tui", script)
    before, _, after = done.stderr.partition("after them\n")
    assert before.count("oob-load in scale: too far") == 1
    assert "too far" not in after
    assert "oob-load in scale, 2 times in 2 launches" in after


def test_worker_whose_stderr_is_captured_leaves_the_telling_to_the_end(write_script):
    script = write_script(
        "if len(sys.argv) > 1:\n    launch(faulty=True)\n"
        "else:\n"
        "    import subprocess\n"
        "    subprocess.run([sys.executable, __file__, 'child'], capture_output=True)\n"
        "    print('after it', file=sys.stderr)\n"
    )
    after = tkdebug("run", "--no-tui", script).stderr.partition("after it\n")[2]
    assert after.count("oob-load in scale: too far") == 1


def test_compile_error_that_the_script_catches_is_reported_at_the_end(write_script, run_main):
    script = write_script(
        "HOOKS.fault(Fault('compile-error', 'bad', (Frame(__file__, 2, 'bad'),), 'no such op'))\n"
        "print('next', file=sys.stderr)\n"
    )
    err = run_main("run", "--no-tui", script)[2]
    assert err.index("next") < err.index("compile-error in bad: no such op")


def test_teller_stops_after_many_and_begins_anew_after_a_reset(capsys):
    teller = FaultPrinter(end="no more")
    for number in range(MAX_PRINTED + 3):
        teller.on_fault(Fault("nan", f"kernel{number}", (), "made"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == MAX_PRINTED + 1
    assert lines[-1] == "tkdebug: no more"
    teller.reset()
    teller.on_fault(Fault("nan", "kernel0", (), "made"))
    assert capsys.readouterr().err == "tkdebug: nan in kernel0: made\n"
    teller.tell_counts()
    assert capsys.readouterr().err == ""


def test_teller_claims_no_fault_that_it_does_not_tell(capsys):
    claimed = []
    teller = FaultPrinter(lambda fault: claimed.append(fault.kernel) or True)
    for number in range(MAX_PRINTED + 3):
        teller.on_fault(Fault("nan", f"kernel{number}", (), "made"))
    assert len(claimed) == MAX_PRINTED


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_tells_a_fault_though_its_parent_was_telling_one(capfd):
    teller = FaultPrinter()
    teller.on_fault(Fault("nan", "first", (), "made"))
    with teller._lock:  # as another thread would hold it
        child = os.fork()
        if child == 0:
            teller.on_fault(Fault("nan", "second", (), "made"))
            teller.tell_counts()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    reported = capfd.readouterr().err
    assert reported.count("in first: made") == 1
    assert reported.count("nan in second") == 1


def test_progress_line_makes_room_for_a_fault(monkeypatch, write_script, run_main):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    script = write_script(
        "HOOKS.progress(LaunchProgress(1, 'scale', 5, 10, 2_000_000_000)); launch(faulty=True)"
    )
    err = run_main("run", "--no-tui", script)[2]
    assert f"left\r\x1b[Ktkdebug: {script}:2: oob-load" in err


@pytest.mark.parametrize(
    ("environment", "is_terminal", "coloured"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_faults_are_coloured_on_a_terminal(
    write_script, run_main, monkeypatch, environment, is_terminal, coloured
):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    err = run_main("run", "--no-tui", write_script("launch(faulty=True)"))[2]
    assert ("\x1b[1;31moob-load\x1b[0m" in err) is coloured
    assert ("\x1b" in err) is coloured


def test_colours_of_a_kernel_s_own_are_not_taken_over(write_script, run_main, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    err = run_main("run", "--no-tui", write_script("launch('\\x1b[31mred', faulty=True)"))[2]
    assert "in \\x1b[31mred: too far" in err


LONG = (
    "    x = tl.load(x_ptr + rows[:, None] * stride_row + (start + cols)[None, :], mask=rows < n)"
)


def long_fault(column):
    return Fault(
        "oob-load",
        "kernel",
        (Frame("/far/k.py", 20, "kernel"), Frame("/far/k.py", 9, "device")),
        "load reads offset 7200 of `x_ptr`, which has 7200 elements",
        column=column,
        program_id=(0, 0, 0),
        hint="this tl.load has no mask: pass mask=offsets < n, with n at most 7200",
    )


@pytest.mark.parametrize("called", ["x_ptr", "stride_row", "cols", "n)"])
def test_fault_fits_a_narrow_terminal_with_its_caret_below_what_it_marks(called):
    column = LONG.index(called) + 1
    lines = list(fault_lines(long_fault(column), LONG, "3 times", View(width=60)))
    assert lines[:2] == [
        "/far/k.py:9: oob-load in kernel:",
        "  load reads offset 7200 of `x_ptr`, which has 7200 elements",
    ]
    source, caret = lines[2:4]
    assert source[caret.index("^") :].startswith(called.rstrip(")"))
    assert max(map(len, lines)) <= 60
    assert lines[4:] == [
        "  called from line 20 in kernel",
        "  first in program (0, 0, 0), 3 times",
        "  hint: this tl.load has no mask: pass mask=offsets < n,",
        "  with n at most 7200",
    ]


def test_fault_that_goes_to_a_file_keeps_its_lines():
    lines = list(fault_lines(long_fault(9), LONG, "3 times"))
    assert lines[0].endswith(
        "oob-load in kernel: load reads offset 7200 of `x_ptr`, which has 7200 elements"
    )
    assert lines[1:3] == [LONG, "        ^"]
    assert len(lines) == 6


def test_summary_names_files_by_their_names_if_those_are_apart():
    fault = long_fault(9)
    same = replace(fault, frames=(Frame("/other/k.py", 3, "kernel"),))
    apart = replace(fault, frames=(Frame("/other/ops.py", 3, "kernel"),))
    assert counted_line(fault, 3, 2, names=names_of([fault, apart])).startswith("k.py:9: ")
    assert counted_line(fault, 3, 2, names=names_of([fault, same])).startswith("/far/k.py:9: ")

"""Files of a run: links, names, and files that another run writes to."""

import os
import signal
import subprocess

import pytest
from warm_python import start_python

from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.session import Session

POSIX = pytest.mark.skipif(os.name != "posix", reason="links, locks and signals as POSIX has them")
LONGEST_NAME = 255


def launches(path):
    with Session.open(path) as session:
        return session.launch_count()


@pytest.fixture
def recording(write_script, tmp_path):
    """A run into run.tkd that goes on until it is killed or its stdin is closed."""
    path = tmp_path / "run.tkd"
    script = write_script("launch()\nprint('begun', flush=True)\nsys.stdin.read()\n", "long.py")
    words = ("-m", "tkdebug", "run", "--no-tui", "-o", path, script)
    pipe = subprocess.PIPE
    with start_python(*words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as child:
        assert child.stdout.readline() == b"begun\n"
        yield path, child
        child.kill()


@POSIX
def test_session_that_another_run_records_into_is_refused(recording, run_main, write_script):
    path, child = recording
    script = write_script("launch(); print('ran')")
    status, out, err = run_main("run", "--no-tui", "-o", path, script)
    assert (status, out) == (2, "")
    assert err.startswith(f"tkdebug: {path}: is in use, a run of process {child.pid} that has not")
    child.stdin.close()
    child.wait()
    assert launches(path) == 1
    assert not list(path.parent.glob(".run*"))
    assert run_main("run", "--no-tui", "-o", path, script)[:2] == (0, "ran\n")


@POSIX
def test_session_of_a_run_that_was_killed_is_replaced(recording, run_main, write_script):
    path, child = recording
    child.send_signal(signal.SIGKILL)
    child.wait()
    status, out, _ = run_main("run", "--no-tui", "-o", path, write_script("print('ran')"))
    assert (status, out) == (0, "ran\n")
    assert launches(path) == 0


@POSIX
@pytest.mark.parametrize("started", ["os.fork()", "0 if 'child' in sys.argv else start()"])
def test_session_is_in_use_while_a_process_of_its_run_lives(
    run_main, write_script, tmp_path, started
):
    path, fifo = tmp_path / "run.tkd", tmp_path / "fifo"
    os.mkfifo(fifo)
    body = f"""
import os, subprocess
def start():
    subprocess.Popen([sys.executable, __file__, "child"])
    return 1
if {started}:
    open({str(fifo)!r}).read(1)  # the child is there
    os.kill(os.getpid(), 9)
else:
    launch()
    with open({str(fifo)!r}, "w") as file:
        file.write("x")
    open({str(fifo)!r}).read()
"""
    words = ("-m", "tkdebug", "run", "--no-tui", "-o", path, write_script(body))
    nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with start_python(*words, **nowhere) as process:
        assert process.wait(300) == -signal.SIGKILL
    status, _, err = run_main("run", "--no-tui", "-o", path, write_script("", "second.py"))
    with open(fifo, "w"):
        pass  # lets the child end
    assert status == 2
    assert "is in use" in err


@POSIX
def test_session_through_a_link_is_written_where_it_leads(run_main, write_script, tmp_path):
    (tmp_path / "runs").mkdir()
    link, target = tmp_path / "latest.tkd", tmp_path / "runs" / "first.tkd"
    link.symlink_to(target)
    for count in (1, 2):  # first where the link leads to nothing yet
        assert run_main("run", "--no-tui", "-o", link, write_script("launch()\n" * count))[0] == 0
        assert link.is_symlink()
        assert launches(target) == launches(link) == count


@POSIX
def test_report_through_a_link_that_leads_to_nothing_keeps_the_link(
    run_main, write_script, tmp_path
):
    link, target = tmp_path / "latest.txt", tmp_path / "report.txt"
    link.symlink_to(target)
    assert run_main("run", "--no-tui", "--report", link, write_script("launch()"))[0] == 0
    assert link.is_symlink()
    assert "scale" in target.read_text()


@POSIX
def test_link_that_leads_in_a_circle_is_reported(run_main, write_script, tmp_path):
    link = tmp_path / "run.tkd"
    link.symlink_to(link)
    status, _, err = run_main("run", "--no-tui", "-o", link, write_script(""))
    assert (status, "leads in a circle" in err) == (2, True)


@pytest.mark.parametrize(
    ("option", "length"), [("-o", LONGEST_NAME - 2), ("-o", 300), ("--report", 300)]
)
def test_name_that_is_too_long_is_reported_before_the_script_runs(
    run_main, write_script, tmp_path, option, length
):
    place = tmp_path / ("n" * length)
    status, out, err = run_main("run", "--no-tui", option, place, write_script("print('ran')"))
    assert (status, out) == (2, "")
    assert "too long" in err


@pytest.mark.parametrize("command", ["run", "report", "lines", "passes"])
def test_name_that_is_too_long_to_be_read_is_reported(run_main, tmp_path, command):
    status, out, err = run_main(command, tmp_path / ("n" * 300))
    assert (status, out) == (2, "")
    assert err.startswith("tkdebug: ")
    assert len(err.splitlines()) == 1


def test_recorder_leaves_nothing_but_the_session(tmp_path):
    with Recorder(tmp_path / "run.tkd", output=False):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["run.tkd"]


def test_session_without_a_name_is_refused(run_main, write_script):
    status, out, err = run_main("run", "--no-tui", "-o", "", write_script("print('ran')"))
    line = "tkdebug: .: is no name of a file; give one such as run.tkd\n"
    assert (status, out, err) == (2, "", line)

"""Sessions whose processes fork, spawn, exit early or are killed."""

import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from launching import launch
from warm_python import run_module

from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.session import Session

HERE = Path(__file__).parent
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
}
LAUNCHES = 10_000
# Tells each launch that has ended, with the time, through a pipe: what the file must have.
KILLED_SCRIPT = """
import os, struct, sys, time
from launching import launch
from tkdebug.instrument.recorder import Recorder

Recorder(sys.argv[1]).start()
for number in range(1, int(sys.argv[2]) + 1):
    launch()
    os.write(1, struct.pack("qq", number, time.monotonic_ns()))
"""


def run_python(code, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A session killed in the middle of 10,000 launches, with the launches it had ended."""
    path = tmp_path_factory.mktemp("killed") / "run.tkd"
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED_SCRIPT, str(path), str(LAUNCHES)],
        env={**ENVIRONMENT, "TKDEBUG_RECORDING_PROCESS": "0"},
        stdout=subprocess.PIPE,
    )
    printed = child.stdout.read(16 * LAUNCHES // 2)
    child.send_signal(signal.SIGKILL)
    printed += child.stdout.read()
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL
    return path, list(struct.iter_unpack("qq", printed[: len(printed) // 16 * 16]))


def test_session_killed_has_all_but_the_last_batch(killed):
    path, printed = killed
    assert LAUNCHES // 2 <= len(printed) < LAUNCHES
    with Session.open(path) as session:
        summaries = session.kernel_summaries()
        running = [one for one in session.launches_in_order(limit=10_000) if one.running]
    lost = len(printed) - (summaries[0].finished if summaries else 0)
    assert lost <= 250  # a batch is 500 rows, two to a launch
    assert len(running) <= 1


def test_session_killed_is_recovered_again_and_again(killed):
    path, _ = killed
    counts = []
    for _ in range(2):
        with Session.open(path) as session:
            counts.append(session.launch_count())
            assert session.run().end_ns is None
    assert counts[0] == counts[1] > 0


def test_session_killed_opens_as_a_copy_without_its_log(killed, tmp_path):
    path, _ = killed
    assert path.with_name("run.tkd-wal").exists()
    copy = tmp_path / "copy.tkd"
    shutil.copyfile(path, copy)
    with Session.open(copy) as session:
        assert session.run().script == "-c"
        assert session.launch_count() >= 0
    assert [file.name for file in tmp_path.iterdir()] == ["copy.tkd"]


def test_session_copied_while_it_is_written_opens_alone(tmp_path):
    path, copy = tmp_path / "run.tkd", tmp_path / "copy.tkd"
    with Recorder(path) as recorder:
        shutil.copyfile(path, copy)
        with Session.open(copy) as session:
            assert session.launches().launches == ()
        launch()
        recorder.flush()


def test_session_killed_in_a_launch_shows_it_running(tmp_path):
    path = tmp_path / "run.tkd"
    code = """
import os, signal, sys
from launching import enter
from tkdebug.instrument.recorder import Recorder
recorder = Recorder(sys.argv[1]).start()
enter("long_kernel")
recorder.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run_python(code, path).returncode == -signal.SIGKILL
    with Session.open(path) as session:
        assert [(one.kernel, one.running) for one in session.launches().launches] == [
            ("long_kernel", True)
        ]


def test_session_is_flushed_when_a_script_exits_without_stopping(tmp_path):
    path = tmp_path / "run.tkd"
    code = """
import sys
from launching import launch
from tkdebug.instrument.recorder import Recorder
Recorder(sys.argv[1]).start()
for _ in range(100):
    launch()
sys.exit("end")
"""
    assert run_python(code, path).returncode == 1
    with Session.open(path) as session:
        assert session.launch_count() == 100
        assert session.run().end_ns is not None


def test_session_takes_launches_of_forked_processes(tmp_path):
    path = tmp_path / "run.tkd"
    code = """
import multiprocessing, os, sys, warnings
from launching import enter, launch, leave
from tkdebug.instrument.recorder import Recorder

warnings.simplefilter("error")  # forking with threads about is a warning from 3.12 on

def work(number):
    for _ in range(50):
        launch(f"child_{number}")

with Recorder(sys.argv[1]):
    launch("parent")
    across = enter("across")
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=work, args=(number,)) for number in range(3)]
    for child in children:
        child.start()
    for _ in range(50):
        launch("parent")
    leave(across)
    for child in children:
        child.join()
        assert child.exitcode == 0
"""
    result = run_python(code, path)
    assert (result.returncode, result.stderr) == (0, "")
    with Session.open(path) as session:
        counts = {one.kernel: one.finished for one in session.kernel_summaries()}
        processes = {one.process for one in session.launches(limit=1000).launches}
        assert session.run().exit_status == 0
    assert counts == {"parent": 51, "across": 1, "child_0": 50, "child_1": 50, "child_2": 50}
    assert len(processes) == 4


def test_session_takes_the_rank_of_its_process(tmp_path):
    path = tmp_path / "run.tkd"
    code = """
import sys
from launching import launch
from tkdebug.instrument.recorder import Recorder
with Recorder(sys.argv[1]):
    launch()
"""
    environment = {**ENVIRONMENT, "RANK": "3", "WORLD_SIZE": "1"}
    command = [sys.executable, "-c", code, str(path)]
    subprocess.run(command, env=environment, check=True, timeout=300)
    with Session.open(path) as session:
        assert session.launches().launches[0].rank == 3


POOL_SCRIPT = """
import multiprocessing, sys
from launching import launch

def work(number):
    for _ in range(10):
        launch()

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        pool.map(work, range(20), chunksize=1)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_session_has_the_last_launches_of_a_pool_that_is_ended(tmp_path, method):
    script, path = tmp_path / "pool.py", tmp_path / "run.tkd"
    script.write_text(POOL_SCRIPT)
    words = ("run", "--no-tui", "-o", path, script, method)
    done = run_module("tkdebug", *words, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    with Session.open(path) as session:
        assert session.launch_count() == 200


def test_child_ends_although_its_main_thread_waits_without_having_seen_the_signal(tmp_path):
    # As where a signal comes just before a wait for a lock: another thread gets it here.
    path = tmp_path / "run.tkd"
    code = """
import multiprocessing, os, signal, sys, threading
from launching import launch
from tkdebug.instrument.recorder import Recorder

def child():
    launch()
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()
    lock = multiprocessing.get_context("fork").Lock()
    lock.acquire()
    threading.Timer(0.2, signal.pthread_kill, (thread.ident, signal.SIGTERM)).start()
    lock.acquire()

with Recorder(sys.argv[1]):
    pid = os.fork()
    if not pid:
        child()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    result = run_python(code, path)
    assert result.stdout == f"{-signal.SIGTERM}\n", result.stderr
    with Session.open(path) as session:
        assert session.launch_count() == 1


def test_session_of_a_child_that_is_ended_by_a_signal_leaves_its_status(tmp_path):
    path = tmp_path / "run.tkd"
    code = """
import os, signal, sys
from launching import launch
from tkdebug.instrument.recorder import Recorder

def child(handler):
    pid = os.fork()
    if not pid:
        if handler is not None:
            signal.signal(signal.SIGTERM, handler)
        launch()
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

with Recorder(sys.argv[1]):
    launch()
    print(child(None), child(signal.SIG_IGN), child(lambda *_: os._exit(7)))
"""
    result = run_python(code, path)
    assert result.stdout == f"{-signal.SIGTERM} 0 7\n", result.stderr
    with Session.open(path) as session:
        assert session.launch_count() >= 2

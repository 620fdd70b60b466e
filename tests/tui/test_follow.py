import os
import subprocess
import sys
from pathlib import Path

import pytest
import tui_sample

from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.session import Session
from tkdebug.records.hook_chain import HOOKS
from tkdebug.tui.session import follow
from tkdebug.tui.session.follow import AwaitedSession, Follower
from tkdebug.tui.session.snapshot import ScriptState


def test_follower_reads_what_was_recorded(session):
    snapshot = Follower(session).poll()
    assert [row.id for row in snapshot.rows] == [1, 2, 3, 4, 5]
    assert snapshot.launch_count == 5
    assert [kernel.stages for kernel in snapshot.kernels] == [("tile-ir", "gpu-ir")]
    assert [group.count for group in snapshot.faults] == [896]
    assert {key[1] for key in snapshot.faulty} == {1}


def test_follower_keeps_what_has_not_changed(session):
    follower = Follower(session)
    first, second = follower.poll(), follower.poll()
    assert first == second
    assert first.rows is second.rows
    assert first.faults is second.faults
    assert first.kernels is second.kernels


def test_follower_sees_launches_run_and_end(tmp_path):
    file = tui_sample.write_sources(tmp_path)
    recorder = Recorder(tmp_path / "run.tkd", script="s.py", output=False).start()
    try:
        HOOKS.compiled(tui_sample.compiled(file))
        event = tui_sample.record(1)
        hooks = HOOKS.enter(None, event)
        tui_sample.progress(1, 40, 100)
        recorder.flush()
        with Session.open(tmp_path / "run.tkd") as session:
            follower = Follower(session)
            snapshot = follower.poll()
            row = snapshot.rows[0]
            assert row.running
            assert snapshot.progress[row.key].programs_done == 40
            assert follower.state() == ScriptState("running", process=os.getpid())
            event.duration_ns = 7
            HOOKS.exit(hooks, None, event)
            recorder.stop(0)
            snapshot = follower.poll()
            assert [r.duration_ns for r in snapshot.rows] == [7]
            assert not snapshot.progress
            assert follower.state() == ScriptState("ended", 0)
    finally:
        recorder.stop()


def test_follower_groups_the_same_fault_of_many_launches(tmp_path):
    def more(file: Path) -> None:
        for number in range(2, 12):
            HOOKS.fault(tui_sample.fault(file, number))

    with Session.open(tui_sample.write_run(tmp_path / "run.tkd", during=more)) as session:
        (group,) = Follower(session).poll().faults
    assert (group.launches, group.count) == (11, 11 * 896)


def test_follower_keeps_only_the_latest_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "MAX_ROWS", 10)
    with Session.open(tui_sample.write_run(tmp_path / "run.tkd", launches=50)) as session:
        snapshot = Follower(session).poll()
    assert snapshot.launch_count == 50
    assert len(snapshot.rows) <= 10
    assert snapshot.rows[-1].id == 50


def test_follower_counts_launches_that_it_does_not_read(session):
    follower = Follower(session)
    counted = follower.poll(reads_rows=False)
    assert (counted.launch_count, counted.rows) == (5, ())
    assert follower.state() == ScriptState("ended", 3)
    assert [row.id for row in follower.poll().rows] == [1, 2, 3, 4, 5]


def test_awaited_session_ignores_the_run_before(tmp_path):
    path = tui_sample.write_run(tmp_path / "run.tkd", launches=1)
    awaited = AwaitedSession(path)
    assert awaited.open() is None
    tui_sample.write_run(path, launches=3)
    session = awaited.open()
    assert session is not None
    with session:
        assert session.launch_count() == 3


@pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does")
def test_follower_says_that_a_killed_run_has_no_end(tmp_path):
    script = (
        "import os, signal, sys, pathlib; sys.path.insert(0, sys.argv[1]); import tui_sample\n"
        "from tkdebug.instrument.recorder import Recorder\n"
        "recorder = Recorder(sys.argv[2], output=False).start()\n"
        "tui_sample.launch(1); recorder.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    here = str(Path(tui_sample.__file__).parent)
    path = tmp_path / "run.tkd"
    subprocess.run([sys.executable, "-c", script, here, str(path)], check=False)
    with Session.open(path) as session:
        follower = Follower(session)
        assert follower.poll().launch_count == 1
        assert follower.state() == ScriptState("unended")

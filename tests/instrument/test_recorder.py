import gc
import io
import os
import signal
import sqlite3
import sys
import threading
import time
import weakref

import pytest
from launching import ARGUMENTS, FAR_NS, compiled, enter, fault, launch, leave

from tkdebug.errors import Frame, SessionError
from tkdebug.instrument.recorder import (
    MOVED_AFTER,
    SESSION_VARIABLE,
    Recorder,
    join_from_environment,
)
from tkdebug.instrument.records import Output
from tkdebug.instrument.report import RENDERERS, render
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file import writer
from tkdebug.instrument.session_file.store import SessionStore
from tkdebug.knobs import KNOBS
from tkdebug.records.events import AutotuneChoice, Fault, LaunchProgress
from tkdebug.records.hook_chain import HOOKS
from tkdebug.records.scopes import SCOPES


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.tkd"


def test_recorder_stores_a_launch_with_all_it_knows(path):
    with Recorder(path):
        record = launch(grid=(3, 2, 1), duration_ns=4242, stream=7)
    with Session.open(path) as session:
        (stored,) = session.launches().launches
    assert (stored.id, stored.kernel, stored.grid) == (record.id, "add_kernel", (3, 2, 1))
    assert (stored.duration_ns, stored.start_ns) == (4242, record.start_ns)
    assert stored.options == {"num_warps": 4, "num_stages": 3}
    assert stored.arguments == ARGUMENTS
    assert (stored.stream, stored.error, stored.running, stored.rank) == (7, None, False, 0)


def test_recorder_shows_a_launch_that_has_not_ended_as_running(path):
    with Recorder(path) as recorder:
        entered = enter()
        recorder.flush()
        with Session.open(path) as session:
            page = session.launches()
            assert [one.running for one in page.launches] == [True]
            leave(entered, 5)
            recorder.flush()
            (again,) = session.launches(page.cursor).launches
            assert (again.seq, again.duration_ns) == (page.launches[0].seq, 5)
            assert session.kernel_summaries()[0].finished == 1


def test_recorder_stores_the_error_of_a_launch(path):
    with Recorder(path):
        leave(enter(), 5, "LaunchError: no")
    with Session.open(path) as session:
        assert session.launches().launches[0].error == "LaunchError: no"
        assert session.kernel_summaries()[0].errors == 1


def test_recorder_sums_up_kernels(path):
    with Recorder(path):
        for duration_ns in (10, 30, 20):
            launch("small", duration_ns)
        launch("large", 1000)
        enter("small")
    with Session.open(path) as session:
        large, small = session.kernel_summaries()
        assert session.launch_count() == 5
    assert (large.kernel, large.total_ns) == ("large", 1000)
    assert (small.launches, small.finished, small.total_ns) == (4, 3, 60)
    assert (small.min_ns, small.mean_ns, small.max_ns) == (10, 20.0, 30)


def test_recorder_stores_kernels_with_artifacts_lines_and_source_files(path, tmp_path):
    script = tmp_path / "k.py"
    script.write_text("def add_kernel():\n    pass\n")
    with Recorder(path):
        HOOKS.compiled(compiled(script, source="def add_kernel(): …"))
        HOOKS.compiled(compiled(script, source="the same again"))
    script.write_text("edited since\n")
    with Session.open(path) as session:
        (kernel,) = session.kernels()
        assert (kernel.name, kernel.source) == ("add_kernel", "def add_kernel(): …")
        assert kernel.stages == ("source", "tile-ir")
        assert session.artifact(kernel.hash, "tile-ir") == "tt.func @add\n  tt.load"
        assert session.artifact(kernel.hash, "ptx") is None
        lines = session.op_lines(kernel.hash, "tile-ir")
        assert lines == {2: (Frame(str(script), 1, "add_kernel"),)}
        assert session.source_line(str(script), 2) == "    pass"
        assert session.source_line(str(script), 9) is None
        assert session.source_text("/nowhere.py") is None


def test_recorder_stores_a_fault_whole(path):
    sent = fault()
    with Recorder(path):
        HOOKS.fault(sent)
    with Session.open(path) as session:
        assert session.records(Fault)[0].event == sent
        assert len(session.records(Fault, kind=sent.kind, launch_id=1)) == 1


def test_recorder_stores_a_compile_error_without_a_program(path):
    sent = fault(
        kind="compile-error", program_id=None, lane=(), legal=None, index=None, launch_id=0
    )
    with Recorder(path):
        HOOKS.fault(sent)
    with Session.open(path) as session:
        assert session.records(Fault)[0].event == sent


def test_recorder_stores_what_tuners_chose(path):
    with Recorder(path):
        HOOKS.autotuned(AutotuneChoice("k", "(1,)", "BLOCK: 4", {"BLOCK: 4": 1.5}))
    with Session.open(path) as session:
        (tuning,) = session.records(AutotuneChoice)
    assert (tuning.event.kernel, tuning.event.config, tuning.event.timings_ms) == (
        "k",
        "BLOCK: 4",
        {"BLOCK: 4": 1.5},
    )


def test_recorder_keeps_progress_only_of_launches_that_run(path):
    with Recorder(path) as recorder:
        entered = enter()
        number = entered[1].id
        HOOKS.progress(LaunchProgress(number, "k", 1, 10, 100))
        HOOKS.progress(LaunchProgress(number, "k", 4, 10, 400))
        recorder.flush()
        with Session.open(path) as session:
            (progress,) = session.progress()
            assert (progress.programs_done, progress.programs) == (4, 10)
            leave(entered)
            recorder.flush()
            assert session.progress() == ()


def test_recorder_stores_output_and_leaves_the_streams_as_they_were(path, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Recorder(path):
        assert sys.stdout is stream
        print("hello", "there")
        print("oh", file=sys.stderr)
        print("again \udcff")
    print("not recorded")
    assert "write" not in vars(stream)
    assert stream.getvalue() == "hello there\nagain \udcff\nnot recorded\n"
    with Session.open(path) as session:
        chunks = session.records(Output)
    assert [(chunk.event.stream, chunk.event.text) for chunk in chunks] == [
        ("stdout", "hello there\n"),
        ("stderr", "oh\n"),
        ("stdout", "again \\udcff\n"),
    ]


def test_recorder_stores_the_run(path):
    with Recorder(path, script="s.py", argv=("--size", "3")):
        with Session.open(path) as session:
            run = session.run()
            assert (run.end_ns, run.exit_status) == (None, None)
    with Session.open(path) as session:
        run = session.run()
    assert (run.script, run.argv, run.mode) == ("s.py", ("--size", "3"), "interpret")
    assert run.exit_status == 0
    assert run.end_ns > run.start_ns
    assert {"python", "tkdebug"} <= set(run.versions)


def test_recorder_holds_no_argument_once_the_launch_has_returned(path):
    class Tensor:
        pass

    tensor = Tensor()
    alive = weakref.ref(tensor)
    with Recorder(path):
        launch(make_arguments=lambda held=tensor: (held, ARGUMENTS)[1])
        del tensor
        gc.collect()
        assert alive() is None


def test_recorder_does_not_touch_the_disk_in_the_launch(path, monkeypatch):
    with Recorder(path) as recorder:
        launch()
        recorder.flush()
        mine = threading.current_thread()
        threads = []
        monkeypatch.setattr(
            "tkdebug.instrument.session_file.store.SessionStore.write",
            lambda tables, rows: not threads.append(threading.current_thread()),
        )
        launch()
        recorder.flush()
    assert threads
    assert mine not in threads


def test_recorder_of_many_threads_loses_nothing(path):
    with Recorder(path):
        threads = [
            threading.Thread(target=lambda: [launch() for _ in range(400)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Session.open(path) as session:
        assert session.launch_count() == 1600
        assert session.kernel_summaries()[0].finished == 1600


def test_recorder_whose_file_vanishes_says_so_once_and_launches_go_on(path, capfd):
    with Recorder(path) as recorder:
        for file in path.parent.iterdir():
            file.unlink()
        for _ in range(3):
            launch()
            recorder.flush()
        assert recorder.error
    shown = capfd.readouterr().err
    assert shown.count("recording stopped") == 1


def test_recorder_records_in_the_year_2426(path, monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: FAR_NS)
    with Recorder(path, output=False) as recorder:
        launch()
        entered = enter()
        HOOKS.fault(fault())
        recorder.flush()
        leave(entered)
        SCOPES.exit(SCOPES.enter("step"))
    assert recorder.error is None
    with Session.open(path) as session:
        run = session.run()
        assert [run.start_ns, run.end_ns] == [FAR_NS, FAR_NS]
        assert [one.start_ns for one in session.launches_in_order()] == [FAR_NS, FAR_NS]
        assert [one.time_ns for one in session.records(Fault)] == [FAR_NS]
        for name in RENDERERS:
            assert "".join(render(session, name))


@pytest.fixture
def locked(path):
    """Lock the session as a script can that opens it; the connection lets go of it."""
    connections = []

    def lock():
        connections.append(sqlite3.connect(path, isolation_level=None))
        connections[0].execute("BEGIN IMMEDIATE")
        return connections[0]

    yield lock
    for connection in connections:
        connection.close()


def test_recorder_waits_for_a_script_that_locks_its_own_session(path, locked, monkeypatch, capfd):
    monkeypatch.setattr(writer, "LOCK_TOLD_S", 0.0)
    with Recorder(path, output=False) as recorder:
        launch()
        recorder.flush()
        connection = locked()
        for _ in range(MOVED_AFTER):  # no more than 500 rows would wait otherwise
            launch()
        HOOKS.fault(fault())
        recorder.flush()
        connection.rollback()
        launch()
        recorder.flush()
        assert recorder.error is None
        with Session.open(path) as session:
            assert session.launch_count() == MOVED_AFTER + 2
            assert len(session.fault_groups()) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"tkdebug: {path}: another connection has it locked")


def test_recorder_keeps_what_waits_over_a_fork(path, locked):
    with Recorder(path, output=False) as recorder:
        connection = locked()
        launch()
        recorder.flush()
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
        connection.rollback()
    with Session.open(path) as session:
        assert session.launch_count() == 1


def test_recorder_says_that_the_session_was_locked_to_the_end(path, locked, monkeypatch, capfd):
    monkeypatch.setattr(writer, "BUSY_TIMEOUT_S", 0.1)
    with Recorder(path, output=False) as recorder:
        locked()
        launch()
    assert recorder.error.startswith("another connection has it locked")
    shown = capfd.readouterr().err
    assert "for 0.1 s at the end; end transactions there, and close what is not used" in shown
    assert "disk" not in shown


def test_recorder_keeps_only_so_much_while_the_session_is_locked(path, locked, monkeypatch, capfd):
    monkeypatch.setattr(writer, "MAX_WAITING_EVENTS", 600)
    with Recorder(path, output=False) as recorder:
        locked()
        while recorder.error is None:
            launch()
    assert "while 600 events came" in recorder.error
    assert capfd.readouterr().err.count("recording stopped") == 1


def test_recorder_replaces_an_older_session_and_its_log(path):
    with Recorder(path):
        launch("old")
    path.with_name("run.tkd-wal").write_bytes(b"left by a killed run")
    with Recorder(path):
        launch("new")
    with Session.open(path) as session:
        assert [summary.kernel for summary in session.kernel_summaries()] == ["new"]


def test_recorder_does_not_overwrite_what_is_no_session(path):
    path.write_text("my thesis")
    with pytest.raises(SessionError, match=r"run\.tkd: exists and is not a tkdebug session"):
        Recorder(path).start()
    assert path.read_text() == "my thesis"
    assert HOOKS.launch is None


def test_recorder_replaces_no_device_and_no_pipe(path):
    os.mkfifo(path)
    with pytest.raises(SessionError, match=r"run\.tkd: exists and is not a regular file"):
        Recorder(path).start()
    assert path.is_fifo()


def test_recorder_joins_the_session_its_parent_named(path, monkeypatch):
    with Recorder(path, script="parent"):
        monkeypatch.setenv(SESSION_VARIABLE, str(path))
        child = join_from_environment()
        launch()
        child.stop(5)
    with Session.open(path) as session:
        assert session.launch_count() == 2
        assert (session.run().script, session.run().exit_status) == ("parent", 0)


def test_recorder_that_is_to_join_what_is_not_there_says_so(path, monkeypatch, capsys):
    monkeypatch.setenv(SESSION_VARIABLE, str(path))
    assert join_from_environment() is None
    assert "no session to join" in capsys.readouterr().err


def test_recorder_of_several_ranks_shares_one_file(path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    recorders = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        recorder = Recorder(path, output=False).start()
        HOOKS.fault(fault(message=rank))
        recorder.flush()
        recorders.append(recorder)
    for recorder, status in zip(recorders, (0, 4), strict=True):
        recorder.stop(status)
    with Session.open(path) as session:
        assert {recorded.rank for recorded in session.records(Fault)} == {0, 1}
        assert session.run().exit_status == 4
    assert not path.with_name(".run.tkd.lock").exists()


def test_recorder_overhead_is_a_few_microseconds(path):
    with KNOBS.scope(recording_process=False), Recorder(path):
        launch()
        # Of this thread alone: another may run, or another process.
        started_s = time.thread_time()
        for _ in range(2000):
            launch()
        per_launch_s = (time.thread_time() - started_s) / 2000
    assert per_launch_s < 100e-6  # about 5 us here


def test_recorder_stores_numbers_beyond_64_bits(path):
    with Recorder(path):
        launch(stream=1 << 63)
        HOOKS.fault(fault(index=(1 << 64) - 4, legal=(0, 1 << 70)))
    with Session.open(path) as session:
        assert session.launches().launches[0].stream == 1 << 63
        stored = session.records(Fault)[0].event
    assert (stored.index, stored.legal) == ((1 << 64) - 4, (0, 1 << 70))


def test_recorder_stores_options_of_any_kind(path):
    class Odd:
        def __repr__(self):
            return "<odd>"

    with Recorder(path):
        launch(options={"a": [1, (2, Odd())], "b": 1.5, "c": None, "d": Odd(), "e": "x" * 9999})
    with Session.open(path) as session:
        options = session.launches().launches[0].options
    assert {**options, "e": len(options["e"])} == {
        "a": [1, [2, "<odd>"]],
        "b": 1.5,
        "c": None,
        "d": "<odd>",
        "e": 4096,
    }


def test_recorder_never_lets_more_than_a_batch_wait(path, monkeypatch):
    write = SessionStore.write
    batches = []

    def slow_write(tables, rows):
        batches.append(len(rows))
        threading.Event().wait(0.01)
        return write(tables, rows)

    monkeypatch.setattr(SessionStore, "write", slow_write)
    with KNOBS.scope(recording_process=False), Recorder(path, output=False):
        for _ in range(2000):
            launch()
    assert sum(batches) == 2 * 2000 + 1
    assert max(batches) <= 500


def test_recorder_survives_a_signal_handler_that_launches(path):
    def handler(number, frame):
        launch("in_handler")
        if not done:
            signal.setitimer(signal.ITIMER_REAL, 0.0005)

    done = False
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005)
    try:
        with Recorder(path, output=False):
            for _ in range(3000):
                launch()
            done = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with Session.open(path) as session:
        counts = {one.kernel: one.finished for one in session.kernel_summaries()}
    assert counts["add_kernel"] == 3000
    assert counts.get("in_handler", 1) > 0


def test_run_says_how_its_kernels_ran(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, output=False) as recorder, Session.open(path) as session:
        launch(mode="native")
        recorder.flush()
        assert session.run().mode == "native"
        launch(mode="interpret")
        launch(mode="native")
        recorder.flush()
        assert session.run().mode == "interpret, native"


def test_what_is_put_while_the_thread_ends_is_stored_when_it_rests_again(path, monkeypatch):
    with Recorder(path) as recorder:
        launch()
        ours = recorder._sink._writer
        wake = ours._wake_writer

        def another_thread_puts() -> None:
            # It sees a thread, which is about to end.
            monkeypatch.setattr(ours, "_wake_writer", wake)
            launch()
            wake()

        monkeypatch.setattr(ours, "_wake_writer", another_thread_puts)
        ours.rest()
        assert ours._thread is None
        ours.rest()
        with Session.open(path) as session:
            assert session.launch_count() == 2

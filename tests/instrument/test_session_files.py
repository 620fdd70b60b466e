"""Opening what may lie under a session's name."""

import contextlib
import itertools
import json
import os
import shutil
import sqlite3

import pytest
from launching import compiled, fault, launch

from tkdebug.errors import SessionError
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.records import Output, ScopeSpan
from tkdebug.instrument.report import RENDERERS, render
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.connection import SessionConnection
from tkdebug.instrument.session_file.tables import APPLICATION_ID, SCHEMA_VERSION
from tkdebug.records.events import AutotuneChoice, Fault
from tkdebug.records.hook_chain import HOOKS


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path):
        HOOKS.compiled(compiled("/k.py", source="x" * 20_000))
        HOOKS.fault(fault())
        for _ in range(20):
            launch()
    return path


def read_all(path):
    with Session.open(path) as session:
        for name in RENDERERS:
            "".join(render(session, name))
        session.kernels()
        for kind in (AutotuneChoice, Output, ScopeSpan):
            session.records(kind)
        session.progress()


def error_of(path):
    with pytest.raises(SessionError) as caught:
        read_all(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{path}: ")
    return text


def change(path, statement, *values):
    connection = sqlite3.connect(path)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def test_session_file_is_marked_as_ours(recorded):
    connection = sqlite3.connect(recorded)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_session_that_is_not_there_names_the_way_to_make_one(tmp_path):
    assert "no such session; `tkdebug run -o none.tkd" in error_of(tmp_path / "none.tkd")


def test_session_that_is_a_directory(tmp_path):
    assert "is a directory" in error_of(tmp_path)


@pytest.mark.parametrize("content", [b"print('hello')\n", b"SQLite format 4\0" + b"x" * 200])
def test_session_that_is_another_kind_of_file(tmp_path, content):
    path = tmp_path / "script.tkd"
    path.write_bytes(content)
    assert "is not a tkdebug session" in error_of(path)


def test_session_that_is_empty(tmp_path):
    path = tmp_path / "empty.tkd"
    path.touch()
    assert "is empty" in error_of(path)


def test_session_that_is_another_database(tmp_path):
    path = tmp_path / "other.tkd"
    change(path, "CREATE TABLE launches (a)")
    assert "SQLite file but not a tkdebug session" in error_of(path)


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        (SCHEMA_VERSION - 1, "record the run again"),
        (SCHEMA_VERSION + 1, "open it with a newer tkdebug"),
    ],
)
def test_session_of_another_schema_is_refused_by_its_number(recorded, version, remedy):
    change(recorded, f"PRAGMA user_version = {version}")
    text = error_of(recorded)
    assert f"has schema {version}, this tkdebug reads {SCHEMA_VERSION}; {remedy}" in text


def test_a_session_that_another_tkdebug_writes_while_it_is_read_is_refused(recorded):
    with contextlib.closing(sqlite3.connect(recorded)) as writer:
        writer.execute("SELECT 1 FROM sqlite_master").fetchone()  # its log is there
        with Session.open(recorded) as session:
            session.run()
            writer.execute("PRAGMA user_version = 1000")
            with pytest.raises(SessionError, match=r"has schema 1000.* newer tkdebug"):
                session.kernels()


@pytest.mark.parametrize("keep", [50, 99, 100, 4096, 0.5, 0.99])
def test_session_truncated(recorded, keep):
    size_bytes = recorded.stat().st_size
    os.truncate(recorded, keep if isinstance(keep, int) else int(size_bytes * keep))
    assert "truncated" in error_of(recorded)


def test_session_whose_schema_is_not_utf8_is_one_clear_line(recorded):
    # SQLite's message quotes the name of the index.
    content = recorded.read_bytes()
    damaged = content.replace(b"launches_by_revision", b"launches\xdfby_revision", 1)
    assert damaged != content
    recorded.write_bytes(damaged)
    assert "damaged session (its text is not UTF-8)" in error_of(recorded)


def test_session_with_a_changed_byte_in_its_schema_is_read_or_is_one_line(recorded):
    content = recorded.read_bytes()
    first, last = content.index(b"CREATE"), content.rindex(b"CREATE")
    refused = 0
    for at in range(first - 100, last, 67):
        recorded.write_bytes(content[:at] + b"\xdf" + content[at + 1 :])
        with contextlib.suppress(SessionError):
            read_all(recorded)
            continue
        refused += 1
    assert refused > 20


def test_session_with_garbled_pages_is_one_clear_line(recorded):
    content = bytearray(recorded.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    recorded.write_bytes(content)
    assert "damaged" in error_of(recorded)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("launches", "grid", "[1]"),
        ("launches", "grid", "{"),
        ("launches", "options", "[]"),
        ("launches", "arguments", "[[1,2]]"),
        ("launches", "duration_ns", "soon"),
        ("faults", "frames", "[" * 100_000),
        ("faults", "frames", '[["a","b","c"]]'),
        ("faults", "message", b"\xff"),
        ("kernels", "source", None),
        ("run", "argv", None),
    ],
)
def test_session_with_values_of_another_kind_is_one_clear_line(recorded, table, column, value):
    change(recorded, f"UPDATE {table} SET {column} = ?", value)
    assert "damaged" in error_of(recorded)


def test_session_without_a_table(recorded):
    change(recorded, "DROP TABLE faults")
    assert "no table faults" in error_of(recorded)


def test_session_in_a_read_only_directory(recorded, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    shutil.copyfile(recorded, folder / "run.tkd")
    folder.chmod(0o500)
    try:
        read_all(folder / "run.tkd")
        assert os.listdir(folder) == ["run.tkd"]
    finally:
        folder.chmod(0o700)


def test_session_whose_log_cannot_be_followed_in_place_is_read_from_a_copy(tmp_path, monkeypatch):
    path = tmp_path / "run.tkd"

    def refuse(connection):
        raise sqlite3.OperationalError("unable to open database file")

    with Recorder(path) as recorder:
        launch()
        recorder.flush()
        monkeypatch.setattr(SessionConnection, "_open_in_place", refuse)
        with Session.open(path) as session:
            assert session.launch_count() == 1


def test_session_opened_before_its_writer_sees_what_is_written(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, output=False) as recorder:
        with Session.open(path) as session:
            assert session.launch_count() == 0
            launch()
            recorder.flush()
            assert session.launch_count() == 1


def test_session_whose_writer_came_and_went_unseen_is_read_anew(tmp_path):
    path = tmp_path / "run.tkd"
    recorder = Recorder(path).start()
    with Session.open(path) as session:
        # Nothing was recorded yet, so there is no log; and none is left when all is.
        assert session.launch_count() == 0
        launch()
        recorder.stop()
        assert not path.with_name("run.tkd-wal").exists()
        assert session.launch_count() == 1
        assert session.run().end_ns is not None


def test_session_reading_does_not_change_the_file(recorded):
    before = recorded.read_bytes()
    read_all(recorded)
    assert recorded.read_bytes() == before
    assert [file.name for file in recorded.parent.iterdir()] == ["run.tkd"]


def test_session_closed_says_so(recorded):
    session = Session.open(recorded)
    session.close()
    session.close()
    with pytest.raises(SessionError, match="was closed"):
        session.run()


def test_session_pages_give_every_launch_once(recorded):
    with Session.open(recorded) as session:
        page, seen = session.launches(limit=7), []
        while page.launches:
            assert len(page.launches) <= 7
            seen += [one.seq for one in page.launches]
            assert page.more == (len(seen) < 20)
            page = session.launches(page.cursor, limit=7)
        assert page.cursor == session.launches(limit=1000).cursor
        assert [one.seq for one in session.launches_in_order(15)] == [16, 17, 18, 19, 20]
    assert seen == list(range(1, 21))


@pytest.fixture
def of_two_processes(tmp_path):
    """Launches 10 to 20,000 of one process, then 20,001 and on of another; some miss."""
    path = tmp_path / "two.tkd"
    with Recorder(path):
        launch(id=10)
    connection = sqlite3.connect(path)
    names = [row[1] for row in connection.execute("PRAGMA table_info(launches)")]
    changed = {"seq": "n", "revision": "n", "id": "n + 9 + 50 * (n > 30000)"}
    changed["process"] = "process + (n > 19991)"
    fields = ", ".join(changed.get(name, name) for name in names)
    connection.execute(
        "WITH RECURSIVE numbers(n) AS "
        "(SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < 40000) "
        f"INSERT INTO launches SELECT {fields} FROM numbers, (SELECT * FROM launches)"
    )
    connection.execute("DELETE FROM launches WHERE seq BETWEEN 33000 AND 34999")
    connection.execute("UPDATE launches SET seq = seq - 2000 WHERE seq > 34000")
    connection.commit()
    connection.close()
    return path


def test_launch_is_found_by_its_number_without_a_look_at_all(of_two_processes):
    with Session.open(of_two_processes) as session:
        process = session.launch(1).process
        steps = itertools.count()
        connection = session._connection._connection
        for number in (10, 500, 19_999):
            assert session.launch_of(process, number).id == number
        for number in (20_002, 29_000, 30_100, 40_000):
            assert session.launch_of(process + 1, number).id == number
        connection.set_progress_handler(lambda: next(steps) < 0, 1000)
        assert session.launch_of(process, 19_000).seq == 18_991
        assert session.launch_of(process + 1, 32_000).seq == 32_000 - 59
        assert next(steps) < 40  # A look at all of them takes 100 and more.
        for absent in (9, 20_001, 1 << 62, -(1 << 62)):
            assert session.launch_of(process, absent) is None
        assert session.launch_of(process + 2, 10) is None


def test_session_is_followed_through_a_link(tmp_path):
    path, link = tmp_path / "run.tkd", tmp_path / "link.tkd"
    link.symlink_to(path)
    with Recorder(link, output=False) as recorder:
        launch()
        recorder.flush()
        with Session.open(link) as session:
            assert session.launch_count() == 1
    assert link.is_symlink()
    with Session.open(path) as session:
        assert session.launch_count() == 1


LONE = "k\udcff"


def test_texts_that_are_no_utf8_are_recorded_and_read(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, script=LONE, argv=(LONE,), output=False) as recorder:
        HOOKS.compiled(compiled(tmp_path / "k.py", name=LONE, signature=LONE, source=LONE))
        launch(LONE)
        HOOKS.fault(fault(kernel=LONE, tensor=LONE, message=LONE))
        recorder.flush()
        assert recorder.error is None
    with Session.open(path) as session:
        for name in RENDERERS:
            assert "".join(render(session, name)).encode()
        assert session.launch_count() == len(session.records(Fault)) == 1
        assert session.run().argv == (r"k\udcff",)


def damaged(path, statement):
    with Recorder(path, output=False) as recorder:
        HOOKS.compiled(compiled(path.with_name("k.py")))
        launch()
        HOOKS.fault(fault())
        recorder.flush()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()
    return Session.open(path)


@pytest.mark.parametrize(
    "change",
    [
        "run SET argv = '[\"\\ud800\"]'",
        'run SET versions = \'{"\\uDC00": "\\ud800"}\'',
        'faults SET frames = \'[["\\ud800", 1, "\\udfff"]]\'',
        "launches SET kernel = CAST(x'ff41' AS TEXT)",
        "faults SET message = CAST(x'eda08041' AS TEXT)",
    ],
)
def test_reports_of_texts_that_are_no_utf8_can_be_written(tmp_path, change):
    with damaged(tmp_path / "run.tkd", f"UPDATE {change}") as session:
        for name in RENDERERS:
            assert "".join(render(session, name)).encode()


def test_op_without_a_place_is_damage(tmp_path):
    with damaged(tmp_path / "run.tkd", "UPDATE artifacts SET op_lines = '{\"2\": []}'") as session:
        (kernel,) = session.kernels()
        with pytest.raises(SessionError, match="an op without a place"):
            session.op_lines(kernel.hash, "tile-ir")


@pytest.mark.parametrize("number", ["NaN", "1e400", "-Infinity"])
def test_number_that_is_not_finite_is_null_in_json(tmp_path, number):
    def refuse(constant):
        raise AssertionError(constant)

    change = f"UPDATE launches SET options = '{{\"num_warps\": {number}}}'"
    with damaged(tmp_path / "run.tkd", change) as session:
        for name in ("json", "chrome-trace"):
            json.loads("".join(render(session, name)), parse_constant=refuse)


def test_session_whose_columns_are_computed_is_refused(tmp_path):
    column = "x TEXT AS (printf('%.*c', 450000000, 'x'))"
    with pytest.raises(SessionError, match="table progress is computed"):
        damaged(tmp_path / "run.tkd", f"ALTER TABLE progress ADD {column}")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_session_that_is_a_fifo_is_refused(tmp_path):
    os.mkfifo(tmp_path / "run.tkd")
    with pytest.raises(SessionError, match="is not a regular file"):
        Session.open(tmp_path / "run.tkd")

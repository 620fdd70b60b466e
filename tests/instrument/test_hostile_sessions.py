"""Sessions that somebody has made so that reading them takes for ever, or all memory."""

import contextlib
import sqlite3
import tempfile

import pytest
from launching import compiled, fault, launch

from tkdebug.errors import SessionError, UsageError
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.records import Output
from tkdebug.instrument.report import RENDERERS, render
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file import connection
from tkdebug.instrument.session_file.connection import SessionConnection
from tkdebug.records.hook_chain import HOOKS

PAGE_BYTES = 4096
# Of what a format says of a session with few launches.
MOST_CHARS = 4_000_000


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path):
        HOOKS.compiled(compiled("/k.py"))
        HOOKS.fault(fault())
        launch()
    return path


@contextlib.contextmanager
def edited(path):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as changes:
        changes.execute("PRAGMA journal_mode = DELETE")
        yield changes


def read_all(path):
    """Read a session in all ways; the result says what was wrong with it."""
    problems = set()
    with Session.open(path) as session:
        readers = [lambda name=name: read_format(session, name) for name in RENDERERS]
        readers += [session.launches, session.rank_count, session.fault_groups, session.kernels]
        readers += [session.scope_summaries, lambda: session.records(Output)]
        for read in readers:
            try:
                read()
            except SessionError as error:
                problems.add(str(error).removeprefix(f"{path}: truncated or damaged session "))
    return "\n".join(sorted(problems))


def read_format(session, name):
    chars = 0
    for piece in render(session, name):
        chars += len(piece)
        assert chars < MOST_CHARS, "it has no end"


@pytest.mark.parametrize("column", ["seq", "revision"])
def test_pages_whose_rows_do_not_come_in_order_end(recorded, column):
    """A text is greater than every number, so that the page after it is the same again."""
    with edited(recorded) as changes:
        names = [row[1] for row in changes.execute("PRAGMA table_info(launches)")]
        values = [f"'12' AS {name}" if name == column else f'"{name}"' for name in names]
        changes.execute(f"CREATE TABLE other AS SELECT {', '.join(values)} FROM launches")
        changes.execute("DROP TABLE launches")
        columns = ", ".join(f'"{name}"' for name in names)
        changes.execute(f"CREATE TABLE launches ({columns})")
        changes.execute("INSERT INTO launches SELECT * FROM other")
    if column == "seq":
        assert "(row 12 comes after row 12)" in read_all(recorded)
    with Session.open(recorded) as session:
        read = session.launches_in_order if column == "seq" else session.launches
        with pytest.raises(SessionError, match="row 12 comes after row 12"):
            read(12)


def inner_page(child, cells=300):
    """A page of a table's tree all of whose children are one (SQLite file format, B-tree Pages)."""
    page, at, places = bytearray(PAGE_BYTES), PAGE_BYTES, b""
    for key in range(cells):
        cell = child.to_bytes(4, "big") + bytes((0x80 | key >> 7, key & 0x7F))
        at -= len(cell)
        page[at : at + len(cell)] = cell
        places += at.to_bytes(2, "big")
    page[:7] = bytes((5, 0, 0)) + cells.to_bytes(2, "big") + at.to_bytes(2, "big")
    page[8:12] = child.to_bytes(4, "big")
    page[12 : 12 + len(places)] = places
    return page


@pytest.mark.parametrize("table", ["launches", "faults", "kernels"])
def test_a_tree_that_uses_its_pages_many_times_ends(recorded, table):
    """Some 300 ** 8 rows in 200 kB."""
    with edited(recorded) as changes:
        ask = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        ((root,),) = changes.execute(ask, (table,))
    file = bytearray(recorded.read_bytes())
    begin, end = (root - 1) * PAGE_BYTES, root * PAGE_BYTES
    child = len(file) // PAGE_BYTES + 1
    file += file[begin:end]
    for _ in range(7):
        file += inner_page(child)
        child += 1
    file[begin:end] = inner_page(child)
    file[28:32] = (len(file) // PAGE_BYTES).to_bytes(4, "big")
    recorded.write_bytes(file)
    found = read_all(recorded)
    assert "(its rows are more than its file can hold)" in found or "its rows hold more" in found


def test_a_default_value_does_not_stand_for_each_of_many_rows(recorded):
    """Some 20 GB in 1 MB."""
    with edited(recorded) as changes:
        changes.execute("DROP TABLE output")
        stamp = "seq INTEGER PRIMARY KEY, process, rank, time_ns, stream DEFAULT 'stdout'"
        changes.execute(f"CREATE TABLE output ({stamp})")
        changes.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
            "INSERT INTO output SELECT i, 1, 0, 1, 'stdout' FROM n"
        )
        changes.execute(f"ALTER TABLE output ADD COLUMN text DEFAULT '{'x' * 1_000_000}'")
    assert "(its rows hold more than its file can)" in read_all(recorded)


def test_a_view_without_end_that_takes_a_table_s_place_ends(recorded):
    with Session.open(recorded) as session:
        assert len(session.fault_groups()) == 1
        with edited(recorded) as changes:
            names = [row[1] for row in changes.execute("PRAGMA table_info(faults)")]
            columns = ", ".join(f'i AS "{name}"' for name in names)
            changes.execute("DROP TABLE faults")
            changes.execute(
                "CREATE VIEW faults AS WITH RECURSIVE n(i) AS "
                f"(SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {columns} FROM n"
            )
        with pytest.raises(SessionError, match="its rows are more than its file can hold"):
            session.fault_groups()


def test_ctrl_c_while_a_session_is_read_is_no_damage(recorded, monkeypatch):
    def interrupted(connection):
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "_STEPS_AT_ONCE", 10)
    monkeypatch.setattr(SessionConnection, "_goes_on", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Session.open(recorded)


def test_a_log_larger_than_the_disk_is_not_copied(recorded, tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    def refuse(connection):
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(SessionConnection, "_open_in_place", refuse)
    with open(f"{recorded}-wal", "wb") as log:
        log.truncate(1 << 42)
    with pytest.raises(SessionError, match="No space left"):
        Session.open(recorded)
    assert not list(folder.iterdir())


def test_names_have_no_lines_of_their_own(recorded):
    """Each line of a report and of a message begins with words of ours."""
    with edited(recorded) as changes:
        changes.execute("UPDATE run SET host = 'here\n0 faults', versions = '{\"a\\nb\": \"1\"}'")
        for table, column in (("totals", "kernel"), ("kernels", "name"), ("faults", "kernel")):
            changes.execute(f"UPDATE {table} SET {column} = 'name\n0 faults'")
    with Session.open(recorded) as session:
        assert "\n0 faults" not in "".join(render(session, "text"))
        with pytest.raises(UsageError, match=r"there are name\\n0 faults$"):
            session.kernel_names("other")

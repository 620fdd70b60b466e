"""Record types that the project does not know, and what is derived from a declaration."""

import runpy
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from math import inf, isnan, nan
from pathlib import Path
from typing import Annotated, Literal

import pytest
from launching import enter, launch, leave

from tkdebug.errors import Frame, SessionError
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.records import TABLES, Launch
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.queued_events import LaunchEnded, LaunchStarted
from tkdebug.instrument.session_file.tables import table_of
from tkdebug.records.hook_chain import HOOKS
from tkdebug.records.storage import WIDE, stored


@dataclass(frozen=True, slots=True)
class Point:
    name: str
    at: tuple[int, int] | None


@stored("samples", indices=("line",))
@dataclass(frozen=True, slots=True)
class Sample:
    line: int
    share: float = 0.5
    good: bool = True
    kind: Literal["hot", "cold"] = "hot"
    address: Annotated[int | None, WIDE] = None
    points: tuple[Point, ...] = ()
    by_warp: Mapping[int, tuple[float, ...]] = None
    frames: tuple[Frame, ...] = ()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.tkd"


def recorded(path, *records):
    with Recorder(path, output=False) as recorder:
        for record in records:
            HOOKS.record(record)
        recorder.flush()
        assert recorder.error is None
    return Session.open(path)


FULL = Sample(
    line=7,
    share=0.25,
    good=False,
    kind="cold",
    address=1 << 63,
    points=(Point("a", (1, 2)), Point("\u00e9", None)),
    by_warp={0: (1.0, inf), 3: ()},
)


def test_record_of_a_type_of_its_own_comes_back_as_it_was(path):
    sparse = Sample(line=8, by_warp={})
    with recorded(path, FULL, sparse) as session:
        one, two = session.records(Sample)
        assert (one.event, two.event) == (FULL, sparse)
        assert (one.seq, two.seq) == (1, 2)
        assert one.time_ns <= two.time_ns
        assert [r.event for r in session.records(Sample, line=8)] == [sparse]
        assert [r.seq for r in session.records(Sample, since=1)] == [2]


def test_number_that_is_none_comes_back_as_it_was(path):
    with recorded(path, Sample(1, share=nan, by_warp={})) as session:
        (one,) = session.records(Sample)
        assert isnan(one.event.share)


def test_source_of_a_record_with_a_call_chain_is_kept(path, tmp_path):
    file = tmp_path / "k.py"
    file.write_text("x = 1\n")
    with recorded(path, Sample(1, by_warp={}, frames=(Frame(str(file), 1, "k"),))) as session:
        assert session.source_line(str(file), 1) == "x = 1"


def test_session_without_records_of_a_type_has_none(path):
    with recorded(path) as session:
        assert session.records(Sample) == ()


def test_table_has_the_indices_that_were_declared(path):
    recorded(path, FULL).close()
    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute("EXPLAIN QUERY PLAN SELECT 1 FROM samples WHERE line = 1")
        assert "samples_by_line" in str(plan.fetchall())


@stored("launches")
@dataclass(frozen=True, slots=True)
class FalseLaunch:
    line: int


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (FalseLaunch(1), "FalseLaunch: cannot be recorded: the table launches is another type's"),
        (Point("a", None), "Point: cannot be recorded: Point: is not stored"),
        (Sample(1 << 70, by_warp={}), "Sample: cannot be recorded"),
        (Sample([], by_warp={}), "Sample: cannot be recorded"),
        (Sample(1, points=3, by_warp={}), "Sample: cannot be recorded: got 3, expected a tuple"),
    ],
)
def test_record_that_cannot_be_stored_is_reported_once_and_the_recording_goes_on(
    path, capfd, wrong, message
):
    with Recorder(path, output=False) as recorder:
        for _ in range(2):
            HOOKS.record(wrong)
            recorder.flush()
        launch()
        recorder.flush()
        assert recorder.error is None
    assert capfd.readouterr().err.count(message) == 1
    with Session.open(path) as session:
        assert session.launch_count() == 1


@pytest.mark.parametrize(
    "change",
    [
        "points = '[[1, null]]'",
        "points = '[[\"a\", [1]]]'",
        "points = '{}'",
        "by_warp = '{\"x\": []}'",
        'by_warp = \'{"1": ["x"]}\'',
        "kind = 'warm'",
        "share = 'much'",
        "line = NULL",
        "good = x'00'",
        "process = 'mine'",
    ],
)
def test_record_that_is_damaged_is_one_clear_line(path, change):
    recorded(path, FULL).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE samples SET {change}")
    with Session.open(path) as session, pytest.raises(SessionError) as caught:
        session.records(Sample)
    assert str(caught.value).startswith(f"{path}: truncated or damaged session (got ")
    assert "\n" not in str(caught.value)


def test_table_of_a_record_type_that_is_computed_is_refused(path):
    recorded(path, FULL).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE samples ADD x TEXT AS (printf('%.*c', 450000000, 'x'))")
    with Session.open(path) as session, pytest.raises(SessionError, match="samples is computed"):
        session.records(Sample)


def test_field_that_no_table_has_is_a_mistake_of_the_caller(path):
    with recorded(path) as session, pytest.raises(ValueError, match="samples has no column lines"):
        session.records(Sample, lines=3)


def test_events_of_a_launch_are_the_fields_of_its_record():
    names = [field.name for field in fields(Launch)]
    stamp = ["seq", "revision", "process", "rank"]
    assert names == [*stamp, *LaunchStarted._fields, *LaunchEnded._fields[1:]]


def test_values_that_are_equal_and_differ_are_not_taken_for_each_other(path):
    with Recorder(path, output=False):
        for value in (1, True, 1.0, (1,), (True,)):
            launch(options={"a": value})
    with Session.open(path) as session:
        values = [one.options["a"] for one in session.launches_in_order()]
    assert [repr(value) for value in values] == ["1", "True", "1.0", "[1]", "[True]"]


def test_kernel_that_only_failed_has_no_least_time(path):
    with Recorder(path, output=False) as recorder:
        leave(enter(), None, "LaunchError: no")
        recorder.flush()
        with Session.open(path) as session:
            assert session.kernel_summaries()[0].min_ns == 0
        launch(duration_ns=7)
        recorder.flush()
        with Session.open(path) as session:
            assert session.kernel_summaries()[0].min_ns == 7


def test_page_of_the_session_file_says_what_is_declared():
    docs = Path(__file__).parents[2] / "docs"
    made = runpy.run_path(str(docs / "session_page.py"))["page"]()
    assert (docs / "session.md").read_text() == made, "run python docs/session_page.py"


def test_session_has_the_columns_that_are_declared(path):
    recorded(path).close()
    with closing(sqlite3.connect(path)) as connection:
        for kind in TABLES:
            table = table_of(kind)
            rows = connection.execute(f"PRAGMA table_info({table.name})").fetchall()
            assert [row[1] for row in rows] == [column.name for column in table.columns]

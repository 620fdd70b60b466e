import sqlite3
import zlib
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from tkdebug.errors import SessionError
from tkdebug.instrument.activities import (
    make_batch,
    packed_type,
    recorded_activities,
    unpacked,
)
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.tables import Recorded
from tkdebug.records.hook_chain import HOOKS


def batch_of(*rows):
    packed = np.zeros(len(rows), packed_type())
    for place, fields in enumerate(rows):
        for name, value in fields.items():
            packed[name][place] = value
    return make_batch(packed, ("add", "relu"))


BATCH = batch_of(
    {"name": 1, "start_ns": 500, "duration_ns": 30, "grid": (4, 2, 1), "block": (128, 1, 1)},
    {"name": 0, "start_ns": 100, "duration_ns": 70, "launch": 9, "stream": 7, "graph": 3},
    {"name": 1, "start_ns": 300, "duration_ns": 10, "kind": 1, "size_bytes": 1 << 40},
)


def read(batch):
    return list(unpacked(Recorded(1, 4711, 0, 0, batch)))


def test_batch_comes_back_in_order_of_start():
    first, second, third = read(BATCH)
    assert (first.name, first.launch, first.stream, first.graph) == ("add", 9, 7, 3)
    assert (second.kind, second.size_bytes) == ("memcpy", 1 << 40)
    assert (third.grid, third.block, third.process) == ((4, 2, 1), (128, 1, 1), 4711)
    assert (BATCH.count, BATCH.start_ns, BATCH.end_ns) == (3, 100, 530)


@pytest.mark.parametrize(
    "damaged",
    [
        replace(BATCH, data=b"no"),
        replace(BATCH, data=BATCH.data[:-3]),
        replace(BATCH, count=4),
        replace(BATCH, count=2),
        replace(BATCH, count=-1),
        replace(BATCH, names=("add",)),
        # Far more than it says: not more than that is ever made of it.
        replace(BATCH, data=zlib.compress(b"\0" * (1 << 24))),
    ],
)
def test_damaged_batch_is_refused(damaged):
    with pytest.raises(ValueError, match="activities"):
        read(damaged)


def test_damaged_batch_in_a_session_is_one_clear_line(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, output=False):
        HOOKS.record(BATCH)
    with Session.open(path) as session:
        assert [a.start_ns for a in recorded_activities(session)] == [100, 300, 500]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE activities SET data = x'00'")
        connection.commit()
    with Session.open(path) as session, pytest.raises(SessionError, match="damaged session"):
        list(recorded_activities(session))


def test_totals_are_read_without_the_batches(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, output=False) as recorder:
        HOOKS.record(BATCH)
        recorder.flush()
        with Session.open(path) as session:
            last, totals = session.other_totals()
            assert [(t.kind, t.name, t.total_ns) for t in totals] == [
                ("kernel", "relu", 30),
                ("memcpy", "relu", 10),
            ]
            assert session.other_totals(last) == (last, ())
            HOOKS.record(BATCH)
            recorder.flush()
            assert session.other_totals()[1][0].count == 2

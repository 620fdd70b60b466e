"""The tables of a session file, each derived from the dataclass that was declared for its rows.

Responsible for the statements of a table, and for the way from a record to its row and back.
`events` and `records` declare the records, `columns` how a field lies in a column.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from operator import attrgetter
from typing import Generic, TypeVar, cast

from tkdebug.errors import Frame
from tkdebug.records.columns import (
    MAX_TEXT_CHARS,
    Column,
    columns_of,
    encode_text,
    hints_of,
    storable_ns,
    unmarked,
)
from tkdebug.records.storage import Storage, storage_of

APPLICATION_ID = 0x746B6462  # "tkdb"
SCHEMA_VERSION = 7
BUSY_TIMEOUT_S = 10.0
# The errors of `sqlite3`: its messages quote the file, and Python may not be able to decode them.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Stamp:
    """The place and time at which a record was made.

    Attributes:
        seq: counts the rows of its table, over all processes of the run.
        process: the process id.
        rank: the rank in the environment variable `RANK`, 0 without one.
        time_ns: the time at which it was recorded, since 1970.
    """

    seq: int
    process: int
    rank: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Recorded(Stamp, Generic[_T]):
    """A record of a session: its fields, its process, and its time."""

    event: _T


class Fields:
    """Some columns of a table, read without the others."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        self.select = ", ".join(map(_selected, columns))

    def decoded(self, rows: Sequence[Sequence[object]]) -> Sequence[tuple[object, ...]]:
        """The fields of the records that lie in `rows`, the values of `select`.

        Raises:
            ValueError: something else lies there.
        """
        return list(zip(*_decoded(self._columns, rows), strict=True))


class Table(Generic[_T]):
    """The table of the records of one type."""

    def __init__(self, kind: type[_T]) -> None:
        storage = storage_of(kind)
        self._kind = kind
        self.name = storage.table
        self.own_columns = columns_of(kind)
        self.columns = (
            (*columns_of(Stamp), *self.own_columns) if storage.stamped else (self.own_columns)
        )
        self.statements = _creation(storage, self.columns)
        self.select = ", ".join(map(_selected, self.columns))
        places = ", ".join("?" * len(self.columns))
        self.insert = f"INSERT INTO {self.name} VALUES ({places})"
        self.replace = f"INSERT OR REPLACE INTO {self.name} VALUES ({places})"
        self.add_new = f"INSERT OR IGNORE INTO {self.name} VALUES ({places})"
        # Fields that are call chains, whose source files go into the session.
        self.chains = tuple(
            name
            for name, hint in hints_of(cast("type", kind)).items()
            if unmarked(hint) == tuple[Frame, ...]
        )
        self.is_stamped = storage.stamped
        self._values = attrgetter(*(column.name for column in self.own_columns))
        self._is_single = len(self.own_columns) == 1
        self._encoders = tuple(
            (index, column.encode)
            for index, column in enumerate(self.own_columns)
            if column.encode not in (None, encode_text)
        )
        self._texts = tuple(
            index for index, column in enumerate(self.own_columns) if column.encode is encode_text
        )
        self._times = tuple(
            index
            for index, column in enumerate(self.own_columns)
            if column.sql_type == "INTEGER" and column.name.endswith("_ns")
        )
        self._decoders = tuple(column.decode for column in self.own_columns)

    def row(self, record: _T) -> list[object]:
        """Return the values of `own_columns` of a record."""
        return self.encoded([self._values(record)] if self._is_single else self._values(record))

    def encoded(self, fields: Iterable[object]) -> list[object]:
        """Encode a record of which only the fields are there, in their order."""
        values = list(fields)
        for index in self._texts:
            text = values[index]
            # Most values need no encoding, and a call costs time.
            if isinstance(text, str) and not (text.isascii() and len(text) < MAX_TEXT_CHARS):
                values[index] = encode_text(text)
        for index in self._times:
            values[index] = storable_ns(cast("int | None", values[index]))
        for index, encode in self._encoders:
            values[index] = encode(values[index])
        return values

    def stamped_row(self, record: _T, process: int, rank: int, time_ns: int) -> list[object]:
        """The values of all columns of a new row, which SQLite numbers."""
        return [None, process, rank, storable_ns(time_ns), *self.row(record)]

    def record(self, row: Sequence[object]) -> _T:
        """The record that lies in `row`, the values of `own_columns`.

        Raises:
            ValueError: something else lies there.
        """
        return self._kind(*[decode(v) for decode, v in zip(self._decoders, row, strict=True)])

    def records(self, rows: Sequence[Sequence[object]]) -> tuple[_T, ...]:
        """The records that lie in `rows`, decoded by column.

        Raises:
            ValueError: something else lies there.
        """
        return tuple(map(self._kind, *_decoded(self.own_columns, rows)))

    def fields(self, names: Sequence[str]) -> Fields:
        """Some of `own_columns`, for readers of many rows.

        Raises:
            KeyError: there is no column of that name.
        """
        columns = {column.name: column for column in self.own_columns}
        return Fields(tuple(columns[name] for name in names))

    def recorded(self, row: Sequence[object]) -> Recorded[_T]:
        """Decode the values of all columns of a stamped table."""
        stamp = [decode(v) for decode, v in zip(_STAMP_DECODERS, row[:4], strict=True)]
        return Recorded(*cast("tuple[int, int, int, int]", tuple(stamp)), self.record(row[4:]))

    def select_from(self, present: Container[str]) -> str:
        """Return `select` for a table of an earlier version: columns it lacks have defaults.

        Raises:
            ValueError: it lacks a column that has no default.
        """
        return ", ".join(
            _selected(column) if column.name in present else self._default(column)
            for column in self.columns
        )

    def _default(self, column: Column) -> str:
        field = next((f for f in fields(self._kind) if f.name == column.name), None)  # type: ignore[arg-type]
        if field is not None and field.default_factory is not MISSING:
            value = field.default_factory()
        elif field is not None and field.default is not MISSING:
            value = field.default
        else:
            raise ValueError(f"table {self.name} has no column {column.name}")
        stored = value if column.encode is None else column.encode(value)
        if isinstance(stored, str):
            return "'" + stored.replace("'", "''") + "'"
        return "NULL" if stored is None else repr(stored)

    def matching(self, fields: Sequence[str]) -> str:
        """A condition on the values of those columns.

        Raises:
            ValueError: there is no column of that name.
        """
        unknown = set(fields) - {column.name for column in self.columns}
        if unknown:
            raise ValueError(f"{self.name} has no column {min(unknown)}")
        return " AND ".join(f"{quoted(field)} = ?" for field in fields)


def _decoded(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> list[Iterable[object]]:
    """The values of each column, decoded; () for each if there are no rows."""
    found = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return [column.decoded(values) for column, values in zip(columns, found, strict=True)]


def table_of(kind: type[_T]) -> Table[_T]:
    """The table of the records of that type.

    Raises:
        TypeError: it is not `stored`, or has a field of a type that no column holds.
    """
    return cast("Table[_T]", _table(cast("Hashable", kind)))


def quoted(name: str) -> str:
    """Quote a name, which may be a word of SQL's."""
    return f'"{name}"'


@cache
def _table(kind: Hashable) -> Table[object]:
    return Table(cast("type", kind))


def _creation(storage: Storage, columns: Sequence[Column]) -> tuple[str, ...]:
    key = storage.key or (("seq",) if storage.stamped else ())
    parts = [_declared(column, column.name in storage.unique, key) for column in columns]
    if len(key) > 1:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    # Short rows that are found by their key need no second tree.
    suffix = " WITHOUT ROWID" if len(key) > 1 else ""
    return (
        f"CREATE TABLE IF NOT EXISTS {storage.table} ({', '.join(parts)}){suffix}",
        *(
            f"CREATE INDEX IF NOT EXISTS {storage.table}_by_{field} "
            f"ON {storage.table} ({quoted(field)})"
            for field in storage.indices
        ),
    )


def _declared(column: Column, is_unique: bool, key: tuple[str, ...]) -> str:
    words = [quoted(column.name), column.sql_type]
    if key == (column.name,):
        words.append("PRIMARY KEY")
    elif is_unique:
        words.append("UNIQUE")
    return " ".join(filter(None, words))


def _selected(column: Column) -> str:
    # Cut where what lies there is longer than what is ever written.
    name = quoted(column.name)
    return f"substr({name}, 1, {2 * MAX_TEXT_CHARS})" if column.is_text else name


_STAMP_DECODERS = tuple(column.decode for column in columns_of(Stamp))

"""The record types that a recording knows, and the errors for other values.

Tables that every session has are there from the start; any other comes with its first record, as
long as its name is not another type's.
"""

from __future__ import annotations

import sqlite3
from typing import TypeVar

from tkdebug.instrument.records import TABLES
from tkdebug.instrument.session_file.tables import Table, table_of
from tkdebug.records.storage import storage_of

_T = TypeVar("_T")
# Errors of a field that holds something else than its type says.
NOT_A_RECORD = (
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)


class RecordTables:
    """The tables of one recording."""

    def __init__(self) -> None:
        self._known: set[type] = set(TABLES)
        self._refused: set[type] = set()

    def known(self, kind: type[_T]) -> Table[_T]:
        """The table of `kind`.

        Raises:
            TypeError: it is not `stored`, or has a field of a type that no column holds.
            ValueError: its table is another type's.
        """
        table = table_of(kind)
        if kind not in self._known:
            if table.name in {storage_of(known).table for known in self._known}:
                raise ValueError(f"the table {table.name} is another type's")
            self._known.add(kind)
        return table

    def refuse(self, kind: type) -> bool:
        """Note that a record of `kind` cannot be recorded, and return whether that is news."""
        is_news = kind not in self._refused
        self._refused.add(kind)
        return is_news

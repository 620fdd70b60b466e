"""Connections that write to a session file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from tkdebug.instrument.encode import utf8


class WritingConnection(sqlite3.Connection):
    """A connection that stores any text of a script's.

    A lone surrogate (of an argument or a file name that is not UTF-8, or of a script's output) is
    no UTF-8, and SQLite would refuse the whole batch that it is in.
    """

    def execute(self, statement: str, values: Sequence[object] = (), /) -> sqlite3.Cursor:  # type: ignore[override]
        """As `sqlite3` has it."""
        return super().execute(statement, _stored(values))

    def executemany(  # type: ignore[override]
        self, statement: str, rows: Iterable[Sequence[object]], /
    ) -> sqlite3.Cursor:
        """As `sqlite3` has it."""
        return super().executemany(statement, map(_stored, rows))


def _stored(values: Sequence[object]) -> list[object]:
    return [utf8(v) if isinstance(v, str) and not v.isascii() else v for v in values]

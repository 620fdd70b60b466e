"""Declarations by which record types say that they are stored in sessions, and how.

A record type is a frozen dataclass under `@stored("table")`. The columns of its table follow from
its fields: numbers and texts unchanged, tuples, mappings and dataclasses as JSON. Responsible for
the declaration only: `instrument.session_file.tables` derives tables from it, and the layers above
store and read them.

A field's annotation may carry one of the marks below, as in `Annotated[int, WIDE]`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar


class Mark(Enum):
    """A property of a field that its type does not say."""

    SHORT = "text that is cut at 4096 characters"
    WIDE = "a number that may exceed 64 signed bits"
    OPEN = "a Literal to which later releases may add"
    REPEATED = "JSON of which a run has few different values, worth a cache"


SHORT = Mark.SHORT
WIDE = Mark.WIDE
OPEN = Mark.OPEN
REPEATED = Mark.REPEATED


@dataclass(frozen=True, slots=True)
class Storage:
    """The table in which records of a type are stored.

    Attributes:
        table: its name.
        key: fields that make the primary key.
        unique: fields by which no two rows are equal.
        indices: fields that are searched by.
        stamped: whether rows begin with `seq`, `process`, `rank` and `time_ns`.
    """

    table: str
    key: tuple[str, ...]
    unique: tuple[str, ...]
    indices: tuple[str, ...]
    stamped: bool


_T = TypeVar("_T")


def stored(
    table: str,
    *,
    key: tuple[str, ...] = (),
    unique: tuple[str, ...] = (),
    indices: tuple[str, ...] = (),
    stamped: bool = True,
) -> Callable[[type[_T]], type[_T]]:
    """Return a decorator of frozen dataclasses whose records have a table in the session.

    Those that are `stamped` are put there by `HOOKS.record` and read by `Session.records`.
    """
    storage = Storage(table, key, unique, indices, stamped)

    def declare(kind: type[_T]) -> type[_T]:
        setattr(kind, "__storage__", storage)  # noqa: B010  # no type checker knows it
        return kind

    return declare


def storage_of(kind: type) -> Storage:
    """Return the table in which records of that type are stored.

    Raises:
        TypeError: the type was not declared as `stored`.
    """
    storage = vars(kind).get("__storage__")
    if not isinstance(storage, Storage):
        raise TypeError(f"{kind.__qualname__}: is not stored, declare it with @stored(table)")
    return storage

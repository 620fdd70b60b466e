"""What `install` functions return: something in place that can be undone."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TypeVar

_Self = TypeVar("_Self", bound="InPlace")


class InPlace:
    """In place until `uninstall`, or until the `with` block that it heads ends.

    Args:
        undo: what undoes it, which is taken over.
    """

    def __init__(self, undo: ExitStack | None = None) -> None:
        self._undo = ExitStack() if undo is None else undo.pop_all()

    def uninstall(self) -> None:
        """Undo everything; a second call does nothing."""
        self._undo.close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.uninstall()

"""Attributes of other packages that are replaced, and put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MISSING = object()


class Replacements:
    """The replaced attributes of one installation."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: object, name: str, value: object) -> None:
        """Replace `owner.name`, remembering what its own namespace held."""
        before = vars(owner).get(name, _MISSING)

        def undo() -> None:
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        self._undo.append(undo)
        setattr(owner, name, value)

    def on_restore(self, undo: Callable[[], None]) -> None:
        """Call `undo` when things are put back."""
        self._undo.append(undo)

    def restore(self) -> None:
        """Put everything back, last first; a second call does nothing."""
        while self._undo:
            self._undo.pop()()


def set_option(patches: Replacements, config: Any, name: str, value: object) -> None:
    """Set an option of torch's compiler; its modules of options have no attributes of their own."""
    before = getattr(config, name)
    setattr(config, name, value)
    patches.on_restore(lambda: setattr(config, name, before))

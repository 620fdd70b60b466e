"""Changes to this process that are put back: attributes, environment variables, installations."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

_MISSING = object()
_Self = TypeVar("_Self", bound="InPlace")
COREDUMP_VARIABLE = "TKDEBUG_COREDUMP"
# Set once a process has reported that the CPU is used, so that its children do not.
TOLD_VARIABLE = "TKDEBUG_STAND_IN_TOLD"


class Replacements:
    """The replaced attributes of one installation."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: object, name: str, value: object) -> None:
        """Replace `owner.name`, remembering the value in its own namespace."""
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


class InPlace:
    """An installation, in place until `uninstall` or the end of its `with` block.

    Args:
        undo: the function that undoes it, which is taken over.
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


class Environment:
    """Changes of environment variables of this process, until `restore`."""

    def __init__(self, changes: Mapping[str, str | None]) -> None:
        self._before = {name: os.environ.get(name) for name in changes}
        self._set(changes)

    def restore(self) -> None:
        """Put the variables back."""
        self._set(self._before)

    @staticmethod
    def _set(values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

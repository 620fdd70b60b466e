"""Environment variables that children read, and changes to this process's environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

COREDUMP_VARIABLE = "TKDEBUG_COREDUMP"
# Set once a process has reported that the CPU is used, so that its children do not.
TOLD_VARIABLE = "TKDEBUG_STAND_IN_TOLD"


class Environment:
    """Variables of this process changed until `restore`."""

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

"""The exit statuses of the `tkdebug` command, and the error that carries a script's own."""

from __future__ import annotations

from tkdebug.errors import UsageError

USAGE_STATUS = 2
FAULT_STATUS = 3
INTERRUPTED_STATUS = 130


class ScriptEndedError(UsageError):
    """A script that was run for a command ended before there was anything to show.

    Args:
        message: what is missing.
        status: the script's own exit status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

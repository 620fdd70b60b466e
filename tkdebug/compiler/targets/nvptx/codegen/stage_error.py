"""The error of a stage inside the worker; it crosses to the compiler as a frame."""

from __future__ import annotations


class StageError(Exception):
    """A stage refuses its input.

    Args:
        stage: which: parse, libdevice, optimise, emit, assemble, worker.
        message: one line.
        log: what the stage's library wrote, whole.
    """

    def __init__(self, stage: str, message: str, log: str = "") -> None:
        self.stage = stage
        self.log = log
        super().__init__(message)

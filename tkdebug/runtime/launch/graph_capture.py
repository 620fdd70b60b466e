"""State of the capture of a CUDA graph that interpreted kernels take part in.

The CUDA stand-in captures (`tkdebug.compat.cuda_standin`); a launch must know here whether a graph
is being captured in this thread, and what CUDA does not permit then. Native launches are captured
by CUDA itself.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from tkdebug.errors import TkError
from tkdebug.runtime.launch.requests import Grid

if TYPE_CHECKING:
    from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel


class CaptureError(TkError, RuntimeError):
    """A refusal by CUDA around the capture of a graph; RuntimeErrors of torch on a GPU."""


class LaunchCapture(Protocol):
    """A graph that is being captured."""

    def recording(
        self, kernel: InterpretedKernel, grid: Grid, values: tuple[Any, ...]
    ) -> AbstractContextManager[None]:
        """Return the `with` block around a launch that becomes part of the graph."""

    def fail(self) -> None:
        """Give up the capture after a refusal: as in CUDA, it makes no graph."""


class _Here(threading.local):
    capture: LaunchCapture | None = None


_here = _Here()


def capture_in_force() -> LaunchCapture | None:
    """Return the capture under way in this thread, or None."""
    return _here.capture


def set_capture(capture: LaunchCapture | None) -> None:
    """Make `capture` the one under way in this thread."""
    _here.capture = capture


def refuse_while_capturing(what: str, instead: str) -> None:
    """Refuse `what` if a graph is being captured in this thread.

    Raises:
        CaptureError: a graph is being captured.
    """
    capture = _here.capture
    if capture is not None:
        capture.fail()
        raise CaptureError(
            f"CUDA error: operation not permitted when stream is capturing: {what}; {instead}"
        )
